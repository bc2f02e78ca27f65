"""How the files of what a compiler made are called, and which of them are a kernel's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.profile import dump_files
from orbit_lsp.runs import listings
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.specs import job_builder
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.results import Profiled
from orbit_lsp.views import hover, kernel_actions
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Level
from orbit_remote.toolchain import dumps
from tests.recorded_profiles import Profiling, answer, finished, profile


def dump(name: str, level: Level = "ptx", symbol: str = "", instance: int = 0, **constants: str) -> c.Dump:
    return c.Dump(symbol or name, name, level, instance, constants)


@pytest.mark.parametrize(
    ("made", "names"),
    [
        ([dump("softmax", "ttir"), dump("softmax", "sass")], ["softmax.ttir", "softmax.sass"]),
        ([dump("saxpy(int, float, const float *)", "sass")], ["saxpy.sass"]),
        ([dump("k"), dump("k", instance=1), dump("k", "sass", instance=1)], ["k.ptx", "k-2.ptx", "k-2.sass"]),
        ([dump("ns::tile<4>(float *)"), dump("ns::tile<8>(float *)")], ["tile.ptx", "tile-2.ptx"]),
        ([dump("a/../b"), dump("…")], ["a-..-b.ptx", "kernel.ptx"]),
        ([], []),
    ],
)
def test_file_names(made: list[c.Dump], names: list[str]) -> None:
    assert dump_files.file_names(made) == names


def test_no_two_files_have_one_name() -> None:
    made = [dump("k", symbol="a"), dump("k-2", symbol="b"), dump("k", symbol="c"), dump("k", symbol="d")]
    assert len(set(dump_files.file_names(made))) == len(made)


def profiled(*made: c.Dump) -> tuple[Profiling, Profiled]:
    bench = Profiling("softmax")
    return bench, bench.file(finished("softmax", dumps=made))


def test_those_of_other_kernels_are_not_this_ones() -> None:
    _, result = profiled(dump("other"), dump("softmax", "ttir"), dump("softmax", "sass"))
    assert [name for _, name in dump_files.of(result)] == ["softmax.ttir", "softmax.sass"]
    assert dump_files.levels(result) == ["ttir", "sass"]
    assert dump_files.of(None) == []


def test_the_longest_launchs_comes_first() -> None:
    first, second = replace(profile("softmax"), symbol="b"), replace(profile("softmax"), symbol="a")
    _, result = profiled(dump("a"), dump("b", instance=1), dump("b"))
    result = replace(result, profiles=(first, second))
    assert [(item.symbol, item.instance) for item, _ in dump_files.of(result)] == [
        ("b", 0),
        ("b", 1),
        ("a", 0),
    ]


def test_what_tells_instances_apart() -> None:
    assert dump_files.instance(dump("softmax", BLOCK="64", num_warps="4")) == "softmax, BLOCK=64, num_warps=4"
    assert dump_files.instance(dump("tile<4>(float *)")) == "tile<4>(float *)"


def test_in_the_hover_and_among_the_actions() -> None:
    bench, _ = profiled(dump("softmax", "llir"), dump("softmax", "ptx"))
    result = hover.hover(bench.session, bench.uri, 8, markdown=False)
    assert "what the compiler made of it  LLVM IR, PTX: a code action opens them" in result.contents.value
    assert titles(bench) == ["Open LLVM IR (softmax)", "Open PTX (softmax)"]
    bench.session.client.can_ask = True
    assert titles(bench) == ["Open LLVM IR or PTX… (softmax)"]
    profiled(dump("softmax", "sass"))
    bench, _ = profiled(dump("softmax", "sass"))
    bench.session.client.can_ask = True
    assert titles(bench) == ["Open SASS (softmax)"]


def test_a_listing_has_what_a_profile_measured_on_each_line(tmp_path: Path) -> None:
    """After an edit, on the lines that still stand, and marked."""
    bench = Profiling("memory_bound")
    bench.file(finished("memory_bound"), "saxpy")
    (target,) = bench.session.results.profiles
    bench.session.results.listings[target, "sass"] = None
    made = dumps.packed(
        [dumps.DumpedInstance("saxpy", "saxpy", {}, {"sass": answer("memory_bound").sass[0].encode()})], []
    )

    def listed() -> list[str]:
        frozen = bench.session.freeze(bench.uri)
        assert frozen
        job = job_builder.make(bench.session, frozen, "compile", "r2")
        run = Run("r2", "compile", frozen, job, finished=c.Finished("r2", "ok", dumps=made))
        assert listings.file(bench.session, run, tmp_path)
        shown = bench.session.results.listings[target, "sass"]
        assert shown
        lines = shown.path.read_text().splitlines()
        return [line.partition("memory_bound.cu:")[2] for line in lines if "◂ 9" in line or "◂ 1" in line]

    body = "y[i] = a * x[i] + y[i];"
    assert listed() == ["6    if (i < n)    ◂ 1.2% · wait", f"7    {body}    ◂ 92% · long scoreboard"]
    bench.session.change(bench.uri, 2, [TextChange((5, 13), (5, 14), "n - 1")])
    assert listed() == [f"7    {body}    ◂ 92% · long scoreboard · edited since"]


def titles(bench: Profiling) -> list[str]:
    actions = kernel_actions.actions(bench.session, bench.uri, 8, 8)
    return [action.title for action in actions if action.command and action.command.command == "orbit.openIr"]
