"""A `g++` that compiles each of the product's own libraries (`injection.build`) once for all tests of a run, and is the real one for all else.

Each new cache has its own launch recorder, and its own library that counts: two to four seconds of processor time each, in a hundred
tests whose cache must be empty for other reasons. What is compiled is the same as long as options, sources and compiler are, and so
is what the compiler says.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

SCRIPT = """\
#!/bin/sh
compiler={compiler} kept={kept}
case " $* " in
  *" -DORBIT_KERNEL_RECORD="*) ;;
  *) exec "$compiler" "$@" ;;
esac
source='' made='' before=''
for word; do
  case "$word" in *.cpp) source=$word ;; esac
  [ "$before" = -o ] && made=$word
  before=$word
done
folder=$(dirname "$source")
key=$( (for word; do [ "$word" = "$made" ] || printf '%s\\n' "$word"; done; cat "$folder"/*.cpp "$folder"/*.h) | sha256sum | cut -c -20)
if [ ! -f "$kept/$key" ]; then
  exec 9>"$kept/$key.lock" && flock 9  # who asks for it at the same moment waits
fi
if [ ! -f "$kept/$key" ]; then
  "$compiler" "$@" 9>&- 2>"$kept/$key.said" || {{ status=$?; cat "$kept/$key.said" >&2; exit $status; }}
  cat "$kept/$key.said" >&2
  cp "$made" "$kept/$key.$$" && mv "$kept/$key.$$" "$kept/$key"
  exit
fi
cat "$kept/$key.said" >&2
cat "$kept/$key" >"$made"
"""


def real_path() -> str:
    """Return PATH without this `g++`, for a test of the compiler's own faults."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(each for each in folders if Path(each).name != "compilers")


def installed(folder: Path) -> Path | None:
    """Return the folder in `folder` that has this `g++`, to stand first in PATH; None where there is no compiler."""
    beside, compiler = folder / "compilers", shutil.which("g++")
    if compiler is None or (beside / "g++").exists():
        return beside if compiler else None
    beside.mkdir(exist_ok=True)
    own = beside / f"{os.getpid()}"
    own.write_text(SCRIPT.format(compiler=shlex.quote(compiler), kept=shlex.quote(str(beside))))
    own.chmod(0o755)
    own.rename(beside / "g++")
    return beside
