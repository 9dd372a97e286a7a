"""Random shapes, strides, types, splits and lengths, compared with float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_rule import PLACES, Place, check, everywhere, in_other_orders, violation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LAYOUTS = ["bhsd", "bshd", "bhds", "sliced", "offset", "padded", "padded_rows", "expanded"]
FILLS = ["random", "random", "large_logits", "v_one", "inf_beyond"]


@st.composite
def cases(draw: st.DrawFn, place: Place) -> dict[str, Any]:
    B = draw(st.integers(0, 3))
    Hkv = draw(st.integers(1, 3))
    Skv = draw(st.integers(0, 150))
    nan = ["nan_key", "nan_value"] if B > 0 and Skv > 0 else []
    lengths = st.lists(st.integers(0, Skv), min_size=B, max_size=B)
    return {
        "B": B,
        "H": Hkv * draw(st.integers(1, 9)),
        "Hkv": Hkv,
        "Sq": draw(st.integers(0, 12) | st.integers(0, 90)),
        "Skv": Skv,
        "D": draw(st.integers(1, 70) | st.sampled_from([64, 128, 256, place.max_dim])),
        "dtype": str(draw(st.sampled_from(place.dtypes))).removeprefix("torch."),
        "causal": draw(st.booleans()),
        "layout": draw(st.sampled_from(LAYOUTS)),
        "kv_lengths": draw(st.none() | lengths),
        "kv_lengths_dtype": draw(st.sampled_from(["int32", "int64"])),
        "num_splits": draw(st.none() | st.integers(1, 9) | st.integers(1, 300)),
        "scale": draw(st.none() | st.floats(-2, 2)),
        "fill": draw(st.sampled_from([*FILLS, *nan])),
    }


@st.composite
def serving_cases(draw: st.DrawFn, place: Place) -> dict[str, Any]:
    """What a server's call may have: pages, 8 bits, a window, a softcap, sinks, values with another
    head dimension than keys."""
    case = draw(cases(place))
    case["Dv"] = draw(st.none() | st.integers(1, 130) | st.sampled_from([64, 128, 256]))
    paged = draw(st.booleans())
    if paged:
        lengths = st.lists(st.integers(0, case["Skv"]), min_size=case["B"], max_size=case["B"])
        case["kv_lengths"] = draw(lengths)
        case["page_size"] = draw(st.sampled_from([1, 2, 8, 16, 64, 256]))
        case["page_layout"] = draw(st.sampled_from(["nhd", "hnd"]))
        case["shared_prefix"] = draw(st.sampled_from([0, 0, 64]))
        if case["layout"] == "expanded":
            case["layout"] = "bhsd"
    if case["dtype"] != "float32":
        case["kv_dtype"] = draw(st.sampled_from([None, "float8_e4m3fn", "float8_e5m2"]))
    if case.get("kv_dtype"):
        case["kv_scale"] = draw(st.sampled_from([None, "tensor", "one", "head"]))
    if case["causal"]:
        case["window"] = draw(st.none() | st.integers(1, 160))
    if case["fill"] == "random":
        case["softcap"] = draw(st.none() | st.sampled_from([2.0, 30.0]))
    case["sinks"] = draw(st.sampled_from([None, "random", "large", "minus_inf"]))
    return case


@st.composite
def ragged_cases(draw: st.DrawFn, place: Place) -> dict[str, Any]:
    """Batches that a card shares out by their lengths, of so few values that a CPU is soon done."""
    # One query of few heads; where more than 66 KV heads share an H100 none is split, and 2048 keys
    # of one are enough.
    # More columns would be worth splits that merge by the workspace, of too few keys to share out.
    Hkv, Skv = draw(st.sampled_from([(1, 16400), (2, 16400), (2, 2048)]))
    B = draw(st.integers(2, 6) if Skv > 2048 else st.integers(34, 40))
    lengths = st.integers(0, Skv) | st.integers(0, 200) | st.sampled_from([0, 1, Skv])
    return {
        "B": B,
        "H": Hkv * draw(st.integers(1, 3)),
        "Hkv": Hkv,
        "Sq": draw(st.integers(1, 4)),
        "Skv": Skv,
        "D": draw(st.integers(1, 16)),
        "dtype": str(draw(st.sampled_from(place.dtypes))).removeprefix("torch."),
        "causal": draw(st.booleans()),
        "layout": draw(st.sampled_from(LAYOUTS)),
        "kv_lengths": draw(st.lists(lengths, min_size=B, max_size=B)),
        "kv_lengths_dtype": draw(st.sampled_from(["int32", "int64"])),
        "num_splits": None,
        "scale": draw(st.none() | st.floats(-2, 2)),
        "fill": draw(st.sampled_from([*FILLS, "nan_key", "nan_value"])),
    }


# The fixture holds functions and no state, so that examples may share it.
@everywhere
@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), seed=st.integers(0, 2**31), poison=st.booleans())
def test_random_cases_are_within_tolerance(
    harness: Any, place: Place, data: st.DataObject, seed: int, poison: bool
) -> None:
    check_random_case(harness, place, data.draw(cases(place)), seed, poison)


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place.values[0].variant not in ("fa1", "two_pass")]
)
@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), seed=st.integers(0, 2**31), poison=st.booleans())
def test_random_calls_of_servers_are_within_tolerance(
    harness: Any, place: Place, data: st.DataObject, seed: int, poison: bool
) -> None:
    check_random_case(harness, place, data.draw(serving_cases(place)), seed, poison)


@everywhere
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), seed=st.integers(0, 2**31), poison=st.booleans())
def test_random_ragged_batches_are_within_tolerance(
    harness: Any, place: Place, data: st.DataObject, seed: int, poison: bool
) -> None:
    check_random_case(harness, place, data.draw(ragged_cases(place)), seed, poison)


def test_where_torch_is_exact_by_luck_it_sums_again_and_an_error_is_still_found(
    harness: Any, place: Place
) -> None:
    """Two rows of logits up to 56: by the order of the columns torch errs by 7.5e-7 or 6.6e-6."""
    case = {
        "B": 1, "H": 2, "Hkv": 1, "Sq": 1, "Skv": 80, "D": 300, "dtype": "float32",
        "causal": False, "layout": "bhsd", "kv_lengths": None, "kv_lengths_dtype": "int32",
        "num_splits": None, "scale": 1.0, "fill": "random",
    }  # fmt: skip
    inputs = harness.make_inputs(case, device=place.device, seed=1)
    got = check(harness, inputs, poison=False)["out"]
    exact = harness.reference(inputs)["out"]
    sums = [one["out"] for one in in_other_orders(harness, inputs)]
    assert violation(got, exact, sums[0], more=sums[1:]) is None
    assert violation(got + 2e-5, exact, sums[0], more=sums[1:]) is not None


def check_random_case(
    harness: Any, place: Place, case: dict[str, Any], seed: int, poison: bool
) -> None:
    if case["fill"] == "large_logits":
        case["scale"] = None if case["D"] in (1, 4, 16, 64, 256) else 0.125  # a power of two
    if case["B"] == 0 and case["layout"] == "expanded":
        case["layout"] = "bhsd"
    inputs = harness.make_inputs(case, device=place.device, seed=seed)
    got = check(harness, inputs, variant=place.variant, poison=poison)
    if case["fill"] == "v_one":
        out = got["out"]
        if not case.get("kv_scale") and case.get("sinks") is None:
            assert torch.equal(out, got["lse"].isfinite()[..., None].expand_as(out).to(out.dtype))


@given(
    tiles=st.integers(0, 300),
    kv_length=st.integers(0, 1 << 21),
    workers=st.integers(1, 300),
    min_keys=st.integers(1, 1024),
)
def test_the_split_heuristic_stays_in_bounds(
    harness: Any, tiles: int, kv_length: int, workers: int, min_keys: int
) -> None:
    choose = torch.ops.kbtool.split_k_attention_num_splits
    splits = choose(tiles, kv_length, workers, min_keys)
    assert 1 <= splits <= max(1, min(1024, kv_length // min_keys))
    if tiles >= workers:
        assert splits == 1


def test_the_split_heuristic_gives_the_worked_examples(harness: Any) -> None:
    choose = torch.ops.kbtool.split_k_attention_num_splits
    assert choose(8, 16384, 64, 256) == 8  # the worked example of num_splits.h
    assert choose(1, 16384, 64, 256) == 56  # 293 + 128 keys, within 10% of 64 splits' 256 + 128
    assert choose(64, 1 << 20, 64, 256) == 1
    assert choose(33, 65536, 64, 256) > 2  # two splits would leave the second wave half empty
    assert choose(0, 4096, 64, 256) == 1
    assert choose(1, 511, 64, 256) == 1
    assert choose(1, 512, 64, 256) == 2
    assert choose(1, 1 << 30, 1 << 20, 1) == 931  # within 10% of the most that are allowed
