"""Hostile values in the fields of records: drawn ones, and those that once found a fault."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kbtool.cli.main import run as kbtool
from soak import fields, once
from soak.fields import BASE, Mutant, mutants, tried
from soak.values import VALUES

FOUND = [
    "sessions/2025-01-02-b/session.yaml:bugs.0.id=list",
    "sessions/2025-01-01-a/session.yaml:commits.0.id=mapping",
    "sessions/2025-01-01-a/session.yaml:origin=mapping",
    "sessions/2025-01-02-b/session.yaml:ended=last-instant",
    "sessions/2025-01-01-a/session.yaml:sources.log.lines=digits",
    "sessions/2025-01-01-a/session.yaml:claims.0.stated=exponent",
    "patterns/P01-look-first.yaml:symptoms.0.match=parentheses",
    "patterns/P01-look-first.yaml:symptoms.0.match=backtracks",
    "sessions/2025-01-01-a/session.yaml:claims.0.of=derivation",
    "sessions/2025-01-01-a/session.yaml:measurements.0.columns.ours.unit=snippet",
    "sessions/2025-01-01-a/session.yaml:engineer=control",
    "sessions/2025-01-01-a/session.yaml:bugs.0.cause=bidi",
    "patterns/P01-look-first.yaml:title=newlines",
    "sessions/2025-01-01-a/session.yaml:measurements.0.columns.torch.unit=newlines",
    "sessions/2025-01-01-a/session.yaml:claims.0.stated=tiny",
    "kernels/add/kernel.yaml:targets.cpu.not_taken=very-many",
    "sessions/2025-01-01-a/session.yaml:fixes.0.shown_by=long-list",
    "patterns/P01-look-first.yaml:recipes.0.steps.6.title=separators",
    "patterns/P01-look-first.yaml:recipes.0.steps.1.produces=long-list",
    "kernels/add/kernel.yaml:targets.cpu.headers=long-list",
    "sessions/2025-01-01-a/session.yaml:kernels=long-list",
    "patterns/P01-look-first.yaml:solution=text-of-marks",
    "patterns/P01-look-first.yaml:solution=text-of-elements",
    "sessions/2025-01-01-a/session.yaml:claims.0.of=power",
    "sessions/2025-01-01-a/session.yaml:measurements.0.source=cite-digits",
    "sessions/2025-01-01-a/session.yaml:outcome=digits",
    "sessions/2025-01-01-a/session.yaml:outcome=text-of-digits",
]


@pytest.fixture(scope="module")
def every() -> dict[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants(most=10**9)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BASE, tmp_path / "base"))


def test_the_base_has_no_fault_of_its_own(root):
    assert kbtool(["--root", str(root), "check"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_a_value_that_once_found_a_fault(every, root, name):
    outcome = tried(every[name], root, random.Random(0))
    assert outcome is not None
    assert outcome.faults == []


@pytest.mark.slow
def test_drawn_values_make_no_fault(every):
    drawn = random.Random(20261125).sample(sorted(every), 120)
    outcomes = list(fields.run([every[name] for name in drawn], seed=0, processes=1))
    assert len(outcomes) > 100
    assert [(outcome.mutant.name, outcome.faults) for outcome in outcomes if outcome.faults] == []


@pytest.mark.slow
def test_an_exception_a_hang_and_a_death_are_faults(every, root, monkeypatch):
    chosen = [every[name] for name in FOUND[:3]]

    def fail(mutant, root, draw):
        import os
        import time

        if mutant == chosen[0]:
            os._exit(9)
        if mutant == chosen[1]:
            time.sleep(60)
        return fields.Outcome(mutant, [], accepted=True)

    monkeypatch.setattr(fields, "tried", fail)
    monkeypatch.setattr(fields, "HANGS", 2.0)
    outcomes = {outcome.mutant: outcome.faults for outcome in fields.run(chosen, 0, 1)}
    assert outcomes == {
        chosen[0]: ["the process died"],
        chosen[1]: ["hangs: killed after 2 s"],
        chosen[2]: [],
    }
    faults: list[str] = []
    fields._timed("it", lambda: 1 // 0, faults)
    assert faults[0].startswith("it: ZeroDivisionError at test_fields.py:")


def test_no_two_values_are_the_same():
    written = [(type(value), repr(value)) for value in VALUES.values()]
    assert len({*written}) == len(written)


def test_a_value_that_stands_there_already_is_no_mutant(every):
    place = "kernels/add/kernel.yaml:case_fields.n.default"
    assert fields.mutated(every[f"{place}=one"]) is None
    assert fields.mutated(every[f"{place}=zero"]) is not None


@pytest.mark.slow
def test_a_run_whose_figures_are_all_scaled_is_accepted(every, root):
    file = "sessions/2025-01-02-b/runs/20250102T090001Z-look-0001.json"
    mutant = every[f"{file}:steps=times-1e300"]
    outcome = tried(mutant, root, random.Random(0))
    assert outcome == fields.Outcome(mutant, [], accepted=True)


@pytest.mark.slow
def test_what_is_kept_between_commands_changes_nothing(every, root):
    drawn = random.Random(7).sample(sorted(every), 25)
    chosen = [every[name] for name in drawn]
    apart = [tried(mutant, root, random.Random(0)) for mutant in chosen]
    with once.kept():
        together = [tried(mutant, root, random.Random(0)) for mutant in chosen]
    assert together == apart
    assert {outcome.accepted for outcome in apart if outcome} == {True, False}


def test_every_model_of_a_record_is_in_the_base():
    from pydantic import BaseModel

    seen: set[str] = {place.field.partition(".")[0] for place in fields.places()}
    reached: set[type[BaseModel]] = set()

    def reach(annotation: object) -> None:
        from typing import get_args

        if annotation in reached:
            return
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            reached.add(annotation)
            for field in annotation.model_fields.values():
                reach(field.annotation)
        for part in get_args(annotation):
            reach(part)

    for _, kind in fields.FILES:
        reach(kind)
    missing = {one.__name__ for one in reached} - seen
    assert missing == set()
