"""What the image is made of: every torch that people have resolves beside the rest, by uv, and the profiler that is promised
is the first on its PATH.

The recipe is what Modal's client makes of ours; its commands are not run on Modal.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_remote.modal_app.image_spec import ImageSpec
from tests.modal_loopback import images
from tests.modal_loopback.loopback import Loopback

# nvidia/cuda:13.0.1-devel-ubuntu24.04
PATH = (
    "/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)


async def recipe(modal: Loopback, author, spec: ImageSpec) -> str:
    modal.forget_kept()
    await author(spec=spec).runner.pool.account.deploy()
    made = {each.definition.image_id for each in modal.world.functions.values() if each.definition.image_id}
    (image,) = made
    return images.recipe(modal.world, image)


def installed(text: str) -> list[list[str]]:
    """The arguments of each `uv pip install` of ours; Modal's own are of a file."""
    calls = map(shlex.split, re.findall(r"uv pip install (?:--python \$\(.*?\) )?(.*)", text))
    return [words for words in calls if "-r" not in words and "--requirements" not in words]


def resolve(words: list[str], python: str) -> subprocess.CompletedProcess[str]:
    names = [word for word in words if re.match(r"[a-z][\w.-]*([=<>]|$)", word)]
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "compile",
        "-",
        "--quiet",
        "--no-python-downloads",
    ]
    command += [
        "--python",
        sys.executable,
        "--python-version",
        python,
        "--python-platform",
        "x86_64-manylinux_2_28",
    ]
    command += ["--no-deps"] * ("--no-deps" in words)
    return subprocess.run(
        command, input="\n".join(names), capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "torch", ["2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1", "2.13.0"]
)
async def test_every_torch_resolves(modal, author, torch: str) -> None:
    """Ask the index of packages. The test is skipped where there is no network."""
    for words in installed(await recipe(modal, author, ImageSpec("0.1.0", torch=torch))):
        done = await asyncio.to_thread(resolve, words, "3.12")
        if re.search("error sending request|dns error|timed out", done.stderr):
            pytest.skip("the index of packages is out of reach")
        assert done.returncode == 0, done.stderr
        if any(word.startswith("torch==") for word in words):
            assert f"torch=={torch}" in done.stdout
            assert "cuda-bindings==1" in done.stdout


async def test_the_promised_profiler_comes_first(modal, author, tmp_path: Path) -> None:
    """The commands of the recipe that link it, in a folder instead of the root, where both profilers are."""
    spec = ImageSpec("0.1.0")
    links = re.findall(r"^RUN (ln .*)", await recipe(modal, author, spec), re.MULTILINE)
    promised = f"/opt/nvidia/nsight-compute/{spec.nsight_compute}/ncu"
    for place, version in {"/usr/local/cuda/bin/ncu": "2025.3.1", promised: spec.nsight_compute}.items():
        path = tmp_path / place.lstrip("/")
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    for link in links:
        await asyncio.to_thread(shell, re.sub(r"(?<= )/", f"{tmp_path}/", link))
    found = shutil.which("ncu", path=":".join(f"{tmp_path}{folder}" for folder in PATH.split(":")))
    assert found
    assert await asyncio.to_thread(shell, found) == f"{spec.nsight_compute}\n"


def shell(command: str) -> str:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
