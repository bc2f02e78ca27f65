"""The app on Modal: its image, its volume, and the classes whose methods an author's side calls.

Only this module of the package imports `modal`. Methods take and return plain data, never raise on purpose, and leave
everything that can be done without Modal to `container`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import modal
from modal import experimental

from orbit_remote.modal_app.container import Container
from orbit_remote.modal_app.image_spec import (
    CORES,
    MEMORY_MIB,
    QUEUED_S,
    VOLUME,
    ImageSpec,
    app_name,
    sources,
)

# what Modal's own annotations leave open
_images = cast("Any", modal.Image)
_modal = cast("Any", modal)
_STARTUP_S = 600
_POLL_S = 5.0
_VOLUME = "/orbit-volume"


def make(spec: ImageSpec) -> modal.App:
    """Return the app of `spec`, ready to be deployed.

    `Worker` has no GPU of its own, so it only compiles; `with_options(gpu=…)` makes it run kernels. `Stranger` does
    the same for code of somebody else.
    """
    app = modal.App(app_name(spec), image=image(spec), include_source=False)
    volume = modal.Volume.from_name(VOLUME, create_if_missing=True)
    app.cls(
        cpu=CORES,
        memory=MEMORY_MIB,
        timeout=spec.timeout_s,
        startup_timeout=_STARTUP_S,
        scaledown_window=spec.idle_s,
        volumes={_VOLUME: volume},
    )(Worker)
    app.cls(
        cpu=CORES,
        memory=MEMORY_MIB,
        timeout=spec.timeout_s,
        startup_timeout=_STARTUP_S,
        restrict_modal_access=True,
        single_use_containers=True,
        block_network=True,
    )(Stranger)
    return app


def image(spec: ImageSpec) -> modal.Image:
    base = _images.from_registry(f"nvidia/cuda:{spec.cuda}-devel-ubuntu24.04", add_python=spec.python)
    base = base.entrypoint([])  # else NVIDIA's banner fills the log at each start
    major, minor, *_ = spec.cuda.split(".")
    # NVIDIA's repository, which the base image has, keeps each Nsight Compute as a package of its own
    # (nsight-compute-2025.2.1), installed under its version and on no PATH
    base = base.apt_install(
        "build-essential",
        f"nsight-compute-{spec.nsight_compute}",
        f"cuda-sanitizer-{major}-{minor}",
        f"cuda-cupti-dev-{major}-{minor}",
        *spec.apt,
    )
    base = base.uv_pip_install(
        f"torch=={spec.torch}",
        f"nvidia-ml-py=={spec.nvml}",
        f"cuda-core=={spec.cuda_core}",
        f"cuda-bindings{spec.cuda_bindings}",
        f"ipykernel=={spec.ipykernel}",
        "setuptools",
        "pytest>=8,<10",  # runs the tests of projects
        *spec.pip,
    )
    # an author's pair of versions need not be the one that torch's own requirement names
    base = base.uv_pip_install(f"triton=={spec.triton}", extra_options="--no-deps")
    # CUDA's own folder, which has the Nsight Compute of CUDA's release, comes first on the image's PATH
    base = base.run_commands(
        *(
            f"ln -sf /opt/nvidia/nsight-compute/{spec.nsight_compute}/ncu {folder}/ncu"
            for folder in ("/usr/local/bin", "/usr/local/cuda/bin")
        )
    )
    base = base.env({"NVIDIA_DRIVER_CAPABILITIES": "all", "ORBIT_VOLUME": _VOLUME})
    wanted = set(sources())
    return base.add_local_python_source("orbit_remote", ignore=partial(_left_out, wanted))


def _left_out(wanted: set[Path], path: Path) -> bool:
    """Say whether Modal has to leave out a file of the package. It asks about paths relative to an unknown folder."""
    return path.suffix != "" and not any(
        wanted_path.as_posix().endswith(path.as_posix()) for wanted_path in wanted
    )


class Worker:
    """One container: `container.Container` with its events on a queue."""

    @_modal.enter()
    def begin(self) -> None:
        # Modal cancels by an exception in this thread, and one that comes just as a call of its client ends
        # is lost there (synchronicity 0.12.7 returns the call's value instead): calls have threads apart.
        # The volume has its own: a commit that nobody waits for any more is not to hold up events
        self._calls = ThreadPoolExecutor(1, "modal")
        self._volume_calls = ThreadPoolExecutor(1, "volume")
        volume = modal.Volume.from_name(VOLUME)
        commit, reload = (partial(self._on_volume, call) for call in (volume.commit, volume.reload))
        self._container = Container(commit, reload)
        self._container.begin()

    @modal.method()
    def hello(self, facts: bool = False) -> bytes:
        """Report that the image starts, or why it does not. With `facts`, report what the container is like. The
        container ends after this.
        """
        cast("Any", experimental).stop_fetching_inputs()
        return self._container.hello(facts=facts)

    @modal.method()
    def run(self, request: bytes, blobs: dict[str, bytes], events: modal.Queue, run: str) -> bytes:
        """Do a job. Events go to the partition `run` of `events`; signs of life are read from `run/alive`."""
        signs = partial(events.get_many, 100, block=False, partition=f"{run}/alive")

        def post(piece: bytes) -> None:
            self._calls.submit(events.put, piece, partition=run, partition_ttl=QUEUED_S).result()

        def alive() -> bool:
            try:
                return bool(self._calls.submit(signs).result())
            except modal.exception.NotFoundError:
                return True  # somebody has deleted the queue: nobody can be heard, and the time limits end the run
            except Exception as error:  # noqa: BLE001 - of Modal's client: the next sign may come
                print(f"orbit: no sign could be asked for: {error}", file=sys.stderr)
                return False

        answer = self._container.perform(request, blobs, post, alive)
        if self._container.broken:
            cast("Any", experimental).stop_fetching_inputs()
        return answer

    @modal.method()
    def notebook(self, request: bytes, line: modal.Queue, run: str) -> bytes:
        """Keep a notebook's kernels. Pieces go to the partition `run` of `line`, and come in `run/in`. The container
        ends with the notebook, unless its kernel is started again.
        """
        keep = False

        def post(piece: bytes) -> None:
            try:
                self._calls.submit(line.put, piece, partition=run, partition_ttl=QUEUED_S).result()
            except Exception as error:  # noqa: BLE001 - of Modal's client: the author's side asks for it again
                print(f"orbit: a message was not sent: {error}", file=sys.stderr)

        get = partial(line.get_many, 100, timeout=_POLL_S, partition=f"{run}/in")
        try:
            answer, keep = self._container.notebook(request, post, get)
            return answer
        finally:
            if not keep:
                cast("Any", experimental).stop_fetching_inputs()

    def _on_volume(self, call: Callable[[], None]) -> None:
        self._volume_calls.submit(call).result()

    @modal.method()
    def leave(self, wanted: list[str]) -> tuple[str, bool]:
        """End this container now, not after its idle time, if it is one of `wanted` or has had no job. Modal starts
        one for each call that waits, and the first of them may answer all calls. Return its name and whether it ends.
        """
        here = self._container.name
        ends = here in wanted or self._container.jobs == 0
        if ends:
            cast("Any", experimental).stop_fetching_inputs()
        return here, ends

    @_modal.exit()
    def end(self) -> None:
        self._container.close()
        # Modal waits 30 s for threads before a container ends
        for threads in (self._calls, self._volume_calls):
            threads.shutdown(wait=False, cancel_futures=True)


class Stranger:
    """Runs code that is not the author's: it has no access to Modal, no network, and a container of its own.

    A restricted function cannot use a queue, so there are no live events and no signs of life. The time limits of the
    job and of the function end it.
    """

    @modal.method()
    def run(self, request: bytes, blobs: dict[str, bytes]) -> bytes:
        container = Container()
        try:
            return container.perform(request, blobs, None, lambda: True)
        finally:
            container.close()
