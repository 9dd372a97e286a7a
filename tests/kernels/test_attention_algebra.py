"""The merge of partial states, through a C interface to the header that every source includes."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from attention_rule import FOLDER
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

VEC = 3
SHIM = r"""
#include "attention_state.h"
using State = kbtool::AttentionState<3>;
static State read(const float* s) {
  State state;
  state.m = s[0];
  state.l = s[1];
  for (int i = 0; i < 3; ++i) state.o[i] = s[2 + i];
  return state;
}
static void write(const State& state, float* s) {
  s[0] = state.m;
  s[1] = state.l;
  for (int i = 0; i < 3; ++i) s[2 + i] = state.o[i];
}
extern "C" {
void empty(float* s) { write(State::empty(), s); }
void of_key(float logit, const float* v, float* s) {
  const float value[3] = {v[0], v[1], v[2]};
  write(State::of_key(logit, value), s);
}
void merge(const float* a, const float* b, float* s) {
  State state = read(a);
  state.merge(read(b));
  write(state, s);
}
void finish(const float* s, float* out_lse) {
  float out[3];
  read(s).normalise(out);
  for (int i = 0; i < 3; ++i) out_lse[i] = out[i];
  out_lse[3] = read(s).lse();
}
}
"""

State = npt.NDArray[np.float32]


class Algebra:
    def __init__(self, library: Path) -> None:
        self._c = ctypes.CDLL(str(library))

    @staticmethod
    def _at(array: State) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def empty(self) -> State:
        state = np.full(2 + VEC, math.nan, np.float32)
        self._c.empty(self._at(state))
        return state

    def of_key(self, logit: float, value: list[float]) -> State:
        state = np.full(2 + VEC, math.nan, np.float32)
        held = np.array(value, np.float32)
        self._c.of_key(ctypes.c_float(logit), self._at(held), self._at(state))
        return state

    def merge(self, a: State, b: State) -> State:
        state = np.full(2 + VEC, math.nan, np.float32)
        self._c.merge(self._at(a), self._at(b), self._at(state))
        return state

    def finish(self, state: State) -> tuple[State, float]:
        out_lse = np.full(VEC + 1, math.nan, np.float32)
        self._c.finish(self._at(state), self._at(out_lse))
        return out_lse[:VEC], float(out_lse[VEC])


@pytest.fixture(scope="session")
def algebra(tmp_path_factory: pytest.TempPathFactory) -> Algebra:
    folder = tmp_path_factory.mktemp("algebra")
    (folder / "shim.cpp").write_text(SHIM, encoding="utf-8")
    subprocess.run(
        ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror",
         f"-I{FOLDER}", "shim.cpp", "-o", "shim.so"],
        cwd=folder, check=True, timeout=120,
    )  # fmt: skip
    return Algebra(folder / "shim.so")


finite = st.floats(-1e4, 1e4, width=32)
keys = st.lists(
    st.tuples(finite | st.just(-math.inf), st.lists(finite, min_size=VEC, max_size=VEC)),
    max_size=6,
)


def attend(algebra: Algebra, seen: list[tuple[float, list[float]]]) -> State:
    state = algebra.empty()
    for logit, value in seen:
        state = algebra.merge(state, algebra.of_key(logit, value))
    return state


@given(keys)
def test_the_empty_state_is_the_identity(
    algebra: Algebra, seen: list[tuple[float, list[float]]]
) -> None:
    state = attend(algebra, seen)
    np.testing.assert_array_equal(algebra.merge(state, algebra.empty()), state)
    np.testing.assert_array_equal(algebra.merge(algebra.empty(), state), state)


@given(keys, keys)
def test_merge_commutes_to_the_last_bit(
    algebra: Algebra, a: list[tuple[float, list[float]]], b: list[tuple[float, list[float]]]
) -> None:
    left, right = attend(algebra, a), attend(algebra, b)
    np.testing.assert_array_equal(algebra.merge(left, right), algebra.merge(right, left))


@given(keys, keys, keys)
def test_merge_associates_up_to_rounding(
    algebra: Algebra,
    a: list[tuple[float, list[float]]],
    b: list[tuple[float, list[float]]],
    c: list[tuple[float, list[float]]],
) -> None:
    x, y, z = (attend(algebra, seen) for seen in (a, b, c))
    left = algebra.merge(algebra.merge(x, y), z)
    right = algebra.merge(x, algebra.merge(y, z))
    assert left[0] == right[0]
    size = max((abs(v) for _, value in a + b + c for v in value), default=0.0)
    np.testing.assert_allclose(left[1], right[1], rtol=1e-5)
    np.testing.assert_allclose(left[2:], right[2:], rtol=1e-5, atol=1e-5 * size)


@given(keys)
def test_merging_keys_is_softmax_attention(
    algebra: Algebra, seen: list[tuple[float, list[float]]]
) -> None:
    out, lse = algebra.finish(attend(algebra, seen))
    logits = np.array([logit for logit, _ in seen], np.float64)
    if not np.isfinite(logits).any():
        assert lse == -math.inf
        np.testing.assert_array_equal(out, 0)
        return
    values = np.array([value for _, value in seen], np.float64)
    weights = np.exp(logits - logits.max())
    np.testing.assert_allclose(lse, logits.max() + np.log(weights.sum()), rtol=1e-5, atol=1e-5)
    expected = weights @ values / weights.sum()
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5 * np.abs(values).max())


@given(st.lists(finite, min_size=1, max_size=30))
def test_values_of_one_give_exactly_one(algebra: Algebra, logits: list[float]) -> None:
    out, _ = algebra.finish(attend(algebra, [(logit, [1.0] * VEC) for logit in logits]))
    np.testing.assert_array_equal(out, 1)


def test_two_empty_states_merge_without_nan(algebra: Algebra) -> None:
    merged = algebra.merge(algebra.empty(), algebra.empty())
    np.testing.assert_array_equal(merged, [-math.inf, 0, 0, 0, 0])
    out, lse = algebra.finish(merged)
    np.testing.assert_array_equal(out, 0)
    assert lse == -math.inf


@pytest.mark.parametrize("other", [-3.0, math.inf, -math.inf])
def test_a_nan_logit_survives_every_merge(algebra: Algebra, other: float) -> None:
    nan = algebra.of_key(math.nan, [1.0] * VEC)
    for state in (
        algebra.merge(nan, algebra.of_key(other, [1.0] * VEC)),
        algebra.merge(algebra.of_key(other, [1.0] * VEC), nan),
    ):
        out, lse = algebra.finish(state)
        assert np.isnan(out).all()
        assert math.isnan(lse)


def test_an_infinite_logit_is_nan_in_the_output_and_inf_in_the_lse(algebra: Algebra) -> None:
    infinite = algebra.of_key(math.inf, [1.0] * VEC)
    for state in (
        infinite,
        algebra.merge(infinite, infinite),
        algebra.merge(algebra.of_key(5.0, [1.0] * VEC), infinite),
        algebra.merge(infinite, algebra.empty()),
    ):
        out, lse = algebra.finish(state)
        assert np.isnan(out).all()
        assert lse == math.inf


@pytest.mark.parametrize("header", ["attention_state.h", "params.h", "num_splits.h"])
def test_common_headers_compile_for_the_device(header: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on this machine")
    kernel, host = "__global__ void use(float* out)", "void use(float* out)"
    uses = {
        "attention_state.h": f"{kernel} {{ auto s = kbtool::AttentionState<4>::empty();"
        " s.merge(s); s.normalise(s.o); *out = s.lse(); }",
        "params.h": f"{kernel} {{ *out = kbtool::visible_keys(true, 1, 2, 3); }}",
        # the number of splits is chosen on the host
        "num_splits.h": f"{host} {{ *out = kbtool::choose_num_splits(8, 16384, 132, 256); }}",
    }
    source = tmp_path / "use.cu"
    source.write_text(f'#include "{header}"\n{uses[header]}\n', encoding="utf-8")
    done = subprocess.run(
        [nvcc, "-std=c++17", "-arch=sm_90", f"-I{FOLDER}", "-Werror=all-warnings", "-c",
         str(source), "-o", str(tmp_path / "use.o")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
