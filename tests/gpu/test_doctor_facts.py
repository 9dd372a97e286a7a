"""Reading the facts of ``kbtool doctor``: nvidia-smi's XML, libraries, headers, variables."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

import pytest

from kbtool.gpu.doctor import read
from kbtool.gpu.doctor.elf import DEFINED, NEEDED, newest, newest_glibcxx
from kbtool.gpu.doctor.facts import Base, Card
from kbtool.gpu.doctor.smi import parse
from kbtool.gpu.toolchain import find_torch

# What nvidia-smi -q -x prints, of a driver 555 and cut to what is read.
SMI = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
    <driver_version>555.42.06</driver_version>
    <cuda_version>12.5</cuda_version>
    <attached_gpus>1</attached_gpus>
    <gpu id="00000000:01:00.0">
        <product_name>NVIDIA L4</product_name>
        <persistence_mode>Disabled</persistence_mode>
        <mig_mode>
            <current_mig>N/A</current_mig>
            <pending_mig>N/A</pending_mig>
        </mig_mode>
        <uuid>GPU-10111213-1415-1617-1819-1a1b1c1d1e1f</uuid>
        <clocks_event_reasons>
            <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
            <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
            <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
        </clocks_event_reasons>
        <fb_memory_usage>
            <total>23034 MiB</total>
            <used>1 MiB</used>
        </fb_memory_usage>
        <compute_mode>Default</compute_mode>
        <utilization>
            <gpu_util>2 %</gpu_util>
        </utilization>
        <remapped_rows>
            <remapped_row_pending>No</remapped_row_pending>
        </remapped_rows>
        <gpu_power_readings>
            <current_power_limit>60.00 W</current_power_limit>
            <default_power_limit>72.00 W</default_power_limit>
        </gpu_power_readings>
        <clocks>
            <graphics_clock>2040 MHz</graphics_clock>
            <sm_clock>2035 MHz</sm_clock>
        </clocks>
        <applications_clocks>
            <graphics_clock>1800 MHz</graphics_clock>
        </applications_clocks>
        <default_applications_clocks>
            <graphics_clock>2040 MHz</graphics_clock>
        </default_applications_clocks>
        <max_clocks>
            <sm_clock>2040 MHz</sm_clock>
        </max_clocks>
        <processes>
            <process_info>
                <pid>7372</pid>
                <process_name>/home/somebody/train</process_name>
            </process_info>
        </processes>
    </gpu>
</nvidia_smi_log>
"""


def test_one_query_tells_all_of_the_card():
    found = parse(SMI)
    assert (found.version, found.cuda) == ("555.42.06", "12.5")
    assert found.cards == (
        Card(
            uuid="10111213-1415-1617-1819-1a1b1c1d1e1f", name="NVIDIA L4", persistent=False,
            compute_mode="Default", sm_clock_mhz=2035, max_sm_clock_mhz=2040,
            application_clock_mhz=1800, default_application_clock_mhz=2040,
            slowdowns=("hw_thermal_slowdown",), power_limit_w=60.0, default_power_limit_w=72.0,
            utilisation=2, memory_used_mib=1, processes=1,
        ),
    )  # fmt: skip


def test_an_older_driver_has_other_names():
    older = (
        SMI.replace("clocks_event_reason", "clocks_throttle_reason")
        .replace("gpu_power_readings", "power_readings")
        .replace("current_power_limit", "power_limit")
    )
    assert parse(older) == parse(SMI)


def test_what_the_driver_does_not_support_is_unknown():
    text = SMI.replace("2040 MHz", "[N/A]").replace("<cuda_version>12.5", "<cuda_version>N/A")
    found = parse(text)
    assert found.cuda is None
    assert found.cards[0].max_sm_clock_mhz is None
    assert found.cards[0].sm_clock_mhz == 2035


@pytest.mark.parametrize("text", ["", "NVIDIA-SMI has failed because it could not …", "<html/>"])
def test_other_output_tells_nothing(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("prints", "error", "cards"),
    [
        (f"cat <<'E'\n{SMI}E", None, 1),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18",
         "Failed to initialize NVML: Driver/library version mismatch", 0),
    ],
)  # fmt: skip
def test_nvidia_smi_is_asked_once(tmp_path, monkeypatch, prints, error, cards):
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{prints}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = read._driver(time.monotonic() + 60)
    assert (found.error, len(found.cards)) == (error, cards)
    assert (tmp_path / "asked").read_text() == "-q -x\n"


def test_without_nvidia_smi_nothing_is_known_of_a_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read._driver(time.monotonic() + 60) is None


def test_the_versions_of_a_library_are_read():
    ctypes.CDLL("libstdc++.so.6")
    maps = Path("/proc/self/maps").read_text().split()
    library = Path(next(word for word in maps if "libstdc++.so.6" in word))
    has = newest_glibcxx(library, DEFINED)
    assert has is not None
    assert f"GLIBCXX_{has}\0".encode() in library.read_bytes()
    assert newest_glibcxx(library, NEEDED) is None
    pytest.importorskip("torch")
    needs = newest_glibcxx(find_torch()[0] / "lib" / "libc10.so", NEEDED)
    assert needs is not None
    assert newest([needs, has]) == has  # or this test could not have imported torch


def test_versions_are_compared_as_numbers():
    assert newest(["3.4.9", "3.4.30", "3.4.2"]) == "3.4.30"
    assert newest([]) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01", b"no library" * 20])
def test_what_is_no_library_has_no_versions(tmp_path, content):
    (tmp_path / "a.so").write_bytes(content)
    assert newest_glibcxx(tmp_path / "a.so", DEFINED) is None
    assert newest_glibcxx(tmp_path / "none.so", DEFINED) is None


def test_the_toolkit_says_which_host_compilers_it_takes():
    header = """
#if __GNUC__ > 15
#error -- unsupported GNU version! gcc versions later than 15 are not supported!
#endif
#if (__clang_major__ >= 21) || (__clang_major__ < 3)
"""
    assert read.newest_host_compilers(header) == (15, 20)
    assert read.newest_host_compilers("") == (None, None)


@pytest.mark.parametrize(
    ("variables", "compiler"),
    [
        ({}, "g++"),
        ({"NVCC_CCBIN": "g++-12"}, "g++-12"),
        ({"NVCC_CCBIN": "g++-12", "NVCC_PREPEND_FLAGS": "-O2 -ccbin clang++"}, "clang++"),
        ({"NVCC_APPEND_FLAGS": "--compiler-bindir=g++-11"}, "g++-11"),
    ],
)
def test_nvcc_calls_the_compiler_that_its_variables_name(variables, compiler):
    assert read.host_compiler(variables) == compiler


def test_a_group_of_processes_has_what_it_may_use_and_can_drop():
    stat = "anon 5\ninactive_file 300\nactive_file 9\n"
    assert read.group_memory_of("1000\n", "800\n", stat) == 500
    assert read.group_memory_of("max\n", "800\n", stat) is None
    assert read.group_memory_of("", "", "") is None
    assert read.memory_of("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2048 * 1024
    assert read.memory_of("") is None


def test_what_the_library_path_leads_to(tmp_path):
    for name in ("cuda/libcudart.so.12", "cuda/libcudart.so.12.4.127", "stubs/libcuda.so",
                 "torch/libc10.so", "empty/x"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def of(*names: str) -> object:
        return read._library_path(os.pathsep.join(str(tmp_path / name) for name in names))

    assert of("empty") == ((), False, False)
    assert of("cuda", "empty") == (("12",), False, False)
    assert of("stubs") == ((), True, False)
    assert of("torch", "none") == ((), False, True)
    assert read._library_path("") == ((), False, False)


def test_torchs_own_folder_is_no_other_torch():
    pytest.importorskip("torch")
    assert read._library_path(str(find_torch()[0] / "lib")) == ((), False, False)


def test_kbtools_own_metadata_say_what_is_too_old():
    import tomllib

    least = read._minimum()
    if not least:
        pytest.skip("kbtool is not installed here, so that it has no metadata")
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert f">={least['python']}" == project["requires-python"]
    kernels = project["optional-dependencies"]["kernels"]
    assert kernels == [f"{name}>={least[name]}" for name in ("torch", "ninja", "numpy")]


def test_a_probe_that_hangs_or_fails_stays_unknown():
    def hang() -> None:
        time.sleep(60)

    def fail() -> None:
        raise ValueError("/home/somebody/lib.so is strange")

    deadline = time.monotonic() + 0.1
    slow, faulty, good = (read._Reading("x", probe, deadline) for probe in (hang, fail, lambda: 5))
    assert (slow.value(), faulty.value(), good.value()) == (None, None, 5)
    assert slow.why == f"no answer within {read.SECONDS} s"
    assert faulty.why == "ValueError: …/lib.so is strange"
    assert good.why is None


@pytest.mark.slow
def test_a_program_that_hangs_is_stopped():
    code = "import time; print('first', flush=True); time.sleep(60)"
    status, out, _ = read._run([sys.executable, "-c", code], 1.0)
    assert (status, out) == (None, "first\n")


@pytest.mark.slow
def test_the_facts_of_this_machine(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(read, "SECONDS", 60.0)  # a busy machine takes its time
    facts = read.read_facts(tmp_path, lambda root: Base(writable=True, kernels={}))
    assert facts.unread == {}
    assert facts.compiler.works
    assert facts.compiler.new_abi is True
    assert facts.torch.imports is True
    assert facts.torch.new_abi is torch._C._GLIBCXX_USE_CXX11_ABI
    assert facts.torch.numpy_error is None
    assert {room.what for room in facts.rooms} == {"the build cache", "the temporary folder"}
    assert facts.memory_bytes > 0
    assert facts.git.there


@pytest.mark.slow
def test_a_compiler_without_its_library_is_found_out(tmp_path, monkeypatch):
    program = tmp_path / "g++"
    program.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ 12' && exit\n"
        "echo 'a.cpp:1:10: fatal error: cstdio: No such file or directory' >&2; exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(read, "find_compiler", lambda: (str(program), "g++ 12"))
    found = read._compiler()
    assert not found.works
    assert found.error == "a.cpp:1:10: fatal error: cstdio: No such file or directory"
