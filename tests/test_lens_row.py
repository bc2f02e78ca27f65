"""The row of lenses above a kernel and the hint on its line: the answer first, in the columns that there are."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from lsprotocol import types as lsp

from orbit_lsp.runs import summary
from orbit_lsp.server.language_server import abilities_of
from orbit_lsp.state import fitting
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import FailedRun
from orbit_lsp.state.session import Session
from orbit_lsp.views import hints, hover, kernel_actions, lenses
from orbit_lsp.views.answer import place
from orbit_lsp.views.spec import spec_drafts
from orbit_remote.common import messages as c
from orbit_remote.common.measure import Regression
from orbit_remote.common.measurements import Metric
from tests.editors.signatures import IN_VIEW, NAMES, SHEET
from tests.settings_check import settings_of_values
from tests.test_spec_views import Spec, point
from tests.test_views import H100, LAUNCHES, PTXAS, SAXPY, URI, Bench

LOCAL = c.Machine("p", c.RESULT_VERSION, "python", "3.12", devices=(H100,))
MEMORY_BOUND = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 29.0,
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 79.0,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 79.0,
}


def row(bench: Bench) -> str:
    """As VS Code and Neovim join it, with one time of day."""
    text = " | ".join(lens.command.title for lens in lenses.lenses(bench.session, bench.uri) if lens.command)
    return re.sub(r"\d\d:\d\d:\d\d", "14:05:07", text)


def profiled(bench: Bench, *names: str) -> Bench:
    from orbit_lsp.runs import profile_filing
    from orbit_lsp.specs import job_builder

    counters = {name: Metric(name, value, "%") for name, value in MEMORY_BOUND.items()}
    profiles = tuple(
        c.Profile(LAUNCHES.symbol, name, "counters", grid=(4, 1, 1), block=(256, 1, 1), metrics=counters)
        for name in names or ("saxpy",)
    )
    frozen = bench.session.freeze(bench.uri)
    assert frozen
    job = job_builder.make(bench.session, frozen, "profile", "r3")
    ended = c.Finished("r3", "ok", profiles=profiles, device=H100)
    target = KernelId(bench.uri, profiles[0].name)
    profile_filing.finished(bench.session, frozen, job, {target}, None, ended, None)
    return bench


def local(text: str = SAXPY, **settings: object) -> Bench:
    bench = Bench(text, **settings)
    bench.session.setup.machine = LOCAL
    return bench


def slower(bench: Bench) -> Bench:
    target = KernelId(URI, "saxpy")
    digest = bench.session.results.runs[target].digest
    bench.session.results.regressions[target] = (digest, Regression(0.124, 3))
    return bench


def failed(message: str, outcome: c.Outcome = "runtime error") -> Bench:
    return local().ran(LAUNCHES).ran(outcome=outcome, failure=c.Failure(outcome, message))


@pytest.mark.parametrize(
    ("bench", "expected"),
    [
        (local(), "▶ Run on H100 80GB HBM3 | Profile"),
        (local().ran(LAUNCHES), "⏱ 288 µs ±0.2% | ▶ Run on H100 80GB HBM3 | Profile"),
        (profiled(local().ran(LAUNCHES)), "⏱ 288 µs ±0.2% · memory 79% of peak | ▶ Run | Profile"),
        (slower(local().ran(LAUNCHES)), "⏱ 288 µs ±0.2% · +12% since 3 edits | ▶ Run | Profile"),
        (slower(profiled(local().ran(LAUNCHES))), "⏱ 288 µs ±0.2% · +12% · memory 79% of peak | ▶ Run | Profile"),
        (local().ran(LAUNCHES).typed(1, 9, 10, "1"), "⏱ 288 µs ±0.2% · edited since | ▶ Run | Profile"),
        (local().ran(), "⏱ not launched | ▶ Run on H100 80GB HBM3 | Profile"),
        (failed("CUDA_ERROR_ILLEGAL_ADDRESS: a kernel read …"), "✗ illegal address · 14:05:07 | ▶ Run | Profile"),
        (failed("main ended with exit code 3"), "✗ exit code 3 · 14:05:07 | ▶ Run on H100 80GB HBM3 | Profile"),
        (failed("ValueError: no such shape"), "✗ ValueError · 14:05:07 | ▶ Run on H100 80GB HBM3 | Profile"),
        (failed("the run was ended at its limit", "timed out"), "✗ timed out · 14:05:07 | ▶ Run on H100 80GB HBM3 | Profile"),
        (failed("no nvcc", "infrastructure"), "⚠ could not run · 14:05:07 | ▶ Run | Profile"),
        (failed("1 error", "compile error").typed(1, 9, 10, "1"), "✗ compile error · 14:05:07 · edited since | ▶ Run | Profile"),
        (failed("by the user", "cancelled"), "⏱ 288 µs ±0.2% | ▶ Run on H100 80GB HBM3 | Profile"),
        (failed("CUDA_ERROR_ASSERT: …").ran(LAUNCHES), "⏱ 288 µs ±0.2% | ▶ Run on H100 80GB HBM3 | Profile"),
        (local(lens={"parts": ["run", "outcome"]}).ran(LAUNCHES), "▶ Run on H100 80GB HBM3 | ⏱ 288 µs ±0.2%"),
        (local(lens={"parts": ["verdict", "run"]}).ran(LAUNCHES), "▶ Run on H100 80GB HBM3"),
        (Bench().ran(LAUNCHES), "⏱ 288 µs ±0.2% | ▶ Run | Profile"),
    ],
)  # fmt: skip
def test_the_row(bench: Bench, expected: str) -> None:
    assert row(bench) == expected
    assert len(expected) <= fitting.LENS


def test_a_failure_gives_way_to_the_result_of_the_text_as_it_is() -> None:
    bench = local().ran(LAUNCHES).typed(1, 9, 10, "1")
    bench.ran(outcome="runtime error", failure=c.Failure("runtime error", "CUDA_ERROR_ILLEGAL_ADDRESS: …"))
    assert row(bench).startswith("✗ illegal address · 14:05:07 | ")
    assert row(bench.typed(1, 9, 10, "0")).startswith("⏱ 288 µs ±0.2% | ")
    assert row(bench.typed(1, 9, 10, "1")).startswith("✗ illegal address · 14:05:07 | ")


def test_a_failure_keeps_its_mark_where_there_is_little_room() -> None:
    bench = debuggable(numpy="2.2.6", debugpy="1.8.22")
    bench.session.results.failures[KernelId(bench.uri, "ones_kernel")] = FailedRun("", 0.0, "compile error")
    assert row(bench) == "✗ compile error · edited since | ▶ Run | Profile | Debug"


def test_a_message_ends_in_one_full_stop() -> None:
    assert summary.explained(c.Failure("compile error", "'f' is no function.", "nothing was run")) == (
        "'f' is no function. nothing was run"
    )


def test_without_a_gpu_and_without_an_account_no_gpu_is_named() -> None:
    bench = Bench()
    bench.session.setup.machine = replace(LOCAL, devices=())
    assert row(bench) == "▶ Run (choose a GPU) | Profile"
    bench.session.setup.modal_account = True
    assert row(bench) == "Modal GPU: H100 (change) | ▶ Run on H100 | Profile"


@pytest.mark.parametrize(
    ("settings", "chosen", "title"),
    [
        ({}, True, "▶ Run on H100 (no Modal token)"),
        ({"gpu": "L4"}, False, "▶ Run on L4 (no Modal token)"),
        ({"gpu": "L4", "runner": "local"}, True, "▶ Run on L4 (runner is local)"),
        ({"gpu": "RTX 4090"}, True, "▶ Run (choose a GPU)"),
        ({"runner": "modal"}, False, "▶ Run (no Modal token)"),
        ({"gpu": "L4", "runner": "modal"}, False, "▶ Run on L4 (no Modal token)"),
    ],
)
def test_a_chosen_gpu_stands_in_the_lens_before_there_is_a_token(
    settings: dict[str, object], chosen: bool, title: str
) -> None:
    bench = Bench()
    bench.session.setup.machine = replace(LOCAL, devices=())
    bench.session.setup.settings = settings_of_values(settings)
    bench.session.setup.gpu_chosen = chosen
    assert (
        row(bench).removeprefix("Modal GPU: L4 (change) | ").removeprefix("Modal GPU: H100 (change) | ")
        == f"{title} | Profile"
    )


def test_twenty_signatures_have_time_outcome_verdict_and_commands_in_sixty_columns() -> None:
    bench = local(SHEET).ran(*(replace(LAUNCHES, name=name, symbol=name) for name in NAMES), target="k0")
    profiled(bench, *NAMES)
    rows: dict[int, list[str]] = {}
    for lens in lenses.lenses(bench.session, bench.uri):
        assert lens.command
        rows.setdefault(lens.range.start.line, []).append(lens.command.title)
    assert len(rows) == len(NAMES)
    for titles in map(" | ".join, rows.values()):
        assert len(titles) <= fitting.LENS
        assert [what for what, texts in IN_VIEW.items() if not any(text in titles for text in texts)] == []


@pytest.mark.parametrize("has_lens", [True, False])
def test_no_hint_is_longer_than_forty_columns_and_without_lenses_each_is_at_its_signature_or_names_its_kernel(
    has_lens: bool,
) -> None:
    bench = local(SHEET).ran(*(replace(LAUNCHES, name=name, symbol=name) for name in NAMES), target="k0")
    profiled(bench, *NAMES).built(*(replace(PTXAS, name=name, symbol=name) for name in NAMES))
    bench.session.client.draws_lenses = has_lens
    shown = hints.hints(bench.session, bench.uri, 0, 999)
    assert len(shown) == len(NAMES)
    kernels = [kernel for _, kernel, _ in bench.session.kernels(bench.uri)]
    document = bench.session.files[bench.uri].document
    for inlay_hint, kernel in zip(shown, kernels, strict=True):
        label = str(inlay_hint.label)
        own = kernel.line <= inlay_hint.position.line <= place.signature_end(document, kernel)
        assert len(label) <= fitting.HINT + (0 if own else len(f"{kernel.name}: "))
        assert own or label.startswith(f"{kernel.name}: ")
        if not has_lens:
            assert own or inlay_hint.position.character + 1 + len(label) <= 80
            assert "288 µs" in label
            assert "memory 79%" in label


def test_without_lenses_the_hint_of_a_checked_run_has_its_verdict() -> None:
    bench = Spec().answered(point())
    bench.session.client.draws_lenses = False
    assert hint(bench) == "✓ 288 µs · 2.80 TB/s (83%) · occ ≤100%"
    profiled(bench)
    assert hint(bench) == "✓ 288 µs ±0.2% · 2.80 TB/s · memory 79%"


LONG = "__global__ void saxpy(const float* __restrict__ input, float* __restrict__ output, int n)"


@pytest.mark.parametrize(
    ("text", "has_room", "line"),
    [
        ("__global__ void saxpy(int n) {\n  f();\n}\n", True, 0),
        (f"{LONG}\n{{\n  f();\n}}\n", True, 1),
        (
            "__global__ void saxpy(const float* a,\n                     int n /*{*/) {\n  f();\n}\n",
            True,
            1,
        ),
        ("__global__ void saxpy(const float* a,\n    int n // of all {\n    )\n{\n  f();\n}\n", True, 3),
        ("template <typename T>\n" + LONG + " {\n  f();\n}\n", True, 1),
        ("template <typename T>\n" + LONG + " {\n  f();\n}\n", False, 0),
        (LONG + " {\n  f();\n  g();\n}\n", False, 0),
        (LONG + " {}\n", False, 0),
        ("\n" + LONG + " {\n  f();\n}\n", False, 0),
        ("// doubles\n" + LONG + " {\n  f();\n}\n", False, 0),
        ("int a;\n" + LONG + " {\n  f();\n}\n", False, 1),
        ("int a;\n// orbit: expect y\n" + LONG + " {\n  f();\n}\n", False, 2),
        ("\n// orbit: n = 1\n// orbit: expect y\n" + LONG + " {\n  f();\n}\n", False, 0),
        ("// doubles\n// orbit expect y\n// // orbit: expect y\n//! Orbit: n = 1\n" + LONG + " {\n  f();\n}\n", False, 0),
        ("// orbit: n = 1\n" + LONG + " {\n  f();\n}\n", False, 1),
    ],
)  # fmt: skip
def test_the_hint_stands_where_there_is_room(text: str, has_room: bool, line: int) -> None:
    """On a line of the signature, else with the kernel's name; never on a line of the body or of a launch spec."""
    bench = Bench(text)
    ((_, kernel, _),) = bench.session.kernels(URI)
    own = line >= kernel.line
    shown = place.line(bench.session.files[URI].document, kernel, has_room=has_room)
    assert shown == (line, "" if own else "saxpy: ")


LENSES = lsp.CodeLensClientCapabilities()
REFRESHED = lsp.CodeLensWorkspaceClientCapabilities(refresh_support=True)


@pytest.mark.parametrize(
    ("name", "document", "workspace", "shown"),
    [
        ("Neovim", LENSES, REFRESHED, (1, "⏱ 288 µs ±0.2% · no counters · occ ≤75%")),
        # lsp-mode 10.0.0, which announces the refresh alone
        ("emacs", None, REFRESHED, (1, "⏱ 288 µs ±0.2% · no counters · occ ≤75%")),
        # these two list lenses in a menu, and draw a note in a row of its own; Kate 26.08 has no name, and shows a list of notes
        ("vim-lsp", LENSES, None, (1, "⏱ 288 µs ±0.2% · memory 79% · occ ≤75%")),
        ("Vim", LENSES, None, (1, "⏱ 288 µs ±0.2% · memory 79% · occ ≤75%")),
        ("", None, None, (1, "⏱ 288 µs ±0.2% · memory 79% · occ ≤75%")),
        ("helix", None, None, (0, "saxpy: ⏱ 288 µs ±0.2% · memory 79% · occ ≤75%")),
    ],
)
def test_the_hint_has_what_no_lens_of_the_client_shows_and_stands_where_it_is_drawn(
    name: str,
    document: lsp.CodeLensClientCapabilities | None,
    workspace: lsp.CodeLensWorkspaceClientCapabilities | None,
    shown: tuple[int, str],
) -> None:
    offered = lsp.ClientCapabilities(
        text_document=lsp.TextDocumentClientCapabilities(code_lens=document),
        workspace=lsp.WorkspaceClientCapabilities(code_lens=workspace),
    )
    asked = lsp.InitializeParams(capabilities=offered, client_info=lsp.ClientInfo(name))
    bench = profiled(local("// doubles\n" + LONG + " {\n  f();\n}\n").ran(LAUNCHES, target="saxpy"))
    bench.session.client = abilities_of(asked, "utf-16")
    (found,) = hints.hints(bench.session, bench.uri, 0, 99)
    assert (found.position.line, found.label) == shown


def test_a_hint_above_the_signature_names_its_kernel() -> None:
    bench = Bench("// doubles\n" + LONG + " {\n  f();\n}\n").built(PTXAS)
    bench.session.client.draws_lenses = False
    assert hint(bench).startswith("saxpy: occ 75%")


def test_in_a_narrow_decorator_of_python_a_hint_names_its_kernel() -> None:
    arguments = ", ".join(f"argument_{number}" for number in range(9))
    bench = Bench(f"import triton\n@triton.jit\ndef saxpy({arguments}):\n    f()\n", "file:///src/k.py")
    ((_, kernel, _),) = bench.session.kernels(bench.uri)
    assert place.line(bench.session.files[bench.uri].document, kernel, has_room=False) == (1, "saxpy: ")


def test_a_python_signature_ends_at_its_colon() -> None:
    text = "import triton\n@triton.jit\ndef saxpy(x: int,\n          n):\n    f()\n"
    bench = Bench(text, "file:///src/k.py")
    ((_, kernel, _),) = bench.session.kernels(bench.uri)
    assert place.line(bench.session.files[bench.uri].document, kernel, has_room=True) == (3, "")


SCRIPT = """\
import cupy
k = cupy.RawKernel(r'''
extern "C" __global__ void k(
    float* x) {
}''', 'k')
"""


def test_a_kernel_in_a_string_of_a_script_is_run_and_its_signature_ends_at_its_brace() -> None:
    bench = Bench(SCRIPT + "k((1,), (32,), (x,))\n", "file:///src/k.py")
    bench.session.setup.machine = LOCAL
    assert row(bench) == "▶ Run on H100 80GB HBM3 | Profile"
    bench.ran(replace(LAUNCHES, name="k", place=c.Place("/src/k.py", 3)), target="k")
    ((_, kernel, _),) = bench.session.kernels(bench.uri)
    assert place.line(bench.session.files[bench.uri].document, kernel, has_room=True) == (3, "")
    assert "µs" in row(bench)
    assert [action.title for action in lenses.actions(bench.session, bench.uri, 3, 3)] == [
        "▶ Run on H100 80GB HBM3 (k)", "Profile (k)",
    ]  # fmt: skip
    assert row(Bench(SCRIPT, "file:///src/k.py")) == ""
    assert "only CUDA and Triton kernels have launch specs" in spec_drafts.none(
        bench.session, bench.uri, kernel
    )


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(80, "first, long · second, long · filler"), (30, "first, long · second, long"), (20, "first, long · second"), (15, "first · second"), (8, "first"), (4, "fir…")],
)  # fmt: skip
def test_what_matters_least_is_left_out_first(columns: int, expected: str) -> None:
    parts = [
        *Part.of(0, "first, long", "first"),
        *Part.of(1, "second, long", "second"),
        *Part.of(fitting.FILLER, "filler"),
        *Part.of(2, ""),
    ]
    assert fitting.fit(parts, columns) == expected


def test_the_figures_are_of_the_instance_that_was_launched() -> None:
    small, wide = replace(PTXAS, symbol="small", registers=24), replace(PTXAS, symbol="wide", registers=168)
    bench = Bench(lens={"parts": ["run"]}, hints={"measured": False}).built(small, wide)
    assert hint(bench) == "occ 12.5% · 168 regs · 1 of 2 instances"
    bench.ran(replace(LAUNCHES, symbol="small"))
    assert hint(bench).endswith("24 regs · sm_90a")


def test_the_hint_of_a_triton_kernel_says_what_its_figures_are_of() -> None:
    text = "import triton\n@triton.jit\ndef saxpy(x, BLOCK: tl.constexpr):\n    f()\n"
    guessed = replace(PTXAS, static_shared=8, constants={"BLOCK": "64 (assumed)", "x": "*fp32 (assumed)"})
    bench = Bench(text, "file:///src/k.py").built(guessed)
    assert hint(bench) == "occ ≤75% · 40 regs · BLOCK=64 assumed"
    tuned = [replace(PTXAS, registers=40 + warps, constants={"num_warps": str(warps)}) for warps in (4, 8)]
    bench = Bench(text, "file:///src/k.py").built(*tuned)
    assert hint(bench) == "occ ≤62.5% · 48 regs · 1 of 2 configs"


def test_of_two_architectures_the_hint_names_the_one_that_its_figures_are_of() -> None:
    """One instance is no choice among several."""
    older = replace(PTXAS, architecture="sm_80", registers=48)
    bench = Bench().built(PTXAS, older)
    assert hint(bench) == "occ 62.5% (regs) · 48 regs · sm_80"


def test_static_shared_memory_goes_before_the_smallest_block_of_the_occupancy() -> None:
    bench = Bench("__global__ void saxpy(int n, float* y) { y[n] = 0; }\n")
    assert hint(bench.built(PTXAS)) == "occ 75% from 64 threads · 40 regs"
    assert hint(bench.built(replace(PTXAS, static_shared=4096))) == "occ ≤75% · 40 regs · 4 KiB shared"


def test_each_of_a_lines_lenses_begins_a_column_later() -> None:
    """Neovim sorts them by column, and equal ones in any order."""
    shown = lenses.lenses(*((bench := profiled(local())).session, bench.uri))
    starts = [(lens.range.start.line, lens.range.start.character) for lens in shown]
    assert starts == [(0, 0), (0, 1), (0, 2)]


def hint(bench: Bench) -> str:
    (inlay_hint,) = hints.hints(bench.session, bench.uri, 0, 99)
    return str(inlay_hint.label)


def test_a_kernel_of_which_nothing_is_known_but_its_failure_has_a_hover() -> None:
    failure = c.Failure("compile error", 'saxpy.cu does not compile (1 error): saxpy.cu:2: expected a ";"')
    bench = local().ran(outcome="compile error", failure=failure)
    shown = hover.hover(bench.session, bench.uri, 0, markdown=False)
    assert shown
    assert isinstance(shown.contents, lsp.MarkupContent)
    title, *lines = shown.contents.value.splitlines()
    assert title.startswith("saxpy: ✗ compile error · ")
    assert lines == ['  saxpy.cu:2: expected a ";"']


def test_a_failure_of_the_compiler_ends_with_the_next_build_and_others_with_the_next_run() -> None:
    bench = failed("1 error", "compile error")
    target = KernelId(URI, "saxpy")
    assert isinstance(bench.session.results.failures[target], FailedRun)
    compiled(bench)
    assert target not in bench.session.results.failures
    bench = failed("main ended with exit code 3")
    compiled(bench)
    assert target in bench.session.results.failures


def compiled(bench: Bench) -> None:
    from orbit_lsp.runs import result_filing
    from orbit_lsp.specs import job_builder

    frozen = bench.session.freeze(bench.uri)
    assert frozen
    job = job_builder.make(bench.session, frozen, "compile", "r4")
    result_filing.finished(bench.session, frozen, job, set(), None, c.Finished("r4", "ok"))


TRITON = """\
import triton
import triton.language as tl

# orbit: n = 64; out = empty(n)
# orbit: launch ones_kernel[(1,)](out, n)
# orbit: expect out == 1
@triton.jit
def ones_kernel(out, n: tl.constexpr):
    tl.store(out + tl.arange(0, n), 1.0)
"""


def debuggable(*, restricted: bool = False, **packages: str) -> Bench:
    bench = Bench(TRITON, "file:///k.py", modal={"restricted": restricted})
    bench.session.setup.machine = replace(LOCAL, packages=packages)
    return bench


def test_debug_stands_beside_a_triton_kernel_where_its_packages_are_there() -> None:
    both = {"numpy": "2.2.6", "debugpy": "1.8.22"}
    assert row(debuggable(**both)).endswith("| Profile | Debug")
    assert "Debug" not in row(debuggable(numpy="2.2.6"))
    assert "Debug" not in row(debuggable(restricted=True, **both))
    cuda = local()
    cuda.session.setup.machine = replace(LOCAL, packages=both)
    assert "Debug" not in row(cuda)


def test_a_failed_check_offers_the_first_wrong_element() -> None:
    bench = debuggable(numpy="2.2.6", debugpy="1.8.22")
    target = KernelId(bench.uri, "ones_kernel")

    def offered() -> list[str]:
        commands = [action.command for action in kernel_actions.actions(bench.session, bench.uri, 7, 7)]
        return [command.title for command in commands if command and command.command == "orbit.debug"]

    assert offered() == ["Debug (ones_kernel)"]
    bench.session.results.failures[target] = FailedRun("", 0.0, "wrong answer")
    assert offered() == ["Debug (ones_kernel)", "Debug at the first wrong element (ones_kernel)"]


UNCOMPILED = TRITON.replace("# orbit:", "# ")
COMPILE = "Compile (imports this file): no registers yet"


def test_a_triton_kernel_that_nothing_can_run_here_offers_the_compiler_and_says_why_there_is_nothing() -> (
    None
):
    bench = Bench(UNCOMPILED, "file:///k.py", trusted=True)
    bench.session.setup.machine = replace(LOCAL, devices=())
    assert row(bench) == f"✎ Draft a launch spec: no main, benchmark or test here | {COMPILE}"
    assert hovered(bench, 7) == (
        "ones_kernel: not compiled, not run yet\n"
        "  registers, occupancy and errors come with Compile, then as you type\n"
        "  only when you ask, because Compile imports this file"
    )
    (action,) = [
        each for each in kernel_actions.actions(bench.session, bench.uri, 7, 7) if "Compile" in each.title
    ]
    assert (action.title, action.command and action.command.command) == (
        "Compile (ones_kernel)",
        "orbit.compile",
    )
    bench.built(replace(PTXAS, name="ones_kernel", symbol="ones_kernel"))
    assert COMPILE not in row(bench)


@pytest.mark.parametrize(("devices", "trusted"), [(True, True), (False, False), (False, True)])
def test_an_edited_triton_kernel_offers_the_compiler_again_unless_it_is_compiled_as_it_is_typed(
    devices: bool, trusted: bool
) -> None:
    bench = Bench(UNCOMPILED, "file:///k.py", trusted=trusted)
    bench.session.setup.machine = replace(LOCAL, devices=LOCAL.devices if devices else ())
    bench.built(replace(PTXAS, name="ones_kernel", symbol="ones_kernel"))
    assert "Compile" not in row(bench)
    bench.typed(8, 38, 39, "2")
    again = "Compile (imports this file): edited since" in row(bench)
    assert again == (devices or not trusted)
    assert "not compiled" not in hovered(bench, 7)


def test_compile_is_offered_where_run_is_not() -> None:
    here = debuggable()
    assert COMPILE not in row(here)
    here.session.setup.machine = replace(LOCAL, devices=(), packages={})
    assert row(here) == f"▶ Run (choose a GPU) | Profile | {COMPILE}"
    here.session.setup.modal_account = True
    assert COMPILE not in row(here)
    restricted = debuggable(restricted=True)
    restricted.session.setup.machine = replace(LOCAL, devices=())
    assert COMPILE not in row(restricted)
    assert COMPILE not in row(local())  # compiled unasked


LIBRARY = {
    "numba": "from numba import cuda\n@cuda.jit\ndef k(x):\n    x[0] = 1\n",
    "tilelang": "import tilelang.language as T\n@T.prim_func\ndef k(x):\n    x[0] = 1\n",
    "cutile": "import cuda.tile as ct\n@ct.kernel\ndef k(x):\n    x[0] = 1\n",
}


@pytest.mark.parametrize("dsl", LIBRARY)
def test_a_library_of_another_language_says_why_it_has_no_lens(dsl: str) -> None:
    bench = Bench(LIBRARY[dsl], "file:///lib.py")
    assert row(bench) == ""
    first, why, what, then = hovered(bench, 2).splitlines()
    assert first == "k: not compiled, not run yet"
    assert why == f"  no lens: a program runs kernels of {dsl}, and this file is not a program"
    assert "`__main__`" in what
    assert then == "  `orbit-lsp drivers` lists the tests and scripts that launch it"
    program = Bench(LIBRARY[dsl] + "def main():\n    k(1)\n", "file:///lib.py")
    assert row(program) == "▶ Run | Profile"
    assert hovered(program, 2) == ""


def hovered(bench: Bench, line: int) -> str:
    shown = hover.hover(bench.session, bench.uri, line, markdown=False)
    return shown.contents.value if shown and isinstance(shown.contents, lsp.MarkupContent) else ""


def test_kernels_that_begin_on_one_line_are_named() -> None:
    session = Session()
    session.setup.machine = None
    text = "#define OPS(X) X(a) X(b)\n#define EW(n) __global__ void k_##n(float* x) { x[0] = 1; }\nOPS(EW)\n__global__ void c() {}\n"
    session.open("file:///k.cu", 1, text)
    titles = [
        (lens.range.start.line, lens.command.title)
        for lens in lenses.lenses(session, "file:///k.cu")
        if lens.command
    ]
    assert [(line, title.partition(" Draft")[0]) for line, title in titles] == [
        (2, "k_a: ✎"),
        (2, "k_b: ✎"),
        (3, "✎"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("BEGIN(axpy, float a, float* x)\n  if (a) { x[0] = a; }\nEND\n", 2),
        ("BEGIN(axpy, const float* __restrict__ values_of_the_input,\n  float* y)\n  if (y) { y[0] = 1; }\nEND\n", 3),
        ("__global__ void (k)(int* a,\n  int b) {\n  a[0] = b; }\n", 2),
        ("OPS(EW)\nint y = 3;\n", 2),
    ],
)  # fmt: skip
def test_a_hint_of_a_kernel_by_macro_stands_on_the_macro(text: str, line: int) -> None:
    macros = "#define BEGIN(nm, ...) __global__ void nm(__VA_ARGS__) {\n#define END }\n"
    if "OPS" in text:
        macros = "#define OPS(X) X(a)\n#define EW(n) __global__ void k_##n(float* x) { x[0] = 1; }\n"
    session = Session()
    session.open("file:///k.cu", 1, macros + text)
    file = session.files["file:///k.cu"]
    (kernel,) = file.scan.kernels
    assert [place.line(file.document, kernel, has_room=room) for room in (True, False)] == [(line, "")] * 2
