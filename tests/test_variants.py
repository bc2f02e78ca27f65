"""The other side of a comparison: which text, which files, which job. Compiled by a real nvcc where headers decide."""

from __future__ import annotations

import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.closure import closure
from orbit_lsp.history import compare_candidates, variant_runs, variants
from orbit_lsp.history.compare_candidates import Candidate
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.history.variants import NoVariantError, Variant
from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.config import Settings
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job, ProgramStart
from tests.remote.nvcc_check import needs_nvcc
from tests.test_git import Repository

SPEC = "// orbit: x = empty(1024)\n// orbit: launch k<<<4, 256>>>(x)\n"
KERNEL = '#include "size.cuh"\n{spec}__global__ void k(float* x) {{ __shared__ float s[SIZE]; s[threadIdx.x % SIZE] = x[0]; x[1] = s[0]; }}\n'
NOW = KERNEL.format(spec=SPEC)
EDITED = NOW.replace("x[1] =", "x[2] =")


class Author:
    """A file of a repository, open in an editor."""

    def __init__(self, repository: Repository, name: str, text: str) -> None:
        self.repository = repository
        self.session = Session(setup=RunSetup(settings=Settings(), folders=[str(repository.folder)]))
        self.uri = (repository.folder / name).as_uri()
        self.session.open(self.uri, 1, text)
        self.target = KernelId(self.uri, "k")
        self.folder = repository.folder.parent / "beside"
        self.versions = HistoryTracker(
            self.session, lambda: self.folder / "history.sqlite", print, lambda uris: None
        )

    async def side(self, kind: str, name: str = "") -> Variant:
        wanted = compare_candidates.other(f"{kind}:{name}" if name else kind)
        assert wanted
        now = variants.now(self.session, self.target)
        try:
            return await variants.against(self.session, self.versions, now, wanted, self.folder)
        finally:
            await self.versions.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit(
        src__k_cu=NOW, src__size_cuh='#include "../common/inner.cuh"\n', common__inner_cuh="#define SIZE 64\n"
    )
    made.commit(common__inner_cuh="#define SIZE 32\n", src__other_cu="// unrelated\n", src__gone_h="\n")
    return made


async def shared_memory(job: Job) -> int | None:
    """Bytes that the compiler gives the kernel of a job."""
    runner = LocalRunner(LocalOptions(python=sys.executable))
    asked = replace(job, run="r1", action="compile", architecture="sm_90a", start=ProgramStart())
    try:
        async with aclosing(runner.run(asked)) as events:
            every = [event async for event in events]
    finally:
        await runner.close()
    built = [event for event in every if isinstance(event, c.Built)]
    assert built, every
    assert built[0].problems == ()
    return built[0].resources[0].static_shared


@needs_nvcc
async def test_a_revision_has_its_own_headers_to_any_depth(repository: Repository) -> None:
    author = Author(repository, "src/k.cu", NOW)
    now, then = variants.now(author.session, author.target), await author.side("revision", "HEAD~1")
    assert (await shared_memory(now.job), await shared_memory(then.job)) == (128, 256)
    assert (
        "inner.cuh is taken from HEAD~1 too, so that version runs in a folder without data files"
        in then.remarks
    )
    assert then.digest == now.digest  # of the kernel's tokens, which are the same


async def test_headers_that_are_the_same_leave_the_file_where_it_is(repository: Repository) -> None:
    author = Author(repository, "src/k.cu", EDITED)
    then = await author.side("revision", "HEAD")
    assert then.job.path == path_of(author.uri)
    assert (then.remarks, author.folder.exists()) == ((), False)


async def test_flags_of_the_repository_lead_to_the_revision_and_others_stay(repository: Repository) -> None:
    author = Author(repository, "src/k.cu", NOW)
    author.session.files[author.uri].compilation = Compilation(
        ("-Icommon", "-I", "build", "-DN=4", "-I/usr/include")
    )
    (repository.folder / "build").mkdir()
    then = await author.side("revision", "HEAD~1")
    root, beside = str(repository.folder), str(author.folder)
    assert then.job.flags == (f"-I{beside}/common", "-I", f"{root}/build", "-DN=4", "-I/usr/include")
    assert (then.job.path, then.job.directory) == (f"{beside}/src/k.cu", beside)


async def test_a_repository_opened_through_a_link_has_its_headers_of_then(repository: Repository) -> None:
    real = repository.folder
    repository.folder = real.parent / "link"
    repository.folder.symlink_to(real)
    author = Author(repository, "src/k.cu", NOW)
    author.session.files[author.uri].compilation = Compilation(("-Icommon", "-I../elsewhere"))
    (real.parent / "elsewhere").mkdir()
    then = await author.side("revision", "HEAD~1")
    assert then.job.path == f"{author.folder}/src/k.cu"
    assert then.job.flags == (f"-I{author.folder}/common", f"-I{real.parent}/elsewhere")
    assert (
        "inner.cuh is taken from HEAD~1 too, so that version runs in a folder without data files"
        in then.remarks
    )


async def test_what_travels_to_a_rented_gpu_is_the_revisions(repository: Repository) -> None:
    author = Author(repository, "src/k.cu", NOW)
    then = await author.side("revision", "HEAD~1")
    tree = closure(then.job, author.session.setup.folders, data=(), limit=1 << 20)
    assert tree.refusal is None
    assert tree.root == str(author.folder)
    assert sorted(tree.manifest.files) == ["common/inner.cuh", "src/k.cu", "src/size.cuh"]
    inner = tree.contents[tree.manifest.files["common/inner.cuh"]]
    assert isinstance(inner, Path)
    assert inner.read_text() == "#define SIZE 64\n"


async def test_a_header_that_a_build_makes_is_taken_along(repository: Repository) -> None:
    repository.commit(src__size_cuh='#include "made.cuh"\n#include "../common/inner.cuh"\n')
    repository.commit(common__inner_cuh="#define SIZE 16\n")
    (repository.folder / ".git/info/exclude").write_text("made.cuh\n")
    (repository.folder / "src/made.cuh").write_text("// made\n")
    author = Author(repository, "src/k.cu", NOW)
    await author.side("revision", "HEAD~1")
    assert (author.folder / "src/made.cuh").read_text() == "// made\n"


async def test_a_module_that_is_gone_is_there_in_its_revision(tmp_path: Path) -> None:
    text = "import triton\nfrom helper import SIZE\n\n@triton.jit\ndef k(x):\n    pass\n\ndef main():\n    k[(1,)](SIZE)\n"
    repository = Repository(tmp_path / "repository")
    repository.commit(k_py=text, helper_py="SIZE = 1\n")
    repository.commit(k_py=text.replace("from helper import SIZE", "SIZE = 2"), helper_py=None)
    author = Author(repository, "k.py", text.replace("from helper import SIZE", "SIZE = 2"))
    then = await author.side("revision", "HEAD~1")
    assert (author.folder / "helper.py").read_text() == "SIZE = 1\n"
    assert then.job.path == str(author.folder / "k.py")
    assert (
        "helper.py is taken from HEAD~1 too, so that version runs in a folder without data files"
        in then.remarks
    )


async def test_a_spec_of_now_serves_a_revision_that_has_none_and_not_one_that_has_another(
    repository: Repository,
) -> None:
    repository.commit(src__k_cu=KERNEL.format(spec=""))
    repository.commit(src__k_cu=KERNEL.format(spec=SPEC.replace("1024", "4096")))
    author = Author(repository, "src/k.cu", EDITED)
    bare = await author.side("revision", "HEAD~1")
    assert bare.frozen.text == NOW
    assert "has no launch spec: the present one is used" in bare.remarks[0]
    other = await author.side("revision", "HEAD")
    assert "4096" in other.frozen.text
    assert "has another launch spec, so the times may be of other work" in other.remarks[0]


async def test_a_spec_of_now_stands_above_the_kernel_in_a_file_with_page_breaks(tmp_path: Path) -> None:
    text = "// one\u2028two\n\f\n__global__ void other() {{}}\n\n{spec}__global__ void k(float* x) {{}}\n"
    repository = Repository(tmp_path / "repository")
    repository.commit(k_cu=text.format(spec=""))
    now = text.format(spec=SPEC).replace("x) {}", "x) { x[0] = 1; }")
    then = await Author(repository, "k.cu", now).side("revision", "HEAD")
    assert then.frozen.text == text.format(spec=SPEC)


async def test_a_spec_of_now_serves_a_triton_kernel_of_then(tmp_path: Path) -> None:
    kernel = "import triton\n\n{spec}@triton.jit\ndef k(x):\n    pass\n"
    now = kernel.format(spec="# orbit: x = empty(1024)\n# orbit: launch k[(1,)](x)\n")
    repository = Repository(tmp_path / "repository")
    repository.commit(k_py=kernel.format(spec=""))
    then = await Author(repository, "k.py", now.replace("pass", "return")).side("revision", "HEAD")
    assert (then.frozen.text, then.job.start.through) == (now, "spec")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("kernel", "absent", "there is no kernel absent in k.cu; it has: k"),
        ("file", "nowhere.cu", "nowhere.cu cannot be read: No such file or directory"),
        ("file", "notes.txt", "notes.txt is not a .cu, .cuh or .py file"),
        ("gpu", "L4", "another GPU must be rented from Modal: "),
        ("revision", "HEAD", "k is the same in HEAD ("),
        ("last", "", "the history has no run of another version of k to compare with"),
        ("revision", "HEAD~9", "git knows no revision HEAD~9 of "),
    ],
)
async def test_what_there_is_not(repository: Repository, kind: str, name: str, message: str) -> None:
    author = Author(repository, "src/k.cu", NOW)
    with pytest.raises(NoVariantError) as error:
        await author.side(kind, name)
    assert str(error.value).startswith(message)
    assert error.value.category == (
        "compile error" if kind in ("file", "kernel") else "infrastructure"
    )  # whose fault it is


def test_a_kernel_that_cannot_be_run_is_no_side(repository: Repository) -> None:
    author = Author(repository, "src/k.cu", KERNEL.format(spec=""))
    with pytest.raises(
        NoVariantError, match=r"the present text of k\.cu has neither a launch spec above k nor a main"
    ):
        variants.now(author.session, author.target)
    broken = Author(repository, "src/k.cu", NOW.replace("(x)\n", "(z)\n"))
    with pytest.raises(NoVariantError, match=r"the present text of k\.cu cannot be run: "):
        variants.now(broken.session, broken.target)


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("last"),
        Candidate("version", "1a2b"),
        Candidate("revision", "a:b"),
        Candidate("gpu", "H100:2"),
    ],
)
def test_a_choice_and_its_word(candidate: Candidate) -> None:
    assert compare_candidates.other(candidate.word) == candidate


def test_files_beside_that_name_the_kernel_are_listed(tmp_path: Path) -> None:
    for name, text in {"k.cu": NOW, "b.cu": EDITED, "c.cu": "void knot();", "d.py": "k", "e.cu": "k"}.items():
        (tmp_path / name).write_text(text)
    candidates = compare_candidates.files(str(tmp_path / "k.cu"), "ns::k<int>")
    assert [(candidate.title, candidate.word) for candidate in candidates] == [
        (name, f"file:{tmp_path / name}") for name in ("b.cu", "e.cu")
    ]


def test_commits_of_the_file_are_listed(repository: Repository) -> None:
    assert compare_candidates.revisions(str(repository.folder / "src" / "new.cu")) == []
    (candidate,) = compare_candidates.revisions(str(repository.folder / "src" / "k.cu")) or []
    assert candidate.title.startswith(f"{candidate.name} · ")
    assert candidate.title.endswith(" ago · x")
    assert compare_candidates.revisions(str(repository.folder.parent / "k.cu")) is None


@pytest.mark.parametrize("word", ["", "kernel", "kernel:", "whatever:x", "LAST"])
def test_what_is_no_choice(word: str) -> None:
    assert compare_candidates.other(word) is None


def test_another_gpu_is_asked_for_with_its_architecture(repository: Repository) -> None:
    author = Author(repository, "src/k.cu", NOW)
    author.session.setup.modal_account = True
    variant = variants._gpu(author.session, variants.now(author.session, author.target), "b200")
    assert (variant.name, variant.job.gpu, variant.job.architecture) == ("B200 on Modal", "B200", "sm_100a")
    with pytest.raises(NoVariantError, match="'Z9' is not one of the GPUs on Modal: T4, "):
        variants._gpu(author.session, variant, "Z9")


def test_a_header_that_changes_between_runs_of_a_side_is_seen() -> None:
    read: dict[str, str] = {}
    assert variant_runs._note_files(read, {"/k.cu": "1", "/a.cuh": "1"}, "/k.cu") == ""
    assert variant_runs._note_files(read, {}, "/k.cu") == ""  # what was built before may not say it again
    assert variant_runs._note_files(read, {"/k.cu": "2", "/b.cuh": "1"}, "/k.cu") == ""
    assert variant_runs._note_files(read, {"/a.cuh": "2"}, "/k.cu") == "a.cuh"
