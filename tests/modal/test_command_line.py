"""`orbit-lsp run --runner modal` and `orbit-lsp modal …`, as a shell starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_run import SOURCE
from tests.modal_loopback.loopback import Loopback


def orbit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "orbit_lsp", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def test_run_on_modal(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--runner", "modal", "--gpu", "H100", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["launches"][0]["timing"]["median"] == 288_032
    h100s.until(lambda world: not world.alive())  # it was released when the command ended


def test_another_gpu_than_the_asked_one_is_exit_code_5(h100s: Loopback, tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    done = orbit("run", "saxpy.cu", "--runner", "modal", "--gpu", "B200:2", cwd=tmp_path)
    assert done.returncode == 5
    assert "B200:2 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3" in done.stderr


def test_status_deploy_stop(h100s: Loopback, tmp_path: Path) -> None:
    assert "is not there yet" in orbit("modal", "status", cwd=tmp_path).stdout
    assert "is on Modal" in orbit("modal", "deploy", cwd=tmp_path).stdout
    status = json.loads(orbit("modal", "status", "--json", cwd=tmp_path).stdout)
    assert [app["present"] for app in status["apps"]] == [True]
    assert status["apps"][0]["name"] == status["app"]
    assert orbit("modal", "prune", cwd=tmp_path).stdout == "no older app of ours is there\n"
    assert orbit("modal", "stop", cwd=tmp_path).stdout == f"✓ {status['app']} is stopped\n"
    assert "is not there yet" in orbit("modal", "status", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MODAL_TOKEN_ID", "", "✗ there is no Modal token on this machine"),
        ("MODAL_TOKEN_SECRET", "as-wrong", "✗ Modal does not accept the token: "),
    ],
)
def test_what_is_wrong_with_the_token_is_one_sentence(
    h100s: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    done = orbit("modal", "status", cwd=tmp_path)
    assert done.returncode == 5
    assert done.stderr.startswith(said)
    assert "mend it: `modal token new` makes a token" in done.stderr
