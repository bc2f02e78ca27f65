"""Imports and compiles a Python file on a machine that may have no GPU: it replaces Triton's driver, and leaves
statements out.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import importlib
import re
import sys
import types
from collections.abc import Generator, Sequence
from dataclasses import field
from typing import Any

from orbit_remote.child import absent_imports
from orbit_remote.child.user_module import UserFile
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Problem

_NO_GPU = (
    "Found no NVIDIA driver",
    "not compiled with CUDA enabled",
    "No CUDA GPUs",
    "0 active drivers",
    "Tried to instantiate dummy base class",  # torch.cuda.Event and Stream, of a torch that has no CUDA
    "cannot import name '_cuda_",  # from torch._C
    "'NoneType' object is not callable",  # the launcher that the stand-in has not got
)
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class NoGpuError(AttributeError):
    """Something was asked that only a GPU knows."""


def stand_in_for_the_gpu(capability: int) -> None:
    """Install a driver that only names the GPU to compile for, which is all that compiling needs. `capability` is 90
    for 9.0. Any other use of the driver raises NoGpuError.
    """
    runtime: Any = importlib.import_module("triton.runtime")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", capability, 32)

    class StandInDriver:
        launcher_cls = None

        def get_current_target(self) -> Any:
            return target

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int = 0) -> int:  # noqa: ARG002
            return 0

        def get_device_capability(self, device: object = None) -> tuple[int, int]:  # noqa: ARG002
            return divmod(capability, 10)

        def get_active_torch_device(self) -> Any:
            return importlib.import_module("torch").device("cuda", 0)

        @staticmethod
        def is_active() -> bool:
            return True

        def __getattr__(self, name: str) -> Any:
            message = f"there is no GPU here to ask for `{name}`"
            raise NoGpuError(message)

    driver = StandInDriver()
    runtime.driver.set_active(driver)
    torch = sys.modules.get("torch")
    if torch is not None and not torch.cuda.is_available():
        torch.cuda.get_device_capability = driver.get_device_capability


@contextlib.contextmanager
def cuda_means_cpu() -> Generator[None]:
    """Make what is asked of `cuda` on the CPU if torch finds no GPU."""
    torch: Any = importlib.import_module("torch")
    if torch.cuda.is_available():
        yield
        return

    def host(value: Any) -> Any:
        of_cuda = isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"
        return "cpu" if of_cuda else value

    class TensorsOnHost(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            del types
            if function is torch.Tensor.cuda:
                return arguments[0]
            given: dict[str, Any] = keywords or {}
            return function(*map(host, arguments), **{name: host(value) for name, value in given.items()})

    def nothing(*_: Any) -> None:
        pass

    synchronize, torch.cuda.synchronize = torch.cuda.synchronize, nothing
    try:
        with TensorsOnHost():
            yield
    finally:
        torch.cuda.synchronize = synchronize


@dataclass(slots=True)
class ImportedFile:
    """An imported file. `missing` are the names that omitted statements would have given. `failed` is the error of an
    import that was replaced, as `without` says.
    """

    module: types.ModuleType
    missing: set[str] = field(default_factory=set[str])
    lines: list[int] = field(default_factory=list[int])
    failed: BaseException | None = None
    without: dict[str, None] = field(default_factory=dict[str, None])
    absent: list[ImportError] = field(default_factory=list[ImportError])
    """Of each module or name that an import found missing, in place of which something stands."""

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*self.without, *self._of_the_gpu())

    def _of_the_gpu(self) -> tuple[str, ...]:
        if not self.lines:
            return ()
        where = f"line{'s' * (len(self.lines) > 1)} {', '.join(map(str, self.lines))}"
        names = f"; without it nothing is known of {', '.join(sorted(self.missing))}" if self.missing else ""
        return (f"the file uses the GPU while it is imported ({where}), and this machine has none{names}",)

    def lacking(self, problems: Sequence[Problem]) -> tuple[tuple[Problem, ...], str]:
        """Return the problems without those that only stand for a missing name, and these names."""
        names = {name for problem in problems for name in self.missing if _lacks(problem, name)}
        kept = tuple(problem for problem in problems if not any(_lacks(problem, name) for name in names))
        return kept, ", ".join(sorted(names))


def _lacks(problem: Problem, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\W? is not defined", problem.message) is not None


def import_without_gpu(file: UserFile) -> ImportedFile:
    """Import the file as a module. Raises what its own code raises, except for errors because there is no GPU: such a
    statement is left out. An import that fails is left out too, if something can replace it.
    """
    name = file.module_name()
    try:
        return ImportedFile(file.execute(name))
    except BaseException as error:
        # its package may fail before the file begins, also in the saved text of the file
        failed = _failed_line(error, file.path) if name in sys.modules else None
        importing = failed is None or (
            absent_imports.imported_at(file.text, failed) and not for_want_of_a_gpu(error)
        )
        if importing and isinstance(error, Exception) and not absent_imports.is_needed(error):
            imported = ImportedFile(file.empty(name), failed=error)
            failed = 0
        elif failed is None or not for_want_of_a_gpu(error):
            raise
        else:
            imported = ImportedFile(sys.modules[name])
    imports = absent_imports.Imports(file.path)
    imported.without, imported.absent = imports.remarks, imports.absent
    if not failed:
        _import_package(imports, imported.module, name)
    everything = False  # whether a `*` of which the names are not known was left out
    flags = compile(file.text, file.path, "exec", dont_inherit=True).co_flags & _FUTURE
    for statement in ast.parse(file.text, file.path).body:
        if (statement.end_lineno or statement.lineno) < failed:
            continue
        if statement.lineno <= failed:
            _leave_out(imported, statement)
            continue

        def execute(statement: ast.stmt = statement) -> None:
            code = compile(ast.Module([statement], []), file.path, "exec", flags, dont_inherit=True)
            exec(code, imported.module.__dict__)  # noqa: S102 - importing the user's file is what this is for

        if isinstance(statement, ast.Import | ast.ImportFrom):
            left = imports.attempt(execute)
            if left or imports.modules:  # which a `*` gives no names
                everything = everything or any(each.name == "*" for each in statement.names)
            if left is None:
                continue
            if absent_imports.is_needed(left):
                raise left
            if for_want_of_a_gpu(left):
                _leave_out(imported, statement)
                continue
            imported.failed = imported.failed or left
            imported.module.__dict__.update(absent_imports.stand_ins(statement))
            imports.remarks[f"line {statement.lineno} was left out ({type(left).__name__}: {left})"] = None
            continue
        try:
            execute()
        except Exception as error:
            lacking = isinstance(error, NameError) and (everything or error.name in imported.missing)
            lacking = lacking or isinstance(error, absent_imports.AbsentError)
            follows = (imported.lines or imported.failed) and not _is_of_a_name(error)
            if not (lacking or follows or for_want_of_a_gpu(error)):
                raise
            if kernel := _bare_kernel(statement):
                with contextlib.suppress(Exception):
                    execute(kernel)
                    reason = next(iter(str(error).splitlines()), type(error).__name__)
                    imports.remarks[
                        f"{kernel.name}: what stands above @triton.jit was left out ({reason})"
                    ] = None
                    continue
            _leave_out(imported, statement)
    return imported


def _bare_kernel(statement: ast.stmt) -> ast.FunctionDef | None:
    """Return a kernel without the decorators above its `triton.jit`: they choose how it is launched."""
    if not isinstance(statement, ast.FunctionDef):
        return None
    decorators = statement.decorator_list
    for at, decorator in enumerate(decorators):
        if at and re.match(r"(?:triton\.)?jit\b", ast.unparse(decorator)):
            fields = {name: value for name, value in ast.iter_fields(statement) if name != "decorator_list"}
            bare = ast.FunctionDef(**fields, decorator_list=decorators[at:])
            return ast.copy_location(bare, statement)
    return None


def _import_package(imports: absent_imports.Imports, module: types.ModuleType, name: str) -> None:
    package = module.__package__
    if package and (left := imports.attempt(lambda: importlib.import_module(package))):
        raise left
    sys.modules[name] = module


def _leave_out(imported: ImportedFile, statement: ast.stmt) -> None:
    imported.lines.append(statement.lineno)
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            imported.missing.add(name)
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            imported.missing |= {each.asname or each.name.partition(".")[0] for each in names}
        case _:
            given = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            imported.missing |= {node.id for node in given if isinstance(node.ctx, ast.Store)}


def _failed_line(error: BaseException, path: str) -> int | None:
    """Return the line at the top level of the file that an error came through."""
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename == path and code.co_name == "<module>":
            return at.tb_lineno
        at = at.tb_next
    return None


def _is_of_a_name(error: Exception) -> bool:
    """Say whether an error is about a name that nothing binds, or that a module lacks. Omitted statements cannot have
    caused it.
    """
    of_module = isinstance(error, AttributeError) and isinstance(error.obj, types.ModuleType)
    return isinstance(error, NameError) or of_module


def for_want_of_a_gpu(error: BaseException) -> bool:
    """Say whether what raised an error needs a GPU, or a torch that has CUDA."""
    return isinstance(error, NoGpuError) or any(phrase in str(error) for phrase in _NO_GPU)
