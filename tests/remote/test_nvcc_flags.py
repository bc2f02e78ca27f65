"""Which flags a workspace may set, and GPU names."""

from __future__ import annotations

import random
import subprocess

import pytest

from orbit_remote.common.architectures import architecture_for, architecture_of, asked_for, gencode
from orbit_remote.common.nvcc_flags import allowed_flags, is_shell_active
from tests.remote.nvcc_check import COMPILER, needs_nvcc

TAKEN = [
    (["-DX"], ["-DX"]),
    (["-D", "X=1"], ["-DX=1"]),
    (["--define-macro=X=1"], ["-DX=1"]),
    (["--define-macro", "F(a,b)=a + b"], ["-DF(a,b)=a + b"]),
    (['-DNAME="a b"'], ['-DNAME="a b"']),
    (["-U", "X"], ["-UX"]),
    (["-Iinclude"], ["-I", "include"]),
    (["-I=../some dir"], ["-I", "../some dir"]),
    (["--include-path", "a,b"], ["-I", "a,b"]),
    (["-isystem", "/opt/x"], ["-isystem", "/opt/x"]),
    (["-isystem=/opt/x"], ["-isystem", "/opt/x"]),
    (["-std=c++20"], ["-std", "c++20"]),
    (["--std", "gnu++17"], ["-std", "gnu++17"]),
    (["-O2"], ["-O2"]),
    (["--optimize=3"], ["-O3"]),
    (["-arch=sm_90a"], ["-arch", "sm_90a"]),
    (["--gpu-architecture", "compute_80"], ["-arch", "compute_80"]),
    (
        ["--generate-code=arch=compute_90,code=[compute_90,sm_90]"],
        ["-gencode", "arch=compute_90,code=[compute_90,sm_90]"],
    ),
    (["-maxrregcount=64"], ["-maxrregcount", "64"]),
    (["--use_fast_math", "-use_fast_math"], ["--use_fast_math", "-use_fast_math"]),
    (["--expt-relaxed-constexpr"], ["--expt-relaxed-constexpr"]),
    (["--extended-lambda"], ["--extended-lambda"]),
    (["-rdc=true"], ["-rdc", "true"]),
    (["--fmad=false"], ["-fmad", "false"]),
    (["-Xptxas=-v,-dlcm=ca"], ["-Xptxas", "-v,-dlcm=ca"]),
    (["--ptxas-options", "--maxrregcount=32"], ["-Xptxas", "--maxrregcount=32"]),
]

REFUSED = [
    ["-ccbin", "evil"],
    ["-ccbin=evil"],
    ["--compiler-bindir=evil"],
    ["-Xcompiler", "-fplugin=evil.so"],
    ["-Xcompiler=-fplugin=evil.so"],
    ["-Xptxas", "-o"],
    ["-Xptxas=-v,--options-file,x"],
    ["--ptxas-options", "@flags.txt"],
    ["-Xlinker", "-rpath"],
    ["-include", "evil.h"],
    ["--pre-include=evil.h"],
    ["@flags.txt"],
    ["-optf", "flags.txt"],
    ["--options-file=flags.txt"],
    ["-run"],
    ["--run"],
    ["--run-args=x"],
    ["-o", "/home/me/.bashrc"],
    ["-odir=/home/me"],
    ["-keep-dir", "/home/me"],
    ["-MF", "/home/me/.bashrc"],
    ["-L/evil"],
    ["-levil"],
    ["evil.o"],
    ["evil.cu"],
    ["-x", "c"],
    ["-ldir=/evil"],
    ["-idp", "/evil"],
    ["-Ofc=max"],
    ["-DX=$(touch pwned)"],
    ["-D", "X=`touch pwned`"],
    ["-DX=a\\b"],
    ["-DX=1\n2"],
    ["-D", "@flags.txt"],
    ["-DX=@flags.txt"],
    ["-DX=1,@flags.txt"],
    ["-DX=1,-ccbin=evil"],
    ["-D"],
    ["-U$(touch pwned)"],
    ["-I$(touch pwned)"],
    ["-I", "@flags.txt"],
    ["-Ia,@flags.txt"],
    ["-I", "-ccbin"],
    ['-I"'],
    ["-isystem", "-include"],
    ["-std=$(touch pwned)"],
    ["-arch=native;x"],
    ["-gencode", "arch=compute_90,code=sm_90 -ccbin evil"],
    ["-maxrregcount=1e9"],
    ["-rdc=$(x)"],
    ["--expt-relaxed-constexpr=$(x)"],
    [""],
]


@pytest.mark.parametrize(("flags", "expected"), TAKEN)
def test_an_untrusted_workspace_may_set(flags, expected):
    assert allowed_flags(flags, trusted=False) == (tuple(expected), ())


@pytest.mark.parametrize("flags", REFUSED, ids=" ".join)
def test_an_untrusted_workspace_may_not_set(flags):
    kept, refused = allowed_flags(["-DA", *flags, "-DB"], trusted=False)
    # a flag in the value's place may be eaten with it, but nothing of the refused one survives
    assert set(kept) <= {"-DA", "-DB"}
    assert refused


def test_a_trusted_workspace_may_set_all_but_what_is_produced():
    flags = [
        "-ccbin",
        "clang++",
        "-Xcompiler=-Wall",
        "-c",
        "-o",
        "x.o",
        "--ptx",
        "-lcublas",
        "-keep-dir=x",
        "-rdc=true",
    ]
    kept, refused = allowed_flags(flags, trusted=True)
    assert kept == ("-ccbin", "clang++", "-Xcompiler=-Wall", "-lcublas", "-rdc=true")
    assert [sentence.split(" is left out")[0] for sentence in refused] == [
        "-c",
        "-o x.o",
        "--ptx",
        "-keep-dir=x",
    ]


@needs_nvcc
def test_what_is_kept_starts_nothing(tmp_path):
    """The real nvcc, whose command lines go through a shell, on flags made of what shells react to."""
    chance = random.Random(5)
    atoms = [
        '"',
        "'",
        ";",
        "|",
        "&",
        "$(",
        "`",
        ")",
        "(",
        "touch pwned",
        ">",
        " ",
        "#",
        "*",
        "@k.cu",
        "=",
        ",",
        "a",
        "\\",
    ]
    options = ["-D", "-DX=", "-U", "-I", "-isystem=", "--define-macro=X=", "-std=", "--include-path="]
    made = [chance.choice(options) + "".join(chance.choices(atoms, k=4)) for _ in range(600)]
    kept, refused = allowed_flags(made, trusted=False)
    assert kept
    assert refused
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    # one call takes them all; it may fail, which is not the question
    subprocess.run(
        [COMPILER.path, "-E", *kept, "k.cu"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert [path.name for path in tmp_path.iterdir()] == ["k.cu"]


def test_names_that_a_shell_would_change():
    assert is_shell_active("/home/me/$(touch pwned)/k.cu")
    assert is_shell_active("/home/me/`x`/k.cu")
    assert not is_shell_active("/home/me/some dir (2)/it's; & k,1.cu")


# -- architectures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("H100", "sm_90a"), ("H100!", "sm_90a"), ("NVIDIA H100 80GB HBM3", "sm_90a"), ("H200", "sm_90a"),
        ("NVIDIA GH200 480GB", "sm_90a"), ("B200", "sm_100a"), ("B200+", "sm_100a"), ("NVIDIA B300", "sm_103a"),
        ("A100-80GB", "sm_80"), ("NVIDIA A100-SXM4-40GB", "sm_80"), ("A10", "sm_86"), ("A10G", "sm_86"),
        ("L4", "sm_89"), ("L40S", "sm_89"), ("T4", "sm_75"), ("Tesla T4", "sm_75"), ("RTX-PRO-6000", "sm_120a"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm_120a"), ("NVIDIA GeForce RTX 4090", "sm_89"),
        ("NVIDIA GeForce RTX 5090", "sm_120a"), ("NVIDIA RTX 6000 Ada Generation", "sm_89"), ("NVIDIA GB10", "sm_121a"),
        ("NVIDIA RTX A6000", "sm_86"), ("Radeon", None),
        ("h100", "sm_90a"), ("sm_90", "sm_90"), ("SM90a", "sm_90a"), ("compute_80", "sm_80"), ("rtx4090", "sm_89"),
        ("rtx-4090", "sm_89"), ("NVIDIA GeForce RTX 4090 Laptop GPU", "sm_89"), ("GTX 1660 Ti", "sm_75"), ("", None),
        ("90", "sm_90"), ("90a", "sm_90a"), ("8.9", "sm_89"), ("9", None), ("NVIDIA T400 4GB", "sm_75"), ("NVIDIA T1000", "sm_75"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "sm_89"), ("NVIDIA RTX A4500 Laptop GPU", "sm_86"), ("NVIDIA RTX A500", "sm_86"),
        ("NVIDIA GeForce MX450", "sm_75"), ("NVIDIA GeForce MX570", "sm_86"), ("NVIDIA CMP 170HX", "sm_80"),
        ("Quadro T2000", "sm_75"), ("Quadro GV100", "sm_70"), ("Tesla V100-SXM2-16GB", "sm_70"), ("Xavier", "sm_72"),
        ("Tesla P100-PCIE-16GB", "sm_60"), ("Tesla P40", "sm_61"), ("Quadro P4000", "sm_61"), ("NVIDIA TITAN Xp", "sm_61"),
        ("NVIDIA TITAN X (Pascal)", "sm_61"), ("NVIDIA GeForce GTX 1080 Ti", "sm_61"), ("NVIDIA GeForce GT 1030", "sm_61"),
        ("NVIDIA GeForce GTX TITAN X", "sm_52"), ("Tesla M60", "sm_52"), ("NVIDIA GeForce GTX 980", "sm_52"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "sm_80"), ("NVIDIA PG509-210", "sm_80"), ("Graphics Device", None),
    ],
)  # fmt: skip
def test_the_architecture_of_a_gpu(gpu, expected):
    assert architecture_for(gpu) == expected


def test_the_architecture_of_a_capability():
    assert [architecture_of(cc) for cc in ("7.5", "8.9", "9.0", "10.0", "12.1")] == [
        "sm_75", "sm_89", "sm_90a", "sm_100a", "sm_121a",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="H100"):
        architecture_of("H100")


def test_targets():
    assert gencode("sm_90a") == ("-gencode", "arch=compute_90a,code=sm_90a")
    assert gencode("native") == ("-arch=native",)
    assert asked_for(["-O3", "-lineinfo"]) == ()
    assert asked_for(["-arch", "sm_80"]) == ("sm_80",)
    assert asked_for(
        ["-gencode", "arch=compute_80,code=sm_80", "--generate-code=arch=compute_90,code=[compute_90,sm_90]"]
    ) == ("sm_80", "sm_90")
    assert asked_for(["-arch=compute_80"]) == ("compute_80",)
