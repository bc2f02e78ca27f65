"""Every cheat of tests/cheats.py at grade `author`, on this machine's NVIDIA GPU: which of them get a score that is not their work's?

    python -P bench/author_cheats.py [--only WORD …] [--timeout 20] [--within 440] [--out FILE.json] [--cpu]

Standard output is a Markdown table with a row for each cheat, printed when it has been answered; all else goes to standard error. The
cheats go one after the other through the routes of `orbit-lsp api`, with a worker of its own. The honest candidate is measured
first and last. Verdicts:

- `caught`: no score, or no better one than the honest candidate's (the 95 % of tests/gpu/test_cheats_gpu.py);
- `not caught`: a better score;
- `no score, but not hindered`: the cheat reached for files, secrets or the network, nothing refused it, and its answer was wrong, as
  the catalogue has it. With a right answer it would have got a score;
- `no verdict`: the engine could not answer (*infrastructure*), or there was no time left.

At this grade nothing keeps a candidate from the machine's files. What two of the cheats leave there is removed after each cheat, and
named in its row. `--cpu` needs no GPU: it carries out the cheats that need none in forks of this process. Nothing is timed
there, so that a right answer has no verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import select
import signal
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from evaluation_gpu import Server, server

from tests import cheats
from tests.cheats import Cheat

BETTER: Final = 0.95
REACHES: Final = (22, 23)
"""Kinds that reach for something outside their process: files, secrets, packages, the network."""
LATE_S: Final = 40.0
"""How much longer than its time-out an answer may take: a template that hangs is given up after 20 s."""
SHOWN: Final = 90
HEAD: Final = "| kind | cheat | answer at grade `author` | verdict |\n|---|---|---|---|"


@dataclass(frozen=True)
class Answer:
    """`ns` is the score, None if the cheat got no score; `left` is what the cheat changed on the machine."""

    outcome: str
    message: str = ""
    ns: float | None = None
    gpu: str = ""
    left: str = ""

    def shown(self, honest_ns: float | None) -> str:
        text = self.outcome
        if self.ns is not None:
            text += f", {self.ns / 1e3:.1f} µs"
            if honest_ns:
                text += f" (its work takes {honest_ns / 1e3:.1f} µs)"
        elif self.message:
            words = self.message.removeprefix(f"{self.outcome}: ").partition("\n")[0].replace("|", "\\|")
            if self.outcome == "wrong answer":  # how many elements differ is another number in each run
                words = words.partition("; ")[0]
            text += f": {words if len(words) <= SHOWN else words[: SHOWN - 1] + '…'}"
        return f"{text}; {self.left}" if self.left else text


def verdict(cheat: Cheat, answer: Answer, honest_ns: float | None) -> str:
    if answer.outcome in ("infrastructure", "cancelled", "not run"):
        return "no verdict"
    if answer.outcome != "ok":
        reached = cheat.number in REACHES and answer.outcome == "wrong answer"
        return "no score, but not hindered" if reached else "caught"
    if answer.ns is None or honest_ns is None:
        return "no verdict"
    return "caught" if answer.ns > BETTER * honest_ns else "not caught"


class Evaluations:
    """Answers of a server that is started anew where it gave none."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._open = contextlib.AsyncExitStack()
        self._server: Server | None = None

    async def answer(self, cheat: Cheat) -> Answer:
        try:
            async with asyncio.timeout(self._timeout_s + LATE_S):
                if self._server is None:
                    self._server = await self._open.enter_async_context(server(self._folder))
                body = await self._server.evaluate(
                    cheat.reference, cheat.text("cuda"), grade="author", timeout=self._timeout_s
                )
        except Exception as error:  # noqa: BLE001 - the next cheat gets another server
            await self.close()
            late = isinstance(error, TimeoutError)
            why = "the engine gave no answer in time" if late else f"{type(error).__name__}: {error}"
            return Answer("infrastructure", why)
        return read(body)

    async def close(self) -> None:
        self._server = None
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LATE_S):
                await self._open.aclose()
        self._open = contextlib.AsyncExitStack()


def read(body: dict[str, Any]) -> Answer:
    """Read the body of the server's answer."""
    result: dict[str, Any] = body.get("kernel_exec_result") or {}
    known: dict[str, Any] = result.get("metadata") or {}
    outcome = str(known.get("outcome") or body.get("outcome") or body.get("status"))
    message = result.get("validation_error") or result.get("compilation_error") or body.get("error") or ""
    stats: dict[str, float | None] = result.get("runtime_stats") or {}
    median = stats.get("median")
    ns = 1e6 * median if outcome == "ok" and median is not None else None
    return Answer(outcome, str(message), ns, str(known.get("gpu_type") or ""))


# -- without a GPU ----------------------------------------------------------------------------------


def on_the_cpu(cheat: Cheat, timeout_s: float) -> Answer:
    from orbit_remote.child.harness import harness_job
    from orbit_remote.common import codec
    from orbit_remote.common import messages as c
    from orbit_remote.common.requests import ContractStart, Job
    from orbit_remote.recording import recorder

    def work(job: Job) -> str:
        return c.encode(harness_job.check_and_time(job, lambda _: None, recorder.Nothing(), device="cpu"))

    with tempfile.TemporaryDirectory() as folder:
        job = cheats.job_of(Path(folder), cheat.text("cpu"), cheat.reference)
        job = replace(job, start=ContractStart("author"))
        text = in_forks(lambda: work(job), timeout_s)
    if text is None:
        return Answer("timed out", f"no answer within {timeout_s:g} s")
    try:
        finished = codec.decode_event(json.loads(text.rpartition("\n")[2]))
    except ValueError:
        finished = None
    if not isinstance(finished, c.Finished):
        return Answer("runtime error", "it ended without an answer")
    return Answer(finished.outcome, finished.failure.message if finished.failure else "")


def in_forks(work: Callable[[], str], limit_s: float) -> str | None:
    """What it returns, in a process whose parent may be killed too; None after `limit_s`. All that it started is ended."""
    ours, theirs = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.setsid()
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):  # our own output is the table
                os.dup2(nothing, stream)
            try:
                os.write(theirs, f"\n{work()}".encode())
            finally:
                os._exit(0)
        os.close(theirs)
        os.wait()
        os._exit(0)
    os.close(theirs)
    ends, text = time.monotonic() + limit_s, b""
    try:
        while select.select([ours], [], [], max(0.0, ends - time.monotonic()))[0]:
            chunk = os.read(ours, 1 << 16)
            if not chunk:
                return text.decode(errors="replace")
            text += chunk
        return None
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent, signal.SIGKILL)
        os.waitpid(parent, 0)


# -- what is left behind ----------------------------------------------------------------------------


class Machine:
    """Remembers how the two files were that cheats of the catalogue write, to find out what a cheat changed and undo it."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("torch")
        self._torch = Path(found.origin) if found and found.origin else None
        self._was = self._torch.stat() if self._torch else None
        self._installed = Path(sysconfig.get_path("purelib"), "orbit_cheat.py")

    def restored(self) -> str:
        """What was changed, in words; it is as it was now."""
        left: list[str] = []
        if self._torch and self._was and self._torch.stat().st_size != self._was.st_size:
            os.truncate(self._torch, self._was.st_size)  # the cheat only appends
            os.utime(self._torch, ns=(self._was.st_atime_ns, self._was.st_mtime_ns))
            left.append("it has changed a file of torch")
        if self._installed.exists():
            self._installed.unlink()
            left.append("it has installed a module")
        return " and ".join(left)


# -- the table --------------------------------------------------------------------------------------


def row(cheat: Cheat, answer: Answer, honest_ns: float | None) -> str:
    return (
        f"| {cheat.number} | {cheat.name} | {answer.shown(honest_ns)} | {verdict(cheat, answer, honest_ns)} |"
    )


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def measure(options: argparse.Namespace) -> None:
    wanted = [
        cheat
        for cheat in cheats.CHEATS
        if (not options.cpu or cheat.on == "both")
        and (not options.only or any(word in f"{cheat.number}: {cheat.name}" for word in options.only))
    ]
    began, machine = time.monotonic(), Machine()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "TORCH_EXTENSIONS_DIR"):
            os.environ[variable] = str(Path(folder, variable.lower()))
        evaluations = Evaluations(Path(folder), options.timeout)

        async def answered(cheat: Cheat) -> Answer:
            if options.cpu:
                return replace(on_the_cpu(cheat, options.timeout), left=machine.restored())
            return replace(await evaluations.answer(cheat), left=machine.restored())

        try:
            if options.cpu:
                from orbit_remote.child import child_main

                child_main.warm_up()  # once, for all forks
            honest = await answered(cheats.HONEST)
            note(f"{honest.gpu or 'no GPU'}; the honest candidate: {honest.shown(None)}")
            if honest.outcome != "ok":
                sys.exit("the honest candidate is not right, so the cheats cannot be judged")
            rows: list[tuple[Cheat, Answer]] = []
            print(HEAD, flush=True)
            for cheat in wanted:
                late = time.monotonic() - began > options.within
                answer = Answer("not run", "no time was left") if late else await answered(cheat)
                rows.append((cheat, answer))
                print(row(cheat, answer, honest.ns), flush=True)
            again = await answered(cheats.HONEST)
        finally:
            await evaluations.close()
    note(f"the honest candidate at the end: {again.shown(None)}")
    counts = Counter(verdict(cheat, answer, honest.ns) for cheat, answer in rows)
    note(f"{len(rows)} cheats: {dict(counts)}; {time.monotonic() - began:.0f} s")
    if options.out:
        told = [
            {"kind": cheat.number, "cheat": cheat.name, "verdict": verdict(cheat, answer, honest.ns)} | asdict(answer)
            for cheat, answer in rows
        ]  # fmt: skip
        known = {"gpu": honest.gpu, "honest_ns": [honest.ns, again.ns], "cheats": told}
        options.out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="cheats whose kind and name hold one of these"
    )
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for each cheat")
    parser.add_argument("--within", type=float, default=440.0, help="seconds, after which no cheat is begun")
    parser.add_argument("--out", type=Path, help="the same as JSON, with whole messages")
    parser.add_argument("--cpu", action="store_true")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
