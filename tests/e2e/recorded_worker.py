"""A stand-in for the GPU side, and only that: it answers as the worker answered on an H100.

The machines that run these tests have no GPU. What it says of `saxpy` and `matmul` are figures
measured on an NVIDIA H100 80GB HBM3 on 2026-11-21; it compiles nothing and runs nothing. Words in the
source choose what happens: SLOW waits until it is cancelled, BUG is a compile error, CRASH ends the
worker, NEVER launches nothing. Profiles are those of tests/recordings/profiles, for the texts that were
profiled, and so is the run of memory_bound.cu; with COMPILED in one comes what a compiler made, with TWICE that of two instances. COUNTED has the counters of memory_bound, with
FAST half its instructions. Memory checks are
those of tests/recordings/sanitizer, by the name of the file. SHEET and names: a program that launches all of these
kernels; each has the time of `saxpy` and the counters of tests/recordings/profiles/memory_bound. What it says of launch specs is made up from those
figures: SWEEP has three sizes, WRONG a wrong answer, FAST takes 7 % less time, and NOISE 0.4 %.
A program that asks nvidia-smi is told the versions of this Python's torch and Triton, and those that the image of Modal is made with.
With `--no-gpu` it is a machine that has none.
"""

from __future__ import annotations

import base64
import os
import pickle
import re
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "remote"))

from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import AgainstReference, Telemetry, Timing
from orbit_remote.common.requests import Cancel, DriverStart, Job, Locate, Probe, Warm
from orbit_remote.spec import stored_tensors
from orbit_remote.spec.stored_tensors import StoredTensor

DEVICE = c.Device(
    "NVIDIA H100 80GB HBM3", 0, "9.0", driver="580.159.04", multiprocessors=132, sm_clock_mhz=1980,
    memory_clock_mhz=2619, bus_width_bits=5120, l2_bytes=50 << 20,
)  # fmt: skip
SAXPY = c.Launches(
    "_Z5saxpyifPKfPf", "saxpy(int, float, const float *, float *)", (262144, 1, 1), (256, 1, 1),
    Timing(19, 288_032, "in program, n=19", 287_456, 288_608, 0.002, first=291_200), 20,
    registers=16, static_shared=0, dynamic_shared=0,
)  # fmt: skip
NO_GPU = "--no-gpu" in sys.argv
TELEMETRY = Telemetry(12, (1980, 1980, 1980), (2619, 2619, 2619), (41, 42, 42), (240, 310, 350))


def say(event: c.Event) -> None:
    sys.stdout.write(c.encode(event) + "\n")
    sys.stdout.flush()


def finished(run: str, outcome: c.Outcome, **fields: object) -> None:
    say(c.Finished(run, outcome, device=DEVICE, telemetry=TELEMETRY, toolchain={"nvcc": "13.0.88"}, **fields))


def job(request: Job, waiting: set[str]) -> None:
    run, text = request.run, request.text
    say(c.Stage(run, "building", time.time()))
    if "BUG" in text:
        line = next(number for number, line in enumerate(text.split("\n"), 1) if "BUG" in line)
        column = text.split("\n")[line - 1].index("BUG") + 1
        place = c.Place(request.path, line, column, column + 3)
        problem = c.Problem("error", 'identifier "BUG" is undefined', "nvcc", place, "#20")
        say(c.Built(run, (problem,), complete=True))
        finished(run, "compile error", failure=c.Failure("compile error", "does not compile: 1 error"))
        return
    say(c.Built(run, complete=True))
    if request.action not in ("run", "profile", "sanitize"):
        finished(run, "ok")
        return
    if NO_GPU:
        message = "there is no NVIDIA GPU in this machine to run it on"
        remedy = (
            "`orbit-lsp doctor` shows what is missing; registers, occupancy and compiler errors need no GPU"
        )
        say(c.failed(run, c.Failure("infrastructure", message, remedy)))
        return
    say(c.Stage(run, "profiling" if request.action == "profile" else "running", time.time()))
    if "CRASH" in text:
        os._exit(9)
    if "SLOW" in text:
        waiting.add(run)
        return
    if request.action == "profile":
        by_counters(request)
        return
    if request.action == "sanitize":
        by_sanitizer(request)
        return
    if request.start.through == "spec":
        by_spec(request)
        return
    if request.start.through == "contract":
        by_contract(request)
        return
    if request.driver:
        by_driver(request)
        return
    if ran := by_recording(request) or by_dump(request):
        say(ran)
        return
    if "nvidia-smi" in text:
        from importlib.metadata import version  # a fifth of this process's start, and one test asks for it

        versions = f"Version 2025.2.1.0\n{sys.version.split()[0]} {version('torch')} {version('triton')}\n"
        finished(run, "ok", launches=(SAXPY,), run_s=0.47, exit_code=0, stdout=versions)
        return
    say(c.Output(run, "stdout", "no error\n"))
    if names := sheet(text):
        finished(
            run, "ok", launches=tuple(replace(SAXPY, name=name, symbol=name) for name in names), run_s=0.47
        )
        return
    finished(
        run, "ok", launches=() if "NEVER" in text else (SAXPY,), run_s=0.47, exit_code=0, stdout="no error\n"
    )


def by_driver(request: Job) -> None:
    """Each kernel of the project's Python files, as the editor has them, has the time of `saxpy`; NEVER in the driver launches none."""
    folder, start = Path(request.directory or ""), request.start
    assert isinstance(start, DriverStart)
    driver = start.driver
    if driver.kind == "program":
        by_program(request, folder)
        return
    files = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}
    texts = files | start.texts
    launches = tuple(
        replace(SAXPY, name=name, symbol=name, place=c.Place(str(folder / file), number))
        for file, text in sorted(texts.items())
        for number, line in enumerate(text.splitlines(), 1)
        if (name := line.partition("def ")[2].partition("(")[0]).endswith("_kernel")
    )
    launches = () if "NEVER" in texts[driver.file] else launches
    read = {str(folder / file): c.content_hash(text.encode()) for file, text in texts.items()}
    counts = {each.symbol: each.count for each in launches}
    sets = [c.RanSet(f"{driver.id}[{n}]", "passed", seconds, counts) for n, seconds in ((1, 0.2), (2, 0.1))]
    sets = [each for each in sets if each.id in start.sets] or sets
    failure = c.Failure("wrong answer", "AssertionError: 1 != 2") if "FAILS" in texts[driver.file] else None
    finished(
        request.run, failure.category if failure else "ok", failure=failure, launches=launches, run_s=0.6, files=read,
        sets=tuple(sets), stdout=f"{len(sets)} passed\n", captured=taken(request, texts[driver.file]) if start.capture else None,
    )  # fmt: skip


def taken(request: Job, text: str) -> c.Captured:
    """A made-up launch of the kernel; GRAPH in the driver makes it in a CUDA graph, UNLIKE makes one that does not replay."""
    name = str(request.kernel)
    if "GRAPH" in text:
        return c.Captured(
            name, why="it is launched inside a CUDA graph", remedy="name another driver", launch=3, seen=9
        )
    stored = stored_tensors.written({f"{name}.x": StoredTensor("uint8", (1,), b"\7")}, {})
    file = f"softmax{stored_tensors.SUFFIX}"
    made = "x = randn(8)" if "UNLIKE" not in text else "WRONG = 8; x = randn(WRONG)"
    lines = (
        *made.split("; "),
        f"launch {name}[(1,)](x)",
        f'expect x == load("{file}", "{name}.x") as captured',
    )
    return c.Captured(name, lines, file=file, data=codec.packed(stored), launch=3, seen=9, random=("x",))


def by_program(request: Job, folder: Path) -> None:
    """Each kernel of the project's CUDA files has the time of `saxpy`, by its name alone; NEVER in the file with `main` launches none."""
    assert request.driver
    texts = {path: path.read_text() for path in sorted(folder.rglob("*")) if path.suffix in (".cu", ".cuh")}
    names = [name for text in texts.values() for name in re.findall(r"__global__ void (\w+)", text)]
    names = [] if "NEVER" in (folder / request.driver.file).read_text() else names
    launches = tuple(
        replace(SAXPY, name=f"{name}(float *, int)", symbol=f"_Z{len(name)}{name}Pfi") for name in names
    )
    read = {
        str(path): c.content_hash(text.encode()) for path, text in texts.items() if str(path) != request.path
    }
    finished(
        request.run, "ok", launches=launches, run_s=0.6, files=read, stdout=f"{' '.join(request.arguments)}\n"
    )


def by_recording(request: Job) -> c.Finished | None:
    """The recorded run of this very text; None where none was recorded."""
    from tests.recordings import profiled

    if profiled.source_of(profiled.RAN).read_text() != request.text:
        return None
    return replace(profiled.run(request.path), run=request.run)


def by_dump(request: Job) -> c.Finished | None:
    """What became on an H200 of a program whose kernel failed or hung; None of any other."""
    from tests.recordings import crashed

    name = next((name for name in ("scale", "halfcluster") if crashed.source(name) == request.text), None)
    return replace(crashed.report(name, request.path, request.run), device=DEVICE) if name else None


def by_counters(request: Job) -> None:
    """What Nsight Compute said of this very text on the H100; of another text there is no recording."""
    from tests.recordings import profiled

    if "DENIED" in request.text:
        why = (
            "this machine does not permit its counters (ERR_NVGPUCTRPERM); its administrator can permit them"
        )
        none = c.Profile(SAXPY.symbol, SAXPY.name, "times", why, grid=SAXPY.grid, block=SAXPY.block)
        finished(request.run, "ok", launches=(SAXPY,), profiles=(none,))
        return
    if names := sheet(request.text):
        answer, _ = read_report("memory_bound")
        profile = replace(answer.profiles[0], lines=())
        profiles = tuple(replace(profile, name=name, symbol=name) for name in names)
        say(replace(answer, run=request.run, profiles=profiles))
        return
    if "COUNTED" in request.text:
        answer, _ = read_report("memory_bound")
        profile = replace(answer.profiles[0], lines=())
        done = "smsp__inst_executed.sum"
        if "FAST" in request.text:
            half = replace(profile.metrics[done], value=profile.metrics[done].value / 2)
            profile = replace(profile, metrics=profile.metrics | {done: half})
        say(replace(answer, run=request.run, profiles=(profile,)))
        return
    for name in (f"{Path(request.path).stem}.full", profiled.RAN, *profiled.NAMES)[
        request.detail != "full" :
    ]:
        if name not in profiled.NAMES:
            continue
        source = profiled.source_of(name)
        moved = len(request.text) - len(text := request.text.lstrip("\n"))
        if source.read_text() == text.replace("COMPILED ", "").replace("TWICE ", ""):
            packed = base64.b64encode(zlib.compress((profiled.FOLDER / f"{name}.ncu-rep").read_bytes()))
            answer, sass = read_report(name)
            answer = replace(answer, run=request.run, report=packed.decode())
            if moved:  # a notebook's cell, whose first line is its magic
                answer = replace(answer, profiles=tuple(down(each, moved) for each in answer.profiles))
            if "COMPILED" in request.text:
                answer = replace(answer, dumps=compiled(request, answer.profiles[0], sass))
            sys.stdout.write(c.encode(answer).replace(f"/src/{source.name}", request.path) + "\n")
            sys.stdout.flush()
            return
    finished(request.run, "ok")


def down(profile: c.Profile, lines: int) -> c.Profile:
    """The same of a text that begins so many lines lower."""
    moved = tuple(replace(each, line=each.line + lines) for each in profile.lines)
    return replace(profile, lines=moved)


def sheet(text: str) -> list[str]:
    """The names behind SHEET."""
    return text.partition("// SHEET ")[2].partition("\n")[0].split()


def read_report(name: str) -> tuple[c.Finished, str]:
    """What a recorded report says, and the code that ran. With `--read FOLDER` it is read once for all that use that
    folder: what reads reports takes a second to load.
    """
    kept = Path(sys.argv[sys.argv.index("--read") + 1]) / name if "--read" in sys.argv else None
    if kept and kept.exists():
        return pickle.loads(kept.read_bytes())
    from tests import recorded_profiles

    answer = recorded_profiles.finished(name), recorded_profiles.sass(name)
    if kept:
        unfinished = kept.with_name(f"{name}.{os.getpid()}")
        unfinished.write_bytes(pickle.dumps(answer))
        unfinished.replace(kept)
    return answer


def compiled(request: Job, profile: c.Profile, sass: str) -> tuple[c.Dump, ...]:
    """The code that ran, as its report has it; what went before it was not recorded, and is a line that says what it is."""
    triton = request.language == "triton"
    texts = {
        (level, number): f"// the {level} of {profile.symbol}, {number}\n"
        for number in range(1 + ("TWICE" in request.text))
        for level in (("ttir", "ttgir", "llir", "ptx") if triton else ("ptx",))
    }
    texts["sass", 0] = sass
    return tuple(
        c.Dump(
            profile.symbol, profile.name, level, number, {"BLOCK": str(2048 << number)} if triton else {},
            base64.b64encode(zlib.compress(text.encode())).decode(),
        )
        for (level, number), text in texts.items()
    )  # fmt: skip


def by_sanitizer(request: Job) -> None:
    """What compute-sanitizer said on the H100 of the program of this name."""
    from orbit_remote.sanitizer import sanitizer_findings, sanitizer_records
    from tests.recordings import planted

    program = Path(request.path).stem
    problems: list[c.Problem] = []
    for tool in request.tools:
        log = planted.RECORDED / f"{program}.{tool}.txt"
        xml = log.with_suffix(".xml").read_text() if log.with_suffix(".xml").exists() else ""
        records = sanitizer_records.read(xml.replace("/src/sanitizer", str(Path(request.path).parent)), "")
        problems += sanitizer_findings.problems(
            tool, records, lambda file: file if file == request.path else None
        )
    errors = sum(problem.severity == "error" for problem in problems)
    failure = (
        c.Failure("runtime error", f"{errors} faults were found", place=problems[0].place) if errors else None
    )
    say(
        c.Finished(
            request.run,
            "runtime error" if errors else "ok",
            failure,
            problems=tuple(problems),
            device=DEVICE,
            toolchain={"compute-sanitizer": "2025.3.1.0"},
        )
    )


def by_contract(request: Job) -> None:
    def call(name: str, median: float, kernels: int) -> c.Launches:
        timing = Timing(50, median, "cold L2, n=50", spread=0.002)
        return c.Launches(name, name, (0, 0, 0), (0, 0, 0), timing, 50, kernels=kernels)

    mine, other = (
        ("custom_kernel", "ref_kernel") if "def custom_kernel" in request.text else ("ModelNew", "Model")
    )
    check = c.Check(mine, True, elements=1 << 24, error=0.0, rtol=1e-2, atol=1e-2)
    versus = AgainstReference(other, "faster", 0.704, 0.70, 0.71, 40)
    new = c.Point({"version": mine}, "", (call(mine, 3.1e6, 1),), (check,), versus=versus)
    old = c.Point({"version": other}, "", (call(other, 4.41e6, 2),))
    finished(request.run, "ok", launches=new.launches, points=(new, old), run_s=1.2)


def by_spec(request: Job) -> None:
    text = request.text
    factor = 0.93 if "FAST" in text else 0.996 if "NOISE" in text else 1.0
    sizes = [1 << 20, 1 << 24, 1 << 26] if "SWEEP" in text else [1 << 26]
    line = next((number for number, line in enumerate(text.split("\n"), 1) if "expect" in line), None)
    points = tuple(
        point(size, factor, line and c.Place(request.path, line), len(sizes) > 1) for size in sizes
    )
    if "WRONG" not in text:
        finished(request.run, "ok", launches=points[0].launches, points=points, run_s=0.2)
        return
    (right,) = points[0].checks
    wrong = replace(right, passed=False, differing=12, index=(7,), actual="0.5", expected="2.5", error=2.0)
    message = "y[7] is 0.5 and not 2.5; 12 of 67,108,864 elements differ"
    finished(
        request.run, "wrong answer", failure=c.Failure("wrong answer", message), run_s=0.2,
        points=(replace(points[0], launches=(), checks=(wrong,)),),
        problems=(c.Problem("error", message, "orbit", right.place),),
    )  # fmt: skip


def point(size: int, factor: float, expect: c.Place | None, swept: bool) -> c.Point:
    middle = round((4_000 + 284_032 * size / (1 << 26)) * factor)
    samples = tuple(middle + step * middle // 1000 for step in (-2, -1, 0, 1, 2) for _ in range(10))
    cold = Timing(
        50, middle, "cold L2, n=50", middle * 0.998, middle * 1.002, 0.002, samples=samples, stopped="precise"
    )
    launches = replace(
        SAXPY, grid=(size // 256, 1, 1), timing=cold, count=50, warm=replace(cold, label="warm L2, n=50")
    )
    check = c.Check("y == a * x + y", True, expect, size, error=4.8e-7, rtol=1.3e-6, atol=1e-5)
    values = {"n": str(size)} if swept else {}
    return c.Point(values, "", (launches,), (check,), 12.0 * size, 2.0 * size, 8 * size)


def main() -> None:
    waiting: set[str] = set()
    for line in sys.stdin:
        match codec.decode_request(line):
            case Probe(run=run):
                packages = {"torch": "2.11.0", "triton": "3.6.0", "nvidia-ml-py": None}
                say(
                    c.Machine(
                        run,
                        c.RESULT_VERSION,
                        "python",
                        "3.12.3",
                        packages,
                        () if NO_GPU else (DEVICE,),
                        "nvcc",
                        "13.0.88",
                        "g++ 13.3",
                    )
                )
            case Warm(language=language) if "--cache" in sys.argv:
                folder = Path(sys.argv[sys.argv.index("--cache") + 1])
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / "prepared").open("a") as answer:
                    answer.write(f"{language}\n")
            case Cancel(run=run) if run in waiting:
                waiting.discard(run)
                finished(run, "cancelled", failure=c.Failure("cancelled", "cancelled by the user"))
            case Locate(run=run) if run in waiting:
                waiting.discard(run)
                text = "the run was ended after 1.0 s, to see where its kernel was"
                finished(run, "timed out", failure=c.Failure("timed out", text))
            case Job() as request:
                job(request, waiting)
            case _:
                pass


if __name__ == "__main__":
    main()
