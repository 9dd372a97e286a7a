"""What runs measured, computed: ratios, quartiles, noise, what is missing, the read ceiling."""

from __future__ import annotations

from typing import Any

import pytest

from kbtool.ledger.measured import (
    UNSAID,
    Group,
    Machine,
    groups,
    missing,
    newer_than,
    newest_of_sets,
    read_ceiling,
    widest_field,
)
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.run import MachineInfo, Run, StepRecord

WRONG = {"error": 1.0, "torch_error": 0.1, "bound": 0.1, "passed": False}
KERNEL = Kernel.model_validate(
    {
        "id": "add", "title": "Add", "summary": "It adds.", "namespace": "add",
        "harness": "harness.py", "targets": {"cpu": {"sources": ["add.cpp"]}},
        "case_fields": {"n": {"type": "int", "help": "how many"}},
        "case_sets": {"small": {"title": "Small ones", "cases": [{"n": "1"}, {"n": "8"}]}},
    }
)  # fmt: skip


def time(*samples: float) -> dict[str, Any]:
    """A timing of five samples or of one figure, which all of them are."""
    low, median, high = samples if len(samples) == 3 else samples * 3
    return {
        "samples_us": [low, low, median, high, high], "median_us": median, "low_us": low,
        "high_us": high, "calls_per_sample": 1,
    }  # fmt: skip


def case(name: str, size: int = 1000, n: int = 1, **arms: Any) -> dict[str, Any]:
    timed = {arm: time(*us) if isinstance(us, tuple) else time(us) for arm, us in arms.items()}
    return {
        "name": name, "case_set": "small", "case": {"n": n}, "arms": timed, "bytes": size,
        "flops": 1, "rechecked": True,
    }  # fmt: skip


def benchmark(*cases: dict[str, Any], **more: Any) -> BenchmarkResult:
    return BenchmarkResult.model_validate(
        {
            "sha256": "0" * 64, "device": "cpu", "threads": 4, "subject": "ours",
            "baseline": "base", "variants": ["v1"], "read_gb_s": 1.0, "protocol": "p",
            "cases": list(cases), **more,
        }
    )  # fmt: skip


def group(*cases: dict[str, Any], **more: Any) -> Group:
    result = benchmark(*cases, **more)
    return Group("small", "Small ones", None, result, list(result.cases))  # type: ignore[arg-type]


def test_a_ratio_is_the_geometric_mean_with_its_ends_and_quartiles():
    both = group(
        case("a", ours=(9.0, 10.0, 11.0), base=(18.0, 20.0, 22.0)),
        case("b", ours=10.0, base=80.0),
    )
    ratio = both.ratio_to("base")
    assert ratio is not None
    assert (ratio.mean, ratio.least, ratio.most, ratio.cases) == (pytest.approx(4), 2, 8, 2)
    assert ratio.low == pytest.approx((18 / 11 * 8) ** 0.5)
    assert ratio.high == pytest.approx((22 / 9 * 8) ** 0.5)
    assert both.speed == ratio.mean
    assert both.ours_us == pytest.approx(10)


def test_a_ratio_counts_only_cases_in_which_the_peer_was_timed_and_right():
    wrong = {**case("b", ours=1.0, peer=9.0), "peers": {"peer": WRONG}}
    some = group(case("a", ours=1.0, peer=2.0), wrong, case("c", ours=1.0))
    ratio = some.ratio_to("peer")
    assert ratio is not None
    assert (ratio.mean, ratio.cases) == (2, 1)
    assert some.ratio_to("nobody") is None
    assert missing([some], ["peer"]) == {
        ("peer", "its output was wrong"): {"Small ones": 1},
        ("peer", UNSAID): {"Small ones": 1},
    }


def test_a_noisy_run_has_times_and_no_ratio():
    loud = group(case("a", ours=1.0, base=2.0), others_busy=0.9)
    assert loud.noise_reason is not None
    assert (loud.ratio_to("base"), loud.speed, loud.ceiling_shares) == (None, None, [])
    assert loud.ours_us == 1


def test_peers_are_the_arms_that_are_not_the_librarys_the_baseline_first():
    assert group(case("a", ours=1.0, peer=1.0, v1=1.0, base=1.0)).peers == ["base", "peer"]


def test_two_arms_are_compared_in_the_cases_that_both_have():
    two = group(case("a", ours=1.0, v1=2.0), case("b", ours=1.0))
    assert [(a.median_us, b.median_us) for a, b in two.both("v1", "ours")] == [(2, 1)]


def test_a_share_of_the_read_ceiling_is_bytes_a_second_over_it():
    assert group(case("a", size=500, ours=1.0)).ceiling_shares == [pytest.approx(0.5)]


def test_the_read_ceiling_begins_where_the_fastest_call_shows_it():
    line = read_ceiling([group(case("a", 10, ours=1.0), case("b", 9000, ours=9.0))])
    assert line == [(500, 0.5), (9000, 9.0)]
    assert read_ceiling([group(case("a", 10, ours=1.0))]) == []


def test_the_widest_field_varies_most():
    cases = group(case("a", n=1, ours=1.0), case("b", n=8, ours=1.0)).cases
    assert widest_field(cases) == "n"
    assert widest_field(cases[:1]) is None


def test_workspace_is_least_and_most():
    needs = {**case("a", ours=1.0), "workspace_bytes": {"ours": 5}}
    more = {**case("b", ours=1.0), "workspace_bytes": {"ours": 7}}
    assert group(needs, more, case("c", ours=1.0)).workspace("ours") == (5, 7)
    assert group(case("c", ours=1.0)).workspace("ours") is None


def test_of_each_set_the_newest_quiet_run_counts():
    loud, quiet = group(case("a", ours=1.0), others_busy=0.9), group(case("a", ours=1.0))
    assert newest_of_sets([loud, quiet, quiet]) == [quiet]
    assert newest_of_sets([loud]) == [loud]
    assert newer_than([loud, quiet], quiet) is loud
    assert newer_than([loud, quiet], loud) is None


def run(result: BenchmarkResult) -> Run:
    """A run as far as its figures go: one that was validated has fifty lines more."""
    build = BuildResult.model_validate(
        {
            "type": "build", "kernel": "add", "target": "cpu", "key": "k", "artifact": "add.so",
            "sha256": "0" * 64, "bytes": 1, "warm": False, "compiler": "c", "flags": [],
            "sources": {},
        }
    )  # fmt: skip
    machine = {"python": "3", "kbtool": "0", "os": "L", "cpu": "C", "cores": 1}
    steps: list[dict[str, Any]] = [{"result": build}, {"result": result}]
    fields: dict[str, Any] = {
        "recipe": "add",
        "machine": MachineInfo.model_validate(machine),
        "steps": [StepRecord.model_construct(**step) for step in steps],
    }
    return Run.model_construct(**fields)


def test_benchmarks_are_grouped_by_machine_and_case_set():
    refused = {**case("x", ours=1.0), "refused": "too fast"}
    older = {**case("n1", ours=1.0), "case_set": None}
    found = groups([run(benchmark(case("n8", ours=1.0), refused)), run(benchmark(older))], KERNEL)
    (machine,) = found
    assert machine == Machine("cpu", "C, 4 threads")
    assert [[one.name for one in group.cases] for group in found[machine]] == [["n8"], ["n1"]]
    assert found[machine][0].label == "Small ones (1 case)"


def test_a_share_is_of_the_ceiling_that_bounds_the_case():
    """At 1 GB/s and 10 GFLOP/s, 1000 bytes take 1 µs, 1000 operations 0.1 µs and 50,000 5 µs."""
    rates = {"arithmetic_gflop_s": {"float32": 10.0}}
    reads = {**case("a", ours=2.0), "flops": 1000, "computes_in": "float32"}
    computes = {**reads, "flops": 50_000}
    result = benchmark(reads, computes, **rates)
    assert result.bound(result.cases[0]) == ("reading", pytest.approx(1.0))
    assert result.bound(result.cases[1]) == ("arithmetic", pytest.approx(5.0))
    assert group(reads, computes, **rates).ceiling_shares == [pytest.approx(0.5), 2.5]
    unknown = benchmark({**computes, "computes_in": "float16"}, **rates)
    assert unknown.bound(unknown.cases[0]) == ("reading", pytest.approx(1.0))
    nothing = benchmark({**case("a", size=0, ours=1.0), "flops": 0}, **rates)
    assert nothing.bound(nothing.cases[0]) is None and nothing.cases[0].intensity is None
    assert nothing.share_of_ceiling(nothing.cases[0]) is None
