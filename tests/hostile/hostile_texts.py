"""Texts that are meant to stop a language server: each is a small function, and stands in one table.

`bench/hostile.py` opens and edits each in a real server; `test_hostile_texts.py` counts what each costs its event loop.
"""

from __future__ import annotations

from collections.abc import Callable

KERNEL = "__global__ void k{0}(float* x, int n) {{ int i = threadIdx.x; if (i < n) x[i] *= 2.0f; }}\n"
ORBIT = "// orbit: n = 1 << 10; x = randn(n)\n// orbit: launch k{0}<<<(n + 255) / 256, 256>>>(x, n)\n"
TRITON = "import triton\nimport triton.language as tl\n\n\n"
JIT = "@triton.jit\ndef k{0}(x, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n    tl.store(x + i, tl.load(x + i) * 2)\n\n\n"
JIT_ORBIT = "# orbit: n = 1 << 10; x = randn(n)\n# orbit: launch k{0}[(1,)](x, n, B=1024)\n"
WORDS = "word\n" * 1_000_000
ONE = KERNEL.format(0)
ONE_JIT = TRITON + JIT.format(0)


def defines(count: int) -> str:
    return "".join(f"#define NAME_{i} {i}\n" for i in range(count)) + ONE


def define_chain(count: int) -> str:
    chain = "".join(f"#define C{i} C{i + 1}\n" for i in range(count))
    return f"{chain}#define C{count} __global__\nC0 void k0(float* x) {{ x[0] = 1; }}\n"


def dead_define_chain(count: int) -> str:
    return "".join(f"#define C{i} C{i + 1} C{i + 2}\n" for i in range(count)) + "C0 void f() {}\n" + ONE


def macro_bomb(count: int) -> str:
    bomb = "".join(f"#define B{i} B{i + 1} B{i + 1}\n" for i in range(count))
    return f"{bomb}#define B{count} __global__\nB0 void k0(float* x) {{}}\n"


def redefined(count: int) -> str:
    return "".join(f"#define SAME {i}\n" for i in range(count)) + ONE


def kernel_macros(count: int) -> str:
    return "".join(f"#define K{i} __global__ void\n" for i in range(count)) + ONE


def nested_ifs(count: int) -> str:
    return "".join(f"#if A{i}\n" for i in range(count)) + ONE + "#endif\n" * count


def bare_ifs(count: int) -> str:
    return "#if\n" * count + ONE


def open_ifs(count: int) -> str:
    return "".join(f"#ifdef A{i}\nint a{i};\n" for i in range(count)) + ONE


def branches(count: int) -> str:
    return "#if A\n" + "".join(f"#elif B{i}\nint a{i};\n" for i in range(count)) + "#endif\n" + ONE


def braced_branches(count: int) -> str:
    return f"#if A\nvoid f() {{\n#else\nvoid g() {{\n#endif\n}}\n{ONE}" * count


def nested_namespaces(count: int) -> str:
    return "".join(f"namespace n{i} {{\n" for i in range(count)) + ONE + "}\n" * count


def lines(count: int) -> str:
    body = "".join(f"  x[{i % 97}] += {i}.0f * n;\n" for i in range(count))
    return f"__global__ void k0(float* x, int n) {{\n{body}}}\n"


def functions(count: int) -> str:
    return "".join(f"int f{i}(int a) {{\n  return a + {i};\n}}\n" for i in range(count // 3)) + ONE


def kernels(count: int) -> str:
    return "".join(KERNEL.format(i) for i in range(count))


def specs(count: int) -> str:
    return "".join(ORBIT.format(i) + KERNEL.format(i) for i in range(count))


def launches(count: int) -> str:
    return ONE + "int main() {\n" + "  k0<<<dim3(1, 2), 256>>>(x, n);\n" * count + "}\n"


def long_line(size: int) -> str:
    return f"int table[] = {{{'1, ' * (size // 3)}}};\n{ONE}"


def long_name(size: int) -> str:
    return f"int {'a' * size};\n{ONE}"


def long_string(size: int) -> str:
    return f'const char* s = "{"x" * size}";\n{ONE}'


def open_string(size: int) -> str:
    return f'const char* s = "{"x " * (size // 2)}\n{ONE}'


def raw_string(size: int) -> str:
    return f'const char* s = R"fence({"x) " * (size // 3)}\n{ONE}'


def comment(size: int) -> str:
    return f"/* {'word ' * (size // 5)} */\n{ONE}"


def open_comment(size: int) -> str:
    return f"{ONE}/* {WORDS[:size]}"


def backslashes(size: int) -> str:
    return "#define A " + "\\\n" * (size // 2) + f"1\n{ONE}"


def parentheses(count: int) -> str:
    return f"int a = {'(' * count}1{')' * count};\n{ONE}"


def opening_braces(count: int) -> str:
    return "{" * count + "\n" + ONE


def closing_braces(count: int) -> str:
    return "}\n" * count + ONE


def angles(count: int) -> str:
    return f"template <{'template <' * count}class T{'> class X' * count}> void f();\n{ONE}{'<<<' * count}\n"


def quotes(count: int) -> str:
    return "'\"" * count + "\n" + ONE


def nulls(count: int) -> str:
    return "\0" * count + "\n" + ONE + "\0" * count


def bidi(count: int) -> str:
    return "int \u202e\u2066a\u2069\u200b\ufeff = 1; // \U0001f600\n" * count + ONE


def returns(count: int) -> str:
    return "int a;\r" * count + ONE


def includes(count: int) -> str:
    return "".join(f'#include "h{i}.cuh"\n' for i in range(count)) + ONE


def include_loop(count: int) -> str:
    return '#include "here.cu"\n' * count + ONE


def spec_parentheses(count: int) -> str:
    return f"// orbit: n = {'(' * count}1{')' * count}\n// orbit: launch k0<<<1, 1>>>(x, n)\n{ONE}"


def spec_lines(count: int) -> str:
    return "// orbit: n = 1\n" * count + ONE


def spec_above(lines: int, kernels: int) -> str:
    """One launch spec, above kernels that all begin on the line below it."""
    return "// orbit: n = 1\n" * lines + " ".join(f"__global__ void k{i}(int n) {{}}" for i in range(kernels))


def spec_of_long_lines(count: int) -> str:
    return f"// orbit: n = {'(' * 3_900}\n" * count + ONE


def lines_above_a_spec(count: int) -> str:
    return "\n" * count + ORBIT.format(0) + ONE


def py_spec_lines(count: int) -> str:
    return TRITON + "# orbit: n = 1\n" * count + JIT.format(0)


def py_specs_of_lines(count: int, lines: int) -> str:
    return TRITON + "".join("# orbit:a=1\n" * lines + JIT.format(i) for i in range(count))


def py_comments(count: int, comment: str = "#") -> str:
    return f"{TRITON}@triton.jit\ndef k0(x):\n" + f"    {comment}\n" * count + "    pass\n"


def py_exec(count: int) -> str:
    return ONE_JIT + "exec 'a' in " * count + "\n"


def py_arrows(count: int) -> str:
    arrows = f"    #{')->' * 5_000}\n" * 16
    return TRITON + "".join(
        f"# orbit: n = 1\n@triton.jit\ndef k{i}(\n{arrows}    x):\n    pass\n\n" for i in range(count)
    )


def stray_specs(count: int) -> str:
    return "// orbit: n = 1\nint a;\n" * count


def parameters(count: int) -> str:
    return f"__global__ void k0({', '.join(f'float* p{i}' for i in range(count))}) {{}}\n"


def above_a_launch(word: str, count: int) -> str:
    return f"{ONE}void host() {{ {word * count}; k0<<<1, 256>>>(x, n); }}\n"


def below_a_spec(text: str, count: int) -> str:
    """The type of a parameter is looked for in the whole file."""
    return ORBIT.format(0) + ONE.replace("float*", "some_type*") + text * count


def py_kernels(count: int) -> str:
    return TRITON + "".join(JIT.format(i) for i in range(count))


def py_specs(count: int) -> str:
    return TRITON + "".join(JIT_ORBIT.format(i) + JIT.format(i) for i in range(count))


def py_helpers(count: int) -> str:
    helpers = "".join(f"@triton.jit\ndef h{i}(x):\n    return x\n\n\n" for i in range(count))
    calls = "".join(f"    h{i}(x)\n" for i in range(count))
    return f"{TRITON}{helpers}@triton.jit\ndef k0(x):\n{calls}"


def one_line(count: int) -> str:
    """Kernels that begin on one line, below a launch spec."""
    return "// orbit: n = 1; launch k0<<<1, 1>>>(n)\n" + " ".join(
        f"__global__ void k{i}(int n) {{}}" for i in range(count)
    )


def one_long_line(count: int, size: int) -> str:
    return one_line(count) + "/* " + "ü😀 " * (size // 3) + "*/\n"


def long_line_of_emoji(size: int) -> str:
    return f"// {'ü😀 ' * (size // 3)}\n{ONE}"


def wide_comment(size: int) -> str:
    """One emoji makes each character of a text in memory four bytes."""
    return f"/* 😀 {WORDS[:size]} */\n{ONE}"


def control_characters(size: int) -> str:
    """Each is six bytes of JSON."""
    return f"/* {chr(1) * size} */\n{ONE}"


def py_lines(count: int) -> str:
    return ONE_JIT + "".join(f"a{i} = {i}\n" for i in range(count))


def py_body(count: int) -> str:
    return f"{TRITON}@triton.jit\ndef k0(x):\n" + "".join(f"    x += {i}\n" for i in range(count))


def py_parentheses(count: int) -> str:
    return f"{ONE_JIT}a = {'(' * count}1{')' * count}\n"


def py_open(count: int) -> str:
    return f"{ONE_JIT}a = {'[(' * count}\n{JIT.format(1)}"


def py_nested(count: int) -> str:
    return ONE_JIT + "".join(f"{' ' * i}if a:\n" for i in range(count)) + " " * count + "pass\n"


def py_list(size: int) -> str:
    return f"{ONE_JIT}a = [{'1, ' * (size // 3)}]\n"


def py_string(size: int) -> str:
    return f'{ONE_JIT}a = """{WORDS[:size]}"""\n'


def py_open_string(size: int) -> str:
    return f'{ONE_JIT}a = """{WORDS[:size]}'


def py_sum(count: int) -> str:
    return f"{ONE_JIT}a = {'1 + ' * count}1\n"


def py_calls(count: int) -> str:
    return f"{ONE_JIT}a = {'f(' * count}1{')' * count}\n"


def py_decorators(count: int) -> str:
    return TRITON + "@triton.jit\n" * count + "def k0(x):\n    pass\n"


def py_aliases(count: int) -> str:
    aliases = "".join(f"j{i + 1} = j{i}\n" for i in range(count))
    return f"{TRITON}j0 = triton.jit\n{aliases}@j{count}\ndef k0(x):\n    pass\n"


def py_nulls(count: int) -> str:
    return "\0" * count + "\n" + ONE_JIT


MB = 1_000_000
TEXTS: dict[str, Callable[[], str]] = {
    "8,000 defines": lambda: defines(8_000),
    "8,000 defines below a half-typed declaration": lambda: "int a\n" + defines(8_000),
    "a chain of 2,000 defines": lambda: define_chain(2_000),
    "a chain of 4,000 defines that leads nowhere": lambda: dead_define_chain(4_000),
    "a macro that doubles 60 times": lambda: macro_bomb(60),
    "one name defined 5,000 times": lambda: redefined(5_000),
    "5,000 macros for __global__": lambda: kernel_macros(5_000),
    "4,000 nested ifs": lambda: nested_ifs(4_000),
    "850,000 ifs": lambda: bare_ifs(850_000),
    "8,000 ifs without an end": lambda: open_ifs(8_000),
    "8,000 branches": lambda: branches(8_000),
    "2,000 braces in branches": lambda: braced_branches(2_000),
    "10,000 namespaces": lambda: nested_namespaces(10_000),
    "a kernel of 200,000 lines": lambda: lines(200_000),
    "200,000 lines of functions": lambda: functions(200_000),
    "20,000 kernels": lambda: kernels(20_000),
    "1,000 launch specs": lambda: specs(1_000),
    "2,000 kernels on one line": lambda: one_line(2_000),
    "2,000 kernels on a line of 1 MB": lambda: one_long_line(2_000, MB),
    "a line of 5 MB of emoji": lambda: long_line_of_emoji(5 * MB),
    "a comment of 5 MB with an emoji": lambda: wide_comment(5 * MB),
    "a comment of 2 MB of control characters": lambda: control_characters(2 * MB),
    "20,000 launches": lambda: launches(20_000),
    "a line of 5 MB": lambda: long_line(5 * MB),
    "a name of 5 MB": lambda: long_name(5 * MB),
    "a string of 5 MB": lambda: long_string(5 * MB),
    "a string of 5 MB without an end": lambda: open_string(5 * MB),
    "a raw string without an end": lambda: raw_string(5 * MB),
    "a comment of 5 MB": lambda: comment(5 * MB),
    "a comment without an end": lambda: open_comment(5 * MB),
    "a directive of 1,000,000 lines": lambda: backslashes(2 * MB),
    "100,000 parentheses": lambda: parentheses(100_000),
    "100,000 open braces": lambda: opening_braces(100_000),
    "100,000 braces too many": lambda: closing_braces(100_000),
    "20,000 angle brackets": lambda: angles(20_000),
    "200,000 quotes": lambda: quotes(200_000),
    "1,000,000 null bytes": lambda: nulls(MB // 2),
    "20,000 lines of bidi": lambda: bidi(20_000),
    "200,000 lone returns": lambda: returns(200_000),
    "20,000 includes": lambda: includes(20_000),
    "an include of itself": lambda: include_loop(1_000),
    "100,000 parentheses in a launch spec": lambda: spec_parentheses(100_000),
    "10,000 lines of one launch spec": lambda: spec_lines(10_000),
    "800 lines of launch spec above 100 kernels on one line": lambda: spec_above(800, 100),
    "1,200 long lines of one launch spec": lambda: spec_of_long_lines(1_200),
    "a launch spec below 1,000,000 lines": lambda: lines_above_a_spec(1_000_000),
    "20,000 times const above a launch": lambda: above_a_launch("const ", 20_000),
    "20,000 times __device__ below a launch spec": lambda: below_a_spec("__device__ ", 20_000),
    "500,000 line ends below a launch spec": lambda: below_a_spec("\n", 500_000) + "int a;\n",
    "100,000 open comments below a launch spec": lambda: below_a_spec('"/*\n', 100_000),
    "20,000 launch specs of nothing": lambda: stray_specs(20_000),
    "20,000 parameters": lambda: parameters(20_000),
    "python: 5,000 kernels": lambda: py_kernels(5_000),
    "python: 1,000 launch specs": lambda: py_specs(1_000),
    "python: 300,000 lines of one launch spec": lambda: py_spec_lines(300_000),
    "python: 20 launch specs of 2,000 lines": lambda: py_specs_of_lines(20, 2_000),
    "python: 80,000 arrows in the header of a kernel": lambda: py_arrows(1),
    "python: 40,000 comments in a kernel": lambda: py_comments(40_000),
    "python: 2,000 comments in a short text": lambda: py_comments(2_000),
    "python: 20,000 launch specs in a kernel": lambda: py_comments(20_000, "#orbit:"),
    "python: 40,000 continuations in a kernel": lambda: py_comments(40_000, "\\"),
    "python: a statement of 20,000 execs": lambda: py_exec(20_000),
    "python: 1,900 helpers of one kernel": lambda: py_helpers(1_900),
    "python: 200,000 lines": lambda: py_lines(200_000),
    "python: a kernel of 100,000 lines": lambda: py_body(100_000),
    "python: 100,000 parentheses": lambda: py_parentheses(100_000),
    "python: 100,000 open brackets": lambda: py_open(50_000),
    "python: 1,000 nested ifs": lambda: py_nested(1_000),
    "python: a list of 5 MB": lambda: py_list(5 * MB),
    "python: a string of 5 MB": lambda: py_string(5 * MB),
    "python: a string without an end": lambda: py_open_string(5 * MB),
    "python: a sum of 100,000": lambda: py_sum(100_000),
    "python: 50,000 nested calls": lambda: py_calls(50_000),
    "python: 10,000 decorators": lambda: py_decorators(10_000),
    "python: a chain of 5,000 aliases": lambda: py_aliases(5_000),
    "python: 500,000 null bytes": lambda: py_nulls(MB // 2),
}


def name_of(what: str) -> str:
    """A file name for a text of the table."""
    return "here.py" if what.startswith("python") else "here.cu"
