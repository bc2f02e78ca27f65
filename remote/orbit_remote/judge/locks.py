"""Locks this process by Linux's own means: Landlock, seccomp and limits. Linux only.

Landlock holds for threads that begin after it, so it is set before CUDA starts any. All threads get the filter of
system calls at once, after CUDA has made its sockets. A lock that this kernel lacks is named, not assumed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from orbit_remote.common.lazy_dataclass import dataclass

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_MEMORY: Final = 64 << 30
_FILE: Final = 4 << 30
_PROCESSES: Final = 1024
"""Of this user above those that run now; the kernel does not count root's."""


@dataclass(slots=True)
class Locks:
    """The locks in words: which hold, and which do not here."""

    held: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])

    def note(self, what: str, error: str) -> None:
        if error:
            self.missing.append(f"{what} ({error})")
        else:
            self.held.append(what)


def _call(number: int, *arguments: object) -> tuple[int, str]:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    result = int(library.syscall(ctypes.c_long(number), *arguments))
    return result, os.strerror(ctypes.get_errno()) if result < 0 else ""


def _no_new_privileges() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


# -- another user -----------------------------------------------------------------------------------

_NOBODY: Final = 65534


def become_nobody(locks: Locks, folder: Path) -> bool:
    """Become another user, who owns `folder` and nothing else of the machine, if this process is root's. Return False
    if it stays the same user, as when Python itself lies in a folder that others may not enter.
    """
    what = "another user, who owns no file but in its folder"
    closed = next((place for place in (*_PYTHON, str(Path(__file__))) if not _open_to_all(Path(place))), "")
    if os.getuid() or closed:
        locks.missing.append(
            f"{what} ({f'others may not enter the folder of {closed}' if closed else 'for root alone'})"
        )
        return False
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own /proc/self is root's
    locks.held.append(what)
    return True


def _open_to_all(path: Path) -> bool:
    """Say whether others may enter every folder on the way to a path."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


_PYTHON: Final = (
    sys.executable,
    sys.prefix,
    sys.base_prefix,
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
)


# -- limits -----------------------------------------------------------------------------------------


def limit(locks: Locks) -> None:
    """Limit memory, the size of files, and processes. There are no core files."""
    import resource

    wanted = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, _MEMORY),
        (resource.RLIMIT_FSIZE, _FILE),
        (resource.RLIMIT_NPROC, most_processes()),
    )
    for which, most in wanted:
        _, hard = resource.getrlimit(which)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (allowed, allowed))
    locks.held.append("limits of memory and of a file's size")
    locks.note("limit of processes", "root has none" if os.getuid() == 0 else "")


def most_processes() -> int:
    """Return how many processes a candidate's user may have: more than run now."""
    return _PROCESSES + sum(
        _owner(entry) == os.getuid() for entry in os.scandir("/proc") if entry.name.isdigit()
    )


def limit_processes(most: int) -> None:
    """Limit processes once more, because they were counted while others ran that have ended since. No limit grows."""
    import resource

    now, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    least = min(now, most) if now != resource.RLIM_INFINITY else most
    resource.setrlimit(resource.RLIMIT_NPROC, (least, least))


def _owner(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_uid
    except OSError:  # it has ended meanwhile
        return None


# -- files, signals ---------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_RIGHTS: Final = ((1, 13), (2, 14), (3, 15), (5, 16))
"""From this version of Landlock on, how many rights over files there are."""
_FILE_RIGHTS: Final = _EXECUTE | _WRITE | _READ | 1 << 14 | 1 << 15
_NODES: Final = 1 << 6 | 1 << 11
"""Rights that nobody gets: to make devices of characters and of blocks."""
_TCP: Final = 0b11  # bind, connect: from version 4 on
_SIGNALS: Final = 0b10  # to processes outside: from version 6 on


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Below(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


_ETC: Final = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime", "ssl",
)  # fmt: skip
_PROC: Final = (
    "self", "cpuinfo", "meminfo", "stat", "version", "devices", "modules", "filesystems", "driver", "sys",
)  # fmt: skip
"""Of other processes nothing: `environ` is read without tracing."""
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "shm", "dxg")
_WAYS_TO_A_GPU: Final = ("/dev/dxg",)


def devices(*, gpus: bool = True) -> list[str]:
    """Return the files below /dev that are written to: GPUs, and what every program expects."""
    own = [f"/dev/{name}" for name in _DEVICES]
    if not gpus:
        return [name for name in own if name not in _WAYS_TO_A_GPU]
    return own + [str(path) for path in Path("/dev").glob("nvidia*")]


def readable() -> list[str]:
    """Return what Python, torch and the compilers are made of. No home is among it, and no folder of temporary files."""
    places = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/run/nvidia-persistenced"]
    places += [f"/etc/{name}" for name in _ETC] + [f"/proc/{name}" for name in _PROC]
    places += [
        sys.prefix,
        sys.base_prefix,
        sysconfig.get_path("stdlib"),
        str(Path(sys.executable).resolve().parent),
    ]
    places += [place for place in sys.path if place.endswith(("-packages", ".zip", "lib-dynload"))]
    places += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places += [place for place in os.environ.get("PATH", "").split(os.pathsep) if place.startswith("/")]
    return list(dict.fromkeys(place for place in places if os.path.exists(place)))  # noqa: PTH110


NEEDED: Final = ("files", "no network")
"""Locks, by how their sentences begin, without which nobody's code is trusted to be alone."""
FILES: Final = "files: only its own folder is written, and only system, Python and packages are read"


def confine(locks: Locks, reads: Iterable[str], writes: Sequence[str], *, gpus: bool = True) -> None:
    """Confine this process: it cannot open files outside of `reads` and `writes`, nor trace processes outside.
    Without `gpus`, it has no GPU either.
    """
    version, error = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    what = FILES
    if error:
        locks.missing.append(f"{what} (no Landlock: {error})")
        return
    count = max(count for since, count in _RIGHTS if version >= since)
    every = (1 << count) - 1
    attributes = _Ruleset(every, _TCP if version >= 4 else 0, _SIGNALS if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset, error = _call(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if not error:
        for place in reads:
            _allow(ruleset, place, (_EXECUTE | _READ | _LIST) & every)
        for place in (*writes, *devices(gpus=gpus), "/proc/self"):  # CUDA names its threads there
            _allow(ruleset, place, every & ~_NODES)
        _no_new_privileges()
        _, error = _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        os.close(ruleset)
    locks.note(what, error)
    locks.note("signals to processes outside", "" if version >= 6 else f"Landlock {version} knows none")


def _allow(ruleset: int, place: str, rights: int) -> None:
    try:
        folder = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(place):  # noqa: PTH112
            rights &= _FILE_RIGHTS
        rule = _Below(rights, folder)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_uint32(1), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(folder)


# -- system calls -----------------------------------------------------------------------------------

_ARCHITECTURES: Final = {"x86_64": (0xC000003E, 317, 0), "aarch64": (0xC00000B7, 277, 1)}
_REFUSED: Final = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "mount": (165, 40), "umount2": (166, 39),
    "unshare": (272, 97), "setns": (308, 268), "pivot_root": (155, 41), "chroot": (161, 51), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "keyctl": (250, 219), "add_key": (248, 217), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "reboot": (169, 142), "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273),
}  # fmt: skip
"""On x86-64 and on arm64: sockets, other processes, name spaces, the clock, the kernel."""
_OWN: Final = {"kill": (62, 129), "tgkill": (234, 131)}
"""Permitted to this process itself."""
_PRCTL: Final = 157, 167
_PR_SET_CHILD_SUBREAPER: Final = 36
"""Refused: what its processes start stays below it (`process_groups.reap_orphans`)."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse_calls(locks: Locks) -> None:
    """Refuse network and other processes, for every thread of this process and all that it starts."""
    what = "no network, no sockets, no other process, no clock"
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        locks.missing.append(f"{what} (not written for {platform.machine()})")
        return
    audit, seccomp, column = known
    program = _filter(audit, column, os.getpid())
    buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filtered = _FilterProgram(len(program), ctypes.addressof(buffer))
    _no_new_privileges()
    result, error = _call(seccomp, ctypes.c_uint(1), ctypes.c_uint(1), ctypes.byref(filtered))
    locks.note(what, error or (f"thread {result} has another filter" if result else ""))


def _filter(audit: int, column: int, own: int) -> list[tuple[int, int, int, int]]:
    """Return instructions of BPF: (code, jump if true, jump if false, value)."""
    steps = [
        (_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _EPERM),
        (_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _EPERM),
    ]  # fmt: skip
    for numbers in _OWN.values():
        steps += [
            (_EQUAL, 0, 4, numbers[column]), (_LOAD, 0, 0, 16), (_EQUAL, 0, 1, own),
            (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM),
        ]  # fmt: skip
    steps += [
        (_EQUAL, 0, 3, _PRCTL[column]), (_LOAD, 0, 0, 16), (_EQUAL, 0, 1, _PR_SET_CHILD_SUBREAPER), (_RETURN, 0, 0, _EPERM),
        (_LOAD, 0, 0, 0),
    ]  # fmt: skip
    for numbers in _REFUSED.values():
        steps += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _EPERM)]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]
