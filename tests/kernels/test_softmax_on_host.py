"""The algebra of partial states that fused, ragged and wgmma keep, compiled for the host.

Held against float64 where the scaled maximum lies near 2^12, from where on a state is kept against
an exact maximum and no longer against a rounded one, and near 2^20, where it was until 2026-11-24.
"""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Callable

import pytest
from attention_rule import FOLDER
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

SOURCE = """
#include <cmath>
#include <cstdint>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define CUDART_INF_F INFINITY
struct float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static float __fmul_rn(float a, float b) { volatile float c = a * b; return c; }
static int __float_as_int(float x) { int i; std::memcpy(&i, &x, 4); return i; }
static float __int_as_float(int i) { float x; std::memcpy(&x, &i, 4); return x; }
#include "softmax.h"
using namespace kbtool::cuda;

// The states of single keys with these logits and values, each kept as a kernel keeps it, merged;
// then the sum of weighted values over the sum of weights, and the LSE in units of c.
extern "C" void merged(int count, const float* logits, const float* values, float c, double* out) {
  const StateChunk all = merge_states(
      count, c, [&](int i) { return logits[i]; },
      [&](int i) {
        const Base base = base_of(logits[i], c);
        return exp2_fast(fmaf(logits[i] - base.before, c, -base.after));
      },
      [&](int i) {
        const Base base = base_of(logits[i], c);
        return make_float4(values[i] * exp2_fast(fmaf(logits[i] - base.before, c, -base.after)),
                           0, 0, 0);
      });
  out[0] = all.l == 0 ? 0 : all.o.x / all.l;
  out[1] = log_sum_exp_scaled(all.m, all.l, c, static_cast<double>(c) * std::log(2.0));
}
"""

Merge = Callable[[list[float], list[float], float], tuple[float, float]]


@pytest.fixture(scope="module")
def merge(tmp_path_factory: pytest.TempPathFactory) -> Merge:
    folder = tmp_path_factory.mktemp("softmax")
    header = (FOLDER / "cuda" / "common" / "softmax.cuh").read_text(encoding="utf-8")
    header = header.replace("#include <math_constants.h>", "")
    header = re.sub(r'asm\("ex2.*?\);', "y = exp2f(x);", header, flags=re.S)
    header = re.sub(r'asm\("max.*?\);', "y = a != a || a > b ? a : b;", header, flags=re.S)
    header = re.sub(r"#pragma unroll.*", "", header)
    (folder / "softmax.h").write_text(header, encoding="utf-8")
    (folder / "merge.cpp").write_text(SOURCE)
    subprocess.run(
        ["c++", "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared",
         str(folder / "merge.cpp"), "-o", str(folder / "merge.so")],
        check=True, timeout=120,
    )  # fmt: skip
    library = ctypes.CDLL(str(folder / "merge.so"))

    def run(logits: list[float], values: list[float], c: float) -> tuple[float, float]:
        out, floats = (ctypes.c_double * 2)(), ctypes.c_float * len(logits)
        library.merged(len(logits), floats(*logits), floats(*values), ctypes.c_float(c), out)
        return out[0], out[1]

    return run


def float32(x: float) -> float:
    return ctypes.c_float(x).value


@settings(max_examples=2000, deadline=None)
@given(
    c=st.floats(0.01, 4).map(float32),
    around=st.sampled_from([2.0**20, -(2.0**20), 2.0**19, 2.0**12, -(2.0**12), 100.0, 0.0]),
    apart=st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    values=st.lists(st.floats(-1, 1).map(float32), min_size=6, max_size=6),
)
@example(c=float32(0.7), around=2.0**20, apart=[-0.5, 0.9], values=[0.0, 1.0, 0, 0, 0, 0])
@example(c=float32(0.7), around=-(2.0**20), apart=[-0.5, 0.9], values=[0.0, 1.0, 0, 0, 0, 0])
@example(c=0.96875, around=-(2.0**12), apart=[0.0, -1.0], values=[1.0, -1.0, 0, 0, 0, 0])
def test_states_on_either_side_of_a_large_maximum_merge_exactly(
    merge: Merge, c: float, around: float, apart: list[float], values: list[float]
) -> None:
    logits = [float32((around + x) / c) for x in apart]
    out, lse = merge(logits, values[: len(logits)], c)
    exponents = [x * c for x in logits]  # exact in float64
    top = max(exponents)
    weights = [2.0 ** (x - top) for x in exponents]
    wanted = sum(w * v for w, v in zip(weights, values, strict=False)) / sum(weights)
    # Each weight may err by some units in the last place, and by that of its exponent's rounding.
    # Near 2^12 rounded maxima meet exact ones: 2^-12 in the exponent of some weights. The output is
    # off most where those are half of the sum and their values differ by 2 from the others.
    mixed = 2**-12 * math.log(2) * 2 / 4 if abs(around) == 2**12 else 0
    assert out == pytest.approx(wanted, abs=4e-6 + mixed)
    assert lse == pytest.approx((top + math.log2(sum(weights))) * math.log(2), rel=3e-7, abs=3e-6)
