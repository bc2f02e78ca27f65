"""Reads how Visual Studio compiles a CUDA file from the text of a .vcxproj."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.makefiles import without_option_files
from orbit_lsp.compilation.build_systems.reading import Reading

_SOURCE = re.compile(r"<(CudaCompile|CustomBuild|ClCompile)\s{1,20}Include=\"([^\"<>]{1,500})\"\s{0,20}(/?)>")
_BLOCK = re.compile(r"<(CudaCompile|ClCompile)>")
_GROUP = re.compile(r"<(ItemDefinitionGroup)([^<>]{0,500})>")
_SETTING = re.compile(r"<(\w+)(?:\s+Condition=\"([^\"]{0,300})\")?\s*>([^<]{0,4000})</\1>")
_TARGET = re.compile(r"(?:compute|sm)_(\d{2,3}[af]?)")
_MACRO = re.compile(r"[$%]\((\w+)\)")
_MOST_SOURCES = 5_000
_MOST_GROUPS = 50
_LONGEST = 20_000
"""Characters of one group of settings."""


def read(text: str, path: str, folder: str) -> Reading | None:
    """Return what the release build of the project in `folder` gives nvcc for `path`. Return None if the project does
    not have it.
    """
    own = next(
        (each for each in islice(_SOURCE.finditer(text), _MOST_SOURCES) if _same(each[2], path, folder)), None
    )
    if own is None:
        return None
    values: dict[str, str] = {}
    for group in islice(_GROUP.finditer(text), _MOST_GROUPS):
        inside = _inside(text, group) if _is_release(group[2]) else ""
        for block in _BLOCK.finditer(inside):
            _settle(values, block[1], _inside(inside, block))
    _settle(values, "CudaCompile", "" if own[3] else _inside(text, own))
    words, left_out = _words(values, folder)
    kept, option_files = without_option_files(words)
    command = command_line.parse(["nvcc", *kept], folder, path)
    return Reading(command.flags, (*left_out, *option_files, *command.left_out))


def _inside(text: str, opening: re.Match[str]) -> str:
    """Return what stands between a tag and the next one that closes it."""
    return text[opening.end() : text.find(f"</{opening[1]}>", opening.end(), opening.end() + _LONGEST)]


def _same(name: str, path: str, folder: str) -> bool:
    name = _MACRO.sub(
        lambda match: folder if match[1] in ("ProjectDir", "MSBuildThisFileDirectory") else match[0], name
    )
    return command_line.same(os.path.join(folder, name.replace("\\", "/")), path)


def _is_release(condition: str) -> bool:
    """Say whether a condition means a release build for 64 bits. A condition that names no configuration does too."""
    names = condition.lower()
    return "debug" not in names and "win32" not in names


def _settle(values: dict[str, str], kind: str, block: str) -> None:
    """Note the settings of a block. Those of host code are noted only if CUDA takes them over."""
    for match in _SETTING.finditer(block):
        name, condition, value = match.groups()
        if kind == "ClCompile" and name not in ("AdditionalIncludeDirectories", "PreprocessorDefinitions"):
            continue
        if _is_release(condition or ""):
            name = {"Include": "AdditionalIncludeDirectories"}.get(name, name)
            key = f"{kind}.{name}"
            before = values.get(key, "")
            values[key] = value.replace(f"%({match[1]})", before, 1).strip()[:_LONGEST]


def _words(values: dict[str, str], folder: str) -> tuple[list[str], list[str]]:
    """Return nvcc's flags, and those that only Visual Studio knows."""
    words: list[str] = []
    left_out: list[str] = []
    for kind in ("ClCompile", "CudaCompile"):
        listed = (
            values.get(f"{kind}.PreprocessorDefinitions", "")
            + ";" * (kind == "CudaCompile")
            + values.get(f"{kind}.Defines", "")
        )
        for each in _split(listed):
            if _MACRO.search(each):
                left_out += [f"-D{each}"] if not re.match(r"%\(|\$\(\w*Definitions", each) else []
            elif each not in (
                "WIN32",
                "WIN64",
                "_WINDOWS",
                "_CONSOLE",
                "_LIB",
                "_USRDLL",
                "_UNICODE",
                "UNICODE",
                "_WINDLL",
                "_MBCS",
            ):
                words.append(f"-D{each}")
        for each in _split(values.get(f"{kind}.AdditionalIncludeDirectories", "")):
            place = re.sub(
                r"\$\((?:ProjectDir|MSBuildProjectDirectory|MSBuildThisFileDirectory)\)", f"{folder}/", each
            )
            place = place.replace("\\", "/")
            words += [] if _MACRO.search(place) else [f"-I{place.rstrip('/')}"]
    setting = {
        name.partition(".")[2]: value for name, value in values.items() if name.startswith("CudaCompile.")
    }
    targets = [
        found[-1] for each in _split(setting.get("CodeGeneration", "")) if (found := _TARGET.findall(each))
    ]
    words += [
        word
        for each in dict.fromkeys(targets)
        for word in ("-gencode", f"arch=compute_{each},code=sm_{each}")
    ]
    words += ["-use_fast_math"] if setting.get("FastMath", "").lower() == "true" else []
    words += ["-rdc=true"] if setting.get("GenerateRelocatableDeviceCode", "").lower() == "true" else []
    registers = setting.get("MaxRegCount", "")
    words += [f"-maxrregcount={registers}"] if registers.isdecimal() and registers != "0" else []
    words += _additional(setting.get("AdditionalOptions", ""), left_out)
    return words, left_out


def _additional(text: str, left_out: list[str]) -> list[str]:
    words = [word for word in command_line.split(text) if word != "%(AdditionalOptions)"]
    left_out += [word for word in words if _MACRO.search(word)]
    return [
        word.replace("/std:", "-std=") if word.startswith("/std:") else word
        for word in words
        if not _MACRO.search(word)
    ]


def _split(text: str) -> Sequence[str]:
    return [each.strip() for each in text.split(";") if each.strip()]
