"""The places where jobs run: this machine, hosts, rented GPUs. It says where a job goes, and what each place has."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orbit_lsp import __version__
from orbit_lsp.places import retirement
from orbit_lsp.places.client_settings import ClientSettings
from orbit_lsp.places.compilations import Compilations
from orbit_lsp.places.project_python import ProjectPython
from orbit_lsp.places.rental import Rental
from orbit_lsp.places.ssh_places import SshPlaces
from orbit_lsp.state import modal_gpus, ssh_hosts
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, Job

if TYPE_CHECKING:
    from orbit_lsp.runners import Runner
    from orbit_lsp.runners.local import LocalRunner
    from orbit_lsp.runners.modal import spending
    from orbit_lsp.runners.ssh.runner import SshRunner
    from orbit_lsp.runners.ssh.trouble import SshError

_PATIENCE_S = 3.0
"""A host that has not answered for so long has its files compiled on this machine until it does."""


class Places:
    """All places of an engine. The parts `settings`, `python`, `rental` and `compilations` each answer their own
    questions; this class knows the places.
    """

    def __init__(
        self,
        session: Session,
        message: Callable[[str], None],
        changed: Callable[[set[str]], None],
        ask: spending.Ask | None = None,
        remedy: str = "",
    ) -> None:
        """Make the places. `ask` asks the author a question, such as whether the month's budget may be exceeded.
        `remedy` says how to raise the budget, if not by the setting.
        """
        self.settings = ClientSettings(session, self._moved)
        self.python = ProjectPython(session, self.settings)
        self.compilations = Compilations(session, self.settings, self.python)
        self.rental = Rental(
            session, self.settings, self._look_is_over, self._reads, message, changed, ask, remedy
        )
        self.unreached: SshError | None = None
        """Why the host of the settings was not reached when it was looked at last."""
        self.compiler_moved: Callable[[], object] = lambda: None
        """What compiles open files anew: this machine began to compile in place of the host, or the host compiles again."""
        self._stands_in = asyncio.Event()
        """Whether this machine compiles in place of the host of the settings, which is not reached; the session's `machine` is then this
        one, without its GPUs, to which no run goes.
        """
        self._session = session
        self._message = message
        self._changed = changed
        self._runner: LocalRunner | None = None
        self._hosts = SshPlaces(session, self._reads, retirement.retire)
        self._looking: asyncio.Task[None] | None = None

    # -- which runner carries out a job ----------------------------------------------------------

    async def runner_of(self, job: Job) -> Runner:
        """Return the runner of a job. Runs go where the settings say; compiles go where there is a compiler."""
        if host := ssh_hosts.host_of(job.gpu or ""):
            return self._hosts.runner(host)
        if job.action == "debug":
            await self.python.look()
            return self.local_runner()
        compiles = job.action == "compile"
        if self._session.setup.settings.runner != "local":
            # what this machine has decides where, and which versions the image there has
            await self._look_is_over(unless_stands_in=compiles)
        if job.gpu is None or (compiles and not self.compiles_on_modal()):
            await self.python.look()
            return self.compiler(job.language) if compiles else self.runner()
        return self.rental.budgeted(job)

    def runner(self) -> LocalRunner | SshRunner:
        """Return the runner that compiles, and that runs whatever is not rented. It is that of the settings' host, or
        else of this machine.
        """
        host = self._session.setup.host
        return self._hosts.runner(host) if host else self.local_runner()

    def compiler(self, language: str = "cuda") -> LocalRunner | SshRunner:
        """Return the runner that compiles: that of the host, or of this machine if the host is out of reach and this
        machine can compile.
        """
        here = self._session.setup.machine if self._stands_in.is_set() else None
        able = here and (here.packages.get("triton") if language == "triton" else here.nvcc)
        return self.local_runner() if able else self.runner()

    def runner_on(self, gpu: str) -> Runner:
        """Return the runner of one of several GPUs: of a host (`ssh:HOST`), or rented."""
        host = ssh_hosts.host_of(gpu)
        return self._hosts.runner(host) if host else self.rental.runner()

    def local_runner(self) -> LocalRunner:
        """Return this machine's own runner for the present settings. It is a new one if they changed."""
        from orbit_lsp.runners.local import LocalOptions, LocalRunner

        settings = self._session.setup.settings
        options = LocalOptions(
            python=self.python.path,
            cache_bytes=int(min(settings.cache_gib, 1 << 20) * (1 << 30)),  # JSON may say infinity
            spare_idle_s=settings.spare_idle_s,
            environment=tuple(settings.environment),
            nvcc=settings.nvcc or None,
            shared=settings.shared_worker,
            client=self._session.client.name,
            packages=self.python.remedy(),
        )
        if self._runner is None or self._runner.options != options:
            retirement.retire(self._runner)
            self._runner = LocalRunner(options)
        return self._runner

    def compiles_on_modal(self) -> bool:
        setup = self._session.setup
        lacking = setup.machine is not None and setup.machine.nvcc is None
        return lacking and setup.settings.modal.compile and setup.place() == "modal"

    def _reads(self, job: Job) -> tuple[str, ...]:
        """Return the other files that the last build of a job's file read."""
        file = self._session.files.get(self._session.uri_for(job.path))
        return tuple(file.reads) if file else ()

    async def warm(self, language: str) -> None:
        await self.python.look()
        await self.runner().warm(language)

    # -- what a place has ------------------------------------------------------------------------

    def begin_looking(self, *, after_s: float = 0.0, warm: str = "") -> asyncio.Task[None]:
        """Start `look_around` in a task that runs wait for. `warm` names the language whose process is started at the
        same time.
        """

        async def look() -> None:
            await asyncio.sleep(after_s)
            if warm:
                await self.warm(warm)
            await self.look_around()

        self._looking = asyncio.create_task(look(), name="probe")
        return self._looking

    async def looked(self) -> None:
        """Wait until the look that was begun has ended. Raises what it raised."""
        if self._looking:
            await self._looking

    async def look_around(self) -> None:
        """Ask the runner what its machine has: lenses name its GPU, static figures are for it."""
        await self.python.look()
        host = self._session.setup.host
        machine = await (self._machine_of(host) if host else self.local_runner().machine())
        if machine is None or host != self._session.setup.host:
            return
        self._session.setup.machine = machine
        self._changed(set(self._session.files))
        if self._stands_in.is_set():
            self._stands_in.clear()
            self.compiler_moved()

    async def _machine_of(self, host: str) -> c.Machine | None:
        """Return what a host has. Return None if it is not reached: an editor shows that, and a command fails at its
        next step.
        """
        from orbit_lsp.runners.ssh.trouble import SshError

        of_command, before = self.settings.of_command, self.unreached
        reaching = asyncio.ensure_future(self._hosts.runner(host).reached())
        try:
            await asyncio.wait([reaching], timeout=None if of_command else _PATIENCE_S)
            if not reaching.done():
                await self._stand_in(host)
            machine = await reaching
        except SshError as error:
            self.unreached = error
            if of_command:
                return None
            await self._stand_in(host)
            until = "; until it answers, this machine compiles" if self._stands_in.is_set() else ""
            if before is None or before.message != error.message:
                self._message(f"orbit: {error.message}. {error.remedy}{until}")
            return None
        finally:
            reaching.cancel()
        self.unreached = None
        return machine

    async def _stand_in(self, host: str) -> None:
        """Let this machine compile until the host is reached, if it has a compiler."""
        if self._stands_in.is_set():
            return
        here = await self.local_runner().machine()
        if here and (here.nvcc or here.packages.get("triton")) and host == self._session.setup.host:
            self._session.setup.machine = dataclasses.replace(here, devices=())
            self._stands_in.set()
            self.compiler_moved()

    def _moved(self) -> None:
        """Ask anew what the machine has, because runs go to another one."""
        self.unreached = None
        self._stands_in.clear()
        if self.settings.configured.is_set():
            self.begin_looking()

    async def _look_is_over(self, *, unless_stands_in: bool = False) -> None:
        """Wait for the look, however it ends, or until this machine stands in for the host."""
        if self._looking is None:
            return
        standing = asyncio.ensure_future(self._stands_in.wait())
        try:
            wanted = [self._looking, standing] if unless_stands_in else [self._looking]
            await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
        finally:
            standing.cancel()

    # -- which place -----------------------------------------------------------------------------

    def gpu_choices(self, *, with_own: bool = False) -> dict[str, str]:
        """Return what a picker shows, and for each entry the GPU that it stands for. `local` is this machine's own."""
        from orbit_lsp.runners.modal import spending

        setup = self._session.setup
        own = setup.own_gpu() if with_own and not setup.host else None
        here = {f"{own.name.removeprefix('NVIDIA ')}, of this machine": "local"} if own else {}
        if setup.host:
            here = {"this machine": "local"}
        hosts = dict.fromkeys([*filter(None, [setup.host]), *setup.settings.ssh.hosts])
        here |= {f"{host}, by ssh": f"{ssh_hosts.PREFIX}{host}" for host in hosts}
        return here | spending.gpu_choices(self.rental.costs, modal_gpus.NAMES)

    def choose_gpu(self, gpu: str) -> str | None:
        """Choose the GPU for runs and static figures, until the server ends or the setting changes. It is this
        machine's own, `local`, or one on Modal. Return a sentence if there is no such GPU.
        """
        setup, own, rented = self._session.setup, self._session.setup.own_gpu(), modal_gpus.rented(gpu)
        if ssh_hosts.host_of(gpu) or (gpu == "local" and setup.host):
            try:
                self.settings.choose_place(ssh_hosts.place(gpu))
            except ValueError as mistake:
                return f"orbit: {mistake}"
            return None
        if gpu == "local" or (not rented and own and modal_gpus.means(gpu, own.name)):
            if own is None:
                return "orbit: this machine has no NVIDIA GPU that can be used"
            self.settings.choose_place("local")
            return None
        if not rented:
            return f"orbit: {modal_gpus.refusal(gpu)}"
        self.settings.choose_gpu(rented)
        if setup.modal_account:
            self.settings.choose_place("modal")
        return None

    def gpu_text(self) -> str:
        """Return a sentence that says where runs go now."""
        if self._session.setup.place() == "modal":
            gpu = self._session.setup.settings.gpu
            price = self.rental.hourly(gpu)
            return f"orbit: runs on Modal get {gpu} from now on{price and ','}{price}"
        own, rents, host = (
            self._session.setup.own_gpu(),
            self._session.setup.rents(),
            self._session.setup.host,
        )
        if host:
            return f"orbit: runs go to {f'{own.name} of ' if own else ''}{host} from now on"
        if own is None:
            from orbit_lsp.runners.modal import spending

            way = spending.ways(self._session.setup, self.rental.costs)
            return f"orbit: runs will get {rents or 'a GPU'}. There is no GPU here yet.\n{way}"
        here = f"{own.name} of this machine"
        return f"orbit: runs go to {here}" + (f"; on Modal they would get {rents}" if rents else "")

    def explained(self, failure: c.Failure) -> c.Failure:
        """Add the ways to a GPU to a failure, if there is none. A host that lacks one is not this machine's matter."""
        if host := self._session.setup.host:
            return self._of_host(host, failure)
        from orbit_lsp.runners.modal import spending

        return spending.with_ways(failure, self._session.setup, self.rental.costs)

    def no_gpu(self, driver: Driver) -> str:
        """Return the message for a click on a kernel that a driver would launch, when no GPU is in reach."""
        failure = self.explained(c.Failure("infrastructure", c.NO_GPU))
        return (
            f"orbit: {driver.short} would launch it, and {failure.message}.\n{failure.remedy}\n"
            "- `orbit-lsp run FILE --through auto` runs it here all the same, without a GPU."
        )

    def _of_host(self, host: str, failure: c.Failure) -> c.Failure:
        """Add to a failure what works without the host, if the host is not reached. An editor then asks what this
        machine can do by itself.
        """
        if self.settings.of_command:
            if self.unreached is None or failure.message != self.unreached.message:
                return failure
            here = (
                f"compile and show work without --runner {ssh_hosts.PREFIX}{host}, by this machine's compiler"
            )
            return dataclasses.replace(failure, remedy=f"{failure.remedy}; {here}")
        lost = failure.category == "infrastructure" and failure.retryable and host in failure.message
        if lost and self.unreached is None and self._looking and self._looking.done():
            self.begin_looking()
        return failure

    def ran(self, failure: c.Failure | None) -> None:
        """Take note that a run has ended. If it shows that the host is reached again, ask anew what the host has."""
        if self.unreached and (failure is None or failure.message != self.unreached.message):
            self.begin_looking()

    def _gpu(self) -> str | None:
        """Return the GPU for runs, or None if there is none or it is not known yet."""
        if self._session.setup.place() == "modal":
            return self._session.setup.rents() or None
        own = self._session.setup.own_gpu()
        return own.name if own else None

    def info(self, capabilities: Any) -> dict[str, Any]:
        from importlib.metadata import version

        from orbit_remote.common.requests import VERSION

        setup = self._session.setup
        machine = setup.machine
        self.python.forget()  # whoever asks may have made an environment just now
        return {
            "orbit-lsp": __version__,
            "contract": VERSION,
            "python": sys.version.split()[0],
            "pygls": version("pygls"),
            "lsprotocol": version("lsprotocol"),
            "encoding": self._session.client.encoding,
            "settings": dataclasses.asdict(setup.settings),
            "runner": {
                "name": setup.settings.runner if setup.host else setup.place(),
                "gpu": self._gpu(),
                "python": self.python.path,
                "python_from": self.python.choice().why,
                "nvcc": machine.nvcc if machine else None,
                "nvcc_version": machine.nvcc_version if machine else None,
                "devices": [device.name for device in machine.devices] if machine else None,
                "packages": machine.packages if machine else {},
            },
            "rented": [self.rental.session_text(session) for session in self.rental.sessions()],
            "gpus": self.gpu_choices(),
            "capabilities": {
                "codeLens.refresh": _get(capabilities, "workspace", "code_lens", "refresh_support"),
                "inlayHint.refresh": _get(capabilities, "workspace", "inlay_hint", "refresh_support"),
                "workDoneProgress": _get(capabilities, "window", "work_done_progress"),
                "showDocument": _get(capabilities, "window", "show_document", "support"),
                "configuration": _get(capabilities, "workspace", "configuration"),
            },
        }

    async def close(self) -> None:
        if self._looking:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.rental.close()
        if self._runner is not None:
            await self._runner.close()
        await self._hosts.close()
        await retirement.end()


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = getattr(value, name, None)
    return value
