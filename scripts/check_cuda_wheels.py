"""Check that the `[cuda]` extra alone is a working compiler: find, compile, link, in a virtual environment of its own.

    python scripts/check_cuda_wheels.py [release of NVIDIA's package cuda-toolkit, such as 13.0.2]

Without a release pip takes the newest that the extra admits, as for a user. Downloads some 130 MB, prints the size of
every wheel, and takes a minute or two. The search path holds the host compiler only, so no other nvcc is used.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.toolchain import build, nvcc
from orbit_remote.toolchain.build_cache import Cache

ROOT = Path(__file__).resolve().parent.parent

SOURCE = """\
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cub/cub.cuh>
#include <thrust/device_vector.h>
__global__ void k(int* p) { cooperative_groups::this_thread_block().sync(); p[0] = 1; }
int main() { thrust::device_vector<int> v(1); k<<<1, 1>>>(thrust::raw_pointer_cast(v.data())); }
"""


def requirement(release: str) -> str:
    """The extra's one requirement, of this release or of any that it admits."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [wanted] = extras["cuda"]
    wanted = wanted.partition(";")[0]
    return re.sub(r"\].*", f"]=={release}", wanted) if release else wanted


async def compile_with(python: Path, folder: Path, action: str) -> build.BuildResult:
    result = nvcc.find(python=str(python))
    if isinstance(result, c.Failure):
        raise SystemExit(f"{result.message}: {result.remedy}")
    print(f"{action}: {result.path}, {result.version}, {result.host_version}")
    job = Job("1", action, "cuda", str(folder / "k.cu"), SOURCE, nvcc=result.path)
    return await build.build(
        job, architecture="sm_90a", started=lambda *_: None, cache=Cache(folder / "cache"), scratch=folder
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        release = sys.argv[1] if len(sys.argv) > 1 else ""
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "download", "-q", "-d", folder / "wheels", requirement(release)], check=True)
        paths = sorted((folder / "wheels").iterdir())
        for wheel in paths:
            print(f"{wheel.stat().st_size / 1e6:8.1f} MB  {wheel.name}")
        print(f"{sum(w.stat().st_size for w in paths) / 1e6:8.1f} MB  in all")
        subprocess.run([*pip, "install", "-q", "--no-deps", *paths], check=True)
        only = folder / "bin"  # a search path without any other nvcc
        only.mkdir()
        for tool in ("gcc", "g++", "sh", "ld", "as", "rm", "cat"):
            if path := shutil.which(tool):
                (only / tool).symlink_to(path)
        os.environ["PATH"] = str(only)
        os.environ.pop("CUDA_HOME", None)
        os.environ.pop("CUDA_PATH", None)
        nvcc.SYSTEM = folder / "none"
        for action in ("compile", "run"):
            result = asyncio.run(compile_with(python, folder, action))
            if result.failure:
                for problem in result.built.problems:
                    print(problem.place, problem.message)
                raise SystemExit(f"{action} failed: {result.failure.message}")
            print(
                f"{action}: {result.built.seconds:.1f} s, {(result.cubin or result.executable).stat().st_size} bytes"
            )


if __name__ == "__main__":
    main()
