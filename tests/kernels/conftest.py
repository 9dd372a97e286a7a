"""Builds the attention library once a run and loads it into this process."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from attention_rule import ARCHITECTURE, FOLDER, MANIFEST, Place
from plans import Make, planner

from kbtool.gpu.build import build
from kbtool.gpu.build_plan import plan_build
from kbtool.store.lock import lock


def build_library(cache: Path) -> Path:
    """The CPU target, with every warning an error; on a machine with a card the CUDA target, which
    holds the CPU's code too: a process can load only one library that defines the operators."""
    if ARCHITECTURE is not None:
        plan = plan_build(MANIFEST, FOLDER, "cuda", cache, ARCHITECTURE)
    else:
        target = MANIFEST.targets["cpu"]
        strict = target.model_copy(update={"flags": [*target.flags, "-Wall", "-Wextra", "-Werror"]})
        kernel = MANIFEST.model_copy(update={"targets": {"cpu": strict}})
        plan = plan_build(kernel, FOLDER, "cpu", cache)
    build(plan, timeout=600)
    return plan.library


def import_file(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def interface(build_cache: Path) -> ModuleType:
    """The Python face of the operator, its library loaded."""
    torch.ops.load_library(build_library(build_cache))
    return import_file(FOLDER / "interface.py", "split_k_attention_interface")


@pytest.fixture(scope="session")
def harness(interface: ModuleType) -> Any:
    return import_file(FOLDER / "harness.py", "split_k_attention_harness")


@pytest.fixture(scope="session")
def plan(shared: Path) -> Make:
    """The planner of the CUDA kernels, which needs no card."""
    with lock(shared / "plan.lock"):
        return planner(shared / "plan.so")


@pytest.fixture(autouse=True)
def far_memory() -> Iterator[None]:
    """What a test of tensors that lie far apart took goes back: others may be on the card."""
    yield
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > 1 << 30:
        torch.cuda.empty_cache()


@pytest.fixture
def place() -> Place:
    """Where a test runs that does not name its places."""
    return Place("cpu")


@pytest.fixture
def attention(interface: ModuleType, place: Place) -> Callable[..., Any]:
    """The operator's Python face, at the test's place."""
    return functools.partial(interface.split_k_attention, variant=place.variant)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's thread count; the count from before is back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
