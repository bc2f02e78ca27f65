"""Files as they were in a revision of a git repository. Nothing of the repository is run, and nothing in it changes.

Blobs are read by name (`rev-parse`, `ls-tree`, `cat-file`; `log` without patches and signatures). That runs no hook,
no filter, no textconv and no external diff, and needs no working tree. A partial clone that lacks objects fetches
none: every protocol is forbidden by name, because a repository may configure a command as the way to its remote.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

_LIMIT_S = 20.0
_MESSAGE_BYTES = 64 << 10
_LISTED_BYTES = 32 << 20
"""Of the list of a revision's files: about 300,000 of them."""
MOST_FILES = 2_000
MOST_BYTES = 32 << 20
"""Sources besides the main one that are taken from a revision."""
SOURCES = frozenset(
    (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".h++", ".inl", ".inc", ".ipp", ".tpp", ".c", ".cpp", ".cc", ".cxx", ".py")
)  # fmt: skip
_FILES, _PROGRAM, _SUBMODULE = ("100644", "100755"), "100755", "160000"
"""Modes of a commit's entries; the others are links."""
WHOLE_HISTORY = "fetch the whole history (`fetch-depth: 0`, `git fetch --unshallow`)"
_PROTOCOLS = ("ext", "fd", "file", "ftp", "ftps", "git", "http", "https", "ssh")
_OVERRIDES = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "safe.bareRepository": "explicit",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.recurseSubmodules": "false",
    "protocol.allow": "never",
    # a repository's own `protocol.ext.allow` would win over `protocol.allow`
    **{f"protocol.{name}.allow": "never" for name in _PROTOCOLS},
}
"""What a repository's own configuration must not decide: values of the command line win over it."""
_ALONE = (
    *(word for name, value in _OVERRIDES.items() for word in ("-c", f"{name}={value}")),
    "--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs",
)  # fmt: skip
ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",  # git 2.45 and newer; with an older one no protocol is allowed to the fetch
    "GIT_ALLOW_PROTOCOL": "none",  # a list of protocols: whatever the configuration allows, nothing is
    "GIT_PROTOCOL_FROM_USER": "0",
    "LC_ALL": "C",
}


_NO_CONTENT = (
    "git does not have the content of that revision here: clone without --filter, or `git fetch --refetch`"
)


class GitError(Exception):
    """The revision cannot be read. The text is the sentence for the author."""


class NotFetchedError(GitError):
    """Git knows a file of the revision, but its content is not on this machine."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of a repository, with the file that was asked for.

    `root` is the repository's top folder. `main` is the file's path in it, with `/`, and `text` the file's text then.
    `name` is what was asked for, `commit` the hash that it means.

    `sources` has the git hash of every other source of that revision, by path in the repository. `changed_sources`
    are those whose content has changed since, or that are gone. `remarks` are sentences about what was left out.
    """

    root: str
    main: str
    name: str
    commit: str
    text: str
    sources: dict[str, str] = field(default_factory=dict[str, str])
    changed_sources: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return a title such as `HEAD~1 (1a2b3c4)`, or only the short hash if that was asked for."""
        return _title(self.name, self.commit)

    @property
    def short(self) -> str:
        """Return what was asked for; of a hash the first digits."""
        return self.commit[:7] if self.commit.startswith(self.name) else self.name


def _title(name: str, commit: str) -> str:
    return commit[:7] if commit.startswith(name) else f"{name} ({commit[:7]})"


def revision(path: str, name: str) -> Revision:
    """Read a revision. A file that was renamed since has its earlier path as `main`, and a remark. Blocking. Raises GitError."""
    folder = str(Path(path).parent)
    root, commit = _root(path), commit_of(folder, name)
    top, file = Path(os.path.realpath(root)), Path(os.path.realpath(path))
    if not file.is_relative_to(top):  # `core.worktree` says anything
        raise GitError(
            f"{path} is not in {root}, which its repository names as its working tree (core.worktree)"
        )
    main = file.relative_to(top).as_posix()
    listed, remarks = _listed(root, commit, main)
    if main not in listed:
        now, main = main, _earlier_path(root, commit, main)
        if main not in listed:
            raise GitError(f"{now} is not in {_title(name, commit)}")
        remarks += (f"{now} was {main} in {_title(name, commit)}",)
    text = blobs(root, [listed[main]])[0].decode("utf-8-sig", "replace")
    sources = {
        place: known
        for place, known in listed.items()
        if place != main and Path(place).suffix.lower() in SOURCES
    }
    tracked = frozenset(
        place for place, known in sources.items() if _hash(Path(root, *place.split("/")), known) != known
    )
    return Revision(root, main, name, commit, text, sources, tracked, remarks)


def _earlier_path(root: str, commit: str, place: str) -> str:
    """Return the path that a file had in a commit, if git finds that it was renamed since, else an empty text. Only
    what git's index has counts.
    """
    words = (
        "--cached",
        "--find-renames",
        "--diff-filter=R",
        "--name-status",
        "--no-ext-diff",
        "--no-textconv",
        "-z",
    )
    fields = _git(root, "diff-index", *words, commit, "--").decode("utf-8", "surrogateescape").split("\0")
    return dict(zip(fields[2::3], fields[1::3], strict=False)).get(place, "")


def _root(path: str) -> str:
    """Return the top folder of the repository that a file is in.

    Raises GitError, also if the folder names a repository elsewhere as its own: that may be another repository of the
    author's. A worktree and a submodule may do so, because their repositories name them.
    """
    wanted = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir")
    folder = Path(path).parent
    answer = _git(str(folder), "rev-parse", *wanted)
    lines = answer.decode("utf-8", "surrogateescape").split("\n")
    if len(lines) != len(wanted) + 1 or not all(lines[:-1]):
        raise GitError(f"{path} is not in a working tree of git")
    root, own, common = lines[0], *(Path(os.path.realpath(folder / line)) for line in lines[1:3])
    top = Path(os.path.realpath(root))
    if not (own.is_relative_to(top) and common.is_relative_to(top)) and not _names(own, top):
        raise GitError(
            f"the repository of {root} lies elsewhere, in {own}, and does not name this folder as its worktree or submodule"
        )
    return root


def _names(repository: Path, top: Path) -> bool:
    """Say whether git made a repository for this working tree: then it has the path of the tree's file `.git`, or of
    the folder.
    """
    with suppress(OSError, ValueError):
        file = regular_files.text(repository / "gitdir", limits.STATE).rstrip("\n")
        return os.path.realpath(repository / file) == str(top / ".git")
    with suppress(OSError, ValueError, GitError):
        place = _git(str(top), "config", "--file", str(repository / "config"), "--get", "core.worktree")
        return os.path.realpath(repository / place.decode().rstrip("\n")) == str(top)
    return False


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working tree beside a commit `base` of its repository. `root` is its top folder; paths are in it, with `/`.

    `sources` are the sources that are there now, new ones too; `changed` are those that differ from `base` or are
    gone. `identity` differs as soon as the base or the content of a file differs. For files that are no sources, only
    what git's index has counts. `submodules` are those that are at another commit than in `base`.
    """

    root: str
    base: str
    sources: tuple[str, ...]
    changed: frozenset[str]
    identity: str
    submodules: tuple[str, ...] = ()


def checkout(folder: str, base: str) -> Checkout:
    """Read the working tree. Blocking. Raises GitError, also if a merge or a rebase has left conflicts."""
    root, commit = _root(str(Path(folder, "x"))), commit_of(folder, base)
    then, _ = _listed(root, commit, "")
    if conflicts := _git(root, "ls-files", "--unmerged", "-z"):
        place = conflicts.partition(b"\0")[0].partition(b"\t")[2].decode("utf-8", "replace")
        raise GitError(f"{place} has conflicts of a merge: resolve them, and `git add` it")
    entries = _entries(_git(root, "ls-files", "--stage", "-z", limit=_LISTED_BYTES))
    index = {place: known for place, (mode, known) in entries.items() if mode in _FILES}
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    untracked = [place.decode("utf-8", "surrogateescape") for place in new if place]
    untracked = [place for place in untracked if not Path(root, place).is_symlink()]
    every = {*then, *index, *untracked}
    like = next(iter(then.values()), "")
    now: dict[str, str | None] = {
        place: _hash(Path(root, *place.split("/")), like) if _is_source(place) else index.get(place)
        for place in every
    }
    differ = {place: known for place, known in now.items() if then.get(place) != known}
    made = hashlib.sha256(commit.encode())
    for place, known in sorted(differ.items()):
        made.update(f"\n{known} {place}".encode("utf-8", "surrogateescape"))
    moved = _moved_submodules(root, commit, entries)
    made.update("".join(f"\n{known} {place}" for place, known in moved.items()).encode())
    present = sorted(place for place, known in now.items() if known and _is_source(place))
    changed = frozenset(filter(_is_source, differ))
    return Checkout(root, commit, tuple(present), changed, made.hexdigest(), tuple(moved))


def _moved_submodules(root: str, commit: str, index: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return the submodules that are at another commit than the base has, with their present commits."""
    here = [place for place, (mode, _) in index.items() if mode == _SUBMODULE]
    if not here:
        return {}
    then = _entries(_git(root, "ls-tree", "-z", "--full-tree", commit, *here))
    now = {place: _head(Path(root, place)) or index[place][1] for place in here if place in then}
    return {place: known for place, known in now.items() if known != then[place][1]}


def _is_source(place: str) -> bool:
    return Path(place).suffix.lower() in SOURCES


def commit_of(folder: str, name: str) -> str:
    """Return the full hash of a revision. Blocking. Raises GitError."""
    if not name or name.startswith("-") or "\0" in name:
        raise GitError(f"{name!r} is not a git revision")
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
    except GitError as error:
        if str(error):
            raise
        rest = f": this clone is shallow, {WHOLE_HISTORY}" if is_shallow(folder) else ""
        raise GitError(f"git knows no revision {name} of {folder}{rest}") from None


def has_commits(folder: str) -> bool:
    """Return whether HEAD is a commit. Blocking. Raises GitError."""
    try:
        return bool(_git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"))
    except GitError as error:
        if str(error):
            raise
        return False


def is_shallow(folder: str) -> bool:
    """Return whether a clone has only the newest commits. Blocking. Raises GitError."""
    return _git(folder, "rev-parse", "--is-shallow-repository").strip() == b"true"


def known(folder: str, names: Sequence[str]) -> set[str]:
    """Return those of some full hashes that are commits of a repository. Blocking. Raises GitError."""
    asked = "".join(f"{name}\n" for name in names).encode()
    lines = (
        _git(folder, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked)
        .decode()
        .splitlines()
    )
    return {line.split()[0] for line in lines if line.endswith(" commit")}


def merge_base(folder: str, one: str, other: str) -> str:
    """Return the newest commit that both revisions descend from. Blocking. Raises GitError."""
    try:
        return _git(folder, "merge-base", commit_of(folder, one), commit_of(folder, other)).decode().strip()
    except GitError as error:
        if str(error):
            raise
        raise GitError(
            f"{one} and {other} have no common commit here: {WHOLE_HISTORY}, or name the base with --base"
        ) from None


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that changed a file: its short hash, how long ago that was, and its subject."""

    commit: str
    ago: str
    subject: str


def log(path: str, most: int) -> list[Commit]:
    """Return the newest commits that changed a file. Blocking. Raises GitError."""
    file = Path(path)
    _root(path)
    listing = _git(
        str(file.parent), "log", f"--max-count={most}", "--no-show-signature", "--no-patch", "--no-color", "-z",
        "--format=%h%x09%cr%x09%s", "--", file.name,
    )  # fmt: skip
    lines = listing.decode("utf-8", "replace").split("\0")
    return [Commit(*line.split("\t", 2)) for line in lines if line.count("\t") >= 2]


def _listed(root: str, commit: str, main: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the hash of every regular file of a commit. If those are too many, return only those in the main file's
    folder.
    """
    remarks: tuple[str, ...] = ()
    try:
        listing = _git(root, "ls-tree", "-r", "-z", "--full-tree", commit, limit=_LISTED_BYTES)
    except _TooLongError:
        folder = main.rpartition("/")[0]
        remarks = (
            f"the repository is large: only files in {folder or 'its top folder'} are of that revision",
        )
        inside = ("-r", f"{folder}/") if folder else ()
        listing = _git(root, "ls-tree", "-z", "--full-tree", commit, *inside, limit=_LISTED_BYTES)
    listed: dict[str, str] = {}
    for line in listing.split(b"\0"):
        about, _, place = line.partition(b"\t")
        mode, _, rest = about.partition(b" ")
        if mode in (b"100644", b"100755"):  # no links: they may lead anywhere
            listed[place.decode("utf-8", "surrogateescape")] = rest.rpartition(b" ")[2].decode()
    return listed, remarks


def _hash(path: Path, like: str) -> str | None:
    """Return the hash that git would give the file now, of the same kind as `like`. Return None if the file is not
    there.
    """
    try:
        status = path.stat()
        return _hash_of(path, len(like), status.st_ino, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=1 << 16)
def _hash_of(path: Path, digits: int, *status: int) -> str | None:
    """Return git's hash of a file. The other arguments are only keys of the cache: many kernels of a gate ask for the
    same sources. Raises OSError.
    """
    del status
    content = regular_files.read(path, limits.REVISION)
    made = hashlib.sha256() if digits == 64 else hashlib.sha1(usedforsecurity=False)
    made.update(b"blob %d\0" % len(content) + content)
    return made.hexdigest()


def blobs(root: str, names: Sequence[str]) -> list[bytes]:
    """Return the contents for some of git's hashes. Raises GitError, also if one of them is larger than 4 MiB."""
    asked = "".join(f"{name}\n" for name in names).encode()
    sizes = _git(root, "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=asked)
    total = 0
    for line in sizes.decode().splitlines():
        parts = line.split()
        if len(parts) != 3 or parts[1] != "blob":
            raise NotFetchedError(_NO_CONTENT)
        if int(parts[2]) > limits.REVISION.most:
            raise GitError(
                f"a file of that revision has {int(parts[2]):,} bytes, more than {limits.REVISION.most:,}"
            )
        total += int(parts[2])
    if total > MOST_BYTES:
        raise GitError(f"the sources of that revision have {total:,} bytes, more than {MOST_BYTES:,}")
    content = _git(root, "cat-file", "--batch", stdin=asked, limit=MOST_BYTES + 200 * len(names))
    contents: list[bytes] = []
    at = 0
    for _ in names:
        end = content.index(b"\n", at)
        size = int(content[at:end].rpartition(b" ")[2])
        contents.append(content[end + 1 : end + 1 + size])
        at = end + 2 + size
    return contents


def write(revision: Revision, folder: str) -> tuple[str, ...]:
    """Write the revision's main file and its sources under `folder`, those near the main file first, up to the limit.
    Return remarks. Raises GitError and OSError.
    """
    near = Path(revision.main).parent
    places = sorted(revision.sources, key=lambda place: (not Path(place).is_relative_to(near), place))
    left_out = len(places) - MOST_FILES
    places = places[:MOST_FILES]
    remarks = (
        (f"{left_out} sources of {revision.short} are left out: there are more than {MOST_FILES}",)
        if left_out > 0
        else ()
    )
    contents = blobs(revision.root, [revision.sources[place] for place in places]) if places else []
    main = (revision.main, revision.text.encode("utf-8", "replace"))
    for place, content in [*zip(places, contents, strict=True), main]:
        path = Path(folder, *place.split("/"))
        if ".." not in path.parts:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return remarks


def write_tree(root: str, commit: str, folder: str) -> tuple[str, ...]:
    """Write all files of a commit under `folder`, as a checkout of it would have them. What is the same in the working tree is
    copied from there, submodules too. Returns remarks. Blocking. Raises GitError and OSError.
    """
    listed = _entries(_git(root, "ls-tree", "-r", "-z", "--full-tree", commit, limit=_LISTED_BYTES))
    indexed = _entries(_git(root, "ls-files", "--stage", "-z", limit=_LISTED_BYTES))
    asked: dict[str, str] = {}
    remarks: list[str] = []
    for place, (mode, known) in listed.items():
        here, there = Path(root, *place.split("/")), Path(folder, *place.split("/"))
        if {"..", ".git"} & set(place.split("/")):
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        if mode == _SUBMODULE:
            if _is_at(here, known):
                shutil.copytree(here, there, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            else:
                remarks.append(f"the submodule {place} is at another commit there, so it is left out")
        elif mode in _FILES and (_hash(here, known) or indexed.get(place, ("", ""))[1]) == known:
            shutil.copyfile(here, there)
        else:
            asked[place] = known
    for place, content in zip(asked, blobs(root, list(asked.values())) if asked else (), strict=True):
        there = Path(folder, *place.split("/"))
        if listed[place][0] in _FILES:
            there.write_bytes(content)
        elif _stays_inside(place, target := os.fsdecode(content)):
            there.symlink_to(target)
    for place, (mode, _) in listed.items():
        if mode == _PROGRAM and (there := Path(folder, *place.split("/"))).is_file():
            there.chmod(0o755)
    return tuple(remarks)


def _entries(listing: bytes) -> dict[str, tuple[str, str]]:
    """Return the mode and the hash of each path that `ls-tree` or `ls-files --stage` lists."""
    entries: dict[str, tuple[str, str]] = {}
    for line in listing.split(b"\0"):
        about, _, place = line.partition(b"\t")
        words = about.decode().split()
        if len(words) == 3:
            known = next(word for word in words[1:] if len(word) >= 40)
            entries[place.decode("utf-8", "surrogateescape")] = (words[0], known)
    return entries


def _is_at(folder: Path, commit: str) -> bool:
    """Return whether a submodule's folder has this commit checked out."""
    return _head(folder) == commit


def _head(folder: Path) -> str:
    """Return the commit that a submodule's folder has checked out; an empty text if it has none."""
    with suppress(OSError, GitError):
        return commit_of(str(folder), "HEAD") if (folder / ".git").exists() else ""
    return ""


def _stays_inside(place: str, target: str) -> bool:
    """Return whether a link of a repository leads to somewhere in it."""
    return Path(os.path.normpath(Path(place).parent / target)).parts[0] not in ("/", "..")


class _TooLongError(GitError):
    pass


def _git(folder: str, *arguments: str, stdin: bytes = b"", limit: int = _LISTED_BYTES) -> bytes:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= ENVIRONMENT
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as errors:
        asked.write(stdin)
        asked.seek(0)
        try:
            process = subprocess.Popen(
                ["git", *_ALONE, "-C", folder, *arguments],
                stdin=asked, stdout=subprocess.PIPE, stderr=errors, env=environment,
            )  # fmt: skip
        except FileNotFoundError:
            raise GitError("git is not on PATH") from None
        except OSError as error:
            raise GitError(f"git cannot be started: {error.strerror}") from None
        overdue = threading.Event()
        timer = threading.Timer(_LIMIT_S, lambda: (overdue.set(), process.kill()))
        timer.start()
        with process:
            assert process.stdout
            output = process.stdout.read(limit + 1)
            if len(output) > limit:
                process.kill()
        timer.cancel()
        errors.seek(0)
        text = errors.read(_MESSAGE_BYTES).decode("utf-8", "replace").strip()
    if len(output) > limit:
        raise _TooLongError(f"git {arguments[0]} printed more than {limit:,} bytes")
    if overdue.is_set():
        raise GitError(f"git {arguments[0]} took longer than {_LIMIT_S:.0f} s")
    if process.returncode:
        first, *more = [line.strip() for line in text.split("\n") if not line.startswith("warning: ")] or [""]
        first = first.removeprefix("fatal: ").removeprefix("error: ")
        if first.startswith("not a git repository"):
            raise GitError(f"{folder} is not in a git repository")
        if first.startswith("cannot use bare repository"):
            raise GitError(f"{folder} is in a bare repository, which has no files to run: clone it")
        if (
            first.startswith("transport '") or "from promisor remote" in first
        ):  # it wanted to fetch, which no repository may make it do
            raise NotFetchedError(_NO_CONTENT)
        remedy = next((line for line in more if "safe.directory" in line), "")
        raise GitError(f"{first}; `{remedy}` permits it" if remedy else first)
    return output
