"""task.yml of popcorn problems: text in, tests and benchmarks out, and what else YAML has refused by its line."""

from __future__ import annotations

import json

import pytest

from orbit_remote.common.contracts.popcorn_task import Task, TaskError, read

VECTORS = """\
# name: vectoradd-py

files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "utils.py", "source": "../utils.py"}

lang: "py"

description: |
  Add: two tensors.

  tests:
    - this is prose, indented
config:
  main: "eval.py"

tests:
  # small ones first
  - {"size": 127, "seed": 4242}
  - {size: 128, seed: 5236, case: nearrank}   # names need no quotes

benchmarks:
  - {"size": 1024, "seed": 31232}

test_timeout: 180
ranking_by: "geom"
gpus:
  - B200
"""


def test_a_published_task():
    assert read(VECTORS) == Task(
        tests=({"size": 127, "seed": 4242}, {"size": 128, "seed": 5236, "case": "nearrank"}),
        benchmarks=({"size": 1024, "seed": 31232},),
        files={"submission.py": "@SUBMISSION@", "utils.py": "../utils.py"},
        ranking_by="geom",
    )


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ('{"m": [96, 128], "g": 2}', {"m": [96, 128], "g": 2}),
        ('{"m": [[1], []], "n": -3,}', {"m": [[1], []], "n": -3}),
        ('{"causal": true, "bias": False, "mask": null, "x": ~}', {"causal": True, "bias": False, "mask": None, "x": None}),
        ('{"p": 1.0e-3, "q": .5, "r": 2., "s": +7, "h": 0x10}', {"p": 1e-3, "q": 0.5, "r": 2.0, "s": 7, "h": 16}),
        ("""{"text": "a, {b}: #c", 'it': 'it''s'}""", {"text": "a, {b}: #c", "it": "it's"}),
        ('{\n      "size": 1,\n      # why\n      "seed": 2\n    }', {"size": 1, "seed": 2}),
        ("size: 1\n    case: dense  # words\n    shape: [2, 3]", {"size": 1, "case": "dense", "shape": [2, 3]}),
        ("\n    size: 1\n    seed: 2", {"size": 1, "seed": 2}),
        ("{}", {}),
    ],
)  # fmt: skip
def test_an_entry(entry, meant):
    [test] = read(f"tests:\n  - {entry}\n").tests
    assert test == meant
    assert [type(v) for v in test.values()] == [type(v) for v in meant.values()]


def test_json_means_the_same_here():
    entry = {"a": [1, 2.5, "x", None, True], "b": 'tab\t"quoted"', "c": -7}
    assert read(f"tests:\n- {json.dumps(entry)}\n").tests == (entry,)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("tests:\n  - {size: 1}\n  - *other\n", 3, "`name: value`"),
        ("tests:\n  - {size: &n 1}\n", 2, "YAML's '&'"),
        ("tests:\n  - {size: !!int 1}\n", 2, "YAML's '!'"),
        ("tests:\n  - {size: {a: 1}}\n", 2, "YAML's '{'"),
        ("tests:\n  - {size: 1\n\nlang: py\n", 2, "closing brace"),
        ("tests:\n  - {size: 1} {seed: 2}\n", 2, "left over: {seed: 2}"),
        ("tests:\n  - {size: 1, size: 2}\n", 2, "'size' twice"),
        ("tests:\n  - {size: 010}\n", 2, "differ over 010"),
        (
            "tests:\n  - {size: 1, eps: 1e-5}\n",
            2,
            "differ over 1e-5: write it in quotes, or a number like 1.0e+5",
        ),
        ("tests:\n  - size: 1_000\n", 2, "differ over 1_000"),
        ("tests:\n  - when: 2026-11-21\n", 2, "differ over 2026-11-21"),
        ("tests:\n  - {flag: yes}\n", 2, "differ over yes"),
        ('tests:\n  - {name: "a\n', 2, "no closing quote"),
        ("tests:\n  size: 1\n", 2, "begins with a dash"),
        ("tests: 3\n", 1, "a dash before each"),
        ("tests:\n  - size: 1\n     seed: 2\n", 3, "`name: value`"),
        ("tests:\n\t- {size: 1}\n", 2, "tab"),
        ("tests:\n  - {size: 1}\ntests:\n  - {size: 2}\n", 3, "'tests' twice"),
        ("- a\n", 1, "must begin with a key"),
        ("tests:\n  - {m: " + "[" * 20 + "\n", 2, "nested too deep"),
        ("tests:\n  - {size: 1,\n     seed: @}\n", 3, "YAML's '@'"),
    ],
)
def test_what_is_not_read_is_said_where_it_stands(text, line, words):
    with pytest.raises(TaskError) as refused:
        read(text)
    assert refused.value.line == line, refused.value
    assert words in refused.value.message


def test_other_words():
    assert read("tests: []\nlang: cu\nmulti_gpu: true\n") == Task(language="cu", several_gpus=True)
    assert read("") == Task()
