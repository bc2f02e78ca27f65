"""Reads a Python text: what its functions, classes and statements refer to, and what its imports bind."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import lru_cache
from typing import cast

from orbit_lsp.closure.imports import Import
from orbit_lsp.kernels.python import regions
from orbit_lsp.kernels.python.reader import ENTRIES, MAIN_GUARD
from orbit_remote.common.lazy_dataclass import dataclass

Chain = tuple[str, ...]
"""`a.b.c` as its names."""

STATEMENTS = ""
"""The name of the unit of a module's own statements; those of its `__main__` part are `MAIN_GUARD`."""
_DEF = (ast.FunctionDef, ast.AsyncFunctionDef)
_JIT = re.compile(r"(?:[\w.]+\.)?jit\b(?!\.)")
_NAME = re.compile(r"[\w.]+(?:::[\w.]+)?(?=\(|<|$)")
_GLOBAL = re.compile(r"__global__([^;{]{0,400})")
_BEFORE_BRACKET = re.compile(r"(\w+)\s*\(")
_BACKWARD = re.compile(r"backward|bwd|(?<!no_)(?<!enable_)grad(?!_enabled|_mode)")
_WANTS_INPUT = re.compile(
    r"required=True|sys\.argv\[1\]|add_argument\(\s*['\"][a-z]|from_pretrained|load_dataset"
)
_WANTS_RANKS = re.compile(r"torchrun|init_process_group|mp\.spawn|torch\.distributed|LOCAL_RANK|mpirun")
_LOADS = re.compile(
    r"\b(?:CDLL|PyDLL|cdll|LoadLibrary|load_library|dlopen|cpp_extension|load_inline|RawModule|RawKernel|SourceModule"
    r"|get_function|get_kernel|module_from_file|module_from_buffer|cuModuleGetFunction|nvrtc)\b"
)
"""How Python opens a shared library, or compiles a CUDA text: ctypes, cffi, torch, CuPy, PyCUDA, NVIDIA's own packages."""
_HOOKS = frozenset(("add_pre_run_hook",))
"""Methods of a kernel that prepare launches."""
_REPORTS = frozenset(("do_bench", "do_bench_cudagraph", "perf_report"))
_DEVICES = frozenset(("cuda", "cpu", "gpu", "meta", "xpu", "hip"))
"""Texts that stand beside operators and name none."""
_NO_NAMES = frozenset(("ctx", "op"))
"""Fields of nodes that hold none."""
_ROW = 6
"""Of a table: a longer list is no row."""
_MOST_CASES = 1 << 20
_LONGEST = 80


@dataclass(slots=True, eq=False)
class CodeUnit:
    """What can refer to a symbol: a function, a class, a method of a test class, an assignment, the module's own
    statements.

    `refs` are the names that it reads, each with the methods that read it. `pairs` are names that a call or a table
    gives to something. `required` are parameters without a default. `cases` is how many parameter sets pytest makes
    of it. `defines` are names that are bound inside a module's statements.
    """

    name: str
    kind: str
    line: int
    refs: dict[Chain, frozenset[str]] = field(default_factory=dict[Chain, frozenset[str]])
    binds: dict[str, Import] = field(default_factory=dict[str, Import])
    attributes: set[str] = field(default_factory=set[str])
    own: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    strings: set[str] = field(default_factory=set[str])
    pairs: list[tuple[str, Chain]] = field(default_factory=list[tuple[str, Chain]])
    dynamic: set[Chain] = field(default_factory=set[Chain])
    embedded: set[str] = field(default_factory=set[str])
    bases: list[Chain] = field(default_factory=list[Chain])
    decorators: list[str] = field(default_factory=list[str])
    registered: list[str] = field(default_factory=list[str])
    required: tuple[str, ...] = ()
    cases: int = 1
    backward: bool = False
    methods: tuple[str, ...] = ()
    defines: set[str] = field(default_factory=set[str])

    @property
    def jit(self) -> bool:
        return any(_JIT.match(each) for each in self.decorators)

    @property
    def fixture(self) -> bool:
        return any("fixture" in each for each in self.decorators)

    @property
    def table(self) -> bool:
        """Say whether everything leads through a unit: a dictionary of all operators, a function that patches all of
        them.
        """
        return len(self.pairs) > 60 or len(self.refs) > (12 if self.kind == "assignment" else 240)


@dataclass(slots=True, eq=False)
class Module:
    """`runs`: its statements do more than define; `reports`: they print or time something. `generates`: some of its tests get their names when they are collected.
    `loads`: it opens a shared library or compiles a CUDA text by itself, as with ctypes or CuPy.
    """

    binds: dict[str, Import] = field(default_factory=dict[str, Import])
    stars: list[Import] = field(default_factory=list[Import])
    units: dict[str, CodeUnit] = field(default_factory=dict[str, CodeUnit])
    classes: dict[str, CodeUnit] = field(default_factory=dict[str, CodeUnit])
    exports: frozenset[str] | None = None
    lazy: bool = False
    runs: bool = False
    reports: bool = False
    main: bool = False
    generates: bool = False
    wants_input: bool = False
    wants_ranks: bool = False
    loads: bool = False
    entry: str = ""


def read(text: str, is_class: Callable[[str], bool]) -> Module:
    """Read a text. `is_class` says whether a class of that name holds tests. It never raises: a statement with a
    syntax error is left out, as far as statements can be told apart.
    """
    module = Module(
        generates="instantiate_parametrized_tests" in text or "instantiate_device_type_tests" in text,
        wants_input=bool(_WANTS_INPUT.search(text)),
        wants_ranks=bool(_WANTS_RANKS.search(text)),
        loads=bool(_LOADS.search(text)),
        lazy="def __getattr__" in text or "_import_structure" in text or "LazyModule" in text,
    )
    reader = _ModuleReader(module, is_class)
    for body in _bodies(text):
        try:
            reader.take(body)
        except RecursionError:
            continue
    module.entry = next(
        (n for n in ENTRIES if (u := module.units.get(n)) and u.kind == "function" and not u.required), ""
    )
    return module


def _bodies(text: str) -> Iterator[list[ast.stmt]]:
    if (tree := _parsed(text)) is not None:
        yield tree.body
        return
    line = 0
    for region in regions.split(text).regions:
        if (tree := _parsed(region)) is not None:
            yield [ast.increment_lineno(statement, line) for statement in tree.body]
        line += region.count("\n")


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def chain_of(node: ast.AST | None) -> Chain | None:
    """Return the names of `a.b.c`. Return None if it does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else None


def bound(node: ast.Import | ast.ImportFrom) -> dict[str, Import]:
    """Return the names that an import binds. Each leads to its module, and to the name in it if there is one."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.split(".")[0]: Import(
                0, tuple(alias.name.split(".")) if alias.asname else (alias.name.split(".")[0],)
            )
            for alias in node.names
        }
    module = tuple(node.module.split(".")) if node.module else ()
    return {
        alias.asname or alias.name: Import(node.level, module, (alias.name,))
        for alias in node.names
        if alias.name != "*"
    }


class _ModuleReader:
    def __init__(self, module: Module, is_class: Callable[[str], bool]) -> None:
        self._module, self._is_class = module, is_class
        self._filled: list[tuple[str, Chain]] = []
        self._loose = CodeUnit(STATEMENTS, "statements", 1)
        self._main = CodeUnit(MAIN_GUARD, "statements", 1)

    def take(self, body: list[ast.stmt]) -> None:
        for statement in _flat(body):
            self._statement(statement)
        module = self._module
        for unit in (self._loose, self._main):
            if unit.refs or unit.strings:
                module.units[unit.name] = unit
        module.reports = any(chain == ("print",) or chain[-1] in _REPORTS for chain in self._loose.refs)
        for name, chain in self._filled:
            if known := module.units.get(name):
                _refer(known, chain, "")

    def _statement(self, node: ast.stmt) -> None:
        module = self._module
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module.binds.update(bound(node))
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                where = tuple(node.module.split(".")) if node.module else ()
                module.stars.append(Import(node.level, where, star=True))
        elif isinstance(node, _DEF):
            self._function(node, "")
        elif isinstance(node, ast.ClassDef):
            self._class(node, "")
        elif isinstance(node, ast.If) and _is_main(node):
            module.main = True
            for each in node.body:
                self._main.defines |= _walk(self._main, each)
                if isinstance(each, _DEF):
                    self._main.defines.add(each.name)
        else:
            self._other(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, around: str) -> None:
        unit = CodeUnit(around + node.name, "function", node.lineno, required=_required(node))
        if around:
            unit.required = unit.required[1:]
        local = _walk(unit, node)
        unit.refs = {c: v for c, v in unit.refs.items() if c[0] not in local or c[0] in unit.binds}
        _decorate(unit, node.decorator_list)
        self._add(unit)

    def _class(self, node: ast.ClassDef, around: str) -> None:
        name = around + node.name
        unit = CodeUnit(name, "class", node.lineno)
        unit.bases = [c for base in node.bases if (c := chain_of(base))]
        unit.methods = tuple(each.name for each in node.body if isinstance(each, _DEF))
        _decorate(unit, node.decorator_list)
        tests = self._is_class(node.name) or any(each.startswith("test") for each in unit.methods)
        if tests:
            self._module.classes[name] = unit
        for each in node.body:
            if isinstance(each, ast.ClassDef) and tests:
                self._class(each, f"{name}::")
            elif isinstance(each, _DEF) and tests:
                self._function(each, f"{name}::")
            else:
                _walk(unit, each)
        for base in unit.bases:
            _refer(unit, base, "")
        if not tests or unit.refs:
            self._add(unit)

    def _other(self, node: ast.stmt) -> None:
        names: list[str] = []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                value = chain_of(node.value)
                if (
                    isinstance(target, (ast.Subscript, ast.Attribute))
                    and value
                    and (holder := chain_of(target.value))
                ):
                    self._filled.append((holder[0], value))  # `TABLE[key] = f`, `Class.method = f`
                inside = target.elts if isinstance(target, ast.Tuple) else [target]
                names += [each.id for each in inside if isinstance(each, ast.Name)]
        calls = any(isinstance(each, ast.Call) for each in ast.walk(node))
        if (
            names == ["__all__"]
            and isinstance(node, ast.Assign)
            and isinstance(node.value, (ast.List, ast.Tuple))
        ):
            self._module.exports = frozenset(
                each.value for each in node.value.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )  # fmt: skip
            return
        for name in names[:_ROW]:
            unit = CodeUnit(name, "assignment", node.lineno)
            _walk(unit, node)
            self._add(unit)
        if not names or calls:
            self._loose.defines |= _walk(self._loose, node)
            self._module.runs |= isinstance(node, (ast.For, ast.While, ast.With)) or (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            )

    def _add(self, unit: CodeUnit) -> None:
        """Add a unit. If two branches define the same name, either may be the one that runs."""
        known = self._module.units.get(unit.name)
        if known is None or (known.kind == "assignment") != (unit.kind == "assignment"):
            if known is None or known.kind == "assignment":
                self._module.units[unit.name] = unit
            return
        for chain, methods in unit.refs.items():
            known.refs[chain] = known.refs.get(chain, methods) | methods
        for method, calls in unit.own.items():
            known.own.setdefault(method, set()).update(calls)
        known.binds.update(unit.binds)
        known.attributes |= unit.attributes
        known.strings |= unit.strings
        known.pairs += unit.pairs
        known.decorators += unit.decorators
        known.registered += unit.registered
        known.backward |= unit.backward
        known.embedded |= unit.embedded


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements, with those under `if HAS_TRITON:` and `try:`: these definitions are the module's own too."""
    for node in body:
        if isinstance(node, ast.If) and not _is_main(node):
            yield from _flat([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handled = [each for handler in node.handlers for each in handler.body]
            yield from _flat([*handled, *node.body, *node.orelse])
        else:
            yield node


def _is_main(node: ast.If) -> bool:
    return any(isinstance(each, ast.Constant) and each.value == MAIN_GUARD for each in ast.walk(node.test))


def _required(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    given = node.args
    positional = given.posonlyargs + given.args
    bare = positional[: len(positional) - len(given.defaults)]
    named = [a for a, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return tuple(each.arg for each in (*bare, *named))


def _decorate(unit: CodeUnit, decorators: list[ast.expr]) -> None:
    cases = 1
    for node in decorators:
        name = chain_of(node.func if isinstance(node, ast.Call) else node)
        unit.decorators.append(".".join(name) if name else "")
        _walk(unit, node)
        if not isinstance(node, ast.Call):
            continue
        texts = [
            each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        if name and name[-1] == "parametrize":
            unit.decorators += [f"={word}" for text in texts[:1] for word in re.findall(r"\w+", text)]
            if node.args and isinstance(node.args[0], (ast.Tuple, ast.List)):
                unit.decorators += [
                    f"={each.value}" for each in node.args[0].elts if isinstance(each, ast.Constant)
                ]
            cases *= _length(node.args[1]) if len(node.args) > 1 else 1
        elif name and name[-1] not in ("skip", "skipif", "xfail", "usefixtures"):
            unit.registered += [match[0] for text in texts if (match := _NAME.match(text))]
        if name and name[-1] == "usefixtures":
            unit.required += tuple(texts)
    unit.cases = min(unit.cases * cases, _MOST_CASES)


def _length(node: ast.expr) -> int:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return max(len(node.elts), 1)
    if isinstance(node, ast.Call) and (name := chain_of(node.func)) and node.args:
        if name[-1] == "product":
            return min(math.prod(map(_length, node.args)), _MOST_CASES)
        last = node.args[-1]
        if name == ("range",) and isinstance(last, ast.Constant) and isinstance(last.value, int):
            return min(max(last.value, 1), _MOST_CASES)
    return 1


def _walk(unit: CodeUnit, root: ast.AST) -> set[str]:
    """Note in `unit` what a tree refers to. Return the names that are bound in it."""
    local: set[str] = set()
    words: set[str] = set()
    waiting: list[tuple[ast.AST, str]] = [(root, "")]
    while waiting:
        node, method = waiting.pop()
        match node:
            case ast.Name():
                words.add(node.id)
                if type(node.ctx) is ast.Load:
                    _refer(unit, (node.id,), method)
                else:
                    local.add(node.id)
                continue
            case ast.Constant():
                _string(unit, node.value)
                continue
            case ast.Attribute():
                unit.attributes.add(node.attr)
                if chain := chain_of(node):
                    words.add(chain[0])
                    unit.attributes.update(chain[1:])
                    if chain[0] in ("self", "cls"):
                        unit.own.setdefault(method, set()).add(chain[1])
                    elif type(node.ctx) is ast.Load and chain[-1] not in _HOOKS:
                        _refer(unit, chain, method)
                    continue
            case ast.Call():
                _call(unit, node)
            case ast.keyword():
                words.add(node.arg or "")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if node is not root:
                    local.add(node.name)
                if unit.kind == "class" and not method:
                    method = node.name
                arguments = node.args
                local.update(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
                if method and (texts := _registered(node.decorator_list)):
                    unit.registered += texts
            case ast.Import() | ast.ImportFrom():
                unit.binds.update(bound(node))
                continue
            case ast.Dict():
                for key, value in zip(node.keys, node.values, strict=True):
                    _pair(unit, [key, value])
            case ast.Tuple() | ast.List() if len(node.elts) <= _ROW:
                _pair(unit, node.elts)
            case ast.Assign():
                for target in node.targets:
                    if isinstance(target, ast.Subscript):
                        _pair(unit, [target.slice, node.value])
            case _:
                pass
        for name in node._fields:
            child = getattr(node, name, None)
            if isinstance(child, list):
                nodes = cast("list[object]", child)
                waiting += [(each, method) for each in nodes if isinstance(each, ast.AST)]
            elif isinstance(child, ast.AST) and name not in _NO_NAMES:
                waiting.append((child, method))
    unit.backward |= bool(_BACKWARD.search(" ".join((*words, *unit.attributes))))
    return local


def _refer(unit: CodeUnit, chain: Chain, method: str) -> None:
    known = unit.refs.get(chain)
    unit.refs[chain] = _alone(method) if known is None else known if method in known else known | {method}


@lru_cache(maxsize=1024)
def _alone(method: str) -> frozenset[str]:
    """Return a set of one method. It is cached, because most names stand in one method, or in none."""
    return frozenset((method,))


def _string(unit: CodeUnit, value: object) -> None:
    if not isinstance(value, str):
        return
    if len(value) <= _LONGEST and (match := _NAME.match(value)):
        unit.strings.add(match[0])
    elif "__global__" in value:
        unit.embedded.update(
            name for head in _GLOBAL.findall(value) for name in _BEFORE_BRACKET.findall(head)
        )


def _call(unit: CodeUnit, node: ast.Call) -> None:
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    _pair(unit, given)
    if chain_of(node.func) == ("getattr",) and node.args and (chain := chain_of(node.args[0])):
        unit.dynamic.add(chain)


def _pair(unit: CodeUnit, given: list[ast.expr] | list[ast.expr | None]) -> None:
    texts = [
        match[0]
        for each in given
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and len(each.value) < 400
        if (match := _NAME.match(each.value)) and match[0].lower() not in _DEVICES
    ]
    if texts:
        unit.pairs += [(texts[0], chain) for each in given if (chain := chain_of(each))]


def _registered(decorators: list[ast.expr]) -> list[str]:
    return [
        match[0]
        for node in decorators
        if isinstance(node, ast.Call)
        for each in node.args
        if isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and (match := _NAME.match(each.value))
    ]
