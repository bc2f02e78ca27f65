# pyright: basic
"""The first program of a connection. It is sent as text and has to run in any Python 3.6 or newer; it brings our package here, unless it is here,
and becomes one of its roles.

    bootstrap MARK CHOSEN PYTHON DIGEST ROLE ARGUMENT...

Each line that it prints is MARK, a space, and JSON. With `need` it waits for the size of the archive, a line, and the archive.
"""

import json
import os
import shutil
import sys
import tempfile
import time
import zipfile

LOADER = "import base64,sys,zlib;exec(zlib.decompress(base64.b64decode(sys.argv[1])))"
UNUSED_S = 14 * 86400.0


def main(code, mark, chosen, python, digest, role, *arguments):
    def say(**record):
        os.write(1, (mark + " " + json.dumps(record) + "\n").encode())

    if sys.version_info < (3, 11):
        for minor in () if chosen == "chosen" else (14, 13, 12, 11):
            newer = shutil.which("python3.%d" % minor)
            if newer:
                os.execv(
                    newer,
                    [newer, "-I", "-c", LOADER, code, mark, chosen, newer, digest, role] + list(arguments),
                )
        say(old=".".join(map(str, sys.version_info[:3])), python=sys.executable)
        return
    if sys.platform != "linux":
        say(platform=sys.platform)
        return
    try:
        package = here(home(), digest, say)
    except OSError as error:
        say(error=error.strerror or str(error), number=error.errno, path=str(error.filename or home()))
        return
    say(python=sys.executable)
    python = shutil.which(python) or sys.executable
    program = os.path.join(package, "orbit_remote", "__main__.py")
    more = ["--home", home(), "--python", python]
    os.execv(sys.executable, [sys.executable, "-P", program, role] + more + list(arguments))


def home():
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "orbit-lsp", "ssh")


def here(folder, digest, say):
    packages = os.path.join(folder, "package")
    os.makedirs(packages, exist_ok=True)
    os.chmod(folder, 0o700)
    for name in os.listdir(packages):
        old = os.path.join(packages, name)
        if name != digest and time.time() - os.stat(old).st_mtime > UNUSED_S:
            shutil.rmtree(old, ignore_errors=True)
    package = os.path.join(packages, digest)
    if not os.path.isdir(package):
        say(need=True)
        unpacked = tempfile.mkdtemp(dir=packages)
        try:
            archive = os.path.join(unpacked, "archive")
            with open(archive, "wb") as file:
                copy(file)
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(unpacked)
            os.unlink(archive)
            os.rename(unpacked, package)
        except OSError:
            shutil.rmtree(unpacked, ignore_errors=True)
            if not os.path.isdir(package):  # another connection was not faster
                raise
    os.utime(package)
    return package


def copy(file):
    digits = b""
    while not digits.endswith(b"\n"):
        digits += os.read(0, 1) or sys.exit(1)
    left = int(digits)
    while left:
        piece = os.read(0, min(left, 1 << 16)) or sys.exit(1)
        file.write(piece)
        left -= len(piece)


main(*sys.argv[1:])
