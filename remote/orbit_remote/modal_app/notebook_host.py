"""A notebook's kernels in a container. In one long call, the author's side and each kernel's keeper exchange records.

Both directions are signed streams of pieces on a queue, with two streams of records each: `k` goes to and from the
keeper unchanged, `s` is between the author's side and this module. Nothing here needs `modal`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orbit_remote.common import brought_files, codec, limits, requests
from orbit_remote.common.content_store import ContentStore
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Manifest
from orbit_remote.modal_app.mirror import Mirror
from orbit_remote.modal_app.signed_stream import PIECE, SignedInbox, SignedOutbox, Verifier
from orbit_remote.process import process_groups
from orbit_remote.process.records import Records, packed

Get = Callable[[], list[bytes]]
"""Waits for pieces of the author's side; raises `queue.Empty` after a while."""

GONE_S = float(os.environ.get("ORBIT_NOTEBOOK_GONE_S", "120"))
"""The author's side gives a sign every 5 s. A laptop may lose its network for so long before its session ends."""
GREET_S = min(15.0, GONE_S)
"""How long the author's side may take to answer a container's first word: it may have ended while Modal looked for a GPU."""
_END_S = 10.0
_MOST_UNSEEN = 2000
"""Pieces on the queue that the other side has not acknowledged; one of Modal's holds 5,000. What comes meanwhile waits in its pipe."""
_UNSEEN = 16 << 20
"""Bytes that it has not: fewer than the outbox keeps, so that what is lost on the way can always be sent again."""
_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class NotebookRequest:
    """What opens a notebook. `root` names the tree of the author's files, `secret` signs the pieces of both sides."""

    root: str
    secret: str
    contract: int = requests.VERSION


@dataclass(frozen=True, slots=True)
class NotebookPlace:
    """What a kernel has here: the package, its folder, its user (None: this process's own), its environment, the
    files of its folder, and the store for their contents. `python` runs the kernel.
    """

    package: Path
    tree: Path
    user: int | None
    environment: Mapping[str, str]
    files: Mirror
    store: Callable[[], ContentStore]
    python: str = sys.executable
    busy: Callable[[bool], object] = bool
    """Told when a cell begins, and when none runs; the author's side says so where it takes turns at the GPU."""


class NotebookHost:
    def __init__(
        self, asked: NotebookRequest, place: NotebookPlace, post: Callable[[bytes], None], get: Get
    ) -> None:
        self._asked = asked
        self._place = place
        self._post = post
        self._get = get
        self._out = SignedOutbox(asked.secret)
        self._in = SignedInbox(asked.secret)
        self._incoming = Records()
        self._arrived: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        """`pieces` of the author's side, or (the keeper's number, what it wrote)."""
        self._slots = threading.Semaphore(_CHUNKS)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._kernel = 0
        self._greeted = False
        self._over = False
        self._held: tuple[str, Any] | None = None
        """What arrived and is next."""
        self._owed = 0
        self._reported = -1

    def serve(self, identity: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Serve until the author's side ends it, or is gone. Return how it ended, and whether the container is wanted
        again soon.
        """
        threading.Thread(target=self._receive, daemon=True, name="pieces").start()
        self._say("container", json.dumps(dict(identity)).encode())
        seen = time.monotonic()
        try:
            while True:
                with suppress(queue.Empty):
                    name, data = self._held or self._arrived.get(timeout=1.0)
                    self._held = None
                    if name == "pieces":
                        seen = time.monotonic()
                        for piece in data:
                            if (ended := self._take(piece)) is not None:
                                return {"ended": ""}, ended
                    else:
                        self._pass_on(name, data)
                while self._owed and self._out.unseen < _MOST_UNSEEN and self._out.size < _UNSEEN:
                    self._owed -= 1
                    self._slots.release()
                limit = GONE_S if self._greeted else GREET_S
                if time.monotonic() - seen >= limit:
                    return {"ended": f"the author's side has given no sign for {limit:g} s"}, False
        finally:
            self._over = True
            self._end_kernel()

    # -- the author's side --------------------------------------------------------------------

    def _receive(self) -> None:
        while not self._over:
            try:
                self._arrived.put(("pieces", self._get()))
            except queue.Empty:
                continue
            except Exception as error:  # noqa: BLE001 - of Modal's client: it may be reached again
                if self._over:
                    return
                print(f"orbit: the author's side cannot be heard: {error}", file=sys.stderr)
                time.sleep(1)

    def _take(self, piece: bytes) -> bool | None:
        """Take a piece. If it is the end, return whether the container is wanted again."""
        try:
            if not self._greeted:
                return self._greet(piece)
            taken = self._in.take(piece)
        except ValueError as error:
            print(f"orbit: {error}", file=sys.stderr)
            return None
        if taken is None:
            if self._in.missing:
                self._ask_again()
            return None
        stream, data = taken
        if stream == b"k":
            if self._keeper and self._keeper.stdin:
                with suppress(OSError):  # it has ended, and says so
                    self._keeper.stdin.write(data)
                    self._keeper.stdin.flush()
            return None
        ended = None
        for name, parts in (Records() if stream == b"c" else self._incoming).feed(data):
            ended = self._obey(name, parts) if ended is None else ended
        return ended

    def _greet(self, piece: bytes) -> bool | None:
        """Wait for the greeting of the author's side. Nothing is done before it has answered this container. If a
        container was lost, Modal starts the call again elsewhere, and the kernel's memory is gone.
        """
        nonce, number, payload = Verifier(self._asked.secret).read(piece)
        for name, parts in Records().feed(payload[1:]) if payload[:1] == b"s" else ():
            if name == "greeting" and parts[0] == self._out.stream:
                self._greeted = True
                self._in.stream, self._in.due = nonce, number + 1
            elif name == "end" and parts[1] == self._out.stream:
                return False
        return None

    def _obey(self, name: str, parts: list[bytes]) -> bool | None:
        if name == "end":
            return parts[0] == b"keep"
        if name == "start":
            self._end_kernel()
            self._start_kernel()
        elif name == "stop":
            self._end_kernel()
        elif name == "busy":
            self._place.busy(parts[0] == b"yes")
            if parts[0] != b"yes":  # a cell may have removed files that the author still has
                self._place.files.restore(self._place.store().read)
        elif name in ("content", "sync", "bring"):
            self._exchange(name, parts)
        elif name == "seen":
            self._seen(int(parts[0]), int(parts[1]))
        elif name == "again":
            pieces = self._out.again(int(parts[0]))
            if pieces is None:
                self._say("gap", b"")
            for each in pieces or ():
                self._post(each)
        return None

    def _seen(self, number: int, sent: int) -> None:
        """Take note that the author's side has all before `number`, and has sent all before `sent`. If it has not
        advanced since its last report, the last piece was lost.
        """
        if sent > self._in.due:
            self._ask_again()
        self._out.seen(number)
        stuck, self._reported = number == self._reported, number
        for piece in (self._out.again(number) or ()) if stuck else ():
            self._post(piece)

    def _ask_again(self) -> None:
        self._post(self._out.aside(packed("again", [str(self._in.due).encode()])))

    def _exchange(self, name: str, parts: list[bytes]) -> None:
        try:
            if name == "content":
                for digest, content in zip(parts[::2], parts[1::2], strict=True):
                    self._place.store().put(digest.decode(), codec.inflate(content, limits.TRAVELLING))
            elif name == "sync":
                self._sync(codec.read_json(parts[0]))
            else:
                brought, remarks = brought_files.collect(self._place.tree, [parts[0].decode()])
                answer = {"files": [asdict(each) for each in brought], "remarks": remarks}
                self._say("brought", json.dumps(answer).encode())
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._say("failed", why.encode())

    def _sync(self, asked: dict[str, Any]) -> None:
        """Take files over once all their contents are here."""
        store, files = self._place.store(), asked["files"]
        if missing := store.missing(Manifest(self._asked.root, files)):
            self._say("missing", json.dumps(missing).encode())
            return
        times = {place: at for place, at in asked.get("times", {}).items() if 0 <= int(at) < 1 << 63}
        failed = self._place.files.take_over(
            files, whole=asked["whole"], gone=asked["gone"], read=store.read, times=times
        )
        self._say("synced", json.dumps(failed).encode())

    def _say(self, name: str, *parts: bytes) -> None:
        for piece in self._out.pieces(b"s", packed(name, parts)):
            self._post(piece)

    # -- the keeper ---------------------------------------------------------------------------

    def _start_kernel(self) -> None:
        place = self._place
        python = os.environ.get("ORBIT_NOTEBOOK_PYTHON") or place.python
        self._keeper = subprocess.Popen(
            [python, "-P", str(place.package / "__main__.py"), "keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=place.tree,
            env=dict(place.environment),
            start_new_session=True,
            **({} if place.user is None else {"user": place.user, "group": place.user, "extra_groups": []}),  # type: ignore[arg-type]
        )
        self._kernel += 1
        arguments = (self._keeper, str(self._kernel))
        threading.Thread(target=self._read, args=arguments, daemon=True, name="keeper").start()

    def _read(self, keeper: subprocess.Popen[bytes], kernel: str) -> None:
        assert keeper.stdout
        while data := os.read(keeper.stdout.fileno(), 1 << 16):
            self._slots.acquire()
            self._arrived.put((kernel, data))
        self._arrived.put((kernel, b""))

    def _pass_on(self, kernel: str, data: bytes) -> None:
        """Send what the keeper has written, and all that it wrote meanwhile."""
        waiting = bytearray(data)
        ended = not data
        self._owed += bool(data)
        while not ended and len(waiting) < PIECE:
            try:
                self._held = self._arrived.get_nowait()
            except queue.Empty:
                break
            name, more = self._held
            if name != kernel:
                break
            self._held = None
            waiting += more
            ended = not more
            self._owed += bool(more)
        if kernel != str(self._kernel):  # it was ended to make room for another
            return
        for piece in self._out.pieces(b"k", bytes(waiting)):
            self._post(piece)
        if ended:
            self._say("kernel ended", kernel.encode())

    def _end_kernel(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        with suppress(OSError):
            if keeper.stdin:
                keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(_END_S)
        process_groups.kill_group(keeper.pid)
        keeper.wait()
