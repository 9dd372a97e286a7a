"""The step kind ``sanitise``: the built library under one tool of compute-sanitizer."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.sanitiser import ENVIRONMENT, OPTIONS, command, lacking, read
from kbtool.gpu.toolchain import find_sanitiser
from kbtool.model.recipe import SanitiseStep
from kbtool.model.run import SanitiseResult
from kbtool.steps.base import Context, Outcome, run_worker, worker_failure
from kbtool.steps.validate import library_request


class Sanitise:
    """Runs the operator without reference or clock: under these tools all is slow."""

    def plan(self, step: SanitiseStep, context: Context) -> list[str]:
        """The cases and the tool."""
        cases = context.chosen(step.case_sets, step.case)
        program, version = find_sanitiser()
        variants = "" if step.variants == "default" else f", variants {step.variants},"
        left_out = f", but for kernels with {step.exclude} in their names" if step.exclude else ""
        return [
            f"call the library once on each of {len(cases)} cases{variants} under"
            f" {program.name} {version}"
            f" --tool {' '.join([step.tool, *OPTIONS[step.tool]])}{left_out}",
            f"with {' '.join(f'{name}={value}' for name, value in ENVIRONMENT.items())}, so that"
            " each tensor is an allocation of its own",
        ]

    def run(self, step: SanitiseStep, context: Context) -> Outcome:
        """Failed if the tool reports an error."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        if context.plan.target != "cuda":
            return Outcome(
                "failed",
                f"compute-sanitizer watches kernels of a card; target {context.plan.target} has"
                " none: build the cuda target",
            )
        program, version = find_sanitiser()
        excluded = [name.strip() for name in step.exclude.split(",") if name.strip()]
        argv = command(str(program), step.tool, excluded)
        lines: list[str] = []
        cases = [
            (entry, variant)
            for variant in context.variants(step.variants)
            for entry in context.chosen(step.case_sets, step.case, variant)
        ]
        names = [
            f"{case_set}/{case['name']}" + (f" as {variant}" if variant else "")
            for (case_set, case), variant in cases
        ]
        ran = 0

        def on_line(line: str) -> None:
            lines.append(line)
            context.on_line(line)

        def on_event(progress: dict[str, Any]) -> None:
            nonlocal ran
            ran = progress["done"]
            context.on_progress(ran, len(names), names[ran - 1])

        event, done = run_worker(
            {
                **library_request(context.plan, context.built, context.manifest),
                "task": "run",
                "cases": [entry for entry, _ in cases],
                "of": [variant for _, variant in cases],
                "seed": context.seed,
                "threads": context.machine.cores,
            },
            context,
            under=argv,
            env=ENVIRONMENT,
            on_event=on_event,
            on_line=on_line,
        )
        failure = worker_failure(event, done, f"running under {step.tool}")
        errors, report = read(lines)
        if failure is not None and not errors:
            why = lacking(lines)
            if why is not None and failure.status != "timeout":
                return Outcome(
                    "unavailable",
                    f"compute-sanitizer: {why}; run it where it knows the card and the driver",
                    output=done.output,
                )
            return failure
        if errors is None:
            return Outcome("failed", f"{step.tool} ended without a summary", output=done.output)
        result = SanitiseResult(
            sha256=context.built.sha256,
            tool=step.tool,
            version=version,
            options=argv[3:],
            excluded=excluded,
            cases=names[:ran],
            errors=errors,
            report=report if errors else None,
        )
        if errors:
            first = (report or "").partition("\n")[0]
            died = f", which ended {names[ran]}" if ran < len(names) else ""
            return Outcome(
                "failed", f"{step.tool}: {errors} error{'s' * (errors > 1)}, the first{died}: {first}", result, report,
                done.output,
            )  # fmt: skip
        return Outcome("passed", f"{step.tool}: no errors in {ran} cases", result)
