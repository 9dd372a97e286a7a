"""Python's clock, torch and kbtool as they were before foreign code was imported.

What times and judges must be the same after a kernel's code has run. Nothing is put back: a process
in which something was replaced has no result.
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

# What the worker's tasks import later has to be here before foreign code is.
from kbtool.gpu import benchmark, calls, cpu_clock, cuda_clock, minimise, tune, validate
from kbtool.gpu.harness import Harness

_JUDGES = (benchmark, calls, cpu_clock, cuda_clock, minimise, tune, validate)

_OTHERS = (
    time, math, statistics, torch, torch.Tensor, torch.random, torch.cuda, torch.cuda.Event,
    torch.cuda.Stream, torch.cuda.CUDAGraph, torch.cuda.graph, torch.nn.functional, torch.testing,
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
            (vars(owner), name, value, _body(value))
            for owner in (*_OTHERS, *own, *_classes(own))
            for name, value in vars(owner).items()
            if _counts(name, value)
        ]
        self._operators = _operators()
        self._settings = {name: read() for name, read in _SETTINGS.items()}

    def hold(self, harness: Harness) -> None:
        """Take note of the harness's functions that say what is right, and of those they call."""
        members = vars(harness)
        found = {
            (name, id(members)): (members, name, members[name], _body(members[name]))
            for name in _PROBLEM
            if name in members
        }
        for name in _PROBLEM:
            _add_called(members.get(name), found)
        self._members += found.values()

    def replaced(self) -> str | None:
        """The name of something that is not as it was, or ``None``."""
        for members, name, value, body in self._members:
            if members.get(name) is not value or _body(value) != body:
                owner = members.get("__qualname__", members.get("__name__", ""))
                return f"{members.get('__module__', '')}.{owner}.{name}".strip(".")
        for name, registered in _operators().items():
            if registered != self._operators[name]:
                return f"torch's operator aten::{name}"
        for name, read in _SETTINGS.items():
            if read() != self._settings[name]:
                return name
        return None


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


def _body(value: Any) -> tuple[Any, ...] | None:
    """What a function written in Python does; another function's body can be put into it."""
    if not isinstance(value, FunctionType):
        return None
    return value.__code__, value.__defaults__, value.__kwdefaults__


def _add_called(function: Any, found: dict[tuple[str, int], Any]) -> None:
    """Add the functions that a function calls by a name of its module, and what these call."""
    if not isinstance(function, FunctionType):
        return
    members = function.__globals__
    for name in _names(function.__code__):
        called = members.get(name)
        if isinstance(called, FunctionType) and (name, id(members)) not in found:
            found[name, id(members)] = (members, name, called, _body(called))
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
