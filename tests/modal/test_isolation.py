"""What a job's own process can reach of its container, seen by a real program in one.

Its worker is told of a GPU that is not there (worker_told_of_a_gpu.py); everything else is real.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.modal.conftest import TOLD, Author, told_of_a_gpu
from tests.modal_loopback.loopback import Loopback

NOBODY = 65534

# every variable of itself, its parent and every process above; then every socket of Modal's it can find
LOOKS_AROUND = r"""
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    std::string text = all.str();
    for (char& each : text) if (each == 0) each = '\n';
    return text;
}

int main(int, char** arguments) {
    std::printf("uid %d %d\n", getuid(), geteuid());
    for (int pid = getpid(); pid > 1;) {
        std::string folder = "/proc/" + std::to_string(pid);
        std::printf("%s", content(folder + "/environ").c_str());
        struct stat owner = {};
        stat(folder.c_str(), &owner);
        bool readable = open((folder + "/mem").c_str(), O_RDONLY) >= 0;
        std::printf("\nmemory of %d %s\n", owner.st_uid, readable ? "open" : std::strerror(errno));
        std::string status = content(folder + "/stat");
        std::sscanf(status.c_str() + status.rfind(')'), ") %*c %d", &pid);
    }
    for (const auto& each : std::filesystem::directory_iterator(arguments[1])) {
        sockaddr_un where = {AF_UNIX, {}};
        std::strncpy(where.sun_path, (each.path() / "modal.sock").c_str(), sizeof where.sun_path - 1);
        int end = socket(AF_UNIX, SOCK_STREAM, 0);
        bool open = connect(end, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0;
        std::printf("socket %s\n", open ? "open" : std::strerror(errno));
    }
    std::ofstream("/orbit-escape").flush();
    std::ofstream("beside.txt") << "written";
    std::printf("beside %s", content("beside.txt").c_str());
}
"""


def python_for_everybody() -> str:
    """One that another user can start, as the one of Modal's images is; that of the tests may be root's."""
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        command = [python, "-c", "import sys; assert sys.version_info >= (3, 11)"]
        try:
            if python and subprocess.run(command, user=NOBODY, check=False, cwd="/").returncode == 0:
                return python
        except PermissionError:
            continue
    raise AssertionError("no Python 3.11 here that user 65534 can start: install python3 in /usr/bin")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give work to another user")
@pytest.mark.slow
async def test_a_program_has_another_user_and_nothing_of_modals(modal: Loopback, author) -> None:
    shared = modal.folder / "shared"  # under pytest's own folder nobody else gets
    shared.mkdir()
    path = shared / TOLD.name
    shutil.copyfile(TOLD, path)
    python = told_of_a_gpu(shared, python_for_everybody(), path)
    home = {"ORBIT_HOME": str(shared / "orbit"), "ORBIT_PYTHON": str(python)}
    modal.do(lambda world: world.container_env.update(home))
    # /proc has a forked container's environment as it was before the fork: there would be nothing to find
    modal.do(lambda world: setattr(world, "fresh_processes", True))
    item: Author = author()
    finished = await item.finished(
        item.job(text=LOOKS_AROUND, flags=("-std=c++17",), arguments=(str(modal.folder / "containers"),))
    )
    assert finished.outcome == "ok", (finished.failure, modal.state())
    lines = finished.stdout.splitlines()
    assert f"uid {NOBODY} {NOBODY}" in lines
    assert "socket Permission denied" in lines
    assert "socket open" not in lines
    assert "PATH=" in finished.stdout  # it did read its own
    assert not [line for line in lines if "MODAL" in line.upper().partition("=")[0]]
    assert "ak-loopback" not in finished.stdout
    assert "as-loopback" not in finished.stdout
    # the process that signs the events is one of these
    memories = [line for line in lines if line.startswith("memory of ")]
    assert memories[0] == f"memory of {NOBODY} open"  # its own
    assert "memory of 0 Permission denied" in memories
    assert "memory of 0 open" not in memories
    assert "orbit-escape" not in [entry.name for entry in os.scandir("/")]
    assert "beside written" in lines  # beside its source it may write, as at home
