"""The builder: keys, warm loads, locks, first errors."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from kbtool.gpu import ninja, toolchain
from kbtool.gpu.build import BuildError, BuildTimeoutError, build, build_all
from kbtool.gpu.build_plan import BuildPlan, choose_architecture, choose_target, plan_build
from kbtool.gpu.compiler_output import first_error
from kbtool.gpu.probe import probe_machine
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Kernel
from kbtool.store.tree import Entry, load_record

pytestmark = pytest.mark.slow

FIXTURE = Path(__file__).parents[1] / "fixtures" / "kernels" / "scaled_add"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The fixture without its binding: to compile torch's headers takes two seconds."""
    copy = Path(shutil.copytree(FIXTURE, tmp_path / "scaled_add"))
    text = (copy / "kernel.yaml").read_text()
    assert "binding.cpp, " in text
    (copy / "kernel.yaml").write_text(text.replace("binding.cpp, ", ""))
    return copy


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


def two_sources(folder: Path, tmp_path: Path) -> BuildPlan:
    """The fixture with a second source and a header that only it reads."""
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "second.cpp").write_text(
        '#include "second.h"\nconst char* where() { return __FILE__; }\n'
    )
    (folder / "sub" / "second.h").write_text("// read by second.cpp alone\n")
    return plan_of_two(folder, tmp_path)


def plan_of_two(folder: Path, tmp_path: Path) -> BuildPlan:
    cpu = manifest(folder).targets["cpu"]
    files = {
        "sources": ["scaled_add.cpp", "sub/second.cpp"],
        "headers": ["scaled_add.h", "sub/second.h"],
    }
    kernel = manifest(folder).model_copy(update={"targets": {"cpu": cpu.model_copy(update=files)}})
    return plan_build(kernel, folder, "cpu", tmp_path / "cache")


def edited_copy(plan: BuildPlan, tmp_path: Path, file: str, add: str) -> BuildPlan:
    copy = Path(shutil.copytree(plan.folder, tmp_path / f"copy of {len(list(tmp_path.iterdir()))}"))
    (copy / file).write_text((copy / file).read_text() + add)
    return plan_build(plan.kernel, copy, "cpu", tmp_path / "cache")


def test_only_sources_that_include_the_edit_are_recompiled_in_a_copy(folder, tmp_path):
    plan = two_sources(folder, tmp_path)
    first = build(plan, timeout=120)
    assert first.reused == 0
    for file, compiled in (
        ("sub/second.h", "sub/second.cpp"),
        ("sub/second.cpp", "sub/second.cpp"),
        ("scaled_add.h", "scaled_add.cpp"),
    ):
        lines: list[str] = []
        copy = edited_copy(plan, tmp_path, file, "\nstatic const int edited = 1;\n")
        made = build(copy, timeout=120, on_line=lines.append)
        assert (made.warm, made.reused) == (False, 1), file
        assert [line for line in lines if "compile" in line] == [f"[1/2] compile {compiled}"]
        assert made.key != first.key


def test_a_copy_without_an_edit_is_the_same_library(folder, tmp_path):
    plan = two_sources(folder, tmp_path)
    first = build(plan, timeout=120)
    found = build(edited_copy(plan, tmp_path, "scaled_add.h", ""), timeout=120)
    assert (found.warm, found.key, found.sha256) == (True, first.key, first.sha256)
    # Compiled where the copy is, it is the same to the last byte: no path is in it.
    elsewhere = plan_build(plan.kernel, plan.folder, "cpu", tmp_path / "other cache")
    copy = Path(shutil.copytree(plan.folder, tmp_path / "copied"))
    copied = plan_build(plan.kernel, copy, "cpu", tmp_path / "third cache")
    assert build(elsewhere, timeout=120).sha256 == build(copied, timeout=120).sha256


def test_a_header_included_through_a_macro_counts_as_a_dependency(folder, tmp_path):
    plan = two_sources(folder, tmp_path)
    source = folder / "sub" / "second.cpp"
    source.write_text('#define WHICH "second.h"\n#include WHICH\n' + source.read_text())
    before = plan_build(plan.kernel, folder, "cpu", tmp_path).objects["sub/second.cpp"]
    (folder / "scaled_add.h").write_text((folder / "scaled_add.h").read_text() + "\n")
    after = plan_build(plan.kernel, folder, "cpu", tmp_path).objects["sub/second.cpp"]
    assert before != after


@pytest.mark.parametrize(
    "line", ['#include "new.h"', "#include <new.h>", '# include "sub/../new.h"']
)
def test_a_header_that_is_read_must_be_listed(folder, tmp_path, line):
    (folder / "new.h").write_text("")
    (folder / "sub").mkdir()
    (folder / "scaled_add.h").write_text(f"#pragma once\n{line}\n")
    with pytest.raises(UsageError, match=r"scaled_add\.h includes new\.h, which the manifest does"):
        plan_build(manifest(folder), folder, "cpu", tmp_path)


def test_of_many_builds_each_has_its_own_outcome(folder, tmp_path):
    plan = two_sources(folder, tmp_path)
    wrong = edited_copy(plan, tmp_path, "sub/second.h", "int first = error_one;\n")
    unlinked = edited_copy(
        plan, tmp_path, "sub/second.cpp", "int gone();\nint g() { return gone(); }\n"
    )
    worse = edited_copy(plan, tmp_path, "scaled_add.h", "int other = error_two;\n")
    lines: list[str] = []
    made = build_all([wrong, plan, worse, unlinked, plan], timeout=120, on_line=lines.append)
    said = [one.first if isinstance(one, BuildError) else one.key for one in made]
    assert "second.h:2:13: error: 'error_one' was not declared" in said[0]
    assert "error: 'error_two' was not declared" in said[2]
    assert "undefined reference to `gone()'" in said[3]
    assert said[1] == said[4] == plan.key
    assert "error_two" not in made[0].output
    # Four plans of two sources, of which two are alike in three plans or in two: each once.
    assert len([line for line in lines if "] compile" in line]) == 5
    again = build_all([wrong, plan], timeout=120)
    assert isinstance(again[0], BuildError)
    assert again[1].warm


def test_builds_that_are_stopped_say_so(folder, tmp_path):
    two_sources(folder, tmp_path)
    (folder / "sub" / "second.cpp").write_text("#include <torch/csrc/stable/library.h>\n")  # slow
    plan = plan_of_two(folder, tmp_path)
    made = build_all([plan, edited_copy(plan, tmp_path, "sub/second.cpp", "\n")], timeout=0.2)
    assert [type(one) for one in made] == [BuildTimeoutError, BuildTimeoutError]
    with pytest.raises(BuildTimeoutError, match="the compilers were stopped"):
        build(plan, timeout=0.2)


def test_unused_objects_are_deleted_from_the_cache(folder, tmp_path):
    plan = two_sources(folder, tmp_path)
    build(plan, timeout=120)
    long_ago = time.time() - ninja.KEPT_SECONDS - 60
    for path in plan.objects.values():
        os.utime(path, (long_ago, long_ago))
    other = edited_copy(plan, tmp_path, "sub/second.h", "\n")
    assert build(other, timeout=120).reused == 1
    assert plan.objects["scaled_add.cpp"].exists()
    assert not plan.objects["sub/second.cpp"].exists()


def test_a_source_of_one_architecture_is_left_out_for_others(folder, tmp_path):
    (folder / "extra.cpp").write_text("#if !defined(KBTOOL_ARCH_SM_90A)\n#error not told\n#endif\n")
    (folder / "other.cpp").write_text("#if defined(KBTOOL_ARCH_SM_90A)\n#error told\n#endif\n")
    cpu = manifest(folder).targets["cpu"]
    target = cpu.model_copy(
        update={
            "architectures": ["sm_90a", "sm_80"],
            "architecture_sources": {"sm_90a": ["extra.cpp"], "sm_80": ["other.cpp"]},
        }
    )
    kernel = manifest(folder).model_copy(update={"targets": {"cpu": target}})
    plans = {
        name: plan_build(kernel, folder, "cpu", tmp_path / "cache", name)
        for name in ("sm_90a", "sm_80")
    }
    assert plans["sm_90a"].compiled == ["scaled_add.cpp", "extra.cpp"]
    assert plans["sm_80"].compiled == ["scaled_add.cpp", "other.cpp"]
    for plan in plans.values():
        assert set(build(plan, timeout=120).sources) == {*plan.compiled, "scaled_add.h"}


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


def test_the_first_real_error_is_shown(folder, tmp_path):
    (folder / "scaled_add.h").write_text("#pragma once\n#include <nowhere.h>\nint x = y;\n")
    plan = plan_build(manifest(folder), folder, "cpu", tmp_path / "cache")
    with pytest.raises(BuildError) as caught:
        build(plan, timeout=120)
    assert "scaled_add.h:2:10: fatal error: nowhere.h: No such file" in caught.value.first
    assert not plan.library.exists()


def test_the_first_error_is_shown_even_if_much_output_follows(folder, tmp_path):
    lines = ["#pragma once", "int a = the_first;", *(f"int b{n} = later_{n};" for n in range(300))]
    (folder / "scaled_add.h").write_text("\n".join(lines))
    with pytest.raises(BuildError, match=r"scaled_add\.h:2:9: error: 'the_first' was not declared"):
        build(plan_build(manifest(folder), folder, "cpu", tmp_path / "cache"), timeout=120)


def test_flags_that_speak_of_errors_are_no_error(folder, tmp_path):
    (folder / "scaled_add.h").write_text("#pragma once\nint f() { int unused; return 1; }\n")
    cpu = manifest(folder).targets["cpu"]
    strict = cpu.model_copy(update={"flags": [*cpu.flags, "-Wall", "-Werror", "-DX='error: x'"]})
    kernel = manifest(folder).model_copy(update={"targets": {"cpu": strict}})
    with pytest.raises(BuildError, match=r"scaled_add\.h:2:15: error: unused variable 'unused'"):
        build(plan_build(kernel, folder, "cpu", tmp_path / "cache"), timeout=120)


UNDEFINED = "x.cpp:(.text+0x1): undefined reference to `g()'"
PTXAS = "ptxas fatal   : Unresolved extern function 'f'"
SHARED = (
    "ptxas error   : Entry function '_Z1fv' uses too much shared data (0x20000 bytes, 0xc000 max)"
)
NVCC = 'x.cu(7): error #20095-D: identifier "y" is undefined in device code'
ARCHITECTURE = "nvcc fatal   : Unsupported gpu architecture 'compute_10'"
KILLED = "c++: fatal error: Killed signal terminated program cc1plus"
OPTION = "c++: error: unrecognized command-line option '-fnope'"
TWICE = "a.cpp:(.text+0x0): multiple definition of `f()'; b.o:b.cpp:(.text+0x0): first defined here"
NOTHING = "the build failed and printed nothing"


@pytest.mark.parametrize(
    ("output", "first"),
    [
        ("FAILED: x.o\nc++ -c x.cpp\nx.cpp:3:1: error: boo\nx.cpp:9:1: error: baz",
         "x.cpp:3:1: error: boo"),
        ("ninja: build stopped\ncollect2: error: ld returned 1", NOTHING),
        (f"x.o: in function `f':\n{UNDEFINED}\ncollect2: error: ld returned 1", UNDEFINED),
        (PTXAS, PTXAS),
        (f"x.cpp:1:2: warning: 'error: not this' [-Wall]\n{NVCC}\nx.cu(9): error: later", NVCC),
        (f"x.cu(3): warning #177-D: error\n{SHARED}\nptxas fatal   : Ptx assembly aborted", SHARED),
        (ARCHITECTURE, ARCHITECTURE),
        (KILLED, KILLED),
        (OPTION, OPTION),
        (f"ld: x.o: in function `f':\n{TWICE}\ncollect2: error: ld returned 1", TWICE),
        ("", NOTHING),
    ],
)  # fmt: skip
def test_the_first_error_is_found_in_compiler_output(output, first):
    assert first_error(output) == first


def test_missing_things_are_named(folder, tmp_path, monkeypatch):
    kernel = manifest(folder)
    with pytest.raises(UsageError, match="no target 'rocm'; it has cpu"):
        choose_target(kernel, "rocm", None)
    (folder / "scaled_add.h").unlink()
    with pytest.raises(UsageError, match=r"scaled_add\.h is in kernel.yaml but does not exist"):
        plan_build(kernel, folder, "cpu", tmp_path)
    monkeypatch.setattr(toolchain.shutil, "which", lambda *a, **k: None)
    toolchain.find_compiler.cache_clear()
    with pytest.raises(MachineError, match="install g\\+\\+"):
        toolchain.find_compiler()
    toolchain.find_compiler.cache_clear()
    with pytest.raises(MachineError, match="ninja"):
        toolchain.find_ninja()


def test_the_probe_and_the_build_use_the_same_compiler():
    assert probe_machine().compiler == toolchain.find_compiler()[1]


def test_auto_takes_a_card_only_where_it_can_run(folder):
    kernel = manifest(folder)
    here = probe_machine().model_copy(update={"card": "H100", "cuda": "13.0", "nvcc": "13.0"})
    cpu = kernel.targets["cpu"]
    triton = cpu.model_copy(update={"sources": ["add.py"], "device": "cuda"})
    cuda = cpu.model_copy(update={"sources": ["add.cu"]})

    def chosen(targets, machine=here):
        return choose_target(kernel.model_copy(update={"targets": targets}), "auto", machine)

    assert chosen({"cpu": cpu}) == "cpu"
    both = {"cpu": cpu, "cuda": cuda, "triton": triton}
    assert chosen(both) == "cuda"
    without = {"card": {"card": None}, "CUDA": {"cuda": None}, "nvcc": {"nvcc": None}}
    of = {name: chosen(both, here.model_copy(update=one)) for name, one in without.items()}
    assert of == {"card": "cpu", "CUDA": "cpu", "nvcc": "triton"}
    assert chosen(both, None) == "cpu"
    assert chosen({"triton": triton}, None) == "triton"  # the build step says what it lacks


def test_the_architecture_is_the_cards_own(folder):
    kernel = manifest(folder)
    target = kernel.targets["cpu"].model_copy(update={"architectures": ["sm_90a", "sm_80"]})
    kernel = kernel.model_copy(update={"targets": {"cuda": target}})
    assert choose_architecture(kernel, "cuda", "sm_90") == "sm_90a"
    assert choose_architecture(kernel, "cuda", "sm_80") == "sm_80"
    assert choose_architecture(kernel, "cuda", None) == "sm_90a"
    with pytest.raises(UsageError, match=r"sm_75 in kernel\.yaml; it lists sm_90a, sm_80"):
        choose_architecture(kernel, "cuda", "sm_75")
