"""Mutants of the second kernel: which are found, by which cases, and other outcomes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from knowledge import SESSION, SESSION_LINE

from kbtool.gpu.mutants import over_bound
from kbtool.gpu.process import Completed
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.mutants import MutantResult, MutantsResult, replaceable_cases
from kbtool.model.kinds.validate import CaseResult
from kbtool.model.mutant import Mutant
from kbtool.model.run import Run
from kbtool.steps.mutants.trial import tells_nothing

SPLIT_K = Path(__file__).parents[2] / "kernels" / "split_k_attention"
LOOP = "for (int64_t i = 0; i < n; ++i) out[i] = a * x[i] + y[i];"
ONE, SOME, NONE = 0, 1, 2  # the cases of the set "small": n = 1, 1000 and 0

MUTANTS = {
    "no-sum": "for (int64_t i = 0; i < n; ++i) out[i] = a * x[i];",
    "half-a-part": "for (int64_t i = 0; i < n; ++i) out[i] = a * x[i] + y[i] + 0.01f;",
    "last-not-written": "for (int64_t i = 0; i + (n > 1) < n; ++i) out[i] = a * x[i] + y[i];",
    "same-thing": "for (int64_t i = 0; i < n; ++i) out[i] = y[i] + a * x[i];",
    "no-compile": "for (int64_t i = 0; i < n; ++i) out[i] = b * x[i] + y[i];",
    # It sleeps: a loop that works would take a core from other tests.
    "hangs": 'int sleep(unsigned) asm("sleep"); while (n == 1000) sleep(1); ' + LOOP,
    "crashes": "if (n == 0) *(volatile int*)8 = 0; " + LOOP,
    "writes-input": LOOP + " if (n == 1) const_cast<float*>(x)[0] += 1;",
}


CROWDED = """

import atexit, os, pathlib, time

_HERE = pathlib.Path(os.environ["CROWD"])
_MINE = _HERE / f"in-{os.getpid()}"
_MINE.touch()
atexit.register(_MINE.unlink)
_make_inputs = make_inputs


def make_inputs(case, **options):
    time.sleep(0.5)
    if len(list(_HERE.glob("in-*"))) > 1:
        (_HERE / "refused").touch()
        HOW
    return _make_inputs(case, **options)
"""


def put_back(root: Path, *names: str, find: str = LOOP, more: str = "") -> None:
    """A session whose one bug has these mutants; ``more`` goes to the last of them."""
    lines = [
        "bugs:",
        "  - id: wrong",
        "    title: It is wrong",
        "    status: fixed",
        "    mutants:",
    ]
    for name in names:
        lines += [
            f"      - id: {name}",
            "        kernel: scaled_add",
            "        target: cpu",
            "        file: scaled_add.cpp",
            f"        find: {json.dumps(find)}",
            f"        put: {json.dumps(MUTANTS[name])}",
        ]
    text = SESSION_LINE + SESSION.format(id="2025-01-01-a", label="A") + "\n".join(lines)
    folder = root / "sessions" / "2025-01-01-a"
    folder.mkdir()
    (folder / "session.yaml").write_text(text + f"\n{more}")


def mutants_of(root: Path) -> tuple[Run, MutantsResult]:
    (path,) = root.glob("sessions/*/runs/*.json")
    run = Run.model_validate_json(path.read_bytes())
    result = run.steps[-1].result
    assert isinstance(result, MutantsResult)
    return run, result


def by_id(result: MutantsResult) -> dict[str, MutantResult]:
    return {one.mutant.id: one for one in result.mutants}


@pytest.mark.parametrize(
    "how",
    [
        'raise torch.OutOfMemoryError("crowded")',
        "_MINE.unlink(); os.kill(os.getpid(), 9)",  # as the kernel of a machine without memory does
    ],
)
def test_a_mutant_that_runs_out_of_memory_beside_others_is_judged_alone(
    second_kernel_base, kbtool, how
):
    """Processes that validate at once count each other; more than one is more than fits."""
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    harness.write_text(harness.read_text() + CROWDED.replace("HOW", how))
    put_back(second_kernel_base, "no-sum", "last-not-written", "half-a-part")
    done = kbtool(
        "run-recipe", "mutants", root=second_kernel_base, env={"CROWD": str(second_kernel_base)}
    )
    assert done.code == 0, done.err
    _, result = mutants_of(second_kernel_base)
    assert {one.verdict for one in result.mutants} == {"killed"}
    assert (second_kernel_base / "refused").exists()
    assert "once more, alone: " in done.out + done.err


@pytest.mark.parametrize(
    ("returncode", "timed_out", "silent", "tells"),
    [
        (-signal.SIGSEGV, False, 1.0, True),
        (1, False, 1.0, True),
        (-signal.SIGKILL, False, 1.0, False),
        (-signal.SIGKILL, True, 119.0, True),  # one case took all the time: it hangs
        (-signal.SIGKILL, True, 2.0, False),  # 72 of 97 cases were done when it was up
    ],
)
def test_a_process_ended_by_a_slow_or_full_machine_gives_no_verdict(
    returncode, timed_out, silent, tells
):
    ended = Completed(returncode=returncode, output="", seconds=120.0, timed_out=timed_out)
    assert tells_nothing(ended, silent, 120.0) is not tells


def specialise(root: Path) -> None:
    """Give the second kernel a source that its specialisation ``ones`` leaves out."""
    folder = root / "kernels" / "scaled_add"
    (folder / "large.cpp").write_text("int large() { return 1; }\n")
    part = "    specialisations: {ones: {without: [large.*], only: {n: ['1']}}}\n"
    manifest = (folder / "kernel.yaml").read_text()
    manifest = manifest.replace("scaled_add.cpp]", "scaled_add.cpp, large.cpp]")
    (folder / "kernel.yaml").write_text(manifest.replace("case_fields:", part + "case_fields:"))


def test_a_specialisation_alone_meets_the_cases_that_it_takes(second_kernel_base, kbtool):
    specialise(second_kernel_base)
    put_back(second_kernel_base, "no-sum", "same-thing")
    chosen = ("--set", "specialisation=ones")
    done = kbtool("run-recipe", "mutants", *chosen, root=second_kernel_base)
    assert done.code == 1, done.err
    run, result = mutants_of(second_kernel_base)
    built = run.steps[0].result
    assert isinstance(built, BuildResult)
    assert built.specialisation == "ones" and "large.cpp" not in built.sources
    assert len(result.cases) == 1 and by_id(result)["no-sum"].killed_by == [0]
    # What a run goes on with is the same part.
    done = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
    assert done.code == 1, done.err
    newest = max(second_kernel_base.glob("sessions/*/runs/*.json"), key=os.path.getmtime)
    again = Run.model_validate_json(newest.read_bytes())
    assert (again.id, again.attempt) == (run.id, run.attempt + 1)
    assert isinstance(again.steps[-1].result, MutantsResult)
    assert len(again.steps[-1].result.cases) == 1


def test_a_specialised_manifest_can_be_sent_to_another_process():
    kernel = Kernel.model_validate(
        yaml.load((SPLIT_K / "kernel.yaml").read_text(encoding="utf-8"), yaml.BaseLoader)
    )
    for name, part in kernel.targets["cuda"].specialisations.items():
        narrowed = kernel.specialised("cuda", name)
        assert Kernel.model_validate(narrowed.model_dump()) == narrowed
        sources = narrowed.targets["cuda"].sources_for("sm_90a")
        assert len(sources) < len(kernel.targets["cuda"].sources_for("sm_90a"))
        assert narrowed.targets["cuda"].only == part.only


def test_a_specialisation_without_a_case_is_not_timed(second_kernel_base, kbtool):
    specialise(second_kernel_base)
    recipes = second_kernel_base / "patterns" / "P01.yaml"
    one = "timeout: 5 min, needs: [compiler, ninja, torch], target: cpu}"
    text = recipes.read_text()
    assert one in text
    recipes.write_text(text.replace(one, one.replace("cpu}", "cpu, specialisation: ones}"), 1))
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 1
    assert "the built target takes none of 1 case of large" in done.err


def test_mutants_without_a_case_are_not_built(second_kernel_base, kbtool):
    specialise(second_kernel_base)
    put_back(second_kernel_base, "no-sum")
    recipes = second_kernel_base / "patterns" / "P01.yaml"
    text = recipes.read_text()
    recipes.write_text(text.replace("case_sets: small, mutants:", "case_sets: large, mutants:"))
    chosen = ("--set", "specialisation=ones")
    done = kbtool("run-recipe", "mutants", *chosen, root=second_kernel_base)
    assert done.code == 1
    assert "the built target takes none of 1 case of large" in done.err


def test_a_specialisation_has_to_be_there(second_kernel_base, kbtool):
    specialise(second_kernel_base)
    put_back(second_kernel_base, "no-sum")
    chosen = ("--set", "specialisation=twos")
    done = kbtool("run-recipe", "mutants", *chosen, root=second_kernel_base)
    assert done.code == 2
    assert "has no specialisation 'twos'; it has ones" in done.err


def test_a_mutant_in_a_source_that_is_not_built_is_not_judged(second_kernel_base, kbtool):
    specialise(second_kernel_base)
    put_back(second_kernel_base, "no-sum")
    session = second_kernel_base / "sessions/2025-01-01-a/session.yaml"
    text = session.read_text().replace("file: scaled_add.cpp", "file: large.cpp")
    find = json.dumps(LOOP)
    session.write_text(text.replace(f"find: {find}", 'find: "return 1;"'))
    chosen = ("--set", "specialisation=ones")
    done = kbtool("run-recipe", "mutants", *chosen, root=second_kernel_base)
    assert done.code == 1
    assert "large.cpp is not a source or header of target cpu" in done.err


def test_each_bug_is_found_by_the_cases_that_show_it(second_kernel_base, kbtool):
    put_back(second_kernel_base, "no-sum", "last-not-written", "writes-input")
    done = kbtool("run-recipe", "mutants", root=second_kernel_base)
    assert done.code == 0, done.err
    run, result = mutants_of(second_kernel_base)
    found = by_id(result)
    assert found["no-sum"].killed_by == [ONE, SOME]
    assert found["last-not-written"].killed_by == [SOME]
    assert "NaN does not match" in found["last-not-written"].message
    assert found["writes-input"].killed_by == [ONE]
    assert all(one.cases_run == 3 and one.sha256 != result.sha256 for one in result.mutants)
    assert len({one.sha256 for one in result.mutants}) == 3
    assert result.bound is None
    assert found["no-sum"].bug == "2025-01-01-a#bugs.wrong"
    # Without ONE nothing finds the changed input, without SOME nothing the lost element.
    assert result.replaceable == [NONE]
    assert "3 of 3 bugs put back were found" in run.steps[-1].message
    assert "last-not-written" in done.out
    assert "1 of 3 cases find nothing unique" in done.out
    assert "cases that find a bug alone: small/one, small/some" in done.out


def test_a_survivor_is_a_finding(second_kernel_base, kbtool):
    put_back(second_kernel_base, "no-sum", "same-thing")
    done = kbtool("run-recipe", "mutants", root=second_kernel_base)
    assert done.code == 1
    run, result = mutants_of(second_kernel_base)
    assert run.status == "failed"
    assert by_id(result)["same-thing"].verdict == "survived"
    assert "same-thing (2025-01-01-a#bugs.wrong): no case finds it" in run.steps[-1].error
    assert "1 survived (same-thing)" in done.err


def test_an_equivalent_mutant_survives_and_one_that_is_found_is_the_finding(
    second_kernel_base, kbtool
):
    why = "        equivalent: a sum of two does not depend on their order\n"
    put_back(second_kernel_base, "same-thing", more=why)
    assert kbtool("run-recipe", "mutants", root=second_kernel_base).code == 0
    for path in second_kernel_base.glob("sessions/*/runs/*.json"):
        path.unlink()
    record = second_kernel_base / "sessions" / "2025-01-01-a" / "session.yaml"
    found = json.dumps(MUTANTS["no-sum"])
    record.write_text(record.read_text().replace(json.dumps(MUTANTS["same-thing"]), found))
    assert kbtool("run-recipe", "mutants", root=second_kernel_base).code == 1
    _, result = mutants_of(second_kernel_base)
    assert result.mutants[0].finding == "declared equivalent, but found"


def test_mutants_that_crash_or_hang_are_found_and_the_others_run(second_kernel_base, kbtool):
    put_back(second_kernel_base, "crashes", "hangs", "no-sum")
    # A process that was silent for less than half of the limit is not taken for one that hangs, and
    # a busy machine takes seconds to start one.
    done = kbtool("run-recipe", "mutants", "--set", "limit=12 s", root=second_kernel_base)
    assert done.code == 0, done.err
    found = by_id(mutants_of(second_kernel_base)[1])
    assert found["crashes"].cut_short == "died"
    assert found["crashes"].killed_by == [NONE]
    assert found["crashes"].cases_run == 2
    assert found["crashes"].message == "small/none: the process was killed by SIGSEGV"
    assert found["hangs"].cut_short == "hung"
    assert found["hangs"].killed_by == [SOME]
    assert found["hangs"].message == "small/some: did not end within 12 s"
    assert found["no-sum"].cut_short is None


def test_verdicts_before_an_interrupt_are_recorded(second_kernel_base):
    put_back(second_kernel_base, "no-sum", "hangs")
    argv = [sys.executable, "-m", "kbtool", "--root", str(second_kernel_base), "run-recipe"]
    with subprocess.Popen(
        [*argv, "mutants", "--progress", "rawjson"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "no-sum: found" in line:
                break
        # Once: a signal that comes while the line is written has it written again.
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 4
    run, result = mutants_of(second_kernel_base)
    assert run.status == "interrupted"
    assert [one.mutant.id for one in result.mutants] == ["no-sum"]
    assert result.not_reached == 1


def test_a_mutant_that_does_not_compile_is_a_finding_and_the_others_run(second_kernel_base, kbtool):
    put_back(second_kernel_base, "no-compile", "no-sum")
    done = kbtool("run-recipe", "mutants", root=second_kernel_base)
    assert done.code == 1
    found = by_id(mutants_of(second_kernel_base)[1])
    assert found["no-compile"].verdict == "not-built"
    assert "'b' was not declared" in found["no-compile"].message
    assert found["no-sum"].verdict == "killed"


def test_a_mutant_whose_text_is_no_longer_in_the_source_is_a_finding(second_kernel_base, kbtool):
    put_back(second_kernel_base, "no-sum", find="for (int i = 0;")
    done = kbtool("run-recipe", "mutants", root=second_kernel_base)
    assert done.code == 1
    (one,) = mutants_of(second_kernel_base)[1].mutants
    assert one.verdict == "not-built"
    assert one.message.startswith("scaled_add.cpp: the text to find is gone: 'for (int i = 0;'")


def test_a_library_that_is_wrong_without_any_bug_stops_it(second_kernel_base, kbtool):
    put_back(second_kernel_base, "same-thing", find="y[i];")
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace("a * x[i] + y[i];", "a * x[i] - y[i];"))
    done = kbtool("run-recipe", "mutants", root=second_kernel_base)
    assert done.code == 1
    assert "2 cases wrong without any bug put back" in done.err


def test_mutants_that_a_fixed_bound_would_accept_are_recorded(second_kernel_base, kbtool):
    put_back(second_kernel_base, "half-a-part", "no-sum", "last-not-written")
    done = kbtool("run-recipe", "mutants", "--set", "bound=0.1", root=second_kernel_base)
    assert done.code == 0, done.err
    _, result = mutants_of(second_kernel_base)
    found = by_id(result)
    assert found["half-a-part"].killed_by == [ONE, SOME]
    assert found["half-a-part"].over_bound == []
    assert SOME in found["no-sum"].over_bound
    assert found["last-not-written"].over_bound == [SOME]  # a NaN is below no bound
    assert [one.mutant.id for one in result.let_through()] == ["half-a-part"]
    assert result.let_through("small") == result.let_through()
    assert result.found("elsewhere") == result.let_through("elsewhere") == []
    assert "a tolerance of 0.1 for every element would miss 1 of the 3 found in small" in done.err
    assert (
        "found in small, but missed by a tolerance of 0.1 for every element: half-a-part"
        in done.out
    )


def test_errors_are_recorded_by_query_if_asked(second_kernel_base, kbtool):
    put_back(second_kernel_base, "last-not-written", "half-a-part")
    assert (
        kbtool("run-recipe", "mutants", "--set", "profile=small", root=second_kernel_base).code == 0
    )
    found = by_id(mutants_of(second_kernel_base)[1])
    lost = found["last-not-written"].profiles
    assert sorted(lost) == [ONE, SOME, NONE]
    assert lost[NONE] == []
    assert len(lost[SOME]) == 1000
    assert lost[SOME][-1] is None
    assert lost[SOME][0] < 1e-6
    assert all(0.009 < error < 0.011 for error in found["half-a-part"].profiles[SOME])


def test_a_name_that_no_mutant_has_is_a_usage_error(second_kernel_base, kbtool):
    put_back(second_kernel_base, "no-sum")
    for dry in ((), ("--dry-run",)):
        done = kbtool(
            "run-recipe", "mutants", "--set", "mutants=no-sun", *dry, root=second_kernel_base
        )
        assert done.code == 2
        assert "did you mean no-sum?" in done.err
    assert not list(second_kernel_base.glob("sessions/*/runs"))


def test_a_dry_run_says_what_would_be_put_back(second_kernel_base, kbtool):
    put_back(second_kernel_base, "no-sum", "half-a-part")
    done = kbtool("run-recipe", "mutants", "--dry-run", root=second_kernel_base)
    assert done.code == 0
    assert "2 of target cpu" in done.out
    assert "over 3 cases of small" in done.out


def test_mutants_of_a_record_that_does_not_load_stop_the_run(second_kernel_base, kbtool):
    put_back(second_kernel_base, "no-sum", more="nonsense: 1\n")
    done = kbtool("run-recipe", "mutants", root=second_kernel_base)
    assert done.code == 1
    assert "sessions/2025-01-01-a/session.yaml:" in done.err
    assert "nonsense" in done.err


def test_interrupting_stops_every_process(second_kernel_base):
    put_back(second_kernel_base, "hangs", "no-sum")
    argv = [sys.executable, "-m", "kbtool", "--root", str(second_kernel_base)]
    child = subprocess.Popen(
        [*argv, "run-recipe", "mutants", "--progress", "rawjson"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert child.stderr is not None
    for line in child.stderr:
        if '"label": "no-sum' in line:
            break
    child.send_signal(signal.SIGINT)
    started = time.monotonic()
    assert child.wait(30) == 4
    assert time.monotonic() - started < 20
    (path,) = second_kernel_base.glob("sessions/*/runs/*.json")
    assert Run.model_validate_json(path.read_bytes()).status == "interrupted"


# ---- what follows from the verdicts ----


def outcome(name: str, *killed_by: int, **more) -> MutantResult:
    mutant = Mutant(id=name, kernel="k", target="cpu", file="f", find="x", put=name)
    verdict = "killed" if killed_by else "survived"
    return MutantResult(
        bug="2025-01-01-a#bugs.b", mutant=mutant, verdict=verdict, killed_by=list(killed_by),
        cases_run=4, **more,
    )  # fmt: skip


def test_a_case_is_replaceable_unless_a_bug_is_found_by_it_alone():
    results = [outcome("a", 0, 1), outcome("b", 1, 2), outcome("c", 3), outcome("d")]
    assert replaceable_cases(5, results) == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"replaceable": [0, 1]}, "the verdicts make it"),
        ({"cases": ["s/a"], "replaceable": [0]}, "there is no case 1"),
    ],
)
def test_a_result_that_does_not_follow_from_its_verdicts_is_refused(changes, told):
    sound = {
        "kernel": "k", "target": "cpu", "sha256": "0" * 64, "device": "cpu", "seed": 1, "rule": "r",
        "cases": ["s/a", "s/b"], "mutants": [outcome("a", 1)], "replaceable": [0],
    }  # fmt: skip
    MutantsResult(**sound)
    with pytest.raises(ValueError, match=told):
        MutantsResult(**{**sound, **changes})


def test_a_verdict_that_does_not_follow_from_its_cases_is_refused():
    with pytest.raises(ValueError, match="killed, although 0 cases failed"):
        outcome("a").model_validate({**outcome("a").model_dump(), "verdict": "killed"})


def case(**output) -> CaseResult:
    outputs = {}
    if output:
        errors = {"error": None, "bound": None, "torch_error": None, **output}
        outputs = {
            "out": errors,
            "lse": {"passed": False, "error": 9, "bound": 1, "torch_error": 0},
        }
    return CaseResult(case_set="s", name="n", case={}, passed=False, outputs=outputs)


def test_the_fixed_bound_looks_at_the_first_output_alone():
    assert not over_bound(case(passed=False, error=0.02, bound=1e-3), 0.1)
    assert over_bound(case(passed=False, error=0.1, bound=1e-3), 0.1)
    assert over_bound(case(passed=False), 0.1)  # NaN or infinity in the wrong place
    assert not over_bound(case(passed=True), 0.1)  # nothing finite, as in the reference
    assert over_bound(case(), 0.1)  # the call raised
