"""An editor and the command line on a host: lens, number, errors, profile, choice, refusal, several hosts, pools, stop. The GPU is recorded."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.places.places import Places
from orbit_lsp.queue import pool
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.state import config
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from tests.cli_check import orbit
from tests.e2e import test_profile, test_through
from tests.e2e.conftest import Editor, display, start
from tests.e2e.test_check_memory import RACE
from tests.e2e.test_run import MEASURED, SOURCE
from tests.e2e.test_spec_runs import KERNEL, SPEC
from tests.ssh.host import Host

pytestmark = pytest.mark.slow

__all__ = ["display", "start"]
GPU = "▶ Run on gpu1 (H100)"


async def opened(start: Any, host: Host, text: str = SOURCE, **more: Any) -> Editor:
    editor: Editor = await start("vscode", runner="ssh:gpu1", ssh={"python": str(host.python)}, **more)
    editor.open("saxpy.cu", text)
    return editor


async def test_a_click_puts_the_time_on_the_line(start, host: Host) -> None:
    host.answers(gpu=True)
    editor = await opened(start, host)
    await editor.asked_until(editor.titles, lambda titles: titles == [(0, GPU), (3, GPU)])
    await editor.click()
    assert await editor.until(editor.ended) == ["288 µs"]
    await editor.asked_until(editor.hints, lambda hints: hints == [(0, MEASURED)])
    for fact in ("NVIDIA H100 80GB HBM3", "580.159.04", "1980 MHz"):
        assert fact in await editor.hover(0, 18)


async def test_an_error_of_the_hosts_nvcc_stands_on_its_line(start, host: Host) -> None:
    editor = await opened(start, host, SOURCE.replace("a * x[n]", "oops"))
    (found,) = await editor.until(editor.diagnostics)
    assert found[:2] == ("nvcc", 1)
    assert 'identifier "oops" is undefined' in found[4]


async def test_a_host_that_is_off_is_said_once_and_on_a_click(start, host: Host) -> None:
    host.stop()
    editor = await opened(start, host, compile_on_save=False)
    off = (
        "gpu1 takes no ssh connections. check that the machine is on and that `ssh gpu1` works in a terminal"
    )
    (text,) = await editor.until(editor.messages)
    assert text.removesuffix("; until it answers, this machine compiles") == f"orbit: {off}"
    host.start()
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(lambda: any("there is no NVIDIA GPU in gpu1" in each for each in editor.messages()))


async def test_this_machine_compiles_in_place_of_a_host_that_is_off(start, host: Host) -> None:
    host.answers(gpu=True)
    host.stop()
    editor = await opened(start, host)
    await editor.asked_until(editor.hints, lambda hints: any("regs" in text for _, text in hints))
    (text,) = editor.messages()
    assert text.endswith("; until it answers, this machine compiles")
    host.start()  # the next click finds it, and what it has
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.asked_until(editor.titles, lambda titles: (0, GPU) in titles)


async def test_a_host_is_chosen(start, host: Host) -> None:
    host.answers(gpu=True)
    settings = {"hosts": ["gpu1"], "python": str(host.python)}
    editor: Editor = await start("vscode", runner="local", ssh=settings, compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    await editor.asked_until(editor.titles, lambda titles: titles[:1] == [(0, "▶ Run (choose a GPU)")])
    await editor.command("orbit.chooseGpu", {"gpu": "ssh:gpu1"})
    await editor.asked_until(editor.titles, lambda titles: (0, GPU) in titles)
    assert "gpu1, by ssh" in (await editor.command("orbit.info", {}))["gpus"]


# -- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=touch /tmp/x", "-lroot", "a b", "a;b", "a\nb", "", "a/b", "$(x)", "ä"]
)
def test_what_is_no_name_of_a_host_is_refused(name: str) -> None:
    settings, mistakes = config.parse({"runner": f"ssh:{name}"})
    assert settings.runner == "local"
    assert "is not the name of a host" in mistakes[0]
    assert mistakes[0].endswith("; until it is corrected, no GPU is rented")


@pytest.mark.parametrize("python", ["a'b", "$(x)", "`x`", 'a"b', "-c", "a\\b", "!x"])
def test_what_is_no_path_of_a_python_there_is_refused(python: str) -> None:
    settings, mistakes = config.parse({"ssh": {"python": python}})
    assert (settings.ssh.python, len(mistakes)) == ("", 1)


def test_an_untrusted_folder_names_no_host(tmp_path: Path) -> None:
    session = Session(setup=RunSetup(folders=[str(tmp_path)]))
    places = Places(session, print, lambda uris: None)
    theirs = {"runner": "ssh:evil", "ssh": {"hosts": ["evil"], "python": "/tmp/evil"}}
    (complaint,) = places.settings.configure(theirs)
    assert (session.setup.host, session.setup.settings.ssh) == ("", config.Ssh())
    assert "`runner`, `ssh.hosts`, `ssh.python` are ignored" in complaint


def test_a_pool_of_hosts() -> None:
    slots = pool.parse("ssh:a:0,ssh:a:1,ssh:me@b")
    assert [slot.name for slot in slots] == ["ssh:a:0", "ssh:a:1", "ssh:me@b:0"]
    assert dict(slots[1].options) == {"runner": "ssh:a", "device": 1}
    with pytest.raises(RequestRefusedError, match="is not the name of a host"):
        pool.parse("ssh:-oProxyCommand=x:0")


# -- the command line ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "saxpy.cu").write_text(SOURCE)
    return tmp_path / "p"


def on_path(host: Host) -> None:
    """The host's Python is what its login finds as python3."""
    there = host.folder / "there"
    there.mkdir()
    (there / "python3").symlink_to(host.python)
    host.login(f'PATH="{there}:$PATH"')


def test_run_on_a_host(host: Host, folder: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    code, out, err = orbit(folder, "run", "saxpy.cu", "--runner", "ssh:gpu1", "--kernel", "saxpy", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["device"]["name"] == "NVIDIA H100 80GB HBM3"
    assert [launch["timing"]["median"] for launch in answer["launches"]] == [288_032]


@pytest.mark.parametrize(
    "place",
    [("run", "saxpy.cu", "--runner", "ssh:gpu1"), ("jobs", "submit", "saxpy.cu", "--pool", "ssh:gpu1:0")],
)
def test_an_option_names_the_python_of_the_host(host: Host, folder: Path, place: tuple[str, ...]) -> None:
    host.answers(gpu=True)
    host.login(f"HOME={host.folder}; export HOME")
    code, out, err = orbit(folder, *place, "--python", "~/python", "--kernel", "saxpy", "--json")
    assert code == 0, err
    assert "288032" in out


def test_a_python_that_is_missing_there(host: Host, folder: Path) -> None:
    _, out, _ = orbit(folder, "doctor", "--runner", "ssh:gpu1", "--python", "/nowhere/python")
    assert "gpu1 has no Python that can be started (/nowhere/python is not there)" in out


def test_several_hosts_in_a_table(host: Host, folder: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    code, out, _ = orbit(
        folder, "run", "saxpy.cu", "--on", "ssh:gpu1,ssh:no-such-host.invalid", "--kernel", "saxpy"
    )
    assert code == 5
    assert "gpu1: NVIDIA H100 80GB HBM3" in out
    assert "there is no host no-such-host.invalid" in out


def test_doctor_is_about_the_host(host: Host, folder: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    _, out, _ = orbit(folder, "doctor", "--runner", "ssh:gpu1")
    assert out.startswith("host      gpu1, reached by ssh: what follows is about it\n")
    assert "CUDA files: run and timed on NVIDIA H100 80GB HBM3" in out


def test_what_a_host_lacks_is_to_be_installed_there(host: Host, folder: Path) -> None:
    host.answers(gpu=True)
    _, out, _ = orbit(folder, "doctor", "--runner", "ssh:gpu1", "--python", str(host.python))
    remedies = [line for line in out.splitlines() if "fix it:" in line]
    assert len(remedies) == 4
    assert "a virtual environment whose Python --python names" in out
    assert all(line.startswith("    fix it: on gpu1: ") for line in remedies)


def test_doctor_of_a_host_that_is_not_there(host: Host, folder: Path) -> None:
    host.stop()
    code, out, _ = orbit(folder, "doctor", "--runner", "ssh:gpu1")
    assert (code, out[:40]) == (5, "✗ gpu1      gpu1 takes no ssh connection")


def test_stop_leaves_nothing(host: Host, folder: Path) -> None:
    on_path(host)
    assert orbit(folder, "compile", "saxpy.cu", "--runner", "ssh:gpu1")[0] == 0
    assert host.processes(" worker ")
    _, out, _ = orbit(folder, "stop", "--on", "ssh:gpu1")
    assert re.fullmatch(r"gpu1: stopped \d process(es)?, and removed orbit-lsp's files\n", out)
    assert host.processes() == []
    assert not (host.cache / "orbit-lsp" / "ssh").exists()
    assert list((host.run / "orbit-lsp").iterdir()) == []


def test_exec_brings_files_back(host: Host, folder: Path) -> None:
    on_path(host)
    (folder / "in.txt").write_text("7")
    code = "open('out.txt', 'w').write(open('in.txt').read() * 2)"
    (folder / "double.py").write_text(code)
    code, _, err = orbit(
        folder, "exec", "double.py", "--on", "ssh:gpu1", "--bring", "out.txt", "--mount", str(folder)
    )
    assert code == 0, err
    assert (folder / "out.txt").read_text() == "77"


@pytest.mark.parametrize("option", ["--runner", "--on"])
def test_an_option_of_ssh_is_no_host(folder: Path, option: str) -> None:
    code, _, err = orbit(folder, "run", "saxpy.cu", option, "ssh:-oProxyCommand=x")
    assert code == 64
    assert "is not the name of a host" in err


async def test_jobs_of_a_pool(host: Host, folder: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    words = ("jobs", "submit", "saxpy.cu", "--pool", "ssh:gpu1:0", "--kernel", "saxpy", "--json")
    code, out, err = await asyncio.to_thread(orbit, folder, *words)
    assert code == 0, err
    assert "288032" in out


def test_a_profile_and_its_report(host: Host, tmp_path: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    source = test_profile.SOURCE
    (tmp_path / "memory_bound.cu").write_text(source)
    code, out, err = orbit(tmp_path, "profile", "memory_bound.cu", "--runner", "ssh:gpu1", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert [profile["name"].partition("(")[0] for profile in answer["profiles"]] == ["saxpy"]
    kept = [path.read_bytes() for path in (tmp_path / ".cache").rglob("*.ncu-rep")]
    assert kept == [test_profile.RECORDED]


def test_a_check_of_memory(host: Host, tmp_path: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    (tmp_path / "race.cu").write_text(RACE)
    code, out, err = orbit(
        tmp_path, "check", "race.cu", "--kernel", "reverse", "--runner", "ssh:gpu1", "--json"
    )
    assert code == 2, err
    places = {problem["place"]["file"] for problem in json.loads(out)["problems"] if problem["place"]}
    assert places == {str(tmp_path / "race.cu")}


def test_a_launch_spec(host: Host, tmp_path: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    (tmp_path / "saxpy.cu").write_text(SPEC + KERNEL)
    code, out, err = orbit(tmp_path, "run", "saxpy.cu", "--runner", "ssh:gpu1", "--json")
    assert code == 0, err
    assert [check["passed"] for point in json.loads(out)["points"] for check in point["checks"]] == [True]


def test_a_test_of_the_project_runs_on_the_host(host: Host, tmp_path: Path) -> None:
    on_path(host)
    files = {
        "pkg/softmax.py": test_through.PACKAGE,
        "pkg/__init__.py": "from .softmax import softmax",
        "tests/test_softmax.py": test_through.TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    words = ("--through", "tests/test_softmax.py::test_right", "--runner", "ssh:gpu1", "--trust", "--json")
    _, out, err = orbit(tmp_path, "run", "pkg/softmax.py", *words)
    assert "1 passed" in out + err


def test_two_variants_are_compared_on_the_host(host: Host, tmp_path: Path) -> None:
    host.answers(gpu=True)
    on_path(host)
    (tmp_path / "saxpy.cu").write_text(SPEC + KERNEL)
    (tmp_path / "fast.cu").write_text(SPEC + KERNEL.replace("{\n", "{  // FAST\n"))
    words = ("compare", "saxpy.cu", "--with", "fast.cu", "--runner", "ssh:gpu1", "--json")
    code, out, err = orbit(tmp_path, *words)
    assert code == 0, err
    assert json.loads(out)["verdict"] == "slower"
