"""Ablations of the second kernel: which are timed, which are findings, and what is reported."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbtool.cli.main import run as kbtool
from kbtool.ledger.worth import Worth, gained_before, in_short, newest, worths
from kbtool.model.kinds.ablate import AblateResult, AblationCase, AblationResult
from kbtool.model.run import Run
from kbtool.steps.ablate.report import headline, report
from kbtool.steps.ablate.run import _turns

SUM = "out[i] = a * x[i] + y[i];"
SLOW = """{
    volatile float kept = a * x[i] + y[i];
    for (int r = 0; r < 20; ++r) kept = kept + 0;
    out[i] = kept;
  }"""
ABLATIONS = {
    "slow": {"put": SLOW},
    "wrong": {"put": "out[i] = a * x[i];"},
    "broken": {"put": "out[i] = nothing_of_the_kind;"},
    "comment": {"put": f"/* */ {SUM}"},
}
RECIPE = """
  - name: ablate
    title: Take techniques out
    kernel: scaled_add
    parameters:
      patterns: {type: str, default: all, help: which patterns}
      ablations: {type: str, default: all, help: which}
    steps:
      - {id: build, kind: build, title: Build, expected: 1 s, timeout: 5 min, target: cpu}
      - {id: validate, kind: validate, title: Validate, expected: 1 s, timeout: 1 min,
         case_sets: small}
      - {id: ablate, kind: ablate, title: Ablate, expected: 1 s, timeout: 9 min, case_sets: small,
         patterns: "${patterns}", ablations: "${ablations}", rounds: 2, samples: 5}
"""


def ablation(id_: str, **given: object) -> dict[str, object]:
    edit = {"file": "scaled_add.cpp", "find": SUM, "put": given.pop("put", SLOW)}
    return {
        "id": id_, "about": "It is slow.", "kernel": "scaled_add", "target": "cpu",
        "edits": [edit], "cases": ["large/million"], **given,
    }  # fmt: skip


@pytest.fixture
def base(second_kernel_base: Path) -> Path:
    pattern = second_kernel_base / "patterns" / "P01.yaml"
    text = pattern.read_text()
    pattern.write_text(text.replace("\nrecipes:", "\nrecipes:" + RECIPE.rstrip(), 1))
    return second_kernel_base


def with_ablations(base: Path, *ablations: dict[str, object]) -> None:
    pattern = base / "patterns" / "P01.yaml"
    # JSON is YAML, but for the types of its values.
    pattern.write_text(pattern.read_text() + f"ablations: {json.dumps(list(ablations))}\n")


def test_what_is_right_without_a_technique_is_timed_in_turn_and_the_rest_are_findings(base, capsys):
    with_ablations(
        base, *(ablation(name, **edit) for name, edit in ABLATIONS.items() if name != "on-a-card")
    )
    assert kbtool(["--root", str(base), "run-recipe", "ablate"]) == 1
    (path,) = base.glob("sessions/*/runs/*.json")
    run = Run.model_validate_json(path.read_bytes())
    result = run.steps[-1].result
    assert isinstance(result, AblateResult)
    verdicts = {one.ablation.id: one.verdict for one in result.ablations}
    assert verdicts == {
        "slow": "measured", "wrong": "wrong", "broken": "not-built", "comment": "not-built"
    }  # fmt: skip
    slow, wrong, broken, comment = result.ablations
    (case,) = slow.cases
    assert case.case == "large/million"
    assert len(case.ratios) == 2 and case.effect == "gains" and case.gain > 1.5
    assert slow.pattern == "P01" and slow.sha256 != result.sha256
    assert "nothing_of_the_kind" in str(broken.message)
    assert comment.message == "the edits change nothing in the library"
    assert str(wrong.message).startswith("failed: ")
    assert result.fault == "wrong: wrong"
    assert SUM in (base / "kernels" / "scaled_add" / "scaled_add.cpp").read_text()
    assert kbtool(["--root", str(base), "check"]) == 0
    capsys.readouterr()
    assert kbtool(["--root", str(base), "patterns", "P01"]) == 0
    said = capsys.readouterr().out
    assert "to measure it here: kbtool run-recipe ablate --set patterns=P01" in said
    assert kbtool(["--root", str(base), "patterns", "P01", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["patterns"]
    # A busy machine's measurement is none.
    assert len(shown["gains"]) == (0 if slow.noise else 1)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cases": ["large/billion"]}, "has no case 'large/billion'; write SET/NAME"),
        ({"cases": ["huge/million"]}, "has no case set 'huge'; it has small, large"),
        ({"target": "cuda"}, "has no target 'cuda'; it has cpu"),
        ({"kernel": "other"}, "there is no kernel 'other'"),
        ({"edits": [{"file": "scaled_add.cpp", "find": "gone", "put": ""}]},
         "scaled_add.cpp: the text to find is gone: 'gone'"),
        ({"edits": [{"file": "harness.py", "find": "def", "put": ""}]},
         "'harness.py' is not a source or header of target cpu"),
    ],
)  # fmt: skip
def test_an_ablation_that_does_not_fit_its_kernel_is_a_finding(base, capsys, wrong, told):
    with_ablations(base, {**ablation("slow"), **wrong})
    assert kbtool(["--root", str(base), "check"]) == 1
    assert told in " ".join(capsys.readouterr().out.split())


def test_an_id_that_is_taken_is_a_finding(base, capsys):
    with_ablations(base, ablation("slow"), ablation("slow", put="out[i] = y[i] + a * x[i];"))
    assert kbtool(["--root", str(base), "check"]) == 1
    assert "already has an ablation 'slow'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("patterns=P99", "there is no pattern with an ablation 'P99'; there is P01"),
        ("ablations=slo", "there is no ablation 'slo'; did you mean slow?"),
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_built(base, capsys, chosen, told):
    with_ablations(base, ablation("slow"))
    assert kbtool(["--root", str(base), "run-recipe", "ablate", "--set", chosen, "--dry-run"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_rounds_alternate_which_side_is_first():
    assert list(_turns(3)) == [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]


def timed(*pairs: tuple[float, float]) -> AblationCase:
    with_us, without_us = zip(*pairs, strict=True)
    return AblationCase(case="large/million", with_us=list(with_us), without_us=list(without_us))


@pytest.mark.parametrize(
    ("case", "effect"),
    [
        (timed((10, 12), (10, 10.2)), "gains"),
        (timed((10, 12), (10, 10.05)), "none shown"),
        (timed((10, 12), (10, 9)), "none shown"),
        (timed((10, 9), (10, 9.8)), "costs"),
    ],
)
def test_an_effect_counts_if_every_round_shows_it(case, effect):
    assert case.effect == effect


def result(*ablations: AblationResult, **more: object) -> AblateResult:
    fields = {"kernel": "k", "target": "cpu", "device": "cpu", "seed": 1, "sha256": "0" * 64}
    return AblateResult(
        **fields, case_sets="small", between=False, ablations=list(ablations), **more
    )


def one(id_: str, *cases: AblationCase, **more: object) -> AblationResult:
    verdict = "measured" if cases else "wrong"
    return AblationResult(
        pattern="P01", ablation=ablation(id_), verdict=verdict, cases=list(cases), **more
    )


def test_the_headline_has_the_largest_gain_first_and_names_what_is_no_ablation():
    said = headline(
        result(one("small", timed((10, 11))), one("large", timed((10, 20))), one("bad"),
               skipped={"a": "needs a build for cuda", "b": "needs a build for cuda"})
    )  # fmt: skip
    assert said == (
        "2 of 3 ablations measured, time without ÷ time with: large 2×, small 1.1×; bad wrong"
    )


def test_what_was_not_tried_is_listed_by_its_reason():
    lines = report(result(skipped={"a": "no card", "b": "no card"}))
    assert "not tried, no card: a, b" in lines


def run_of(made: AblateResult, started: str, cpu: str = "a CPU") -> Run:
    machine = SimpleNamespace(card="a card", cpu=cpu)
    steps = [SimpleNamespace(result=made)]
    return SimpleNamespace(started=started, machine=machine, steps=steps)  # type: ignore[return-value]


def test_the_newest_quiet_measurement_on_each_machine_counts():
    old = run_of(result(one("slow", timed((10, 12)))), "1")
    other = run_of(result(one("slow", timed((10, 13)))), "2", cpu="another")
    noisy = run_of(result(one("slow", timed((10, 14)), noise="others")), "3")
    found = worths([old, noisy, other])["P01"]
    assert [worth.run for worth in found] == [noisy, other, old]
    assert [worth.verdict for worth in found] == ["noisy", "gains", "gains"]
    assert [(worth.machine, worth.one.gain) for worth in newest(found)] == [
        ("another", pytest.approx(1.3)), ("a CPU", pytest.approx(1.2))
    ]  # fmt: skip


def test_a_gain_that_the_newest_run_no_longer_shows_is_named():
    old = run_of(result(one("slow", timed((10, 12)))), "1")
    new = run_of(result(one("slow", timed((10, 10)))), "2")
    found = worths([old, new])["P01"]
    assert gained_before(found, found[0]).run is old
    assert in_short(found) == "none any more a CPU"
    again = worths([old, new, run_of(result(one("slow", timed((10, 12)))), "3")])["P01"]
    assert in_short(again) == "1.20× a CPU"


@pytest.mark.parametrize(
    "before",
    [
        run_of(result(one("slow", timed((10, 12)))), "1", cpu="another"),
        run_of(result(one("fast", timed((10, 12)))), "1"),
        run_of(result(one("slow", timed((10, 12)), noise="others")), "1"),
        run_of(result(one("slow", timed((10, 10)))), "1"),
        run_of(result(one("slow", timed((10, 12)).model_copy(update={"case": "s/b"}))), "1"),
    ],
    ids=["another machine", "another ablation", "noisy", "no gain", "another case"],
)
def test_what_was_measured_otherwise_proves_no_lost_gain(before):
    new = run_of(result(one("slow", timed((10, 10)))), "2")
    found = worths([before, new])["P01"]
    assert gained_before(found, found[0]) is None


def test_a_run_on_a_card_is_of_the_card():
    on_card = result(one("slow", timed((10, 9)))).model_copy(update={"target": "cuda"})
    worth = Worth(run_of(on_card, "1"), on_card, on_card.ablations[0])
    assert (worth.machine, worth.verdict) == ("a card", "costs")


def test_a_place_that_is_not_in_the_kernel_is_a_finding(base, capsys):
    pattern = base / "patterns" / "P01.yaml"
    place = {"kernel": "scaled_add", "file": "scaled_add.cpp", "text": SUM}
    text = pattern.read_text()
    pattern.write_text(text + f"places: {json.dumps([place])}\n")
    assert kbtool(["--root", str(base), "check"]) == 0
    wrong = [{**place, "text": "gone"}, {**place, "kernel": "k"}, {**place, "file": "../a"}]
    pattern.write_text(text + f"places: {json.dumps(wrong)}\nneeds: [P99]\n")
    capsys.readouterr()
    assert kbtool(["--root", str(base), "check"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "scaled_add.cpp: the text to find is gone: 'gone'" in said
    assert "there is no kernel 'k'; the kernels are scaled_add" in said
    assert "'../a' leaves the kernel's folder" in said
    assert "P99" in said
