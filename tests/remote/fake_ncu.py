"""An `ncu` that is a fake: a script that takes the real command line, runs the program as the real one does, and then does
what a test says.
"""

from __future__ import annotations

import sys
from pathlib import Path

RECORDED = Path(__file__).parent.parent / "recordings" / "profiles"
WAITING = "the stand-in waits"
PROGRESS = '==PROF== Profiling "saxpy" - 0 (1/1): 0%....50%....100% - 19 passes\n'
FAKE = """\
#!/bin/sh
"exec" "{python}" "$0" "$@"
# for a shell the line above starts Python, for Python it is a text: a path with a space can be no #! line
import signal, subprocess, sys
from pathlib import Path

if sys.argv[1] == "--version":
    print("Version {version} (build 1) (public-release)")
    sys.exit()
with open({calls!r}, "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
options = sys.argv[1:]
report = options[options.index("--export") + 1]
log = Path(options[options.index("--log-file") + 1])
program = options[options.index("--export") + 2 :]
status = subprocess.run(program).returncode
failed = f"==ERROR== The application returned an error code ({{status}}).\\n" if status else ""
try:
    log.write_text({log!r} + failed)  # from here on it may be interrupted
    if {waits}:
        print({waiting!r}, flush=True)
        signal.pause()
except KeyboardInterrupt:
    log.open("a").write("==WARNING== Received signal, trying to shutdown target application\\n")
if {recording!r}:
    Path(report).write_bytes(Path({recording!r}).read_bytes()[: {bytes}])
sys.exit(status)
"""


def write(
    folder: Path,
    calls: Path,
    recording: str = "",
    log: str = PROGRESS,
    *,
    version: str = "2025.3.1.0",
    size: int = 1 << 30,
    waits: bool = False,
) -> None:
    """`folder`/ncu, which notes its command lines in `calls`, writes `log`, and copies the first `size` bytes of a
    recorded report to where it is to be. It `waits` until it is interrupted, as when the program hangs after its
    kernel, and prints WAITING once it does.
    """
    folder.mkdir(exist_ok=True)
    file = folder / "ncu"
    source = str(RECORDED / f"{recording}.ncu-rep") if recording else ""
    text = FAKE.format(
        python=sys.executable,
        version=version,
        calls=str(calls),
        log=log,
        recording=source,
        bytes=size,
        waits=waits,
        waiting=WAITING,
    )
    file.write_text(text)
    file.chmod(0o755)
