"""The split-K GEMM as an operator, on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

from kbtool.gpu.build import build
from kbtool.gpu.build_plan import plan_build
from kbtool.gpu.harness import load_module
from kbtool.model.kernel import Kernel
from kbtool.store.tree import Entry, load_record

FOLDER = Path(__file__).parents[2] / "kernels" / "split_k_gemm"


@pytest.fixture(scope="session")
def gemm(build_cache: Path) -> ModuleType:
    """The Python face of the operator, its library loaded, every warning an error."""
    entry = load_record(FOLDER / "kernel.yaml", "kernel.yaml", Kernel)
    assert isinstance(entry, Entry)
    target = entry.record.targets["cpu"]
    # GCC 12 finds a variable of its own intrinsics uninitialised, and without AVX-512 it says of
    # vectors that only functions of this file return that their ABI would differ.
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized", "-Wno-psabi"]
    strict = target.model_copy(update={"flags": [*target.flags, *warnings]})
    kernel = entry.record.model_copy(update={"targets": {"cpu": strict}})
    plan = plan_build(kernel, FOLDER, "cpu", build_cache)
    build(plan, timeout=600)
    torch.ops.load_library(plan.library)
    return load_module(FOLDER / "interface.py", "split_k_gemm_interface")


def operands(M: int, N: int, K: int, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(M + N + K)
    return [torch.randn(rows, K, generator=generator).to(dtype) for rows in (M, N)]


@pytest.mark.parametrize("num_splits", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_row_has_the_same_bits_in_every_batch(
    gemm: ModuleType, dtype: torch.dtype, num_splits: int | None
) -> None:
    x, w = operands(13, 70, 1111, dtype)
    together = gemm.split_k_gemm(x, w, num_splits=num_splits)
    for rows in ([0], [3, 9], [12, 11, 10, 9, 8, 7, 6, 5], list(range(12))):
        alone = gemm.split_k_gemm(x[rows], w, num_splits=num_splits)
        assert torch.equal(alone, together[rows])


def test_the_number_of_threads_changes_no_bit(gemm: ModuleType) -> None:
    x, w = operands(5, 33, 9000)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(gemm.split_k_gemm(x, w))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_it_traces(gemm: ModuleType) -> None:
    x, w = operands(4, 32, 64)
    torch.library.opcheck(torch.ops.split_k_gemm.split_k_gemm.default, (x, w), {"num_splits": 2})
    compiled = torch.compile(lambda x, w: gemm.split_k_gemm(x, w) + 1, backend="aot_eager")
    assert torch.equal(compiled(x, w), gemm.split_k_gemm(x, w) + 1)


def zeros(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("x", "w", "splits", "message"),
    [
        (zeros(2, 3, 4), zeros(5, 4), None, r"x must have shape \(M, K\), got \(2, 3, 4\)"),
        (zeros(2, 4).float(), zeros(5, 4), None, "x must be Half or BFloat16, got Float"),
        (zeros(2, 4), zeros(5, 4).bfloat16(), None, r"w must have the dtype of x \(Half\)"),
        (zeros(2, 4), zeros(5, 3), None, r"w must have K=4 \(as x\), got 3"),
        (zeros(4, 2).T, zeros(5, 4), None, "x must have contiguous rows, got a last stride of 2"),
        (zeros(2, 4), zeros(5, 4), 0, r"num_splits must lie in \[1, 64\], got 0"),
        (zeros(2, 4), zeros(5, 4), 65, "got 65"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    gemm: ModuleType, x: torch.Tensor, w: torch.Tensor, splits: int | None, message: str
) -> None:
    with pytest.raises((ValueError, RuntimeError), match=message):
        gemm.split_k_gemm(x, w, num_splits=splits)


@pytest.fixture
def triton_gemm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The Triton module with a stand-in for Triton: what it checks, it checks before a launch."""
    language = mock.MagicMock(constexpr=int)
    monkeypatch.setitem(sys.modules, "triton", mock.MagicMock(language=language))
    monkeypatch.setitem(sys.modules, "triton.language", language)
    monkeypatch.setattr(torch.library, "Library", lambda *_: mock.MagicMock())
    return load_module(FOLDER / "split_k_gemm_triton.py", "split_k_gemm_triton_checked")


@pytest.mark.parametrize(
    ("x", "w", "splits", "message"),
    [
        (zeros(2, 4), zeros(5, 4), 0, r"num_splits must lie in \[1, 32\], got 0"),
        (zeros(0, 4), zeros(5, 4), 33, "got 33"),
        (zeros(1, 4).expand(1_048_561, 4), zeros(5, 4), None, "at most 1048560 rows, got 1048561"),
        (zeros(2, 4), zeros(5, 4).to("meta"), None, "x and w must be on one device"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_triton_is_asked(
    triton_gemm: ModuleType, x: torch.Tensor, w: torch.Tensor, splits: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        triton_gemm.split_k_gemm(x, w, num_splits=splits)
