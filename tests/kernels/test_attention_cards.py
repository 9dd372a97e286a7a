"""``kbtool.attention`` on machines of other cards: what it builds, serves and refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import kbtool.gpu.build
import kbtool.gpu.build_plan
import kbtool.gpu.toolchain
from kbtool import attention
from kbtool.model.errors import MachineError

if torch.cuda.is_available():
    pytest.skip("a card that is there answers in place of those that these tests make up",
                allow_module_level=True)  # fmt: skip

Machine = Callable[..., None]
Q, KV = (1, 4, 1, 16), (1, 2, 9, 16)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, interface: Any) -> list[tuple[str, str]]:
    """Targets and architectures that are asked for; what is loaded is the tests' own library."""
    [library] = (name for name in torch.ops.loaded_libraries if "split_k_attention" in name)
    asked: list[tuple[str, str]] = []

    def plan_build(kernel: Any, folder: Path, target: str, cache: Path, architecture: str) -> Any:
        asked.append((target, architecture))
        return SimpleNamespace(library=library)

    monkeypatch.setattr(kbtool.gpu.build_plan, "plan_build", plan_build)
    monkeypatch.setattr(kbtool.gpu.build, "build", lambda plan, timeout: None)
    monkeypatch.setattr(attention, "_loaded", {})
    monkeypatch.setattr(attention, "_not_served", {})
    return asked


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes this one with cards of such capabilities, the first of them current."""

    def make(*capabilities: tuple[int, int], nvcc: bool = True, current: int = 0) -> None:
        def find_nvcc() -> None:
            if not nvcc:
                raise MachineError("no nvcc: install it")

        monkeypatch.setattr(kbtool.gpu.toolchain, "find_nvcc", find_nvcc)
        for name, answer in {
            "is_available": lambda: bool(capabilities),
            "device_count": lambda: len(capabilities),
            "current_device": lambda: current,
            "get_device_capability": lambda card: capabilities[card],
            "get_device_name": lambda card: f"Card {card}",
        }.items():
            monkeypatch.setattr(torch.cuda, name, answer)

    return make


# Fake, of cards that need not be there; made before anybody says that there are some.
with FakeTensorMode():
    ON_CARDS = [
        [torch.empty(shape, dtype=torch.float16, device=f"cuda:{card}") for shape in (Q, KV, KV)]
        for card in range(3)
    ]


def call_on(card: int) -> Tensor:
    out: Tensor = attention.split_k_attention(*ON_CARDS[card])
    return out


def call_on_the_cpu() -> None:
    q, k, v = torch.randn(Q), torch.randn(KV), torch.randn(KV)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(attention.split_k_attention(q, k, v), expected)


@pytest.mark.parametrize("capability", [(7, 5), (8, 7), (10, 3), (12, 0), (12, 1)])
def test_an_unsupported_card_gets_the_cpu_build_with_a_warning(
    built: list[Any], machine: Machine, capability: tuple[int, int]
) -> None:
    machine(capability)
    said = r"cuda:0 \(Card 0\): .* does not list sm_{}{} in kernel.yaml; it lists sm_90a".format(
        *capability
    )
    with pytest.warns(RuntimeWarning, match=f"built for the CPU alone: {said}") as warned:
        call_on_the_cpu()
    assert warned[0].filename == __file__
    assert built == [("cpu", "")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call_on_the_cpu()
        with pytest.raises(MachineError, match=f"split_k_attention: q is on {said}"):
            call_on(0)
    machine()  # a compiler asks the cards for their state
    torch.compiler.reset()
    compiled = torch.compile(attention.split_k_attention, fullgraph=True, backend="eager")
    assert compiled(torch.randn(Q), torch.randn(KV), torch.randn(KV)).shape == Q


def test_without_nvcc_a_card_is_refused_with_what_to_install(
    built: list[Any], machine: Machine
) -> None:
    machine((9, 0), nvcc=False)
    call_on_the_cpu()
    assert built == [("cpu", "")]
    with pytest.raises(MachineError, match=r"q is on cuda:0 \(Card 0\): no nvcc: install it"):
        call_on(0)


def test_without_a_card_the_cpu_version_is_built(built: list[Any], machine: Machine) -> None:
    machine()
    call_on_the_cpu()
    assert built == [("cpu", "")]


@pytest.mark.parametrize(
    ("capabilities", "current", "architecture", "served"),
    [
        ([(9, 0), (9, 0)], 0, "sm_90a", [0, 1]),
        ([(9, 0), (8, 0)], 0, "sm_90a", [0]),
        ([(9, 0), (8, 0)], 1, "sm_80", [1]),
        ([(8, 0), (8, 6), (9, 0)], 0, "sm_80", [0, 1]),  # machine code of 8.0 runs on 8.6 too
        ([(8, 0), (8, 6)], 1, "sm_86", [1]),
        ([(7, 5), (10, 0)], 0, "sm_100", [1]),
    ],
)
def test_cards_that_the_build_does_not_fit_are_refused(
    built: list[Any],
    machine: Machine,
    capabilities: list[tuple[int, int]],
    current: int,
    architecture: str,
    served: list[int],
) -> None:
    machine(*capabilities, current=current)
    call_on_the_cpu()
    assert built == [("cuda", architecture)]
    for card in range(len(capabilities)):
        if card in served:
            assert call_on(card).shape == Q
            continue
        with pytest.raises(MachineError, match=rf"q is on cuda:{card} \(Card {card}\): ") as error:
            call_on(card)
        assert architecture in str(error.value)
