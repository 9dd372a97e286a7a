"""The rule for headlines: peers, dtypes, commits and measures that a ratio rests on."""

from __future__ import annotations

from typing import Any

import pytest
from test_measured import KERNEL, WRONG, benchmark, case, run

from kbtool.ledger.headline import Headline, as_json, headlines, headlines_of
from kbtool.ledger.measured import groups
from kbtool.model.identity import Identity
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.run import RepositoryState, Run


def typed(dtype: str, name: str = "n1", **arms: Any) -> dict[str, Any]:
    """A case of a dtype; arm → µs in a chain, or (µs in a chain, µs between plain kernels)."""
    chain = {arm: us[0] if isinstance(us, tuple) else us for arm, us in arms.items()}
    made = case(f"{name} {dtype}", **chain)
    made["case"] |= {"dtype": dtype}
    for arm, us in arms.items():
        made["arms"][arm]["between_us"] = us[1] if isinstance(us, tuple) else None
    return made


def at(commit: str, *cases: dict[str, Any], dirty: bool = False, **more: Any) -> Run:
    """A quiet run of a commit."""
    state = RepositoryState(commit=commit, dirty=dirty, changed_during_run=False)
    made = run(benchmark(*cases, **more))
    fields = {"repository": state, "id": f"{commit}-{len(cases)}", "kernel": KERNEL.id}
    return made.model_copy(update=fields)


def told(*runs: Run) -> dict[str | None, Headline]:
    """Dtype → its headline; runs newest first."""
    (every,) = groups(runs, KERNEL).values()
    return {one.newest.dtype: one for one in headlines(every)}


def mean(one: Headline) -> float:
    assert one.chain is not None
    return one.chain.mean


def test_the_best_peer_is_that_of_all_runs_of_the_commit_not_of_the_newest_alone():
    """Home said 2.98, from a run that had left the fastest peer out; the run before had 1.11."""
    newest = at("c1", typed("bf16", ours=10.0, base=40.0, flex=29.8))
    before = at("c1", typed("bf16", ours=20.0, base=80.0, fa3=22.2))
    one = told(newest, before)["bf16"]
    assert one.chain is not None
    assert one.chain.best == {"n1 bf16": ("fa3", pytest.approx(1.11))}
    assert one.against == "best of base, flex and fa3"
    assert told(newest)["bf16"].chain.mean == pytest.approx(2.98)


def test_dtypes_have_headlines_of_their_own_and_a_peer_that_takes_but_one_is_named():
    """A mean over both counted wins against a peer that takes no fp16 at all."""
    both = at(
        "c1", typed("bf16", ours=10.0, base=60.0, fa3=11.0), typed("fp16", ours=10.0, base=60.0)
    )
    one = told(both)
    assert (mean(one["bf16"]), mean(one["fp16"])) == (pytest.approx(1.1), 6)
    assert one["bf16"].against == "best of base and fa3"
    assert one["fp16"].against == "base, the only peer timed; fp16: no fa3"
    why = {**typed("fp16", ours=10.0, base=60.0), "absent": {"fa3": "it takes no fp16"}}
    pooled = told(at("c1", typed("fp16", ours=9.0, base=60.0), typed("fp16", "n8", ours=9.0)),
                  at("c1", why))["fp16"]  # fmt: skip
    assert [pooled.with_peer(peer).run.id for peer in ("base", "fa3")] == ["c1-2", "c1-1"]
    assert one["fp16"].label == "Small ones, fp16 (1 case)"


def test_a_peer_timed_only_on_an_earlier_commit_is_named():
    newest = at("c2", typed("bf16", ours=10.0, base=10.2, flex=30.0))
    before = at("c1", typed("bf16", ours=10.0, base=10.2, fa3=9.0, cudnn=20.0))
    one = told(newest, before)["bf16"]
    assert one.against == "only base and flex; fa3 and cudnn not timed on this build"
    assert one.mean_and_spread(between=False) == ("1.02", "least 1.02; 0 of 1 lost")


def test_a_peer_that_is_missing_in_some_cases_is_said():
    names = ("n1", "n8")
    before = at("c1", *(typed("bf16", n, ours=1.0, base=2.0, fa3=2.0) for n in names))
    newest = at("c2", typed("bf16", "n1", ours=1.0, base=2.0, fa3=2.0),
                typed("bf16", "n8", ours=1.0, base=2.0))  # fmt: skip
    assert told(newest, before)["bf16"].against == (
        "only base and fa3; fa3 not timed in 1 of 2 cases"
    )
    # A case that is timed no more is nobody's to miss.
    assert (
        told(at("c3", typed("bf16", "n1", ours=1.0, base=2.0, fa3=2.0)), before)["bf16"].against
        == "best of base and fa3"
    )
    # One that no run ever timed in that case is not missing there: it does not take it.
    assert told(newest)["bf16"].against == "best of base and fa3"


def test_a_wrong_peer_does_not_count_and_is_said():
    right = typed("bf16", ours=1.0, base=2.0, fa3=1.5)
    wrong = {**right, "peers": {"fa3": WRONG}}
    one = told(at("c2", wrong), at("c1", right))["bf16"]
    assert mean(one) == 2 and one.against == "only base; fa3 wrong on this build"


def test_noisy_runs_give_no_headline_and_no_peer():
    quiet = typed("bf16", ours=1.0, base=2.0)
    loud = at("c1", typed("bf16", ours=1.0, base=2.0, fa3=0.5), others_busy=0.9)
    alone = told(loud)["bf16"]
    assert (alone.between, alone.chain, alone.peers) == (None, None, [])
    assert alone.against.startswith("no ratio, noisy: ")
    assert alone.mean_and_spread(between=True) == alone.mean_and_spread(between=False) == ("–", "")
    beside = told(loud, at("c1", quiet))["bf16"]
    assert mean(beside) == 2 and beside.against == "only base; fa3 timed by noisy runs alone"


def built(made: Run, **sources: str) -> Run:
    """The run, with what its build compiled: file → its content, a digit."""
    result = BuildResult(
        kernel=KERNEL.id, target="cpu", key="k", artifact="a", sha256="0" * 64, bytes=1, warm=False,
        compiler="c", flags=[], sources={name: of * 64 for name, of in sources.items()},
    )  # fmt: skip
    steps = [
        step.model_copy(update={"result": result}) if isinstance(step.result, BuildResult) else step
        for step in made.steps
    ]
    return made.model_copy(update={"steps": steps, "identity": Identity()})


def test_runs_of_the_same_sources_are_pooled_whatever_their_commits():
    """Predictions are committed between two runs, and said that the first had not timed a peer."""
    one = typed("bf16", ours=10.0, base=20.0)
    other = typed("bf16", ours=10.0, base=20.0, fa3=11.0)
    newest = built(at("c2", one), a="1", b="2")
    for before, against in [
        (built(at("c1", other), a="1", b="2"), "best of base and fa3"),
        (built(at("c1", other), a="1"), "best of base and fa3"),  # a part of them
        (built(at("c1", other), a="1", b="3"), "only base; fa3 not timed on this build"),
        (built(at("c1", other), c="1"), "only base; fa3 not timed on this build"),
        (built(at("c1", other, dirty=True), a="1"), "only base; fa3 not timed on this build"),
    ]:
        assert told(newest, before)["bf16"].against == against


def test_a_call_of_the_kernel_itself_is_no_peer():
    """Paged decode "lost" 17 of 17 cases to the same kernel without pages."""
    made = at("c1", typed("bf16", ours=10.0, base=12.0, contiguous=9.0))
    kernel = KERNEL.model_copy(update={"own_calls": ["contiguous"]})
    (every,) = groups([made], kernel).values()
    (one,) = headlines(every)
    assert one.chain is not None and one.chain.best == {"n1 bf16": ("base", 1.2)}
    result = made.last(BenchmarkResult)
    assert result is not None and result.best_peer(result.cases[0]) == "contiguous"
    said = result.model_copy(update={"own_calls": ["contiguous"]})
    assert said.best_peer(said.cases[0]) == "base"


def test_a_run_of_uncommitted_changes_is_not_pooled():
    dirty = at("c1", typed("bf16", ours=1.0, base=2.0), dirty=True)
    clean = at("c1", typed("bf16", ours=1.0, base=2.0, fa3=0.5))
    assert told(dirty, clean)["bf16"].against == "only base; fa3 not timed on this build"
    assert told(clean, dirty)["bf16"].pooled[0].run.id == clean.id
    assert len(told(clean, dirty)["bf16"].pooled) == 1


def test_the_time_between_plain_kernels_leads_and_a_run_without_it_says_so():
    case_of = {"ours": (10.0, 20.0), "base": (12.0, 18.0), "fa3": (11.0, 30.0)}
    one = told(at("c1", typed("bf16", **case_of)))["bf16"]
    assert one.between is not None and one.chain is not None
    assert one.between.best == {"n1 bf16": ("base", 0.9)}
    assert one.chain.best == {"n1 bf16": ("fa3", 1.1)}
    assert one.mean_and_spread(between=True) == ("0.900", "least 0.900; 1 of 1 lost")
    older = told(at("c1", typed("bf16", ours=10.0, base=12.0)))["bf16"]
    assert older.mean_and_spread(between=True) == ("not measured", "")
    half = told(at("c1", typed("bf16", **{**case_of, "fa3": 11.0})))["bf16"]
    assert half.against == "only base; fa3 not timed between plain kernels"


def test_cases_lost_to_a_peer_are_counted_in_the_headline():
    cases = (typed("bf16", "n1", ours=1.0, base=8.0), typed("bf16", "n8", ours=1.0, base=0.5),
             typed("bf16", "n9", ours=1.0))  # fmt: skip
    one = told(at("c1", *cases))["bf16"]
    assert one.mean_and_spread(between=False) == (
        "2.00", "least 0.500; 1 of 2 lost; 2 of 3 cases have a peer"
    )  # fmt: skip


def test_times_of_one_peer_in_two_runs_are_one_ratio_of_the_same_run():
    runs = (at("c1", typed("bf16", ours=us, base=2 * us * n)) for us, n in ((1.0, 1), (5.0, 4)))
    assert mean(told(*runs)["bf16"]) == pytest.approx(4)  # of 2 and 8


def test_other_machines_sets_and_variants_do_not_take_part():
    card = at("c1", typed("bf16", ours=1.0, base=2.0, v1=0.1))
    other_set = {**typed("bf16", ours=1.0, base=2.0, fa3=3.0), "case_set": "large"}
    (every,) = groups([card, at("c1", other_set)], KERNEL).values()
    small, large = headlines(every)
    assert small.against == "base, the only peer timed" and large.against == "best of base and fa3"
    one_thread = BenchmarkResult.model_validate({**benchmark(other_set).model_dump(), "threads": 1})
    assert len(groups([card, run(one_thread)], KERNEL)) == 2


def test_a_run_is_shown_with_the_peers_of_other_runs_of_its_commit():
    mine = at("c1", typed("bf16", ours=1.0, base=2.0))
    cut_short = mine.model_copy(
        update={"steps": at("c1", typed("bf16", ours=1.0, quick=0.1)).steps}
    )
    others = [
        at("c0", typed("bf16", ours=1.0, base=2.0, old=3.0)),
        at("c1", *(typed("bf16", n, ours=1.0, base=2.0) for n in ("n1", "n8", "n9"))),
        at("c1", typed("bf16", ours=1.0, fa3=1.5), typed("fp16", ours=1.0, base=9.0)),
        at("c1", typed("bf16", ours=2.0, base=1.0)).model_copy(update={"kernel": "b", "id": "b"}),
    ]
    ((machine, one),) = headlines_of(mine, [*others, cut_short, mine], KERNEL)
    assert machine.target == "cpu" and one.newest.run is mine  # bf16 alone: it timed no other
    assert one.chain is not None and one.chain.best["n1 bf16"] == ("fa3", 1.5)
    assert [group.run.id for group in one.pooled] == ["c1-1", "c1-2", "c1-3"]  # newest first
    assert one.against == "only base and fa3; old not timed on this build"


def test_the_json_has_the_figures_of_the_headline():
    both = groups([at("c2", typed("bf16", ours=(1.0, 4.0), base=(2.0, 2.0))),
                   at("c1", typed("bf16", ours=1.0, fa3=9.0))], KERNEL)  # fmt: skip
    ((machine, every),) = both.items()
    (one,) = headlines(every)
    assert as_json(machine, one) == {
        "target": "cpu", "machine": "C, 4 threads", "case_set": "small", "dtype": "bf16",
        "commit": "c2", "runs": ["c2-1"], "peers": ["base"], "not_taken": [],
        "missing": {"fa3": "not timed on this build"},
        "between": {"mean": 0.5, "least": 0.5, "lost": 1, "cases": 1},
        "chain": {"mean": 2, "least": 2, "lost": 0, "cases": 1},
        "against": "only base; fa3 not timed on this build",
    }  # fmt: skip
