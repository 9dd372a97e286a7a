"""``kbtool run-recipe`` from outside: what it does, what it records, what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import assert_passed_or_noisy

from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.command import CommandResult
from kbtool.model.kinds.environment import EnvironmentStep
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.machine_path import machine_paths
from kbtool.model.run import MachineInfo, Run
from kbtool.runner.engine import _missing_needs


def runs_of(root: Path) -> list[Run]:
    files = sorted(root.glob("sessions/*/runs/*.json"))
    return [Run.model_validate_json(path.read_bytes()) for path in files]


def shell(code: str) -> list[str]:
    return ["run-recipe", "shell", "--set", f"code={code}"]


def test_second_kernel_is_attached_by_its_folder_alone(second_kernel_base, kbtool):
    done = kbtool("run-recipe", "add", "--json", root=second_kernel_base)
    printed = json.loads(done.out)
    (run,) = runs_of(second_kernel_base)
    assert_passed_or_noisy(run, done)
    assert printed["id"] == run.id
    assert (second_kernel_base / printed["path"]).is_file()
    results = {step.id: step.result for step in run.steps}
    build, validation, benchmark = (results[k] for k in ("build", "validate", "benchmark"))
    assert isinstance(build, BuildResult)
    assert isinstance(validation, ValidationResult)
    assert isinstance(benchmark, BenchmarkResult)
    assert build.sha256 == validation.sha256 == benchmark.sha256
    assert len(validation.cases) == 3
    assert benchmark.cases[0].arms["torch"].samples_us
    assert benchmark.cases[0].peers["torch"].passed
    assert benchmark.cases[0].case_set == "large"
    assert benchmark.best_peer(benchmark.cases[0]) == "torch"
    (told,) = printed["headlines"]
    ratio = benchmark.ratio_to_best(benchmark.cases[0])
    assert told["case_set"] == "large" and told["runs"] == [run.id] and told["missing"] == {}
    assert (
        told["chain"] is None if benchmark.noise else told["chain"]["mean"] == pytest.approx(ratio)
    )


def test_a_peer_with_a_wrong_output_does_not_count(second_kernel_base, kbtool):
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    harness.write_text(harness.read_text().replace('alpha=inputs["a"], out', "alpha=1, out"))
    with (harness.parent / "kernel.yaml").open("a") as manifest:
        manifest.write("implementations: {torch: Torch's own.}\n")
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    (run,) = runs_of(second_kernel_base)
    assert_passed_or_noisy(run, done)
    benchmark = run.steps[3].result
    assert isinstance(benchmark, BenchmarkResult)
    assert not benchmark.cases[0].peers["torch"].passed
    headlines = " ".join(done.out.rpartition("\ncases ")[2].split())
    assert "between plain kernels" in headlines and "no ratio" in headlines
    assert benchmark.best_peer(benchmark.cases[0]) is None
    assert "\ntorch: Torch's own.\n" in done.out


def test_nothing_in_kbtool_knows_a_kernel_by_name():
    package = Path(__file__).parents[2] / "kbtool"
    names = [p.parent.name for p in package.parent.glob("kernels/*/kernel.yaml")]
    assert names
    faces = {package / "attention.py", package / "integrations" / "transformers.py"}
    guilty = [
        f"{path.relative_to(package)}: {name}"
        for path in {*package.rglob("*.py")} - faces
        for name in names
        if name in path.read_text()
    ]
    assert guilty == []


def test_a_run_without_a_session_makes_one_and_closes_it(second_kernel_base, kbtool):
    assert kbtool(*shell("1"), root=second_kernel_base).code == 0
    (record,) = second_kernel_base.glob("sessions/*/session.yaml")
    text = record.read_text()
    assert "status: complete" in text
    assert "ended: " in text
    assert kbtool("check", root=second_kernel_base).code == 0


def test_runs_go_to_the_running_session_and_to_the_one_named(second_kernel_base, kbtool):
    made = kbtool("session", "new", "First", "--json", root=second_kernel_base)
    first = json.loads(made.out)["id"]
    assert kbtool(*shell("1"), root=second_kernel_base).code == 0
    assert [run.session for run in runs_of(second_kernel_base)] == [first]
    made = kbtool("session", "new", "Second", "--json", root=second_kernel_base)
    second = json.loads(made.out)["id"]
    unclear = kbtool(*shell("1"), root=second_kernel_base)
    assert unclear.code == 2
    assert "--session" in unclear.err
    assert kbtool(*shell("1"), "--session", second, root=second_kernel_base).code == 0
    assert {run.session for run in runs_of(second_kernel_base)} == {first, second}


def test_dry_run_writes_nothing(second_kernel_base, kbtool):
    def tree() -> dict[str, int]:
        return {
            str(path.relative_to(second_kernel_base)): path.stat().st_mtime_ns
            for path in second_kernel_base.rglob("*")
        }

    before = tree()
    done = kbtool("run-recipe", "add", "--dry-run", root=second_kernel_base)
    assert done.code == 0
    assert "build scaled_add for cpu" in done.out
    assert "compare 3 cases of small" in done.out
    assert tree() == before


def test_a_dry_run_stops_where_the_run_would(second_kernel_base, kbtool):
    done = kbtool(
        "run-recipe", "add", "--dry-run", root=second_kernel_base, env={"CXX": "/nowhere/c++"}
    )
    assert done.code == 3
    assert "[2/4] build" in done.out
    assert "would stop here: no C++ compiler: CXX is '/nowhere/c++'" in done.out
    assert "[3/4]" not in done.out
    unknown = kbtool("run-recipe", "add", "--dry-run", "--session", "x", root=second_kernel_base)
    assert unknown.code == 2


def test_a_value_that_looks_like_a_placeholder_is_taken_as_given(second_kernel_base, kbtool):
    for name in ("q", "timeout"):
        code = f"print('${{{name}}}', flush=True)"
        done = kbtool("run-recipe", "shell", "--set", f"code={code}", root=second_kernel_base)
        assert done.code == 0, done.err
    outputs = {run.steps[0].result.output_tail for run in runs_of(second_kernel_base)}
    assert outputs == {"${q}", "${timeout}"}


def test_an_error_of_no_single_value_shows_no_recipe(second_kernel_base, kbtool):
    pattern = second_kernel_base / "patterns" / "P01.yaml"
    pattern.write_text(pattern.read_text().replace("id: after,", 'id: "${name}",').replace(
        "      timeout: {type: str, default: 1 min, help: when to stop}",
        "      timeout: {type: str, default: 1 min, help: when to stop}\n"
        "      name: {type: str, default: after, help: the name of the second step}",
    ))  # fmt: skip
    done = kbtool("run-recipe", "shell", "--set", "name=run", root=second_kernel_base)
    assert (done.code, done.err) == (2, "kbtool: two steps are called 'run'\n")


@pytest.mark.parametrize(("target", "code"), [("auto", 3), ("cpu", 2)])
def test_a_variant_of_a_target_that_needs_a_card_is_missing_here(
    second_kernel_base, kbtool, target, code
):
    """Nothing is built for it; asked for on the CPU by name it is a wrong setting."""
    manifest = second_kernel_base / "kernels" / "scaled_add" / "kernel.yaml"
    cuda = "  cuda: {sources: [scaled_add.cu], architectures: [sm_90a], variants: {fast: {}}}\n"
    manifest.write_text(manifest.read_text().replace("case_fields:", f"{cuda}case_fields:"))
    (manifest.parent / "scaled_add.cu").write_text("")
    with (second_kernel_base / "patterns" / "P01.yaml").open("a") as pattern:
        pattern.write(TUNER)
    done = kbtool(
        "run-recipe", "tuner", "--set", f"target={target}", root=second_kernel_base,
        env={"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.code == code, done.err
    assert "this build, for cpu, has no variant 'fast'; " in done.err
    assert ("target cuda has it, which needs a card" in done.err) is (code == 3)
    assert runs_of(second_kernel_base) == []


TUNER = """\
  - name: tuner
    title: Tune
    kernel: scaled_add
    parameters:
      target: {type: str, default: auto, help: a target}
    steps:
      - {id: build, kind: build, title: Build, expected: 5 s, timeout: 5 min, target: "${target}"}
      - {id: validate, kind: validate, title: Validate, expected: 5 s, timeout: 2 min,
         case_sets: small, variants: fast}
      - {id: tune, kind: tune, title: Tune, expected: 5 s, timeout: 2 min,
         case_sets: small, variants: fast}
"""


def test_a_compiler_that_is_not_there_says_what_to_install(monkeypatch):
    from kbtool.gpu import toolchain
    from kbtool.model.errors import MachineError

    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    toolchain.find_compiler.cache_clear()
    with pytest.raises(MachineError, match=r"install g\+\+ or clang\+\+"):
        toolchain.find_compiler()
    toolchain.find_compiler.cache_clear()


def test_a_wrong_kernel_is_a_finding_and_is_not_timed(second_kernel_base, kbtool):
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace("a * x[i] + y[i]", "a * x[i]"))
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 1
    assert "2 of 3 cases wrong" in done.err
    assert "failed at step 3 of 4, validate; record: sessions/" in done.out
    assert done.out.splitlines()[-1] == "after the fix, start a new run: kbtool run-recipe add"
    (run,) = runs_of(second_kernel_base)
    assert [step.status for step in run.steps] == ["passed", "passed", "failed", "not-run"]


def test_a_crash_in_the_kernel_is_a_finding(second_kernel_base, kbtool):
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    broken = "{ *(volatile int*)8 = 0;"
    kernel.write_text(kernel.read_text().replace("{\n  for", broken + "\n  for"))
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 1
    assert "SIGSEGV" in done.err


def test_a_compile_error_is_shown_with_the_matching_pattern(second_kernel_base, kbtool):
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace("a * x[i]", "b * x[i]"))
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 1
    assert "scaled_add.cpp:4:" in done.err
    assert "'b' was not declared" in done.err
    assert "P01 Try it knows this error: Declare it before it is used." in done.err
    (run,) = runs_of(second_kernel_base)
    assert run.steps[1].patterns == ["P01"]


def test_an_undefined_symbol_fails_the_link_and_is_named(second_kernel_base, kbtool):
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    text = kernel.read_text().replace("a * x[i]", "elsewhere() * x[i]")
    kernel.write_text(text.replace("void scaled_add", "float elsewhere();\nvoid scaled_add"))
    pattern = second_kernel_base / "patterns" / "P01.yaml"
    seen = "undefined reference"
    symptom = f"  - {{id: link, match: {seen}, example: {seen}, advice: Link.}}"
    pattern.write_text(pattern.read_text().replace("recipes:", f"{symptom}\nrecipes:", 1))
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 1
    assert "undefined reference to `elsewhere()'" in done.err
    assert "P01 Try it knows this error: Link." in done.err


def test_a_missing_compiler_says_what_to_install(second_kernel_base, kbtool):
    done = kbtool("run-recipe", "add", root=second_kernel_base, env={"CXX": "/nowhere/c++"})
    assert done.code == 3
    assert "CXX is '/nowhere/c++', which does not run; unset or correct CXX" in done.err
    assert "what the machine lacks: kbtool doctor --for add" in done.out
    assert runs_of(second_kernel_base)[0].status == "unavailable"


def test_a_missing_card_says_what_to_do(second_kernel_base, kbtool):
    done = kbtool("run-recipe", "gpu", root=second_kernel_base, env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.code == 3
    assert "no gpu: run it on a machine with an NVIDIA card" in done.err


@pytest.mark.parametrize(("cards", "said"), [(None, "0 gpus: "), (1, "1 gpu: "), (2, None)])
def test_a_step_for_several_cards_says_how_many_there_are(
    cards: int | None, said: str | None
) -> None:
    step = EnvironmentStep(
        id="e", kind="environment", title="T", expected="1 s", timeout="1 s", needs=["several_gpus"]
    )
    machine = MachineInfo(python="3.11", kbtool="0", os="Linux", cpu="x", cores=1, cards=cards)
    problems = _missing_needs(step, machine)
    if said is None:
        assert problems == []
    else:
        assert problems == [f"{said}run it on a machine with two NVIDIA cards or more"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run-recipe"], "which recipe? There is add, shell, gpu"),
        (["run-recipe", "ad"], "there is no recipe 'ad' (did you mean add?)"),
        (
            ["run-recipe", "split-k"],
            "there is no recipe 'split-k' here; it comes with kbtool: run `kbtool init --with"
            " split-k` in the folder of the knowledge base",
        ),
        (["run-recipe", "add", "--set", "samples=many"], "samples: 'many' is not an int"),
        (["run-recipe", "add", "--set", "size=3"], "size: recipe add has no such parameter"),
        (["run-recipe", "add", "--set", "size"], "write NAME=VALUE"),
        (["run-recipe", "add", "--set", "cases=none"], "no case set 'none'; it has small, large"),
        (["run-recipe", "add", "--set", "cases=small,small"], "small is named twice"),
        (["run-recipe", "add", "--set", "samples=2"], "samples=2: "),
        (["run-recipe", "add", "--set", "samples=99999999999999999999"], "100000"),
        (["run-recipe", "add", *("--set", "samples=6") * 2], "--set samples is given twice"),
        (["run-recipe", "shell", "--set", "timeout=soon"], "is not a quantity"),
        (["run-recipe", "add", "--session", "nobody"], "there is no session 'nobody'"),
        (["run-recipe", "--resume", "20990101"], "there is no run '20990101'"),
    ],
)
def test_usage_errors_are_reported_before_anything_is_written(
    second_kernel_base, kbtool, arguments, told
):
    done = kbtool(*arguments, root=second_kernel_base)
    assert done.code == 2
    assert told in done.err
    assert list(second_kernel_base.glob("sessions/*")) == []


def test_a_recipe_with_a_path_outside_the_knowledge_base_is_refused(second_kernel_base, kbtool):
    pattern = second_kernel_base / "patterns" / "P01.yaml"
    pattern.write_text(pattern.read_text().replace("kind: command,", "kind: command, cwd: ../..,"))
    done = kbtool("run-recipe", "shell", root=second_kernel_base)
    assert done.code == 2
    assert "../.. leads out of the knowledge base" in done.err
    checked = kbtool("check", root=second_kernel_base)
    assert checked.code == 1
    assert "patterns/P01.yaml:" in checked.out


def test_a_kernel_that_does_not_load_is_not_said_to_be_missing(second_kernel_base, kbtool):
    manifest = second_kernel_base / "kernels" / "scaled_add" / "kernel.yaml"
    whole = manifest.read_text()
    manifest.write_text(whole.replace("case_sets:", "case_set:"))
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 1
    assert "works on kernel scaled_add, which does not load; correct it first:" in done.err
    assert "kernels/scaled_add/kernel.yaml:" in done.err
    assert "case_sets: is missing (The case sets, by name); `kbtool check` lists all" in done.err
    manifest.write_text(whole.replace("id: scaled_add", "id: other", 1))
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 1
    assert "kernels/scaled_add/kernel.yaml: see `kbtool check`" in done.err
    manifest.unlink()
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 2
    assert "but there is no kernels/scaled_add/kernel.yaml" in done.err


def test_two_runs_at_once_each_have_a_record(second_kernel_base):
    argv = [sys.executable, "-m", "kbtool", "--root", str(second_kernel_base), *shell("1")]
    both = [subprocess.Popen(argv, stderr=subprocess.PIPE) for _ in range(3)]
    assert [process.wait(timeout=60) for process in both] == [0, 0, 0]
    assert len({run.id for run in runs_of(second_kernel_base)}) == 3


def test_a_full_disk_keeps_the_record_elsewhere(second_kernel_base, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        sessions = second_kernel_base / "sessions"
        sessions.rmdir()
        sessions.symlink_to(full)
        fill = f"f=open({str(full / 'fill')!r},'wb');\nwhile True: f.write(b'x'*512); f.flush()"
        argv = [sys.executable, "-m", "kbtool", "--root", str(second_kernel_base), *shell(fill)]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert done.returncode == 3, done.stderr
        assert "No space left" in done.stderr
        assert "Traceback" not in done.stderr.replace("Traceback (most recent call last)", "", 1)
        assert "make room" in done.stderr
        (kept,) = tmp_path.glob("*-shell-*.json")
        assert Run.model_validate_json(kept.read_bytes()).status == "failed"
        assert list(full.glob("*/runs/*.json")) == []
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_an_edited_run_is_refused(second_kernel_base, kbtool):
    assert kbtool(*shell("1"), root=second_kernel_base).code == 0
    (path,) = second_kernel_base.glob("sessions/*/runs/*.json")
    text = path.read_text()
    assert '"expected_seconds": 1.0' in text
    path.write_text(text.replace('"expected_seconds": 1.0', '"expected_seconds": 2.0', 1))
    done = kbtool("check", root=second_kernel_base)
    assert done.code == 1
    assert "never edited" in done.out


def test_progress_as_json_lines(second_kernel_base, kbtool):
    done = kbtool(*shell("print(1)"), "--progress", "rawjson", root=second_kernel_base)
    events = [json.loads(line) for line in done.err.splitlines()]
    assert [event["event"] for event in events][:2] == ["run-started", "step-started"]
    assert events[-1] == {"event": "run-ended", "run": events[0]["run"], "status": "passed"}


def test_a_record_holds_no_path_of_the_machine(second_kernel_base, kbtool, tmp_path):
    said = f"{second_kernel_base}/kernels/a.cu /opt/cuda-13/include/b.h {sys.prefix}/c.h"
    code = f"import pathlib; print('''{said} {tmp_path}/d.h /mnt/ada/e.h''', pathlib.Path.home())"
    done = kbtool(
        *shell(f"{code}; exit(1)"), root=second_kernel_base, env={"CUDA_HOME": "/opt/cuda-13"}
    )
    assert str(second_kernel_base) in done.err  # the terminal is told where things are
    (path,) = second_kernel_base.glob("sessions/*/runs/*.json")
    (run,) = runs_of(second_kernel_base)
    result = run.steps[0].result
    assert isinstance(result, CommandResult)
    assert re.fullmatch(
        r"kernels/a.cu \$CUDA_HOME/include/b.h \$PYTHON/c.h \$TMPDIR/\S+/d.h …/e.h \$HOME",
        result.output_tail,
    )
    assert list(machine_paths(path.read_text())) == []
    assert kbtool("check", root=second_kernel_base).code == 0


@pytest.mark.parametrize("way", ["id", "beginning", "end", "last"])
def test_a_run_is_named_by_any_part_that_no_other_has(second_kernel_base, kbtool, way):
    for _ in range(2):
        kbtool(*shell("raise SystemExit(1)"), root=second_kernel_base)
    first, last = sorted(runs_of(second_kernel_base), key=lambda run: run.started)
    wanted = {"id": first.id, "beginning": first.id[:-1], "end": first.id[-4:], "last": last.id}
    if way == "beginning" and last.id.startswith(wanted[way]):
        pytest.skip("both runs were drawn ids that differ in the last digit only")
    name = "last" if way == "last" else wanted[way]
    done = kbtool("run-recipe", "--resume", name, root=second_kernel_base)
    resumed = max(runs_of(second_kernel_base), key=lambda run: run.attempt)
    assert (done.code, resumed.attempt) == (1, 2)
    assert resumed.id == (last if way == "last" else first).id
    done = kbtool("run-recipe", "--resume", first.id[:8], root=second_kernel_base)
    assert done.code == 2 and f"{first.id[:8]!r} matches several runs" in done.err
