"""The step kind ``profile``: Nsight Compute's metrics of one call, down to a named bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbtool.gpu.profile import decide, metrics_for, parse, problem
from kbtool.gpu.toolchain import find_profiler
from kbtool.model.kernel import CaseValue, without_name
from kbtool.model.kinds.profile import ProfileCase, ProfileResult, ProfileStep
from kbtool.model.words import many
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.profile import page, report
from kbtool.steps.worker import library_request, run_worker, worker_failure

_OPTIONS = (
    "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function",
    "--profile-from-start", "off", "--replay-mode", "kernel", "--cache-control", "all",
    "--clock-control", "none",
)  # fmt: skip
_PROTOCOL = (
    "one warm call a case, each kernel replayed until all metrics are there, caches flushed before"
    " each replay, clocks as they are"
)


class Profile(StepKind[ProfileStep, ProfileResult]):
    """Like a benchmark, refuses a library that has not passed validation in this run."""

    result = ProfileResult

    def plan(self, step: ProfileStep, context: Context) -> list[str]:
        """The cases and the profiler."""
        cases = context.chosen(step.case_set, step.case)
        program, version = find_profiler()
        metrics = metrics_for(context.machine.compute_capability)
        return [
            f"profile one call of {step.arm or 'the library'} on each of"
            f" {many(len(cases), 'case')} with {program.name} {version},"
            f" {many(len(metrics), 'metric')}; refused unless this library passed validation",
            "name the bottleneck: bytes, arithmetic, latency, occupancy or launch",
        ]

    def run(self, step: ProfileStep, context: Context) -> Outcome:
        """Passes if every case could be profiled."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        target = context.manifest.targets[context.plan.target]
        variant = step.arm if step.arm in target.variants_for(context.plan.architecture) else None
        refusal = context.gate([variant])
        if refusal is not None:
            return refusal
        if context.plan.target != "cuda":
            return Outcome(
                "failed",
                f"Nsight Compute profiles CUDA kernels; target {context.plan.target} has none:"
                " build the cuda target",
            )
        cases = context.chosen(step.case_set, step.case, variant)
        program, version = find_profiler()
        metrics = metrics_for(context.machine.compute_capability)
        under = [str(program), *_OPTIONS, "--metrics", ",".join(metrics)]
        request: dict[str, Any] = {
            **library_request(context.plan, context.built, context.manifest),
            "closed": True,
            "seed": context.seed,
            "threads": context.machine.cores,
        }
        event, done = run_worker(
            {**request, "task": "kbtool.steps.profile.task:Launch", "cases": []}, context
        )
        failure = worker_failure(event, done, "timing launches")
        if failure is not None:
            return failure
        launch_us: float = event["result"]
        profiled: list[ProfileCase] = []
        result: ProfileResult | None = None
        arm = step.arm
        for entry in cases:
            found = _profiled(
                entry, {**request, "arm": step.arm or None}, under, launch_us, context
            )
            if isinstance(found, Outcome):
                return found
            arm, profile = found
            profiled.append(profile)
            result = ProfileResult(
                sha256=context.built.sha256,
                arm=arm,
                variant=variant,
                profiler=f"Nsight Compute {version}",
                launch_us=launch_us,
                protocol=_PROTOCOL,
                cases=profiled,
                not_reached=len(cases) - len(profiled),
            )
            context.on_found(result)
            context.on_progress(len(profiled), len(cases), f"{profile.name}: {profile.verdict}")
        verdicts = [case.verdict for case in profiled]
        summary = "; ".join(dict.fromkeys(verdicts))
        return Outcome(
            "passed",
            f"{many(len(profiled), 'case')}, {summary}",
            result,
            symptoms="\n".join(verdicts),
        )

    def report(self, result: ProfileResult, invocation: Invocation) -> Sequence[str | Table]:
        """See ``report``."""
        return report.report(result)

    def page(self, result: ProfileResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


def _profiled(
    entry: tuple[str, dict[str, CaseValue]],
    request: dict[str, Any],
    under: list[str],
    launch_us: float,
    context: Context,
) -> tuple[str, ProfileCase] | Outcome:
    """The profile of one arm on one case, or the outcome if it failed.

    Args:
        entry: (case set, case).
        request: the worker's request, without task and case.
        under: the profiler's command.
        launch_us: microseconds from one launch to the next.
        context: of the step.
    """
    case = entry[1]
    lines: list[str] = []
    event, done = run_worker(
        {**request, "task": "kbtool.steps.profile.task:Profile", "cases": [entry]},
        context,
        under=under,
        on_line=lines.append,
    )
    failure = worker_failure(event, done, f"profiling {case['name']}")
    if failure is not None and failure.status == "timeout":
        return failure
    launches = parse(lines)
    if failure is not None or not launches:
        why = problem(lines)
        if why is not None:
            return Outcome("unavailable", why, output=done.output)
        return failure or Outcome(
            "unavailable", f"ncu saw no kernel in {case['name']}", output=done.output
        )
    found = decide(launches, launch_us)
    return event["result"], ProfileCase(
        name=str(case["name"]),
        case=without_name(case),
        launches=launches,
        bottleneck=found.bottleneck,
        verdict=found.verdict,
        reasons=found.reasons,
    )
