"""A host that turned hostile: a program of its own in the place of our relay. Its answers are data."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from pathlib import Path

import pytest

from orbit_lsp.runners.ssh import connection
from orbit_lsp.runners.ssh.runner import SshRunner
from tests.ssh.host import Host
from tests.ssh.test_host import Make, finished, job, refusal

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, re, sys
command = os.environ["SSH_ORIGINAL_COMMAND"]
mark = re.search("orbit-[0-9a-f]{16}", command)[0]
print(mark, json.dumps({"python": "p"}), flush=True)
sys.stdin.readline()
def say(text):
    print(text, flush=True)
"""
WELCOME = 'say(\'{"kind": "welcome", "seen": 0, "token": "t"}\')\n'
NOTED = "noted = open(FILE, 'a')\nfor line in sys.stdin:\n    noted.write(line)\n    noted.flush()\n"


def turns(host: Host, code: str) -> None:
    program = host.folder / "hostile.py"
    program.write_text(PROGRAM + code)
    host.login(f"exec {sys.executable} {program}")


async def test_it_gets_no_file_that_it_asks_for(runner: Make, host: Host, tmp_path: Path) -> None:
    secret = tmp_path / "p" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("a secret")
    code = (
        "for number in range(1, 9):\n"
        "    say('%d ' % number + json.dumps({'kind': 'missing', 'run': 'r1', 'digests': ['../secret.txt', '0' * 32, 7]}))\n"
        "say('9 ' + json.dumps({'kind': 'finished', 'run': 'r1', 'outcome': 'ok'}))\n"
    )
    got = host.folder / "got"
    turns(host, WELCOME + code + NOTED.replace("FILE", repr(str(got))))
    await finished(runner(), job(tmp_path / "p"))
    sent = got.read_text() if got.exists() else ""
    contents = [json.loads(line.partition(" ")[2]) for line in sent.splitlines() if '"data"' in line]
    assert all(b"secret" not in zlib.decompress(base64.b64decode(each["data"])) for each in contents)


@pytest.mark.parametrize(
    "code",
    [
        "say('no welcome')",
        "say('[]')",
        "say('{\"token\": 1}')",
        "say('[' * 100000)",
        "sys.stdout.write('x' * (70 << 20)); sys.stdout.flush()",
    ],
)
async def test_a_welcome_that_is_none(runner: Make, host: Host, code: str) -> None:
    turns(host, code)
    message, _ = await refusal(runner())
    assert message.startswith(
        ("gpu1 gave an answer that was not understood", "the host sent a line without an end")
    )


async def test_a_host_that_closes_each_link(
    runner: Make, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "KEEP_S", 3.0)
    turns(host, WELCOME)
    last = await finished(runner(), job(tmp_path / "p"))
    assert last.failure
    assert last.failure.message == "gpu1 closes each connection at once"


@pytest.mark.parametrize(
    "line",
    ["1 []", '1 {"kind": "finished", "run": "r1"}', '1 {"kind": 5, "run": "r1"}'],
)
async def test_events_that_are_none(runner: Make, host: Host, tmp_path: Path, line: str) -> None:
    one: SshRunner = runner()
    turns(host, WELCOME + f"sys.stdin.readline()\nsay({line!r})\nsys.stdin.read()\n")
    last = await finished(one, job(tmp_path / "p"))
    assert last.outcome == "infrastructure"
