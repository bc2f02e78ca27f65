"""Files that keep a contract, checked on the CPU with the real torch: what is right, what is wrong, what is refused.

Timing needs a GPU (tests/gpu/test_harness_gpu.py); all else is the same code.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orbit_remote.child import child_main
from orbit_remote.child.harness import tensor_data
from orbit_remote.common import messages as c
from orbit_remote.common.contracts.harness_files import KeptContract, companions, kept, model_files
from orbit_remote.common.requests import ContractStart, Job
from orbit_remote.recording import recorder

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")


@pytest.fixture
def carry_out(tmp_path, monkeypatch):
    """The job of a text as it stands in the editor, in this process, put back as it was afterwards."""
    import torch  # noqa: F401 - before it is noted what there is: its finders stay

    from orbit_remote.child.harness import harness_job

    modules, finders, argv = dict(sys.modules), list(sys.meta_path), list(sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def run(text: str, name: str = "solution.py", **fields) -> c.Finished:
        job = Job(
            "1",
            "run",
            "triton",
            str(tmp_path / name),
            textwrap.dedent(text),
            start=ContractStart(),
            **fields,
        )
        return harness_job.check_and_time(job, lambda _: None, recorder.Nothing(), device="cpu")

    yield run
    sys.meta_path[:], sys.argv[:] = finders, argv
    for added in set(sys.modules) - set(modules):
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[added]


def check(finished: c.Finished, outcome: str, words: str = "") -> None:
    assert finished.outcome == outcome, finished
    assert words in (finished.failure.message if finished.failure else ""), finished.failure
    if finished.failure:
        assert finished.failure.place is not None


# -- KernelBench -------------------------------------------------------------------------------------

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
    def forward(self, x):
        return x * self.k

def get_inputs():
    return [torch.randn(8, 5)]

def get_init_inputs():
    return [3.0]
"""


def new(forward: str, init: str = "pass") -> str:
    """MODEL with a ModelNew of this body."""
    return (
        MODEL
        + "\nclass ModelNew(nn.Module):\n    def __init__(self, k):\n        super().__init__()\n        self.k = k\n"
        f"        {init}\n    def forward(self, x):\n"
        + textwrap.indent(textwrap.dedent(forward).strip(), "        ")
        + "\n"
    )


def test_parameters_that_fit_are_loaded_where_an_answer_is_wrong_without_them(carry_out):
    made = MODEL.replace("self.k = k", "self.k = nn.Parameter(torch.randn(5))")
    other = "self.scale = nn.Parameter(torch.zeros({size}))"
    text = made + new("return self.scale * x", other.format(size=5)).removeprefix(MODEL)
    finished = carry_out(text)
    check(finished, "ok")
    assert [remark for remark in finished.remarks if "Model's were loaded into it" in remark]
    check(
        carry_out(text.replace("torch.zeros(5)", "torch.zeros(1)")),
        "wrong answer",
        "40 of 40 elements differ",
    )


def test_a_right_solution_is_checked_in_five_trials_and_again(carry_out):
    finished = carry_out(new("return self.k * x"))
    check(finished, "ok")
    [point] = finished.points
    assert point.values == {"version": "ModelNew"}
    assert [item.when for item in point.checks] == ["first"] * 5 + ["again"]
    first = point.checks[0]
    assert (first.what, first.passed, first.elements, first.rtol, first.atol) == (
        "output of ModelNew == Model",
        True,
        40,
        1e-4,
        1e-4,
    )
    assert first.place is not None
    assert (first.place.line, first.place.column, first.place.end_column) == (18, 7, 15)
    assert point.footprint == 160
    assert finished.remarks == ()


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("return self.k * x + 0.01", "output[0, 0] is "),
        ("y = x * self.k\ny[3, 2] = 7\nreturn y", "output[3, 2] is 7, expected "),
        ("y = x * self.k\ny[3, 2] = 7\nreturn y", "1 of 40 elements differ, the largest error is "),
        ("return torch.empty_like(x)", "elements differ"),
        ("return (x * self.k).double()", "output is of dtype torch.float64, expected of dtype torch.float32"),
        ("return (x * self.k).flatten()", "output is of shape (40,), expected of shape (8, 5)"),
        ("return x * self.k, x", "output is a tuple of 2, expected a Tensor"),
        ("return None", "output is None, expected a Tensor"),
        ("return x * float('nan')", "is nan, expected "),
        ("class Lazy(torch.Tensor): pass\nreturn (x * self.k).as_subclass(Lazy)", "output is a Lazy, expected a plain torch.Tensor"),
        ("if not hasattr(self, 'y'):\n    self.y = x * self.k\nreturn self.y", "elements differ"),
    ],
)  # fmt: skip
def test_a_wrong_solution(carry_out, forward, words):
    finished = carry_out(new(forward))
    check(finished, "wrong answer", words)
    [point] = finished.points
    assert not point.checks[-1].passed
    assert point.launches == ()
    assert finished.problems[0].message == finished.failure.message


def test_one_that_knows_its_inputs_by_their_address_is_found_out_after_timing(carry_out):
    forward = """
        key = x.data_ptr()
        if key not in self.known:
            self.known[key] = (x, x * self.k)
        return self.known[key][1]
    """
    finished = carry_out(new(forward, "self.known = {}"))
    check(finished, "wrong answer", "only when called again with other inputs: output[0, 0] is ")
    assert [item.passed for item in finished.points[0].checks] == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("return x.mul_(self.k)", "ModelNew changes its inputs[0] in place, and Model does not"),
        ("self.y.copy_(x * self.k)\nreturn self.y", "ModelNew returns the same memory at every call"),
    ],
)
def test_what_is_right_and_yet_worth_knowing(carry_out, forward, words):
    finished = carry_out(new(forward, "self.y = torch.empty(8, 5)"))
    check(finished, "ok")
    [problem] = finished.problems
    assert problem.severity == "warning"
    assert words in problem.message


def test_a_problem_whose_answers_are_smaller_than_its_tolerance(carry_out):
    text = new("return torch.zeros(8, 5)").replace("return [3.0]", "return [1e-6]")
    finished = carry_out(text)
    check(finished, "ok")
    assert (
        "zeros would pass for output: no expected value is larger than its tolerance (0.0001 relative, 0.0001 absolute)"
        in finished.remarks
    )
    assert not [remark for remark in carry_out(new("return x * self.k")).remarks if "zeros" in remark]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MODEL + "ModelNew = Model", "ModelNew is Model itself"),
        (MODEL + "class ModelNew(Model):\n    pass", "ModelNew takes its forward from Model"),
        (MODEL + "class ModelNew:\n    pass", "ModelNew in solution.py is not a torch.nn.Module"),
        ("from torch import nn\nclass ModelNew(nn.Module):\n    pass", "neither Model nor get_inputs to check it against"),
        (new("return x").replace("def get_inputs", "def inputs"), "neither Model nor get_inputs"),
        (new("return x").replace("[torch.randn(8, 5)]", "torch.randn(8, 5)"), "get_inputs returns a Tensor; KernelBench's returns a list"),
        (new("return x").replace("return [3.0]", "return 3.0"), "get_init_inputs returns a float"),
        (MODEL.replace("x * self.k", "3") + "class ModelNew(Model):\n    def forward(self, x): return 3", "Model returns a int"),
        ("x = 1", "neither a class ModelNew nor a function custom_kernel"),
        (new("raise SystemExit(3)"), "exited with code 3"),
    ],
)  # fmt: skip
def test_what_keeps_no_contract(carry_out, text, words):
    finished = carry_out(text)
    check(finished, "runtime error", words)
    assert finished.points == () or not finished.points[0].checks


@pytest.mark.parametrize(
    ("text", "outcome", "words", "needle"),
    [
        (new("return x @ x"), "runtime error", "RuntimeError: ", "return x @ x"),
        (new("return x + y"), "runtime error", "NameError: name 'y'", "return x + y"),
        (new("pass", "undefined()"), "runtime error", "NameError: name 'undefined'", "undefined()"),
        (new("return x").replace("return [3.0]", "return [3.0, 4.0]"), "runtime error", "TypeError: ", None),
        (new("return x )"), "compile error", "SyntaxError", "return x )"),
        ("import torch, nothing_of_this_name\nclass ModelNew: pass", "runtime error", "ModuleNotFoundError", "nothing_of"),
    ],
)  # fmt: skip
def test_an_error_stands_at_the_users_line(carry_out, text, outcome, words, needle):
    finished = carry_out(text)
    check(finished, outcome, words)
    if needle:
        line = next(at for at, item in enumerate(text.splitlines(), 1) if needle in item)
        assert finished.failure.place.line == line


def test_a_failed_extension_says_the_compilers_error(carry_out):
    log = "Error building extension 'k': [1/2] nvcc -c cuda.cu\\ncuda.cu(4): error: identifier \\\"foo\\\" is undefined\\nninja: stopped"
    finished = carry_out(f'raise RuntimeError("{log}")\nclass ModelNew: pass')
    check(
        finished,
        "compile error",
        'the extension does not compile: cuda.cu(4): error: identifier "foo" is undefined',
    )


def test_integers_must_be_equal_and_halves_nearly(carry_out):
    ints = MODEL.replace("x * self.k", "(x * 1000).long()")
    text = new("return (x * 1000).long() + (x > 0)").replace(MODEL, ints)
    check(carry_out(text), "wrong answer", "elements differ, the largest error is 1")
    halves = new("return (x * self.k * 1.004).half()").replace(
        "return x * self.k\n", "return (x * self.k).half()\n", 1
    )
    finished = carry_out(halves)
    check(finished, "ok")
    assert finished.points[0].checks[0].rtol == 1e-2


def test_a_failure_says_what_may_be_behind_it(carry_out):
    finished = carry_out(new("return x * self.k * 1.001"))
    check(finished, "wrong answer")
    assert "within 0.01, which KernelBench allowed up to version 0.1, it is right" in finished.remarks
    layers = MODEL.replace("self.k = k", "self.layer = nn.Linear(5, 5)").replace(
        "x * self.k", "self.layer(x)"
    )
    text = new("return x @ self.w.T", "self.w = nn.Parameter(torch.randn(5, 5))").replace(MODEL, layers)
    finished = carry_out(text)
    check(finished, "wrong answer")
    assert any("ModelNew: w; Model: layer.weight, layer.bias" in remark for remark in finished.remarks)


@pytest.mark.parametrize(
    "kind", ["torch.float8_e4m3fn", "torch.bfloat16", "torch.complex64", "torch.bool", "torch.float64"]
)
def test_outputs_of_every_type(carry_out, kind):
    typed = MODEL.replace(
        "return x * self.k", f"return (x > 0 if {kind} is torch.bool else x * self.k).to({kind})"
    )
    body = f"return (x > 0 if {kind} is torch.bool else x * self.k).to({kind})"
    check(carry_out(new(body).replace(MODEL, typed)), "ok")
    wrong = body.replace("x > 0", "x > 1").replace("self.k", "self.k * 1.2")
    check(carry_out(new(wrong).replace(MODEL, typed)), "wrong answer", "elements differ")


def test_random_numbers_in_a_call_are_drawn_with_one_seed(carry_out):
    dropout = MODEL.replace("x * self.k", "nn.functional.dropout(x, 0.5)")
    check(carry_out(new("return nn.functional.dropout(x, 0.5)").replace(MODEL, dropout)), "ok")


def test_nan_in_the_reference_is_no_answer(carry_out):
    nan = MODEL.replace("x * self.k", "x.log()")
    check(carry_out(new("return x.log()").replace(MODEL, nan)), "wrong answer", "Model itself computes NaN")


def test_several_outputs_are_compared_one_by_one(carry_out):
    pair = MODEL.replace("return x * self.k", "return {'y': x * self.k, 'z': [x, x + 1]}")
    finished = carry_out(new("return {'y': x * self.k, 'z': [x, x + 2]}").replace(MODEL, pair))
    check(finished, "wrong answer", "output['z'][1][0, 0] is ")
    assert [item.passed for item in finished.points[0].checks] == [True, True, False]


@pytest.mark.parametrize(
    ("solution", "model"),
    [
        ("model_new_ex_scale.py", "model_ex_scale.py"),
        ("scale_new.py", "scale.py"),
        ("scale_triton.py", "scale_ref.py"),
        ("x.py", "reference.py"),
    ],
)
def test_model_may_stand_in_a_file_beside(carry_out, tmp_path, solution, model):
    (tmp_path / model).write_text(MODEL)
    text = new("return self.k * x").replace(MODEL, "from torch import nn\n")
    assert companions(tmp_path / solution, text) == (tmp_path / model,)
    finished = carry_out(text, solution)
    check(finished, "ok")
    assert str(tmp_path / model) in finished.files


def test_where_model_is_looked_for_is_said(carry_out):
    finished = carry_out("from torch import nn\nclass ModelNew(nn.Module): pass", "scale_new.py")
    assert finished.failure is not None
    names = [path.name for path in model_files(Path("scale_new.py"))]
    assert names == ["scale.py", "scale_ref.py", "reference.py", "model.py"]
    assert " or ".join(names) in finished.failure.remedy


def test_model_may_be_imported(carry_out, tmp_path):
    (tmp_path / "theirs.py").write_text(MODEL)
    imported = "from torch import nn\nfrom theirs import Model, get_inputs, get_init_inputs\n"
    text = new("return self.k * x").replace(MODEL, imported)
    assert companions(tmp_path / "solution.py", text) == ()
    check(carry_out(text), "ok")


# -- popcorn -----------------------------------------------------------------------------------------

REFERENCE = """
import torch
from task import input_t, output_t

def generate_input(size: int, seed: int) -> input_t:
    made = torch.Generator()
    made.manual_seed(seed)
    return torch.randn(size, generator=made), torch.empty(size)

def ref_kernel(data: input_t) -> output_t:
    return data[0].cumsum(0)

def check_implementation(data, output):
    if not torch.allclose(output, ref_kernel(data)):
        return "mismatch found!"
    return ""
"""
TASK = """
tests:
  - {"size": 127, "seed": 1}
  - {"size": 5, "seed": 2}
benchmarks:
  - {"size": 1000, "seed": 3}
"""
SUBMISSION = "from task import input_t, output_t\n\ndef custom_kernel(data: input_t) -> output_t:\n    "


@pytest.fixture
def problem(tmp_path):
    def write(reference: str = REFERENCE, task: str | None = TASK, **files: str) -> None:
        (tmp_path / "task.py").write_text("input_t = output_t = object\n")
        (tmp_path / "reference.py").write_text(reference)
        if task is not None:
            (tmp_path / "task.yml").write_text(task)

    return write


def test_a_submission_is_checked_by_every_test_and_benchmark(carry_out, problem, tmp_path):
    problem()
    text = SUBMISSION + "return data[0].cumsum(0)"
    finished = carry_out(text, "submission.py")
    check(finished, "ok")
    assert [(p.case, p.values, [item.when for item in p.checks]) for p in finished.points] == [
        ("test 1", {"size": "127", "seed": "1"}, ["first"]),
        ("test 2", {"size": "5", "seed": "2"}, ["first"]),
        ("", {"version": "custom_kernel", "size": "1000", "seed": "3"}, ["first", "again"]),
    ]
    assert finished.points[0].checks[0].what == "check_implementation"
    assert {Path(file).name for file in finished.files} >= {"reference.py", "task.py", "task.yml"}
    assert {path.name for path in companions(tmp_path / "submission.py", text)} == {
        "reference.py",
        "task.py",
        "task.yml",
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return data[0] * 2", "wrong answer (test 1: size=127, seed=1): mismatch found!"),
        ("x = data[0]\n    return x.cumsum(0) if len(x) > 5 else x", "wrong answer (test 2: size=5, seed=2): mismatch found!"),
        ("x = data[0]\n    return x.cumsum(0) if len(x) < 1000 else x", "wrong answer (benchmark 1: size=1000, seed=3): mismatch"),
        (
            "key = data[0].data_ptr(), len(data[0])\n    if key not in kept: kept[key] = data, data[0].cumsum(0)\n    return kept[key][1]\nkept = {}",
            "wrong answer (benchmark 1: size=1000, seed=3): only when called again with other inputs: mismatch",
        ),
    ],
)  # fmt: skip
def test_a_wrong_submission(carry_out, problem, body, words):
    problem()
    check(carry_out(SUBMISSION + body, "submission.py"), "wrong answer", words)


def test_the_output_may_be_among_the_data(carry_out, problem):
    problem()
    finished = carry_out(
        SUBMISSION + "x, out = data\n    out[:] = x.cumsum(0)\n    return out", "submission.py"
    )
    check(finished, "ok")
    assert finished.remarks == ("custom_kernel writes to inputs[1] of its data",)


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        ("(True, 'almost')", "ok", ""),
        ("(False, 'off by one')", "wrong answer", "off by one"),
        ("(False, '')", "wrong answer", "check_implementation rejected the output"),
        ("True", "ok", ""),
        ("'bad\\n  at 3'", "wrong answer", "bad at 3"),
        ("None", "runtime error", "check_implementation returns None; a text or a pair"),
        ("1 / 0", "runtime error", "ZeroDivisionError"),
    ],
)
def test_what_check_implementation_answers(carry_out, problem, answer, outcome, words):
    problem(REFERENCE + f"\ndef check_implementation(data, output):\n    return {answer}\n")
    check(carry_out(SUBMISSION + "return data[0]", "submission.py"), outcome, words)


@pytest.mark.parametrize(
    ("reference", "task", "words", "line"),
    [
        (REFERENCE, None, "there is none in ", None),
        (REFERENCE, "tests: []\n", "lists no test and no benchmark", 1),
        (REFERENCE, "tests:\n  - {size: *n}\n", "YAML's '*' is not supported", 2),
        (REFERENCE, "tests:\n  - {size: 3}\n", "the arguments of test 1 in task.yml: missing a required argument: 'seed'", None),
        (REFERENCE, "tests:\n  - {size: 3, seed: 1, n: 2}\n", "got an unexpected keyword argument 'n'", None),
        (REFERENCE, "lang: cu\n" + TASK, "only Python problems", 1),
        (REFERENCE, "multi_gpu: true\n" + TASK, "needs several GPUs", 1),
        (REFERENCE.replace("def generate_input", "def make"), TASK, "reference.py has no function generate_input", None),
        (REFERENCE.replace("from task", "from utils"), TASK, "No module named 'utils'", None),
    ],
)  # fmt: skip
def test_what_is_no_problem(carry_out, problem, reference, task, words, line):
    problem(reference, task)
    finished = carry_out(SUBMISSION + "return data[0]", "submission.py")
    check(finished, "runtime error", words)
    if line:
        assert finished.failure.place.line == line
        assert Path(finished.failure.place.file).name == "task.yml"


def test_a_submission_may_lie_in_a_folder_of_the_problem(carry_out, problem, tmp_path):
    problem()
    (tmp_path / "solutions/correct").mkdir(parents=True)
    text, name = SUBMISSION + "return data[0].cumsum(0)", "solutions/correct/mine.py"
    assert {path.name for path in companions(tmp_path / name, text)} == {
        "reference.py",
        "task.py",
        "task.yml",
    }
    check(carry_out(text, name), "ok")


def test_without_a_problem_beside_it(carry_out):
    finished = carry_out("def custom_kernel(data): return data", "submission.py")
    check(finished, "runtime error", "there is none in ")


def test_modules_that_task_yml_takes_from_elsewhere(carry_out, problem, tmp_path):
    listed = 'files:\n  - {"name": "utils.py", "source": "../shared_utils.py"}\n' + TASK
    problem(REFERENCE + "\nfrom utils import check_implementation\n", listed)
    text = SUBMISSION + "return data[0]"
    finished = carry_out(text, "submission.py")
    check(finished, "runtime error", "No module named 'utils'")
    assert finished.failure.remedy == "task.yml takes utils.py from ../shared_utils.py, which is not there"
    outside = tmp_path.parent / "shared_utils.py"
    outside.write_text("def check_implementation(data, output): return True, ''\n")
    try:
        assert outside.resolve() in companions(tmp_path / "submission.py", text)
        for name in ("task", "reference", "submission"):
            sys.modules.pop(name, None)
        check(carry_out(text, "submission.py"), "ok")
    finally:
        outside.unlink()


# -- the rest ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "contract"),
    [
        ("class ModelNew(nn.Module):\n    pass", KeptContract("kernelbench", "ModelNew", 1, 7, 15)),
        ("x = 1\ndef custom_kernel(data): pass", KeptContract("popcorn", "custom_kernel", 2, 5, 18)),
        ("custom_kernel = torch.compile(f)", KeptContract("popcorn", "custom_kernel", 1, 1, 14)),
        (
            "@triton.jit\ndef kernel(x): pass\nclass ModelNew: pass",
            KeptContract("kernelbench", "ModelNew", 3, 7, 15),
        ),
        ("from impl import custom_kernel", KeptContract("popcorn", "custom_kernel", 1, 18, 31)),
        ("class Model: pass", None),
        ("def f():\n    class ModelNew: pass", None),
        ("class ModelNew(", KeptContract("kernelbench", "ModelNew", 1, 7, 15)),  # it is being typed
        ('"""\nclass ModelNew: pass\n"""', None),
        (
            "from impl import (\n    other,\n    best as custom_kernel,\n)",
            KeptContract("popcorn", "custom_kernel", 3, 13, 26),
        ),
        ("from impl import custom_kernel as other", None),
        ("custom_kernel == 3", None),
        ("def custom_kernel(x): ...\nclass ModelNew: ...", KeptContract("kernelbench", "ModelNew", 2, 7, 15)),
        (
            "class ModelNew: pass\na = " + "-" * 200_000 + "1",
            KeptContract("kernelbench", "ModelNew", 1, 7, 15),
        ),
        ("class ModelNew: pass\n" + "a = 1\n" * 50_000, None),  # longer than the limit
    ],
)
def test_which_contract_a_text_keeps(text, contract):
    assert kept(text) == contract


def test_inputs_are_cloned_refilled_and_compared_wherever_their_tensors_are():
    import torch

    numbers = torch.tensor([1.0, float("nan")])
    data = {"x": [numbers, (numbers, 3)], "n": None}
    copy = tensor_data.cloned(torch, data)
    assert copy["x"][0] is copy["x"][1][0] is not numbers
    assert tensor_data.changed(torch, data, copy, "data") == []
    copy["x"][0][0] = 7
    assert tensor_data.changed(torch, data, copy, "data") == ["data['x'][0]", "data['x'][1][0]"]
    assert tensor_data.refill(torch, copy, data)
    assert tensor_data.changed(torch, data, copy, "data") == []
    assert not tensor_data.refill(torch, copy, {"x": [numbers, (numbers, 4)], "n": None})
    assert not tensor_data.refill(torch, copy, {"x": [numbers.double(), (numbers, 3)], "n": None})
    assert tensor_data.size(torch, data) == 8


@pytest.mark.slow
def test_a_child_without_a_gpu_says_so(tmp_path):
    job = Job("1", "run", "triton", str(tmp_path / "s.py"), new("return x"), start=ContractStart())
    subprocess.run(
        child_main.command(tmp_path, tmp_path, job), capture_output=True, timeout=120, check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    finished = child_main.outcome(tmp_path)
    assert isinstance(finished, c.Finished)
    assert finished.outcome == "infrastructure"
    assert "finds no GPU" in finished.failure.message
