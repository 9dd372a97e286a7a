"""The checks of ``kbtool doctor``, with made-up facts: one where each is quiet, one where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kbtool.gpu.doctor import card, host
from kbtool.gpu.doctor.facts import Base, Card, Compiler, Driver, Facts, Git, Room, Toolkit, Torch
from kbtool.model.kernel import Kernel
from kbtool.model.run import MachineInfo

MACHINE = MachineInfo(
    card="NVIDIA H100 80GB HBM3", cards=1, compute_capability="sm_90", driver="580.95.05",
    cuda="13.0", nvcc="13.0.88", compiler="c++ (Debian 12.2.0-14) 12.2.0", ninja="1.13.0",
    torch="2.13.0+cu130", numpy="2.4.6", python="3.11.7", kbtool="0.1.0", os="Linux", cpu="EPYC",
    cores=16,
)  # fmt: skip
WITHOUT_CARD = MACHINE.model_copy(
    update={
        "card": None, "cards": None, "compute_capability": None, "driver": None, "cuda": None,
        "torch": "2.13.0+cpu",
    }
)  # fmt: skip
CARD = Card(
    uuid="a", name="NVIDIA H100 80GB HBM3", persistent=True, compute_mode="Default",
    sm_clock_mhz=345, max_sm_clock_mhz=1980, application_clock_mhz=1980,
    default_application_clock_mhz=1980, slowdowns=(), power_limit_w=700.0,
    default_power_limit_w=700.0, utilisation=0, memory_used_mib=1,
)  # fmt: skip
DRIVER = Driver("580.95.05", "13.0", (CARD,))
KERNEL = Kernel.model_validate(
    {
        "id": "add", "title": "Add", "summary": "It adds.", "namespace": "add",
        "harness": "harness.py",
        "targets": {
            "cpu": {"sources": ["add.cpp"]},
            "cuda": {"sources": ["add.cu"], "architectures": ["sm_90a", "sm_80"]},
        },
        "case_fields": {"n": {"type": "int", "help": "how many"}},
        "case_sets": {"small": {"title": "Small ones", "cases": [{"n": "1"}]}},
    }
)  # fmt: skip
GIB = 1 << 30
GOOD = Facts(
    machine=MACHINE,
    minimum={"python": "3.11", "torch": "2.10", "ninja": "1.11", "numpy": "1.26"},
    system="apt-get",
    compiler=Compiler(works=True, family="gcc", major=12, new_abi=True, glibcxx="3.4.30"),
    toolkit=Toolkit("13.0.88", gcc=15, clang=20, codes=("sm_80", "sm_90"), host=("gcc", 12)),
    torch=Torch(
        imports=True, new_abi=True, architectures=("sm_80", "sm_90", "compute_120"),
        needs_glibcxx="3.4.29", has_glibcxx="3.4.30",
    ),
    driver=DRIVER,
    card_uuid="a",
    profiler="2025.3.1",
    sanitiser="2025.3.0",
    counters_restricted=False,
    git=Git(there=True, repository=True, user=True),
    base=Base(writable=True, kernels={"add": KERNEL}),
    rooms=(Room("the build cache", 50 * GIB, writable=True),),
    memory_bytes=64 * GIB,
    load=0.3,
)  # fmt: skip
ALL = (*host.CHECKS, *card.CHECKS)


def machine(**changes: Any) -> Facts:
    return replace(GOOD, machine=MACHINE.model_copy(update=changes))


def of_card(**changes: Any) -> Facts:
    return replace(GOOD, driver=replace(DRIVER, cards=(replace(CARD, **changes),)))


def of(what: str, **changes: Any) -> Facts:
    return replace(GOOD, **{what: replace(getattr(GOOD, what), **changes)})


def test_nothing_is_said_against_a_good_machine():
    found = [check for rule in ALL for check in rule(GOOD)]
    assert {check.level for check in found} == {"ok"}
    assert {check.name for check in found} == {
        "base", "python", "compiler", "ninja", "torch", "numpy", "abi", "git", "site", "disk",
        "memory", "load", "card", "driver", "nvcc", "architecture", "card-state", "profiler",
        "sanitizer",
    }  # fmt: skip


BUILT = {"cpu", "cuda", "profile", "sanitise"}
ON_CARD = {"cuda", "profile", "sanitise"}
NOTHING: set[str] = set()

CASES = {
    "an old Python": (machine(python="3.10.2"), host.python, "missing", {*BUILT, "site"},
                      "Python 3.10.2", "python3.11 -m venv .venv"),
    "no compiler": (machine(compiler=None), host.compiler, "missing", BUILT, "no C++ compiler",
                    "sudo apt-get install -y g++"),
    "CXX that does not run": (
        replace(machine(compiler=None), environment={"CXX": "g++-99"}), host.compiler, "missing",
        BUILT, "CXX=g++-99 does not run", "unset CXX"),
    "a compiler without a library": (
        replace(GOOD, compiler=Compiler(works=False, error="cannot find -lstdc++")), host.compiler,
        "missing", BUILT, "cannot find -lstdc++", "apt-get install -y g++ libc6-dev"),
    "no ninja": (machine(ninja=None), host.ninja, "missing", BUILT, "no ninja",
                 "python -m pip install 'ninja>=1.11'"),
    "no torch": (machine(torch=None), host.torch, "missing", BUILT, "no torch",
                 "python -m pip install 'torch>=2.10' 'numpy>=1.26'"),
    "an old torch": (machine(torch="2.9.1+cu128"), host.torch, "missing", BUILT,
                     "torch 2.9.1+cu128", "'torch>=2.10'"),
    "a torch that cannot be imported": (
        replace(GOOD, torch=Torch(imports=False, error="ImportError: libcudart.so.13: no file")),
        host.torch, "missing", BUILT, "libcudart.so.13", "--force-reinstall"),
    "no NumPy": (machine(numpy=None), host.numpy, "warning", NOTHING, "no NumPy", "'numpy>=1.26'"),
    "an old NumPy": (machine(numpy="1.25.0"), host.numpy, "warning", NOTHING, "NumPy 1.25.0",
                     "'numpy>=1.26'"),
    "a NumPy of another major version": (
        of("torch", numpy_error="A module that was compiled using NumPy 1.x"), host.numpy,
        "warning", NOTHING, "compiled using NumPy 1.x", "torch"),
    "two C++ ABIs": (of("compiler", new_abi=False), host.abi, "missing", BUILT,
                     "the compiler the older (0)", "torch"),
    "a libstdc++ too old for torch": (of("torch", has_glibcxx="3.4.28"), host.abi, "missing", BUILT,
                                      "torch has GLIBCXX_3.4.29", "LD_LIBRARY_PATH"),
    "a libstdc++ too old for what is built": (
        of("compiler", glibcxx="3.4.33"), host.abi, "warning", NOTHING,
        "the compiler has GLIBCXX_3.4.33", "LD_LIBRARY_PATH"),
    "no git": (replace(GOOD, git=Git(there=False)), host.git, "warning", NOTHING, "no git",
               "sudo apt-get install -y git"),
    "a folder of another user": (of("git", refused=True, repository=False), host.git, "warning",
                                 NOTHING, "belongs to another user", "safe.directory"),
    "no repository": (of("git", repository=False), host.git, "warning", NOTHING,
                      "in no git repository", "git init"),
    "no name": (of("git", user=False), host.git, "note", NOTHING, "user.name is not set",
                "git config --global user.name"),
    "no knowledge base": (replace(GOOD, base=None, base_error="none above"), host.base, "missing",
                          {*BUILT, "site"}, "none above", "kbtool init"),
    "a knowledge base that cannot be written": (
        of("base", writable=False), host.base, "missing", {*BUILT, "site"}, "cannot be written",
        "git clone"),
    "a record that does not load": (of("base", findings=2, first="a.yaml:1: x"), host.base,
                                    "warning", NOTHING, "a.yaml:1: x", "kbtool check"),
    "no package for the site": (replace(GOOD, site_missing="mkdocs"), host.site, "missing",
                                {"site"}, "no mkdocs", "'kbtool[site]'"),
    "no generator of the site": (replace(GOOD, site_missing="zensical"), host.site, "missing",
                                 {"site"}, "no zensical", "'kbtool[zensical]'"),
    "a full disk": (replace(GOOD, rooms=(Room("the build cache", GIB // 8, writable=True),)),
                    host.room, "missing", BUILT, "0.1 GiB free", "du -sh .kbtool"),
    "an almost full disk": (replace(GOOD, rooms=(Room("the build cache", GIB, writable=True),)),
                            host.room, "warning", NOTHING, "1.0 GiB free", "du -sh .kbtool"),
    "a temporary folder that cannot be written": (
        replace(GOOD, rooms=(Room("the temporary folder", 9 * GIB, False, temporary=True),)),
        host.room, "missing", BUILT, "the temporary folder cannot be written", "export TMPDIR"),
    "a cache that cannot be written": (
        replace(GOOD, rooms=(Room("the build cache", 9 * GIB, writable=False),)), host.room,
        "missing", BUILT, "the build cache cannot be written", "chown"),
    "little memory": (replace(GOOD, memory_bytes=GIB), host.memory, "warning", NOTHING,
                      "1.0 GiB of memory", "ps -eo rss"),
    "busy cores": (replace(GOOD, load=8.0), host.load, "warning", NOTHING, "load 8.0 on 16 cores",
                   "ps -eo pcpu"),
    "a probe without an answer": (replace(GOOD, unread={"nvidia-smi": "no answer within 4 s"}),
                                  host.unread, "note", NOTHING, "nvidia-smi was not looked at", ""),
    "a torch that is slow to import": (of("torch", imports=None), host.unread, "note", NOTHING,
                                       "had not been imported", "kbtool doctor"),
    "no driver": (replace(GOOD, machine=WITHOUT_CARD, driver=None), card.card, "missing", ON_CARD,
                  "no NVIDIA driver answers", ""),
    "a driver without a card": (
        replace(machine(card=None), driver=replace(DRIVER, cards=())), card.card, "missing",
        ON_CARD, "driver 580.95.05, but no card", "nvidia-smi -L"),
    "a driver that was updated": (
        replace(machine(card=None), driver=Driver(
            None, None, (), "Failed to initialize NVML: Driver/library version mismatch")),
        card.card, "missing", ON_CARD, "library version mismatch", "modprobe nvidia"),
    "a driver that is not loaded": (
        replace(machine(card=None), driver=Driver(None, None, (), "NVIDIA-SMI has failed")),
        card.card, "missing", ON_CARD, "nvidia-smi: NVIDIA-SMI has failed", "lsmod"),
    "a hidden card": (
        replace(machine(card=None), environment={"CUDA_VISIBLE_DEVICES": ""}), card.card,
        "missing", ON_CARD, "CUDA_VISIBLE_DEVICES='' hides", "unset CUDA_VISIBLE_DEVICES"),
    "a driver that CUDA cannot use": (machine(card=None), card.card, "missing", ON_CARD,
                                      "CUDA does not start", "/proc/driver/nvidia/version"),
    "a card that torch cannot use": (of("torch", card_error="system not yet initialized"),
                                     card.card, "missing", ON_CARD, "system not yet initialized",
                                     "nvidia-smi"),
    "a torch without CUDA": (machine(cuda=None, torch="2.13.0+cpu"), card.torch_build, "missing",
                             ON_CARD, "built without CUDA", "/whl/cu130"),
    "a torch without CUDA on an older driver": (
        replace(machine(cuda=None), driver=replace(DRIVER, cuda="12.4")), card.torch_build,
        "missing", ON_CARD, "built without CUDA", "/whl/cu126"),
    "no nvcc": (machine(nvcc=None), card.nvcc, "missing", ON_CARD, "no nvcc", "'kbtool[nvcc]'"),
    "no nvcc and no card": (
        replace(GOOD, machine=WITHOUT_CARD.model_copy(update={"nvcc": None})), card.nvcc, "note",
        NOTHING, "no nvcc", "'kbtool[nvcc]'"),
    "an nvcc of another major version": (
        machine(nvcc="12.4.131"), card.nvcc, "missing", ON_CARD, "torch was built for CUDA 13.0",
        "/whl/cu126"),
    "a newer nvcc": (machine(nvcc="13.2.1"), card.nvcc, "warning", NOTHING, "is newer than torch",
                     ""),
    "a GCC that nvcc refuses": (of("toolkit", host=("gcc", 16)), card.nvcc, "missing", ON_CARD,
                                "takes GCC up to 15, and finds GCC 16", "-ccbin g++-15"),
    "a clang that nvcc refuses": (of("toolkit", host=("clang", 21)), card.nvcc, "missing", ON_CARD,
                                  "takes clang up to 20", "-ccbin clang++-20"),
    "no host compiler": (of("toolkit", host=None, host_there=False), card.nvcc, "missing", ON_CARD,
                         "no host compiler", "-ccbin clang++"),
    "a driver too old for torch": (
        replace(machine(nvcc=None), driver=replace(DRIVER, cuda="12.8")), card.driver, "missing",
        ON_CARD, "supports CUDA 12.8; torch is of CUDA 13.0", "/whl/cu126"),
    "a driver that is a minor version behind": (
        machine(cuda="13.2", nvcc=None), card.driver, "note", NOTHING, "torch is of CUDA 13.2",
        "nvidia-smi"),
    "a driver that does not say": (of("driver", cuda=None), card.driver, "note", NOTHING,
                                   "does not say", ""),
    "a card that no kernel lists": (machine(compute_capability="sm_120"), card.architecture,
                                    "missing", ON_CARD, "lists sm_90a, sm_80, not sm_120",
                                    "--architecture sm_120"),
    "an nvcc that does not know the card": (
        of("toolkit", codes=("sm_50", "sm_80")), card.architecture, "missing", ON_CARD,
        "does not compile for sm_90a", "nvcc --list-gpu-code"),
    "a torch without code for the card": (
        of("torch", architectures=("sm_80", "sm_100")), card.architecture, "missing", ON_CARD,
        "torch has no kernels for sm_90", "/whl/cu130"),
    "CUDA_HOME without nvcc": (
        replace(GOOD, environment={"CUDA_HOME": "x"}, home_toolkit=""), card.paths, "warning",
        NOTHING, "CUDA_HOME names a folder without nvcc", "unset CUDA_HOME"),
    "two toolkits": (
        replace(GOOD, environment={"CUDA_PATH": "x"}, home_toolkit="12.4", path_toolkit="13.0"),
        card.paths, "warning", NOTHING, "CUDA_PATH names CUDA 12.4", '"$CUDA_PATH/bin:$PATH"'),
    "a runtime of another version": (replace(GOOD, library_runtimes=("12",)), card.paths,
                                     "warning", NOTHING, "libcudart.so.12",
                                     "unset LD_LIBRARY_PATH"),
    "stubs": (replace(GOOD, library_stubs=True), card.paths, "warning", NOTHING, "stub",
              "unset LD_LIBRARY_PATH"),
    "another torch's libraries": (replace(GOOD, library_torch=True), card.paths, "warning",
                                  NOTHING, "another torch", "unset LD_LIBRARY_PATH"),
    "a prohibited card": (of_card(compute_mode="Prohibited"), card.state, "missing", ON_CARD,
                          "Prohibited", "sudo nvidia-smi -c DEFAULT"),
    "an exclusive card": (of_card(compute_mode="Exclusive_Process"), card.state, "note", NOTHING,
                          "Exclusive_Process", "nvidia-smi -c DEFAULT"),
    "a divided card": (of_card(mig=True), card.state, "note", NOTHING, "MIG", ""),
    "no persistence": (of_card(persistent=False), card.state, "note", NOTHING, "persistence mode",
                       "sudo nvidia-smi -pm 1"),
    "rows to be replaced": (of_card(rows_pending=True), card.state, "warning", NOTHING,
                            "memory rows", "nvidia-smi -r"),
    "a hot card": (of_card(slowdowns=("hw_thermal_slowdown",), sm_clock_mhz=900), card.state,
                   "warning", NOTHING, "too hot: 900 of 1980 MHz", "TEMPERATURE"),
    "a card at its power limit": (of_card(slowdowns=("sw_power_cap",)), card.state, "note",
                                  NOTHING, "power limit holds", "nvidia-smi"),
    "set clocks": (of_card(application_clock_mhz=1200), card.state, "note", NOTHING,
                   "set to 1200 MHz, not 1980", "nvidia-smi -rac"),
    "a lowered power limit": (of_card(power_limit_w=350.0), card.state, "warning", NOTHING,
                              "350 W, not 700 W", "nvidia-smi -pl 700"),
    "a process on the card": (of_card(processes=2), card.state, "warning", NOTHING,
                              "2 processes on the card", "nvidia-smi"),
    "use by nobody who is seen": (of_card(utilisation=90), card.state, "warning", NOTHING,
                                  "90 % of the card", "nvidia-smi"),
    "memory in use by nobody who is seen": (of_card(memory_used_mib=9000), card.state, "warning",
                                            NOTHING, "9000 MiB are in use", "nvidia-smi"),
    "no profiler": (replace(GOOD, profiler=None), card.tools, "missing", {"profile"}, "no ncu",
                    "nsight-compute"),
    "counters for administrators": (replace(GOOD, counters_restricted=True), card.tools, "missing",
                                    {"profile"}, "only administrators", "NVreg_Restrict"),
    "no sanitizer": (replace(GOOD, sanitiser=None), card.tools, "missing", {"sanitise"},
                     "no compute-sanitizer", "compute-sanitizer"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_found_with_its_remedy(case):
    facts, rule, level, stops, found, command = CASES[case]
    (check,) = [check for check in rule(facts) if check.level != "ok"]
    assert (check.level, set(check.stops)) == (level, stops)
    assert found in check.found
    assert command in (check.command or "")
    assert check.why
    # Either words or a command say what to do, unless nothing can be done.
    assert check.advice or check.command or not stops
    assert "/" not in check.found.replace("Driver/library", "")


def test_every_check_is_tried_on_something_wrong():
    assert {rule for _, rule, *_ in CASES.values()} == set(ALL)


def test_without_a_card_one_line_says_so():
    facts = replace(
        GOOD, machine=WITHOUT_CARD, driver=None, card_uuid=None, profiler=None, sanitiser=None,
        torch=Torch(imports=True, new_abi=True),
    )  # fmt: skip
    said = [check for rule in card.CHECKS for check in rule(facts)]
    assert [(check.name, check.level) for check in said] == [("card", "missing"), ("nvcc", "ok")]


def test_some_of_the_checks_need_facts_that_may_be_unknown():
    unknown = Facts(machine=MACHINE)
    found = [check for rule in ALL for check in rule(unknown) if check.level != "ok"]
    assert {check.name for check in found} == {"base", "profiler", "sanitizer"}


def test_the_card_of_another_user_of_the_machine_is_not_judged():
    other = replace(CARD, uuid="b", processes=3)
    facts = replace(GOOD, driver=replace(DRIVER, cards=(other, CARD)))
    assert [check.level for check in card.state(facts)] == ["ok"]


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (("sm_80",), "sm_86", True),
        (("sm_86",), "sm_80", False),
        (("sm_80",), "sm_90", False),
        (("compute_80",), "sm_90", True),
        (("compute_100",), "sm_90", False),
        (("sm_90a",), "sm_90", True),
        (("sm_100a",), "sm_103", False),
        (("sm_120",), "sm_121", True),
    ],
)
def test_code_runs_on_cards_of_its_major_version(built, capability, runs):
    assert card.runs_on(built, capability) is runs


@pytest.mark.parametrize(
    ("system", "root", "command"),
    [
        ("apt-get", True, "apt-get install -y g++"),
        ("dnf", False, "sudo dnf install -y gcc-c++"),
        ("pacman", False, "sudo pacman -S --noconfirm gcc"),
        ("apk", True, "apk add g++"),
        ("brew", False, "brew install gcc"),
        (None, False, None),
    ],
)
def test_the_remedy_is_that_of_the_system(system, root, command):
    facts = replace(machine(compiler=None), system=system, root=root)
    (check,) = host.compiler(facts)
    assert check.command == command


def test_a_folder_that_cannot_be_written_is_told_once():
    rooms = (
        Room("the build cache", 9 * GIB, writable=False),
        Room("the temporary folder", 9 * GIB, writable=False, temporary=True),
    )
    facts = replace(GOOD, rooms=rooms)
    assert len(list(host.room(facts))) == 2
    (check,) = host.room(replace(facts, base=Base(writable=False, kernels={})))
    assert check.found == "the temporary folder cannot be written"
    assert "TMPDIR" in check.advice
    assert len(list(host.room(replace(facts, base=None)))) == 2


def test_what_is_well_is_told_with_its_version():
    assert next(host.torch(GOOD)).found == "torch 2.13.0+cu130, built for CUDA 13.0"
    assert next(host.torch(machine(cuda=None))).found == "torch 2.13.0+cu130, built without CUDA"
    assert next(card.card(GOOD)).found == "NVIDIA H100 80GB HBM3, sm_90"
    assert next(card.card(machine(cards=2))).found == "NVIDIA H100 80GB HBM3, sm_90 (2 cards)"
    assert next(card.state(GOOD)).found.endswith("power limit, 345 MHz now")


def test_a_torch_for_an_older_driver_is_not_offered_where_there_is_none():
    facts = replace(machine(cuda=None), driver=replace(DRIVER, cuda="11.4"))
    (check,) = card.torch_build(facts)
    assert check.command is None
    (unknown,) = card.torch_build(replace(facts, driver=None))
    assert unknown.command.endswith("/whl/cu130")
    (newer,) = card.torch_build(replace(facts, driver=replace(DRIVER, cuda="14.0")))
    assert newer.command.endswith("/whl/cu130")


@pytest.mark.parametrize(("family", "name"), [("gcc", "GNU"), ("clang", "clang")])
def test_the_message_of_nvcc_is_named(family, name):
    (check,) = card.nvcc(of("toolkit", host=(family, 99)))
    assert f"unsupported {name} version" in check.why


@pytest.mark.parametrize("named", [None, "g++-99"])
def test_only_a_compiler_that_was_named_is_to_be_unset(named):
    environment = {"CXX": named} if named else {}
    (check,) = host.compiler(replace(machine(compiler=None), environment=environment))
    assert ("unset CXX" in check.advice) is (named is not None)


def test_a_torch_for_an_nvcc_that_the_driver_is_too_old_for_is_not_offered():
    facts = machine(nvcc="13.0.88", cuda="12.8")
    (check,) = card.nvcc(facts)
    assert check.command.endswith("/whl/cu130")
    assert "a torch for CUDA 13, or the toolkit of CUDA 12" in check.advice
    (unknown,) = card.nvcc(replace(facts, driver=None))
    assert unknown.command.endswith("/whl/cu130")
    (older,) = card.nvcc(replace(facts, driver=replace(DRIVER, cuda="12.8")))
    assert older.command is None
    assert older.advice.startswith("install the toolkit of CUDA 12 (https://")
