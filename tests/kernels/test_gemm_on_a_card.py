"""The split-K GEMM in CUDA: shapes and strides that no case set holds."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kbtool.gpu.build import build
from kbtool.gpu.build_plan import choose_architecture, plan_build
from kbtool.gpu.harness import load_module
from kbtool.model.kernel import Kernel
from kbtool.store.tree import Entry, load_record

FOLDER = Path(__file__).parents[2] / "kernels" / "split_k_gemm"
CAPABILITY = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CAPABILITY < (9, 0), reason="needs a card of compute capability 9.0"),
]


@pytest.fixture(scope="session")
def gemm(build_cache: Path) -> ModuleType:
    """The Python face of the operator, its CUDA library loaded."""
    entry = load_record(FOLDER / "kernel.yaml", "kernel.yaml", Kernel)
    assert isinstance(entry, Entry)
    architecture = choose_architecture(entry.record, "cuda", "sm_{}{}".format(*CAPABILITY))
    plan = plan_build(entry.record, FOLDER, "cuda", build_cache, architecture)
    build(plan, timeout=600)
    torch.ops.load_library(plan.library)
    return load_module(FOLDER / "interface.py", "split_k_gemm_interface_cuda")


def matrix(rows: int, K: int, stride: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Standard normal; what lies between rows is NaN."""
    generator = torch.Generator("cuda").manual_seed(seed)
    stored = torch.full((rows, stride), torch.nan, dtype=dtype, device="cuda")
    stored[:, :K] = torch.randn(rows, K, generator=generator, device="cuda")
    return stored[:, :K]


def assert_near(out: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> None:
    """Within what rounding of the result, and of a float32 sum, can explain."""
    expected = x.double() @ w.double().T
    size = x.double().abs() @ w.double().abs().T
    allowed = (
        expected.abs() * torch.finfo(out.dtype).eps + size * torch.finfo(torch.float32).eps * 8
    )
    assert ((out.double() - expected).abs() <= allowed).all()


@pytest.mark.parametrize("seed", range(60))
def test_drawn_shapes_and_strides(gemm: ModuleType, seed: int) -> None:
    draw = random.Random(seed)
    M, N = draw.randint(1, 40), int(2 ** draw.uniform(0, 15.5))
    K = draw.choice([64 * draw.randint(1, 60), draw.randint(1, 3000), 64 * draw.randint(60, 300)])
    K = min(K, (1 << 27) // N // 64 * 64 or 64)
    dtype = draw.choice([torch.float16, torch.bfloat16])
    x = matrix(M, K, K + draw.choice([0, 0, 8, 64, 5]), dtype, seed)
    w = matrix(N, K, K + draw.choice([0, 0, 8, 64, 5]), dtype, seed + 1000)
    splits = draw.choice([None, None, None, draw.randint(1, 8)])
    assert_near(gemm.split_k_gemm(x, w, num_splits=splits), x, w)


@pytest.mark.parametrize(("N", "K"), [(300, 4096), (3000, 704), (7000, 1024), (40_000, 320)])
def test_a_row_has_the_same_bits_in_every_batch(gemm: ModuleType, N: int, K: int) -> None:
    x, w = matrix(40, K, K, torch.bfloat16, 1), matrix(N, K, K, torch.bfloat16, 2)
    together = gemm.split_k_gemm(x, w)
    for rows in (1, 2, 8, 9, 16, 17, 33):
        assert torch.equal(gemm.split_k_gemm(x[:rows], w), together[:rows])
        assert torch.equal(gemm.split_k_gemm(x[40 - rows :], w), together[40 - rows :])


def test_a_row_that_repeats(gemm: ModuleType) -> None:
    row, w = matrix(1, 256, 256, torch.float16, 1), matrix(500, 256, 256, torch.float16, 2)
    assert_near(gemm.split_k_gemm(row.expand(5, 256), w), row.expand(5, 256), w)


def test_a_captured_call_reads_what_its_inputs_hold_at_replay(gemm: ModuleType) -> None:
    x, w = matrix(3, 2048, 2048, torch.bfloat16, 1), matrix(4096, 2048, 2048, torch.bfloat16, 2)
    gemm.split_k_gemm(x, w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = gemm.split_k_gemm(x, w)
    for seed in (3, 4):
        x.copy_(matrix(3, 2048, 2048, torch.bfloat16, seed))
        w.copy_(matrix(4096, 2048, 2048, torch.bfloat16, seed + 10))
        graph.replay()
        assert_near(out, x, w)


def test_a_thread_that_has_not_used_the_card_yet(gemm: ModuleType) -> None:
    x, w = matrix(2, 512, 512, torch.bfloat16, 1), matrix(999, 512, 512, torch.bfloat16, 2)
    expected, made = gemm.split_k_gemm(x, w), []
    thread = threading.Thread(target=lambda: made.append(gemm.split_k_gemm(x, w)))
    thread.start()
    thread.join()
    assert torch.equal(made[0], expected)
