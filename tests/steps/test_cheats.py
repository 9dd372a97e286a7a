"""Cheats of the second kernel: whose times are accepted, and what the step reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbtool.cli.main import run as kbtool
from kbtool.model.cheat import Catalogue, Cheat
from kbtool.model.kinds.cheats import CheatResult, CheatsResult
from kbtool.model.run import Run
from kbtool.steps.cheats.report import headline, report
from kbtool.store.schema import modeline

OURS = """    def ours():
        torch.ops.kbtool_test.scaled_add_out(inputs["x"], inputs["y"], inputs["a"], out)
        return out
"""
KEPT = """    torch.ops.kbtool_test.scaled_add_out(inputs["x"], inputs["y"], inputs["a"], out)

    def ours():
        return out
"""
NEW_OUTPUT = """    def ours():
        made = torch.empty_like(out)
        torch.ops.kbtool_test.scaled_add_out(inputs["x"], inputs["y"], inputs["a"], made)
        return made
"""
EDITS = [
    {"id": "kept", "file": "harness.py", "find": OURS, "put": KEPT},
    {"id": "wrong", "file": "scaled_add.cpp", "find": "a * x[i] + y[i]", "put": "a * x[i]"},
    {"id": "bound-after", "file": "harness.py", "find": "def reference(inputs):",
     "put": "def error_scale(inputs):\n    return {}\n\n\ndef reference(inputs):",
     "after": "validate"},
    {"id": "new-output", "file": "harness.py", "find": OURS, "put": NEW_OUTPUT, "honest": "true"},
    {"id": "comment", "file": "scaled_add.h", "find": "void", "put": "/* */ void"},
    {"id": "on-a-card", "file": "scaled_add.h", "find": "void", "put": "", "target": "cuda"},
]  # fmt: skip
RECIPE = """
  - name: cheats
    title: Try to cheat
    kernel: scaled_add
    steps:
      - {id: build, kind: build, title: Build, expected: 1 s, timeout: 5 min, target: cpu}
      - {id: cheats, kind: cheats, title: Cheat, expected: 1 s, timeout: 9 min,
         case_sets: small, benchmark: large, peers: torch}
"""


@pytest.fixture
def base(second_kernel_base: Path) -> Path:
    pattern = second_kernel_base / "patterns" / "P01.yaml"
    text = pattern.read_text()
    assert "\nrecipes:" in text
    pattern.write_text(text.replace("\nrecipes:", "\nrecipes:" + RECIPE.rstrip(), 1))
    return second_kernel_base


def catalogue(base: Path, *edits: dict[str, str]) -> None:
    cheats = [{"about": "It cheats.", **edit} for edit in edits]
    # JSON is YAML, but for the types of its values.
    text = json.dumps({"cheats": cheats}, indent=1)
    path = base / "kernels" / "scaled_add" / "cheats.yaml"
    path.write_text(f"{modeline('cheats')}\n{text}\n")


def test_each_edit_is_run_through_all_gates(base):
    catalogue(base, *EDITS)
    assert kbtool(["--root", str(base), "check"]) == 0
    assert kbtool(["--root", str(base), "run-recipe", "cheats"]) == 1
    (path,) = base.glob("sessions/*/runs/*.json")
    result = Run.model_validate_json(path.read_bytes()).steps[-1].result
    assert isinstance(result, CheatsResult)
    verdicts = {one.cheat.id: (one.verdict, one.step) for one in result.cheats}
    assert verdicts == {
        "kept": ("caught", "benchmark"),
        "wrong": ("caught", "validate"),
        "bound-after": ("caught", "benchmark"),
        "new-output": ("passed", None),
        "comment": ("passed", None),
    }
    assert [one.cheat.id for one in result.survivors] == ["comment"]
    assert result.fault == "comment: no gate stops it"
    assert result.skipped == {"on-a-card": "needs a build for cuda"}
    assert headline(result) == (
        "3 of 4 attacks caught; 1 survived (comment); 0 of 1 honest variant accused;"
        " 1 not tried here"
    )
    assert report(result)[-1] == headline(result)
    assert kbtool(["--root", str(base), "check"]) == 0
    sources = base / "kernels" / "scaled_add"
    assert "a * x[i] + y[i]" in (sources / "scaled_add.cpp").read_text()  # only copies are edited


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ({"find": "nowhere"}, "harness.py: the text to find is gone: 'nowhere'"),
        ({"file": "../P01.yaml"}, "leaves the kernel's folder"),
        ({"put": OURS}, "find and put are the same text"),
        ({"honest": "true", "survives": "so"}, "survives is for attacks"),
    ],
)
def test_a_wrong_entry_of_the_catalogue_is_a_finding_of_check(base, capsys, edit, told):
    catalogue(base, {**EDITS[0], **edit})
    assert kbtool(["--root", str(base), "check"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "kernels/scaled_add/cheats.yaml" in said
    assert told in said


def test_a_duplicate_id_is_refused(base):
    cheat = Cheat(id="a", about="b", file="c", find="d", put="e")
    with pytest.raises(ValueError, match="two cheats are called 'a'"):
        Catalogue(cheats=[cheat, cheat])


def one(verdict: str, **fields) -> CheatResult:
    cheat = Cheat(id="a", about="b", file="c", find="d", put="e", **fields)
    step = "benchmark" if verdict == "caught" else None
    return CheatResult(cheat=cheat, verdict=verdict, step=step)


@pytest.mark.parametrize(
    ("result", "finding"),
    [
        (one("caught"), None),
        (one("passed"), "no gate stops it"),
        (one("passed", survives="It does."), None),
        (one("caught", survives="It does."), "declared to survive, but caught"),
        (one("passed", honest=True), None),
        (one("caught", honest=True), "honest, but accused"),
        (one("not-judged"), "not judged"),
    ],
)
def test_an_accepted_cheat_and_a_refused_honest_variant_are_findings(result, finding):
    assert result.finding == finding
