"""Checks of the card and of what works for it: driver, CUDA versions, architectures, clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kbtool.gpu.build_plan import choose_architecture
from kbtool.gpu.doctor.elf import numbers
from kbtool.gpu.doctor.facts import Card, Facts
from kbtool.gpu.doctor.say import CARD, as_root, installs, missing, note, ok, warning
from kbtool.model.diagnosis import Check
from kbtool.model.errors import UsageError

SLOWER = 0.95
"""Below this share of its default, a limit was lowered by somebody."""
IDLE_MIB = 1024
"""Memory that a card without work may have in use."""
BUSY = 5
"""Percent of use from which somebody works on a card."""
_SLOW = {
    "hw_slowdown": "the hardware lowers the clocks",
    "hw_thermal_slowdown": "the card is too hot",
    "sw_thermal_slowdown": "the card is too hot",
    "hw_power_brake_slowdown": "the power supply lowers the clocks",
}
_INDEX = {13: "cu130", 12: "cu126"}
"""Major CUDA version of a driver → PyTorch's index of builds that it runs: a driver runs every
minor version of its major version (CUDA Compatibility, "minor version compatibility")."""
_PYTORCH = "https://download.pytorch.org/whl"
_EXTRA = 13
"""The major CUDA version of the nvcc that the extra ``nvcc`` of kbtool installs."""
_TOOLKITS = "https://developer.nvidia.com/cuda-toolkit-archive"


def card(facts: Facts) -> Iterator[Check]:
    """Whether there is a card that this process may use."""
    machine, driver = facts.machine, facts.driver
    if machine.card is not None:
        some = f" ({machine.cards} cards)" if (machine.cards or 1) > 1 else ""
        yield ok("card", f"{machine.card}, {machine.compute_capability}{some}")
        if facts.torch is not None and facts.torch.card_error and machine.cuda:
            yield missing(
                "card", f"torch cannot use the card: {facts.torch.card_error}",
                "driver and CUDA runtime do not fit, or the card is in a bad state", CARD,
                "look for the card's errors, then update or restart",
                "nvidia-smi; sudo dmesg | grep -i xid",
            )  # fmt: skip
        return
    hidden = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if driver is None or not driver.cards:
        if driver is not None and driver.error and "version mismatch" in driver.error:
            yield missing(
                "card", f"nvidia-smi: {driver.error}",
                "the driver was updated, and its older module is still loaded", CARD,
                "restart the machine, or load the new module",
                "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; sudo modprobe nvidia",
            )  # fmt: skip
        elif driver is not None and driver.error:
            yield missing(
                "card", f"nvidia-smi: {driver.error}", "without the driver no program sees a card",
                CARD, "install or load the driver", "lspci | grep -i nvidia; lsmod | grep nvidia",
            )  # fmt: skip
        elif machine.driver is not None:
            yield missing(
                "card", f"driver {machine.driver}, but no card",
                "it may be lent to another container, or have fallen off the bus", CARD,
                "look for the card and its errors", "nvidia-smi -L; sudo dmesg | grep -i xid",
            )  # fmt: skip
        else:
            yield missing(
                "card", "no card: no NVIDIA driver answers",
                "kernels of target cuda run on an NVIDIA card only", CARD,
                "use a machine with a card and its driver, or start the container with --gpus all;"
                " target cpu needs neither",
            )  # fmt: skip
    elif hidden is not None:
        yield missing(
            "card", f"CUDA_VISIBLE_DEVICES={hidden!r} hides the card",
            "no program that you start here sees it", CARD, "unset it",
            "unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    else:
        yield missing(
            "card", f"{driver.cards[0].name} is there, but CUDA does not start",
            "the driver was updated without a restart, or its library is another version", CARD,
            "restart the machine, or load the driver again",
            "cat /proc/driver/nvidia/version; nvidia-smi",
        )  # fmt: skip


def torch_build(facts: Facts) -> Iterator[Check]:
    """Whether torch was built for CUDA, as the card needs it."""
    machine = facts.machine
    if machine.card is None or machine.torch is None or machine.cuda is not None:
        return
    yield missing(
        "torch-cuda", f"torch {machine.torch} was built without CUDA",
        "a library for the card is linked against torch's CUDA library", CARD,
        "install a torch for the driver's CUDA version", _torch_for(facts),
    )  # fmt: skip


def _torch_for(facts: Facts, major: int | None = None) -> str | None:
    """The command that installs a torch for one major version of CUDA, or for the driver's;
    ``None`` if there is none so old."""
    if major is None:
        major = numbers(facts.driver.cuda)[0] if facts.driver and facts.driver.cuda else 13
    index = _INDEX.get(min(major, max(_INDEX)))
    if index is None:
        return None
    return f"{installs(facts, 'torch')} --force-reinstall --index-url {_PYTORCH}/{index}"


def _nvcc_for(facts: Facts, major: int | None) -> tuple[str, str | None]:
    """How to get an nvcc of one major version of CUDA: in words, and the command if it is that of
    kbtool's own extra."""
    if major in (None, _EXTRA):
        return "install it", f"{facts.installs} 'kbtool[nvcc]'"
    return f"install the toolkit of CUDA {major} ({_TOOLKITS}) and put its nvcc on PATH", None


def nvcc(facts: Facts) -> Iterator[Check]:
    """nvcc, against torch's CUDA version and the compiler that it calls."""
    machine, found = facts.machine, facts.toolkit
    if machine.nvcc is None:
        how = _nvcc_for(facts, numbers(machine.cuda)[0] if machine.cuda else None)
        if machine.card is None:
            why = "it compiles the CUDA sources, which needs no card"
            yield note("nvcc", "no nvcc", why, *how)
        else:
            yield missing("nvcc", "no nvcc", "it compiles the CUDA sources", CARD, *how)
        return
    fits = True
    for check in _unfit(facts):
        fits = False
        yield check
    if fits:
        yield Check(
            name="nvcc", level="ok", found=f"nvcc {machine.nvcc}", where=found and found.path
        )


def _unfit(facts: Facts) -> Iterator[Check]:
    machine, found = facts.machine, facts.toolkit
    version = f"nvcc {machine.nvcc}"
    has_card = machine.card is not None
    if machine.cuda is not None and machine.nvcc is not None:
        ours, theirs = numbers(machine.nvcc)[:2], numbers(machine.cuda)[:2]
        if ours[0] != theirs[0]:
            of_driver = numbers(facts.driver.cuda) if facts.driver and facts.driver.cuda else ours
            advice, command = _nvcc_for(facts, theirs[0])
            if of_driver[0] >= ours[0]:
                advice = f"install a torch for CUDA {ours[0]}, or {advice.removeprefix('install ')}"
                command = _torch_for(facts, ours[0])
            yield missing(
                "nvcc", f"{version}, but torch was built for CUDA {machine.cuda}",
                "a kernel would load two CUDA runtimes of different major versions", CARD,
                advice, command,
            )  # fmt: skip
        elif ours > theirs:
            yield warning(
                "nvcc", f"{version} is newer than torch's CUDA {machine.cuda}",
                "it works within a major version, but what is new in it may not",
                f"if a build fails, use the toolkit of CUDA {theirs[0]}.{theirs[1]} ({_TOOLKITS})",
            )  # fmt: skip
    if found is None:
        return
    if not found.host_there:
        yield missing(
            "nvcc", f"{version} finds no host compiler", "it calls g++ for the host's code", CARD,
            "put g++ on PATH, or name a compiler", "export NVCC_PREPEND_FLAGS='-ccbin clang++'",
        )  # fmt: skip
    elif found.host is not None:
        family, major = found.host
        most = found.gcc if family == "gcc" else found.clang
        if most is not None and major > most:
            shown = {"gcc": "GCC", "clang": "clang"}[family]
            what = f"{version} takes {shown} up to {most}, and finds {shown} {major}"
            why = "it refuses a newer one: unsupported GNU version" if family == "gcc" else (
                "it refuses a newer one: unsupported clang version"
            )  # fmt: skip
            name = f"{'g++' if family == 'gcc' else 'clang++'}-{most}"
            advice = "name an older compiler, or install a newer toolkit"
            command = f"export NVCC_PREPEND_FLAGS='-ccbin {name}'"
            if has_card:
                yield missing("nvcc", what, why, CARD, advice, command)
            else:
                yield warning("nvcc", what, why, advice, command)


def driver(facts: Facts) -> Iterator[Check]:
    """The driver's CUDA version, against those of torch and nvcc."""
    found, machine = facts.driver, facts.machine
    if found is None or not found.cards:
        return
    if found.cuda is None:
        yield note(
            "driver", f"driver {found.version}; it does not say which CUDA versions it supports",
            "it may be too old for torch",
        )  # fmt: skip
        return
    fits = True
    for whose, version in (("torch", machine.cuda), ("nvcc", machine.nvcc)):
        if version is None or numbers(version)[:2] <= numbers(found.cuda)[:2]:
            continue
        fits = False
        what = f"driver {found.version} supports CUDA {found.cuda}; {whose} is of CUDA {version}"
        if numbers(version)[0] > numbers(found.cuda)[0]:
            advice, command = (
                ("install an older torch", _torch_for(facts)) if whose == "torch"
                else _nvcc_for(facts, numbers(found.cuda)[0])
            )  # fmt: skip
            yield missing(
                "driver", what, "a driver runs no newer major version of CUDA", CARD,
                f"update the driver, or {advice}", command,
            )  # fmt: skip
        else:
            yield note(
                "driver", what,
                "it works within a major version, except for code that is compiled at run time"
                " (PTX)",
                "update the driver if a kernel ends with: unsupported PTX version", "nvidia-smi",
            )  # fmt: skip
    if fits:
        yield ok("driver", f"driver {found.version}, for CUDA up to {found.cuda}")


def architecture(facts: Facts) -> Iterator[Check]:
    """Whether kernels, nvcc and torch know the card's architecture."""
    capability = facts.machine.compute_capability
    if capability is None:
        return
    fits = True
    for kernel in facts.base.kernels.values() if facts.base else ():
        for target, spec in kernel.targets.items():
            if not spec.architectures:
                continue
            try:
                chosen = choose_architecture(kernel, target, capability)
            except UsageError:
                fits = False
                yield missing(
                    "architecture",
                    f"target {target} of kernel {kernel.id} lists"
                    f" {', '.join(spec.architectures)}, not {capability}",
                    "it is not compiled for this card", CARD,
                    f"add {capability} to the target's architectures in"
                    f" kernels/{kernel.id}/kernel.yaml, then see whether it compiles",
                    f"kbtool kernel compile --quick --architecture {capability}",
                )  # fmt: skip
                continue
            codes = facts.toolkit.codes if facts.toolkit else ()
            if codes and chosen.rstrip("af") not in {code.rstrip("af") for code in codes}:
                fits = False
                yield missing(
                    "architecture", f"nvcc {facts.machine.nvcc} does not compile for {chosen}",
                    f"its architectures are {', '.join(codes)}", CARD,
                    "install a toolkit that does", "nvcc --list-gpu-code",
                )  # fmt: skip
    built = facts.torch.architectures if facts.torch else ()
    if built and not runs_on(built, capability):
        fits = False
        yield missing(
            "architecture", f"torch has no kernels for {capability}: {', '.join(built)}",
            "its own operators end with: no kernel image is available for execution on the device",
            CARD, "install a torch that was built for this card", _torch_for(facts),
        )  # fmt: skip
    if fits:
        yield ok("architecture", f"{capability} is among the architectures compiled for")


def runs_on(built: tuple[str, ...], capability: str) -> bool:
    """Whether code for some architectures runs on a card: that of its major version and no newer
    minor version, or PTX of any older version."""
    wanted = _version(capability)
    for one in built:
        version = _version(one)
        if one.startswith("compute_"):
            if version <= wanted:
                return True
        elif one[-1] in "af":
            if version == wanted:
                return True
        elif version[0] == wanted[0] and version <= wanted:
            return True
    return False


def _version(architecture: str) -> tuple[int, int]:
    digits = re.sub(r"\D", "", architecture)
    return int(digits[:-1] or 0), int(digits[-1:] or 0)


def paths(facts: Facts) -> Iterator[Check]:
    """Variables that lead to another toolkit."""
    name = "CUDA_HOME" if "CUDA_HOME" in facts.environment else "CUDA_PATH"
    found = facts.home_toolkit
    if found is not None:
        if not found:
            yield warning(
                "paths", f"{name} names a folder without nvcc",
                "kbtool then takes the nvcc on PATH; other builds fail", "unset it",
                f"unset {name}",
            )  # fmt: skip
        elif facts.path_toolkit and facts.path_toolkit != found:
            yield warning(
                "paths", f"{name} names CUDA {found}, PATH leads to CUDA {facts.path_toolkit}",
                "kbtool takes the first, a shell the second", "let both name one toolkit",
                f'export PATH="${name}/bin:$PATH"',
            )  # fmt: skip
    cuda = facts.machine.cuda
    others = [one for one in facts.library_runtimes if cuda and int(one) != numbers(cuda)[0]]
    if others:
        yield warning(
            "paths", f"LD_LIBRARY_PATH leads to libcudart.so.{others[0]}; torch is of CUDA {cuda}",
            "the loader takes its libraries before those that torch was built with",
            "unset it: torch finds its own", "unset LD_LIBRARY_PATH",
        )  # fmt: skip
    if facts.library_stubs:
        yield warning(
            "paths", "LD_LIBRARY_PATH leads to the stub of the driver library",
            "a program that loads it sees no card: it is for the linker only",
            "take the folder stubs out", "unset LD_LIBRARY_PATH",
        )  # fmt: skip
    if facts.library_torch:
        yield warning(
            "paths", "LD_LIBRARY_PATH leads to the libraries of another torch",
            "a kernel would be loaded with them: undefined symbol", "take it out",
            "unset LD_LIBRARY_PATH",
        )  # fmt: skip


def state(facts: Facts) -> Iterator[Check]:
    """Clocks, power, modes and other users of the card."""
    found = facts.card
    if found is None:
        return
    quiet = True
    for check in (*_modes(facts, found), *_clocks(facts, found), *_others(found)):
        quiet = False
        yield check
    if quiet:
        clock = f", {found.sm_clock_mhz} MHz now" if found.sm_clock_mhz else ""
        yield ok("card-state", f"no other process, no lowered clock or power limit{clock}")


def _modes(facts: Facts, found: Card) -> Iterator[Check]:
    if found.compute_mode == "Prohibited":
        yield missing(
            "card-state", "the card's compute mode is Prohibited", "no program may use it", CARD,
            "set it to Default", as_root(facts, "nvidia-smi -c DEFAULT"),
        )  # fmt: skip
    elif found.compute_mode == "Exclusive_Process":
        yield note(
            "card-state", "the card's compute mode is Exclusive_Process",
            "a second process fails: all CUDA-capable devices are busy or unavailable",
            "set it to Default", as_root(facts, "nvidia-smi -c DEFAULT"),
        )  # fmt: skip
    if found.mig:
        yield note(
            "card-state", "the card is divided (MIG)",
            "times are those of a part, and compare with no whole card",
        )  # fmt: skip
    if found.persistent is False:
        yield note(
            "card-state", "persistence mode is off",
            "the first call of each process waits for the driver to load, and set clocks are lost",
            "switch it on", as_root(facts, "nvidia-smi -pm 1"),
        )  # fmt: skip
    if found.rows_pending:
        yield warning(
            "card-state", "memory rows wait to be replaced", "the memory has had errors",
            "reset the card when nobody uses it, or rent another", as_root(facts, "nvidia-smi -r"),
        )  # fmt: skip


def _clocks(facts: Facts, found: Card) -> Iterator[Check]:
    slow = dict.fromkeys(_SLOW[one] for one in found.slowdowns if one in _SLOW)
    if slow:
        yield warning(
            "clocks",
            f"{' and '.join(slow)}: {found.sm_clock_mhz} of {found.max_sm_clock_mhz} MHz",
            "times taken now are too long", "let it cool down, or use another card",
            "nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
        )  # fmt: skip
    elif "sw_power_cap" in found.slowdowns:
        yield note(
            "clocks", "the power limit holds the clocks down", "somebody uses the card",
            "see who", "nvidia-smi",
        )  # fmt: skip
    now, usual = found.application_clock_mhz, found.default_application_clock_mhz
    if now is not None and usual is not None and now != usual:
        yield note(
            "clocks", f"application clocks are set to {now} MHz, not {usual}",
            "times compare only with those taken at the same clocks",
            "set them back", as_root(facts, "nvidia-smi -rac"),
        )  # fmt: skip
    limit, default = found.power_limit_w, found.default_power_limit_w
    if limit is not None and default is not None and limit < SLOWER * default:
        yield warning(
            "clocks", f"the power limit is {limit:g} W, not {default:g} W",
            "times are longer than those of the same card elsewhere",
            "set it back", as_root(facts, f"nvidia-smi -pl {default:g}"),
        )  # fmt: skip


def _others(found: Card) -> Iterator[Check]:
    why = "times are noisy, and a build for the card may find too little of its memory"
    used = found.memory_used_mib or 0
    if found.processes:
        many = f"{found.processes} process{'es' * (found.processes != 1)} on the card"
        yield warning("processes", many, why, "wait for them, or end them", "nvidia-smi")
    elif (found.utilisation or 0) >= BUSY or used >= IDLE_MIB:
        yield warning(
            "processes", f"{found.utilisation} % of the card and {used} MiB are in use, by no"
            " process that is seen here", f"{why}: it may run in another container",
            "wait for it, or use another card", "nvidia-smi",
        )  # fmt: skip


def tools(facts: Facts) -> Iterator[Check]:
    """The profiler, the sanitizers, and the right to read the card's counters."""
    if facts.machine.card is None:
        return
    if facts.profiler is None:
        yield missing(
            "profiler", "no ncu", "recipes that profile use Nsight Compute", ["profile"],
            "install Nsight Compute and put ncu on PATH",
            "ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu",
        )  # fmt: skip
    elif facts.counters_restricted:
        yield missing(
            "profiler", f"ncu {facts.profiler}, but only administrators may read the counters",
            "it measures nothing: ERR_NVGPUCTRPERM", ["profile"],
            "run kbtool as root; or load the driver with NVreg_RestrictProfilingToAdminUsers=0, and"
            " in a container add the capability SYS_ADMIN",
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'"
            " | sudo tee /etc/modprobe.d/nvidia-profiling.conf",
        )  # fmt: skip
    else:
        yield ok("profiler", f"ncu {facts.profiler}")
    if facts.sanitiser is None:
        yield missing(
            "sanitizer", "no compute-sanitizer", "recipes that look for memory errors use it",
            ["sanitise"], "install the CUDA toolkit and put compute-sanitizer on PATH",
            "ls -d /usr/local/cuda*/bin/compute-sanitizer",
        )  # fmt: skip
    else:
        yield ok("sanitizer", f"compute-sanitizer {facts.sanitiser}")


CHECKS = (card, driver, torch_build, nvcc, architecture, paths, state, tools)
