"""Compare the scanner with an independent reading of published Triton code.

    python scripts/corpus_triton.py [--fetch] [--show N] [FOLDER …]

`--fetch` downloads the pinned packages into .orbit/corpus (wheels, about 110 MB) and unpacks their
Python files. The oracle below is built on `ast` and shares no code with the scanner: it follows
imports, aliases and assignments in the order of the text, and knows nothing of wrappers. Decorators
that say "jit" in a file that imports triton, and that neither took for a kernel's, are listed too.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from orbit_lsp.kernels.python.triton_kernels import scan

CORPUS = Path(__file__).parent.parent / ".orbit" / "corpus"
PACKAGES = (
    "adasplash==0.2.2",
    "conch-triton-kernels==1.3",
    "fla-core==0.6.0",
    "flag-gems==5.0.2",
    "flash-linear-attention==0.6.0",
    "helion==1.5.1",
    "liger-kernel==0.8.5",
    "lightllm==0.0.1",
    "sglang==0.5.23",
    "torchao==0.18.0",
    "transformers==5.23.0",
    "triton-kernels==0.1.0",
    "unsloth==2026.10.9",
    "unsloth-zoo==2026.10.9",
)
INSTALLED = ("torch", "triton")

JITS = {
    "triton.jit",
    "triton.runtime.jit",
    "triton.runtime.jit.jit",
    "triton.JITFunction",
    "triton.experimental.gluon.jit",
    "triton.experimental.gluon._runtime.jit",
}
ORACLES = ("triton", "gluon")
"""The kernel languages that the oracle knows."""
Kernel = tuple[int, str]
"""(line of the def or of the assignment, name)"""


class Oracle(ast.NodeVisitor):
    def __init__(self) -> None:
        self.scopes: list[dict[str, str]] = [{}]
        self.kernels: set[Kernel] = set()
        self.branch = 0

    def path(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self.scopes) if node.id in scope), "")
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return "triton" if base and node.attr == "triton" else f"{base}.{node.attr}" if base else ""
        return ""

    def makes(self, node: ast.expr | None) -> bool:
        """Whether decorating with it makes a kernel."""
        if isinstance(node, ast.Call):
            if self.path(node.func).endswith("functools.partial"):
                return bool(node.args) and self.makes(node.args[0])
            return self.makes(node.func) and not node.args
        return self.path(node) in JITS

    def made(self, node: ast.expr | None) -> bool:
        """Whether its value is a kernel made in it."""
        if not isinstance(node, ast.Call):
            return False
        return (self.makes(node.func) and bool(node.args or node.keywords)) or any(map(self.made, node.args))

    def bind(self, name: str, path: str) -> None:
        if path or not self.branch:
            self.scopes[-1][name] = path

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.bind(
                alias.asname or alias.name.split(".")[0],
                alias.name if alias.asname else alias.name.split(".")[0],
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level and module.endswith("runtime.jit"):
            module = "triton.runtime.jit"
        elif node.level and module == "_runtime":
            module = "triton.experimental.gluon._runtime"
        elif node.level:
            module = f"here.{module}"
        for alias in node.names:
            path = "triton" if alias.name == "triton" else f"{module}.{alias.name}"
            self.bind(alias.asname or alias.name, path)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                if self.made(node.value) and not self.of_parameter(node.value):
                    self.kernels.add((node.lineno, target.id))
                if isinstance(node.value, ast.Call):
                    self.bind(target.id, "triton.jit" if self.makes(node.value) else "")
                else:
                    self.bind(target.id, self.path(node.value))

    def of_parameter(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Call) and node.args:
            node = node.args[0]
        return isinstance(node, ast.Name) and self.path(node) == "parameter"

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any(map(self.makes, node.decorator_list)):
            self.kernels.add((node.lineno, node.name))
        self.bind(node.name, "")
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.inside(node, dict.fromkeys((arg.arg for arg in every), "parameter"))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, "")
        self.inside(node, {})

    def inside(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, names: dict[str, str]
    ) -> None:
        self.scopes.append(names)
        branch, self.branch = self.branch, 0
        for statement in node.body:
            self.visit(statement)
        self.branch = branch
        self.scopes.pop()

    def visit_branches(self, node: ast.AST) -> None:
        self.branch += 1
        self.generic_visit(node)
        self.branch -= 1

    visit_If = visit_Try = visit_For = visit_While = visit_Match = visit_branches  # noqa: N815


def oracle(text: str) -> set[Kernel]:
    visitor = Oracle()
    visitor.visit(ast.parse(text))
    return visitor.kernels


def unclaimed(text: str, kernels: set[Kernel]) -> Iterator[tuple[int, str]]:
    """Decorators that say "jit" over no kernel, in files that import triton."""
    if not re.search(r"^\s*(?:import|from)\s[^#\n]*\btriton\b", text, re.MULTILINE):
        return
    lines = {line for line, _ in kernels}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.lineno not in lines:
            messages = [ast.unparse(item) for item in node.decorator_list]
            if any("jit" in name for name in messages):
                yield node.lineno, " ".join(messages)


def fetch() -> None:
    downloads = CORPUS / "downloads"
    for package in PACKAGES:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "--only-binary",
                ":all:",
                "-d",
                downloads,
                package,
            ],
            check=True,
        )
    for wheel in sorted(downloads.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            python = [name for name in archive.namelist() if name.endswith(".py")]
            archive.extractall(CORPUS / "packages" / wheel.name.split("-")[0], python)


def folders() -> Iterator[Path]:
    yield from sorted(CORPUS.glob("packages/*"))
    for name in INSTALLED:
        if (spec := find_spec(name)) and spec.submodule_search_locations:
            yield Path(spec.submodule_search_locations[0])


def compare(folder: Path, show: int) -> Counter[str]:
    total: Counter[str] = Counter()
    for file in sorted(folder.rglob("*.py")):
        text = file.read_bytes().decode("utf-8", "replace")
        started = time.perf_counter()
        result = scan(text)
        total["ms"] += (time.perf_counter() - started) * 1e3
        total["files"] += 1
        total["lines"] += text.count("\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = oracle(text)
                results = {(k.line + 1, k.name) for k in result.kernels if k.dsl in ORACLES}
                every = {(kernel.line + 1, kernel.name) for kernel in result.kernels}
                loose = list(unclaimed(text, every | expected))
        except (SyntaxError, ValueError, RecursionError):
            total["unreadable"] += 1
            continue
        total["kernels"] += len(expected)
        total["found"] += len(results)
        total["helpers"] += sum(not k.launchable for k in result.kernels)
        total["others"] += sum(k.dsl not in ORACLES for k in result.kernels)
        for label, names in (
            ("missed", expected - results),
            ("invented", results - expected),
            ("unclaimed", loose),
        ):
            for line, name in sorted(names):
                total[label] += 1
                if total[label] <= show:
                    print(f"  {label}: {file.relative_to(folder)}:{line} {name}"[:200])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--show", type=int, default=10, help="disagreements printed of each kind and package")
    parser.add_argument("folders", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.fetch:
        fetch()
    whole: Counter[str] = Counter()
    columns = (
        "files",
        "lines",
        "kernels",
        "found",
        "missed",
        "invented",
        "unclaimed",
        "helpers",
        "others",
        "unreadable",
        "ms",
    )
    for folder in arguments.folders or folders():
        total = compare(folder, arguments.show)
        whole.update(total)
        print(folder.name, *(f"{column} {total[column]:.0f}" for column in columns), sep="  ")
    print("all", *(f"{column} {whole[column]:.0f}" for column in columns), sep="  ")


if __name__ == "__main__":
    main()
