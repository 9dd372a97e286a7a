"""Builds the attention library once a session and loads it into this process."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from attention_rule import FOLDER, MANIFEST


def build_library(folder: Path) -> Path:
    """Compiles the CPU target of the manifest in ``folder``."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler: the attention library cannot be built")
    target = MANIFEST.targets["cpu"]
    installed = Path(torch.__file__).parent
    compile_one = [compiler, "-std=c++17", "-fPIC", *target.flags, "-Wall", "-Wextra", "-Werror"]
    compile_one += [f"-isystem{installed / 'include'}", "-c"]
    objects = [folder / f"{Path(source).stem}.o" for source in target.sources]
    running = [
        subprocess.Popen([*compile_one, str(FOLDER / source), "-o", str(built)])
        for source, built in zip(target.sources, objects, strict=True)
    ]
    assert [process.wait(timeout=300) for process in running] == [0] * len(running)
    library = folder / "split_k_attention.so"
    libraries = installed / "lib"
    link = [compiler, "-shared", *map(str, objects), "-o", str(library), "-Wl,--no-undefined"]
    link += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch_cpu", *target.link_flags]
    subprocess.run(link, check=True, timeout=300)
    return library


def import_file(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def interface(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The Python face of the operator, its library loaded."""
    torch.ops.load_library(build_library(tmp_path_factory.mktemp("attention")))
    return import_file(FOLDER / "interface.py", "split_k_attention_interface")


@pytest.fixture(scope="session")
def harness(interface: ModuleType) -> Any:
    return import_file(FOLDER / "harness.py", "split_k_attention_harness")


@pytest.fixture(scope="session")
def attention(interface: ModuleType) -> Callable[..., Any]:
    return interface.split_k_attention  # type: ignore[no-any-return]


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's thread count; the count from before is back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
