"""The tolerance of a validation, on tensors made for the tests."""

from __future__ import annotations

import math

import pytest
import torch

from kbtool.gpu.compare import compare, rounding_unit, same_bits


def reference() -> torch.Tensor:
    return torch.randn(4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_rounding_alone_passes():
    exact = reference()
    rounded = exact.to(torch.float16)
    verdict = compare(rounded, exact, rounded)
    assert verdict.passed
    assert verdict.error == verdict.torch_error


def test_an_error_within_a_loose_bound_fails():
    """The seeds' S=4 case: 0.0222 under a bound of 0.1, 5,000 times torch's own error."""
    exact = reference()
    wrong = (exact + 0.0222).to(torch.float16)
    verdict = compare(wrong, exact, exact.to(torch.float16))
    assert not verdict.passed
    assert verdict.bound is not None
    assert verdict.bound < 0.0222 / 2
    assert "over the bound" in str(verdict.message)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("in_reference", [False, True])
def test_non_finite_values_must_be_where_the_reference_has_them(bad, in_reference):
    exact = reference()
    out = exact.float()
    (exact if in_reference else out)[2, 5] = bad
    verdict = compare(out, exact, exact.float())
    assert not verdict.passed
    assert "(2, 5)" in str(verdict.message)


def test_matching_non_finite_values_pass():
    exact = reference()
    exact[0, 0], exact[0, 1], exact[0, 2] = math.nan, math.inf, -math.inf
    assert compare(exact.float(), exact, exact.float()).passed


def test_all_minus_infinity_and_empty_tensors_compare():
    nothing_seen = torch.full((3,), -math.inf, dtype=torch.float64)
    assert compare(nothing_seen.float(), nothing_seen, nothing_seen.float()).passed
    empty = torch.zeros(0, 4, dtype=torch.float64)
    assert compare(empty.half(), empty, empty.half()).passed


def test_shape_and_type_are_part_of_the_verdict():
    exact = reference()
    assert "shape" in str(compare(exact[:2].half(), exact, exact.half()).message)
    assert "type" in str(compare(exact.float(), exact, exact.half()).message)


def test_a_nan_in_torchs_own_result_does_not_loosen_the_tolerance():
    exact = reference()
    yardstick = exact.half()
    yardstick[0, 0] = math.nan
    verdict = compare((exact + 0.01).half(), exact, yardstick)
    assert not verdict.passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("with_scale", [False, True])
def test_a_wrong_baseline_does_not_let_a_wrong_output_pass(dtype, with_scale):
    exact = reference()
    scale = exact.abs() if with_scale else None
    baseline = torch.zeros_like(exact, dtype=dtype)
    verdict = compare((exact * 0.75).to(dtype), exact, baseline, scale)
    assert not verdict.passed
    assert "counts" in str(verdict.message)
    assert compare(exact.to(dtype), exact, baseline, scale).passed


def test_a_baseline_of_lower_precision_still_counts_without_an_error_scale():
    """Torch may compute float32 products in TF32, which keeps 10 bits."""
    exact = reference()
    rounded = exact.half().float()
    assert compare(rounded, exact, rounded).passed


def test_the_unit_is_an_ulp_of_the_type():
    exact = torch.tensor([1.5, 0.25, 0.0], dtype=torch.float64)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        limits = torch.finfo(dtype)
        alone = rounding_unit(exact, dtype)
        assert alone.tolist() == [limits.eps] * 3  # of the largest element
        own = rounding_unit(exact, dtype, torch.zeros(3))
        least = limits.eps * limits.smallest_normal
        assert own.tolist() == [limits.eps, limits.eps / 4, least]


def test_terms_that_cancel_are_rounded_by_their_own_size():
    exact = torch.tensor([1.2866], dtype=torch.float64)
    off = (exact + 7.5e-7).float()
    assert not compare(off, exact, exact.float()).passed
    assert compare(off, exact, exact.float(), error_scale=torch.tensor([8.0])).passed
    small = compare(off, exact, exact.float(), error_scale=torch.tensor([0.5]))
    assert small.bound == compare(off, exact, exact.float()).bound


def test_a_large_row_does_not_loosen_the_tolerance_of_a_small_one():
    """A row of one key is as large as a value, one of many keys is their mean."""
    exact = torch.stack([reference()[0], reference()[1] / 500])
    error_scale = exact.abs().amax(dim=1, keepdim=True)
    rounded = exact.bfloat16()
    assert compare(rounded, exact, rounded, error_scale).passed
    wrong = torch.stack([rounded[0], rounded[1] * 0.9])
    assert compare(wrong, exact, rounded).passed  # beside the large row nobody sees it
    verdict = compare(wrong, exact, rounded, error_scale)
    assert not verdict.passed
    assert "(1, " in str(verdict.message)
    assert verdict.bound is not None
    assert verdict.bound < 1e-3


def test_same_bits_distinguishes_signed_zeros_and_types_and_accepts_nan():
    zero = torch.zeros(2)
    assert not same_bits(zero, -zero)
    assert same_bits(torch.tensor([math.nan]), torch.tensor([math.nan]))
    assert not same_bits(zero, zero.double())
