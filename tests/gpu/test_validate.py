"""Several variants of a kernel on one case: one reference, and no variant disturbs another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from kbtool.gpu.validate import Wanted, validate_variants

CPU = torch.device("cpu")


def harness(counts: dict[str, int]) -> Any:
    def make_inputs(case: Any, *, device: torch.device, seed: int) -> dict[str, Any]:
        return {"x": torch.arange(8.0)}

    def reference(inputs: Any) -> dict[str, torch.Tensor]:
        counts["reference"] += 1
        return {"out": inputs["x"].double() + 1}

    def baseline(inputs: Any) -> dict[str, torch.Tensor]:
        return {"out": inputs["x"] + 1}

    def call(inputs: Any, *, variant: str | None, poison: bool) -> dict[str, torch.Tensor]:
        assert counts["reference"] == 0, "the reference is there before the calls"
        if variant == "raises":
            raise ValueError("no such thing")
        out = inputs["x"] + (2 if variant == "wrong" else 1)
        if variant == "writes":
            inputs["x"] += 100
        return {"out": out}

    return SimpleNamespace(
        make_inputs=make_inputs, reference=reference, baseline=baseline, call=call
    )


def test_variants_are_held_against_one_reference_and_apart_from_each_other() -> None:
    counts = {"reference": 0}
    names = [None, "writes", "wrong", "raises", "right"]
    wanted = Wanted("set", {"name": "one", "n": 8}, names, beside="another")
    begun: list[str] = []
    results = validate_variants(harness(counts), wanted, device=CPU, seed=1, on_begin=begun.append)
    assert counts == {"reference": 1}
    assert [result.variant for result in results] == names
    passed = {result.variant: result.passed for result in results}
    assert passed == {None: True, "writes": False, "wrong": False, "raises": False, "right": True}
    messages = {result.variant: str(result.message) for result in results}
    assert messages["writes"] == "the call changed its input x"
    assert "over the bound" in messages["wrong"]
    assert messages["raises"] == "the call raised ValueError: no such thing"
    assert {result.beside for result in results} == {"another"}
    assert begun == [
        "set/one",
        *(f"set/one as {name}" for name in names if name),
        "set/one",
    ]


def test_a_reference_is_not_made_if_every_variant_raises() -> None:
    counts = {"reference": 0}
    wanted = Wanted("set", {"name": "one"}, ["raises"])
    (result,) = validate_variants(harness(counts), wanted, device=CPU, seed=1)
    assert not result.passed
    assert counts == {"reference": 0}
