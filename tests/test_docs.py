"""What is generated from the code is what the code says now; what the pages name exists."""

from __future__ import annotations

import html
import importlib.machinery
import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from orbit_lsp import __version__
from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from tests import recorded_profiles
from tests.recordings import profiled as recordings

ROOT = Path(__file__).parent.parent
_EVERY = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "editors").rglob("README.md")])
PAGES = [page for page in _EVERY if "node_modules" not in page.parts]


def generated() -> dict[Path, str]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "scripts" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.files()


def test_generated_files_say_what_the_code_says() -> None:
    stale = [path.name for path, text in generated().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run scripts/generate.py"


def test_the_vs_code_extension_has_the_servers_version_and_a_lockfile_of_it() -> None:
    folder = ROOT / "editors" / "vscode"
    for name in ("package.json", "package-lock.json"):
        assert json.loads((folder / name).read_text())["version"] == __version__
    lock = json.loads((folder / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/vscode-languageclient"]["version"].startswith("9.")
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_pages_link_to_files_that_exist(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)  # k[grid](x) is no link
    for link in re.findall(r"\]\(([^)#\s]+)", prose):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_the_pages_for_developers_name_modules_that_exist() -> None:
    """By a path from the root, or from one of the two packages: `views/hints.py`."""
    roots = (ROOT, ROOT / "orbit_lsp", ROOT / "remote", ROOT / "remote" / "orbit_remote")
    ours = {path.name for root in roots for path in root.iterdir() if path.is_dir()}
    for page in (ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "dev").glob("*.md")):
        for name in re.findall(r"`((\w+)/[\w/]+\.py)(?:::\w+)?`", page.read_text(encoding="utf-8")):
            assert name[1] not in ours or any((root / name[0]).exists() for root in roots), (
                page.name,
                name[0],
            )


def test_each_promise_of_the_threat_model_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| ") and not row.startswith("| promise")]
    assert rows
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named, f"no test holds: {row}"
        for file, test in named:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not test or re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE), f"{file}::{test}"


def test_the_site_lists_every_page() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f"- {page}\n" not in listed] == [], "add them to nav in mkdocs.yml"


def test_the_users_part_keeps_to_13000_words() -> None:
    """Of the pages that people write: no code, no generated page, table or rendering."""
    words = 0
    for page in sorted([*(ROOT / "docs" / "guide").glob("*.md"), ROOT / "docs" / "index.md"]):
        text = page.read_text(encoding="utf-8")
        if "\nGenerated " not in text:
            text = re.sub(
                r"<!-- (from|functions|recorded|scripts)\b.*?(<!-- end -->|\Z)|```.*?```",
                "",
                text,
                flags=re.DOTALL,
            )
            words += len(re.findall(r"[^\s|]*\w[^\s|]*", re.sub(r"\]\([^)]*\)", "]", text)))
    assert 8_000 < words <= 13_000, "say things once, or move what is for developers to docs/dev"


def test_scripts_are_listed() -> None:
    listed = set(re.findall(r"`([\w.]+)`", (ROOT / "scripts" / "README.md").read_text(encoding="utf-8")))
    scripts = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file()} - {"README.md"}
    assert scripts - listed == set()


def test_the_renderings_of_the_profile_page_are_what_the_code_draws() -> None:
    spec = importlib.util.spec_from_file_location("profile_page", ROOT / "scripts" / "profile_page.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "guide" / "profile.md").read_text() == module.text(), (
        "run scripts/profile_page.py"
    )


def test_the_readmes_pictures_are_what_the_code_draws_of_one_recording_each() -> None:
    loader = importlib.machinery.SourceFileLoader("picture", str(ROOT / "scripts" / "picture"))
    spec = importlib.util.spec_from_loader("picture", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    for name, (title, lines) in module.recorded().items():
        drawn = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == module.svg(name, title, lines), "run scripts/picture"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_what_is_said_below_the_picture_is_what_its_recording_has(page: str) -> None:
    recorded = json.loads((ROOT / "docs" / "pictures" / "saxpy-h100.json").read_text())
    (saxpy,) = (launch for launch in recorded["finished"]["launches"] if launch["name"] == "saxpy")
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert (
        f"launches `saxpy` {saxpy['count']} times; the first launch is not in the median, so `n={saxpy['timing']['n']}`"
        in text
    )
    assert all(date in text for date in re.findall(r"\d{4}-\d\d-\d\d", recorded["about"]))


def test_every_picture_is_shown_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = [*(ROOT / "docs" / "pictures").glob("*.svg"), *(ROOT / "docs" / "pictures").glob("*.png")]
    assert [path.name for path in pictures if f"pictures/{path.name}" not in text] == []


def test_the_editors_pictures_show_the_recorded_run_and_profile_of_one_program() -> None:
    ran, profile = recordings.run("memory_bound.cu").launches[0], recorded_profiles.profile(recordings.RAN)
    time = units.time(ran.timing.median)
    verdict = bottleneck.verdict(profile)
    assert verdict
    share = " ".join(verdict.text.split()[:2])
    for name in ("neovim", "helix", "emacs"):
        drawn = html.unescape((ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8"))
        shown = re.sub(r"<[^>]*>", "", drawn).replace("\xa0", " ")
        assert re.findall(r"⏱ ([\d.]+ µs)", shown) == [time] * (2 if name == "neovim" else 1)
        assert f"n={ran.timing.n}" in shown
        assert share in shown
    page = (ROOT / "docs" / "guide" / "editors.md").read_text(encoding="utf-8")
    launch = units.time(profile.metrics["gpu__time_duration.sum"].value)
    assert (time in page, launch in page) == (True, True), "the caption has other times than the recording"


def test_the_film_shows_the_same_run_and_profile_within_two_megabytes() -> None:
    film = ROOT / "docs" / "pictures" / "film.svg"
    assert film.stat().st_size <= 2_000_000
    drawn = html.unescape(film.read_text(encoding="utf-8"))
    shown = re.sub(r"<style>.*?</style>|<[^>]*>", "", drawn, flags=re.DOTALL).replace("\xa0", " ")
    frames = re.split(r"recorded H100\.\s+\d\. ", shown)[1:]
    time = units.time(recordings.run("memory_bound.cu").launches[0].timing.median)
    holds = [f"⏱ {time}" in frame and "edited since" not in frame for frame in frames]
    assert holds == [False, False, True, True, True, False, True]
    assert ["edited since" in frame for frame in frames].count(True) == 1


def test_the_snippets_for_editors_can_be_read() -> None:
    text = (ROOT / "docs" / "dev" / "clients.md").read_text()
    assert [json.loads(item) for item in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    for path in (ROOT / "editors" / "helix").glob("*.toml"):
        tomllib.loads(path.read_text())
