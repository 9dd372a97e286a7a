"""Reading a card's properties from the driver, and answers that are missing.

The driver's libraries are stood in for by two that answer as they do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from kbtool.gpu import _card, probe

pytestmark = pytest.mark.slow

DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = 7; return 0; }
int cuDeviceGetName(char* name, int length, int device) { strcpy(name, "Some card"); return 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int device) { *bytes = 80ull << 30; return 0; }
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = 0x10 + i;
  return device == 7 ? 0 : 1;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 16: *value = 132; return 0;
    case 38: *value = 50 << 20; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
  }
  return 1;
}
"""
MANAGEMENT = """
#include <string.h>
static int the_card;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* name, void** handle) {
  *handle = &the_card;
  return strcmp(name, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
}
static int clock_of(int type, unsigned* mhz, unsigned sm, unsigned memory) {
  *mhz = type == 1 ? sm : memory;
  return type == 1 || type == 2 ? 0 : 2;
}
int nvmlDeviceGetMaxClockInfo(void* handle, int type, unsigned* mhz) {
  return handle == &the_card ? clock_of(type, mhz, 1980, 2619) : 1;
}
int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* mhz) {
  return handle == &the_card ? clock_of(type, mhz, 1755, 2619) : 1;
}
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  *millijoules = 5000000000ull;
  return handle == &the_card ? POWER : 1;
}
int nvmlDeviceGetPowerManagementLimit(void* handle, unsigned* milliwatts) {
  *milliwatts = 700000;
  return POWER;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("driver")
    library(made / "both", "libcuda.so.1", DRIVER)
    library(made / "both", "libnvidia-ml.so.1", MANAGEMENT.replace("POWER", "0"))
    library(made / "alone", "libcuda.so.1", DRIVER)
    library(made / "no-power", "libcuda.so.1", DRIVER)
    library(made / "no-power", "libnvidia-ml.so.1", MANAGEMENT.replace("POWER", "3"))
    return made


def library(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run(
        ["cc", "-w", "-fPIC", "-shared", str(source), "-o", str(folder / name)], check=True
    )


def asked(folder: Path, code: str | None = None) -> object:
    """What the program prints where these are the driver's libraries."""
    program = ["-c", code] if code else [_card.__file__]
    done = subprocess.run(
        [sys.executable, *program], env={"LD_LIBRARY_PATH": str(folder)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


CARD = {
    "uuid": "10111213-1415-1617-1819-1a1b1c1d1e1f", "name": "Some card", "cards": 2,
    "compute_capability": "sm_90", "memory_bytes": 80 << 30, "multiprocessors": 132,
    "l2_bytes": 50 << 20,
}  # fmt: skip
CLOCKS = {"sm_clock_mhz": 1980, "memory_clock_mhz": 2619}


def test_a_card_is_described_with_clocks_and_power(folder):
    assert asked(folder / "both") == {**CARD, **CLOCKS, "power_limit_w": 700}


def test_a_figure_that_is_refused_is_unknown(folder):
    assert asked(folder / "no-power") == {**CARD, **CLOCKS, "power_limit_w": None}


def test_without_the_management_library_the_rest_is_known(folder):
    nothing = {**dict.fromkeys(CLOCKS), "power_limit_w": None}
    assert asked(folder / "alone") == {**CARD, **nothing}


@pytest.mark.skipif(find_library("cuda") is not None, reason="this machine has the driver")
def test_without_a_driver_there_is_no_card(tmp_path):
    assert asked(tmp_path) is None


def test_the_current_clock_is_read_by_card(folder):
    code = (
        "import json; from kbtool.gpu._card import Management;"
        " print(json.dumps([Management(card).sm_clock_mhz() for card in"
        " ('10111213-1415-1617-1819-1a1b1c1d1e1f', 'another')]))"
    )
    assert asked(folder / "both", code) == [1755, None]


def test_the_energy_counter_is_read_by_card_and_unknown_where_the_card_does_not_tell(folder):
    code = (
        "import json; from kbtool.gpu._card import Management;"
        " print(json.dumps([Management(card).energy_mj() for card in"
        " ('10111213-1415-1617-1819-1a1b1c1d1e1f', 'another')]))"
    )
    assert asked(folder / "both", code) == [5_000_000_000, None]
    assert asked(folder / "no-power", code) == [None, None]
    assert asked(folder / "alone", code) == [None, None]


@pytest.mark.parametrize(
    ("prints", "there"),
    [("echo 17; echo 4711", 2), ("true", 0), ("echo '[Not Supported]'", 0), ("exit 6", None)],
)
def test_processes_on_a_card_are_counted_by_nvidia_smi(tmp_path, monkeypatch, prints, there):
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{prints}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe.processes_on("1-2") == there
    asked = (tmp_path / "asked").read_text()
    assert asked == "-i GPU-1-2 --query-compute-apps=pid --format=csv,noheader\n"


def test_without_nvidia_smi_the_number_of_processes_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe.processes_on("1-2") is None
