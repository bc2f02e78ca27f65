"""What scripts, recipes, READMEs, build.rs and projects of Visual Studio tell of how a file is compiled, without a run of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compilation_check import find, project

VISUAL_STUDIO = """<Project>
<ItemDefinitionGroup Condition="'$(Configuration)|$(Platform)'=='Debug|x64'"><CudaCompile><CodeGeneration>compute_75,sm_75</CodeGeneration>
</CudaCompile></ItemDefinitionGroup>
<ItemDefinitionGroup Condition="'$(Configuration)|$(Platform)'=='Release|x64'">
<ClCompile><PreprocessorDefinitions>WIN32;H;%(PreprocessorDefinitions)</PreprocessorDefinitions><Optimization>Full</Optimization></ClCompile>
<CudaCompile><CodeGeneration>compute_80,sm_80;compute_86,sm_86</CodeGeneration><FastMath>true</FastMath>
<Defines>N=4;V=$(Version)</Defines><AdditionalOptions>--extended-lambda %(AdditionalOptions)</AdditionalOptions></CudaCompile>
</ItemDefinitionGroup>
<ItemGroup><CudaCompile Include="k.cu"><GenerateRelocatableDeviceCode>true</GenerateRelocatableDeviceCode></CudaCompile></ItemGroup>
</Project>
"""

SCRIPTS = {
    "a call": ({"build.sh": "#!/bin/sh\n# nvcc -DOLD k.cu\nnvcc -O3 -DA \\\n  --use_fast_math -o k k.cu && ./k\n"}, "-DA --use_fast_math", []),
    "a variable": ({"run.sh": "nvcc -DA -DN=$1 $OUT k.cu\n"}, "-DA", ["-DN=$1", "$OUT"]),
    "variables with values": ({"run.sh": "SRC=k.cu\nexport OPT='-DA -ftz=true'\nALL=\"$OPT -DB\"\nnvcc $ALL -o k ${SRC} -DN=${N:-4}\nSRC=o.cu\n"}, "-DA -ftz true -DB -DN=4", []),
    "a variable that a command sets": ({"run.sh": "N=4\nN=$(nproc)\nnvcc -DA -DN=$N k.cu\n"}, "-DA", ["-DN=${N}"]),
    "a variable of another call": ({"run.sh": "SRC=o.cu\nnvcc -DO $SRC\nSRC=k.cu\nnvcc -DA $SRC\n"}, "-DA", []),
    "a loop": ({"all.sh": "for f in o.cu k.cu; do nvcc -DA $f; done\n"}, "-DA", []),
    "a loop over values": ({"all.sh": "for n in 4 8; do\n  nvcc -DN=$n k.cu\ndone\n"}, "-DN=4", ["the values of n after the first"]),
    "nvcc in a variable": ({"make.sh": 'NVCC=${NVCC:-nvcc}\n$NVCC -DA k.cu\n"${CUDA_NVCC}" -DB o.cu\n'}, "-DA", []),
    "flags in a variable of nvcc's": ({"make.sh": "NVCC_FLAGS=-DA\nnvcc $NVCC_FLAGS k.cu\n"}, "-DA", []),
    "a loop over all": ({"all.sh": 'for f in *.cu; do nvcc -DA "$f"; done\n'}, "-DA", []),
    "a loop over all of another folder": ({"all.sh": 'for f in other/*.cu; do nvcc -DA "$f"; done\n'}, "", []),
    "of another file": ({"build.sh": "nvcc -DA ok.cu k.cu.o\n"}, "", []),
    "SCons": ({"SConstruct": "env.Program('k.cu', NVCCFLAGS='-DA')\n"}, "", ["what it gives nvcc for k.cu"]),
    "premake": ({"premake5.lua": 'project "k"\nfiles { "k.cu" }\n'}, "", ["what it gives nvcc for k.cu"]),
        "Python": ({"build.py": "subprocess.run(['nvcc', '-DA', 'k.cu'])\n"}, "", ["what it gives nvcc for k.cu"]),
    "pycuda": ({"run.py": "SourceModule(open('k.cu').read(), options=['-use_fast_math'])\n"}, "-use_fast_math", []),
    "CuPy": ({"run.py": "S = (PWD / 'k.cu').read_text()\nO = ('--std=c++17', '-DA')\ncupy.RawModule(code=S, options=O + ('-DN=' + n,), name_expressions=L)\n"},
             "-std c++17 -DA", ["options: '-DN=' + n"]),
    "CuPy without options": ({"run.py": "K = cupy.RawKernel((PWD / 'k.cu').read_text(), 'k')\n"}, "", []),
    "CuPy with options of several sources": ({"run.py": "RawKernel(read('k.cu'), 'k', options=('-DA',))\nRawKernel(read('o.cu'), 'o')\n"}, "", ["what it gives nvcc for k.cu"]),
    "Python that only names it": ({"readme.py": "print('see k.cu')\n"}, "", []),
    "a Makefile that compiles it": ({"SConstruct": "'k.cu'\n", "Makefile": "k.o: k.cu\n\tnvcc -DA $<\n"}, "-DA", []),
    "nvcc by its path": ({"run.sh": "$CUDA_HOME/bin/nvcc -DA k.cu\n"}, "-DA", []),
    "a batch file": ({"build.bat": '@set OPT=-DA\nREM nvcc -DOLD k.cu\n"%CUDA%\\bin\\nvcc.exe" %OPT% ^\n -DB -o k k.cu\n'}, "-DA -DB", []),
    "a justfile": ({"justfile": 'FLAGS := "-DA -arch=sm_86"\nk:\n    nvcc {{ FLAGS }} k.cu\n'}, "-DA", []),
    "a Dockerfile": ({"Dockerfile": "ENV OPT -DA\nWORKDIR /src\nRUN cd /src && nvcc $OPT -o k k.cu\n"}, "-DA", []),
    "a README": ({"README.md": "# k\nBuild it with `nvcc -DA -o k k.cu` and run it.\n"}, "-DA", []),
    "a README of another file": ({"README.md": "`nvcc -DA -o o o.cu`\n"}, "", []),
    "a README after a script": ({"README.md": "`nvcc -DR k.cu`\n", "run.sh": "nvcc -DA k.cu\n"}, "-DA", []),
    "Visual Studio": ({"k.vcxproj": VISUAL_STUDIO}, "-DH -DN=4 -use_fast_math -rdc true --extended-lambda", ["-DV=$(Version)"]),
    "Visual Studio's project of another file": ({"k.vcxproj": VISUAL_STUDIO.replace("k.cu", "o.cu")}, "", []),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_compiles_a_file_and_is_no_build_file(tmp_path: Path, name: str) -> None:
    files, flags, left_out = SCRIPTS[name]
    project(tmp_path, {**files, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert (" ".join(made.flags), [each.what for each in made.left_out]) == (flags, left_out)


def test_the_architectures_of_a_release_build(tmp_path: Path) -> None:
    project(tmp_path, {"k.vcxproj": VISUAL_STUDIO, "k.cu": ""})
    assert find(tmp_path, "k.cu").architectures == ("80", "86")


COMMENTS = {
    "of a line": ("// nvcc -DA -o k k.cu\n__global__ void k() {}\n", "-DA"),
    "of many": ("/*\n * Compile: nvcc -std=c++20 \\\n *   -DB k.cu\n */\n", "-std c++20 -DB"),
    "without a name": ("// compile with nvcc -DA -rdc=true\n", "-DA -rdc true"),
    "of another file": ("// nvcc -DA o.cu\n", ""),
    "that names nvcc alone": ("// nvcc is slow here\n", ""),
    "in code": ('const char* c = "nvcc -DA k.cu";\n', ""),
}


@pytest.mark.parametrize("name", COMMENTS)
def test_the_call_of_nvcc_in_a_sources_comments(tmp_path: Path, name: str) -> None:
    text, flags = COMMENTS[name]
    project(tmp_path, {"k.cu": text})
    assert " ".join(find(tmp_path, "k.cu").flags) == flags


RUST = {
    "cc": ('cc::Build::new().cuda(true).flag("-gencode").flag("arch=compute_86,code=sm_86").define("N", Some("4")).define("A", None).file("src/k.cu").compile("k");', "-DN=4 -DA", []),
    "cc of host code": ('cc::Build::new().cpp(true).flag("-DA").file("src/k.cc").compile("k");', "", []),
    "a variable": ('let mut b = cc::Build::new();\n b.cuda(true); // b.flag("-DOLD");\n b.flag("-DA");\n b = b.include("inc").files(&["src/o.cu", "src/k.cu"]);', "-DA", []),
    "files that a function lists": ('let mut b = KernelBuild::new(kind);\nb.flag("-DA").files(glob_paths("src/*.cu"));', "-DA", []),
    "another source": ('cc::Build::new().cuda(true).flag("-DA").file("src/o.cu").compile("k");', "", []),
    "a loop": ('let mut b = cc::Build::new();\nb.cuda(true).flag("-DA");\nfor k in ["o", "k"] { b.file(format!("src/{k}.cu")); }', "-DA", []),
    "bindgen_cuda": ('let b = bindgen_cuda::Builder::default().arg("-std=c++20").arg("--expt-relaxed-constexpr");', "-std c++20 --expt-relaxed-constexpr", []),
    "bindgen_cuda of a folder": ('let b = bindgen_cuda::Builder::default().kernel_paths_glob("kernels/*.cu").arg("-DA");', "", []),
    "cudaforge beside it": ('let b = bindgen_cuda::Builder::default().arg("-DB");\nlet k = KernelBuilder::new().source_files(vec!["src/k.cu"]).arg("-DA");', "-DA", []),
    "a command": ('Command::new("nvcc").args(&["-ptx", "-DA", "-o", &ptx, "src/k.cu"]).arg("--use_fast_math").status();', "-DA --use_fast_math", []),
    "a command of a function": ('fn one(name: &str) { let source = format!("src/{}", name); let nvcc = find("nvcc"); Command::new(&nvcc).arg("-DA").arg(&source).status(); }', "-DA", []),
    "another command": ('Command::new("gcc").args(&["-DA", "src/k.cu"]).status();', "", ["what it gives nvcc for k.cu"]),
    "values": ('const ARCH: &str = "-DA";\nlet n = 4;\ncc::Build::new().cuda(true).flag(ARCH).flag(&format!("-DN={}", n)).flag(&env::var("F").unwrap_or_else(|_| "-DF".to_string())).file("src/k.cu");', "-DA -DF", ['&format!("-DN={}", n)']),
    "features": ('let mut b = cc::Build::new();\nb.cuda(true).file("src/k.cu");\nif cfg!(feature = "x") { b.flag("-DX"); }\n#[cfg(target_os = "windows")]\nb.flag("-DW");\nif cfg!(not(windows)) { b.flag("-DA"); }', "-DA", ['"-DX", which a condition adds']),
    "one of several macros": ('let mut of = "";\nif cfg!(feature = "a") {\n of = "IS_A";\n} else {\n of = "IS_B";\n}\nlet mut b: cc::Build = ours::builder();\nb.define(of, None);\nb.file("src/k.cu");', "", ["-D<IS_A or IS_B>"]),
}  # fmt: skip


@pytest.mark.parametrize("name", RUST)
def test_the_build_script_of_a_crate(tmp_path: Path, name: str) -> None:
    text, flags, left_out = RUST[name]
    project(tmp_path, {"build.rs": f"fn main() {{\n{text}\n}}\n// nvcc\n", "src/k.cu": ""})
    made = find(tmp_path, "src/k.cu")
    assert (" ".join(made.flags), [each.what for each in made.left_out]) == (flags, left_out)


FILLED_IN = {"src/Makefile_base": "NVCCFLAGS = -DA @@@FLAGS@@@ -DN=@@@N@@@\nvpath %.cu gpu\n%.o: %.cu\n\tnvcc $(NVCCFLAGS) -c $<\n"}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "command", "flags"),
    [
        ({"src/configure.py": "open('Makefile_base')\n", **FILLED_IN}, "`cd src && python configure.py`", "-DA"),
        ({"src/configure": "sed s/x/y/ Makefile_base > Makefile\n", **FILLED_IN}, "`cd src && ./configure`", "-DA"),
        ({"src/Makefile.gpu": "%.o: %.cu\n\tnvcc -DA -c $<\n"}, "", "-DA"),
        ({"src/Makefile.gpu": "%.o: %.cu\n\tnvcc -DA -c $<\n", "src/Makefile": "%.o: %.cu\n\tnvcc -DB -c $<\n"}, "`cd src && bear -- make -B`", "-DB"),
    ],
)  # fmt: skip
def test_a_makefile_that_make_does_not_find(
    tmp_path: Path, files: dict[str, str], command: str, flags: str
) -> None:
    project(tmp_path, files | {"src/gpu/k.cu": ""})
    made = find(tmp_path, "src/gpu/k.cu")
    assert (made.database_command, " ".join(made.flags)) == (command, flags)
    assert [each.what for each in made.left_out] == (["-DN=$(N)"] if "Makefile_base" in str(files) else [])
