"""How 8 bits become operands on CUDA, compiled for the host.

The host compiles what cards before sm_89 run, which lack the instruction that converts: no card
that has run the kernels takes that path. Columns and powers of two need no card either.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_rule import FOLDER
from on_host import library_on_host

pytestmark = pytest.mark.slow

SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

static uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    picked |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return picked;
}
static uint32_t __float_as_uint(float x) { uint32_t i; std::memcpy(&i, &x, 4); return i; }
static float __uint_as_float(uint32_t i) { float x; std::memcpy(&x, &i, 4); return x; }
using std::min;

namespace kbtool::cuda {
using fp16 = __half;
using bf16 = __nv_bfloat16;
template <class Element> struct ElementTraits {
  static uint32_t pack(float low, float high) {
    const Element two[] = {Element(low), Element(high)};
    uint32_t packed; std::memcpy(&packed, two, 4); return packed;
  }
};
}  // namespace kbtool::cuda

#include "fp8.h"

namespace kbtool::cuda {
#include "parts.h"

template <class Kv, class Element> void widened(uint32_t four, uint32_t* out) {
  widen<Kv, Element>(four, out[0], out[1]);
  out[2] = widen<Kv, Element>(four);
  out[3] = widen<Kv, Element>(four >> 16);
}
template <class Kv_> struct Config { using Kv = Kv_; };
}  // namespace kbtool::cuda
using namespace kbtool::cuda;

extern "C" void widen_four(int is_e5m2, int to_bf16, uint32_t four, uint32_t* out) {
  (is_e5m2 ? to_bf16 ? widened<e5m2, bf16> : widened<e5m2, fp16>
           : to_bf16 ? widened<e4m3, bf16> : widened<e4m3, fp16>)(four, out);
}
extern "C" uint32_t finite(int is_e5m2, uint32_t four) {
  return is_e5m2 ? finite_or_zero_fp8<e5m2>(four) : finite_or_zero_fp8<e4m3>(four);
}
extern "C" uint32_t apart(uint32_t four) { return columns_apart(four); }
extern "C" float normaliser_of(float size) { return normaliser(size); }
extern "C" int column(int is_fp8, int tile, int i, int lane) {
  return is_fp8 ? column_of<Config<e4m3>>(tile, i, lane) : column_of<Config<fp16>>(tile, i, lane);
}
"""

FORMATS = {torch.float8_e4m3fn: 0, torch.float8_e5m2: 1}
formats = pytest.mark.parametrize("of", FORMATS)


def function(file: str, name: str) -> str:
    """The source of a function, with what stands before it on its lines."""
    source = (FOLDER / "cuda" / file).read_text(encoding="utf-8")
    found = re.search(
        rf"^(template <class C>\n)?__device__ [^\n]* {name}\(.*?^}}\n", source, re.S | re.M
    )
    assert found is not None
    return found[0]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("fp8")
    header = (FOLDER / "cuda" / "common" / "fp8.cuh").read_text(encoding="utf-8")
    (folder / "fp8.h").write_text(header.replace('#include "mma.cuh"', ""), encoding="utf-8")
    parts = [("fused/fused.cuh", "normaliser"), ("common/lane_state.cuh", "column_of")]
    (folder / "parts.h").write_text("".join(function(*part) for part in parts), encoding="utf-8")
    (folder / "fp8.cpp").write_text(SOURCE)
    library = library_on_host(folder / "fp8.cpp", "-O1")
    library.normaliser_of.restype = ctypes.c_float
    library.finite.restype = library.apart.restype = ctypes.c_uint32
    return library


def codes_of(of: torch.dtype) -> torch.Tensor:
    return torch.arange(256, dtype=torch.uint8).view(of)


@formats
@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16])
def test_each_code_widens_to_its_number_in_each_place(
    host: Any, of: torch.dtype, to: torch.dtype
) -> None:
    numbers = codes_of(of).to(to)
    for code in range(256):
        codes = [code, 255 - code, code ^ 0x55, 0]
        out = (ctypes.c_uint32 * 4)()
        four = sum(byte << 8 * i for i, byte in enumerate(codes))
        host.widen_four(FORMATS[of], int(to == torch.bfloat16), ctypes.c_uint32(four), out)
        made = torch.frombuffer(bytearray(out), dtype=to)
        wanted = numbers[codes].repeat(2)
        assert torch.equal(made.isnan(), wanted.isnan())
        # As bits: a zero keeps its sign.
        made, wanted = (t.masked_fill(t.isnan(), 1).view(torch.int16) for t in (made, wanted))
        assert torch.equal(made, wanted)


@formats
def test_no_code_but_those_that_are_not_finite_is_zeroed(host: Any, of: torch.dtype) -> None:
    finite = codes_of(of).float().isfinite()
    for code in range(256):
        for place in (0, 8, 16, 24):
            beside = 0x01010101 & ~(0xFF << place)
            kept = code << place if finite[code] else 0
            assert (
                host.finite(FORMATS[of], ctypes.c_uint32(beside | code << place)) == beside | kept
            )


def test_the_two_keys_of_a_column_come_together(host: Any) -> None:
    # Columns 0 and 1 of a key, then of the next.
    assert host.apart(ctypes.c_uint32(0x11_01_10_00)) == 0x11_10_01_00


@pytest.mark.parametrize("is_fp8", [0, 1])
def test_the_lanes_of_a_row_have_each_column_once(host: Any, is_fp8: int) -> None:
    of_lane = {
        lane: [host.column(is_fp8, tile, i, lane) for tile in range(8) for i in range(2)]
        for lane in range(4)
    }
    assert sorted(column for columns in of_lane.values() for column in columns) == list(range(64))
    many = 4 if is_fp8 else 2  # neighbours that a lane stores together
    for lane, columns in of_lane.items():
        assert all(column // many % 4 == lane for column in columns)


def test_a_row_of_any_size_is_brought_near_the_top_of_fp16(host: Any) -> None:
    """Down to 2^-113, where the largest power of two of float32 is no longer enough."""
    for exponent in range(-149, 128):
        for mantissa in (1.0, 1.9921875):
            size = mantissa * 2.0**exponent
            factor = host.normaliser_of(ctypes.c_float(size))
            assert 0 < factor <= 2.0**127
            assert size * factor < 2**15
            assert size * factor >= 2**14 or (factor == 2.0**127 and exponent < -113)
    assert host.normaliser_of(ctypes.c_float(0)) == 2.0**127
