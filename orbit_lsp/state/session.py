"""What the server knows. It is read and written only on the event loop, so it has no locks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from orbit_lsp import kernels
from orbit_lsp.kernels import Kernel, Scan, Tracker
from orbit_lsp.kernels.collector_pause import collector_pause
from orbit_lsp.state import daemon_thread
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.documents import Document, Encoding, TextChange
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import Results, renamed
from orbit_lsp.state.staleness import Disk
from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import State
from orbit_remote.common.requests import Job

if TYPE_CHECKING:
    from orbit_lsp.state.checked_specs import CheckedSpec, SpecKey, SpecLines
    from orbit_lsp.state.results import Routes


_VIRTUAL = "/.virtual_documents/"
"""The folder that jupyterlab-lsp puts into the path of a notebook."""


@dataclass(slots=True)
class OpenFile:
    document: Document
    tracker: Tracker
    source: tuple[str, str] | None = None
    """Of a header: path and text of the file that includes it, through which its kernels are compiled."""
    cell: bool = False
    """Whether it is a cell of the notebook at the document's path: the notebook's own kernel runs it."""
    in_git: bool = False
    """Whether it lies in a working tree of git."""
    compilation: Compilation = field(default_factory=Compilation)
    """How it is compiled, known since it was opened or saved."""
    include_folders: tuple[str, ...] = ()
    """Of the workspace, in the compiler's order; macros that name kernels are looked for in their headers."""
    reads: dict[str, str] = field(default_factory=dict[str, str])
    """The files that its last build read, by content hash."""
    compile_s: float | None = None
    """What its last compile took, in seconds, where none was kept."""
    runs_otherwise: bool = False
    """An import of it would run something else than the one that its author asked for last."""
    compiled: tuple[Job, int] | None = None
    """Its last compile, if it found no mistake, and `Disk.changes` as it was then."""
    specs: dict[SpecKey, CheckedSpec] = field(default_factory=dict["SpecKey", "CheckedSpec"])
    """Its launch specs that have been checked; `spec_cache` alone reads and writes them."""
    drawn: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """The hints that the client has asked for, or was told to ask for, by what they are about, with their line then; `views.hints`
    alone reads and writes them.
    """
    drawn_lenses: list[tuple[int, object]] = field(default_factory=list[tuple[int, object]])
    """The same of lenses, in their order: line and command. `views.lenses` alone reads and writes them."""
    spec_lines: SpecLines | None = None
    specs_under_check: asyncio.Task[None] | None = None
    """The check of its launch specs that a thread does beside the event loop."""
    _scanned: tuple[Tracker, str, Scan] | None = None
    _scanning: threading.Lock = field(default_factory=threading.Lock)
    """The one thing here that a thread uses beside the event loop is the tracker."""

    @property
    def unnamed(self) -> bool:
        """Say whether only the client gives the file's language, as for a text that was never saved. No compiler
        would accept it by its name.
        """
        return not self.cell and not kernels.says_language(self.document.path)

    @property
    def whole_notebook(self) -> bool:
        """Say whether the file is all Python cells of a notebook."""
        return self.cell and bool(self.document.language_id)

    @property
    def builds(self) -> bool:
        """Say whether the file can be compiled and run here."""
        return not self.cell and not self.unnamed

    @property
    def scan(self) -> Scan:
        """Return the scan of the present text. Edits cost nothing until somebody asks. Ask for a long text once it is
        `scanned`.
        """
        known, text = self._scanned, self.document.text
        if known is not None and known[0] is self.tracker and known[1] is text:
            return known[2]
        with self._scanning:
            tracker, text = self.tracker, self.document.text
            scanned = tracker.scan(text)
            self._scanned = tracker, text, scanned
            return scanned

    @property
    def scanned(self) -> bool:
        """Say whether `scan` and the lines cost next to nothing: the text is short, or has been scanned and split
        since its last change.
        """
        text = self.document.text
        known = self._scanned
        return len(text) <= limits.AT_ONCE.most or (
            self.document.is_split and known is not None and known[0] is self.tracker and known[1] == text
        )

    async def scan_aside(self) -> None:
        """Scan beside the event loop, again until no edit came meanwhile."""
        while not self.scanned:
            await daemon_thread.call(self._scan_long)

    def _scan_long(self) -> None:
        with collector_pause():
            with self._scanning:
                self.document.split()
            _ = self.scan


@dataclass(frozen=True, slots=True)
class Frozen:
    """A file as it was when a job was made. Positions in the job's answers refer to this text."""

    uri: str
    version: int
    text: str
    scan: Scan


@dataclass(slots=True)
class AwaitedRun:
    """A run that a kernel waits for. `began` is when the click came, on the monotonic clock."""

    run: str
    state: State = "queued"
    why: str = ""
    began: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class ClientAbilities:
    """What the client can do. Other clients that wait for its runs show its `name`, as in *Neovim*."""

    name: str = "orbit-lsp"
    batch: bool = False
    """Nobody looks at the screen for its runs: they wait for a GPU behind those that somebody has clicked."""
    encoding: Encoding = "utf-16"
    can_ask: bool = False
    """Whether it can ask a question with answers to choose from."""
    mirror_hints: bool = False
    """Publish hints as Hint diagnostics too: the client does not support refreshing hints, for as long as it has not asked for them."""
    tags: bool = True
    """Whether it draws what is unnecessary or deprecated in its own way."""
    draws_lenses: bool = True
    notes_behind_lines: bool = True
    """It draws the message of a diagnostic behind its line. Elsewhere a row of its own or a list has it, and any line has room."""
    draws_tables: bool = True
    """Whether its markdown has tables; elsewhere a person would read their pipes."""
    takes_output: bool = False
    """It keeps a log of runs itself, and gets what is printed as `orbit/output`."""
    shows_answers: bool = True
    """It shows what commands answer; elsewhere the answer is a message, or a file that is opened."""
    debugs: bool = False
    """It attaches to debuggers by itself, and gets where they wait as `orbit/debug`; elsewhere a message says it."""
    shows_panel: bool = False
    """It shows the answer of `orbit/panel`, and is told when that may have changed."""
    shows_reports: bool = False
    """It shows a report in a window of its own; elsewhere a browser is asked, which need not be there."""


@dataclass(slots=True)
class Session:
    """What is open, what decides how it runs, and what is known about it. Each part has its own readers."""

    setup: RunSetup = field(default_factory=RunSetup)
    client: ClientAbilities = field(default_factory=ClientAbilities)
    files: dict[str, OpenFile] = field(default_factory=dict[str, OpenFile])
    plain: dict[str, Document] = field(default_factory=dict[str, Document])
    """Open C++ headers without a kernel: only their texts are kept, and no request is about them."""
    disk: Disk = field(default_factory=Disk)
    results: Results = field(default_factory=Results)
    running: dict[KernelId, AwaitedRun] = field(default_factory=dict[KernelId, AwaitedRun])
    compiling: set[str] = field(default_factory=set[str])
    """Open files whose compilation takes so long that their kernels say so."""
    live: set[KernelId] = field(default_factory=set[KernelId])
    """Kernels that are run again at every save."""
    routes: dict[KernelId, Routes] = field(default_factory=dict["KernelId", "Routes"])
    """What launches the kernels of open files, by reading; absent until that is known."""

    # -- documents ----------------------------------------------------------------------------

    def open(self, uri: str, version: int, text: str, language_id: str = "") -> OpenFile | None:
        """Open a file. Return None if it is neither CUDA nor Python. If a notebook's Python cells come as one text,
        they are a cell of that notebook.
        """
        path = path_of(uri)
        if language_id == "python" and path.lower().endswith(".ipynb"):
            document = Document(uri, path.replace(_VIRTUAL, "/"), version, text, language_id)
            file = self.files[uri] = OpenFile(document, self.notebook_tracker(), cell=True)
            return file
        return self._open(Document(uri, path, version, text, language_id))

    def open_cell(self, uri: str, notebook: str, version: int, text: str) -> OpenFile:
        """Open a cell. `notebook` is the path of its notebook, which has the history of its kernels."""
        file = self.files[uri] = OpenFile(
            Document(uri, notebook, version, text), self._cell_tracker(notebook), cell=True
        )
        return file

    @staticmethod
    def notebook_tracker(ran: Sequence[str] = ()) -> Tracker:
        """Return a tracker for all Python cells of a notebook as one text. `ran` are those that are known to have
        run.
        """
        from orbit_lsp.kernels.cells import NotebookTracker

        return NotebookTracker(ran)

    def _cell_tracker(self, notebook: str) -> Tracker:
        from orbit_lsp.kernels.cells import CellTracker

        return CellTracker(self.macros(), header_reader(notebook))

    def _open(self, document: Document) -> OpenFile | None:
        uri, path = document.uri, document.path
        language = kernels.language_of(path, document.text, document.language_id)
        if language is None:
            if path.lower().endswith(kernels.HEADER_SUFFIXES):
                self.plain[uri] = document
            return None
        tracker = kernels.tracker(language, macros=self.macros(), headers=header_reader(path))
        file = OpenFile(document, tracker)
        self.files[uri] = file
        return file

    def change(self, uri: str, version: int, changes: list[TextChange]) -> OpenFile | None:
        """Change a text. If a kernel was typed in a header, return the header, which is an open file now. Return None
        for all others.
        """
        if file := self.files.get(uri):
            file.document.apply(version, changes, self.client.encoding)
        elif document := self.plain.get(uri):
            document.apply(version, changes, self.client.encoding)
            if file := self._open(document):
                del self.plain[uri]
                return file
        return None

    def close(self, uri: str) -> None:
        self.plain.pop(uri, None)
        self.files.pop(uri, None)
        self.results.forget_problems(uri)
        self.results.forget_listings(uri)

    def rename(self, old_uri: str, new_uri: str) -> dict[str, str]:
        """Rename a file or a folder: what is known of kernels moves too. Return the new names of files by the old
        ones, both as URIs and as paths.
        """
        within = old_uri.rstrip("/") + "/"
        known = self.results.uris() | {target.uri for target in (*self.running, *self.live)}
        moved = {
            old: new_uri.rstrip("/") + "/" + old[len(within) :] for old in known if old.startswith(within)
        }
        moved[old_uri] = new_uri
        names = moved | {path_of(old): path_of(new) for old, new in moved.items()}
        self.results.rename(names)
        self.running = renamed(self.running, names)
        self.live = renamed(self.live, names)
        return names

    def macros(self) -> tuple[str, ...]:
        return self.setup.settings.kernel_macros

    def rescan(self) -> None:
        """Scan all files again, after a setting changed on which the discovery of kernels depends."""
        for file in self.files.values():
            if file.whole_notebook:
                continue  # it has no CUDA
            if file.cell:
                file.tracker = self._cell_tracker(file.document.path)
                continue
            document = file.document
            headers = header_reader(document.path, file.include_folders)
            language = kernels.language_of(document.path, language_id=document.language_id) or "cuda"
            file.tracker = kernels.tracker(language, macros=self.macros(), headers=headers)

    async def look_for_headers(self, uri: str, folders: tuple[str, ...]) -> None:
        """Scan a CUDA file again, if its macros may now be defined in other folders than before."""
        file = self.files.get(uri)
        if file is None or file.include_folders == folders:
            return
        tracker, text = self._cuda_tracker(file, folders), file.document.text
        await daemon_thread.call(lambda: tracker.scan(text))  # headers are read here, and once
        file.include_folders, file.tracker = folders, tracker

    def use_headers(self, uri: str, folders: tuple[str, ...]) -> None:
        """Use these folders for the headers of a file that nobody types in. Its next scan reads them."""
        if file := self.files.get(uri):
            file.include_folders, file.tracker = folders, self._cuda_tracker(file, folders)

    def _cuda_tracker(self, file: OpenFile, folders: tuple[str, ...]) -> Tracker:
        headers = header_reader(file.document.path, folders)
        return kernels.tracker("cuda", macros=self.macros(), headers=headers)

    def path(self, uri: str) -> str:
        """Return the path of a file, open or not. A cell has its notebook's path."""
        file = self.files.get(uri)
        return file.document.path if file else path_of(uri)

    def is_cell(self, uri: str) -> bool:
        file = self.files.get(uri)
        return file is not None and file.cell

    def uri_for(self, path: str) -> str:
        """Return the uri under which the client has the file open, else a plain one."""
        for uri, file in self.files.items():
            if file.document.path == path:
                return uri
        return uri_of(path)

    # -- kernels ------------------------------------------------------------------------------

    def freeze(self, uri: str) -> Frozen | None:
        if (file := self.files.get(uri)) is None:
            return None
        return Frozen(uri, file.document.version, file.document.text, file.scan)

    def kernels(self, uri: str) -> list[tuple[KernelId, Kernel, str]]:
        """Return (id, kernel, digest of what it depends on in this file) for each kernel, in the order of the file."""
        if (file := self.files.get(uri)) is None:
            return []
        return identify(uri, file.scan)

    def find(self, target: KernelId) -> Kernel | None:
        return next(
            (kernel for known_target, kernel, _ in self.kernels(target.uri) if known_target == target), None
        )

    def at(self, uri: str, line: int) -> KernelId | None:
        """Return the kernel whose definition holds `line`."""
        for target, kernel, _ in self.kernels(uri):
            if kernel.whole.line <= line <= kernel.whole.end_line:
                return target
        return None


def path_of(uri: str) -> str:
    """Return the file's path, or the URI's own path if its scheme is not a file's (untitled:, …)."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if os.name == "nt" and len(path) > 2 and path[0] == "/" and path[2] == ":":
        path = path[1:]
    return path


def uri_of(path: str) -> str:
    absolute = Path(path).as_posix()
    return "file://" + quote(absolute if absolute.startswith("/") else "/" + absolute)


def header_reader(path: str, folders: Sequence[str] = ()) -> Callable[[str], str | None]:
    """Return a function that reads the headers that a file includes, for macros that name kernels. It looks in the
    file's own folder, in `folders`, and in folders where it found headers before, because those include others beside
    them.
    """
    places = list(dict.fromkeys((str(Path(path).parent), *folders)))

    def read(name: str) -> str | None:
        for folder in places:
            header = Path(folder, name)
            try:
                text = regular_files.text(header, limits.HEADER)
            except (OSError, ValueError):
                continue
            if str(header.parent) not in places:
                places.append(str(header.parent))
            return text
        return None

    return read
