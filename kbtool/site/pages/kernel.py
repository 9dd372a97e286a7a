"""The table of kernels, and the page of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbtool.model.kernel import CaseSet, Kernel, Target
from kbtool.model.run import BuildResult, Run
from kbtool.site import addresses as at
from kbtool.site.escape import code, inline
from kbtool.site.figures import (
    benchmark,
    cases_passed,
    instant,
    ratios_of,
    span,
    validation,
    worst_error,
)
from kbtool.site.figures import significant as figure
from kbtool.site.index import Index
from kbtool.site.markup import facts, heading, join, nothing, slim_table, table
from kbtool.site.parts import backlinks, crumb, optional, page_title, section, yes_no
from kbtool.site.prose import rendered
from kbtool.site.quoted import in_html
from kbtool.store.prose import readme


def listing(index: Index) -> str:
    """Every kernel, with its newest run."""
    if not index.kernels:
        return join([page_title("Kernels"), nothing(
            "There are no kernels yet: a kernel is a folder under `kernels/` with a `kernel.yaml`."
        )])  # fmt: skip
    rows = []
    for kernel in index.kernels.values():
        runs = index.runs_of(kernel=kernel.id)
        newest = (
            index.link(at.run_page(runs[0].session, runs[0].id), at.KERNELS, code(runs[0].id))
            if runs
            else "never run"
        )
        rows.append(
            [
                index.link(at.kernel_page(kernel.id), at.KERNELS),
                inline(kernel.summary),
                ", ".join(code(target) for target in kernel.targets),
                str(sum(len(kernel.cases(name)) for name in kernel.case_sets)),
                newest,
            ]
        )
    header = ["Kernel", "What it computes", "Targets", "Cases", "Newest run"]
    return join([page_title("Kernels"), table(header, rows, {3})])


def page(index: Index, kernel: Kernel) -> str:
    """One kernel: what it is, what its last runs found, its manifest."""
    here = at.kernel_page(kernel.id)
    recipes = [name for name, (_, recipe) in index.recipes.items() if recipe.kernel == kernel.id]
    text = readme(index.base, kernel.id)
    return join(
        [
            page_title(inline(kernel.title)),
            crumb(here, at.KERNELS, "Kernels", kernel.id, index.base.kernels[kernel.id].path),
            inline(kernel.summary),
            facts(
                [
                    ("Kernel", code(kernel.id)),
                    ("Operators", code(f"torch.ops.{kernel.namespace}")),
                    ("Targets", ", ".join(code(target) for target in kernel.targets)),
                    (
                        "Recipes",
                        ", ".join(
                            index.link(at.recipe_page(name), here, inline(name))
                            for name in recipes
                        ),
                    ),
                    ("Harness", code(kernel.harness)),
                ]
            ),
            section("Results", "results", *_results(index, kernel, here)),
            section(
                "About", "about",
                rendered(text, "about", 3, in_html(index, None, here)) if text
                else nothing("The kernel's folder has no README.md."),
            ),
            section("Targets", "targets", _targets(kernel)),
            section("Case sets", "case-sets", *_case_sets(kernel)),
            section("Case fields", "case-fields", _fields(kernel)),
            backlinks(index, here),
        ]
    )  # fmt: skip


def target_of(run: Run) -> str | None:
    """The target that a run built, ``None`` if it built none."""
    for step in run.steps:
        if isinstance(step.result, BuildResult):
            return step.result.target
    return None


def _results(index: Index, kernel: Kernel, here: str) -> list[str]:
    runs = index.runs_of(kernel=kernel.id)
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        target = target_of(run)
        if target:
            machine = run.machine.card if target != "cpu" and run.machine.card else run.machine.cpu
            groups.setdefault((target, machine), []).append(run)
    rows = [
        [code(target), inline(machine), *_latest(index, group, here)]
        for (target, machine), group in sorted(groups.items())
    ]
    missing = sorted(set(kernel.targets) - {target for target, _ in groups})
    why = "no run in this knowledge base built it" if runs else "the kernel was never run here"
    header = ["Target", "Machine", "Validation of the newest library", "Newest benchmark"]
    return [
        table(header, rows) if rows else "",
        *(f"Target {code(target)}: no data because {why}." for target in missing),
    ]


def _latest(index: Index, runs: Sequence[Run], here: str) -> tuple[str, str]:
    """Of runs, newest first: the widest validation of the newest library, and the newest
    benchmark. A run that profiles validates a few cases of a library that others tried in full."""
    tried = [(run, result) for run in runs if (result := validation(run))]
    checked = max(
        (pair for pair in tried if pair[1].sha256 == tried[0][1].sha256),
        key=lambda pair: len(pair[1].cases),
        default=None,
    )
    timed = next(((run, bench) for run in runs if (bench := benchmark(run))), None)
    left, right = f"no data because {_why(runs[0], 'validate')}", ""
    if checked:
        run, tested = checked
        worst = worst_error(tested)
        share = f", worst error {figure(worst)} of its bound" if worst is not None else ""
        left = f"{_run(index, run, here)}: {cases_passed(tested)}{share}"
    if timed:
        run, measured = timed
        ratios = ratios_of(measured)
        speed = f"{span(ratios)} × {inline(measured.baseline)}" if ratios else "no ratio"
        right = f"{_run(index, run, here)}: {speed}"
    else:
        right = f"no data because {_why(runs[0], 'benchmark')}"
    return left, right


def _run(index: Index, run: Run, here: str) -> str:
    return index.link(at.run_page(run.session, run.id), here, instant(run.started))


def _why(run: Run, kind: str) -> str:
    for step in run.steps:
        if step.kind == kind and step.status != "passed":
            said = f": {inline(step.message)}" if step.message else ""
            return f"the step of the newest run is {inline(step.status)}{said}"
    return f"no run had a {kind} step"


def _targets(kernel: Kernel) -> str:
    rows = [
        [
            code(name),
            _sources(target),
            ", ".join(code(header) for header in target.headers),
            code(" ".join([*target.flags, *target.cuda_flags, *target.link_flags]) or "none"),
            ", ".join(inline(architecture) for architecture in target.architectures),
        ]
        for name, target in kernel.targets.items()
    ]
    return slim_table(["Target", "Sources", "Headers", "Flags", "Architectures"], rows)


def _sources(target: Target) -> str:
    groups = {"": target.sources, **target.architecture_sources}
    return "; ".join(
        (f"only for {inline(architecture)}: " if architecture else "")
        + ", ".join(code(source) for source in sources)
        for architecture, sources in groups.items()
    )


def _case_sets(kernel: Kernel) -> list[str]:
    shown = []
    for name, spec in kernel.case_sets.items():
        cases = kernel.cases(name)
        shown += [
            heading(3, f"{inline(spec.title)} ({code(name)})", f"case-sets.{name}"),
            optional(spec.about),
            _case_table(kernel, spec, cases),
        ]
    return shown


def _case_table(kernel: Kernel, spec: CaseSet, cases: Sequence[Mapping[str, object]]) -> str:
    fields = [
        field
        for field in kernel.case_fields
        if any(field in raw for raw in spec.cases) or field in spec.for_each
    ]
    rows = [[inline(case["name"]), *(_value(case[field]) for field in fields)] for case in cases]
    return slim_table(["Case", *map(inline, fields)], rows)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, list):
        return inline(", ".join(map(str, value)))
    return optional(value)


def _fields(kernel: Kernel) -> str:
    rows = [
        [
            code(name),
            inline(field.type),
            inline("may be absent" if field.default is None else field.default),
            ", ".join(code(choice) for choice in field.choices),
            inline(field.help),
        ]
        for name, field in kernel.case_fields.items()
    ]  # fmt: skip
    return slim_table(["Field", "Type", "Default", "Choices", "What it is"], rows)
