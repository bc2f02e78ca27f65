"""What an author chooses, is asked and is shown about rented GPUs, in a whole server over stdio.

The GPU in every container is a recorded H100: whoever asks for another kind gets the error that says so.
"""

from __future__ import annotations

import re

import pytest
from lsprotocol import types as lsp

from orbit_lsp.runners.modal.ledger import Ledger, RentedTime, ledger_file
from tests.e2e.conftest import Editor
from tests.e2e.test_run import MEASURED, SOURCE
from tests.modal_loopback.loopback import Loopback


async def opened(start, name: str = "vscode", text: str = SOURCE, **settings: object) -> Editor:
    editor: Editor = await start(name, runner="modal", compile_on_save=False, **settings)
    editor.open("saxpy.cu", text)
    await editor.titles()
    return editor


def answering(editor: Editor, answer: str | None) -> list[str]:
    """What the editor is asked, each answered with the choice that begins with `answer`."""
    asked: list[str] = []

    def reply(params: lsp.ShowMessageRequestParams) -> lsp.MessageActionItem | None:
        asked.append(params.message)
        return next(
            (action for action in params.actions or [] if answer and action.title.startswith(answer)), None
        )

    editor.client.feature(lsp.WINDOW_SHOW_MESSAGE_REQUEST)(reply)
    return asked


# -- choice of GPU ----------------------------------------------------------------------------------


async def test_the_lens_of_the_file_asks_which_gpu_and_lenses_follow(h100s: Loopback, start) -> None:
    editor = await opened(start)
    asked = answering(editor, "L4,")
    (lens,) = [
        lens.command for lens in await editor.lenses() if lens.command.title == "Modal GPU: H100 (change)"
    ]
    await editor.command(lens.command, *lens.arguments)
    await editor.until(lambda: asked)
    await editor.asked_until(editor.titles, lambda titles: (0, "▶ Run on L4") in titles)
    assert asked == ["orbit: which GPU on Modal? Now H100 (rates of 2026-09-20)"]
    assert (await editor.titles())[0] == (0, "Modal GPU: L4 (change)")


@pytest.mark.parametrize("gpu", ["B200:2", "RTX PRO 6000"])
async def test_an_editors_own_picker_names_the_gpu(h100s: Loopback, start, gpu: str) -> None:
    editor = await opened(start)
    await editor.command("orbit.chooseGpu", {"gpu": gpu})
    await editor.asked_until(editor.titles, lambda titles: (0, f"▶ Run on {gpu}") in titles)


async def test_a_gpu_that_modal_has_not_is_named(h100s: Loopback, start) -> None:
    editor = await opened(start)
    await editor.command("orbit.chooseGpu", {"gpu": "H99"})
    (message,) = await editor.until(editor.messages)
    assert message.startswith("orbit: 'H99' is not one of the GPUs on Modal: T4, L4, A10, ")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"gpu": "L40"}, ""),
        ({"gpu": "A1000X"}, "orbit setting `gpu`: 'A1000X' is not one of the GPUs on Modal: T4, "),
    ],
)
async def test_a_setting_that_modal_has_not_rents_nothing(
    h100s: Loopback, start, settings: dict[str, str], complaint: str
) -> None:
    editor = await opened(start, **settings)
    if complaint:
        (message,) = await editor.until(editor.messages)
        assert message.startswith(complaint)
    for command in ("orbit.run", "orbit.profile", "orbit.keepWarm", "orbit.runOnAll", "orbit.chooseGpu"):
        before = len(editor.messages())
        asked = {"uri": editor.uri, "kernel": "saxpy", "gpu": settings["gpu"], "gpus": [settings["gpu"]]}
        await editor.command(command, asked)
        messages = await editor.until(lambda before=before: editor.messages()[before:])
        assert "is not one of the GPUs on Modal: T4, L4, A10, " in messages[0]
    assert h100s.world.containers == {}


async def test_an_editor_that_cannot_be_asked_has_a_code_action_for_each(h100s: Loopback, start) -> None:
    editor = await opened(start, "emacs", gpus=["L4", "H100"])
    titles = [action.title for action in await editor.actions(0)]
    assert "▶ Run on all: L4, H100 (saxpy)" in titles
    assert [title for title in titles if "Modal GPU" in title] == ["Modal GPU: use L4"]
    await editor.command("orbit.chooseGpu")
    (message,) = await editor.until(editor.messages)
    assert "this editor cannot show a choice" in message


# -- run on all -------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_run_on_all_makes_one_table_and_the_hint_stays_the_main_gpus(h100s: Loopback, start) -> None:
    editor = await opened(start, gpus=["L4", "H100", "H100:2"])
    (action,) = [
        action
        for action in await editor.actions(0)
        if action.title.startswith("▶ Run on all: L4, H100, H100:2")
    ]
    await editor.command(action.command, *action.arguments)
    (ended,) = await editor.until(editor.ended)
    assert re.sub(r"[\d.]+ s|\$[\d.]+", "#", ended) == (
        "H100 288 µs, H100:2 288 µs · # of L4, H100, H100:2, # at rates of 2026-09-20"
    )
    assert await editor.hints() == [(0, MEASURED)]
    hover = await editor.hover(0, 18)
    table = hover[hover.index("saxpy on 3 GPUs") :].split("\n\n")[1].splitlines()
    cells = [[cell.strip().replace("\\", "") for cell in row.strip("|").split("|")] for row in table]
    assert cells[0] == ["GPU", "time", "occupancy", "an hour", "a million launches", ""]
    assert cells[2][-1] == "L4 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3"
    # 288.032 µs a launch at $3.95 and $7.90 an hour, two cores and 4 GiB besides
    assert cells[3] == ["NVIDIA H100 80GB HBM3", "288 µs ±0.2%", "≤100%", "$4.08/h", "$0.33", ""]
    assert cells[4] == ["NVIDIA H100 80GB HBM3", "288 µs ±0.2%", "≤100%", "$8.03/h", "$0.64", ""]
    logs = editor.client.log_messages
    await editor.until(lambda: [log for log in logs if "saxpy on 3 GPUs" in log.message])


@pytest.mark.slow
async def test_run_on_all_is_cancelled_together_and_keeps_what_came(h100s: Loopback, start) -> None:
    editor = await opened(start, text=SOURCE + "// SLOW\n", gpus=["H100", "H100:2"])
    target = {"uri": editor.uri, "kernel": "saxpy"}
    await editor.command("orbit.runOnAll", target)
    bars = editor.progress
    for name in ("H100 running", "H100:2 running"):
        await editor.until(lambda message=name: any(message in str(s.message) for bar in bars() for s in bar))
    await editor.command("orbit.cancel", target)
    assert await editor.until(editor.ended) == ["cancelled"]
    assert all("cancel" not in title for _, title in await editor.titles())
    assert len(await editor.command("orbit.sessions")) == 2  # cancelling ended the work alone


async def test_a_list_of_gpus_with_a_mistake_runs_nothing(h100s: Loopback, start) -> None:
    editor = await opened(start)
    await editor.command("orbit.runOnAll", {"uri": editor.uri, "kernel": "saxpy", "gpus": ["H100", "H99"]})
    (message,) = await editor.until(editor.messages)
    assert message.startswith("orbit: 'H99' is not one of the GPUs on Modal: T4")
    assert h100s.world.containers == {}


# -- the budget -------------------------------------------------------------------------------------


def rented_before(usd: float) -> None:
    """Somebody has rented for so many dollars this month."""
    import time

    now = time.time()
    Ledger(ledger_file).put(RentedTime("ta-0", "H100", now - 1, now, usd, "Modal's rates"))


@pytest.mark.slow
async def test_a_run_that_fits_the_budget_is_not_asked_about(h100s: Loopback, start) -> None:
    editor = await opened(start, modal={"budget_usd": 5})
    asked = answering(editor, "Run once")
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    assert (await editor.until(editor.ended))[0].startswith("288 µs")
    assert asked == []


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        ("Run once", "288 µs"),
        (None, "cancelled: not run: this may take"),
        pytest.param("Run, and", "288 µs", marks=pytest.mark.slow),
    ],
)
async def test_a_run_that_may_pass_the_budget_is_asked_about(
    h100s: Loopback, start, answer: str | None, ended: str
) -> None:
    rented_before(4.90)
    editor = await opened(start, modal={"budget_usd": 5})
    asked = answering(editor, answer)
    for number in (1, 2):
        await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
        await editor.until(lambda number=number: len(editor.ended()) == number)
        assert editor.ended()[-1].startswith(ended)
    assert len(asked) == (1 if answer == "Run, and" else 2)
    assert re.fullmatch(
        r"orbit: this may take the month's spending on Modal to \$5\.\d\d, past the budget of \$5\.00 \(\$4\.90 spent, "
        r"\$0\.00 more rented or waiting, \$0\.\d+ for the \d+ s that it may take: \d+ s to build and to run by its limits and 300 s of idle GPU after it, at Modal's rates and rates of 2026-09-20\)",
        asked[0],
    ), asked[0]


async def test_where_nobody_can_be_asked_it_is_refused_and_says_what_raises_it(
    h100s: Loopback, start
) -> None:
    rented_before(4.90)
    editor = await opened(start, "emacs", modal={"budget_usd": 5})
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    (message,) = await editor.until(editor.messages)
    assert message.startswith("this may take the month's spending on Modal to $5.")
    assert "raise the setting `orbit.modal.budget_usd`" in message
    assert h100s.world.containers == {}


async def test_a_gpu_is_not_kept_warm_past_the_budget(h100s: Loopback, start) -> None:
    rented_before(4.90)
    editor = await opened(start, modal={"budget_usd": 5})
    asked = answering(editor, None)
    await editor.command("orbit.keepWarm", {"gpu": "H100"})
    assert re.match(
        r"orbit: not run: this may take the month's spending on Modal to \$\d\.\d\d, past",
        (await editor.until(editor.messages))[-1],
    )
    assert len(asked) == 1
    assert h100s.world.containers == {}


@pytest.mark.slow
async def test_the_setting_keeps_nothing_past_the_budget(h100s: Loopback, start) -> None:
    rented_before(1.3)
    editor = await opened(start, modal={"budget_usd": 2, "keep_warm": True})
    asked = answering(editor, None)
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(editor.ended)
    await editor.until(lambda: [text for text in editor.messages() if "the H100 is not kept warm" in text])
    assert asked == []


async def test_compiling_on_a_rented_machine_asks_nothing_and_stops_at_the_budget(
    h100s: Loopback, start
) -> None:
    rented_before(5)
    editor = await opened(start, modal={"budget_usd": 5, "compile": True}, nvcc="/nowhere/nvcc")
    asked = answering(editor, None)
    await editor.command("orbit.compile", {"uri": editor.uri})
    await editor.until(lambda: [text for text in editor.messages() if "past the budget of $5.00" in text])
    assert asked == []
    assert h100s.world.containers == {}


async def test_run_on_all_is_one_question(h100s: Loopback, start) -> None:
    editor = await opened(start, modal={"budget_usd": 0.5}, gpus=["H100", "H100:2"])
    asked = answering(editor, None)
    await editor.command("orbit.runOnAll", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(editor.ended)
    assert len(asked) == 1
    assert h100s.world.containers == {}


# -- prices, and what is kept -----------------------------------------------------------------------


@pytest.mark.slow
async def test_modals_own_rates_stand_beside_the_dollars(h100s: Loopback, start) -> None:
    h100s.set_rates({"gpu_hour_cost_h100": "3600", "cpu_hour_cost": "0", "mem_gib_hour_cost": "0"})
    editor = await opened(start)
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    (ended,) = await editor.until(editor.ended)
    match = re.search(r"([\d.]+) s of H100, \$([\d.]+) at Modal's rates", ended)
    assert match, ended
    assert float(match[2]) == pytest.approx(float(match[1]), abs=0.06)  # a dollar a second


@pytest.mark.slow
async def test_the_setting_keeps_the_first_container(h100s: Loopback, start) -> None:
    editor = await opened(start, modal={"keep_warm": True})
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(editor.ended)
    kept = "kept warm, $4.08/h, rates of"
    await editor.asked_until(editor.titles, lambda titles: any(kept in title for _, title in titles))
    (rented,) = await editor.command("orbit.sessions")
    assert rented["kept"]
    assert "kept warm until it is released, 1 run" in editor.messages()[-1]
    assert "$4.08/h from now on" in editor.messages()[-1]
