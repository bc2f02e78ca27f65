"""popcorn's contract (GPU MODE): `custom_kernel(data)` runs on what `generate_input` of reference.py makes. Its
`check_implementation` judges it, once for every test and benchmark of task.yml.

It follows `problems/pmpp_v2/eval.py` of github.com/gpu-mode/reference-kernels (as of f83cb92): the candidate gets a
copy, the check gets the original; for fresh data the seed grows by 13, as there in ranked runs. The problem's own
eval.py is not used.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final

from orbit_remote.child.harness import tensor_data
from orbit_remote.child.harness.harness_case import ContractCase, ContractError, ExplainedCheck, described
from orbit_remote.child.user_module import UserFile
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files, popcorn_task

_SEED: Final = 42
_STEP: Final = 13
_WORDS: Final = 400


class Popcorn:
    """The open file's `custom_kernel` beside its problem, with the methods of `KernelBench`."""

    name = "custom_kernel"
    trials = 1

    def __init__(self, torch: Any, file: UserFile, load: Callable[[], Any]) -> None:
        """Load the problem. `load` executes the open file, once what it imports can be found. Raises ContractError,
        or whatever the user's code raises.
        """
        self._torch = torch
        folder = harness_files.problem_folder(Path(file.path))
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        task = _task(folder)
        if not (folder / harness_files.REFERENCE).is_file():
            raise ContractError(
                f"{Path(file.path).name} has custom_kernel, and there is no reference.py beside task.yml to check it against",
                "put the problem's reference.py into the folder of its task.yml",
            )
        _find_listed(folder, task)
        module = load()
        reference = importlib.import_module(Path(harness_files.REFERENCE).stem)
        self._kernel = _function(module, "custom_kernel", Path(file.path).name)
        self._generate = _function(reference, "generate_input", harness_files.REFERENCE)
        self._check = _function(reference, "check_implementation", harness_files.REFERENCE)
        own = getattr(reference, "ref_kernel", None)
        self._ref_kernel: Any = own if callable(own) else None
        self.reference = "ref_kernel" if self._ref_kernel is not None and own is not self._kernel else None
        self.tests = tuple(
            ContractCase(f"test {at}", arguments) for at, arguments in enumerate(task.tests, 1)
        )
        self.benchmarks = tuple(
            ContractCase(f"benchmark {at}", arguments) for at, arguments in enumerate(task.benchmarks, 1)
        )
        if not self.tests and not self.benchmarks:
            raise ContractError(
                "task.yml lists no test and no benchmark", place=c.Place(str(folder / harness_files.TASK), 1)
            )
        for case in (*self.tests, *self.benchmarks):
            self._fits(case)

    def _fits(self, case: ContractCase) -> None:
        try:
            inspect.signature(self._generate).bind(**case.arguments)
        except TypeError as error:
            raise ContractError(
                f"generate_input does not take the arguments of {case.name} in task.yml: {error}"
            ) from None
        except ValueError:  # a function without a signature
            return

    def settle(self, turn: int) -> None:
        self._torch.manual_seed(_SEED + turn)

    def inputs(self, case: ContractCase, turn: int) -> Any:
        arguments = dict(case.arguments)
        if turn and isinstance(arguments.get("seed"), int):
            arguments["seed"] += _STEP * turn
        self.settle(turn)  # for one that takes no seed
        return self._generate(**arguments)

    def call(self, data: Any) -> Any:
        return self._kernel(data)

    def call_reference(self, data: Any) -> Any:
        return self._ref_kernel(data)

    def changes(self) -> set[str] | None:
        return None  # problems pass the output along with the inputs

    def adopt(self) -> str:
        """Adopt no parameters, because a function has none."""
        return ""

    def judge(self, data: Any, output: Any, turn: int) -> list[ExplainedCheck]:
        self.settle(turn)
        answer = self._check(tensor_data.cloned(self._torch, data), output)
        good, words = _read(answer)
        words = " ".join(words.split())
        message = words if len(words) <= _WORDS else words[:_WORDS] + "…"
        check = c.Check("check_implementation", good, message=message)
        return [
            ExplainedCheck(check, message or "check_implementation rejected the output without a message")
        ]


def _read(answer: Any) -> tuple[bool, str]:
    """Read an answer of the check. Problems of 2025 return a text that is empty when all is well, later ones a pair."""
    match answer:
        case str():
            return not answer, answer
        case (bool(good), words):
            return good, str(words or "")
        case bool():
            return answer, ""
        case _:
            raise ContractError(
                f"check_implementation returns {described(answer)}; a text or a pair (good, message) is expected"
            )


def _task(folder: Path) -> popcorn_task.Task:
    path = folder / harness_files.TASK
    try:
        task = popcorn_task.of_file(path)
    except FileNotFoundError:
        text = f"custom_kernel is checked by what task.yml lists, and there is none in {folder}"
        raise ContractError(text, "put the problem's task.yml and reference.py into its folder") from None
    except (OSError, ValueError) as error:
        raise ContractError(f"task.yml cannot be read: {error}") from None
    except popcorn_task.TaskError as error:
        raise ContractError(error.message, place=c.Place(str(path), error.line)) from None
    if task.language != "py":
        raise ContractError(
            f"task.yml says lang: {task.language}; only Python problems are supported",
            place=c.Place(str(path), 1),
        )
    if task.several_gpus:
        raise ContractError(
            "this problem needs several GPUs, and a check here has one", place=c.Place(str(path), 1)
        )
    return task


def _function(module: Any, name: str, where: str) -> Any:
    function = getattr(module, name, None)
    if not callable(function):
        raise ContractError(f"{where} has no function {name}")
    return function


class _Listed(importlib.abc.MetaPathFinder):
    """Modules that task.yml takes from elsewhere: evaluation copies them all into one folder."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        del path, target
        file = self._files.get(fullname)
        return importlib.util.spec_from_file_location(fullname, file) if file else None


def _find_listed(folder: Path, task: popcorn_task.Task) -> None:
    files = {
        name: path.resolve()
        for name, path in harness_files.listed(folder, task).items()
        if path.is_file() and not (folder / f"{name}.py").is_file()
    }
    if files:
        sys.meta_path.insert(0, _Listed(files))
