# Sourced by demo and test: a virtual environment in .venv, downloads retried, versions pinned.
set -euo pipefail
# hundreds of short Python processes: without its bytecode on the disk each would compile the package anew
unset PYTHONDONTWRITEBYTECODE
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }

fail() {
  printf 'orbit-lsp: %s\n' "$*" >&2
  exit 1
}

# The newest of the Pythons on PATH that will do.
find_python() {
  local name
  for name in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  fail "no Python 3.11 or newer on PATH: sudo apt-get install python3 python3-venv"
}

make_venv() {
  command -v g++ >/dev/null || fail "no g++ on PATH, and nvcc needs one: sudo apt-get install g++"
  if [ ! -x .venv/bin/python ]; then
    local python
    python=$(find_python)
    "$python" -c 'import ensurepip' 2>/dev/null || fail "$python has no venv: sudo apt-get install python3-venv"
    "$python" -m venv .venv
  fi
}

# pip, three times at most: a download that breaks off is no reason to fail. Python compiles the modules that are
# imported; pip would compile all of torch, which takes as long as installing it.
install() {
  local try
  for try in 1 2 3; do
    .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt "$@" && return
    [ "$try" = 3 ] || say "the download failed; trying again"
  done
  fail "pip could not install: $*"
}

# A CUDA compiler: the one that is there, else NVIDIA's wheels.
install_nvcc() {
  if command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
    say "CUDA compiler: $(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")"
  else
    say "no nvcc here: installing NVIDIA's wheels (115 MB to download)"
    install -e '.[cuda]'
  fi
}

# An ssh server and shells, for tests that are skipped where they cannot be had: tests/ssh, completion in shells.
install_ssh_and_shells() {
  [ -n "$(command -v sshd /usr/sbin/sshd)" ] && command -v fish >/dev/null && command -v zsh >/dev/null && return
  local as_root=(env DEBIAN_FRONTEND=noninteractive) packages=(openssh-server fish tcsh zsh)
  [ "$(id -u)" = 0 ] || as_root=(sudo -n "${as_root[@]}")
  if command -v apt-get >/dev/null; then
    "${as_root[@]}" apt-get install -y -qq "${packages[@]}" </dev/null >/dev/null 2>&1 && return
    "${as_root[@]}" apt-get update -qq </dev/null >/dev/null 2>&1 || true
    "${as_root[@]}" apt-get install -y -qq "${packages[@]}" </dev/null >/dev/null 2>&1 && return
  fi
  say "apt cannot install ${packages[*]}: the tests that need one which is missing are skipped"
}

# set_up [EXTRAS]: what the checks need, in .venv; then ruff.
set_up() {
  say "installing (torch and triton are the large part)"
  # torch first and by itself: anything that depends on it must not choose another build
  install torch==2.13.0
  # beside pip, which needs one core: the bytecode of what is there
  { .venv/bin/python -m compileall -q orbit_lsp remote; .venv/bin/python -W ignore -c "import torch"; } >/dev/null &
  install -e ".${1:-}" -r requirements-dev.txt
  wait $!
  install_nvcc
  say "ruff"
  .venv/bin/ruff check .
  .venv/bin/ruff format --check .
}

# pytest on all cores, and one worker more: what waits for a process leaves its core to another. Each imports all files of tests,
# and has processes of its own to fork from: 15 s of processor time.
run_tests() {
  local workers=$(($(nproc) + 1))
  # in a new clone once for all of them, else each of them compiles the tests and torch: half a minute of processor time
  [ -d tests/__pycache__ ] || .venv/bin/python -m pytest --collect-only -qq --ignore=tests/editors >/dev/null || true
  pytest -n $((workers < 6 ? workers : 6)) --dist worksteal --durations 10 --durations-min 10 --ignore=tests/editors "$@"
}

# Where FLAKY is a file, as in .ci/run, what failed is tried once more with nothing beside it, so that a busy machine
# does not hide what a change did. What passes then is named in FLAKY, and in the last lines: it is a fault all the same.

# pytest; more than five failures are not tried again.
pytest() {
  local cache status=0 failed
  cache=$(mktemp -d)
  .venv/bin/python -m pytest -o cache_dir="$cache" "$@" || status=$?
  failed=$(grep -s '": true' "$cache/v/cache/lastfailed" | cut -d'"' -f2)
  if [ -n "${FLAKY:-}" ] && [ $status = 1 ] && [ -n "$failed" ] && [ "$(wc -l <<<"$failed")" -le 5 ]; then
    say "tried once more, one after the other"
    .venv/bin/python -m pytest -o cache_dir="$cache" "$@" -n 0 --last-failed && status=0 && echo "$failed" >>"$FLAKY"
  fi
  rm -rf "$cache"
  return $status
}

# twice NAME COMMAND...
twice() {
  local name=$1
  shift
  "$@" && return
  [ -n "${FLAKY:-}" ] || return 1
  say "$name: tried once more"
  "$@" && echo "$name" >>"$FLAKY"
}
