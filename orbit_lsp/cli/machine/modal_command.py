"""`orbit-lsp modal`: our apps on Modal, and whether Modal can be used."""

from __future__ import annotations

import argparse
import asyncio
import sys

from orbit_lsp.cli import command_settings, json_results, terminal_text
from orbit_lsp.cli.machine.list_results import ModalApp, ModalPrice, ModalStatus
from orbit_lsp.engine.engine import Engine, Unwatched
from orbit_lsp.places.places import Places
from orbit_lsp.runners.modal import account as modal_account
from orbit_lsp.runners.modal import errors as modal_errors
from orbit_lsp.runners.modal import spending
from orbit_lsp.runners.modal.deploy import Account
from orbit_lsp.state import units
from orbit_lsp.state.session import Session
from orbit_lsp.views import gpu_table
from orbit_lsp.views.tables import render
from orbit_remote.common.messages import EXIT_CODES
from orbit_remote.common.plain_text import in_a_line, visible


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    try:
        return asyncio.run(_main(options))
    except KeyboardInterrupt:
        print("orbit-lsp: cancelled", file=sys.stderr)
        return EXIT_CODES["cancelled"]


async def _main(options: argparse.Namespace) -> int:
    session = Session()
    places = Engine(session, Unwatched(), terminal_text.warn).places
    names = ("gpu", "python")
    given = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    try:
        limit = command_settings.budget(options)
    except terminal_text.UsageError as error:
        return terminal_text.refused(str(error), as_json=options.json)
    budget = {} if limit is None else {"modal": {"budget_usd": limit}}
    places.settings.options = given | budget | {"trusted": True, "runner": "modal"}
    for complaint in places.settings.configure(None):
        print(in_a_line(f"orbit-lsp: error: {complaint}"), file=sys.stderr)
        return EXIT_CODES["usage"]
    await places.look_around()  # the image has the author's own versions
    account = places.rental.runner().pool.account
    try:
        return await _obey(options, account, places)
    except Exception as error:  # noqa: BLE001 - of Modal's client; it becomes a sentence
        trouble = modal_errors.trouble(error)
        if options.what == "status" and not options.json:
            print(_prices(places))
        if options.what == "status" and options.json:
            reason = json_results.Reason("infrastructure", trouble.message, trouble.remedy)
            print(json_results.text(await _status(places, None, (), reason)))
        elif options.json:
            print(json_results.failure("infrastructure", trouble.message, trouble.remedy))
        print(visible(f"✗ {trouble.message}\n  fix it: {trouble.remedy}"), file=sys.stderr)
        return EXIT_CODES["infrastructure"]
    finally:
        await places.close()


def _prices(places: Places) -> str:
    """Return the prices of renting. An author wants to know them before making a token."""
    modal = places.settings.now.modal
    table = render([gpu_table.prices(places.rental.costs, modal.idle_s)], markdown=False)
    limit = units.money(modal.budget_usd)
    return f"\n{table}\n\nOnly editors keep a GPU warm. The budget is {limit} a month: ORBIT_BUDGET_USD or run's --budget, in an editor `orbit.modal.budget_usd`."


async def _status(
    places: Places, app: str | None, apps: tuple[ModalApp, ...], failure: json_results.Reason | None = None
) -> ModalStatus:
    """Return what `status --json` prints; prices are known without a token."""
    modal, costs = places.settings.now.modal, places.rental.costs
    prices = tuple(
        ModalPrice(gpu, each.usd_per_s * 3600, each.usd_per_s * spending.FIRST_S, each.usd_per_s * modal.idle_s, each.rates)
        for gpu, each in gpu_table.priced(costs).items()
    )  # fmt: skip
    month, token = await costs.month(), modal_account.token_place()
    return ModalStatus(token, app, apps, month, prices, modal.budget_usd, failure)


async def _obey(options: argparse.Namespace, account: Account, places: Places) -> int:
    name = await account.name()
    if options.what == "deploy":
        await account.apps()  # raises if there is no token, or Modal refuses it
        print(f"building the image of {name}, which takes minutes the first time …", file=sys.stderr)
        await account.deploy()
        print(f"✓ {name} is on Modal")
        return 0
    apps = await account.apps()
    present = [app for app in apps if app.present]
    if options.what == "status":
        if options.json:
            listed = tuple(ModalApp(app.name, app.id, app.present) for app in apps)
            print(json_results.text(await _status(places, name, listed)))
            return 0
        month = await places.rental.costs.month()
        print(f"✓ token     {modal_account.token_place()}, accepted by Modal")
        if not present:
            print(
                f"· app       {name} is not deployed yet: the first run deploys it, or `orbit-lsp modal deploy`"
            )
        for app in apps:
            print(
                f"✓ app       {app.name}"
                if app.present
                else f"· older     {app.name}: `orbit-lsp modal prune`"
            )
        if month:
            print(f"· month     {spending.month_text(month, None)}")
        print(_prices(places))
        return 0
    stops = options.what == "stop"
    ending = (
        apps if stops and options.files else present if stops else [app for app in apps if not app.present]
    )
    for app in ending:
        await account.stop(app)
        print(f"✓ {app.name} is stopped")
    if stops:
        places.rental.costs.end()
    if stops and options.files:
        print(f"✓ the volume {await account.delete_files()} is deleted")
    elif not ending:
        print("nothing to stop" if stops else "there is no app of an older version")
    return 0
