"""The specs of open files: known by their text, wherever it moves; nothing old is ever shown."""

from __future__ import annotations

import pytest

from orbit_lsp.features.spec_checks import SpecChecks
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics
from orbit_remote.spec import comment_scanner, launch_spec
from tests.settings_check import settings_of_values

URI = "file:///src/k.cu"
WRONG = """\
// orbit: n = 1 << 20; x = randn(m)
// orbit: launch k<<<n / 256, 256>>>(n, x)
__global__ void k(int n, float* x) {}
"""


def opened(text: str = WRONG, uri: str = URI, **settings: object) -> Session:
    session = Session(setup=RunSetup(settings=settings_of_values({"gpu": "H100"} | settings)))
    assert session.open(uri, 1, text)
    return session


def typed(session: Session, line: int, start: int, end: int, text: str) -> None:
    version = session.files[URI].document.version + 1
    session.change(URI, version, [TextChange((line, start), (line, end), text)])


def said(session: Session, uri: str = URI) -> list[tuple[int, int, int, str]]:
    return [
        (
            diagnostic.range.start.line,
            diagnostic.range.start.character,
            diagnostic.range.end.character,
            diagnostic.message,
        )
        for diagnostic in diagnostics.diagnostics(session, uri)
        if diagnostic.code == "launch-spec"
    ]


def test_a_fault_is_where_it_is_now() -> None:
    session = opened()
    assert said(session) == [(0, 33, 34, "'m' is not known here.")]
    typed(session, 0, 0, 0, "\n\n")
    assert said(session) == [(2, 33, 34, "'m' is not known here.")]
    typed(session, 2, 33, 34, "n")
    assert said(session) == []


def test_columns_are_in_the_clients_units() -> None:
    text = '/* 🚀é */ // not here\n// orbit: s = "🚀é"; x = randn(m)\n__global__ void k() {}\n'
    at = {"utf-8": 34, "utf-16": 31, "utf-32": 30}
    for encoding, column in at.items():
        session = opened(text)
        session.client.encoding = encoding
        assert [item[:2] for item in said(session) if "'m'" in item[3]] == [(1, column)]


def test_a_moved_spec_is_not_checked_again(monkeypatch) -> None:
    session = opened(WRONG.replace("m", "n") + "\n" + WRONG.replace("m", "n").replace("void k", "void l").replace("k<<<", "l<<<"))  # fmt: skip
    checks: list[str] = []
    real = launch_spec.check_lines

    def counted(lines, target, limits):  # what is counted is real
        checks.append(target.name)
        return real(lines, target, limits)

    monkeypatch.setattr(launch_spec, "check_lines", counted)
    assert said(session) == []
    assert checks == ["k", "l"]
    typed(session, 0, 0, 0, "// a remark\n\nint before;\n")
    assert said(session) == []
    assert checks == ["k", "l"]
    typed(session, 4, 0, 0, "// another remark\n")  # within the spec
    assert said(session) == []
    assert checks == ["k", "l", "k"]
    typed(session, 8, 33, 34, "q")  # the second's
    assert [item[0] for item in said(session)] == [8]
    assert checks == ["k", "l", "k", "l"]


def test_what_the_rest_of_the_file_decides_is_asked_again() -> None:
    session = opened("__constant__ float w[4];\n" + WRONG.replace("m", "n").replace("// orbit: l", "// orbit: symbol w = ones(4)\n// orbit: l"))  # fmt: skip
    assert said(session) == []
    typed(session, 0, 19, 20, "v")
    (results,) = said(session)
    assert results[3].startswith("There is no __constant__ or __device__ variable 'w' in this file")
    typed(session, 0, 19, 20, "w")
    assert said(session) == []


def test_the_places_of_a_spec_are_those_of_the_present_text() -> None:
    session = opened(WRONG.replace("m", "n"))
    kernel = session.files[URI].scan.kernels[0]
    checked = spec_cache.spec_of(session, URI, kernel)
    assert checked
    assert checked.spec.launches[0].span.line == 1
    typed(session, 0, 0, 0, "\n")
    kernel = session.files[URI].scan.kernels[0]
    moved = spec_cache.spec_of(session, URI, kernel)
    assert moved
    assert moved.spec.launches[0].span.line == 2
    assert spec_cache.spec_of(session, URI, kernel) is moved
    assert spec_cache.kernel_at(session, URI, 2) is kernel
    assert spec_cache.kernel_at(session, URI, 0) is None
    assert spec_cache.kernel_at(session, URI, 3) is None


def refusal(session: Session) -> str | None:
    checked = spec_cache.spec_of(session, URI, session.files[URI].scan.kernels[0])
    assert checked
    return spec_cache.refusal(checked)


def test_a_spec_with_an_error_is_refused_in_one_sentence() -> None:
    assert refusal(opened()) == "line 1, in the launch spec: 'm' is not known here."
    warned = opened(WRONG.replace("x = randn(m)", "x = randn(n); z = 3"))
    assert said(warned) == [(0, 37, 38, "'z' is used nowhere.")]
    assert refusal(warned) is None


def test_kernels_without_a_spec_and_of_other_languages_have_none() -> None:
    session = opened("__global__ void k() {}\n")
    assert spec_cache.spec_of(session, URI, session.files[URI].scan.kernels[0]) is None
    numba = "from numba import cuda\n# orbit: n = m\n@cuda.jit\ndef k(x): pass\n"
    session = opened(numba, "file:///src/k.py")
    assert said(session, "file:///src/k.py") == [
        (1, 0, 8, "No CUDA or Triton kernel follows this launch spec, so it is not used.")
    ]


def test_overloads_have_their_own() -> None:
    session = opened(
        "// orbit: n = 1\n// orbit: launch k<<<1, 1>>>(n)\n__global__ void k(int n) {}\n"
        "// orbit: n = 2.0f; launch k<<<1, 1>>>(m)\n__global__ void k(float n) {}\n"
    )
    first, second = session.files[URI].scan.kernels
    checked, two = spec_cache.spec_of(session, URI, first), spec_cache.spec_of(session, URI, second)
    assert checked
    assert two
    assert (len(checked.faults), len(two.faults)) == (0, 2)


def test_of_kernels_on_one_line_it_is_the_one_that_is_launched() -> None:
    session = opened("// orbit: n = 1; launch b<<<1, 1>>>(n)\n__global__ void a(float* x) {} __global__ void b(int n) {}\n")  # fmt: skip
    first, second = session.files[URI].scan.kernels
    assert spec_cache.spec_of(session, URI, first) is None
    assert spec_cache.spec_of(session, URI, second)
    assert said(session) == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_cache, "_MOST_KNOWN", 20)
    session = opened(WRONG.replace("m", "n"))
    for at in range(50):
        typed(session, 0, 14, len(session.files[URI].document.lines[0].partition(";")[0]), str(at))
        assert said(session) is not None
    assert len(session.files[URI].specs) <= 20


def test_the_gpu_of_the_settings_bounds_shared_memory() -> None:
    text = WRONG.replace("m", "n").replace("256>>>", "256, 200 << 10>>>")
    assert said(opened(text)) == []
    assert [item[3] for item in said(opened(text, gpu="L4"))] == [
        "This is 204800 bytes of shared memory; a block has at most 101376 on sm_89."
    ]


async def test_watching_tells_once_typing_has_paused() -> None:
    session = opened()
    messages: list[set[str]] = []
    watch = SpecChecks(session, messages.append)
    await watch.check(URI)
    assert messages == [{URI}]
    assert len(session.files[URI].specs) == 1
    session.close(URI)
    watch.edited(URI)  # nothing is open any more
    watch.shutdown()


async def test_a_file_without_specs_is_not_told_about() -> None:
    session = opened("__global__ void k() {}\n")
    messages: list[set[str]] = []
    watch = SpecChecks(session, messages.append)
    assert watch._begin(URI) is None
    assert messages == []


def test_a_spec_that_stands_above_no_kernel_is_said_to() -> None:
    text = """\
// orbit: n = 4; x = randn(n)
// orbit: launch k<<<1, 4>>>(x)
__device__ float f(float x) { return x; }
__global__ void k(float* x) {
  // orbit: n = 4
}
// orbit: n = 4; x = randn(n)
// orbit: launch j<<<n, 4>>>(x)
__global__ void j(float* x) {}
"""
    stray = "No CUDA or Triton kernel follows this launch spec, so it is not used."
    assert said(opened(text)) == [(0, 0, 9, stray), (4, 2, 11, stray)]


@pytest.mark.parametrize(
    ("beyond", "sentences"),
    [(0, []), (1, ["A launch spec has at most 65,536 characters; this line and those above are not read."])],
)
def test_a_spec_has_so_many_characters(beyond: int, sentences: list[str]) -> None:
    end = "// orbit: n = 1; launch k<<<1, n>>>(n)\n"
    line = "// orbit: // " + "x" * 3_000 + "\n"
    rest = comment_scanner.LONGEST_SPEC - len(end.rstrip()) + beyond
    whole, left = divmod(rest, len(line) - 1)
    first = "// orbit: // " + "x" * (left - 13) + "\n"
    text = first + line * whole + end + "__global__ void k(int n) {}\n"
    assert [message for *_, message in said(opened(text))] == sentences


def test_a_file_shows_so_many_faults_from_its_top() -> None:
    text = "".join(
        f"// orbit: n = m\n// orbit: launch k{i}<<<1, 1>>>(n)\n__global__ void k{i}(int n) {{}}\n"
        for i in range(600)
    )
    assert [line for line, *_ in said(opened(text))] == list(range(0, 1500, 3))
