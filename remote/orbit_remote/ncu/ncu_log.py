"""Nsight Compute's own log: how far the tool got, and why it could not read counters.

The log is a file of the tool. It has no output of the user's program.
"""

from __future__ import annotations

import re

from orbit_remote.common.lazy_dataclass import dataclass

_STATUS = re.compile(
    r"^==(?:ERROR|WARNING)== The application returned an error code \((-?\d+)\)", re.MULTILINE
)
_DONE = re.compile(r'^==PROF== Profiling ".*100% - \d+ pass', re.MULTILINE)
_SHUT_DOWN = "Trying to shutdown target application"
_SAID = re.compile(r"^==ERROR== (.+?)\.?$", re.MULTILINE)
_AVAILABLE = re.compile(r"^Available Kernels:\s*\n((?:\s*\d+\. .*\n?)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why there are no counters. `lasting` says that the next try on this machine would end the same way."""

    message: str
    remedy: str
    lasting: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.message}; to enable counters: {self.remedy}" if self.remedy else self.message


PERMISSION = Refusal(
    "the driver denied this user the GPU's performance counters (ERR_NVGPUCTRPERM)",
    "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run the worker with CAP_SYS_ADMIN "
    "(a container: --cap-add=SYS_ADMIN); https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    lasting=True,
)
_REFUSALS: tuple[tuple[str, Refusal], ...] = (
    (r"ERR_NVGPUCTRPERM|does not have permission to access NVIDIA GPU Performance Counters", PERMISSION),
    (r"LibraryNotLoaded|library (?:is|was) not loaded|Failed to load (?:the )?library",
     Refusal("Nsight Compute could not load a library of the driver (LibraryNotLoaded)",
             "give the machine the whole driver: in a container NVIDIA_DRIVER_CAPABILITIES=all; some clouds "
             "do not have what profiling needs", lasting=True)),
    (r"[Ff]ailed to (?:lock|set|control|change).{0,40}clock|clock.{0,60}\b(?:error|code) \(?9\)?",
     Refusal("Nsight Compute failed to control the GPU's clocks, though it was asked to leave them alone",
             "use another version of Nsight Compute")),
    (r"[Dd]river (?:is|was) not compatible|[Dd]river version is insufficient|driver.{0,40}not supported",
     Refusal("this Nsight Compute and the GPU's driver do not fit together",
             "install the Nsight Compute of the driver's CUDA version", lasting=True)),
    (r"[Nn]o (?:compatible|supported) (?:GPU|device)|not supported on this (?:device|GPU)|[Dd]evice.{0,40}not supported",
     Refusal("this Nsight Compute does not know this GPU", "install a newer one", lasting=True)),
    (r"lock file|nsight-compute-lock|driver resource was unavailable",
     Refusal("another profiler is at work: in the program itself, beside it, or one that left its lock file behind",
             "end the other profiler, or remove /tmp/nsight-compute-lock")),
    (r"[Ff]ailed to prepare kernel|Unknown Error on device|Failed to profile",
     Refusal("Nsight Compute failed to prepare the kernel for profiling",
             "profile where Nsight Compute is supported: on some virtual machines and clouds the counters are "
             "not passed through")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Log:
    """A log. `status` is the program's exit code if the log says it. `profiled` counts finished launches."""

    text: str

    @property
    def status(self) -> int | None:
        match = _STATUS.search(self.text)
        return int(match[1]) if match else None

    @property
    def ended_it(self) -> bool:
        """Say whether the tool itself ended the program. Then the exit code is not the program's."""
        return _SHUT_DOWN in self.text

    @property
    def profiled(self) -> int:
        return len(_DONE.findall(self.text))

    @property
    def launched(self) -> tuple[str, ...]:
        """Return the mangled names of the kernels that were launched and not asked for, if the log lists them."""
        match = _AVAILABLE.search(self.text)
        if not match:
            return ()
        return tuple(line.partition(". ")[2].strip() for line in match[1].splitlines() if ". " in line)

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_SAID.findall(self.text)))

    @property
    def refusal(self) -> Refusal | None:
        """Return why counters could not be read, if the log says so. A program that failed is no such reason."""
        text = "\n".join(self.errors)
        for pattern, refusal in _REFUSALS:
            if re.search(pattern, text):
                return refusal
        return None
