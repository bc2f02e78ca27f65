"""Contents under their hashes, and trees that are exactly their manifest whatever was done to them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbit_remote.common import content_store
from orbit_remote.common.content_store import ContentStore, Hashes
from orbit_remote.common.messages import content_hash
from orbit_remote.common.requests import Manifest

ROOT = content_hash(b"/home/author/project")
MIB = 1 << 20


def manifest(texts: dict[str, str]) -> Manifest:
    return Manifest(ROOT, {name: content_hash(text.encode()) for name, text in texts.items()})


def send(store: ContentStore, texts: dict[str, str]) -> list[str]:
    """Put what is missing, as a client does; returns the texts that had to be sent."""
    contents = {content_hash(text.encode()): text for text in texts.values()}
    sent = [contents[digest] for digest in store.missing(manifest(texts))]
    for text in sent:
        store.put(content_hash(text.encode()), text.encode())
    return sorted(sent)


def make(store: ContentStore, tree: Path, texts: dict[str, str]) -> None:
    send(store, texts)
    store.materialise(manifest(texts), tree)


def found(tree: Path) -> dict[str, str]:
    """Everything in a tree but folders; a link shows as what it points to."""
    everything = [p for p in tree.rglob("*") if p.is_symlink() or not p.is_dir()]
    return {
        p.relative_to(tree).as_posix(): f"-> {p.readlink()}" if p.is_symlink() else p.read_text()
        for p in everything
    }


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "store", MIB)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path / "trees" / ROOT


TEXTS = {"k.cu": "main", "inc/a.cuh": "a", "inc/deep/b.cuh": "b", "copy/of/a.cuh": "a"}


def test_a_tree_is_its_manifest(store: ContentStore, tree: Path) -> None:
    make(store, tree, TEXTS)
    assert found(tree) == TEXTS


def test_only_what_is_not_there_yet_is_asked_for(store: ContentStore) -> None:
    assert send(store, TEXTS) == ["a", "b", "main"]
    assert send(store, TEXTS) == []
    assert send(store, TEXTS | {"k.cu": "edited"}) == ["edited"]


def test_an_edit_touches_one_file_and_a_deletion_goes_with_its_folder(
    store: ContentStore, tree: Path
) -> None:
    make(store, tree, TEXTS)
    for path in tree.rglob("*.cu*"):
        os.utime(path, (1, 1))
    after = {"k.cu": "edited", "inc/a.cuh": "a"}
    make(store, tree, after)
    assert found(tree) == after
    assert [p.name for p in tree.iterdir() if p.is_dir()] == ["inc"]
    assert not (tree / "inc/deep").exists()
    assert (tree / "inc/a.cuh").stat().st_mtime == 1
    assert (tree / "k.cu").stat().st_mtime > 1


def test_a_file_becomes_a_folder_and_a_folder_a_file(store: ContentStore, tree: Path) -> None:
    make(store, tree, {"x": "file", "y/z": "below"})
    make(store, tree, {"x/z": "below", "y": "file"})
    assert found(tree) == {"x/z": "below", "y": "file"}


# -- what a job leaves behind -------------------------------------------------------------------------


def test_what_a_job_wrote_into_its_tree_is_gone_and_did_not_reach_the_store(
    store: ContentStore, tree: Path
) -> None:
    make(store, tree, TEXTS)
    (tree / "k.cu").write_text("poison")
    with (tree / "inc/a.cuh").open("a") as file:
        file.write(" poison")
    (tree / "results.bin").write_text("results")
    (tree / "out").mkdir()
    (tree / "out/more").write_text("more")
    os.mkfifo(tree / "pipe")
    make(store, tree, TEXTS)
    assert found(tree) == TEXTS
    other = tree.parent / "another"
    store.materialise(manifest(TEXTS), other)
    assert found(other) == TEXTS


def test_a_file_written_again_at_once_with_the_same_size_and_time_is_seen(
    store: ContentStore, tree: Path
) -> None:
    make(store, tree, {"k.cu": "aaaa"})
    before = (tree / "k.cu").stat()
    (tree / "k.cu").write_text("bbbb")
    os.utime(tree / "k.cu", ns=(before.st_atime_ns, before.st_mtime_ns))
    make(store, tree, {"k.cu": "aaaa"})
    assert found(tree) == {"k.cu": "aaaa"}


def test_links_that_a_job_planted_are_not_followed(store: ContentStore, tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "a.cuh").write_text("precious")
    (outside / "deep/b.cuh").write_text("precious")
    make(store, tree, TEXTS)
    (tree / "k.cu").unlink()
    (tree / "k.cu").symlink_to(outside / "a.cuh")
    shutil.rmtree(tree / "inc")
    (tree / "inc").symlink_to(outside)
    (tree / "more").mkdir()
    (tree / "more/link").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    make(store, tree, TEXTS)
    assert found(tree) == TEXTS
    assert found(outside) == {"a.cuh": "precious", "deep/b.cuh": "precious"}


def test_a_link_in_place_of_the_tree_is_refused(store: ContentStore, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    tree.parent.mkdir()
    tree.symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        make(store, tree, TEXTS)
    assert not any((tmp_path / "outside").iterdir())


def test_folders_that_cannot_be_read_and_files_that_cannot_be_written(
    store: ContentStore, tree: Path
) -> None:
    make(store, tree, TEXTS)
    (tree / "junk/inner").mkdir(parents=True)
    (tree / "junk/inner/x").write_text("x")
    for locked in (tree / "junk/inner", tree / "junk", tree / "inc/deep", tree / "inc", tree / "k.cu"):
        locked.chmod(0)
    make(store, tree, TEXTS)
    assert found(tree) == TEXTS


@pytest.mark.slow
def test_a_very_deep_folder_of_a_job_is_removed(store: ContentStore, tree: Path) -> None:
    make(store, tree, TEXTS)
    here = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    make(store, tree, TEXTS)
    assert found(tree) == TEXTS


def test_names_that_the_store_uses_itself_can_be_in_the_way(store: ContentStore, tree: Path) -> None:
    make(store, tree, TEXTS)
    (tree / content_store._TEMPORARY).mkdir()
    (tree / f"{content_store._DISCARDED}-1").mkdir()
    (tree / f"{content_store._DISCARDED}-1" / "x").mkdir()
    make(store, tree, TEXTS | {"k.cu": "edited"})
    assert found(tree) == TEXTS | {"k.cu": "edited"}


def test_a_program_of_another_user_may_write_beside_its_sources(store: ContentStore, tree: Path) -> None:
    make(store, tree, TEXTS)
    assert stat.S_IMODE((tree / "inc").stat().st_mode) == 0o777
    assert stat.S_IMODE((tree / "inc/a.cuh").stat().st_mode) == 0o666


# -- hostile manifests --------------------------------------------------------------------------------

HOSTILE = [
    "", "/etc/passwd", "..", "../x", "a/../../x", "a/./x", "a//x", "a/", ".", "a\\..\\x", "C:\\x", "a\0b",
    "x" * 256, "é" * 128, "/".join("y" * 200 for _ in range(20)), "a/" * 101 + "x", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_a_path_that_could_leave_the_tree_is_refused_in_a_sentence(
    store: ContentStore, tree: Path, name: str
) -> None:
    digest = content_hash(b"x")
    store.put(digest, b"x")
    bad = Manifest(ROOT, {"fine": digest, name: digest})
    for use in (store.missing, lambda m: store.materialise(m, tree)):
        with pytest.raises(ValueError, match=r"the manifest's path '.{0,450} (is|holds) ") as error:
            use(bad)
        assert "\n" not in str(error.value)
    assert not tree.exists()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Manifest("../../etc", {}), "root '../../etc' is not a hash"),
        (Manifest(ROOT, {"a": "../../../etc/passwd"}), "hash of 'a' is not one"),
        (Manifest(ROOT, {"a": "x", "a/b": "x"}), "hash of 'a' is not one"),
        (Manifest(ROOT, {"a": content_hash(b""), "a/b": content_hash(b"")}), "a file where 'a/b' needs a folder"),
        (Manifest(ROOT, {"a/b": content_hash(b""), "a": content_hash(b"")}), "a folder where 'a' is a file"),
        (Manifest(ROOT, {str(n): content_hash(b"") for n in range(10_001)}), "names 10001 files; 10000 is"),
    ],
)  # fmt: skip
def test_a_manifest_that_makes_no_tree_is_refused(
    store: ContentStore, tree: Path, bad: Manifest, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        store.materialise(bad, tree)


def test_names_that_are_only_strange_are_fine(store: ContentStore, tree: Path) -> None:
    texts = {"ünï/c ö.cu": "1", "a\nb": "2", "-rf": "3", "...": "4", "$(x)": "5", "x" * 255: "6", "C:": "7"}
    make(store, tree, texts)
    assert found(tree) == texts


# -- the store ----------------------------------------------------------------------------------------


def test_a_content_under_a_hash_that_is_not_its_own_is_refused(store: ContentStore) -> None:
    with pytest.raises(ValueError, match="5 bytes came under the hash"):
        store.put(content_hash(b"other"), b"wrong")
    assert store.missing(manifest({"x": "other"})) == [content_hash(b"other")]


def test_a_content_that_is_missing_or_damaged_is_named_and_can_be_sent_again(
    store: ContentStore, tree: Path, tmp_path: Path
) -> None:
    with pytest.raises(LookupError, match="is not in the store"):
        store.materialise(manifest(TEXTS), tree)
    send(store, TEXTS)
    digest = content_hash(b"main")
    (tmp_path / "store" / digest[:2] / digest[2:]).write_text("mane")
    with pytest.raises(LookupError, match="was damaged"):
        store.materialise(manifest(TEXTS), tree)
    assert send(store, TEXTS) == ["main"]
    store.materialise(manifest(TEXTS), tree)
    assert found(tree) == TEXTS


def test_what_was_used_longest_ago_goes_first_and_what_is_needed_never(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store", 3000)
    old, used, needed = ("o" * 1000, "u" * 1000, "n" * 1000)
    for age, text in enumerate((needed, old, used)):
        digest = content_hash(text.encode())
        store.put(digest, text.encode())
        os.utime(tmp_path / "store" / digest[:2] / digest[2:], (age + 1, age + 1))
    now = {"needed": needed, "new": "x" * 1000, "newer": "y" * 1000}
    send(store, now)
    assert store.missing(manifest(now)) == []
    assert set(store.missing(manifest({"old": old, "used": used}))) == {content_hash(old.encode())} | {
        content_hash(used.encode())
    }
    send(store, over := {str(n): str(n) * 1000 for n in range(5)})
    assert store.missing(manifest(over)) == []


def test_what_a_dead_writer_left_is_cleared_away(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store", 10)
    send(store, {"x": "x"})
    left = next((tmp_path / "store").iterdir()) / "left.tmp"
    left.write_text("half")
    os.utime(left, (1, 1))
    send(store, {"y": "y" * 20})
    assert not left.exists()


def test_a_store_that_cannot_be_written_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        send(ContentStore(tmp_path / "file" / "store", MIB), TEXTS)


def test_a_disk_that_is_full_leaves_no_half_content(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: both fail in `write`."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from orbit_remote.common.content_store import ContentStore; from orbit_remote.common.messages import content_hash\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "big = b'x' * 9000\n"
        "try: ContentStore(Path(sys.argv[1]), 1 << 20).put(content_hash(big), big)\n"
        "except OSError as error: print(error.strerror, *Path(sys.argv[1]).rglob('*.*'))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": "remote"},
    )  # fmt: skip
    assert run.stdout == "File too large\n"


def test_several_writers_of_the_same_contents(tmp_path: Path) -> None:
    texts = {f"{n}.cuh": str(n) * 2000 for n in range(50)}
    stores = [ContentStore(tmp_path / "store", 10 * MIB) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda store: send(store, texts), stores))
        list(threads.map(lambda i: stores[i].materialise(manifest(texts), tmp_path / f"tree{i}"), range(4)))
    assert [found(tmp_path / f"tree{i}") == texts for i in range(4)] == [True] * 4


def test_one_folder_several_threads_one_tree(store: ContentStore, tree: Path) -> None:
    send(store, TEXTS)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: store.materialise(manifest(TEXTS), tree), range(12)))
    assert found(tree) == TEXTS


# -- hashes by status ---------------------------------------------------------------------------------


def test_a_file_at_rest_is_read_once_and_one_just_written_each_time(tmp_path: Path) -> None:
    young, hashes = tmp_path / "young", Hashes()
    young.write_text("young")
    assert hashes.read(str(young)).content == b"young"
    assert hashes.read(str(young)).content == b"young"
    resting = Path(os.__file__)  # written when Python was installed
    first, second = hashes.read(str(resting)), hashes.read(str(resting))
    assert first.content == resting.read_bytes()
    assert (second.content, second.digest, second.size) == (None, first.digest, first.size)
    with pytest.raises(FileNotFoundError):
        hashes.read(str(tmp_path / "gone"))


def test_a_file_over_the_limit_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("x" * 100)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="larger than 99 bytes"):
        Hashes().read(str(tmp_path / "big"), most=99)
    with pytest.raises(OSError, match="not a regular file"):
        Hashes().read(str(tmp_path / "pipe"))


# -- any tree, any edits ------------------------------------------------------------------------------

PARTS = st.sampled_from(["a", "b", "c.cu", "A", "ü"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
TREES = st.dictionaries(NAMES, st.sampled_from(["", "x", "yy", "zzz"]), max_size=8).filter(
    lambda texts: not any(other.startswith(name + "/") for name in texts for other in texts)
)
DEEDS = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "folder", "link", "loop", "lock"]), NAMES), max_size=6
)


def do(tree: Path, deed: str, name: str, outside: Path) -> None:
    """What a job may do in its tree; what the file system does not let it do is not done."""
    path = tree / name
    try:
        if deed == "write":
            path.write_text("by the job")
        elif deed == "remove":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif deed == "folder":
            path.mkdir(parents=True)
        elif deed == "lock":
            path.chmod(0)
        else:
            path.symlink_to(outside if deed == "link" else tree)
    except OSError:
        pass


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TREES, DEEDS), min_size=1, max_size=5))
def test_after_any_deeds_of_jobs_a_tree_is_its_manifest(steps: list[tuple[dict[str, str], list]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder, "outside")
        outside.mkdir()
        (outside / "a").write_text("precious")
        store, tree = ContentStore(Path(folder, "store"), MIB), Path(folder, "tree")
        for texts, deeds in steps:
            make(store, tree, texts)
            assert found(tree) == texts
            expected = {str(Path(name).parent) for name in texts}
            expected |= {str(p) for name in texts for p in Path(name).parents}
            folders = {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_dir()}
            assert folders == expected - {"."}
            for deed, name in deeds:
                if not str((tree / name).parent.resolve()).startswith(str(outside)):
                    do(tree, deed, name, outside)
        assert found(outside) == {"a": "precious"}


def test_it_is_bounded_in_number_too(tmp_path: Path) -> None:
    store = ContentStore(tmp_path, 1 << 20, most=3)
    contents = [b"%d" % number for number in range(6)]
    for number, content in enumerate(contents):
        digest = content_hash(content)
        store.put(digest, content)
        os.utime(tmp_path / digest[:2] / digest[2:], (number, number))
    left = [
        content for content in contents if not store.missing(Manifest("0" * 32, {"a": content_hash(content)}))
    ]
    assert left == contents[-3:]


def test_what_was_used_today_is_not_written_to_again(tmp_path: Path) -> None:
    store = ContentStore(tmp_path, 1 << 20, used_s=3600)
    digest = content_hash(b"text")
    manifest = Manifest("0" * 32, {"k.cu": digest})
    store.put(digest, b"text")
    (blob,) = (path for path in tmp_path.glob("??/*") if path.is_file())
    written = blob.stat().st_ctime_ns
    assert store.missing(manifest) == []
    assert blob.stat().st_ctime_ns == written
    os.utime(blob, (0, 0))
    assert store.missing(manifest) == []
    assert blob.stat().st_mtime > 0
