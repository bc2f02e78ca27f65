"""Write what is generated: docs/orbit-lsp.1, docs/dev/map.md and buttons.md, docs/guide/settings.md, explain.md and limits.md, docs/schema/, VS Code's settings and commands, the tables of editors and of launch specs' functions.

.venv/bin/python scripts/generate.py
.venv/bin/python scripts/generate.py --check    # writes nothing; fails if a file is out of date
"""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import sys
import typing
from pathlib import Path
from typing import Any, Literal, cast

from argparse_manpage.manpage import Manpage  # pyright: ignore[reportMissingTypeStubs]

from orbit_lsp.cli import arguments
from orbit_lsp.cli.reference import schema
from orbit_lsp.runners.modal.costs import RentalCosts
from orbit_lsp.server.handlers import server
from orbit_lsp.state import config
from orbit_lsp.views import gpu_table, tables
from orbit_lsp.views.explain import explanations
from orbit_lsp.views.explain.explanations import Explanation
from orbit_remote.common import limits
from orbit_remote.common.messages import RESULT_VERSION
from orbit_remote.spec.functions.function_table import FUNCTIONS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "editors" / "vscode" / "package.json"
EDITORS = ROOT / "docs" / "guide" / "editors.md"
MODAL = ROOT / "docs" / "guide" / "modal.md"
LAUNCH_SPECS = ROOT / "docs" / "guide" / "launch-specs.md"
BUTTONS = ROOT / "docs" / "dev" / "buttons.json"
"""What tests/e2e/test_no_dead_buttons.py saw."""
SEEN = ("vscode", "neovim-0.12", "neovim-0.11", "helix", "emacs")
"""Columns of the table in EDITORS: what scripts/editors saw, in docs/editors/."""
SERVER_PATH = {
    "type": "string",
    "default": "",
    "markdownDescription": "The `orbit-lsp` to start: an absolute path, or a name on PATH. Empty: that of the "
    "selected Python environment (trusted workspaces only), else the one on PATH.",
    "scope": "machine-overridable",
}
LIMITS = """# Limits

Generated from `remote/orbit_remote/common/limits.py`; do not edit.

orbit-lsp limits everything that it reads from a folder, a compiler or a program, so that no file can fill the memory or hang
the server. These limits cannot be changed. Only regular files are read. A FIFO, a socket or a device is refused at once, even
if a link leads to it.
"""
PRESSED = """\
# No dead buttons

Generated from `docs/dev/buttons.json`; do not edit.

`tests/e2e/test_no_dead_buttons.py` presses every lens, code action and item of a list beside the text, and every command by name
(palette, `:Orbit`, `M-x orbit`), in each state of a kernel. The table says what an author sees. `–`: it is not offered. Hovers
have no links. During a run, *runs* means another run. The GPU side is a recording and compiles nothing, so most columns have no
PTX. The rented GPU compiles.
"""
MAP = """\
# Map of the modules

Generated from the docstrings of the modules; do not edit. [ARCHITECTURE](../../ARCHITECTURE.md) says how they work together, and what to change where.
"""
TITLES = {
    "orbit.run": "Run the Kernel at the Cursor",
    "orbit.profile": "Profile the Kernel at the Cursor",
    "orbit.live": "Live: Run the Kernel at the Cursor at Every Save",
    "orbit.openReport": "Open the Report of the Kernel at the Cursor",
    "orbit.showFailure": "Show Why the Last Run Failed",
    "orbit.openIr": "Open What the Compiler Made of the Kernel at the Cursor",
    "orbit.disassemble": "Compile the Kernel at the Cursor and Show Its SASS, PTX or IR",
    "orbit.checkMemory": "Check the Memory of the Kernel at the Cursor",
    "orbit.debug": "Debug the Triton Kernel at the Cursor",
    "orbit.test": "Test ModelNew or custom_kernel Against Its Reference",
    "orbit.compareWith": "Compare the Kernel at the Cursor With…",
    "orbit.history": "Open the History of the Kernel at the Cursor",
    "orbit.showOutput": "Show the Output of Runs",
    "orbit.export": "Export the Runs of the Kernel at the Cursor",
    "orbit.draft": "Draft a Launch Spec for the Kernel at the Cursor",
    "orbit.cancel": "Cancel What Runs",
    "orbit.pinDriver": "Let Clicks on the Kernel at the Cursor Take Any Driver",
    "orbit.capture": "Capture a Launch Spec for the Kernel at the Cursor from Its Test, Script or Program",
    "orbit.forgetDrivers": "Forget Which Drivers Launched the Kernel at the Cursor",
    "orbit.locate": "End the Kernel at the Cursor and Show Where Its Warps Stand",
    "orbit.runRestricted": "Run the Kernel at the Cursor, Restricted: the Code Is Not Mine",
    "orbit.compile": "Compile the File at the Cursor",
    "orbit.runOnAll": "Run the Kernel at the Cursor on All GPUs of the Settings",
    "orbit.chooseGpu": "Choose the GPU",
    "orbit.sessions": "Show Which Modal GPUs Are Rented",
    "orbit.keepWarm": "Keep a Modal GPU Until It Is Released",
    "orbit.release": "Release the Modal GPUs",
    "orbit.info": "Show Versions, Settings and Capabilities",
}
"""Of the server's commands, as VS Code's palette lists them."""
OWN_TITLES = {
    "orbit.status": "Status",
    "orbit.openSettings": "Open Settings",
    "orbit.showLog": "Show the Server's Log",
    "orbit.restartServer": "Restart the Server",
    "orbit.install": "Install the Server",
}
"""Of the extension's own."""
ICONS = {
    "orbit.run": "play",
    "orbit.profile": "flame",
    "orbit.history": "graph-line",
    "orbit.openReport": "output",
    "orbit.chooseGpu": "circuit-board",
    "orbit.showOutput": "output",
}
ITEM_BUTTONS = {
    "cancel": ("Cancel", "debug-stop"),
    "report": ("Open the Report", "preview"),
    "release": ("Release Now", "trash"),
    "keep": ("Keep Until It Is Released, or No Longer", "pin"),
    "compare": ("Compare With…", "diff"),
    "export": ("Export the Runs", "save"),
}
"""At the items of the view Orbit: the actions of `orbit_lsp/server/panel.py`."""
GROUPS = {
    "Where Kernels Run": ("serverPath", "runner", "gpu", "gpus", "device", "python", "arguments", "environment", "shared_worker"),
    "Machines of Your Own, by ssh": ("ssh.",),
    "GPUs Rented from Modal": ("modal.",),
    "Compiling": ("compile_on_save", "compile_on_idle", "every_gpu", "nvcc", "nvcc_flags", "compile_commands", "kernel_macros", "doubled_errors", "costs."),
    "Beside the Text": ("hints.", "lens.", "report."),
    "Profiles": ("profile.",),
    "Live": ("live.",),
    "History": ("history.",),
    "Checking Memory": ("check_memory.",),
    "Limits and the Log": ("build_timeout_s", "run_timeout_s", "grade", "allow", "spare_idle_s", "cache_gib", "log_level"),
}  # fmt: skip
"""The sections of VS Code's settings, in this order; a name that ends in a dot is a whole group."""


TURNED_OFF = {
    "launch-spec": ("error or warning", "an edit of the `orbit:` comment"),
    "stands here": ("warning", "the next run"),
    "not launched": ("information", "the next run or memory check that launches the kernel"),
    "register-spills": ("warning", "`orbit.costs.spills`"),
    "local-memory": ("hint", "`orbit.costs.local_memory`"),
    "local-limit": ("warning", "less local memory in each thread"),
    "shared-memory": ("warning", "`orbit.costs.shared_memory`"),
    "block-size": ("warning", "`orbit.costs.block_size`"),
    "occupancy-step": ("hint", "`orbit.costs.occupancy`"),
}
"""By the code of a diagnostic of ours: (its severity, what turns it off)."""

DIAGNOSTICS = """\
# Diagnostics

Generated from the texts of `orbit-lsp explain`; do not edit.

The `source` of a diagnostic names the program that reported it.

| source | made by | goes away with |
|---|---|---|
| `nvcc`, `ptxas`, `nvlink`, `ld`, `host compiler` | the CUDA compiler, when you open or save a file, or pause typing (on Linux, errors in device code also at each keystroke); text and number are the compiler's | the next compile; the settings `orbit.compile_on_save` and `orbit.compile_on_idle` turn it off; `-diag-suppress` in `orbit.nvcc_flags` removes a warning too |
| `triton`, `python` | Triton's compiler or the import of the file, when you compile or run it. After that, in a trusted folder on a machine without a GPU, also when you pause typing in a kernel | the next compile or run; `orbit.compile_on_idle` turns off the errors while typing |
| `numba`, `warp`, `helion`, `cuTile`, `CuPy`, `TileLang` | the compiler of that language, when you run the file | the next run |
| `cuda`, `program` | the last run: a CUDA error, a failed assertion, an exception | the next run |
| `memcheck`, `racecheck`, `initcheck`, `synccheck` | the last *Check memory*: compute-sanitizer | the next memory check |
| `orbit` | orbit-lsp itself. With a code: see below. Without a code: a run failed, or a file has too many kernels. In editors that cannot redraw inlay hints (Helix, Emacs), the texts of inlay hints are shown as diagnostics too | see below; the settings `orbit.hints` turn inlay hints off |

Warnings about unused and deprecated code are tagged, so that an editor can fade or strike through that code. Template
instantiations, include chains and overload candidates are attached as related information. Most editors show it as
links.

## Codes of orbit-lsp

Six of these codes come from the compiler's figures: `register-spills`, `local-memory`, `local-limit`, `shared-memory`, `block-size` and `occupancy-step`. The settings `orbit.costs` choose `off`, `hint` or `warning` for each but `local-limit`. After an edit they disappear until the file is compiled again.

| code | severity | means | turned off by |
|---|---|---|---|"""
SCHEMA_TYPES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
SCHEMA_LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "min_length": "minItems",
}


def files() -> dict[Path, str]:
    """Every generated file's content."""
    return {
        ROOT / "docs" / "orbit-lsp.1": manual(),
        ROOT / "docs" / "guide" / "settings.md": config.markdown(),
        ROOT / "docs" / "guide" / "diagnostics.md": diagnostics_page(),
        ROOT / "docs" / "guide" / "limits.md": limits_page(),
        ROOT / "docs" / "guide" / "explain.md": explained(),
        **{
            ROOT / "docs" / "schema" / f"{kind}-{RESULT_VERSION}.json": schema.text(kind)
            for kind in schema.KINDS
        },
        PACKAGE: package(PACKAGE.read_text(encoding="utf-8")),
        EDITORS: supported(EDITORS.read_text(encoding="utf-8")),
        ROOT / "docs" / "dev" / "buttons.md": pressed(),
        LAUNCH_SPECS: listed(LAUNCH_SPECS.read_text(encoding="utf-8")),
        MODAL: priced(MODAL.read_text(encoding="utf-8")),
        ROOT / "docs" / "dev" / "map.md": module_map(),
    }


def manual() -> str:
    """The page of `man orbit-lsp`: every command with its options. Lines are 80 columns wide, whatever the terminal is."""
    os.environ["COLUMNS"] = "80"
    root, _ = arguments.parser(listed=True)
    names = {"format": "single-commands-section", "project_name": "orbit-lsp", "manual_title": "orbit-lsp"}
    page = str(Manpage(root, names))
    return (
        re.sub(r"^\.TH .*$", '.TH ORBIT-LSP 1 "" "orbit-lsp"', page, count=1, flags=re.MULTILINE).rstrip()
        + "\n"
    )


def explained() -> str:
    """docs/guide/explain.md: every text but those of settings, which have a page."""
    lines = [
        "# What each word means",
        "",
        "Generated from what `orbit-lsp explain WORD` prints. Settings have [a page of their own](settings.md).",
    ]
    heads = {
        "outcome": ("Outcomes and exit codes", "outcome | exit code"),
        "CUDA error": ("When a kernel fails", "error | also"),
        "ptxas note": ("What ptxas remarks", "code or words"),
        "diagnostic": ("Diagnostics of orbit-lsp", "code"),
        "label": ("On lines of code", "label"),
        "term": ("Terms", "term"),
        "bottleneck": ("Bottlenecks", "bottleneck"),
        "loop": ("What became of a change in `orbit-lsp loop`", "word"),
        "gate": ("Verdicts of `orbit-lsp gate`", "word | exit code"),
        "stall reason": ("Stall reasons", "reason"),
        "launch spec": ("Words of launch specs", "word"),
        "counter": ("Counters", "title | counter"),
        "instruction": ("Instructions (SASS)", "instruction"),
    }
    for kind, (title, columns) in heads.items():
        lines += ["", f"## {title}", "", f"| {columns} | means |", "|---" * (columns.count("|") + 2) + "|"]
        lines += [_row(entry) for entry in explanations.entries() if entry.kind == kind]
    return "\n".join([*lines, ""])


def diagnostics_page() -> str:
    """docs/guide/diagnostics.md: every diagnostic that orbit-lsp itself makes, and what turns it off."""
    rows = [
        f"| `{code}` | {TURNED_OFF[code][0]} | {text} | {TURNED_OFF[code][1]} |"
        for code, text in explanations.DIAGNOSTICS.items()
    ]
    return "\n".join([DIAGNOSTICS, *rows, ""])


def _row(entry: Explanation) -> str:
    text = entry.text.replace("|", "\\|")
    match entry.kind:
        case "outcome":
            return f"| {entry.names[0]} | {entry.names[2]} | {text} |"
        case "CUDA error":
            return f"| `{entry.names[0]}` | {', '.join(entry.names[1:])} | {text} |"
        case "gate":
            code = entry.names[2] if len(entry.names) > 1 else ""
            return f"| `{entry.names[0]}` | {code} | {text} |"
        case "counter":
            return f"| {entry.names[1]} | `{entry.names[0]}` | {text} |"
        case _:
            return f"| `{entry.names[0]}` | {text} |"


def limits_page() -> str:
    """docs/guide/limits.md, from the table of limits."""
    rows = [f"| {limit.what} | {limit.size} | {limit.beyond} |" for limit in limits.table().values()]
    return "\n".join((LIMITS, "| what | limit | beyond it |", "|---|---|---|", *rows, ""))


def pressed() -> str:
    """Return docs/dev/buttons.md: what each button did in each state of a kernel, and what was said."""
    by_state: dict[str, dict[str, str]] = json.loads(BUTTONS.read_text(encoding="utf-8"))
    messages: list[str] = []

    def cell(effects: str) -> str:
        for message in re.findall("“[^”]*”", effects):
            if message not in messages:
                messages.append(message)
            effects = effects.replace(message, f"says {messages.index(message) + 1}")
        return effects

    names = sorted(
        {name for seen in by_state.values() for name in seen}, key=lambda name: ("by name" in name, name)
    )
    rows = [
        [f"`{name.removeprefix('by name: ')}`" + ", by name" * name.startswith("by name")]
        + [cell(seen.get(name, "–")) for seen in by_state.values()]
        for name in names
    ]
    table = [["button", *by_state], ["---"] * (len(by_state) + 1), *rows]
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines += [
        "",
        *(f"{number}. {message[1:-1]}".replace("\n", "\n    ") for number, message in enumerate(messages, 1)),
    ]
    return "\n".join((PRESSED, *lines, ""))


def module_map() -> str:
    """Return docs/dev/map.md: each package and module with the first sentence of its docstring."""
    lines = [MAP]
    for folder in ("orbit_lsp", "remote/orbit_remote"):
        for package in sorted(path.parent for path in (ROOT / folder).rglob("__init__.py")):
            name = package.relative_to(ROOT).as_posix()
            modules = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
            rows = [f"| `{path.name}` | {first_sentence(path)} |" for path in modules]
            about = first_sentence(package / "__init__.py")
            lines += [f"## `{name}`", "", about, "", "| module | is |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def first_sentence(path: Path) -> str:
    """Of a module's docstring."""
    message = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert message, f"{path} has no docstring"
    paragraph = " ".join(message.partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s(?=[A-Z`])", paragraph)[0].rstrip(".:").replace("|", "\\|")


def supported(text: str) -> str:
    """docs/guide/editors.md with its table, which stands between two comments."""
    folder = ROOT / "docs" / "editors"
    rows: dict[str, str] = json.loads((folder / "features.json").read_text(encoding="utf-8"))
    seen = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (folder / f"{name}.json" for name in SEEN)
        if path.exists()
    ]
    table = [
        "| | " + " | ".join(f"{item['editor']} {item['version']}" for item in seen) + " |",
        "|---" * (len(seen) + 1) + "|",
    ]
    for feature, words in rows.items():
        cells = [
            "–" if feature not in item["features"] else item["features"][feature] or "✓" for item in seen
        ]
        table.append(f"| {words} | " + " | ".join(cells) + " |")
    before, begin, rest = text.partition("<!-- from docs/editors/*.json by scripts/generate.py -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    return "".join((before, begin, "\n".join(table), "\n", end, after))


def priced(text: str) -> str:
    """docs/guide/modal.md with the built-in prices, which have a date."""
    table = tables.render([gpu_table.prices(RentalCosts(), config.Modal().idle_s)], markdown=True)
    before, begin, rest = text.partition(
        "<!-- from orbit_lsp/runners/modal/rates.py by scripts/generate.py -->\n"
    )
    _, end, after = rest.partition("<!-- end -->\n")
    return f"{before}{begin}{table}\n{end}{after}"


def listed(text: str) -> str:
    """Return docs/guide/launch-specs.md with the tables of functions, which are its last part, made anew."""
    lines: list[str] = []
    for group in dict.fromkeys(function.group for function in FUNCTIONS.values()):
        lines += ["", f"### {group}", "", "| function | is |", "|---|---|"]
        for function in FUNCTIONS.values():
            if function.group == group:
                only = {"both": "", "cuda": " (CUDA only)", "triton": " (Triton only)"}[function.language]
                lines.append(f"| `{function.usage}` | {function.doc}{only} |")
    before, begin, _ = text.partition("<!-- functions: scripts/generate.py -->\n")
    return before + begin + "\n".join(lines) + "\n"


def package(text: str) -> str:
    """package.json with the server's commands and settings; `trusted` is VS Code's own to say.

    Raises KeyError for a command of the server's that has no title.
    """
    manifest: dict[str, Any] = json.loads(text)
    served = set(cast("dict[str, Any]", server.protocol.fm.commands))
    if served != set(TITLES):
        raise KeyError(f"TITLES and the server's commands differ in {sorted(served ^ set(TITLES))}")
    manifest["contributes"]["commands"] = [
        *(_entry(name, title) | {"enablement": "orbit.running"} for name, title in TITLES.items()),
        *(_entry(name, title) for name, title in OWN_TITLES.items()),
        *(
            {"command": f"orbit.item.{name}", "title": title, "icon": f"$({icon})"}
            for name, (title, icon) in ITEM_BUTTONS.items()
        ),
    ]
    manifest["contributes"]["menus"]["commandPalette"] = [
        {"command": f"orbit.item.{name}", "when": "false"} for name in ITEM_BUTTONS
    ]
    manifest["contributes"]["menus"]["view/item/context"] = [
        {
            "command": f"orbit.item.{name}",
            "when": f"view =~ /^orbit\\./ && viewItem =~ /\\b{name}\\b/",
            "group": "inline",
        }
        for name in ITEM_BUTTONS
    ]
    settings = {"orbit.serverPath": SERVER_PATH} | properties()
    del settings["orbit.trusted"]
    manifest["contributes"]["configuration"] = grouped(settings)
    refused = {f"orbit.{name}" for name, _, field in config.rows() if not field.metadata["workspace"]}
    restricted = [name for name in settings if name in {"orbit.serverPath", *refused}]
    manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = restricted
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def grouped(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The sections of the settings. Raises KeyError for one that is in no group."""
    left = dict(settings)
    sections: list[dict[str, Any]] = []
    for title, names in GROUPS.items():
        own = {
            name: left.pop(name)
            for wanted in names
            for name in [*left]
            if name == f"orbit.{wanted}" or (wanted.endswith(".") and name.startswith(f"orbit.{wanted}"))
        }
        ordered = {name: value | {"order": number} for number, (name, value) in enumerate(own.items())}
        if own:
            sections.append({"title": title, "properties": ordered})
    if left:
        raise KeyError(f"GROUPS has no place for {', '.join(left)}")
    return sections


def _entry(name: str, title: str) -> dict[str, str]:
    icon = {"icon": f"$({ICONS[name]})"} if name in ICONS else {}
    return {"command": name, "category": "Orbit", "title": title} | icon


def properties() -> dict[str, Any]:
    """The settings as VS Code's manifest has them."""
    described: dict[str, Any] = {}
    for name, hint, field in config.rows():
        entry = json_schema(hint, field)
        entry["markdownDescription"] = entry.pop("description")
        if name in config.EXECUTABLES:  # a workspace's value needs trust; a machine's own is not synchronised
            entry["scope"] = "machine-overridable"
        described[f"orbit.{name}"] = entry
    return described


def json_schema(hint: Any, field: dataclasses.Field[Any]) -> dict[str, Any]:
    """A setting as JSON schema has it."""
    limits = {SCHEMA_LIMITS[name]: value for name, value in field.metadata["limits"].items()}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        shape = {"type": "array", "items": _schema_type(arguments[0])}
    else:
        shape = _schema_type(hint)
    return shape | limits | {"default": field.default, "description": field.metadata["description"]}


def _schema_type(hint: Any) -> dict[str, Any]:
    if typing.get_origin(hint) is Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    return {"type": SCHEMA_TYPES[hint]}


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        stale = [path for path, text in files().items() if path.read_text(encoding="utf-8") != text]
        sys.exit(
            "".join(f"{path.relative_to(ROOT)} is out of date: run scripts/generate.py\n" for path in stale)
            or 0
        )
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
