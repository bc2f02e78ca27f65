"""Kernel files of public repositories, compiled in place with default settings: what compiles, and what each failure says.

    python scripts/corpus_projects.py clone FOLDER            the commits of corpus_projects.txt, with submodules (10 GB)
    python scripts/corpus_projects.py compile FOLDER OUT.jsonl [--files 2] [--jobs 2] [--only NAME …]
    python scripts/corpus_projects.py table OUT.jsonl …       the tables of docs/dev/results/projects.md, on standard output

`--list scripts/corpus_projects_second.txt`, before the command, takes the repositories of the second sample.

The files of a repository are a fixed sample: those that define a kernel, in order of their paths, at equal distances.
`compile` asks the command line as an author does, in the repository; it goes on where it was interrupted. Triton files are
imported for that, so run it where you would run their code. `table` puts each failure into a class by its message; a message
without a remedy is in none, and counts as "neither".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_suffix(".txt")
OTHERS = re.compile(
    r"(^|/)(third_?party|3rdparty|extern(al)?|submodules?|deps|dependencies|vendor|hip|rocm|amd|musa|node_modules|build)(/|$)|_hip",
    re.IGNORECASE,
)
"""Folders of code that is not the repository's own, or not CUDA."""
WIDTH = 80
"""Characters of a message in the table."""
KERNEL = {".cu": re.compile(r"__global__"), ".py": re.compile(r"^\s*@triton\.jit\b", re.MULTILINE)}
CLASSES = (
    ("a submodule is not checked out", r"submodule"),
    ("the project's own package is not installed", r"a package of this project"),
    ("another version of a package", r"another version than"),
    ("a header that the project's build makes", r"build makes|its build copies|protoc makes"),
    ("a package is not installed", r"apt install|pip install|comes with|CUDA toolkit is installed without|conda install|No module named|package"),
    ("CUDA 13 or torch removed it", r"CUDA 13 removed|no longer has it|CUDA 13 has|torch removed it"),
    ("a device program of OptiX, which nvcc does not assemble", r"OptiX itself assembles"),
    ("of another platform", r"of Windows|of AMD|of Moore Threads|OpenCL or SYCL"),
    ("a flag that the message names", r"set nvcc_flags|Set nvcc_flags|-rdc=true|-std="),
    ("macros of the build: its database has them", r"compile_commands|writes (?:them|the build.s flags) for orbit|bear -- make"),
    ("written for an older Triton", r"Cannot access global variable|has no such parameter|since Triton 2"),
    ("for another GPU", r"it is for another GPU"),
    ("its library or compilers are of other versions", r"another version of it, or other compilers"),
    ("its import needs a GPU or what is not here", r"compiling a Triton file imports it"),
    ("it takes longer than the limit", r"build_timeout_s"),
)  # fmt: skip


ASSUMED = "argument types assumed; write them"
LEFT_OUT = re.compile(r"compiled without it|without its __init__\.py|was left out")
NOT_TOLD = "no launch in the file tells constants: the message names them, `orbit-lsp draft` writes the spec"


def repositories(listed: Path) -> Iterator[tuple[str, str, list[str]]]:
    """(owner/name, commit, kinds: cmake, torch, triton, make)"""
    for line in listed.read_text().splitlines():
        if line and not line.startswith("#"):
            name, commit, *kinds = line.split()
            yield name, commit, kinds


def clone(listed: Path, folder: Path) -> None:
    for name, commit, _ in repositories(listed):
        place = folder / name.replace("/", "+")
        if place.exists():
            continue
        print(name, flush=True)
        url = f"https://github.com/{name}"
        subprocess.run(["git", "clone", "-q", "--filter=blob:none", "--no-checkout", url, place], check=True)
        subprocess.run(["git", "-C", place, "checkout", "-q", commit], check=True)
        subprocess.run(
            ["git", "-C", place, "submodule", "-q", "update", "--init", "--depth", "1"], check=False
        )


def sample(repository: Path, count: int) -> list[str]:
    """Of CUDA and of Triton, `count` each; a submodule's files are not the repository's own."""
    modules = repository / ".gitmodules"
    listed = (
        re.findall(r"^\s*path\s*=\s*(.+?)\s*$", modules.read_text(), re.MULTILINE) if modules.exists() else []
    )
    found: dict[str, list[str]] = {suffix: [] for suffix in KERNEL}
    for folder, folders, files in os.walk(repository):
        folders[:] = sorted(each for each in folders if each != ".git")
        inside = os.path.relpath(folder, repository)
        if inside in listed:
            folders.clear()
            continue
        if OTHERS.search(inside):
            continue
        for name in files:
            path = Path(folder, name)
            suffix = path.suffix
            if suffix in KERNEL and KERNEL[suffix].search(path.read_text(errors="replace")):
                found[suffix].append(str(path.relative_to(repository)))
    chosen: list[str] = []
    for paths in found.values():
        paths.sort()
        step = max(1.0, len(paths) / count)
        chosen += [paths[int(step * (at + 0.5))] for at in range(min(count, len(paths)))]
    return chosen


def compile_one(folder: Path, name: str, file: str) -> dict[str, Any]:
    begin = time.monotonic()
    done = subprocess.run(
        ["orbit-lsp", "compile", file, "--json"],
        cwd=folder / name,
        capture_output=True,
        text=True,
        check=False,
    )
    row: dict[str, Any] = {"repo": name, "file": file, "code": done.returncode}
    row["s"] = round(time.monotonic() - begin, 1)
    try:
        finished = json.loads(done.stdout)
    except ValueError:
        return row | {"outcome": "?", "message": (done.stderr or done.stdout)[-600:]}
    failure = finished.get("failure") or {"message": "; ".join(finished.get("remarks", ()))}
    errors = [each["message"] for each in finished.get("problems", ()) if each["severity"] == "error"]
    if errors and errors[0][:40] not in failure.get("message", ""):
        failure = failure | {"message": f"{failure.get('message', '')}: {errors[0]}"}
    row |= {"outcome": finished.get("outcome", "usage"), "kernels": len(finished.get("resources", ()))}
    return row | {"message": failure.get("message", "")[:600], "remedy": failure.get("remedy", "")[:300]}


def compile_all(options: argparse.Namespace) -> None:
    out: Path = options.out
    known = {(row["repo"], row["file"]) for row in rows([out])} if out.exists() else set()
    names = [name.replace("/", "+") for name, _, _ in repositories(options.list)]
    names = [name for name in names if not options.only or name in options.only]
    samples = [[(name, file) for file in sample(options.folder / name, options.files)] for name in names]
    jobs = [job for at in range(2 * options.files) for each in samples for job in each[at : at + 1]]
    with ThreadPoolExecutor(options.jobs) as pool, out.open("a") as stream:
        waiting = [pool.submit(compile_one, options.folder, *job) for job in jobs if job not in known]
        for done in as_completed(waiting):
            print(json.dumps(done.result()), file=stream, flush=True)


def rows(files: list[Path]) -> list[dict[str, Any]]:
    """The last result of each file."""
    every = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return list({(row["repo"], row["file"]): row for row in every}.values())


def class_of(row: dict[str, Any]) -> str:
    if row["outcome"] == "ok":
        return "compiles" if row["kernels"] else NOT_TOLD
    said = f"{row['message']} {row.get('remedy', '')}"
    return next((name for name, words in CLASSES if re.search(words, said)), "neither")


def table(listed: Path, files: list[Path]) -> None:
    by_name = {name.replace("/", "+"): (name, commit, kinds) for name, commit, kinds in repositories(listed)}
    every = [row for row in rows(files) if row["repo"] in by_name]
    counts = Counter(class_of(row) for row in every)
    of_cuda = [row for row in every if row["file"].endswith(".cu")]
    cuda = sum(class_of(row) == "compiles" for row in of_cuda)
    kinds = Counter(kind for name in {row["repo"] for row in every} for kind in by_name[name][2])
    fine, neither = counts.pop("compiles", 0), counts["neither"]
    print(f"{len(every)} files of {len({row['repo'] for row in every})} repositories: ", end="")
    print(", ".join(f"{count} with {kind}" for kind, count in sorted(kinds.items())) + ".\n")
    print("| | CUDA | Triton |\n|---|---|---|")
    triton = len(every) - len(of_cuda)
    print(f"| compile | {cuda} of {len(of_cuda)} | {fine - cuda} of {triton} |")
    assumed = sum(ASSUMED in row["message"] and class_of(row) == "compiles" for row in every)
    print(f"| of these, a kernel's constants are assumed | | {assumed} |")
    partly = sum(bool(LEFT_OUT.search(row["message"])) and class_of(row) == "compiles" for row in every)
    print(f"| of these, an import that fails is left out | | {partly} |")
    lost = sum(class_of(row) == "neither" for row in of_cuda)
    print(
        f"| fail, with what to do | {len(of_cuda) - cuda - lost} | {triton - fine + cuda - neither + lost} |"
    )
    print(f"| neither | {lost} | {neither - lost} |\n")
    print("| why a file fails | files |\n|---|---|")
    for name, count in counts.most_common():
        print(f"| {name} | {count} |")
    print("\n| repository | commit | file that fails | why |\n|---|---|---|---|")
    failed = [row for row in every if class_of(row) != "compiles"]
    for row in sorted(failed, key=lambda row: (row["repo"].lower(), row["file"])):
        name, commit, _ = by_name[row["repo"]]
        first = row["message"].partition("): ")[2] or row["message"]
        first = first if len(first) <= WIDTH else first[: WIDTH - 1] + "…"
        why = f"{class_of(row)}: {first}".replace("|", "\\|").replace("\n", " ")
        print(f"| {name} | `{commit[:10]}` | `{row['file']}` | {why} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", type=Path, default=LIST, help="of repositories, with their commits")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("clone").add_argument("folder", type=Path)
    compiling = commands.add_parser("compile")
    compiling.add_argument("folder", type=Path)
    compiling.add_argument("out", type=Path)
    compiling.add_argument("--files", type=int, default=2, help="of each language and repository")
    compiling.add_argument("--jobs", type=int, default=2)
    compiling.add_argument("--only", nargs="*", help="these repositories, as OWNER+NAME")
    commands.add_parser("table").add_argument("out", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "clone":
        clone(options.list, options.folder)
    elif options.command == "compile":
        compile_all(options)
    else:
        table(options.list, options.out)


if __name__ == "__main__":
    sys.exit(main())
