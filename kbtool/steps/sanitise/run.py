"""The step kind ``sanitise``: the built library under the tools of compute-sanitizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbtool.gpu.sanitiser import (
    ENVIRONMENT,
    OPTIONS,
    command,
    printed_by_program,
    read,
    unavailable_reason,
)
from kbtool.gpu.toolchain import find_sanitiser
from kbtool.model.errors import UsageError
from kbtool.model.kinds.base import names_in
from kbtool.model.kinds.sanitise import SanitiseResult, SanitiseStep, ToolReport
from kbtool.model.words import many
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.sanitise import page, report
from kbtool.steps.worker import library_request, run_worker, worker_failure


class Sanitise(StepKind[SanitiseStep, SanitiseResult]):
    """Runs only the operator, without reference or timing: under these tools everything is slow."""

    result = SanitiseResult

    def plan(self, step: SanitiseStep, context: Context) -> list[str]:
        """The cases and the tools."""
        cases = context.chosen(step.case_sets, step.case)
        context.variants(step.variants)
        program, version = find_sanitiser()
        variants = "" if step.variants == "default" else f", variants {step.variants},"
        plan = [f"call the library once on each of {many(len(cases), 'case')}{variants} under"]
        for tool in _tools(step):
            plan.append(f"{program.name} {version} --tool {' '.join([tool, *OPTIONS[tool]])}")
        shown = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        return [*plan, f"with {shown}, so that each tensor has its own allocation"]

    def run(self, step: SanitiseStep, context: Context) -> Outcome:
        """Fails if a tool reports an error. All tools run, even after an error."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        if context.plan.target != "cuda":
            return Outcome(
                "failed",
                f"compute-sanitizer checks CUDA kernels; target {context.plan.target} has"
                " none: build the cuda target",
            )
        program, version = find_sanitiser()
        tools = _tools(step)
        calls = [
            (entry, variant)
            for variant in context.variants(step.variants)
            for entry in context.chosen(step.case_sets, step.case, variant)
        ]
        reports: list[ToolReport] = []
        summaries: list[str] = []
        output = ""
        sha256 = context.built.sha256

        def tell(*under_way: ToolReport) -> SanitiseResult:
            made = SanitiseResult(
                sha256=sha256,
                version=version,
                tools=[*reports, *under_way],
                not_reached=len(tools) - len(reports),
            )
            context.on_found(made)
            return made

        for tool in tools:
            known = _under(tool, program, calls, context, tell)
            if isinstance(known, Outcome):
                return known
            report, summary, printed = known
            reports.append(report)
            summaries.append(summary)
            output = output or (printed if report.errors else "")
            result = tell()
        first = next((one.reports[0] for one in reports if one.reports), None)
        return Outcome(
            "failed" if any(one.errors for one in reports) else "passed",
            "; ".join(summaries),
            result,
            first,
            output,
        )

    def report(self, result: SanitiseResult, invocation: Invocation) -> Sequence[str | Table]:
        """See ``report``."""
        return report.report(result)

    def page(self, result: SanitiseResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


def _tools(step: SanitiseStep) -> list[str]:
    tools = names_in(step.tools)
    if not tools:
        raise UsageError(f"no tool is named; compute-sanitizer has {', '.join(OPTIONS)}")
    for tool in tools:
        if tool not in OPTIONS:
            raise UsageError(
                f"compute-sanitizer has no tool {tool!r} that is known here; {', '.join(OPTIONS)}"
            )
    return tools


def _under(
    tool: str,
    program: Path,
    calls: list[tuple[tuple[str, Any], str | None]],
    context: Context,
    tell: Callable[[ToolReport], object],
) -> tuple[ToolReport, str, str] | Outcome:
    """The report of one tool, its summary line and its output; or the outcome if it failed.

    ``tell`` is called with the partial report after each call.
    """
    assert context.built is not None and context.plan is not None
    argv = command(str(program), tool)
    lines: list[str] = []
    names = [
        f"{case_set}/{case['name']}" + (f" as {variant}" if variant else "")
        for (case_set, case), variant in calls
    ]
    ran = 0

    def reported(errors: int | None, reports: list[str]) -> ToolReport:
        return ToolReport(
            tool=tool,
            options=argv[3:],
            cases=names[:ran],
            errors=errors,
            reports=reports,
        )

    def on_line(line: str) -> None:
        lines.append(line)
        context.on_line(line)

    def on_event(progress: dict[str, Any]) -> None:
        nonlocal ran
        ran = progress["done"]
        context.on_progress(ran, len(names), f"{tool}: {names[ran - 1]}")
        tell(reported(*read(lines)))

    event, done = run_worker(
        {
            **library_request(context.plan, context.built, context.manifest),
            "task": "kbtool.steps.sanitise.task:Run",
            "cases": [entry for entry, _ in calls],
            "of": [variant for _, variant in calls],
            "seed": context.seed,
            "threads": context.machine.cores,
        },
        context,
        under=argv,
        env=ENVIRONMENT,
        on_event=on_event,
        on_line=on_line,
    )
    failure = worker_failure(event, done, f"running under {tool}")
    errors, reports = read(lines)
    if failure is not None and not errors:
        return _unfinished(tool, failure, lines, done.output)
    if errors is None:
        return Outcome("failed", f"{tool} ended without a summary", output=done.output)
    report = reported(errors, reports if errors else [])
    summary = f"{tool}: no errors in {many(ran, 'case')}"
    if errors:
        died = f", which ended {names[ran]}" if ran < len(names) else ""
        first = reports[0].partition("\n")[0] if reports else "not printed"
        summary = f"{tool}: {many(errors, 'error')}, the first{died}: {first}"
    return report, summary, done.output


def _unfinished(tool: str, failure: Outcome, lines: list[str], output: str) -> Outcome:
    """The outcome if the worker failed and the tool printed no errors."""
    why = unavailable_reason(lines)
    if why is not None and failure.status != "timeout":
        return Outcome(
            "unavailable",
            f"compute-sanitizer: {why}; use a machine whose card and driver it supports",
            output=output,
        )
    printed = printed_by_program(lines) if failure.status == "crashed" else []
    return replace(
        failure,
        message=f"{tool}: {failure.message}",
        error=printed[-1] if printed else failure.error,
    )
