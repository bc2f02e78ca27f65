"""The inside of a container on Modal: one worker process for the container's life, and a job at a time.

Nothing here needs `modal`: `app` passes in what it receives, and two functions carry what it has to send. The worker
is that of an author's own machine, in a separate process. If this process is root, the worker runs as another user;
it cannot reach Modal's variables or sockets.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from orbit_remote import PACKAGE
from orbit_remote.common import codec, limits, regular_files, requests
from orbit_remote.common import messages as c
from orbit_remote.common.content_store import ContentStore
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import Cancel, Job, Manifest
from orbit_remote.modal_app import image_spec
from orbit_remote.modal_app.image_spec import pack, unpack
from orbit_remote.modal_app.mirror import Mirror
from orbit_remote.modal_app.notebook_host import Get, NotebookHost, NotebookPlace, NotebookRequest
from orbit_remote.modal_app.signed_stream import PIECE, Signer
from orbit_remote.modal_app.volume_cache import Kind, VolumeCache
from orbit_remote.process import process_groups
from orbit_remote.process.author_paths import Paths

HOME = "/orbit"
"""Trees of authors' files, builds and scratch files; ORBIT_HOME names another folder. ORBIT_PYTHON names
another Python than this for the worker, ORBIT_CACHE another folder for its caches."""

Post = Callable[[bytes], None]
"""Sends a piece of the stream of event lines to the author's side."""
Sync = Callable[[], None]
"""Lets other containers see what this one wrote on the volume, or this one what others did."""
Alive = Callable[[], bool]
"""Whether the author's side has given a sign of life since it was last asked."""

_BATCH_S = 0.02
_PACKAGES = "add {} to the setting `orbit.modal.pip`"
_GONE_S = float(os.environ.get("ORBIT_GONE_S", "20"))
"""The author's side gives a sign every 5 s: four missed in a row, and nobody waits for the answer."""
_ASK_S = _GONE_S / 4
_END_S = 5.0
_RETURN = 1 << 20
"""Bytes of an answer's JSON beyond which it is cut; the events have carried it whole."""
_STORE_LIMIT = 2 << 30
_STORE_FILES = 20_000
"""A volume of Modal's first version takes longer to attach with each file, and is meant for 50,000
(modal.com/docs/guide/volumes)."""
_USED_S = 86_400.0
"""What is on the volume is marked as used once a day: a mark is a write, and there is one for each file of a job."""
_NOBODY = 65534


class WorkerGoneError(Exception):
    """The worker process has ended."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What the author's side asks for.

    `folders` has the place in the tree of `manifest` for each of the author's folders, "" for the tree itself.
    `contract` is the version of `contracts` that the author's side speaks. `built` says that another container has
    just built it. `secret` signs the events; it stays in this process.
    """

    job: dict[str, Any]
    manifest: Manifest
    folders: dict[str, str]
    secret: str
    contract: int = requests.VERSION
    built: bool = False


class Container:
    """What one container holds: a worker process, the store of files, and the trees made from it."""

    def __init__(self, commit: Sync | None = None, reload: Sync | None = None) -> None:
        """Make a container. ORBIT_VOLUME names the folder that outlives it; without one, or without `commit` and
        `reload`, nothing does.
        """
        self._home = home = Path(os.environ.get("ORBIT_HOME") or HOME)
        self._user = _NOBODY if hasattr(os, "geteuid") and os.geteuid() == 0 else None
        self._caches = Path(os.environ.get("ORBIT_CACHE") or home / "cache")
        self._volume = Path(os.environ.get("ORBIT_VOLUME") or home)
        self._commit = commit
        self._reload = reload
        self._package: Path | None = None
        self._kept: VolumeCache | None = None
        self._store: ContentStore | None = None
        self._worker: _ContainerWorker | None = None
        self.name = os.environ.get("MODAL_TASK_ID", "")
        """Modal's, by which the author's side knows this container."""
        self.jobs = 0
        """How many have been asked of it."""
        self.broken = False
        """It could not do what was asked, and would not the next time: it is to end, not to be warm."""
        self._mirrors: dict[str, Mirror] = {}
        """The files of notebooks, by their trees."""
        self._answers: dict[str, dict[str, Any]] = {}
        self._began = time.monotonic()

    def begin(self) -> None:
        """Start the worker, so that the first job finds it. Never raises: Modal would begin another container in its
        place, without end, and bill each. The caller gets the reason.
        """
        try:
            self.start()
        except Exception:  # noqa: BLE001 - whatever it is, each call meets it again and answers with it
            print(f"orbit: the worker does not start:\n{traceback.format_exc()}", file=sys.stderr)

    def hello(self, *, facts: bool = False) -> bytes:
        """Return packed data: which container this is, and why it could do no job. With `facts`, it says what the
        container is like.
        """
        try:
            self.start()
            answer: dict[str, Any] = {}
            if facts:
                from orbit_remote.modal_app.facts import facts as of

                answer["facts"] = of(self._volume, self._commit, self._reload)
        except Exception as error:  # noqa: BLE001 - it is the answer
            answer = self._failed("the container could not start its worker", error)
        return pack(answer | _identity())

    def start(self) -> None:
        """Do a job. The answer is packed data, whatever happens.

        It is `{"finished": …}`. It is `{"missing": […]}` if files have to be sent first; then nothing has been done.
        It is `{"contract": n}` if this code speaks another version. An interruption (Modal raises its cancellation
        here) ends the work before it goes on.
        """
        if self._worker is not None and self._worker.alive():
            return
        package, scratch = self._copied(), self._home / "tmp"
        for folder in (self._caches, self._caches / "builds", self._caches / "triton", scratch):
            folder.mkdir(parents=True, exist_ok=True)
            self._give(folder)
        try:
            self._worker = _ContainerWorker(package, self._caches, scratch, self._user)
        except PermissionError:
            if self._user is None:
                raise
            # this Python is root's alone, which that of our image is not
            print("orbit: the worker has to run as root here", file=sys.stderr)
            self._user = None
            self._worker = _ContainerWorker(package, self._caches, scratch, None)
        if self._commit is not None:
            self._kept = VolumeCache(self._volume, self._caches, self._user)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def perform(self, request: bytes, blobs: dict[str, bytes], post: Post | None, alive: Alive) -> bytes:
        """Keep the kernels of a notebook until its author's side ends it or is gone. Return packed data with the
        reason, and whether the container is wanted again soon.
        """
        began = time.monotonic()
        self.jobs += 1
        try:
            asked = codec.build(ContainerRequest, unpack(request))
            answer = self._answer(asked, blobs, post, alive)
        except ValueError as error:
            answer = {"broken": f"the request was not understood: {error}", "contract": requests.VERSION}
        except Exception as error:  # noqa: BLE001 - what is raised here would be begun again without end
            answer = self._failed("the container could not do the job", error)
        return pack(answer | _identity() | {"jobs": self.jobs, "seconds": time.monotonic() - began})

    def notebook(self, request: bytes, post: Post, get: Get) -> tuple[bytes, bool]:
        """Return this package, in a folder where the worker's user can read it."""
        self.jobs += 1
        keep = False
        try:
            asked = codec.build(NotebookRequest, unpack(request))
            if asked.contract != requests.VERSION:
                answer: dict[str, Any] = {"contract": requests.VERSION}
            else:
                scratch, tree = self._home / "tmp", self._home / "trees" / asked.root
                for folder in (self._caches, self._caches / "triton", scratch, tree):
                    folder.mkdir(parents=True, exist_ok=True)
                    self._give(folder)
                files = self._mirrors.setdefault(asked.root, Mirror(tree, shared=self._user is not None))
                environment = _environment(scratch, self._caches)
                place = NotebookPlace(self._copied(), tree, self._user, environment, files, self._files)
                answer, keep = NotebookHost(asked, place, post, get).serve(_identity())
        except ValueError as error:
            answer = {"ended": f"the request was not understood: {error}"}
        except Exception as error:  # noqa: BLE001 - what is raised here would be begun again without end
            answer = {"ended": f"the container could not start the kernel: {type(error).__name__}: {error}"}
            print(f"orbit: {answer['ended']}\n{traceback.format_exc()}", file=sys.stderr)
        return pack(answer | _identity()), keep

    def _failed(self, what: str, error: Exception) -> dict[str, Any]:
        self.broken = True
        trace = traceback.format_exc()
        print(f"orbit: {what}:\n{trace}", file=sys.stderr)
        return {"broken": f"{what}: {type(error).__name__}: {error}", "trace": trace}

    def _copied(self) -> Path:
        """Return the store. It is made when it is first needed: a container that only compiles known files needs
        none.
        """
        self._package = self._package or _package(self._home)
        return self._package

    def _answer(
        self, asked: ContainerRequest, blobs: dict[str, bytes], post: Post | None, alive: Alive
    ) -> dict[str, Any]:
        if asked.contract != requests.VERSION:
            return {"contract": requests.VERSION}
        for digest, content in blobs.items():
            self._files().put(digest, codec.inflate(content, limits.TRAVELLING))
        if missing := self._files().missing(asked.manifest):
            return {"missing": missing}
        tree = self._home / "trees" / asked.manifest.root
        self._files().materialise(asked.manifest, tree)
        self._let_write(tree)
        paths = Paths(
            tuple(
                (author, f"{tree}/{place}" if place else str(tree)) for author, place in asked.folders.items()
            )
        )
        job = paths.job(codec.build(Job, asked.job), str(tree))
        if done := self._answers.get(job.run):
            return done
        if job.start.through == "exec" and not job.is_script:
            Path(job.path).chmod(0o755)
        self.start()
        assert self._worker is not None
        stream = _Stream(post, job.run, asked.secret)
        stream.add({"kind": "container", "run": job.run, "jobs": self.jobs} | _identity())
        stream.flush()
        self._bring(job, built=asked.built)
        began = time.time()
        _log(f"{job.run} begins: {job.action} of {Path(job.path).name}")
        try:
            finished = self._follow(self._worker, job, paths, stream, alive)
        except KeyboardInterrupt:  # Modal takes the machine away, and begins the job in another container
            stream.add({"kind": "preempted", "run": job.run})
            stream.flush()
            raise
        _log(f"{job.run} ended: {finished.get('outcome')}")
        if job.action == "build":  # whoever is told of it may look for it elsewhere
            self._keep(job, began)
            self._sync(self._commit)
        stream.add(finished)
        stream.add({"kind": "done", "run": job.run})
        stream.flush()
        self._answers = {job.run: {"finished": bounded(finished)}}  # a job may come twice
        if job.action != "build":  # Modal takes it over by itself
            self._keep(job, began)
        return self._answers[job.run]

    def _bring(self, job: Job, *, built: bool) -> None:
        if self._kept is None:
            return
        if again := built and self.jobs > 1:  # the first job's container has just seen the volume
            self._sync(self._reload)
        self._kept.bring(*_shelf(job), again=again)

    def _keep(self, job: Job, began: float) -> None:
        if self._kept is not None:
            self._kept.keep(*_shelf(job), began)

    def _sync(self, what: Sync | None) -> None:
        if what is None:
            return
        try:
            what()
        except Exception as error:  # noqa: BLE001 - of Modal's client: it costs a build, never a run
            print(f"orbit: the volume could not be synchronised: {error}", file=sys.stderr)

    def _follow(
        self, worker: _ContainerWorker, job: Job, paths: Paths, stream: _Stream, alive: Alive
    ) -> dict[str, Any]:
        worker.send(job)
        finished: dict[str, Any] | None = None
        seen = asked = time.monotonic()
        try:
            while finished is None:
                event = worker.next(stream.pause())
                if event is not None and event.get("run") == job.run:
                    event = paths.event(event)
                    if event["kind"] == "finished":
                        finished = event
                    else:
                        stream.add(event)
                stream.send()
                now = time.monotonic()
                if now - asked >= _ASK_S:
                    asked = now
                    if alive():
                        seen = now
                    elif now - seen >= _GONE_S:
                        # an author whose network was away may read this, so it does not say cancelled
                        text = f"the author's side has given no sign for {_GONE_S:g} s, so the run was ended"
                        return _lost(job.run, text, "run it again")
            return finished
        except WorkerGoneError:
            text = "the worker process in the container ended unexpectedly"
            finished = _lost(job.run, text, "run it again; `modal app logs` has its output")
            return finished
        finally:
            if finished is None:  # interrupted, or nobody waits
                worker.cancel(job.run)

    def _files(self) -> ContentStore:
        """Let a program write beside its file, as it may on the author's machine."""
        if self._store is None:
            folder = self._volume / "files"
            folder.mkdir(parents=True, exist_ok=True)
            self._store = ContentStore(folder, _STORE_LIMIT, most=_STORE_FILES, used_s=_USED_S)
        return self._store

    def _let_write(self, tree: Path) -> None:
        """Give a folder to the worker's user. Links are not followed: a job may have put one in the place of its own
        folder.
        """
        if self._user is None:
            return
        for folder, _, _ in os.walk(tree):
            os.chown(folder, self._user, self._user, follow_symlinks=False)

    def _give(self, folder: Path) -> None:
        """The worker process. A thread reads its event lines. A process group that it named is ended with it."""
        if self._user is not None:
            os.chown(folder, self._user, self._user, follow_symlinks=False)


class _ContainerWorker:
    """Return the next event, or None if none comes in time. Raises WorkerGoneError if none will come."""

    def __init__(self, package: Path, cache: Path, scratch: Path, user: int | None) -> None:
        python = os.environ.get("ORBIT_PYTHON") or sys.executable
        self._groups: set[int] = set()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [python, "-P", str(package / "__main__.py"), "worker", "--cache", str(cache)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=scratch,
            env=_environment(scratch, cache),
            start_new_session=True,
            **({} if user is None else {"user": user, "group": user, "extra_groups": []}),  # type: ignore[arg-type]
        )
        threading.Thread(target=self._read, daemon=True, name="events").start()

    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, request: requests.Request) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # gone: `next` says so
            self._process.stdin.write(c.encode(request).encode("utf-8", "surrogatepass") + b"\n")
            self._process.stdin.flush()

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next event, or None if none comes in time. Raises WorkerGoneError if none will come."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if line is None:
            self._lines.put(None)
            raise WorkerGoneError(f"its worker ended with status {self._process.wait()}")
        event = cast("dict[str, Any]", codec.read_json(line.decode("utf-8", "surrogatepass")))
        if event.get("kind") == "group":
            (self._groups.add if event["alive"] else self._groups.discard)(event["pgid"])
            return None
        return event

    def cancel(self, run: str) -> None:
        """Cancel a job. If the worker does not confirm that in time, end the worker too."""
        self.send(Cancel(run))
        until = time.monotonic() + _END_S
        try:
            while (left := until - time.monotonic()) > 0:
                event = self.next(left)
                if event is not None and event.get("run") == run and event["kind"] == "finished":
                    return
        except WorkerGoneError:
            pass
        self.kill()

    def kill(self) -> None:
        process_groups.kill_group(self._process.pid)
        self._process.wait()
        for pgid in self._groups:
            process_groups.kill_group(pgid)
        self._groups.clear()

    def close(self) -> None:
        """Let the worker end its work, then end the worker."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)


class _Stream:
    """Sends event lines in batches: the first at once, those that follow within 20 ms together.

    The author's side joins the pieces of each stream again, so a line may be as long as it likes.
    """

    def __init__(self, post: Post | None, run: str, secret: str) -> None:
        self._post = post
        self._run = run
        self._signer = Signer(secret)
        self._waiting = bytearray()
        self._sent = 0.0

    def add(self, event: dict[str, Any]) -> None:
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        self._waiting += line.encode("utf-8", "surrogatepass") + b"\n"

    def pause(self) -> float:
        """Return how long to wait for the next event, in seconds."""
        if not self._waiting:
            return _ASK_S
        return max(0.0, self._sent + _BATCH_S - time.monotonic())

    def send(self) -> None:
        if self._waiting and time.monotonic() - self._sent >= _BATCH_S:
            self.flush()

    def flush(self) -> None:
        while self._waiting:
            piece = bytes(self._waiting[:PIECE])
            del self._waiting[:PIECE]
            if self._post is None:
                continue
            try:
                self._post(self._signer.sign(piece))
            except Exception as error:  # noqa: BLE001 - the answer itself goes another way
                print(f"orbit: events of {self._run} could not be sent: {error}", file=sys.stderr)
                self._post = None
        self._sent = time.monotonic()


def _log(text: str) -> None:
    """Write a line to the container's log, which Modal keeps. A run is found there by the id that its author's side
    logs too.
    """
    print(visible(f"orbit: {text}"), file=sys.stderr, flush=True)


def bounded(finished: dict[str, Any], limit: int = _RETURN) -> dict[str, Any]:
    """Return a `finished` record of at most about `limit` bytes of JSON. The profiler's own report is dropped first,
    then what the compiler made, samples, what the program printed, and the longest lists. A remark says so.
    """
    if _size(finished) <= limit:
        return finished
    cut = dict(finished)
    what: list[str] = []
    if cut.get("report"):
        cut["report"] = ""
        what.append("the profiler's own report")
    if _size(cut) > limit and cut.get("brought"):
        cut["brought"] = []
        what.append("the files to bring back")
    if _size(cut) > limit and cut.get("dumps"):
        cut["dumps"] = []
        what.append("what the compiler made of the kernels")
    if _size(cut) > limit:
        launches = cast("list[dict[str, Any]]", cut.get("launches", []))
        cut["launches"] = [launch | {"timing": launch["timing"] | {"samples": []}} for launch in launches]
        what.append("single samples")
    for stream in ("stdout", "stderr"):
        if _size(cut) > limit and len(text := str(cut.get(stream, ""))) > 4096:
            cut[stream] = f"{text[:2048]}\n[… {len(text) - 4096} characters not kept …]\n{text[-2048:]}"
            cut["truncated"] = True
            what.append(stream)
    for name in ("problems", "resources", "launches", "profiles", "remarks"):
        items = cast("list[Any]", cut.get(name, []))
        while _size(cut) > limit and len(items) > 1:
            items = items[: len(items) // 2]
            cut[name] = items
            what.append(name)
    sentence = f"the answer was too large to be sent whole; cut: {', '.join(dict.fromkeys(what))}"
    cut["remarks"] = [*cast("list[Any]", cut.get("remarks", [])), sentence]
    return cut


def _size(record: dict[str, Any]) -> int:
    return len(json.dumps(record, ensure_ascii=False))


def _lost(run: str, text: str, remedy: str) -> dict[str, Any]:
    failure = c.Failure("infrastructure", text, remedy, retryable=True)
    return codec.read_json(c.encode(c.failed(run, failure)))


def _package(home: Path) -> Path:
    """Return this package in a folder where every user can read it: Modal puts it under /root, which only root can
    read.
    """
    here = PACKAGE
    if not (hasattr(os, "geteuid") and os.geteuid() == 0):
        return here
    there = home / "package" / "orbit_remote"
    for path in image_spec.sources():
        compiled = Path(importlib.util.cache_from_source(str(path)))
        for source in filter(Path.is_file, (path, compiled)):  # what is compiled here holds there: times stay
            target = there / source.relative_to(here)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            target.chmod(0o644)
    return there


def _shelf(job: Job) -> tuple[str, Kind]:
    """Return where on the volume a job's builds are: by its file's name here, which has the author's root in it."""
    name = c.content_hash(job.path.encode("utf-8", "surrogatepass"))
    return name, "builds" if job.language == "cuda" else "triton"


def _identity() -> dict[str, Any]:
    """Return which container this is, and how long it has existed, in seconds. That time is billed."""
    return {"container": os.environ.get("MODAL_TASK_ID"), "age_s": _age_s()}


def _age_s() -> float | None:
    """Return the age of this process, the container's first except for Modal's own. Return None if the system does
    not say.
    """
    try:
        fields = regular_files.text("/proc/self/stat", limits.STATE).rpartition(")")[2].split()
        up = float(regular_files.text("/proc/uptime", limits.STATE).split()[0])
        return max(0.0, up - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def _environment(scratch: Path, cache: Path) -> dict[str, str]:
    """Return the worker's environment. It has nothing of Modal's, nor the path on which Modal's client and this
    package are found.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MODAL_") and name not in ("PYTHONPATH", "PYTHONHOME")
    }
    return kept | {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        installing.INSTEAD: _PACKAGES,
    }
