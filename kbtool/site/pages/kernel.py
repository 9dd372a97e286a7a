"""The table of kernels, and the pages of each: one by topic."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kbtool.ledger.measured import Group, Machine, groups, target_of
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import (
    benchmark,
    build,
    many,
    noise_reason,
    validation,
    worst_error,
)
from kbtool.markdown.figures import significant as figure
from kbtool.markdown.markup import (
    chip,
    clipped,
    facts,
    join,
    nothing,
    stacked_table,
    table,
)
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.run import Run
from kbtool.runner.words import headline
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import source
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.charts import charts
from kbtool.site.pages.fastest import fastest
from kbtool.site.pages.history import history
from kbtool.site.pages.measured import beside_peers, results, verdict_line
from kbtool.site.pages.times import OLDER
from kbtool.site.pages.variants import ladder
from kbtool.site.parts import backlinks, crumb, newer_noisy, page_title, section
from kbtool.site.text.drawing import DrawingError, inlined
from kbtool.site.text.prose import rendered
from kbtool.site.text.quoted import files_beside, in_html
from kbtool.steps.validate.report import cases_passed
from kbtool.store.prose import design, readme
from kbtool.store.sources import kernel_file


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.KERNELS, partial(listing, index))
    for kernel in index.kernels.values():
        yield Page(at.kernel_page(kernel.id), partial(page, index, kernel))
        for topic in TOPICS:
            there = at.topic_page(kernel.id, topic.name)
            yield Page(there, partial(topic_page, index, kernel, topic))


PAGES = Pages(_pages, at.KERNELS, "Kernels")


_ENDED = frozenset(("passed", "noisy", "failed"))
"""How a run ends that came to its end."""
_MOST_RUNS = 40
"""The most rows in the table of the newest runs."""


def listing(index: Index) -> str:
    """Every kernel, with its newest run."""
    if not index.kernels:
        return join([page_title("Kernels"), nothing(
            "There are no kernels yet: a kernel is a folder under `kernels/` with a `kernel.yaml`."
        )])  # fmt: skip
    rows = []
    for kernel in index.kernels.values():
        runs = index.runs_of(kernel=kernel.id)
        newest = index.run_link(runs[0], at.KERNELS) if runs else "never run"
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
    return join([page_title("Kernels"), stacked_table(header, rows, {3})])


def page(index: Index, kernel: Kernel) -> str:
    """The first page of a kernel: how it stands beside its peers, and how to use it."""
    here = at.kernel_page(kernel.id)
    found = index.verdicts.get(kernel.id)
    text = readme(index.base, kernel.id)
    results = at.link("Results", at.topic_page(kernel.id, "results"), here)
    return join(
        [
            page_title(inline(kernel.title)),
            crumb(here, at.KERNELS, "Kernels", kernel.id, index.base.kernels[kernel.id].path),
            inline(kernel.summary),
            topics(kernel, here),
            section(
                "Beside its peers", "peers",
                *(
                    [verdict_line(kernel, found, here), *beside_peers(index, kernel, found)]
                    if found
                    else [nothing("No data because no quiet run timed it beside a peer.")]
                ),
                f"{results} has every machine, case set and element type, and the commands that"
                " measure them again.",
            ),
            section(
                "Use and limits", "about",
                _prose(index, kernel, text, here, "about") if text
                else nothing("The kernel's folder has no README.md."),
            ),
        ]
    )  # fmt: skip


class Topic(NamedTuple):
    """A page of a kernel beside its first."""

    name: str
    title: str
    had: str
    """The anchors, or the first words of them, that were on the kernel's page before."""
    body: Callable[[Index, Kernel], list[str]]


def topic_page(index: Index, kernel: Kernel, topic: Topic) -> str:
    """What there is to say of one topic."""
    here = at.topic_page(kernel.id, topic.name)
    return join(
        [
            page_title(f"{inline(kernel.title)}: {topic.title.lower()}"),
            topics(kernel, here),
            *topic.body(index, kernel),
        ]
    )


def topics(kernel: Kernel, here: str) -> str:
    """Links to the pages of a kernel. Old addresses of their sections lead on (``pages.js``)."""
    pages = [(inline(kernel.title), at.kernel_page(kernel.id), "peers about")]
    pages += [(one.title, at.topic_page(kernel.id, one.name), one.had) for one in TOPICS]
    pages.append(("Cases", at.cases_page(kernel.id), ""))
    links = (
        f"**{title}**" if there == here
        else f'{at.link(title, there, here)}{{ data-kb-had="{had}" }}'
        for title, there, had in pages
    )  # fmt: skip
    return (
        '<nav class="kb-topics" aria-label="Pages of this kernel" data-search-exclude'
        f' markdown="block">\n\n{" · ".join(links)}\n\n</nav>'
    )


def _times(index: Index, kernel: Kernel) -> dict[Machine, list[Group]]:
    return groups(index.runs_of(kernel=kernel.id), kernel)


def _every_result(index: Index, kernel: Kernel) -> list[str]:
    found = results(index, kernel, _times(index, kernel))
    return found or [nothing(f"No data because {_never_built(index, kernel)}.")]


def _history(index: Index, kernel: Kernel) -> list[str]:
    found = history(index, kernel, _times(index, kernel))
    return found or [nothing(f"No data because {_never_built(index, kernel)}.")]


def _variants(index: Index, kernel: Kernel) -> list[str]:
    found = ladder(index, kernel, _times(index, kernel))
    return found or [nothing("No target has more than one variant.")]


def _correctness(index: Index, kernel: Kernel) -> list[str]:
    here = at.topic_page(kernel.id, "correctness")
    return [
        section("Validation", "validation", *_validations(index, kernel, here)),
        section("Cases", "cases", _cases(kernel, here)),
        section("Newest runs", "results.newest", *_newest(index, kernel, here)),
    ]


def _about(index: Index, kernel: Kernel) -> list[str]:
    here = at.topic_page(kernel.id, "about")
    recipes = (
        index.link(at.recipe_page(name), here, inline(name))
        for name, (_, recipe) in index.recipes.items()
        if recipe.kernel == kernel.id
    )
    designed, files = design(index.base, kernel.id), source.texts(index, kernel)
    return [
        facts(
            [
                ("Kernel", code(kernel.id)),
                ("Operators", code(f"torch.ops.{kernel.namespace}")),
                ("Targets", ", ".join(code(target) for target in kernel.targets)),
                ("Recipes", ", ".join(recipes)),
                ("Harness", code(kernel.harness)),
            ]
        ),
        section("Design", "design", _prose(index, kernel, designed, here, "design"))
        if designed else "",
        section(
            "Files", "files",
            source.listing(files, kernel, here) if files
            else nothing("No file that the manifest names is in the kernel's folder."),
        ),
        backlinks(index, at.kernel_page(kernel.id), here),
    ]  # fmt: skip


TOPICS = (
    Topic("fastest", "Fastest for your shape", "fastest", fastest),
    Topic("charts", "Charts", "charts", charts),
    Topic("results", "Results", "results", _every_result),
    Topic("history", "History", "history", _history),
    Topic("variants", "Variants", "ladder", _variants),
    Topic("correctness", "Correctness", "results.newest cases", _correctness),
    Topic("about", "About", "design files mentioned", _about),
)
"""In the order in which they are listed; the page of the cases is :mod:`cases`."""


def _prose(index: Index, kernel: Kernel, text: str, here: str, prefix: str) -> str:
    """README.md or DESIGN.md without its title, with figures and files linked and drawings inline.

    Args:
        index: the records.
        kernel: the kernel that the text describes.
        text: the Markdown.
        here: the page that it is put into.
        prefix: the prefix of its headings' anchors.
    """
    elsewhere = files_beside(index, index.base.kernels[kernel.id].path, here)
    known = {path for paths in source.texts(index, kernel).values() for path in paths}

    def file(path: str) -> str | None:
        name = posixpath.normpath(path) if path else ""
        if name in known:
            return at.published(at.relative(at.source_page(kernel.id, name), here))
        return elsewhere(path)

    def drawing(path: str) -> str | None:
        found = kernel_file(index.base, kernel.id, path) if path.endswith(".svg") else None
        try:
            return inlined(found) if found is not None else None
        except DrawingError:
            return None

    link = index.terms.linker(here)
    titled = text.startswith("# ")
    level = 2 if titled else 3
    shown = link(rendered(text, prefix, level, in_html(index, None, here), file, drawing))
    return shown.partition("\n")[2] if titled else shown


def _never_built(index: Index, kernel: Kernel) -> str:
    """Why a target has no figures."""
    if index.runs_of(kernel=kernel.id):
        return "no run in this knowledge base built it"
    return "the kernel was never run here"


def _validations(index: Index, kernel: Kernel, here: str) -> list[str]:
    """The widest validation and the newest benchmark of each target and machine."""
    runs = index.runs_of(kernel=kernel.id)
    built: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if target_of(run):
            built.setdefault(_where(run), []).append(run)
    found = {where: (_checked(group), _timed(group)) for where, group in sorted(built.items())}
    shown = [run for pairs in found.values() for pair in pairs if pair for run in pair[:1]]
    same_age = _all_older(index, shown)
    rows = [
        [
            code(target),
            inline(machine),
            *_latest(index, built[target, machine], *pairs, here, with_age=not same_age),
        ]
        for (target, machine), pairs in found.items()
    ]
    checked = [pair[0] for pair, _ in found.values() if pair]
    newest = max(checked, key=lambda run: run.started, default=None)
    missing = sorted(set(kernel.targets) - {target for target, _ in built})
    why = _never_built(index, kernel)
    header = ["Target", "Machine", "Newest validation", "Newest benchmark"]
    return [
        f"The sources have changed since all of these{_of_commit(newest)}." if same_age else "",
        stacked_table(header, rows) if rows else "",
        *(f"Target {code(target)}: no data because {why}." for target in missing),
    ]


def _newest(index: Index, kernel: Kernel, here: str) -> list[str]:
    """By recipe, machine and settings: the newest finished run, and a newer one that did not
    finish."""
    found: dict[tuple[object, ...], list[Run]] = {}
    for run in index.runs_of(kernel=kernel.id):
        known = found.setdefault((run.recipe, *_where(run), tuple(_set(index, run))), [])
        if not known or (run.status in _ENDED and not any(r.status in _ENDED for r in known)):
            known.append(run)
    if not found:
        return []
    every = [run for group in found.values() for run in group]
    shown = sorted(every[:_MOST_RUNS], key=lambda run: run.source)
    same_age = _all_older(index, shown)
    lines = [
        [
            index.run_link(run, here),
            index.made_by(run, here),
            inline(clipped(", ".join(f"{name}={value}" for name, value in _set(index, run)), 100)),
            inline(_where(run)[1]),
            chip(run.outcome) + ("" if same_age else _age(index, run)),
            inline(clipped(headline(run))),
        ]
        for run in shown
    ]
    rest = f" The newest {len(shown)} of {len(every)}; {at.link('all runs', at.RUNS, here)}."
    return [
        "The newest run of each recipe, by its settings."
        + (rest if len(shown) < len(every) else "")
        + (" The sources have changed since all of these." if same_age else ""),
        stacked_table(["Run", "Recipe", "Set to", "Machine", "Status", "Result"], lines),
    ]


def _set(index: Index, run: Run) -> list[tuple[str, str]]:
    """The parameters that differ from the recipe's defaults and select what is run. Left out are
    numbers, which set how it is run (samples, seed), and the target, known from the build."""
    known = index.recipes[run.recipe][1].parameters if run.recipe in index.recipes else {}
    return sorted(
        (name, value)
        for name, value in run.parameters.items()
        if name != "target"
        and (
            name not in known
            or (known[name].type in {"str", "choice"} and value != known[name].default)
        )
    )


def _where(run: Run) -> tuple[str, str]:
    """The target that a run built, empty if none, and the card or the processor it is for."""
    target = target_of(run) or run.parameters.get("target", "")
    return target, run.machine.card if target != "cpu" and run.machine.card else run.machine.cpu


def _age(index: Index, run: Run) -> str:
    return f" {chip(OLDER)}" if index.is_older(run) else ""


def _all_older(index: Index, runs: Sequence[Run]) -> bool:
    """Whether each of these runs built other sources than the tree has: then it is said once."""
    return bool(runs) and all(map(index.is_older, runs))


def _of_commit(run: Run | None) -> str:
    """Which commit the newest validation checked; empty if nobody knows."""
    if run is None or run.repository.commit is None:
        return ""
    changes = " with changes" if run.repository.dirty else ""
    return f"; the newest validation checked commit {code(run.repository.commit[:8])}{changes}"


def _checked(runs: Sequence[Run]) -> tuple[Run, ValidationResult] | None:
    """From runs, newest first: the largest validation of the newest build. A run that profiles
    validates only a few cases."""
    tried = [(run, result) for run in runs if (result := validation(run))]
    return max(
        (pair for pair in tried if _same_sources(pair[0], tried[0][0])),
        key=lambda pair: len(pair[1].cases),
        default=None,
    )


def _timed(runs: Sequence[Run]) -> tuple[Run, BenchmarkResult, Run] | None:
    """From runs, newest first: the newest benchmark, preferably not noisy, and the run of the
    newest of all."""
    every = [(run, bench) for run in runs if (bench := benchmark(run))]
    quiet = [pair for pair in every if not noise_reason(pair[1])]
    return (*[*quiet, *every][0], every[0][0]) if every else None


def _latest(
    index: Index,
    runs: Sequence[Run],
    checked: tuple[Run, ValidationResult] | None,
    timed: tuple[Run, BenchmarkResult, Run] | None,
    here: str,
    *,
    with_age: bool,
) -> tuple[str, str]:
    """What was last validated and timed of one target on one machine."""

    def told(run: Run) -> str:
        return index.run_link(run, here) + (_age(index, run) if with_age else "")

    left = f"no data because {_why(runs[0], 'validate')}"
    right = f"no data because {_why(runs[0], 'benchmark')}"
    if checked:
        run, tested = checked
        worst = worst_error(tested)
        share = f", worst error {figure(worst)} of its bound" if worst is not None else ""
        left = f"{told(run)}: {cases_passed(tested)}{share}"
    if timed:
        run, bench, newest = timed
        noise = noise_reason(bench)
        right = f"{told(run)}: " + (
            f"– {inline(noise)}" if noise else f"{many(len(bench.cases), 'case')} timed"
        )
        right += f"; {newer_noisy(index, newest, here)}" if newest is not run else ""
    return left, right


def _same_sources(one: Run, other: Run) -> bool:
    """Whether two runs built the same sources for the same target, possibly one specialisation.

    Libraries of the same sources differ from build to build, so sources are compared. Runs that
    recorded no hashes of sources are compared by their libraries.
    """
    if one is other:
        return True
    first, second = build(one), build(other)
    if first is None or second is None:
        return False
    both = first.sources.keys() & second.sources.keys()
    if not both:
        return first.sha256 == second.sha256
    return all(first.sources[path] == second.sources[path] for path in both)


def _why(run: Run, kind: str) -> str:
    for step in run.steps:
        if step.kind == kind and step.outcome != "passed":
            message = f": {inline(step.message)}" if step.message else ""
            return f"the step of the newest run is {inline(step.outcome)}{message}"
    return f"no run had a {kind} step"


def _cases(kernel: Kernel, here: str) -> str:
    """How many cases each set has; the page of cases has them one by one."""
    rows = [
        [
            at.link(inline(spec.title), f"{at.cases_page(kernel.id)}#case-sets.{name}", here),
            code(name),
            str(len(kernel.cases(name))),
        ]
        for name, spec in kernel.case_sets.items()
    ]
    every = at.link("Targets, cases and their fields", at.cases_page(kernel.id), here)
    return join(
        [f"{every} have a page of their own.", table(["Case set", "Name", "Cases"], rows, {2})]
    )
