"""The table of runs, and the page of each: what kbtool measured, and how to measure it again."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from statistics import geometric_mean

from kbtool.model.run import (
    BenchmarkCase,
    BenchmarkResult,
    BuildResult,
    CaseResult,
    CommandResult,
    EnvironmentResult,
    MinimiseResult,
    MutantsResult,
    ProfileResult,
    Run,
    SanitiseResult,
    StepRecord,
    Timing,
    TuneResult,
    ValidationResult,
)
from kbtool.site import addresses as at
from kbtool.site.escape import block, code, inline
from kbtool.site.figures import (
    cases_passed,
    headline,
    instant,
    not_reached,
    seconds,
    significant,
    worst_error,
)
from kbtool.site.index import Index
from kbtool.site.markup import (
    admonition,
    bullets,
    chip,
    facts,
    join,
    nothing,
    slim_table,
    table,
)
from kbtool.site.pages import debugging, mutants, tune
from kbtool.site.parts import (
    backlinks,
    compare_link,
    crumb,
    optional,
    page_title,
    section,
    session_cell,
    yes_no,
)
from kbtool.site.plot import Axis, Mark, Row, timed
from kbtool.site.plot import rows as rows_of_marks

_MOST_ROWS = 60
"""Cases in one chart."""


def listing(index: Index) -> str:
    """Every run, newest first."""
    runs = index.runs_of()
    body = rows(index, runs, at.RUNS) if runs else nothing(
        "No data because no recipe was run in this knowledge base."
    )  # fmt: skip
    return join([page_title("Runs"), body])


def rows(index: Index, runs: Sequence[Run], here: str) -> str:
    """A table of runs."""
    header = ["Run", "Recipe", "Session", "Machine", "Status", "Result"]
    return table(
        header,
        [
            [
                index.link(at.run_page(run.session, run.id), here, code(run.id)),
                index.link(at.recipe_page(run.recipe), here, inline(run.recipe)),
                _session(index, run, here),
                inline(run.machine.card or run.machine.cpu),
                chip(run.status),
                inline(headline(run)) or "–",
            ]
            for run in runs
        ],
    )


def _session(index: Index, run: Run, here: str) -> str:
    session = index.sessions.get(run.session)
    return session_cell(index, session, here) if session else inline(run.session)


def page(index: Index, attempts: Sequence[Run]) -> str:
    """One run. A resumed run has several attempts: the last is shown, the others are listed."""
    run = attempts[-1]
    here = at.run_page(run.session, run.id)
    pattern = index.patterns.get(run.pattern)
    return join(
        [
            page_title(f"Run {inline(run.id)}"),
            crumb(here, at.RUNS, "Runs", run.id),
            facts(
                [
                    ("Status", chip(run.status)),
                    ("Recipe", index.link(at.recipe_page(run.recipe), here, inline(run.recipe))),
                    ("Kernel", index.link(at.kernel_page(run.kernel), here) if run.kernel else ""),
                    ("Session", _session(index, run, here)),
                    ("Made in", code(run.taken_in.session) if run.taken_in else ""),
                    (
                        "Pattern",
                        index.link(at.pattern_page(run.pattern), here)
                        if pattern
                        else inline(run.pattern),
                    ),
                    ("Began", instant(run.started)),
                    ("Took", seconds((run.ended - run.started).total_seconds())),
                    ("Attempt", str(run.attempt) if run.attempt > 1 else ""),
                ]
            ),
            inline(headline(run)),
            "The record was written from the journal after kbtool was stopped."
            if run.recovered
            else None,
            section("Run it again", "again", _again(run)),
            section("Steps", "steps", _steps(index, run, here)),
            *_results(index, run, here),
            _machine(run),
            _attempts(attempts),
            backlinks(index, here),
        ]
    )


def commands(run: Run) -> list[str]:
    """What to type for such a run: the checkout, where the commit is known, and the recipe."""
    settings = [f"--set {quote(f'{name}={value}')}" for name, value in run.parameters.items()]
    lines = [" ".join([f"kbtool run-recipe {run.recipe}", *settings])]
    if run.repository.commit:
        lines.insert(0, f"git checkout {run.repository.commit}")
    return lines


def _again(run: Run) -> str:
    changed = (
        "\n\nThe work tree differed from the commit, so the commit alone does not give this run."
        if run.repository.dirty
        else ""
    )
    return block("\n".join(commands(run))) + changed


def _steps(index: Index, run: Run, here: str) -> str:
    shown = [
        [
            str(number),
            f"[{inline(step.title)}](#step-{number})" if _has_section(step) else inline(step.title),
            chip(step.status),
            seconds(step.seconds),
            f"{seconds(step.expected_seconds)} ({step.expected_from})",
            optional(step.message),
            ", ".join(index.link(at.pattern_page(p), here, inline(p)) for p in step.patterns),
        ]
        for number, step in enumerate(run.steps, 1)
    ]
    header = ["No.", "Step", "Status", "Took", "Expected", "Outcome", "Patterns that match"]
    return slim_table(header, shown, {0, 3, 4})


def _has_section(step: StepRecord) -> bool:
    return step.result is not None or bool(step.error)


def _results(index: Index, run: Run, here: str) -> list[str]:
    """A section a step that has something to show."""
    shown = []
    for number, step in enumerate(run.steps, 1):
        if not _has_section(step):
            continue
        parts: list[str | None] = [block(step.error) if step.error else None]
        match step.result:
            case ValidationResult():
                parts.append(_validation(step.result))
            case BenchmarkResult():
                parts += [_benchmark(step.result), _others(run, step.result, here)]
            case BuildResult():
                parts.append(_build(step.result))
            case MutantsResult():
                parts.append(mutants.found(index, step.result, here))
            case MinimiseResult():
                parts.append(debugging.minimised(step.result))
            case TuneResult():
                parts.append(tune.tuned(step.result))
            case ProfileResult():
                parts.append(debugging.profiled(step.result))
            case SanitiseResult():
                parts.append(debugging.sanitised(step.result))
            case CommandResult():
                parts.append(_command(step.result))
            case EnvironmentResult():
                parts.append(_environment(step.result))
            case None:
                pass
        shown.append(section(inline(step.title), f"step-{number}", *parts))
    return shown


def _validation(result: ValidationResult) -> str:
    worst = worst_error(result)
    lines = []
    for case in result.cases:
        share = _worst(case)
        error, bound = share if share else (None, None)
        lines.append(
            [
                inline(case.case_set),
                inline(case.name),
                inline(case.variant or "default"),
                chip("pass" if case.passed else "fail"),
                _float(error),
                _float(bound),
                significant(error / bound) if error is not None and bound else "",
                yes_no(case.repeatable),
                inline(case.message or "; ".join(
                    f"{name}: {output.message}"
                    for name, output in case.outputs.items() if output.message
                )),
            ]
        )  # fmt: skip
    header = [
        "Set", "Case", "Variant", "Verdict", "Worst error", "Bound", "Error ÷ bound",
        "Repeats bitwise", "Remark",
    ]  # fmt: skip
    return join(
        [
            facts(
                [
                    ("Verdict", chip("pass" if result.passed else "fail")),
                    ("Cases", cases_passed(result)),
                    ("Worst error ÷ bound", significant(worst) if worst is not None else "none"),
                    ("Device", inline(result.device)),
                    ("Seed", code(result.seed)),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            f"Rule: {inline(result.rule)}",
            slim_table(header, lines, {4, 5, 6}) if lines else nothing("No case was run."),
        ]
    )


def _worst(case: CaseResult) -> tuple[float, float] | None:
    outputs = [
        (output.error, output.bound)
        for output in case.outputs.values()
        if output.error is not None and output.bound is not None
    ]
    return max(outputs, key=lambda pair: pair[0] / (pair[1] or 1e-300), default=None)


def _float(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def _benchmark(result: BenchmarkResult) -> str:
    arms = list(dict.fromkeys(
        [result.subject, result.baseline, *(arm for case in result.cases for arm in case.arms)]
    ))  # fmt: skip
    lines, remarks = [], []
    for case in result.cases:
        times, share = result.ratio(case), result.share_of_ceiling(case)
        lines.append(
            [
                inline(case.name),
                *(_timing(case.arms.get(arm)) for arm in arms),
                significant(times) if times is not None else "",
                _against_best(result, case),
                f"{significant(100 * share)} %" if share is not None else "",
                chip("refused") if case.refused else yes_no(case.rechecked),
            ]
        )
        if case.refused:
            remarks.append(f"{inline(case.name)}: refused, {inline(case.refused)}")
        remarks += [
            f"{inline(case.name)}, {inline(arm)}: wrong, {inline(output.message or '')}"
            for arm, output in case.peers.items()
            if not output.passed
        ]
    remarks += [
        f"{inline(arm)}, {inline(cases)}: no data because {inline(why)}"
        for (arm, why), cases in _absent(result).items()
    ]
    header = [
        "Case", *(f"{inline(arm)} (µs)" for arm in arms),
        f"Speed against {inline(result.baseline)}", "Against the best peer",
        "Share of read ceiling", "Right after timing",
    ]  # fmt: skip
    return join(
        [
            facts(
                [
                    ("Cases", f"{len(result.cases)} timed{not_reached(result)}"),
                    ("Subject", inline(result.subject)),
                    ("Baseline", inline(result.baseline)),
                    ("Read ceiling", f"{significant(result.read_gb_s)} GB/s"),
                    ("Device", inline(result.device)),
                    ("Threads", str(result.threads)),
                    ("Noise", chip("noisy") + " " + inline(result.noise) if result.noise else ""),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            "Median, with the 25th and the 75th percentile in small type. Speed above 1 is faster"
            f" than {inline(result.baseline)}.",
            _plotted(result, arms),
            slim_table(header, lines, range(1, len(arms) + 4)) if lines else nothing(
                "No case was timed."
            ),
            _sets(result),
            bullets(remarks),
            _workspaces(result),
            f"Protocol: {inline(result.protocol)}",
        ]
    )  # fmt: skip


def _others(run: Run, result: BenchmarkResult, here: str) -> str | None:
    """Where an arm of the library is held against another arm, run or card."""
    timed_arms = {arm for case in result.cases for arm in case.arms}
    links = [
        compare_link(inline(arm), run.id, arm, here)
        for arm in (result.subject, *result.variants)
        if arm in timed_arms
    ]
    return f"Compare with other arms, runs and cards: {', '.join(links)}" if links else None


def _plotted(result: BenchmarkResult, arms: Sequence[str]) -> str:
    """A row a case: the time of every arm, and the least that the machine's memory allows."""
    cases = [
        Row(
            case.name,
            {
                arm: timed(arm, timing.median_us, timing.low_us, timing.high_us)
                for arm, timing in case.arms.items()
            },
            ceiling(result, case),
        )
        for case in result.cases
        if not case.refused
    ]
    drawn, left = cases[:_MOST_ROWS], len(cases[_MOST_ROWS:])
    device = f"on {result.device}" if result.device else ""
    title = f"Time of a call {device}, for each case and arm, with quartiles; the table has them"
    chart = rows_of_marks(title, Axis("µs a call, log scale", "log10"), arms, drawn)
    return chart + (f"\n\n{left} more cases are in the table alone." if left else "")


def ceiling(result: BenchmarkResult, case: BenchmarkCase) -> Mark:
    """The time in which the machine reads the case's least bytes."""
    least = case.bytes / result.read_gb_s / 1e3
    return Mark(least, f"read ceiling: {significant(least)} µs for {case.bytes:,} bytes")


def _sets(result: BenchmarkResult) -> str | None:
    """Each case set against the best peers of its cases."""
    lines = [
        [
            inline(name or "all"),
            *(significant(of(found)) for of in (geometric_mean, min, max)),
            str(len(found)),
        ]
        for name, found in result.by_set().items()
    ]
    header = ["Case set", "Best peer ÷ ours, geometric mean", "Least", "Most", "Cases"]
    return slim_table(header, lines, {1, 2, 3, 4}) if lines else None


def _against_best(result: BenchmarkResult, case: BenchmarkCase) -> str:
    best, value = result.best_peer(case), result.ratio_to_best(case)
    return f"{significant(value)} ({inline(best or '')})" if value is not None else ""


def _absent(result: BenchmarkResult) -> dict[tuple[str, str], str]:
    """Arm and why it was not timed → the cases, in words."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in result.cases:
        for arm, why in case.absent.items():
            found.setdefault((arm, why), []).append(case.name)
    return {
        key: "every case" if len(names) == len(result.cases) else "; ".join(names)
        for key, names in found.items()
    }


def _workspaces(result: BenchmarkResult) -> str | None:
    """Memory beside inputs and outputs, for the arms that run the library."""
    arms = [result.subject, *result.variants]
    rows = [
        [
            inline(case.name),
            *(f"{case.workspace_bytes[a]:,}" if a in case.workspace_bytes else "" for a in arms),
        ]
        for case in result.cases
        if case.workspace_bytes
    ]
    if not rows:
        return None
    header = ["Case", *(f"{inline(arm)} (bytes of workspace)" for arm in arms)]
    return slim_table(header, rows, range(1, len(arms) + 1))


def _timing(timing: Timing | None) -> str:
    if timing is None:
        return ""
    low, high = significant(timing.low_us), significant(timing.high_us)
    return f"{significant(timing.median_us)} <small>{low}–{high}</small>"


def _build(result: BuildResult) -> str:
    return facts(
        [
            ("Target", code(result.target)),
            ("Artifact", code(result.artifact)),
            ("Hash", code(result.sha256[:12])),
            ("Size", f"{result.bytes:,} bytes"),
            ("Compiler", inline(result.compiler)),
            ("Cache", _cache(result)),
            ("Flags", code(" ".join(result.flags)) if result.flags else ""),
        ]
    )


def _cache(result: BuildResult) -> str:
    if result.warm:
        return "was built before"
    return f"built now, {result.reused} objects from before" if result.reused else "built now"


def _command(result: CommandResult) -> str:
    produced = [f"{code(name)} {code(digest[:12])}" for name, digest in result.produced.items()]
    exit_code = "none: it was stopped" if result.exit_code is None else str(result.exit_code)
    return join(
        [
            block(" ".join(quote(part) for part in result.argv)),
            f"Exit status: {exit_code}",
            block(result.output_tail) if result.output_tail.strip() else nothing("No output."),
            bullets(produced),
        ]
    )


def _environment(result: EnvironmentResult) -> str:
    if not result.missing:
        return "Nothing is missing or too old."
    return bullets(inline(item) for item in result.missing)


def _machine(run: Run) -> str:
    lines = [
        [name.replace("_", " "), inline(value)]
        for name in type(run.machine).model_fields
        if (value := getattr(run.machine, name)) is not None
    ]
    state = run.repository
    if state.commit:
        lines.append(["commit", code(state.commit)])
    if state.branch:
        lines.append(["branch", code(state.branch)])
    if state.dirty is not None:
        lines.append(["work tree", "changed" if state.dirty else "clean"])
    box = None
    if state.changed_during_run:
        box = admonition("warning", "Changed", "The code changed while the run was under way.")
    return section("Machine and code", "machine", box, table(["What", "Value"], lines))


def _attempts(attempts: Sequence[Run]) -> str:
    if len(attempts) < 2:
        return ""
    lines = [
        [str(run.attempt), instant(run.started), chip(run.status), inline(headline(run)) or "–"]
        for run in attempts
    ]
    header = ["Attempt", "Began", "Status", "Result"]
    return section("Attempts", "attempts", table(header, lines, {0}))
