"""Finds how a file is compiled: from its project's database, else by inference. Only this module reads, and keeps
what it read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from orbit_lsp.closure import includes
from orbit_lsp.compilation import build_files, clangd_flags, command_line, inference, makers
from orbit_lsp.compilation import headers as header_search
from orbit_lsp.compilation import installed as installed_headers
from orbit_lsp.compilation.database import DatabaseMatch, Databases
from orbit_lsp.compilation.headers import Headers
from orbit_lsp.compilation.inference import Inferred, Texts
from orbit_lsp.compilation.installed import InstalledHeaders, prefixes, venvs
from orbit_lsp.compilation.projects import project_of
from orbit_lsp.state.compilation import Compilation, Reason
from orbit_remote.common import architectures as architectures_of
from orbit_remote.common import nvcc_flags
from orbit_remote.common.lazy_dataclass import dataclass

_AGE_S = 30.0
"""How old what is known of a workspace's folders may be where no editor reports its changes."""

_OF_BUILD = "only the build knows its value"
_LEFT_OUT = {"-G": "figures are of optimized code"}
_OF_HOST = (
    "-Xcompiler", "-ccbin", "--compiler-bindir", "--diag", "-diag", "--Werror", "-Werror", "--use-local-env", "-use-local-env", "-pg", "-msse", "-mavx", "-mfma", "-mf16c", "-march", "-mtune", "-fopenmp", "-fsanitize",
    "-allow-unsupported-compiler", "--allow-unsupported-compiler", "--threads", "--display-error-number", "-err-no",
)  # fmt: skip
"""Flags on which no figure depends: of the compiler of host code, of messages, of how nvcc runs."""
_LONGEST_ARCHITECTURE = 4
_OLDEST_ARCHITECTURE = 75


@dataclass(frozen=True, slots=True)
class CompilationQuestion:
    """A file, and all that its compilation depends on besides the disk."""

    path: str
    text: str
    folders: tuple[str, ...]
    flags: tuple[str, ...] = ()
    """Of the setting `nvcc_flags`."""
    trusted: bool = False
    standing: str = ""
    """Where the author types commands, which sentences name folders from; "" for the top of the project."""
    python: str = ""
    """The chosen one."""
    not_started: tuple[str, ...] = ()
    """Pythons that the workspace brings along and that are not trusted: their headers are read, nothing is started."""
    nvcc: str | None = None
    """The one that compiles, None where that is not known yet."""
    nvcc_chosen: bool = False
    """By the setting `nvcc`."""
    database: str = ""
    """The setting `compile_commands`."""
    flags_trusted: bool = False
    """The user set `flags`, not the workspace."""


@dataclass(slots=True)
class CompilationFinder:
    """Finds compilations. Only one thread at a time may use it."""

    _databases: Databases = field(default_factory=Databases)
    _texts: Texts = field(default_factory=Texts)
    _headers: dict[str, Headers] = field(default_factory=dict[str, Headers])

    def forget(self, path: str) -> None:
        """Look at a file's folder again: the file was created, deleted or changed."""
        for root in [root for root in list(self._headers) if Path(path).is_relative_to(root)]:
            self._headers.pop(root, None)

    def compiles_host_sources(self, path: str, root: str) -> bool:
        """Return whether the file's project has nvcc compile sources of C++ as CUDA. Reads files."""
        return build_files.compiles_host_sources(path, root, self._headers_of(root).builds)

    def find(self, question: CompilationQuestion) -> Compilation:
        """Return how the file is compiled. It reads files and folders, about 100 ms the first time: call it off the
        event loop.
        """
        if any(not _is_path(each) for each in (question.path, *question.folders)):
            return Compilation()
        root = root_of(question.path, question.folders)
        match = self._databases.find(question.path, root, question.database)
        headers = self._headers_of(root)
        declared = (
            build_files.Declared() if match else build_files.declared(question.path, root, headers.builds)
        )
        if not match and not declared.is_source:  # what a build gives the source counts more
            of_clangd = clangd_flags.of(question.path, root)
            declared = replace(
                declared,
                flags=(*declared.flags, *of_clangd.flags),
                folders=(*declared.folders, *of_clangd.folders),
            )
        of_project = match.command.flags if match else ()
        own, refused = nvcc_flags.allowed_flags(question.flags, question.trusted or question.flags_trusted)
        included, of_project = _included_of_workspace(of_project, root)
        kept, more = nvcc_flags.allowed_flags(of_project, question.trusted)
        kept = (*included, *kept)
        kept, refused = (*own, *kept), (*refused, *more)  # what the author set is searched first
        pythons = (*venvs(question.path, root), *question.not_started, question.python)
        installed = InstalledHeaders(prefixes(pythons), question.nvcc)
        inferred = inference.infer(
            question.path, question.text, kept, headers, installed, declared, self._texts
        )
        # of several standards the newest: a package's headers need theirs
        of_package = [flag for flag in inferred.flags if command_line.year(flag)]
        standards = [flag for flag, _ in declared.flags if command_line.year(flag)] + of_package
        standard = "" if _has_standard(kept) else max(standards, key=_year, default="")
        named, reasons, left_out = _declared_flags(declared, kept, root, standard)
        folders = [
            flag
            for flag in inferred.flags
            if not command_line.year(flag) or (flag == standard and not _has_standard(named))
        ]
        # a package's -D come first, so that the project's -U of the same name wins; folders keep their order
        defines = [flag for flag in folders if flag.startswith("-D")]
        flags = (*defines, *kept, *named, *(flag for flag in folders if flag not in defines))
        standing = question.standing or root
        command = "" if match else declared.database_command(question.path, root, standing)
        known = tuple(each for each in declared.architectures if _is_known(each[0]))
        targets = () if architectures_of.asked_for(kept) else known
        architectures = _architecture_reasons(targets, root)
        return Compilation(
            flags,
            _source(
                match, root, headers, command, self._databases.faults(question.path, root, question.database)
            ),
            (
                *reasons,
                *architectures,
                *(
                    each
                    for each in inferred.reasons
                    if each.what in flags or not command_line.year(each.what)
                ),
            ),
            refused,
            self._explained(
                inferred, headers, next(iter(question.not_started), question.python), declared, installed
            ),
            filled=makers.values(question.text, declared.scripts, root) if declared.scripts else {},
            made=tuple(inferred.made),
            architectures=tuple(number for number, _ in targets),
            left_out=(*left_out, *_of_command(match, root)),
            nvcc=_compiler(match) if question.trusted else None,
            nvcc_not_started=_not_started(match, question),
            is_source=declared.is_source or (match is not None and not match.beside),
            # a file without a project lacks nothing that a build could give it
            named=bool(match) or declared.named or not headers.builds,
            python=question.python,
            root=root,
            database=match.database if match else "",
            database_command=command,
        )

    def _headers_of(self, root: str) -> Headers:
        known = self._headers.get(root)
        if known is None or time.monotonic() - known.at > _AGE_S:
            known = self._headers[root] = header_search.search(root)
        return known

    def _explained(
        self,
        inferred: Inferred,
        headers: Headers,
        python: str,
        declared: build_files.Declared,
        installed: InstalledHeaders,
    ) -> dict[str, str]:
        if not inferred.missing:
            return {}
        from orbit_lsp.compilation import missing  # its patterns take 6 ms to compile

        absent = missing.submodules(headers.root)
        packages = [(name, os.path.relpath(file, headers.root)) for name, file in declared.packages]
        has_cccl = installed.toolkit_or_system("cub/cub.cuh")

        def maker(name: str, source: str) -> str:
            return makers.of_header(name, source, headers.root, headers.builds)

        return {
            name: missing.explain(
                name, source, headers, absent, python, packages, has_cccl=has_cccl, maker=maker
            )
            for name, source in inferred.missing.items()
        }


def root_of(path: str, folders: Sequence[str]) -> str:
    """Return the innermost workspace folder of a file, else its project."""
    inside = [folder for folder in folders if Path(path).is_relative_to(folder)]
    return os.path.normpath(max(inside, key=len)) if inside else project_of(str(Path(path).parent))


def project_folders(compilation: Compilation, path: str) -> tuple[str, ...]:
    """Return the include folders of a compilation that lie in the workspace."""
    folders: list[str] = []

    def note(kind: includes.Kind, value: str) -> str:
        folder = os.path.normpath(os.path.join(os.path.dirname(path), value))
        if kind in ("quote", "folder", "system") and Path(folder).is_relative_to(compilation.root):
            folders.append(folder)
        return value

    includes.rewrite(compilation.flags, note)
    return tuple(dict.fromkeys(folders))


def _is_path(text: str) -> bool:
    """Say whether a file can have this name: a client may send others."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _included_of_workspace(flags: Sequence[str], root: str) -> tuple[list[str], list[str]]:
    """Return each `-include` of a file in the workspace, which its sources could include as well, and all other
    flags.
    """
    included: list[str] = []
    others: list[str] = []
    words = iter(flags)
    for word in words:
        if word != "-include":
            others.append(word)
            continue
        file = next(words, "")
        plain = not nvcc_flags.is_shell_active(file) and not any(each in file for each in '",')
        inside = os.path.isfile(file) and Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root))
        (included if plain and inside else others).extend((word, file))
    return included, others


def _has_standard(flags: Sequence[str]) -> bool:
    return any(flag.startswith(("-std", "--std")) for flag in flags)


def _declared_flags(
    declared: build_files.Declared, kept: Sequence[str], root: str, standard: str
) -> tuple[list[str], list[Reason], tuple[Reason, ...]]:
    """Return the flags that are used, why, and what is left out."""
    flags: list[str] = []
    reasons: list[Reason] = []
    left_out = [
        Reason(what, f"{os.path.relpath(file, root)} has it, and {_LEFT_OUT.get(what, _OF_BUILD)}")
        for what, file in declared.left_out
    ]
    left_out += [
        Reason(
            f"sm_{number}",
            f"{os.path.relpath(file, root)} names it, and CUDA 13 and newer have no code for it",
        )
        for number, file in declared.architectures
        if not _is_known(number)
    ]
    for flag, file in declared.flags:
        taken, _ = nvcc_flags.allowed_flags((flag,), trusted=False)  # a guess gets no more than anybody
        where = os.path.relpath(file, root)
        if taken and flag not in kept and (flag == standard or not command_line.year(flag)):
            flags += taken
            reasons.append(Reason(flag, f"{where} names it"))
        elif not taken and flag.startswith(("-D", "-U")):
            left_out.append(Reason(flag, f"{where} has it, and a shell would execute a part of it"))
        elif not taken and not flag.startswith(_OF_HOST):
            why = f"{where} has it; add it to the setting `nvcc_flags`"
            left_out.append(Reason(flag, why))
    return flags, reasons, tuple(left_out)


def _is_known(number: str) -> bool:
    """Say whether an architecture is one that CUDA 13 still has. An older one only says how old the build file is,
    not what the figures shall be for.
    """
    return len(number) <= _LONGEST_ARCHITECTURE and int(number.rstrip("af")) >= _OLDEST_ARCHITECTURE


def _architecture_reasons(targets: Sequence[tuple[str, str]], root: str) -> list[Reason]:
    """Return a reason for each build file that names architectures."""
    files = dict.fromkeys(file for _, file in targets)
    return [
        Reason(
            ", ".join(f"sm_{number}" for number, of in targets if of == file),
            f"{os.path.relpath(file, root)} names it",
        )
        for file in files
    ]


def _year(flag: str) -> int:
    return command_line.year(flag) or 0


def _source(
    match: DatabaseMatch | None, root: str, headers: Headers, command: str, faults: Sequence[tuple[str, str]]
) -> str:
    """Return the sentence that says where the flags come from. `faults` are of databases that cannot be read
    completely.
    """
    remarks = [f"{os.path.relpath(database, root)} {fault}" for database, fault in faults]
    if match:
        shown = os.path.relpath(match.database, root)
        source = f"as {shown} says"
        if match.beside:
            what = "which includes this file" if match.includes else "because it has no entry for this file"
            source = f"as {shown} says of {os.path.relpath(match.beside, root)}, {what}"
        return "; ".join([source, *match.command.remarks, *remarks])
    partly = "" if headers.complete else f", of which {headers.folders} folders were searched"
    how = f" ({command} writes {'the Makefile' if 'configur' in command else 'it'})" if command else ""
    why = "; ".join(remarks) or "there is no compile_commands.json"
    return f"by what was found in {root}{partly}, because {why}{how}"


def _of_command(match: DatabaseMatch | None, root: str) -> list[Reason]:
    """Return what the command of a database gives its compiler and is not used."""
    if match is None:
        return []
    shown = os.path.relpath(match.database, root)
    return [Reason(what, f"{shown} has it, and {_LEFT_OUT[what]}") for what in match.command.left_out]


def _compiler(match: DatabaseMatch | None) -> str | None:
    """Return the nvcc that the project names by its path."""
    if match is None or match.command.compiler != "nvcc":
        return None
    program = match.command.program
    return program if os.path.isabs(program) and os.path.isfile(program) else None


def _not_started(match: DatabaseMatch | None, question: CompilationQuestion) -> str:
    """Return the project's nvcc if only trust is missing and another one compiles in its place."""
    named = _compiler(match)
    if named is None or question.trusted or question.nvcc_chosen:
        return ""
    ours = question.nvcc or installed_headers.default_nvcc()
    return "" if ours and os.path.realpath(ours) == os.path.realpath(named) else named
