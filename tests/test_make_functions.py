"""What make's own functions give, read without make, and the programs that a Makefile links of sources so named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orbit_lsp.compilation.build_systems import makefiles
from tests.cli_check import orbit
from tests.driver_layouts import write

FILES = {"src/a.cu": "", "src/b.cu": "", "src/deep/c.cu": "", "src/d.cpp": "", "main.cc": ""}
MADE = {
    "$(S:.cu=.o)": "src/a.o src/b.o",
    "$(S:src/%.cu=bin/%.o)": "bin/a.o bin/b.o",
    "$(S:$(IN)/%.cu=$(OUT)/%.o)": "bin/a.o bin/b.o",
    "${S:%=x/%}": "x/src/a.cu x/src/b.cu",
    "$(patsubst %.cu, bin/%.o, $(notdir $(S)))": "bin/a.o bin/b.o",
    "$(addprefix bin/,$(addsuffix .o,$(basename $(notdir $(S)))))": "bin/a.o bin/b.o",
    "$(filter-out %b.cu,$(S))": "src/a.cu",
    "$(filter %.cpp %.cc,$(wildcard src/*) main.cc)": "src/d.cpp main.cc",
    "$(sort $(S) main.cc src/a.cu)": "main.cc src/a.cu src/b.cu",
    "$(foreach d,src src/deep,$(wildcard $(d)/*.cu))": "src/a.cu src/b.cu src/deep/c.cu",
    "$(sort $(shell find src -name '*.cu'))": "src/a.cu src/b.cu src/deep/c.cu",
    '$(sort $(shell find $(IN)/deep -type f -name "*.cu"))': "src/deep/c.cu",
    "$(suffix main.cc src/d.cpp)": ".cc .cpp",
    "$(subst src,lib,$(S))": "lib/a.cu lib/b.cu",
}


@pytest.mark.parametrize("text", MADE)
def test_functions_of_texts_give_what_make_gives(tmp_path: Path, text: str) -> None:
    makefile = f"IN = src\nOUT = bin\nS = $(wildcard src/*.cu)\nall: {text}\n.PHONY: all {text}\nshown:\n\t@echo {text}\n"
    write(tmp_path, {"Makefile": makefile, **FILES})
    read = makefiles.rules(str(tmp_path / "Makefile"), makefile, lambda name: "")
    assert " ".join(read[0].needs) == MADE[text]
    made = subprocess.run(["make", "-s", "shown"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert made.stdout.split() == MADE[text].split()


@pytest.mark.parametrize(
    "text", ["$(filter-out $(UNSET),a.cu)", "$(foreach d,$(UNSET),$(d)/k.cu)", "$(filter %.o)"]
)
def test_what_depends_on_an_unknown_part_is_unknown_whole(tmp_path: Path, text: str) -> None:
    read = makefiles.rules(str(tmp_path / "Makefile"), f"all: {text}\n", lambda name: "")
    assert ".cu" not in " ".join(read[0].needs)


@pytest.mark.parametrize(
    ("named", "object_"), [("$(wildcard $(SRC)/*.cu)", "o"), ("$(shell find $(SRC) -name '*.cu')", "cuo")]
)
def test_a_program_of_all_sources_of_a_folder_is_made_by_its_makefile(
    tmp_path: Path, named: str, object_: str
) -> None:
    write(tmp_path, {
        "Makefile": f"SOURCES = {named}\n" + """\
SRC = src
BIN = bin
TARGET = $(BIN)/sort
OBJECTS = $(SOURCES:$(SRC)/%.cu=$(BIN)/%.o)
all: $(TARGET)
$(BIN)/%.o: $(SRC)/%.cu | $(BIN)
\tnvcc -rdc=true -Iinclude -c $< -o $@
$(TARGET): $(OBJECTS) | $(BIN)
\tnvcc -rdc=true $^ -o $@ -lcudadevrt
run: $(TARGET)
\t./$(TARGET)
""".replace(".o", f".{object_}"),
        "include/sort.h": "void sort(int *x);\n",
        "src/sort.cu": '#include "sort.h"\n__global__ void merge(int *x) {}\nvoid sort(int *x) { merge<<<1, 1>>>(x); }\n',
        "src/main.cu": '#include "sort.h"\nint main() { sort(0); }\n',
    })  # fmt: skip
    assert orbit(tmp_path, "drivers", "src/sort.cu")[1].splitlines()[1:] == [
        "  make src/main.cu (bin/sort)",
        "      merge <- sort <- main of main.cu",
    ]


def test_loops_within_loops_end_and_are_unknown(tmp_path: Path) -> None:
    many = " ".join(map(str, range(1_000)))
    text = f"N = {many}\nall: $(foreach a,$(N),$(foreach b,$(N),$(foreach c,$(N),k.cu)))\n"
    read = makefiles.rules(str(tmp_path / "Makefile"), text, lambda name: "")
    assert len(" ".join(read[0].needs)) < 100
