"""Python's clock, torch and kbtool as they were before foreign code was imported.

What times and judges must be the same after a kernel's code has run. Nothing is put back: a process
in which something was replaced has no result.
"""

from __future__ import annotations

import builtins
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from gc import get_referents  # by its name here: a kernel may replace that of the module
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

# What the worker's tasks import later has to be here before foreign code is.
from kbtool.gpu import benchmark, calls, cpu_clock, cuda_clock, minimise, tune, validate
from kbtool.gpu.harness import Harness

_JUDGES = (benchmark, calls, cpu_clock, cuda_clock, minimise, tune, validate)

_OTHERS = (
    builtins, time, math, statistics, torch, torch.Tensor, torch.random, torch.cuda,
    torch.cuda.Event, torch.cuda.Stream, torch.cuda.CUDAGraph, torch.cuda.graph,
    torch.nn.functional, torch.testing,
)  # fmt: skip
"""Modules and classes whose functions must stay, beside all of kbtool's own."""
_OPERATORS = (
    "abs", "add.Tensor", "argmax", "clamp", "clone", "contiguous", "copy_", "div.Tensor",
    "empty_like", "eq.Tensor", "equal", "fill_.Scalar", "frexp.Tensor", "isfinite", "isnan",
    "isneginf", "isposinf", "ldexp.Tensor", "le.Scalar", "max", "maximum", "mul.Tensor",
    "ne.Tensor", "nonzero", "sub.Tensor", "where.self", "_local_scalar_dense", "_to_copy",
)  # fmt: skip
"""Torch's operators that compare outputs: a library could register others in their place."""
_PROBLEM = ("make_inputs", "reference", "baseline", "error_scale", "work")
"""The functions of a harness that say what is right."""
_SETTINGS: Mapping[str, Callable[[], Any]] = {
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_default_device()": torch.get_default_device,
    "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision,
    "torch.get_num_threads()": torch.get_num_threads,
    "torch.is_autocast_enabled()": lambda: [
        torch.is_autocast_enabled(device) for device in ("cpu", "cuda")
    ],
    "torch.backends.cuda.matmul": lambda: [
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    ],
    "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "the stack of modes that intercept torch": lambda: [
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    ],
}
"""Settings of torch with which it computes and judges."""


class Originals:
    """Takes note of everything that times and judges, and finds what was replaced."""

    def __init__(self) -> None:
        _keep_manual_seed()
        own = [module for name, module in sys.modules.items() if name.startswith("kbtool.")]
        self._members = [
            (vars(owner), name, value)
            for owner in (*_OTHERS, *own, *_classes(own))
            for name, value in vars(owner).items()
            if _counts(name, value)
        ]
        self._bodies = [_Bodies(value for _, _, value in self._members)]
        self._operators = _operators()
        self._settings = {name: read() for name, read in _SETTINGS.items()}

    def hold(self, harness: Harness) -> None:
        """Take note of the harness's functions that say what is right, and of those they call."""
        members = vars(harness)
        found = {
            (name, id(members)): (members, name, members[name])
            for name in _PROBLEM
            if name in members
        }
        for name in _PROBLEM:
            _add_called(members.get(name), found)
        self._members += found.values()
        self._bodies.append(_Bodies(value for _, _, value in found.values()))

    def replaced(self) -> str | None:
        """The name of something that is not as it was, or ``None``."""
        for members, name, value in self._members:
            if members.get(name) is not value:
                return _name_of(members, name)
        for bodies in self._bodies:
            if function := bodies.changed():
                return f"{function.__module__}.{function.__qualname__}"
        for name, registered in _operators().items():
            if registered != self._operators[name]:
                return f"torch's operator aten::{name}"
        for name, read in _SETTINGS.items():
            if read() != self._settings[name]:
                return name
        return None


class _Bodies:
    """What functions written in Python do: another function's body can be put into one.

    Each read of a part of a body calls every audit hook, and after each case there are thousands to
    read. So one call asks for all that the functions refer to; parts are read if that differs.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        functions = {value for value in values if isinstance(value, FunctionType)}
        self._parts = {function: _parts(function) for function in functions}
        # The one part that can be changed in place.
        self._keywords = [
            (function, function.__kwdefaults__, tuple(function.__kwdefaults__.items()))
            for function in functions
            if function.__kwdefaults__
        ]
        self._referents = get_referents(*self._parts)

    def changed(self) -> FunctionType | None:
        """A function with another body than it had, or ``None``."""
        for function, keywords, items in self._keywords:
            if not _are(
                [part for item in keywords.items() for part in item],
                [part for item in items for part in item],
            ):
                return function
        now = get_referents(*self._parts)
        if not _are(now, self._referents):
            for function, parts in self._parts.items():
                if not _are(_parts(function), parts):
                    return function
            self._referents = now  # torch noted something at a function of its own
        return None


def _are(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether they are the same objects; what an object says of itself does not count."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(one is other for one, other in pairs)


def _parts(function: FunctionType) -> tuple[Any, ...]:
    parts = (function.__code__, function.__defaults__, function.__kwdefaults__)
    return tuple(part for part in parts if part is not None)


def _keep_manual_seed() -> None:
    """Wrap ``torch.manual_seed``, so that torch does not do it later: when ``torch._dynamo`` is
    first imported, by ``torch.compile`` or a peer, it replaces the function if nobody has."""
    if torch.manual_seed is torch.random.manual_seed:

        @functools.wraps(torch.random.manual_seed)
        def manual_seed(seed: int) -> torch.Generator:
            return torch.random.manual_seed(seed)

        torch.manual_seed = manual_seed


def _counts(name: str, value: Any) -> bool:
    """Whether a member must stay: functions, classes, properties and constants."""
    if name.startswith("__"):
        return False
    is_code = callable(value) or isinstance(value, property | classmethod | staticmethod)
    return is_code or name.isupper()


def _classes(modules: list[ModuleType]) -> list[type]:
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _name_of(members: Mapping[str, Any], name: str) -> str:
    """A member of a module or class, with the names of these."""
    owner = members.get("__qualname__", members.get("__name__", ""))
    return f"{members.get('__module__', '')}.{owner}.{name}".strip(".")


def _add_called(function: Any, found: dict[tuple[str, int], Any]) -> None:
    """Add the functions that a function calls by a name of its module, and what these call."""
    if not isinstance(function, FunctionType):
        return
    members = function.__globals__
    for name in _names(function.__code__):
        called = members.get(name)
        if isinstance(called, FunctionType) and (name, id(members)) not in found:
            found[name, id(members)] = (members, name, called)
            if called.__globals__ is members:
                _add_called(called, found)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _operators() -> dict[str, str]:
    """What is registered for each operator, by device."""
    return {name: torch._C._dispatch_dump(f"aten::{name}") for name in _OPERATORS}
