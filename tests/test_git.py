"""Reading a revision: with real git, on repositories that would run something if they could."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orbit_lsp.history import git


class Repository:
    def __init__(self, folder: Path, *how: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main", *how)

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout

    def commit(self, **files: str | None) -> str:
        """Write (or with None delete) files, `__` for a folder and a name's last `_` for its dot; the hash."""
        for name, text in files.items():
            path = self.path(name)
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text, newline="")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")
        return self.git("rev-parse", "HEAD").strip()

    def path(self, name: str) -> Path:
        *folders, last = name.split("__")
        return Path(self.folder, *folders, ".".join(last.rsplit("_", 1)))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit(
        k_cu="old\n", a_cuh="old a\n", b_cuh="b\n", gone_cuh="gone\n", inner__c_py="old c\n", data_txt="1\n"
    )
    made.commit(k_cu="new\n", a_cuh="new a\n", gone_cuh=None, inner__c_py="new c\n", data_txt="2\n")
    return made


def test_the_text_and_the_sources_that_are_others_now(repository: Repository) -> None:
    revision = git.revision(str(repository.path("k_cu")), "HEAD~1")
    assert (revision.text, revision.main) == ("old\n", "k.cu")
    assert sorted(revision.changed_sources) == ["a.cuh", "gone.cuh", "inner/c.py"]
    assert revision.title == f"HEAD~1 ({revision.commit[:7]})"
    assert git.revision(str(repository.path("k_cu")), revision.commit[:10]).title == revision.commit[:7]
    assert git.revision(str(repository.path("k_cu")), "HEAD").changed_sources == frozenset()


def test_a_header_that_is_edited_and_not_committed_counts_as_another(repository: Repository) -> None:
    repository.path("b_cuh").write_text("edited\n")
    assert sorted(git.revision(str(repository.path("k_cu")), "HEAD").changed_sources) == ["b.cuh"]


def test_a_revision_is_written_beside_and_the_repository_stays_as_it_is(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = repository.git("status", "--porcelain"), repository.git("reflog")
    revision = git.revision(str(repository.path("inner__c_py")), "HEAD~1")
    assert git.write(revision, str(tmp_path / "out")) == ()
    monkeypatch.setattr(git, "MOST_FILES", 2)
    (message,) = git.write(revision, str(tmp_path / "less"))
    assert message == "2 sources of HEAD~1 are left out: there are more than 2"
    written = {
        str(path.relative_to(tmp_path / "out")): path.read_text()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert written == {
        "inner/c.py": "old c\n",
        "a.cuh": "old a\n",
        "gone.cuh": "gone\n",
        "b.cuh": "b\n",
        "k.cu": "old\n",
    }
    assert (repository.git("status", "--porcelain"), repository.git("reflog")) == before
    assert repository.git("worktree", "list").count("\n") == 1


def test_nothing_that_a_repository_configures_is_run(repository: Repository, tmp_path: Path) -> None:
    repository.git("mv", "b.cuh", "moved.cuh")
    ran = tmp_path / "ran"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho $0 >> {ran}\ncat\n")
    trap.chmod(0o755)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        (repository.folder / ".git/hooks" / hook).symlink_to(trap)
    for name in ("core.fsmonitor", "diff.x.textconv", "diff.external", "filter.x.clean", "filter.x.smudge",
                 "core.pager", "core.sshCommand", "alias.cat-file"):  # fmt: skip
        repository.git("config", name, str(trap))
    (repository.folder / ".git/info/attributes").write_text("* filter=x diff=x\n")
    os.utime(repository.path("k_cu"), (1, 1))
    revision = git.revision(str(repository.path("k_cu")), "HEAD~1")
    git.write(revision, str(tmp_path / "out"))
    assert git.revision(str(repository.path("moved_cuh")), "HEAD~1").main == "b.cuh"
    assert (revision.text, ran.exists()) == ("old\n", False)


def test_a_file_that_was_renamed_has_its_earlier_text(repository: Repository) -> None:
    (repository.folder / "src").mkdir()
    repository.git("mv", "k.cu", "src/kernels.cu")
    revision = git.revision(str(repository.folder / "src/kernels.cu"), "HEAD")
    short = revision.commit[:7]
    assert (revision.main, revision.text) == ("k.cu", "new\n")
    assert revision.remarks == (f"src/kernels.cu was k.cu in HEAD ({short})",)
    assert "k.cu" not in revision.changed_sources


@pytest.mark.parametrize(
    ("name", "revision", "message"),
    [
        ("k_cu", "nowhere", "git knows no revision nowhere of "),
        ("k_cu", "--output=x", "'--output=x' is not a git revision"),
        ("k_cu", "HEAD\0", "'HEAD\\x00' is not a git revision"),
        ("k_cu", "", "'' is not a git revision"),
        ("new_cu", "HEAD", "new.cu is not in HEAD"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(
    repository: Repository, name: str, revision: str, message: str
) -> None:
    with pytest.raises(git.GitError) as error:
        git.revision(str(repository.path(name)), revision)
    assert str(error.value).startswith(message)


def test_a_file_outside_any_repository(tmp_path: Path) -> None:
    with pytest.raises(git.GitError, match="not in a git repository"):
        git.revision(str(tmp_path / "k.cu"), "HEAD")


def test_without_git(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(git.GitError, match="git is not on PATH"):
        git.revision(str(repository.path("k_cu")), "HEAD")


def test_a_file_that_is_too_large_is_refused(repository: Repository) -> None:
    repository.commit(k_cu="x" * (5 << 20))
    with pytest.raises(git.GitError, match="has 5,242,880 bytes, more than 4,194,304"):
        git.revision(str(repository.path("k_cu")), "HEAD")


def test_a_link_in_the_tree_leads_nowhere(repository: Repository, tmp_path: Path) -> None:
    (repository.folder / "link.cuh").symlink_to("/etc/passwd")
    repository.commit()
    revision = git.revision(str(repository.path("k_cu")), "HEAD")
    git.write(revision, str(tmp_path / "out"))
    assert not (tmp_path / "out" / "link.cuh").exists()


def test_hashes_of_the_other_kind(tmp_path: Path) -> None:
    made = Repository(tmp_path / "sha256", "--object-format=sha256")
    made.commit(k_cu="old\n", a_cuh="a\n")
    assert git.revision(str(made.path("k_cu")), "HEAD").changed_sources == frozenset()


def test_a_large_repository_is_read_in_the_files_own_folder(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(**{f"elsewhere__file{n}_h": "x\n" for n in range(50)}, inner__c_py="newest\n")
    monkeypatch.setattr(git, "_LISTED_BYTES", 400)
    revision = git.revision(str(repository.path("inner__c_py")), "HEAD")
    assert revision.text == "newest\n"
    assert revision.remarks == ("the repository is large: only files in inner are of that revision",)


def test_a_git_that_prints_without_end_is_stopped(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec yes\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(git.GitError, match=r"rev-parse printed more than 33,554,432 bytes"):
        git.revision(str(repository.path("k_cu")), "HEAD")


def test_the_commits_that_changed_a_file_newest_first(repository: Repository) -> None:
    repository.commit(b_cuh="other\n")
    newest, oldest = git.log(str(repository.path("k_cu")), 5)
    assert (newest.subject, newest.ago.endswith(" ago")) == ("x", True)
    assert git.revision(str(repository.path("k_cu")), newest.commit).text == "new\n"
    assert git.revision(str(repository.path("k_cu")), oldest.commit).text == "old\n"
    assert len(git.log(str(repository.path("k_cu")), 1)) == 1


def test_the_commits_of_a_file_that_is_in_no_repository(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("")
    with pytest.raises(git.GitError, match="not in a git repository"):
        git.log(str(tmp_path / "k.cu"), 5)


def test_a_commit_is_written_whole(repository: Repository, tmp_path: Path) -> None:
    """As a checkout has it: programs, links that stay inside, the submodule that is there. What is not committed stays out."""
    lib = Repository(tmp_path / "lib")
    lib.commit(lib_h="theirs\n")
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib.folder), "third/lib")
    (repository.folder / "run.sh").write_text("#!/bin/sh\n")
    (repository.folder / "run.sh").chmod(0o755)
    (repository.folder / "near").symlink_to("a.cuh")
    (repository.folder / "far").symlink_to("../secret")
    commit = repository.commit(data_bin="x" * (5 << 20))
    repository.path("a_cuh").write_text("edited\n")
    repository.path("new_cuh").write_text("not committed\n")
    out = tmp_path / "out"
    assert git.write_tree(str(repository.folder), commit, str(out)) == ()
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir()) == [
        ".gitmodules", "a.cuh", "b.cuh", "data.bin", "data.txt", "inner/c.py", "k.cu", "near", "run.sh", "third/lib/lib.h",
    ]  # fmt: skip
    assert (out / "a.cuh").read_text() == (out / "near").read_text() == "new a\n"
    assert os.access(out / "run.sh", os.X_OK)
    assert not os.access(out / "k.cu", os.X_OK)
    lib.commit(lib_h="newer\n")
    Repository.git(_at(repository.folder / "third" / "lib"), "-c", "protocol.file.allow=always", "pull", "-q")
    (remark,) = git.write_tree(str(repository.folder), commit, str(tmp_path / "again"))
    assert remark == "the submodule third/lib is at another commit there, so it is left out"


def _at(folder: Path) -> Repository:
    made = Repository.__new__(Repository)
    made.folder = folder
    return made
