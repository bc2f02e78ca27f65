"""Repositories that would run something if they could, and those that are not where they say."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_lsp.history import git
from tests.hostile.canary import canary
from tests.test_git import Repository


def configured(**values: str) -> Callable[[Repository, str], None]:
    def apply(repository: Repository, program: str) -> None:
        for name, value in values.items():
            key = name.replace("__", "-").replace("_", ".")
            repository.git("config", key, value.format(program=program, folder=repository.folder))

    return apply


def _partial(url: str, **more: str) -> Callable[[Repository, str], None]:
    """A clone that lacks HEAD's file, with a way to its remote."""

    def apply(repository: Repository, program: str) -> None:
        name = repository.git("rev-parse", "HEAD:k.cu").strip()
        (repository.folder / ".git/objects" / name[:2] / name[2:]).unlink()
        fields = {"core.repositoryformatversion": "1", "extensions.partialClone": "evil", "remote.evil.promisor": "true",
                  "remote.evil.url": url, "protocol.allow": "always"}  # fmt: skip
        for key, value in (fields | {name.replace("_", "."): of for name, of in more.items()}).items():
            repository.git("config", key, value.format(program=program, folder=repository.folder))

    return apply


def _hooks(repository: Repository, program: str) -> None:
    for hook in (
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-commit",
        "pre-auto-gc",
        "fsmonitor-watchman",
    ):
        (repository.folder / ".git/hooks" / hook).unlink(missing_ok=True)
        (repository.folder / ".git/hooks" / hook).symlink_to(program)


def _attributes(repository: Repository, program: str) -> None:
    for name in (
        "diff.x.textconv",
        "diff.x.command",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
    ):
        repository.git("config", name, program)
    repository.path("k_cu").with_name(".gitattributes").write_text("* filter=x diff=x merge=x\n")
    (repository.folder / ".git/info/attributes").write_text("* filter=x diff=x\n")


def _included(repository: Repository, program: str) -> None:
    (repository.folder / "more").write_text(
        f"[core]\n fsmonitor = {program}\n pager = {program}\n[diff]\n external = {program}\n"
    )
    repository.git("config", "include.path", "../more")
    repository.git("config", "includeIf.gitdir:/.path", str(repository.folder / "more"))


def _submodule(repository: Repository, program: str) -> None:
    (repository.folder / ".gitmodules").write_text(
        f'[submodule "x"]\n path = x\n url = {program}\n update = !{program}\n'
    )
    repository.git("config", "submodule.x.update", f"!{program}")
    repository.git("config", "submodule.recurse", "true")


def _worktree_config(repository: Repository, program: str) -> None:
    repository.git("config", "extensions.worktreeConfig", "true")
    (repository.folder / ".git/config.worktree").write_text(
        f"[core]\n fsmonitor = {program}\n sshCommand = {program}\n"
    )


GIT: dict[str, Callable[[Repository, str], None]] = {
    "core.fsmonitor": configured(core_fsmonitor="{program}", core_fsmonitorHookVersion="2"),
    "hooks": _hooks,
    "core.hooksPath": configured(core_hooksPath="{folder}"),
    "textconv, filters, attributes": _attributes,
    "diff.external": configured(diff_external="{program}"),
    "pager": configured(core_pager="{program}", pager_rev__parse="{program}", pager_cat__file="{program}"),
    "aliases": configured(alias_rev__parse="!{program}", alias_ls__tree="!{program}"),
    "editor and askpass": configured(core_editor="{program}", core_askPass="{program}", sequence_editor="{program}"),
    "gpg": configured(gpg_program="{program}", log_showSignature="true"),
    "alternate refs": configured(core_alternateRefsCommand="{program}"),
    "includes": _included,
    "submodule": _submodule,
    "configuration of the worktree": _worktree_config,
    "promisor, ext": _partial("ext::{program}"),
    "promisor, ext allowed": _partial("ext::{program}", protocol_ext_allow="always"),
    "promisor, ssh": _partial("ssh://host/x", core_sshCommand="{program}", protocol_ssh_allow="always"),
    "promisor, git": _partial("git://host/x", core_gitProxy="{program}", protocol_git_allow="always"),
    "promisor, file": _partial("file:///tmp", remote_evil_uploadpack="{program}", protocol_file_allow="always"),
    "promisor, http": _partial("http://127.0.0.1:9/x", credential_helper="{program}", protocol_http_allow="always"),
    "promisor, helper": _partial("x", remote_evil_vcs="ext", protocol_ext_allow="always"),
    "promisor, insteadOf": _partial("good:x", **{"url_ext::{program}_insteadOf": "good:x", "protocol_ext_allow": "always"}),
}  # fmt: skip


@pytest.mark.parametrize("name", GIT)
def test_a_repository_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "sang").mkdir()
    program = canary(tmp_path / "canary", "git", then="cat")
    repository = Repository(tmp_path / "repository")
    repository.commit(k_cu="old\n", a_cuh="a\n")
    GIT[name](repository, program)
    # as git before 2.39.4, which knows no such variable
    monkeypatch.setattr(
        git,
        "ENVIRONMENT",
        {key: value for key, value in git.ENVIRONMENT.items() if key != "GIT_NO_LAZY_FETCH"},
    )
    if name.startswith("promisor"):
        with pytest.raises(git.GitError, match="git does not have the content"):
            git.revision(str(repository.path("k_cu")), "HEAD")
    else:
        revision = git.revision(str(repository.path("k_cu")), "HEAD")
        git.write(revision, str(tmp_path / "out"))
        assert revision.text == "old\n"
    assert list((tmp_path / "sang").iterdir()) == []


def _elsewhere(repository: Repository) -> Path:
    repository.git("config", "core.worktree", "/usr")
    return repository.path("k_cu")


def _nowhere(repository: Repository) -> Path:
    repository.git("config", "core.worktree", "/no/such/folder")
    return repository.path("k_cu")


def _bare_inside(repository: Repository) -> Path:
    """A bare repository that is a part of another one's files, as a clone would bring it."""
    inner = repository.folder / "data"
    subprocess.run(
        ["git", "clone", "-q", "--bare", str(repository.folder), str(inner)], check=True, capture_output=True
    )
    (inner / "k.cu").write_text("x\n")
    return inner / "k.cu"


def _stranger(repository: Repository) -> Path:
    """A folder that has a file where the author's repository has one."""
    folder = repository.folder.parent / "stranger"
    folder.mkdir()
    (folder / "k.cu").write_text("x\n")
    return folder


def _other_repository(repository: Repository) -> Path:
    """A file `.git` that names a repository elsewhere."""
    folder = _stranger(repository)
    (folder / ".git").write_text(f"gitdir: {repository.folder}/.git\n")
    return folder / "k.cu"


def _other_worktree(repository: Repository) -> Path:
    """The same, of a worktree, which names another folder."""
    repository.git("worktree", "add", "-q", str(repository.folder.parent / "tree"))
    folder = _stranger(repository)
    (folder / ".git").write_text(f"gitdir: {repository.folder}/.git/worktrees/tree\n")
    return folder / "k.cu"


def _link(repository: Repository) -> Path:
    folder = _stranger(repository)
    (folder / ".git").symlink_to(repository.folder / ".git")
    return folder / "k.cu"


def _common(repository: Repository) -> Path:
    """A repository of its own, as far as it goes, which names another one as what it shares."""
    folder = _stranger(repository)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".git" / "HEAD").write_text(repository.git("rev-parse", "HEAD"))
    (folder / ".git" / "commondir").write_text(f"{repository.folder}/.git\n")
    return folder / "k.cu"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_elsewhere, "is not in /usr, which its repository names as its working tree (core.worktree)"),
        (_nowhere, "Invalid path '/no'"),
        (_bare_inside, "is in a bare repository"),
        (_other_repository, "does not name this folder as its worktree or submodule"),
        (_other_worktree, "does not name this folder as its worktree or submodule"),
        (_link, "does not name this folder as its worktree or submodule"),
        (_common, "does not name this folder as its worktree or submodule"),
    ],
)
def test_a_repository_that_is_not_where_it_says(
    tmp_path: Path, make: Callable[[Repository], Path], sentence: str
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(k_cu="old\n")
    path = str(make(repository))
    with pytest.raises(git.GitError) as error:
        git.revision(path, "HEAD")
    assert sentence in str(error.value)


def _worktree(repository: Repository) -> Path:
    tree = repository.folder.parent / "tree"
    repository.git("worktree", "add", "-q", str(tree))
    return tree / "k.cu"


def _submodule_of(repository: Repository) -> Path:
    above = Repository(repository.folder.parent / "above")
    above.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository.folder), "sub")
    return above.folder / "sub" / "k.cu"


@pytest.mark.parametrize("make", [_worktree, _submodule_of])
def test_a_worktree_and_a_submodule_are_compared_with_their_own_repository(
    tmp_path: Path, make: Callable[[Repository], Path]
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(k_cu="old\n")
    path = str(make(repository))
    assert git.revision(path, "HEAD").text == "old\n"
    assert len(git.log(path, 5)) == 1
