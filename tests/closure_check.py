"""The files that travel with a job, as text: a folder in, its places in the tree out."""

from __future__ import annotations

from pathlib import Path

from orbit_lsp.closure import Closure, closure
from orbit_remote.common.content_store import check
from orbit_remote.common.messages import content_hash
from orbit_remote.common.requests import ContractStart, ExecStart, Job, ProgramStart

LIMIT = 64 << 20


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def find(
    folder: Path,
    main: str,
    text: str | None = None,
    *,
    flags: tuple[str, ...] = (),
    folders: list[str] | None = None,
    data: tuple[str, ...] = (),
    limit: int = LIMIT,
    read: tuple[str, ...] = (),
    python_path: tuple[str, ...] = (),
    contract: bool = False,
    mount: bool = False,
) -> Closure:
    path = folder / main
    language = "triton" if main.endswith(".py") or mount else "cuda"
    start = ExecStart(str(folder)) if mount else ContractStart() if contract else ProgramStart()
    job = Job("1", "run", language, str(path), path.read_text() if text is None else text,
              directory=str(folder), flags=flags, start=start)  # fmt: skip
    result = closure(job, [str(folder)] if folders is None else folders, data=data, limit=limit, read=read,
                    python_path=python_path)  # fmt: skip
    check(result.manifest)
    assert set(result.manifest.files.values()) == set(result.contents)
    for digest, content in result.contents.items():
        assert content_hash(content if isinstance(content, bytes) else content.read_bytes()) == digest
    return result


def travels(folder: Path, main: str, text: str | None = None, **options) -> list[str]:
    result = find(folder, main, text, **options)
    assert (result.refusal, result.remarks) == (None, ())
    return sorted(set(result.manifest.files) - {main})


def remarks(folder: Path, main: str, text: str | None = None, **options) -> list[str]:
    result = find(folder, main, text, **options)
    assert result.refusal is None
    return [remark.replace(str(folder), "~") for remark in result.remarks]


def refusal(folder: Path, main: str, text: str | None = None, **options) -> str:
    result = find(folder, main, text, **options)
    assert result.manifest.files == {}
    return (result.refusal or "").replace(str(folder), "~")
