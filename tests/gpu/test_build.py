"""The builder: keys, warm loads, locks, first errors."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from kbtool.gpu import toolchain
from kbtool.gpu.build import (
    BuildError,
    build,
    choose_architecture,
    choose_target,
    first_error,
    plan_build,
)
from kbtool.gpu.probe import probe_machine
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Kernel
from kbtool.store.tree import Entry, load_record

FIXTURE = Path(__file__).parents[1] / "fixtures" / "kernels" / "scaled_add"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "scaled_add"))


def manifest(folder: Path) -> Kernel:
    entry = load_record(folder / "kernel.yaml", "kernel.yaml", Kernel)
    assert isinstance(entry, Entry)
    return entry.record


def test_a_second_build_runs_no_compiler(folder, tmp_path):
    plan = plan_build(manifest(folder), folder, "cpu", tmp_path / "cache")
    lines: list[str] = []
    cold = build(plan, timeout=120, on_line=lines.append)
    assert not cold.warm
    assert any("compile" in line for line in lines)
    lines.clear()
    warm = build(plan, timeout=120, on_line=lines.append)
    assert warm.warm
    assert lines == []
    assert warm.sha256 == cold.sha256


def test_a_library_that_was_tampered_with_is_built_again(folder, tmp_path):
    plan = plan_build(manifest(folder), folder, "cpu", tmp_path / "cache")
    cold = build(plan, timeout=120)
    plan.library.write_bytes(plan.library.read_bytes() + b"x")
    again = build(plan, timeout=120)
    assert not again.warm
    assert again.sha256 == cold.sha256


def test_the_key_covers_sources_headers_and_flags(folder, tmp_path):
    kernel = manifest(folder)
    keys = {plan_build(kernel, folder, "cpu", tmp_path).key}
    (folder / "scaled_add.h").write_text((folder / "scaled_add.h").read_text() + "\n")
    keys.add(plan_build(kernel, folder, "cpu", tmp_path).key)
    target = kernel.targets["cpu"]
    other = kernel.model_copy(
        update={"targets": {"cpu": target.model_copy(update={"flags": ["-O1", *target.flags]})}}
    )
    keys.add(plan_build(other, folder, "cpu", tmp_path).key)
    assert len(keys) == 3


def test_planning_writes_nothing(folder, tmp_path):
    plan_build(manifest(folder), folder, "cpu", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_builds_of_one_plan_wait_for_each_other(folder, tmp_path):
    plan = plan_build(manifest(folder), folder, "cpu", tmp_path / "cache")
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(build(plan, timeout=120))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.warm for result in results) == [False, True, True]


def test_the_first_real_error_is_told(folder, tmp_path):
    (folder / "scaled_add.h").write_text("#pragma once\n#include <nowhere.h>\nint x = y;\n")
    plan = plan_build(manifest(folder), folder, "cpu", tmp_path / "cache")
    with pytest.raises(BuildError) as caught:
        build(plan, timeout=120)
    assert "scaled_add.h:2:10: fatal error: nowhere.h: No such file" in caught.value.first
    assert not plan.library.exists()


UNDEFINED = "x.cpp:(.text+0x1): undefined reference to `g()'"
PTXAS = "ptxas fatal   : Unresolved extern function 'f'"
NOTHING = "the build failed and printed nothing"


@pytest.mark.parametrize(
    ("output", "first"),
    [
        ("FAILED: x.o\nc++ -c x.cpp\nx.cpp:3:1: error: boo\nx.cpp:9:1: error: baz",
         "x.cpp:3:1: error: boo"),
        ("ninja: build stopped\ncollect2: error: ld returned 1", NOTHING),
        (f"x.o: in function `f':\n{UNDEFINED}\ncollect2: error: ld returned 1", UNDEFINED),
        (PTXAS, PTXAS),
        ("", NOTHING),
    ],
)  # fmt: skip
def test_first_error(output, first):
    assert first_error(output) == first


def test_missing_things_are_named(folder, tmp_path, monkeypatch):
    kernel = manifest(folder)
    with pytest.raises(UsageError, match="no target 'rocm'; it has cpu"):
        choose_target(kernel, "rocm", cuda=False)
    (folder / "scaled_add.h").unlink()
    with pytest.raises(UsageError, match=r"scaled_add\.h is in the manifest but not there"):
        plan_build(kernel, folder, "cpu", tmp_path)
    monkeypatch.setattr(toolchain.shutil, "which", lambda *a, **k: None)
    toolchain.find_compiler.cache_clear()
    with pytest.raises(MachineError, match="install g\\+\\+"):
        toolchain.find_compiler()
    toolchain.find_compiler.cache_clear()
    with pytest.raises(MachineError, match="ninja"):
        toolchain.find_ninja()


def test_the_probe_and_the_builder_mean_the_same_compiler():
    assert probe_machine().compiler == toolchain.find_compiler()[1]


def test_auto_takes_cuda_only_where_it_can_run(folder):
    kernel = manifest(folder)
    assert choose_target(kernel, "auto", cuda=True) == "cpu"
    both = kernel.model_copy(update={"targets": {**kernel.targets, "cuda": kernel.targets["cpu"]}})
    assert choose_target(both, "auto", cuda=True) == "cuda"
    assert choose_target(both, "auto", cuda=False) == "cpu"


def test_the_architecture_is_the_cards_own(folder):
    kernel = manifest(folder)
    target = kernel.targets["cpu"].model_copy(update={"architectures": ["sm_90a", "sm_80"]})
    kernel = kernel.model_copy(update={"targets": {"cuda": target}})
    assert choose_architecture(kernel, "cuda", "sm_90") == "sm_90a"
    assert choose_architecture(kernel, "cuda", "sm_80") == "sm_80"
    assert choose_architecture(kernel, "cuda", None) == "sm_90a"
    with pytest.raises(UsageError, match="does not compile for sm_75; it does for sm_90a, sm_80"):
        choose_architecture(kernel, "cuda", "sm_75")
