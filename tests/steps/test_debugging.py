"""``profile`` and ``sanitise`` without a card: gates, what is missing, what is made of the output.

The tools themselves are stood in for by programs that print what they would print.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import TypeAdapter

from kbtool.gpu.build import build
from kbtool.gpu.build_plan import plan_build
from kbtool.gpu.process import Completed
from kbtool.gpu.profile import DURATION, MEMORY, SM, Finding, metrics_for
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Kernel
from kbtool.model.kinds import StepSpec
from kbtool.model.kinds.profile import Bottleneck, ProfileResult
from kbtool.model.kinds.sanitise import SanitiseResult
from kbtool.model.kinds.validate import CaseResult, OutputError, ValidationResult
from kbtool.model.run import MachineInfo, RepositoryState
from kbtool.runner import engine
from kbtool.runner.explain import matching
from kbtool.runner.progress import Plain
from kbtool.steps import KINDS
from kbtool.steps import worker as steps_worker
from kbtool.steps.base import Context, Outcome
from kbtool.steps.profile import run as profile
from kbtool.steps.sanitise import run as sanitise
from kbtool.steps.sanitise.report import report as sanitise_report
from kbtool.steps.worker import library_request, run_worker
from kbtool.store.sessions import create_session
from kbtool.store.tree import KnowledgeBase

FOLDER = Path(__file__).parents[1] / "fixtures" / "kernels" / "scaled_add"
COMMON = {"id": "s", "title": "S", "expected": "1 s", "timeout": "1 min"}
MACHINE = MachineInfo(
    python="3", kbtool="0", os="L", cpu="C", cores=1, card="X", compute_capability="sm_90"
)
PROFILE = {"kind": "profile", "case_set": "small"}
SANITISE = {"kind": "sanitise", "tools": "memcheck", "case_sets": "small"}


def step(**fields: Any) -> Any:
    return TypeAdapter(StepSpec).validate_python({**COMMON, **fields})


def kernel() -> Kernel:
    text = yaml.load((FOLDER / "kernel.yaml").read_text(), yaml.BaseLoader)
    text["targets"]["cuda"] = text["targets"]["cpu"]
    return Kernel.model_validate(text)


@pytest.fixture(params=["cuda"])
def context(request, tmp_path, build_cache) -> Context:
    """After a build of the target and its validation; the cuda target is that of the CPU here."""
    manifest = kernel()
    made = Context(root=tmp_path, kernel=manifest, machine=MACHINE, seed=7)
    shutil.copytree(FOLDER, tmp_path / "kernels" / "scaled_add")
    made.plan = plan_build(manifest, made.kernel_folder, request.param, build_cache)
    made.built = build(made.plan, timeout=300)
    right = OutputError(passed=True, error=0.0, bound=1.0, torch_error=0.0)
    made.validated = [
        ValidationResult(
            sha256=made.built.sha256, device="cuda", seed=1, rule="r",
            cases=[CaseResult(case_set="small", name="one", case={}, passed=True,
                              outputs={"out": right})],
        )
    ]  # fmt: skip
    made.deadline = float("inf")
    return made


def program(folder: Path, name: str, code: str) -> Path:
    """An executable that runs ``code``, and then the Python program among its arguments."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        "if sys.argv[1:] == ['--version']:\n    print('Version 2026.1.0'); sys.exit()\n"
        f"def run():\n    at = sys.argv.index({sys.executable!r})\n"
        f"    return subprocess.run(sys.argv[at:], stdin=subprocess.DEVNULL).returncode\n{code}\n"
    )
    path.chmod(0o755)
    return path


# ---- under another program ----


def test_a_worker_started_by_another_program_reports_its_events(context, tmp_path):
    under = program(tmp_path, "watch", "print('watching', flush=True); code = run(); print('done')")
    lines: list[str] = []
    seen: list[str] = []
    cases = context.cases("small")
    event, done = run_worker(
        {
            **library_request(context.plan, context.built, context.manifest),
            "device": "cpu", "task": "kbtool.steps.sanitise.task:Run", "cases": cases,
            "of": [None] * 3, "seed": 1, "threads": 1,
        },
        context, under=[str(under), "--some", "option"], timeout=120,
        on_line=lines.append, on_event=lambda e: seen.append(e["label"]),
    )  # fmt: skip
    assert done.returncode == 0, done.output
    assert event == {"event": "result", "result": 3}
    assert seen == ["one", "some", "none"]
    assert lines == ["watching", "done"]


# ---- profile ----

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
        "Block Size", "Grid Size", "Device", "CC"]  # fmt: skip


def row(cells: list[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def printed(memory: float) -> list[str]:
    """What ncu prints of one launch."""
    names = metrics_for("sm_90")
    values = {DURATION: "50,000", SM: "20", MEMORY: str(memory)}
    cells = ["0", "1", "python3", "h", "scaled_add", "1", "7", "(1, 1, 1)", "(1, 1, 1)", "0", "9.0"]
    return [
        "==PROF== Connected to process 1",
        row([*HEAD, *names]),
        row(["" for _ in HEAD] + ["ns" if name == DURATION else "%" for name in names]),
        row([*cells, *(values.get(name, "n/a") for name in names)]),
    ]


@pytest.fixture
def ncu(monkeypatch, tmp_path):
    """Stands in for the worker under ncu; the commands that were run."""
    monkeypatch.setattr(profile, "find_profiler", lambda: (Path("/x/ncu"), "2026.1.0"))
    ran: list[dict[str, Any]] = []

    def install(lines: list[str], event: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        def fake(request, context, *, under=(), on_line=None, **_):
            ran.append({**request, "under": list(under)})
            done = Completed(0, "\n".join(lines), 1.0, False)
            if request["task"].endswith(":Launch"):
                return {"event": "result", "result": 2.5}, done
            for line in lines:
                on_line(line)
            return event or {"event": "result", "result": "scaled_add"}, done

        monkeypatch.setattr(profile, "run_worker", fake)
        return ran

    return install


def test_a_profile_names_the_bottleneck_of_each_case_and_keeps_the_metrics(context, ncu):
    ran = ncu(printed(91.0))
    outcome = KINDS["profile"].run(step(**PROFILE), context)
    assert outcome.status == "passed", outcome.message
    assert isinstance(outcome.result, ProfileResult)
    assert [case.bottleneck for case in outcome.result.cases] == ["bytes"] * 3
    assert outcome.result.cases[0].launches[0].metrics[DURATION] == 50_000.0
    assert outcome.symptoms.splitlines() == ["bottleneck: bytes: memory in scaled_add"] * 3
    assert outcome.result.launch_us == 2.5
    # One process a case, one call in it; the clocks are left alone.
    tasks = [request["task"].partition(":")[2] for request in ran]
    assert tasks == ["Launch", "Profile", "Profile", "Profile"]
    under = ran[1]["under"]
    assert under[under.index("--clock-control") + 1] == "none"
    assert under[under.index("--profile-from-start") + 1] == "off"
    assert set(metrics_for("sm_90")) == set(under[-1].split(","))


def test_forbidden_counters_are_reported_with_the_remedy(context, ncu):
    ncu(["==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"])
    outcome = KINDS["profile"].run(step(**PROFILE), context)
    assert outcome.status == "unavailable"
    assert "run kbtool as root" in outcome.message


def test_a_call_that_launches_no_kernel_is_unavailable(context, ncu):
    ncu(["==WARNING== No kernels were profiled."])
    outcome = KINDS["profile"].run(step(**PROFILE), context)
    assert (outcome.status, outcome.message) == ("unavailable", "ncu saw no kernel in one")


def test_an_unknown_arm_fails_and_lists_the_arms(context, ncu):
    ncu([], {"event": "failed", "message": "one: no arm 'x' takes this case; there is torch"})
    outcome = KINDS["profile"].run(step(**PROFILE, arm="x"), context)
    assert (outcome.status, outcome.message) == (
        "failed", "one: no arm 'x' takes this case; there is torch",
    )  # fmt: skip


def test_nothing_is_profiled_that_did_not_pass_validation(context, ncu):
    context.validated = []
    outcome = KINDS["profile"].run(step(**PROFILE), context)
    assert outcome.status == "refused"
    assert "has not passed validation" in outcome.message


@pytest.mark.parametrize("context", ["cpu"], indirect=True)
@pytest.mark.parametrize("spec", [PROFILE, SANITISE])
def test_profiling_and_sanitising_the_cpu_target_fails_with_advice(context, ncu, monkeypatch, spec):
    monkeypatch.setattr(sanitise, "find_sanitiser", lambda: (Path("/x"), "1"))
    outcome = KINDS[spec["kind"]].run(step(**spec), context)
    assert outcome.status == "failed"
    assert "build the cuda target" in outcome.message


@pytest.mark.parametrize("kind", ["minimise", "profile", "sanitise"])
def test_minimise_profile_and_sanitise_are_refused_before_a_build(tmp_path, kind):
    spec = {"minimise": {"kind": "minimise", "case_sets": "small"}, "profile": PROFILE,
            "sanitise": SANITISE}[kind]  # fmt: skip
    empty = Context(root=tmp_path, kernel=kernel(), machine=MACHINE, seed=1)
    outcome = KINDS[kind].run(step(**spec), empty)
    assert (outcome.status, outcome.message) == ("refused", "nothing was built in this run")


def test_without_the_tools_the_dry_run_stops_and_says_what_to_install(context, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    if shutil.which("ncu", path="/usr/local/cuda/bin"):
        pytest.skip("Nsight Compute is installed at the usual place")
    with pytest.raises(MachineError, match="Nsight Compute"):
        KINDS["profile"].plan(step(**PROFILE), context)
    with pytest.raises(MachineError, match="compute-sanitizer"):
        KINDS["sanitise"].plan(step(**SANITISE), context)


def test_each_bottleneck_has_its_remedy():
    remedies = KnowledgeBase(Path(__file__).parents[2]).patterns["P16"].record
    for kind in get_args(Bottleneck):
        found = matching([remedies], Finding(kind, "x in y").verdict)
        assert [match.symptom.id for match in found] == ([kind] if kind != "unknown" else [])


def test_a_step_that_passed_points_to_the_pattern_that_knows_what_to_do(
    second_kernel_base, monkeypatch
):
    class Found:
        def plan(self, step: Any, context: Context) -> list[str]:
            return []

        def run(self, step: Any, context: Context) -> Outcome:
            return Outcome("passed", "found", symptoms="x was not declared in this scope")

    monkeypatch.setattr(engine, "KINDS", {"command": Found()})
    known = KnowledgeBase(second_kernel_base)
    pattern, recipe = known.recipes()["shell"]
    bound, values = recipe.bind({})
    job = engine.Job(known, pattern, bound, values, MACHINE)
    stream = io.StringIO()
    session = create_session(
        known, status="complete", title="T", objective="O", machine=MACHINE,
        repository=RepositoryState(),
    ).record.id  # fmt: skip
    run, _ = engine.execute(job, session, Plain(stream, verbose=False))
    assert run.steps[0].patterns == ["P01"]
    assert "P01 Try it knows what to do: Declare it before it is used." in stream.getvalue()


# ---- sanitise ----


@pytest.fixture
def sanitiser(monkeypatch, tmp_path):
    """A compute-sanitizer that prints this, before and after it runs the worker on the CPU."""

    def install(before: str = "", after: str = "", *, runs: bool = True) -> None:
        code = f"print({before!r}, flush=True)\n{'run()' if runs else ''}\nprint({after!r})"
        path = program(tmp_path, "compute-sanitizer", code)
        monkeypatch.setattr(sanitise, "find_sanitiser", lambda: (path, "2026.1.0"))
        worker = steps_worker.run_worker
        monkeypatch.setattr(
            sanitise, "run_worker",
            lambda request, context, **options: worker(
                {**request, "device": "cpu"}, context, timeout=120, **options
            ),
        )  # fmt: skip

    return install


def sanitised(context: Context, **fields: Any) -> Outcome:
    return KINDS["sanitise"].run(step(**{**SANITISE, **fields}), context)


def test_a_clean_run_passes_and_says_what_ran(context, sanitiser):
    sanitiser("========= COMPUTE-SANITIZER", "========= ERROR SUMMARY: 0 errors")
    outcome = sanitised(context, tools="memcheck, racecheck")
    assert outcome.status == "passed", (outcome.message, outcome.output)
    assert isinstance(outcome.result, SanitiseResult)
    memcheck, racecheck = outcome.result.tools
    assert memcheck.cases == racecheck.cases == ["small/one", "small/some", "small/none"]
    assert outcome.message == "memcheck: no errors in 3 cases; racecheck: no errors in 3 cases"


def test_an_error_fails_with_its_first_report(context, sanitiser):
    report = "========= Invalid __global__ read of size 4 bytes\n=========     at add+0x10"
    sanitiser("========= COMPUTE-SANITIZER", f"{report}\n========= ERROR SUMMARY: 7 errors")
    outcome = sanitised(context)
    assert outcome.status == "failed"
    assert outcome.message == (
        "memcheck: 7 errors, the first: Invalid __global__ read of size 4 bytes"
    )
    assert outcome.result.tools[0].errors == 7
    assert outcome.result.tools[0].reports[0].endswith("at add+0x10")


def test_a_finding_of_one_tool_does_not_stop_the_next(context, sanitiser):
    sanitiser("========= Invalid x", "========= ERROR SUMMARY: 1 error")
    outcome = sanitised(context, tools="memcheck,synccheck")
    assert outcome.status == "failed"
    assert [tool.errors for tool in outcome.result.tools] == [1, 1]


def test_findings_are_kept_if_a_later_tool_fails(context, sanitiser, monkeypatch):
    sanitiser("========= Invalid x", "========= ERROR SUMMARY: 1 error")
    again = sanitise.run_worker

    def fails(request, context, **options):
        if "racecheck" in options["under"]:
            return {"event": "none"}, Completed(1, "gone", 1.0, False)
        return again(request, context, **options)

    monkeypatch.setattr(sanitise, "run_worker", fails)
    found: list[Any] = []
    context.on_found = found.append
    outcome = sanitised(context, tools="memcheck,racecheck")
    assert (outcome.status, outcome.message[:10]) == ("crashed", "racecheck:")
    assert [one.tool for one in found[-1].tools] == ["memcheck"]
    assert (found[-1].tools[0].errors, found[-1].not_reached) == (1, 1)


def test_a_worker_that_does_not_start_gives_its_own_reason(context, sanitiser):
    ended = "========= Error: Target application terminated before first instrumented API call"
    sanitiser("python3: No module named kbtool", ended, runs=False)
    outcome = sanitised(context)
    assert (outcome.status, outcome.error) == ("crashed", "python3: No module named kbtool")
    sanitiser(ended, runs=False)
    assert sanitised(context).status == "unavailable"


def test_cases_run_before_a_tool_was_stopped_are_kept(context, sanitiser):
    sanitiser("========= Invalid x", "========= ERROR SUMMARY: 1 error")

    def interrupt(done: int, total: int, label: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    found: list[Any] = []
    context.on_found, context.on_progress = found.append, interrupt
    with pytest.raises(KeyboardInterrupt):
        sanitised(context, tools="memcheck,racecheck")
    (memcheck,) = found[-1].tools
    assert (memcheck.cases, memcheck.errors) == (["small/one"], None)
    assert memcheck.reports == ["Invalid x"]
    assert found[-1].not_reached == 2
    assert sanitise_report(found[-1])[0] == "memcheck: no count of errors in 1 case"


def test_an_unknown_sanitizer_tool_is_a_usage_error(context, sanitiser):
    sanitiser()
    with pytest.raises(UsageError, match="no tool 'leakcheck'"):
        sanitised(context, tools="leakcheck")


def test_a_worker_that_an_error_ends_leaves_the_case_that_did_it(context, sanitiser):
    sanitiser("", "========= Invalid x\n========= ERROR SUMMARY: 1 error", runs=False)
    outcome = sanitised(context)
    assert outcome.message == "memcheck: 1 error, the first, which ended small/one: Invalid x"
    assert outcome.result.tools[0].cases == []


def test_a_tool_that_does_not_know_the_card_is_not_a_finding(context, sanitiser):
    sanitiser("========= Error: Device not supported. Please refer to …", runs=False)
    outcome = sanitised(context)
    assert outcome.status == "unavailable"
    assert "Device not supported" in outcome.message


def test_a_run_without_a_summary_proves_nothing(context, sanitiser):
    sanitiser("========= COMPUTE-SANITIZER")
    assert sanitised(context).status == "failed"


def test_the_caching_allocator_is_off(context, sanitiser):
    sanitiser(after="========= ERROR SUMMARY: 0 errors")
    path, _ = sanitise.find_sanitiser()
    asked = "import os; print('cache', os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'])"
    path.write_text(path.read_text().replace("\nrun()\n", f"\n{asked}\nrun()\n"))
    lines: list[str] = []
    context.on_line = lines.append
    assert sanitised(context).status == "passed"
    assert "cache 1" in lines


# ---- one case ----


def test_one_case_can_be_named_or_described(context):
    assert context.chosen("small", "some") == [context.cases("small")[1]]
    ((case_set, case),) = context.chosen("small", "n=3 a=0.5")
    assert (case_set, case["n"], case["a"]) == ("given", 3, 0.5)
    with pytest.raises(UsageError, match="'b' is no case field"):
        context.chosen("small", "b=3")


def test_a_case_as_text_is_read_back_as_it_was():
    manifest = Kernel.model_validate(
        {
            **json.loads(kernel().model_dump_json()),
            "case_fields": {
                "n": {"type": "int", "default": "8", "help": "h"},
                "on": {"type": "bool", "default": "false", "help": "h"},
                "at": {"type": "float", "help": "h"},
                "list": {"type": "ints", "help": "h"},
                "a": {"type": "float", "default": "2.0", "help": "h"},
            },
        }
    )
    for case in (
        {"n": 3, "on": True, "at": -0.2, "list": [1, 0, 22], "a": 2.0},
        {"n": 8, "on": False, "at": None, "list": [], "a": 1e-9},
        {"n": 8, "on": False, "at": None, "list": None, "a": 2.0},
    ):
        text = manifest.case_text(case)
        assert text
        again = manifest.case_from(text)
        assert {key: again[key] for key in case} == case


def test_a_dry_run_draws_one_seed(
    second_kernel_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(engine.secrets, "randbelow", lambda most: drawn.append(most) or 1)
    known = KnowledgeBase(second_kernel_base)
    pattern, recipe = known.recipes()["shell"]
    bound, values = recipe.bind({})
    steps = list(engine.plan(engine.Job(known, pattern, bound, values, MACHINE)))
    assert steps and len(drawn) == 1
