"""CUDA discovery on real code: what is found, missed and invented in pinned source packages.

    python scripts/corpus_cuda.py [--more] [--disagreements] [FOLDER …]

Sources come from PyPI and Debian into .orbit/corpus (some 200 MB), or lie in the folders. Two independent readers propose
kernels: tree-sitter-cuda and a regular expression over text without comments. Where both name the same
kernels of a file, that is the truth; where they differ, or both miss what a macro expands to,
corpus_cuda.txt has the adjudicated names.
`--disagreements` prints lines for files that are not there yet, with what the scan says: to be read,
corrected and added.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / ".orbit" / "corpus"
ADJUDICATED = Path(__file__).with_suffix(".txt")
SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".inl")
TREE_SITTER_CUDA = "tree-sitter-cuda==0.21.2"

SDISTS = (
    "torch-scatter==2.1.2",
    "torch-sparse==0.6.18",
    "torch-cluster==1.6.3",
    "torch-spline-conv==1.2.2",
    "mmcv-full==1.7.2",
    "gsplat==1.5.3",
    "nerfacc==0.5.3",
    "llama-cpp-python==0.3.36",
    "flash-attn==2.8.3.post2",
    "lightgbm==4.7.0",
    "deepspeed==0.19.8",
    "horovod==0.28.1",
    "natten==0.21.7",
    "mamba-ssm==2.3.2.post1",
    "cupy==14.2.0",
    "vllm==0.33.0",
)
WHEELS = ("nvidia-cuda-cccl==13.3.5.0.6",)
MORE_WHEELS = ("flashinfer-python==0.7.2.post1",)
DEBIAN = (
    "relion",
    "elpa",
    "dbcsr",
    "darknet",
    "openmm",
    "sundials",
    "hypre",
    "petsc",
    "onnxruntime",
    "opencv",
)
DEBIAN_RELEASE = "trixie"


def name_of(requirement: str) -> str:
    return requirement.partition("==")[0]


def pip(*arguments: str, scratch: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "pip", *arguments, "-q", "--disable-pip-version-check"]
    subprocess.run(command, env=environment, check=False, stderr=subprocess.DEVNULL)


def fetch_sdist(requirement: str) -> None:
    """Many sdists need torch to say their own name; what pip unpacked before it asked is enough."""
    folder = CORPUS / name_of(requirement)
    folder.mkdir(parents=True)
    pip(
        *("download", "--no-clean", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"),
        *("-d", str(folder / "archive"), requirement),
        scratch=folder,
    )


def fetch_wheel(requirement: str) -> None:
    folder = CORPUS / name_of(requirement)
    folder.mkdir(parents=True)
    pip("download", "--no-deps", "-d", str(folder), requirement, scratch=folder)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [n for n in archive.namelist() if n.endswith(SUFFIXES)])
        wheel.unlink()


def fetch_debian(package: str) -> None:
    apt = CORPUS / "apt"
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    sources = apt / "sources.list"
    options = [
        *("-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null"),
        *("-o", f"Dir::State::lists={apt / 'lists'}"),
    ]
    if not sources.exists():
        sources.write_text(
            "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
            f"http://deb.debian.org/debian {DEBIAN_RELEASE} main contrib\n"
        )
        subprocess.run(["apt-get", *options, "update", "-qq"], check=False)
    folder = CORPUS / package
    folder.mkdir(parents=True)
    subprocess.run(
        ["apt-get", *options, "source", "--download-only", "-qq", package], cwd=folder, check=False
    )
    for archive in folder.glob("*.orig*.tar.*"):
        if archive.suffix != ".asc":
            patterns = [f"*{suffix}" for suffix in SUFFIXES]
            subprocess.run(["tar", "xf", archive.name, "--wildcards", *patterns], cwd=folder, check=False)
        archive.unlink()


def fetch(*, more: bool) -> list[str]:
    names: list[str] = []
    for requirements, get in (
        (SDISTS, fetch_sdist),
        (WHEELS + (MORE_WHEELS if more else ()), fetch_wheel),
        (DEBIAN, fetch_debian),
    ):
        for requirement in requirements:
            names.append(name_of(requirement))
            if not (CORPUS / names[-1]).exists():
                print("fetching", requirement, flush=True)
                get(requirement)
    return names


def files(folder: Path, seen: set[bytes]) -> Iterator[tuple[Path, bytes]]:
    """Each content once; headers only where they speak of kernels."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if b"__global__" in data or path.suffix in {".cu", ".cuh"}:
                digest = hashlib.sha256(data).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield path, data


def tree_sitter_reader():
    tools = CORPUS / "tools"
    if not tools.exists():
        pip("install", "--no-deps", "--target", str(tools), TREE_SITTER_CUDA, scratch=CORPUS)
    sys.path.append(str(tools))
    import tree_sitter
    import tree_sitter_cuda

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))

    def read(data: bytes) -> Counter[str]:
        result: Counter[str] = Counter()
        waiting = [parser.parse(data).root_node]
        while waiting:
            node = waiting.pop()
            waiting += node.children
            body = node.child_by_field_name("body")
            if node.type == "function_definition" and body:
                head = data[node.start_byte : body.start_byte]
                if b"__global__" in head and (name := declared_name(node)):
                    result[name] += 1
        return result

    return read


def declared_name(node) -> str | None:
    node = node.child_by_field_name("declarator")
    while node is not None and node.type not in {"identifier", "field_identifier"}:
        inner = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        node = inner or next((child for child in node.children if child.is_named), None)
    return node.text.decode("utf-8", "replace") if node is not None else None


COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
GROUP = r"\((?:[^()]|\([^()]*\))*\)"
HEAD = re.compile(
    r"__global__[^;{}()]*?"
    rf"(?:(?:__\w+__|\w*LAUNCH_BOUNDS\w*)\s*{GROUP}[\w\s]*?)*"
    r"\b(?!__\w+__\b)(\w+)\s*(?:<[^;{}()]*>)?\s*\("
)


def read_by_expression(text: str) -> Counter[str]:
    """`__global__ … name(…) {` in text without comments; macros, strings and `#if 0` are not its business."""
    text = COMMENT.sub(" ", text)
    result: Counter[str] = Counter()
    for match in HEAD.finditer(text):
        depth = 0
        position = match.end() - 1
        while position < len(text):
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            position += 1
            if depth == 0:
                break
        after = re.compile(r"[^;{=]*").match(text, position)
        if after and text[after.end() : after.end() + 1] == "{":
            result[match[1]] += 1
    return result


def adjudicated() -> dict[str, Counter[str]]:
    truth: dict[str, Counter[str]] = {}
    if ADJUDICATED.exists():
        for line in ADJUDICATED.read_text().splitlines():
            if line and not line.startswith("#"):
                key, _, names = line.partition(" ")
                truth[key] = Counter(names.split()[1:])
    return truth


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--more", action="store_true", help="also the largest packages (500 MB)")
    parser.add_argument("--disagreements", action="store_true", help="print files that nobody has read yet")
    parser.add_argument("folders", nargs="*", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from orbit_lsp.kernels.cuda.cuda_kernels import scan

    CORPUS.mkdir(parents=True, exist_ok=True)
    folders = options.folders or [CORPUS / name for name in fetch(more=options.more)]
    read_tree = tree_sitter_reader()
    read = adjudicated()
    total: Counter[str] = Counter()
    seconds = 0.0
    seen: set[bytes] = set()
    for folder in folders:
        counts: Counter[str] = Counter()
        for path, data in files(folder, seen):
            text = data.decode("utf-8", "replace")
            start = time.perf_counter()
            scanned = Counter(kernel.name.replace(" ", "") for kernel in scan(text).kernels)
            seconds += time.perf_counter() - start
            item, other = read_tree(data), read_by_expression(text)
            key = hashlib.sha256(data).hexdigest()[:12]
            truth = read.get(key)
            if truth is None:
                truth = item
                if options.disagreements and not item == other == scanned:
                    print(key, path.name, *sorted(scanned.elements()), flush=True)
                if item != other:
                    counts["unread"] += 1
                    continue
            missed, invented = truth - scanned, scanned - truth
            counts += Counter(
                files=1, kernels=truth.total(), missed=missed.total(), invented=invented.total()
            )
            if (missed or invented) and not options.disagreements:
                where = path.relative_to(folder.parent)
                print(f"{key} {where}: missed {dict(missed)}, invented {dict(invented)}")
        total += counts
        if not options.disagreements:
            show(folder.name, counts)
    if not options.disagreements:
        show("all", total)
        print(f"scanned in {seconds:.2f} s")
    return 1 if total["missed"] or total["invented"] else 0


def show(label: str, counts: Counter[str]) -> None:
    columns = ("files", "kernels", "missed", "invented", "unread")
    print(f"{label:24}", *(f"{counts[c]:6} {c}" for c in columns), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
