"""Calls on unseen values in the same memory, and how their times show kept results."""

from __future__ import annotations

import builtins
import gc
import subprocess
import sys
import threading
import time
import traceback
from random import Random
from typing import Any

import pytest
import torch

from kbtool.gpu import compare
from kbtool.gpu.cpu_clock import CpuClock
from kbtool.gpu.harness import HarnessError
from kbtool.gpu.originals import Originals
from kbtool.gpu.unseen import PAIRS, Unseen, copied, keeps_results, write


def made(number: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(number)
    wide = torch.randn(2, 6, generator=generator)
    return {
        "strided": wide[:, ::2],
        "expanded": torch.randn(1, 3, generator=generator).expand(4, 3),
        "lengths": torch.randint(1, 9, (5,), generator=generator),
        "scale": 0.5,
    }


def test_values_change_in_place_and_lengths_stay():
    live, values = made(0), made(1)
    places = {name: live[name].data_ptr() for name in ("strided", "expanded", "lengths")}
    write(live, values)
    assert torch.equal(live["strided"], values["strided"])
    assert torch.equal(live["expanded"], values["expanded"])
    assert torch.equal(live["lengths"], made(0)["lengths"])
    assert places == {name: live[name].data_ptr() for name in places}


def test_changes_of_inputs_by_an_arm_are_undone_for_the_comparison():
    live = made(0)
    unseen = Unseen(made, ["ours"], Random(0))
    unseen.begin(live)
    live["strided"].zero_()
    live["lengths"].zero_()
    with unseen.in_place(unseen.first):
        assert torch.equal(live["strided"], unseen.first["strided"])
    assert not live["strided"].any() and not live["lengths"].any()
    live["scale"] = 0.1
    restored = unseen.restored()
    assert restored["scale"] == 0.5
    for name in ("strided", "expanded", "lengths"):
        assert torch.equal(restored[name], made(0)[name])


def test_on_a_card_one_set_of_unseen_values_and_one_copy_are_held():
    """Three would be 48 GiB for a batch with one entry of 128k keys, too much for 80 GB."""
    held = []

    def on_meta(number: int) -> dict[str, Any]:
        held.append(number)
        return {"k": torch.empty(4, 3, device="meta")}

    unseen = Unseen(on_meta, ["ours"], Random(0))
    unseen.begin(on_meta(0))
    for _ in range(2):
        with unseen.in_place(unseen.first):
            pass
    assert held[0] == 0 and len(held) == 2 and held[1] != 0
    unseen.restored()
    assert held[2:] == [0]


def test_each_set_of_unseen_values_is_used_once():
    live = made(0)
    unseen = Unseen(made, ["ours"], Random(0))
    unseen.begin(live)
    seen = [copied(live)["strided"]]
    for _ in range(3):
        again, others = unseen.next_pair()
        assert torch.equal(again["strided"], live["strided"])
        with unseen.in_place(others):
            seen.append(copied(live)["strided"])
    assert len({tuple(one.flatten().tolist()) for one in seen}) == 4


def test_values_of_another_shape_are_a_fault_of_the_harness():
    with pytest.raises(HarnessError, match=r"the shape \(2,\) with one seed and \(3,\) with an"):
        write({"x": torch.zeros(2)}, {"x": torch.zeros(3)})


def told(unseen: float, *pairs: tuple[float, float]) -> str | None:
    return keeps_results([1e-6] * 20, unseen, iter(pairs))


def test_results_are_kept_only_if_every_call_on_unseen_values_is_longer():
    slow = [(1e-6, 3e-6)] * PAIRS
    assert told(1.2e-6, *slow) is None
    assert told(3e-6, *slow[1:], (1e-6, 1.2e-6)) is None
    found = told(3e-6, *slow)
    assert found == (
        "its calls took 1 µs on inputs that it had seen and 3 µs on others:"
        " it keeps results between calls"
    )


def test_a_machine_that_slows_down_causes_no_finding():
    assert told(3e-6, *[(3e-6, 3.1e-6)] * PAIRS) is None


def reference(inputs: Any) -> Any:
    return helper(inputs)


def helper(inputs: Any, factor: int = 1, *, offset: int = 0) -> Any:
    return inputs * factor + offset


def other(inputs: Any, factor: int = 2, *, offset: int = 1) -> Any:
    return inputs


def test_a_replaced_function_is_named(monkeypatch):
    originals = Originals()
    originals.hold(sys.modules[__name__])
    assert originals.replaced() is None
    with monkeypatch.context() as patched:
        patched.setattr(torch, "allclose", lambda *_: True)
        assert originals.replaced() == "torch.allclose"
    with monkeypatch.context() as patched:
        patched.setattr(compare.compare, "__code__", (lambda *_: None).__code__)
        assert originals.replaced() == "kbtool.gpu.compare.compare"
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    assert originals.replaced() == "torch.get_num_threads()"
    torch.set_num_threads(threads)
    assert originals.replaced() is None


@pytest.mark.slow
def test_what_torch_replaces_itself_is_no_finding():
    """FlashInfer and torch.compile import torch._dynamo, which wraps torch.manual_seed."""
    script = (
        "import torch\n"
        "from kbtool.gpu.originals import Originals\n"
        "originals = Originals()\n"
        "import torch._dynamo\n"
        "print(originals.replaced())\n"
        "torch.manual_seed(3); first = torch.rand(2)\n"
        "torch.manual_seed(3); print(torch.equal(first, torch.rand(2)))\n"
        "torch.random._manual_seed_impl = lambda seed: None\n"
        "print(originals.replaced())\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["None", "True", "torch.random._manual_seed_impl"]


def test_a_replaced_helper_of_the_reference_is_named(monkeypatch):
    originals = Originals()
    originals.hold(sys.modules[__name__])
    assert originals.replaced() is None
    monkeypatch.setattr(sys.modules[__name__], "helper", lambda inputs: None)
    assert str(originals.replaced()).endswith("helper")


@pytest.mark.parametrize("part", ["__code__", "__defaults__", "__kwdefaults__"])
def test_each_part_of_the_body_of_a_function_has_to_stay(monkeypatch, part):
    originals = Originals()
    originals.hold(sys.modules[__name__])
    with monkeypatch.context() as patched:
        patched.setattr(helper, part, getattr(other, part))
        assert str(originals.replaced()).endswith("helper")
        patched.setattr(
            helper, part, None if part != "__code__" else test_a_replaced_function_is_named.__code__
        )
        assert str(originals.replaced()).endswith("helper")
    assert originals.replaced() is None
    monkeypatch.setitem(helper.__kwdefaults__, "offset", 1)
    assert str(originals.replaced()).endswith("helper")
    monkeypatch.setattr(helper, "__kwdefaults__", {"offset": 1})
    assert str(originals.replaced()).endswith("helper")


class Equal(int):
    """Says that it is equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_what_says_that_it_is_equal_is_not_the_same(monkeypatch):
    originals = Originals()
    originals.hold(sys.modules[__name__])
    with monkeypatch.context() as patched:
        patched.setattr(helper, "__defaults__", (Equal(5),))
        assert str(originals.replaced()).endswith("helper")
    monkeypatch.setitem(helper.__kwdefaults__, "offset", Equal(1))
    assert str(originals.replaced()).endswith("helper")


def test_the_look_itself_cannot_be_replaced(monkeypatch):
    originals = Originals()
    real, body = gc.get_referents, (lambda *_: None).__code__

    def hiding(*objects: Any) -> list[Any]:
        monkeypatch.undo()
        return real(*objects)

    monkeypatch.setattr(compare.compare, "__code__", body)
    monkeypatch.setattr(gc, "get_referents", hiding)
    assert originals.replaced() == "kbtool.gpu.compare.compare"
    monkeypatch.setattr(builtins, "all", lambda _: True)
    assert originals.replaced() == "builtins.all"


def test_what_the_harness_replaced_before_it_was_held_is_found(monkeypatch):
    originals = Originals()
    monkeypatch.setattr(compare.compare, "__code__", (lambda *_: None).__code__)
    originals.hold(sys.modules[__name__])
    assert originals.replaced() == "kbtool.gpu.compare.compare"


def test_an_operator_of_torch_that_a_library_registers_anew_is_found():
    originals = Originals()
    library = torch.library.Library("aten", "IMPL")
    library.impl("equal", lambda one, other: True, "CPU", allow_override=True)
    assert originals.replaced() == "torch's operator aten::equal"
    library._destroy()
    assert originals.replaced() is None


@pytest.mark.parametrize(
    ("code", "suspect"),
    [
        ("eval(compile('1 + 1', 'baked', 'eval'))", True),
        ("traceback.format_exc()", False),
        ("threading.Thread(target=time.sleep, args=[0.2]).start()", True),
        ("one = threading.Thread(target=int); one.start(); one.join()", False),
    ],
)
def test_an_arm_that_compiles_or_leaves_a_thread_in_a_timed_call_is_found(code, suspect):
    run = compile(code, "call", "exec")

    def ours(inputs: Any) -> Any:
        def call() -> Any:
            exec(run, {"threading": threading, "time": time, "traceback": traceback})
            return inputs["strided"] * 2

        return call

    live = made(0)
    unseen = Unseen(made, ["ours"], Random(0))

    def arms(number: int) -> Any:
        unseen.begin(live)
        return {"ours": ours(live)}

    timed = CpuClock(5).time(arms, 1, unseen=unseen)
    assert bool(timed.suspect) is suspect, timed.suspect
    for out in timed.drawn["ours"]:
        assert torch.equal(out, unseen.first["strided"] * 2)
