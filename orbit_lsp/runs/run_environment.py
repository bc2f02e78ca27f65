"""The server's surroundings: settings from the client, the runner they choose, what the machine has."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orbit_lsp import __version__, kernels
from orbit_lsp.runners.modal import account as modal_account
from orbit_lsp.runs import python_choice, trust
from orbit_lsp.runs.ssh_places import SshPlaces
from orbit_lsp.specs import job_builder
from orbit_lsp.state import modal_gpus, ssh_hosts
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.placement import Warm
from orbit_lsp.state.session import OpenFile, Session, path_of
from orbit_lsp.state.user_folders import cache_folder, state_folder
from orbit_remote.common import messages as c
from orbit_remote.common import nvcc_flags
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_lsp.compilation.finder import Finder, Question
    from orbit_lsp.kernels.python.inline import Inline
    from orbit_lsp.runners import Runner
    from orbit_lsp.runners.local import LocalRunner
    from orbit_lsp.runners.modal import spending
    from orbit_lsp.runners.modal.costs import Costs, Wanted
    from orbit_lsp.runners.modal.deploy import Spec
    from orbit_lsp.runners.modal.runner import ModalRunner
    from orbit_lsp.runners.modal.sessions import Session as Rented
    from orbit_lsp.runners.ssh.runner import SshRunner
    from orbit_lsp.runners.ssh.trouble import SshError
    from orbit_lsp.state.config import Settings

log = logging.getLogger("orbit.startup")

_KEPT_S = 3600.0
"""A GPU is kept warm without an end: the budget has to allow its first hour. From then on it counts as it is billed."""


@dataclass(frozen=True)
class _Asked:
    """What the choice of a Python depends on besides the disk and this process's environment."""

    setting: str
    folders: tuple[str, ...]
    trusted: trust.Trust

    def choose(self) -> python_choice.Choice:
        """Reads folders and files."""
        return python_choice.choose(self.setting, self.folders, self.trusted.covers)


class Environment:
    def __init__(
        self,
        session: Session,
        message: Callable[[str], None],
        changed: Callable[[set[str]], None],
        ask: spending.Ask | None = None,
        remedy: str = "",
    ) -> None:
        """`ask` asks the author a question, such as whether the month's budget may be exceeded; `remedy` says how it is raised,
        where that is not by the setting.
        """
        self._section: Any = None
        """The settings that the client sent last."""
        self.options: Any = None
        """initializationOptions: the user's own word. A client that sets `separates_user` in them sends the user's
        settings again, as they are now, under `user` beside the workspace's.
        """
        self.trust = trust.Trust()
        self.trust_once = ""
        """How a single command is trusted; empty where there is no such thing."""
        self.of_command = False
        """Whether the folder is a command's current one."""
        self._users_flags = False
        self._session = session
        self._message = message
        self._changed = changed
        self._ask = ask
        self._remedy = remedy
        self._chosen: tuple[str, str] | None = None
        """The GPU that was chosen for this session, and the one in the settings at that time."""
        self._chosen_place: tuple[str, str] | None = None
        """The same of where runs go."""
        self._wanted_place = "auto"
        """Where the settings send runs."""
        self._account: object = None
        """The stamp of Modal's file as it was read last."""
        self._python: tuple[_Asked, python_choice.Choice] | None = None
        """The Python that was chosen last, and what was asked then."""
        self._runner: LocalRunner | None = None
        self._modal: ModalRunner | None = None
        self._hosts = SshPlaces(session, self._reads, _retire)
        self.unreached: SshError | None = None
        """Why the host of the settings was not reached when it was looked at last."""
        self._looking: asyncio.Task[None] | None = None
        self._cooling: asyncio.TimerHandle | None = None
        self._finder: Finder | None = None
        self.finding = asyncio.Lock()
        """Held while it is found out how a file is compiled: what runs meanwhile would run with other flags."""
        self.configured = asyncio.Event()
        """Set once the client's settings are known: nothing is started with others before that."""

    @property
    def settings(self) -> Settings:
        return self._session.setup.settings

    @cached_property
    def costs(self) -> Costs:
        """Made for the first rented GPU: importing it takes a command 5 ms."""
        from orbit_lsp.runners.modal.costs import Costs
        from orbit_lsp.runners.modal.ledger import ledger_file

        return Costs(ledger_file, self._message)

    @cached_property
    def budget(self) -> spending.Budget:
        from orbit_lsp.runners.modal import spending

        budget = spending.Budget(self.costs, self._ask or spending.nobody)
        budget.remedy = self._remedy or budget.remedy
        return budget

    def configure(self, section: Any) -> tuple[str, ...]:
        """Take the client's settings; returns what is wrong with them, sentence by sentence."""
        from orbit_lsp.state import config

        self._section = section
        user, workspace = _object(self.options), _object(section)
        word = user.pop("trusted", None)
        if user.pop("separates_user", None) is True:
            user = _object(workspace.pop("user", None) or user)
        folders = self._session.setup.folders
        if self.of_command and word:  # of a command it is about the project in which the command stands
            from orbit_lsp.compilation import projects

            folders = [projects.project_of(folder) for folder in folders]
        self.trust = trust.current(word if isinstance(word, bool) else None, folders)
        self._session.setup.trusts = self.trust.covers
        # a client that merges settings sends the user's own back: those are in force already
        values, ignored = config.combined(user, workspace, trusted=self.trust.whole)
        complaints = [_not_trusted(ignored, self.trust.remedy())] if ignored else []
        self._users_flags = "nvcc_flags" in user
        before, host = self._session.setup.settings.kernel_macros, self._session.setup.host
        settings, mistakes = config.parse(values | {"trusted": self.trust.whole})
        for name in config.EXECUTABLES:
            program, complaint = self._program(name, getattr(settings, name))
            settings = dataclasses.replace(settings, **{name: program})
            complaints += [complaint] if complaint else []
        if self._chosen and self._chosen[1] == settings.gpu:
            settings = dataclasses.replace(settings, gpu=self._chosen[0])
        wanted = settings.runner
        if self._chosen_place and self._chosen_place[1] == wanted:
            settings = dataclasses.replace(settings, runner=self._chosen_place[0])
        self._session.setup.settings = settings
        self._look_again(host)
        self._wanted_place = wanted
        self._account = modal_account.stamp()
        self._session.setup.modal_account = wanted != "local" and modal_account.configured()
        if before != settings.kernel_macros:
            self._session.rescan()
        return (*complaints, *mistakes)

    def _look_again(self, host: str) -> None:
        """Ask anew what there is, where runs went to another machine before: to `host`, or from it."""
        if self._session.setup.host == host:
            return
        self._session.setup.machine, self.unreached = None, None
        if self.configured.is_set():
            self.begin_looking()

    def trust_folder(self, folder: str) -> tuple[str, ...]:
        """Trust a folder from now on; returns what is wrong with the settings, which may count now. Raises OSError."""
        trust.remember(folder)
        return self.configure(self._section)

    def _program(self, name: str, setting: str) -> tuple[str, str]:
        """The path of a setting that names a program, and what is wrong with it. A relative one is looked for in the folders that are
        open, not in the one that the server or a worker was started in; a name alone is for PATH to find.
        """
        path = Path(setting).expanduser()
        if path.is_absolute() or not {"/", os.sep} & set(setting):
            return (str(path) if setting else ""), ""
        for folder in self._session.setup.folders:
            if (Path(folder) / path).exists():
                if self.trust.covers(folder):
                    return str(Path(folder) / path), ""
                remedy = self.trust.remedy(self.trust_once, folder)
                return "", (
                    f"orbit: the setting `{name}`, {setting}, is not used: it is relative, and leads into a folder that is not "
                    f"trusted. Make it absolute, or {remedy}"
                )
        folder = next(iter(self._session.setup.folders), "")
        return str(Path(folder).absolute() / path), ""

    def look_for_account(self, stamp: object) -> bool:
        """Notice by the stamp of Modal's file, as it is now, a token that came, went or changed since the last look, which is the
        answer; what the old one rents is released.
        """
        if not self.configured.is_set() or stamp == self._account:
            return False
        self._account = stamp
        self._session.setup.modal_account = self._wanted_place != "local" and modal_account.configured()
        _retire(self._modal)
        self._modal = None
        self._session.setup.warm = {}
        self._changed(set(self._session.files))
        return True

    def explained(self, failure: c.Failure) -> c.Failure:
        """A failure with the ways to a GPU, where there is none; a host's is not this machine's matter."""
        if self._session.setup.host:
            return failure
        from orbit_lsp.runners.modal import spending

        return spending.with_ways(failure, self._session.setup, self.costs)

    # -- the runner ---------------------------------------------------------------------------

    async def runner_of(self, job: c.Job) -> Runner:
        """Where a job is carried out: runs where the settings say, compiling where there is a compiler."""
        if host := ssh_hosts.host_of(job.gpu or ""):
            return self._hosts.runner(host)
        if job.action == "debug":
            await self.look_for_python()
            return self.local_runner()
        if self.settings.runner != "local" and self._looking:
            # what this machine has decides where, and which versions the image there has
            await asyncio.wait([self._looking])
        if job.gpu is None or (job.action == "compile" and not self.compiles_on_modal()):
            await self.look_for_python()
            return self.runner()
        compiles = job.action in ("compile", "build")
        wanted = self.wanted(job.run, "" if compiles else job.gpu)
        from orbit_lsp.runners.modal import spending

        return spending.Budgeted(
            self.modal(), self.budget, wanted, self.settings.modal.budget_usd, asks=not compiles
        )

    def wanted(self, run: str, gpu: str) -> Wanted:
        """The most that a run may rent: its limits, and the idle time of a container that is not there."""
        from orbit_lsp.runners.modal.costs import Wanted

        spec = self._spec()
        idle_s = 0 if self.settings.modal.restricted or gpu in self._session.setup.warm else spec.idle_s
        return Wanted(run, gpu, spec.timeout_s + idle_s)

    async def rent(self, wanted: Sequence[Wanted]) -> c.Failure | None:
        """Why these may not begin together; None where they may, and then the budget counts them."""
        if self._looking:
            await asyncio.wait([self._looking])
        question = await self.budget.question(wanted, self.settings.modal.budget_usd)
        return None if question is None else await self.budget.asked(question, wanted)

    def rates_text(self) -> str:
        """Whose prices a choice shows."""
        price = self.costs.price(self.settings.gpu)
        return f" ({price.rates})" if price else ""

    def gpu_choices(self, *, with_own: bool = False) -> dict[str, str]:
        """What a picker shows -> the GPU that it stands for; `local` is this machine's own."""
        from orbit_lsp.runners.modal import spending

        setup = self._session.setup
        own = setup.own_gpu() if with_own and not setup.host else None
        here = {f"{own.name.removeprefix('NVIDIA ')}, of this machine": "local"} if own else {}
        if setup.host:
            here = {"this machine": "local"}
        hosts = dict.fromkeys([*filter(None, [setup.host]), *self.settings.ssh.hosts])
        here |= {f"{host}, by ssh": f"{ssh_hosts.PREFIX}{host}" for host in hosts}
        return here | spending.gpu_choices(self.costs, modal_gpus.NAMES)

    def choose_gpu(self, gpu: str) -> str | None:
        """Runs and static figures are for `gpu` until the server ends, or the setting changes: this machine's own, `local`,
        or one on Modal. Returns a sentence where there is no such GPU.
        """
        setup, own, rented = self._session.setup, self._session.setup.own_gpu(), modal_gpus.rented(gpu)
        if ssh_hosts.host_of(gpu) or (gpu == "local" and setup.host):
            try:
                self._choose_place(ssh_hosts.place(gpu))
            except ValueError as mistake:
                return f"orbit: {mistake}"
            return None
        if gpu == "local" or (not rented and own and modal_gpus.means(gpu, own.name)):
            if own is None:
                return "orbit: this machine has no NVIDIA GPU that can be used"
            self._choose_place("local")
            return None
        if not rented:
            return f"orbit: {modal_gpus.refusal(gpu)}"
        setting = self._chosen[1] if self._chosen else self.settings.gpu
        self._chosen = (rented, setting)
        setup.settings = dataclasses.replace(self.settings, gpu=rented)
        if setup.modal_account:
            self._choose_place("modal")
        return None

    def _choose_place(self, place: str) -> None:
        setup = self._session.setup
        host = setup.host
        if setup.place() != place or host:
            setting = self._chosen_place[1] if self._chosen_place else self.settings.runner
            self._chosen_place = (place, setting)
            setup.settings = dataclasses.replace(self.settings, runner=place)
            self._look_again(host)

    def gpu_text(self) -> str:
        """Where runs go from now on, in a sentence."""
        if self._session.setup.place() == "modal":
            price = self._hourly(self.settings.gpu)
            return f"orbit: runs on Modal get {self.settings.gpu} from now on{price and ','}{price}"
        own, rents, host = (
            self._session.setup.own_gpu(),
            self._session.setup.rents(),
            self._session.setup.host,
        )
        if host:
            return f"orbit: runs go to {f'{own.name} of ' if own else ''}{host} from now on"
        if own is None:
            from orbit_lsp.runners.modal import spending

            way = spending.ways(self._session.setup, self.costs)
            return f"orbit: runs get {rents or 'a GPU'} once there is a way to it. {way}"
        here = f"{own.name} of this machine"
        return f"orbit: runs go to {here}" + (f"; on Modal they would get {rents}" if rents else "")

    def compiles_on_modal(self) -> bool:
        machine = self._session.setup.machine
        lacking = machine is not None and machine.nvcc is None
        return lacking and self.settings.modal.compile and self._session.setup.place() == "modal"

    def modal(self) -> ModalRunner:
        """The runner of GPUs on Modal under the present settings; nothing is asked of Modal yet."""
        from orbit_lsp.runners.modal.pool import Known, Options
        from orbit_lsp.runners.modal.runner import ModalRunner

        settings = self.settings
        options = Options(
            spec=self._spec(),
            folders=tuple(self._session.setup.folders),
            data=tuple(settings.modal.data),
            closure_bytes=settings.modal.files_mib << 20,
            environment=settings.modal.environment,
            restricted=settings.modal.restricted,
            keep_warm=settings.modal.keep_warm,
        )
        if self._modal is None or self._modal.options != options:
            _retire(self._modal)
            known = Known(
                lambda job: job_builder.is_compiled(self._session, job),
                self._reads,
                lambda: self._session.setup.machine.python_path if self._session.setup.machine else (),
                self._may_keep,
            )
            self._modal = ModalRunner(options, self._warmth, known, self.costs)
        return self._modal

    def _reads(self, job: c.Job) -> tuple[str, ...]:
        """The other files that the last build of a job's file read."""
        file = self._session.files.get(self._session.uri_for(job.path))
        return tuple(file.reads) if file else ()

    def _spec(self) -> Spec:
        from orbit_lsp.runners.modal.deploy import app_spec

        return app_spec(self.settings, self._session.setup.machine)

    def _warmth(self) -> None:
        """A container became warm or cold: lenses say so, and again when its time has passed."""
        from orbit_lsp.runners.modal.ledger import clock

        sessions = self.sessions()
        self._session.setup.warm = {session.gpu: self._warm(session) for session in sessions}
        self._changed(set(self._session.files))
        if self._cooling:
            self._cooling.cancel()
        ends = [session.until for session in sessions if session.until is not None and not session.kept]
        if ends:
            pause = max(0.0, min(ends) - clock()) + 0.1
            self._cooling = asyncio.get_running_loop().call_later(pause, self._warmth)

    def _warm(self, session: Rented) -> Warm:
        if session.price is None:
            return Warm(session.until, session.kept)
        idle_usd = session.price.usd_per_s * self.settings.modal.idle_s
        return Warm(session.until, session.kept, idle_usd, session.price.hourly, session.price.rates)

    def session_text(self, session: Rented) -> str:
        from orbit_lsp.runners.modal import spending
        from orbit_lsp.runners.modal.ledger import clock

        return spending.session_text(session, self.settings.modal.idle_s, clock())

    def sessions(self) -> list[Rented]:
        return self._modal.sessions() if self._modal else []

    async def _may_keep(self, gpu: str) -> bool:
        from orbit_lsp.runners.modal.costs import Wanted

        limit = self.settings.modal.budget_usd
        if await self.budget.room_for(Wanted(f"keep {gpu}", gpu, _KEPT_S), limit):
            return True
        self._message(f"orbit: the {gpu} is not kept warm: an hour of it may exceed the month's budget")
        return False

    async def keep_warm(self, gpu: str, *, keep: bool) -> str:
        """Returns the sentence that says how it went."""
        from orbit_lsp.runners.modal.costs import Wanted
        from orbit_lsp.runners.modal.errors import ModalError

        if not (rented := modal_gpus.rented(gpu)):
            return f"orbit: {modal_gpus.refusal(gpu)}"
        gpu = rented
        hour = [Wanted(f"keep {gpu}", gpu, _KEPT_S)]
        if keep and (refused := await self.rent(hour)):
            return f"orbit: {refused.message}. {refused.remedy}".strip()
        self.budget.over(hour)
        try:
            await self.modal().keep_warm(gpu, keep=keep)
        except ModalError as error:
            return f"orbit: {error.trouble.message}. {error.trouble.remedy}"
        return (
            f"orbit: one {gpu} stays warm, and is billed{self._hourly(gpu)}, until it is released"
            if keep
            else (f"orbit: the {gpu} is no longer kept warm, and stops after its idle time")
        )

    def _hourly(self, gpu: str) -> str:
        price = self.costs.price(gpu)
        return f" {price.hourly} at {price.rates}" if price else ""

    async def release(self, gpu: str | None) -> str:
        """Of one GPU or of all; returns the sentence that says how it went."""
        gpu = gpu and (modal_gpus.rented(gpu) or gpu)
        wanted = dict.fromkeys(session.gpu for session in self.sessions() if gpu in (None, session.gpu))
        released = [gpu for gpu in wanted if self._modal and await self._modal.release(gpu)]
        if released:
            return f"orbit: released {', '.join(released)}"
        if at_work := [
            session.gpu for session in self.sessions() if session.gpu in wanted and session.until is None
        ]:
            return f"orbit: the {at_work[0]} is busy: cancel its run, or release it afterwards"
        return (
            "orbit: no GPU is rented now"
            if not wanted
            else "orbit: Modal rejected the request, so it stops after its idle time"
        )

    def runner(self) -> LocalRunner | SshRunner:
        """What compiles, and runs what is not rented: of the host of the settings, else of this machine."""
        host = self._session.setup.host
        return self._hosts.runner(host) if host else self.local_runner()

    def runner_on(self, gpu: str) -> Runner:
        """The runner of one of several GPUs: of a host, `ssh:HOST`, or rented."""
        host = ssh_hosts.host_of(gpu)
        return self._hosts.runner(host) if host else self.modal()

    def local_runner(self) -> LocalRunner:
        """This machine's own under the present settings; another one where they changed."""
        from orbit_lsp.runners.local import LocalRunner, Options

        settings = self.settings
        options = Options(
            python=self.python(),
            cache_bytes=int(min(settings.cache_gib, 1 << 20) * (1 << 30)),  # JSON may say infinity
            spare_idle_s=settings.spare_idle_s,
            environment=tuple(settings.environment),
            nvcc=settings.nvcc or None,
            shared=settings.shared_worker,
            client=self._session.client.name,
            packages=self.python_remedy(),
        )
        if self._runner is None or self._runner.options != options:
            _retire(self._runner)
            self._runner = LocalRunner(options)
        return self._runner

    def python(self) -> str:
        return self.python_choice().python

    def python_choice(self) -> python_choice.Choice:
        """As of the last look: a keystroke asks, and looking takes dozens of calls to the disk."""
        asked = self._asked()
        if self._python is None or self._python[0] != asked:
            self._python = asked, asked.choose()
        return self._python[1]

    async def look_for_python(self) -> None:
        """Choose again, beside the event loop, before whatever starts a Python: an environment may have been made or removed
        since. A command ends before that.
        """
        if not self.of_command:
            asked = self._asked()
            self._python = asked, await asyncio.to_thread(asked.choose)

    def _asked(self) -> _Asked:
        return _Asked(self.settings.python, tuple(self._session.setup.folders), self.trust)

    def python_ignored(self) -> str | None:
        """One sentence about Pythons that folders bring along and that are not used; None where there are none."""
        choice = self.python_choice()
        if not choice.ignored:
            return None
        return (
            f"{', '.join(choice.ignored)} {'is' if len(choice.ignored) == 1 else 'are'} not started, because the folder "
            f"is not trusted: {self.trust.remedy(self.trust_once, choice.untrusted)}"
        )

    def python_remedy(self) -> str:
        """What gives the author the project's Python, where only trust is missing; empty where it is not that."""
        choice = self.python_choice()
        if not choice.untrusted:
            return ""
        return f"the project's own Python is {choice.ignored[0]}: {self.trust.remedy(self.trust_once, choice.untrusted)}"

    def begin_looking(self, *, after_s: float = 0.0, warm: str = "") -> asyncio.Task[None]:
        """`look_around` in a task that runs wait for. `warm` names the language whose process is started beside it."""

        async def look() -> None:
            await asyncio.sleep(after_s)
            if warm:
                await self.warm(warm)
            await self.look_around()

        self._looking = asyncio.create_task(look(), name="probe")
        return self._looking

    async def looked(self) -> None:
        """Until what was begun has ended. Raises what it has raised."""
        if self._looking:
            await self._looking

    async def look_around(self) -> None:
        """Ask the runner what its machine has: lenses name its GPU, static figures are for it."""
        await self.look_for_python()
        host = self._session.setup.host
        machine = await (self._machine_of(host) if host else self.local_runner().machine())
        if machine is None or host != self._session.setup.host:
            return
        self._session.setup.machine = machine
        self._changed(set(self._session.files))

    async def _machine_of(self, host: str) -> c.Machine | None:
        """What a host has; None where it is not reached, which an editor is told, and a command by what it does next."""
        from orbit_lsp.runners.ssh.trouble import SshError

        try:
            machine = await self._hosts.runner(host).reached()
        except SshError as error:
            self.unreached = error
            if not self.of_command:
                self._message(f"orbit: {error.message}: {error.remedy}")
            return None
        self.unreached = None
        return machine

    def history_file(self) -> Path:
        return state_folder() / "history.sqlite"

    def report_folder(self) -> Path:
        return cache_folder() / "reports"

    def driver_index(self) -> Path:
        """Where it is kept what was read of projects to find their tests and scripts."""
        return cache_folder() / "drivers.sqlite"

    def profile_folder(self) -> Path:
        """Where profiles are kept, with Nsight Compute's own reports."""
        return cache_folder() / "profiles"

    def listing_folder(self) -> Path:
        """Where what the compiler made of kernels is written for editors."""
        return cache_folder() / "listings"

    async def warm(self, language: str) -> None:
        await self.look_for_python()
        await self.runner().warm(language)

    async def close(self) -> None:
        if self._looking:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._cooling:
            self._cooling.cancel()
        if self._modal is not None:
            await self._modal.close()
        if "costs" in self.__dict__:  # else none were asked for
            await self.costs.close()
        if self._runner is not None:
            await self._runner.close()
        await self._hosts.close()
        for task in list(_retiring):
            task.cancel()
        await asyncio.gather(*_retiring, return_exceptions=True)

    # -- files --------------------------------------------------------------------------------

    async def find_compilation(self, uri: str) -> tuple[str, ...]:
        """Find out how a CUDA file is compiled; returns a sentence for each flag and compiler of the project that is not used."""
        file = self._session.files.get(uri)
        if file is None:
            return ()
        inline = None
        if kernels.language_of(file.document.path) == "triton":  # a scan may take long
            from orbit_lsp.kernels.python import inline as in_strings

            text = file.document.text
            if not in_strings.may_have(text):
                return ()
            inline = await asyncio.to_thread(in_strings.of, text, path_of(uri))
            if inline is None:
                file.compilation = Compilation()
                return ()
        from orbit_lsp.compilation import finder

        await self.look_for_python()
        async with self.finding:
            self._finder = self._finder or finder.Finder()
            if inline is None:
                file.source = await self._including(file)
            question = self._question(file, inline)
            file.compilation = await asyncio.to_thread(self._finder.find, question)
        if inline is None:
            await self._session.look_for_headers(uri, finder.project_folders(file.compilation, question.path))
        folders = dataclasses.replace(self.trust, folders=question.folders or self.trust.folders)
        sentences = [f"nvcc flag {refused}" for refused in self._folded(file.compilation.refused, folders)]
        if nvcc := file.compilation.nvcc_not_started:
            sentences.append(
                f"{nvcc}, which the project compiles with, is not started, because the workspace is not trusted; figures are "
                f"another compiler's: {folders.remedy(self.trust_once)}"
            )
        return tuple(sentences)

    async def _including(self, file: OpenFile) -> tuple[str, str] | None:
        """Path and text of the source through which a CUDA file is compiled, None for itself."""
        from orbit_lsp.closure import includers
        from orbit_lsp.compilation import finder

        assert self._finder
        path, text = file.document.path, file.document.text
        templates = file.scanned and job_builder.only_templates(self._session, file.document.uri)
        runs = file.scanned and "main" in file.scan.entries
        question = self._question_of(path, text)
        root = await asyncio.to_thread(finder.root_of, path, question.folders)
        of_host = await asyncio.to_thread(self._finder.compiles_host_sources, path, root)
        source = await asyncio.to_thread(
            includers.read, path, text, (root,), templates=templates, runs=runs, of_host=of_host
        )
        if source and path.lower().endswith(kernels.SOURCE_SUFFIXES):
            alone = await asyncio.to_thread(self._finder.find, question)
            return None if alone.is_source else source
        return source

    async def build_on_disk(self, uri: str) -> frozenset[object]:
        """What stands on disk, as it is now, of that which may tell how a CUDA file is compiled: it is equal while nothing
        has come or changed.
        """
        from orbit_lsp.compilation import arrivals

        if (file := self._session.files.get(uri)) is None:
            return frozenset()
        await self.look_for_python()
        question, compilation = self._question(file), file.compilation
        return await asyncio.to_thread(arrivals.on_disk, question, compilation)

    def forget_folders(self, uri: str) -> None:
        """The headers of the file's workspace are looked for anew."""
        if self._finder is not None:
            self._finder.forget(self._session.path(uri))

    def _question(self, file: OpenFile, inline: Inline | None = None) -> Question:
        """About the source that an open file is compiled through."""
        if inline:
            of_call, _ = nvcc_flags.allowed_flags(inline.flags, trusted=False)
            return self._question_of(f"{path_of(file.document.uri)}.cu", inline.text, of_call)
        return self._question_of(*(file.source or (path_of(file.document.uri), file.document.text)))

    def _question_of(self, path: str, text: str, of_call: tuple[str, ...] = ()) -> Question:
        from orbit_lsp.compilation import finder, projects

        settings, setup, choice = self.settings, self._session.setup, self.python_choice()
        return finder.Question(
            path,
            text,
            self._searched(projects.project_of),
            standing=setup.folders[0] if self.of_command and setup.folders else setup.directory(path),
            flags=(*settings.nvcc_flags, *of_call),
            flags_trusted=self._users_flags,
            trusted=settings.trusted,
            python=choice.python,
            not_started=choice.ignored,
            nvcc=settings.nvcc or (setup.machine.nvcc if setup.machine else None),
            nvcc_chosen=bool(settings.nvcc),
            database=settings.compile_commands,
        )

    def _searched(self, project_of: Callable[[str], str]) -> tuple[str, ...]:
        """The folders in which build files and headers are looked for. A command stands anywhere in a project: it gets all
        of it, unless `orbit-lsp trust` covers where it stands alone. All of the disk, where containers and services stand, is
        no project: a file in it is of its own.
        """
        folders = tuple(
            folder for folder in self._session.setup.folders if os.path.normpath(folder).strip("/")
        )
        projects = tuple(map(project_of, folders)) if self.of_command else folders
        fewer_trusted = self.settings.trusted and not self.trust.word
        return folders if fewer_trusted and not all(map(self.trust.covers, projects)) else projects

    def _folded(self, refused: Sequence[str], of: trust.Trust) -> list[str]:
        """The flags that trust would permit in one sentence, with what to do; other sentences as they are."""
        flags = [
            refusal.partition(" is left out: ")[0] for refusal in refused if nvcc_flags.NOT_TRUSTED in refusal
        ]
        rest = [refusal for refusal in refused if nvcc_flags.NOT_TRUSTED not in refusal]
        if not flags:
            return rest
        are = "is" if len(flags) == 1 else "are"
        left_out = (
            f"{', '.join(flags)} {are} left out, because the workspace is not trusted and only flags that cannot run a "
            f"program are used: {of.remedy(self.trust_once)}"
        )
        return [*rest, left_out]

    async def changed_on_disk(self, path: str) -> list[str]:
        """Note a file's new content; returns the open files that were built from it."""
        await self._session.disk.note(path)
        if self._finder is not None:
            self._finder.forget(path)
        return [uri for uri, file in self._session.files.items() if path in file.reads]

    def _gpu(self) -> str | None:
        """The GPU that runs get, None where there is none or it is not known yet."""
        if self._session.setup.place() == "modal":
            return self._session.setup.rents() or None
        own = self._session.setup.own_gpu()
        return own.name if own else None

    def info(self, capabilities: Any) -> dict[str, Any]:
        from importlib.metadata import version

        from orbit_remote.common.messages import VERSION

        machine = self._session.setup.machine
        self._python = None  # whoever asks may have made an environment just now
        return {
            "orbit-lsp": __version__,
            "contract": VERSION,
            "python": sys.version.split()[0],
            "pygls": version("pygls"),
            "lsprotocol": version("lsprotocol"),
            "encoding": self._session.client.encoding,
            "settings": dataclasses.asdict(self.settings),
            "runner": {
                "name": self.settings.runner if self._session.setup.host else self._session.setup.place(),
                "gpu": self._gpu(),
                "python": self.python(),
                "python_from": self.python_choice().why,
                "nvcc": machine.nvcc if machine else None,
                "nvcc_version": machine.nvcc_version if machine else None,
                "devices": [device.name for device in machine.devices] if machine else None,
                "packages": machine.packages if machine else {},
            },
            "rented": [self.session_text(session) for session in self.sessions()],
            "gpus": self.gpu_choices(),
            "capabilities": {
                "codeLens.refresh": _get(capabilities, "workspace", "code_lens", "refresh_support"),
                "inlayHint.refresh": _get(capabilities, "workspace", "inlay_hint", "refresh_support"),
                "workDoneProgress": _get(capabilities, "window", "work_done_progress"),
                "showDocument": _get(capabilities, "window", "show_document", "support"),
                "configuration": _get(capabilities, "workspace", "configuration"),
            },
        }


_retiring: set[asyncio.Task[None]] = set()


def _retire(runner: LocalRunner | ModalRunner | SshRunner | None) -> None:
    """Let an old runner end its jobs, then close it."""
    if runner is not None:
        task = asyncio.ensure_future(runner.retire())
        _retiring.add(task)
        task.add_done_callback(_retiring.discard)


def _not_trusted(names: Sequence[str], remedy: str) -> str:
    are, them = ("is", "it") if len(names) == 1 else ("are", "them")
    settings = ", ".join(f"`{name}`" for name in names)
    return (
        f"orbit: the workspace's {'setting' if len(names) == 1 else 'settings'} {settings} {are} ignored, because the "
        f"workspace is not trusted. Set {them} in your own settings, or {remedy}"
    )


def _object(value: Any) -> dict[str, Any]:
    """A client's settings, inside or outside their own section name; empty for anything else."""
    if not isinstance(value, dict):
        return {}
    values = cast("dict[str, Any]", value)
    inner = values.get("orbit")
    return dict(cast("dict[str, Any]", inner)) if isinstance(inner, dict) else dict(values)


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = getattr(value, name, None)
    return value
