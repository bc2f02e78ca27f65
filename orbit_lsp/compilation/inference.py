"""Infers include folders for a file that no build database describes: it looks for each `#include` that no folder
has.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.closure.includes import rewrite
from orbit_lsp.compilation import build_files, templates
from orbit_lsp.compilation import headers as header_search
from orbit_lsp.compilation.build_files import Declared
from orbit_lsp.compilation.headers import Headers
from orbit_lsp.compilation.installed import INCOMPATIBLE, STANDARD, InstalledHeaders, nvidia_folders
from orbit_lsp.compilation.toolkit_headers import REMOVED, is_toolkits, toolkits_own
from orbit_lsp.state.compilation import Reason
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import INCLUDING

FILES = 2_000
"""Headers that are followed from one file."""
SECONDS = 2.0
"""How long they may be followed."""

_INCLUDE = re.compile(
    rb"^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(?:\"([^\"\r\n]+)\"|<([^>\r\n]+)>)", re.MULTILINE
)
_CONCEPT = re.compile(rb"^[ \t]*(?:template[^;{}\n]*>[ \t]*)?concept[ \t]+\w+\s*=", re.MULTILINE)
_REQUIRED = re.compile(rb"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\r?\n[ \t]*#[ \t]*error\b", re.MULTILINE)
_COMPARED = re.compile(rb"^[ \t]*#[ \t]*if[ \t]+(\w+)[ \t]*==[ \t]*\d+[ \t]*\r?$", re.MULTILINE)
"""Where a text has an `#error`, its other values may be it."""
_OF_STANDARD = (b"__cplusplus", b"__cpp_concepts", b"_STD_VER", b"CPP_20", b"CPP20", b"CPLUSPLUS", b"CXX20")
"""What a file that does without C++20 asks for it by."""
_AT_ONCE = 1 << 16
"""Bytes that a pattern is looked for in: a whole text would keep the interpreter from other threads."""
_OF_A_LINE = 1000
"""Bytes of a line that are looked at before what may begin a comment."""
_SHELL_OR_LIST = re.compile(r"[$`\\\n\r\",]" if os.name == "posix" else r"[%\"\n\r,]")
"""What no flag for an include folder can hold: nvcc splits at commas, and a shell reads the rest."""
_OTHER_SYSTEM = re.compile(
    r"(?:^|[-_/.])(?:win(?:dows|32|64)|msvc|vs20\d\d|macos|osx|mingw)(?:[-_/.]|$)", re.IGNORECASE
)
_AMBIGUOUS = 3
_MOST_REQUIRED = 32
"""Macros that are looked for in build files."""


class WantedInclude(NamedTuple):
    name: str
    quoted: bool


@dataclass(slots=True)
class Inferred:
    """What was inferred. `missing` are headers that are nowhere, with the files that include them, in the order they
    were met. `made` are those that were made from templates.
    """

    flags: list[str] = field(default_factory=list[str])
    reasons: list[Reason] = field(default_factory=list[Reason])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    made: list[str] = field(default_factory=list[str])


class Included(NamedTuple):
    """What a file includes, whether it needs C++20 whatever compiles it, and the macros without which it is an error."""

    wanted: tuple[WantedInclude, ...] = ()
    newest: bool = False
    required: tuple[str, ...] = ()


@dataclass(slots=True)
class Texts:
    """What files include. Each is read again only if it has changed."""

    _known: dict[str, tuple[tuple[int, int], Included]] = field(
        default_factory=dict[str, "tuple[tuple[int, int], Included]"]
    )

    def of_file(self, path: str) -> Included:
        try:
            status = os.stat(path)
            state = status.st_mtime_ns, status.st_size
            known = self._known.get(path)
            if known is None or known[0] != state:
                known = self._known[path] = state, included(regular_files.read(path, INCLUDING))
        except (OSError, ValueError):
            return Included()
        return known[1]


def included(content: bytes) -> Included:
    content = content.removeprefix(codecs.BOM_UTF8)
    newest = b"concept" in content and not any(word in content for word in _OF_STANDARD)
    patterns = (_REQUIRED, _COMPARED) if b"#error" in content else ()
    required = [name for piece in _pieces(content) for each in patterns for name in each.findall(piece)]
    return Included(
        wanted(content),
        newest and any(map(_CONCEPT.search, _pieces(content))),
        tuple(dict.fromkeys(name.decode("utf-8", "replace") for name in required)),
    )


def wanted(content: bytes) -> tuple[WantedInclude, ...]:
    """Return what a text includes, in each of its branches."""
    needed: dict[WantedInclude, None] = {}
    if b"include" in content or b"import" in content:
        for quoted, angle in chain.from_iterable(map(_INCLUDE.findall, _pieces(_without_comments(content)))):
            needed[WantedInclude((quoted or angle).decode("utf-8", "replace").strip(), bool(quoted))] = None
    return tuple(needed)


def _without_comments(content: bytes) -> bytes:
    """Remove `/* */` comments, of one line or of many. Comments after `//` stay. A `/*` in them or in a string begins
    no comment.
    """
    code: list[bytes] = []
    position = looked = 0
    while (begin := content.find(b"/*", looked)) >= 0 and (end := content.find(b"*/", begin + 2)) >= 0:
        start = max(position, begin - _OF_A_LINE)
        before = content[max(start, content.rfind(b"\n", start, begin) + 1) : begin]
        if b"//" in before:
            looked = content.find(b"\n", begin) + 1 or len(content)
        elif before.count(b'"') % 2:
            looked = begin + 2
        else:
            code.append(content[position:begin])
            position = looked = end + 2
    return b"".join([*code, content[position:]])


def _pieces(content: bytes) -> Iterator[bytes]:
    """Yield whole lines, as many as are searched at once. Of a longer line only the beginning is yielded."""
    start = 0
    while start < len(content):
        end = content.rfind(b"\n", start, start + _AT_ONCE) + 1 or start + _AT_ONCE
        yield content[start:end]
        start = end if content[end - 1 : end] == b"\n" else content.find(b"\n", end) + 1 or len(content)


def _of_other_system(folder: str) -> bool:
    """Say whether a folder has a name of another system: then it has copies of what this system installs."""
    return sys.platform == "linux" and bool(_OTHER_SYSTEM.search(folder))


def _hides(folder: str) -> bool:
    """Say whether this folder would hide the headers of C or CUDA."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(is_toolkits(name) or (name.endswith(".h") and name[:-2] in STANDARD) for name in names)


def infer(
    path: str,
    text: str,
    flags: Sequence[str],
    headers: Headers,
    installed: InstalledHeaders,
    declared: Declared,
    texts: Texts,
) -> Inferred:
    """Return what `flags` lack for the headers that the file, and what it includes, name. Reads files and folders."""
    walk = _InferenceWalk(path, flags, headers, installed, declared, texts)
    walk.run(text)
    return walk.inferred


class _InferenceWalk:
    def __init__(
        self,
        path: str,
        flags: Sequence[str],
        headers: Headers,
        installed: InstalledHeaders,
        declared: Declared,
        texts: Texts,
    ) -> None:
        self.path = path
        self.headers = headers
        self.installed = installed
        self.declared = declared
        self.texts = texts
        self.inferred = Inferred()
        self.folders: list[str] = []
        self.seen: set[str] = {path}
        self.waiting: list[tuple[str, Included]] = []
        self.answers: dict[tuple[str, str], str | None] = {}
        self.required: set[str] = set()
        self.named = any(flag.startswith("-DTORCH_EXTENSION_NAME=") for flag in flags)
        rewrite(flags, self._note)
        self.given = [*self.folders]
        self.cmake_project = templates.project_of(path, headers.root)

    def _note(self, kind: str, value: str) -> str:
        if kind in ("folder", "system", "quote"):
            self.folders.append(os.path.normpath(os.path.join(os.path.dirname(self.path), value)))
        return value

    def run(self, text: str) -> None:
        end = time.monotonic() + SECONDS
        self.waiting.append((self.path, included(text.encode("utf-8", "replace"))))
        while self.waiting and len(self.seen) < FILES and time.monotonic() < end:
            source, includes = self.waiting.pop(0)
            if includes.newest:
                self._flag("-std=c++20", f"{self._shown(source)} defines a concept of C++20")
            for name in includes.required if self.declared.nearest else ():
                self._define(name, source)
            for include in includes.wanted:
                folder = self._find(source, include)
                if folder and folder not in self.seen:
                    self.seen.add(folder)
                    self.waiting.append((folder, self.texts.of_file(folder)))

    def _define(self, name: str, source: str) -> None:
        """Define a macro that a file needs, as the build files above it define it."""
        if name in self.required or len(self.required) >= _MOST_REQUIRED:
            return
        self.required.add(name)
        if not any(re.match(rf"-D{name}\b", flag) for flag, _ in self.declared.flags):
            of_target = (each for each in self.declared.macros if each[0].startswith(f"-D{name}="))
            flag, file = next(of_target, None) or build_files.definition_of(name, source, self.headers.root)
            if flag and not any(each.startswith(f"-D{name}=") for each in self.inferred.flags):
                self._flag(flag, f"{self._shown(file)} defines it, and {self._shown(source)} needs it")

    def _find(self, source: str, include: WantedInclude) -> str | None:
        """Return the file of the workspace that is meant. Return None if the header is another's, or nowhere."""
        name, quoted = include
        if "\\" in name or os.path.isabs(name):
            return None
        beside = os.path.join(os.path.dirname(source), name)
        if quoted and os.path.isfile(beside):
            return os.path.normpath(beside)
        key = (name, os.path.dirname(source))
        if key not in self.answers:
            self.answers[key] = self._search(source, include)
        return self.answers[key]

    def _search(self, source: str, include: WantedInclude) -> str | None:
        name = include.name
        for folder in self.folders:
            if os.path.isfile(os.path.join(folder, name)):
                if own := self._instead_of(folder, name):
                    return os.path.join(own, name)
                return self._inside(os.path.normpath(os.path.join(folder, name)))
        if folder := self._own_of_toolkits_name(include):
            return os.path.normpath(os.path.join(folder, name))
        if self.installed.toolkit_or_system(name):
            return None
        if name in self.inferred.missing:
            return None
        if folder := self._declared(name) or self._in_workspace(source, include):
            return os.path.normpath(os.path.join(folder, name))
        if self._installed(name):
            return None
        if self._by_link(name):
            return None
        if folder := self._templated(name):
            return os.path.join(folder, name)
        self.inferred.missing[name] = source
        return None

    def _by_link(self, name: str) -> bool:
        """Say whether a name leads into the toolkit through a link that a build makes, as Bazel's
        `third_party/gpus/cuda/include/cuda.h`.
        """
        own = toolkits_own(name)
        if not own or not (self.installed.toolkit_or_system(own) or self._installed(own)):
            return False
        folder = templates.forward(name, own)
        if folder:
            self._add(
                "-I", folder, f"{name} leads there to the toolkit's {own}, as a link that the build makes"
            )
        return bool(folder)

    def _instead_of(self, folder: str, name: str) -> str:
        """Return the folder of a header that the project's own CMakeLists.txt makes from a template. It is used if
        `folder` has a header with that name that no build file of the project names, because that is another
        project's. Return "" if there is no template, or the folder is the project's.
        """
        project = self.cmake_project
        file = os.path.normpath(os.path.join(folder, name))
        if project in ("", self.headers.root) or folder in self.given or Path(file).is_relative_to(project):
            return ""
        if templates.is_built_from(file, project, self.headers.root):
            return ""
        listed = (os.path.join(self.headers.root, place) for place in self.headers.named(f"{name}.in"))
        if any(templates.configures(place, name, project) for place in listed):
            return self._templated(name)
        return ""

    def _templated(self, name: str) -> str:
        """Return the folder of a header that CMake would make from a template of the project."""
        listed = self.headers.named(f"{name}.in")
        within = [
            place
            for place in listed
            if Path(self.headers.root, place).is_relative_to(self.cmake_project or self.headers.root)
        ]
        listed = within or listed
        template = min(listed, key=lambda place: (not place.endswith(f"/{name}.in"), place), default="")
        if not template or os.path.basename(self.declared.nearest) != "CMakeLists.txt":
            return ""
        folder = templates.make(os.path.join(self.headers.root, template), name, self.headers.root)
        if folder:
            self.inferred.made.append(name)
            self._add(
                "-I",
                folder,
                f"{name} is made there from {template}, with what CMakeLists.txt sets by default",
                first=True,
            )
        return folder

    def _inside(self, path: str) -> str | None:
        """Return the path if it is in the workspace. Only such files are followed: what is installed finds its own
        headers.
        """
        return path if Path(path).is_relative_to(self.headers.root) else None

    def _declared(self, name: str) -> str | None:
        for folder, file, line in self.declared.folders:
            if os.path.isfile(os.path.join(folder, name)):
                self._add("-I", folder, f"{self._shown(file)}:{line} names it")
                return folder
        return None

    def _own_of_toolkits_name(self, include: WantedInclude) -> str | None:
        """Return the folder of a header of the project with the name of one of the toolkit's. The compiler searches
        the folders of build files before the toolkit's.
        """
        name = include.name
        if not is_toolkits(name) or not (include.quoted or "/" not in name):
            return None
        inside = any(
            self._inside(folder) and os.path.isfile(os.path.join(folder, name))
            for folder, _, _ in self.declared.folders
        )
        return self._declared(name) if inside else None

    def _in_workspace(self, source: str, include: WantedInclude) -> str | None:
        """Return the nearest folder of the workspace from which the name leads to a file."""
        own = include.quoted and include.name in REMOVED
        if (
            is_toolkits(include.name)
            and not own
            and ("/" not in include.name or not self.installed.has_toolkit())
        ):
            return None
        here = os.path.relpath(os.path.dirname(source), self.headers.root)
        roots = sorted(
            self.headers.roots(include.name),
            key=lambda place: (
                header_search.distance(here, place),
                not place.endswith("include"),
                len(place),
                place,
            ),
        )
        roots = [root for root in roots if not _SHELL_OR_LIST.search(os.path.join(self.headers.root, root))]
        roots = [
            root for root in roots if os.path.isfile(os.path.join(self.headers.root, root, include.name))
        ]
        roots = [root for root in roots if not _of_other_system(root)]
        own = os.path.relpath(source, self.headers.root)  # <name.h> in a file of that name is another's
        roots = [root for root in roots if os.path.normpath(os.path.join(root, include.name)) != own]
        if not include.quoted:
            plain = [root for root in roots if not _hides(os.path.join(self.headers.root, root))]
            roots = plain or roots
        if not roots:
            return None
        folder = os.path.normpath(os.path.join(self.headers.root, roots[0]))
        if own := self._instead_of(folder, include.name):
            return own
        why = f"it has {include.name}, which {self._shown(source)} includes"
        if alternatives := [os.path.join(root, include.name) for root in roots[1 : 1 + _AMBIGUOUS]]:
            why += f" (the nearest; also {', '.join(alternatives)}{', …' if len(roots) > 1 + _AMBIGUOUS else ''})"
        if _hides(folder):
            self._add("-iquote" if include.quoted else "-idirafter", folder, why)
        else:
            self._add("-I", folder, why)
        return folder

    def _installed(self, name: str) -> bool:
        package = self.installed.package(name)
        if package is None:
            return False
        why = f"{package.name} is installed there, and has {name}"
        for folder in package.folders:
            self._add("-isystem", folder, why)
        for flag in package.flags:
            if flag in INCOMPATIBLE and not self.declared.torch_builds:
                continue  # a CMake project takes these out again where it uses the operators
            if not (flag.startswith("-std") and any(flag.startswith("-std") for flag in self.inferred.flags)):
                self._flag(flag, f"{package.name} compiles with it")
        if package.name == "torch":
            self._name_extension()
            if not self.installed.toolkit_or_system("cusparse.h"):  # torch's headers include the libraries'
                for folder in nvidia_folders(self.installed.pythons):
                    self._add("-isystem", folder, "torch's headers include those of CUDA's libraries")
        return True

    def _name_extension(self) -> None:
        """Define the extension's name, as torch's builder does. If no text says it, it is the file's."""
        macro = "-DTORCH_EXTENSION_NAME="
        if self.named or any(flag.startswith(macro) for flag, _ in self.declared.flags):
            return
        self.named = True
        name, file = self.declared.extension
        if name:
            self._flag(macro + name, f"torch compiles with it, and {self._shown(file)} names the extension")
        else:
            stem = re.sub(r"[^0-9A-Za-z_]", "_", Path(self.path).stem)
            self._flag(
                macro + stem, "torch compiles with it; the file's name, because no text says the extension's"
            )

    def _flag(self, flag: str, why: str) -> None:
        if flag not in self.inferred.flags:
            self.inferred.flags.append(flag)
            self.inferred.reasons.append(Reason(flag, why))

    def _add(self, option: str, folder: str, why: str, *, first: bool = False) -> None:
        """Add a folder. `first`: it is searched before all others that are inferred."""
        if folder in self.folders or _SHELL_OR_LIST.search(folder):
            return
        if first:
            self.folders.insert(len(self.given), folder)
            self.inferred.flags.insert(0, f"-I{folder}")
            self.inferred.reasons.append(Reason(folder, why))
            return
        self.folders.append(folder)
        if option in (
            "-iquote",
            "-idirafter",
        ):  # nvcc has no such flags, and its host compiler reads the includes
            self.inferred.flags += ["-Xcompiler", option, "-Xcompiler", folder]
        else:
            self.inferred.flags += [f"-I{folder}"] if option == "-I" else [option, folder]
        self.inferred.reasons.append(Reason(folder, why))

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self.headers.root) if self._inside(path) else path
