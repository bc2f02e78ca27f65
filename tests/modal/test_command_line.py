"""`orbit-lsp run --runner modal` and `orbit-lsp modal …`: one as a shell starts it, the others forked (tests/e2e/forks.py)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.forks import Ended, command
from tests.e2e.test_run import SOURCE
from tests.modal_loopback.loopback import LIMIT_S, Loopback
from tests.schema_check import valid


def orbit(*arguments: str, cwd: Path) -> Ended:
    return command(cwd, *arguments)


def started(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "orbit_lsp", *arguments]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def test_run_on_modal(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = started("run", "saxpy.cu", "--runner", "modal", "--gpu", "H100", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["launches"][0]["timing"]["median"] == 288_032
    h100s.until(lambda world: not world.alive())  # it was released when the command ended


@pytest.mark.slow
def test_another_gpu_than_the_asked_one_is_exit_code_5(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--runner", "modal", "--gpu", "B200:2", cwd=tmp_path)
    assert done.returncode == 5
    assert "B200:2 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3" in done.stderr


@pytest.mark.slow
def test_status_deploy_stop(h100s: Loopback, tmp_path: Path) -> None:
    h100s.forget_kept()
    assert "is not deployed yet" in orbit("modal", "status", cwd=tmp_path).stdout
    assert "is on Modal" in orbit("modal", "deploy", cwd=tmp_path).stdout
    status = valid("modal", orbit("modal", "status", "--json", cwd=tmp_path).stdout)
    assert [app["present"] for app in status["apps"]] == [True]
    assert status["apps"][0]["name"] == status["app"]
    assert orbit("modal", "prune", cwd=tmp_path).stdout == "there is no app of an older version\n"
    assert orbit("modal", "stop", cwd=tmp_path).stdout == f"✓ {status['app']} is stopped\n"
    assert "is not deployed yet" in orbit("modal", "status", cwd=tmp_path).stdout


@pytest.mark.slow
def test_stop_with_the_files_leaves_nothing(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    assert orbit("run", "saxpy.cu", "--runner", "modal", "--gpu", "H100", cwd=tmp_path).returncode == 0
    done = orbit("modal", "stop", "--files", cwd=tmp_path)
    assert re.fullmatch(r"✓ orbit-\S+ is stopped\n✓ the volume orbit-files is deleted\n", done.stdout), (
        done.stderr
    )
    assert not h100s.world.volumes
    assert not list((h100s.folder / "volumes").iterdir())
    again = orbit("modal", "stop", "--files", cwd=tmp_path)
    assert again.stdout == "✓ the volume orbit-files is deleted\n", again.stderr


@pytest.mark.slow
def test_run_on_several_gpus_is_a_table_and_one_failing_loses_no_other(
    h100s: Loopback, tmp_path: Path
) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--on", "H100,L4", cwd=tmp_path)
    assert done.returncode == 5  # of the L4
    table = done.stdout[done.stdout.index("saxpy on") :].splitlines()
    assert table[0] == "saxpy on 2 GPUs, just now; dollars at rates of 2026-09-20"
    assert re.split("  +", table[2].strip()) == [
        "NVIDIA H100 80GB HBM3",
        "288 µs ±0.2%",
        "≤100%",
        "$4.08/h",
        "$0.33",
    ]
    assert "L4 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3" in table[3]
    h100s.until(lambda world: not world.alive())  # those that only compiled too


@pytest.mark.slow
def test_run_on_several_gpus_as_json(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--on", "H100,H100:2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (kernel,) = json.loads(done.stdout)
    assert kernel["kernel"] == "saxpy"
    assert [(item["gpu"], item["time_ns"]) for item in kernel["gpus"]] == [
        ("H100", 288_032),
        ("H100:2", 288_032),
    ]


def test_a_gpu_that_modal_has_not_is_a_usage_error(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--on", "H100,H99", cwd=tmp_path)
    assert done.returncode == 64
    assert done.stderr.startswith("orbit-lsp: error: --on: 'H99' is not one of the GPUs on Modal: T4, L4")


@pytest.mark.parametrize(
    "words", [("--gpu", "L40"), ("--gpu", "RTX 4090", "--runner", "modal"), ("--on", "A10,L40")]
)
def test_nothing_is_rented_for_a_gpu_that_is_not_on_the_list(
    h100s: Loopback, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", *words, cwd=tmp_path)
    assert done.returncode == 64
    assert " is not one of the GPUs on Modal: T4, L4, A10, " in done.stderr
    assert h100s.world.containers == {}


@pytest.mark.slow
def test_an_alias_rents_what_it_stands_for(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--gpu", "a10g", "--runner", "modal", cwd=tmp_path)
    assert "A10 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3" in done.stderr


@pytest.mark.slow
def test_the_budget_refuses_and_a_flag_lifts_it(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    run = ("run", "saxpy.cu", "--runner", "modal", "--budget", "0.01")
    done = orbit(*run, cwd=tmp_path)
    assert done.returncode == 5
    assert "past the budget of $0.01 ($0.00 spent" in done.stderr
    assert "add --over-budget, or raise --budget" in done.stderr
    assert h100s.world.containers == {}
    assert orbit(*run, "--over-budget", cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_the_month_outlives_a_command_and_a_run_says_what_it_cost(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--runner", "modal", cwd=tmp_path)
    assert re.search(r"· [\d.]+ s of H100, \$[\d.]+ at rates of 2026-09-20", done.stderr)
    status = orbit("modal", "status", cwd=tmp_path).stdout
    assert re.search(
        r"· month     \w+ \d{4}: \$0\.\d+ for [\d.]+ s of rented GPUs, with starts and idle time", status
    ), status
    month = valid("modal", orbit("modal", "status", "--json", cwd=tmp_path).stdout)["month"]
    assert month["spent_usd"] > 0
    assert month["due_usd"] == 0  # it was released when the command ended


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MODAL_TOKEN_ID", "", "✗ there is no Modal token on this machine"),
        ("MODAL_TOKEN_SECRET", "as-wrong", "✗ Modal does not accept the token: "),
    ],
)
def test_what_is_wrong_with_the_token_is_one_sentence(
    h100s: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    done = orbit("modal", "status", cwd=tmp_path)
    assert done.returncode == 5
    assert done.stderr.startswith(message)
    # a variable goes before what `modal token new` makes
    assert "put it into MODAL_TOKEN_ID and MODAL_TOKEN_SECRET" in done.stderr
