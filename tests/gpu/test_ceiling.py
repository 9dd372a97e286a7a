"""The measured ceiling of arithmetic, on machines whose threads lose their core."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch

from kbtool.gpu.ceiling import arithmetic
from kbtool.gpu.cpu_clock import CpuClock

RATE = 100e9
"""Operations a second of the machine that is made up."""


def machine(is_stalled: Callable[[int], bool]) -> tuple[Callable[..., float], list[int]]:
    """Times a product by its size; the calls that are chosen lose their core for 10 ms."""
    calls, sizes = count(), []

    def seconds(product: Any) -> float:
        rows = product().shape[0]
        sizes.append(rows)
        return float(2 * rows**3 / RATE + 0.01 * is_stalled(next(calls)))

    return seconds, sizes


@pytest.mark.parametrize("stalled", [[], [0], [1], [0, 1], [2, 5], [3, 4, 6]])
def test_a_call_that_loses_its_core_neither_ends_the_search_nor_is_the_ceiling(stalled):
    seconds, sizes = machine(lambda call: call in stalled)
    rate = arithmetic(torch.float32, torch.device("cpu"), seconds, 5e-3, 4096)
    assert rate == pytest.approx(RATE / 1e9)
    assert max(sizes) == 1024, "the first size whose product takes 5 ms"


def test_the_largest_size_ends_it():
    seconds, sizes = machine(lambda call: False)
    assert arithmetic(torch.float32, torch.device("cpu"), seconds, 1.0, 512) == pytest.approx(100)
    assert max(sizes) == 512


def test_a_type_that_torch_does_not_multiply_has_no_arithmetic_ceiling(monkeypatch):
    def refuses(*_: Any, **__: Any) -> None:
        raise NotImplementedError("addmm_impl_cpu_ not implemented for this type")

    monkeypatch.setattr(torch, "mm", refuses)
    assert CpuClock(5).arithmetic(torch.float32) is None


@pytest.mark.parametrize("said", ["CUDA out of memory.", "CUBLAS_STATUS_ALLOC_FAILED when calling"])
def test_without_memory_for_a_larger_product_the_best_so_far_counts(said):
    took = iter([1e-4, 2e-4, 1e-4, 3e-4, 2e-4, 2e-4])

    def seconds(call: Any) -> float:
        if (one := next(took, None)) is None:
            raise RuntimeError(said)
        return one

    rate = arithmetic(torch.float32, torch.device("cpu"), seconds, 5e-3, 4096)
    assert rate == pytest.approx(2 * 512**3 / 2e-4 / 1e9)


def test_another_error_of_a_product_is_told():
    def seconds(call: Any) -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        arithmetic(torch.float32, torch.device("cpu"), seconds, 5e-3, 4096)


def test_this_processor_has_an_arithmetic_ceiling():
    assert (CpuClock(5).arithmetic(torch.float32) or 0) > 0.1
