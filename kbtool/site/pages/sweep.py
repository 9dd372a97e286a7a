"""The page of a sweep: its matrix, the best by case, what it held and cost, what failed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kbtool.ledger.held import held
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import UNKNOWN, benchmark, instant, many, money, noise_reason, seconds
from kbtool.markdown.markup import chip, clipped, facts, join, slim_table, stacked_table
from kbtool.model.kernel import case_label
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.price import currency_of
from kbtool.model.run import Run
from kbtool.model.sweep import Cell, Sweep
from kbtool.model.words import listed
from kbtool.runner.words import headline
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import crumb, page_title, section, session_cell


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    for sweep in index.sweeps.values():
        yield Page(at.sweep_page(sweep.session, sweep.id), partial(page, index, sweep))


PAGES = Pages(_pages)


def listing(index: Index, session: str, here: str) -> str:
    """The sweeps of a session."""
    rows = [
        [
            index.link(at.sweep_page(session, one.id), here, code(one.id)),
            index.link(at.recipe_page(one.recipe), here, code(one.recipe)),
            chip(one.status),
            one.told,
        ]
        for one in index.sweeps.values()
        if one.session == session
    ]
    header = ["Sweep", "Recipe", "Status", "Cells"]
    return section("Sweeps", "sweeps", stacked_table(header, rows) if rows else None)


def page(index: Index, sweep: Sweep) -> str:
    """One sweep."""
    here = at.sweep_page(sweep.session, sweep.id)
    session = index.sessions.get(sweep.session)
    names = [axis.name for axis in sweep.axes]
    axes = [f"{code(axis.name)} ({many(len(axis.values), 'value')})" for axis in sweep.axes]
    path = f"sessions/{sweep.session}/sweeps/{sweep.id}.json"
    return join(
        [
            page_title(f"Sweep of {inline(sweep.recipe)} over {listed(map(inline, names))}"),
            crumb(here, at.RUNS, "Runs", sweep.id, path),
            facts(
                [
                    ("Status", chip(sweep.status)),
                    ("Recipe", index.link(at.recipe_page(sweep.recipe), here, code(sweep.recipe))),
                    ("Over", ", ".join(axes)),
                    ("Cells", sweep.told),
                    ("Session", session_cell(index, session, here) if session else ""),
                    ("Engine", inline(_engine(sweep))),
                    ("Began", instant(sweep.started)),
                    ("Ended", instant(sweep.ended) if sweep.ended else ""),
                ]
            ),
            section(
                "Cells",
                "cells",
                "Each cell is the recipe with one value of each parameter. Held: how long it"
                " occupied its machine, from its start to its end.",
                _matrix(index, sweep, here),
            ),
            section("Fastest by case", "fastest", _fastest(index, sweep, here)),
            section("Cards", "cards", _cards(index, sweep)),
            section("Attempts that failed", "failed", _failures(index, sweep, here)),
        ]
    )


def _engine(sweep: Sweep) -> str:
    told = [f"{name}={value}" for name, value in sweep.engine.options.items()]
    jobs = [f"{many(sweep.engine.jobs, 'job')} at once"] if sweep.engine.jobs else []
    where = "the machine that began it" if sweep.engine.name == "here" else sweep.engine.name
    return ", ".join([where, *jobs, *told])


def _names(sweep: Sweep) -> list[str]:
    """The parameters that set cells apart."""
    return [axis.name for axis in sweep.axes if axis.name != "commit"]


def _what(sweep: Sweep, cell: Cell) -> list[str]:
    values = [inline(cell.parameters.get(name, "")) for name in _names(sweep)]
    return [*values, code(cell.commit[:12]) if cell.commit else ""]


def _ran(index: Index, run: str | None, here: str) -> str:
    known = _record(index, run)
    return index.run_link(known, here) if known else ""


def _found(index: Index, cell: Cell) -> str:
    """What the run of a cell that did not pass found."""
    run = _record(index, cell.run) if cell.status != "passed" else None
    return headline(run) if run else ""


def _matrix(index: Index, sweep: Sweep, here: str) -> str:
    rows = []
    for cell in sweep.cells:
        last = cell.attempts[-1] if cell.attempts else None
        machine = last.machine if last and last.machine else None
        run = _ran(index, cell.run, here)
        rows.append([
            cell.id, *_what(sweep, cell), chip(cell.status),
            f"{run} (made before)" if cell.reused else run,
            inline(machine or ""),
            seconds(last.held_s) if last and last.held_s is not None else "",
            str(len(cell.attempts)) if len(cell.attempts) > 1 else "",
            inline(clipped(cell.message or _found(index, cell))),
        ])  # fmt: skip
    names = [*_names(sweep), "Commit"]
    header = ["Cell", *map(inline, names), "Status", "Run", "Machine", "Held", "Tries", "Why"]
    return stacked_table(header, rows, {0, len(names) + 4, len(names) + 5})


def _fastest(index: Index, sweep: Sweep, here: str) -> str | None:
    """For each case that counts, the cell with the least time of the kernel, of quiet runs."""
    found: dict[str, list[tuple[float, Cell]]] = {}
    for cell in sweep.cells:
        result = _times(index, cell)
        for case in result.cases if result else ():
            timing = case.arms.get(result.subject) if result else None
            if timing is not None and case.refused is None:
                label = case_label(case)
                if case.case_set:
                    label = f"{case.case_set} {label}"
                found.setdefault(label, []).append((timing.median_us, cell))
    rows = []
    for label, times in found.items():
        (best, cell), *others = sorted(times, key=lambda one: one[0])
        rows.append([
            inline(label), cell.id, *_what(sweep, cell), f"{best:,.1f}",
            f"{others[0][0] / best:.2f}" if others else "", str(len(times)),
            _ran(index, cell.run, here),
        ])  # fmt: skip
    if not rows:
        return None
    names = [*_names(sweep), "Commit"]
    header = ["Case", "Cell", *map(inline, names), "µs", "Next ÷ fastest", "Cells", "Run"]
    numbers = {1, len(names) + 2, len(names) + 3, len(names) + 4}
    return join([
        "The least median time of the kernel in a cell whose benchmark counts. The times of"
            " cells are of different runs: a difference of a few per cent says nothing.",
        stacked_table(header, rows, numbers),
    ])  # fmt: skip


def _record(index: Index, run: str | None) -> Run | None:
    return next((runs[-1] for (_, id_), runs in index.runs.items() if id_ == run), None)


def _times(index: Index, cell: Cell) -> BenchmarkResult | None:
    if cell.status != "passed" or cell.run is None:
        return None
    run = _record(index, cell.run)
    result = benchmark(run) if run else None
    return result if result is not None and noise_reason(result) is None else None


def _cards(index: Index, sweep: Sweep) -> str | None:
    rows = []
    for one in held(index.base, sweep):
        price = one.price
        rows.append([
            inline(one.card), seconds(one.held_s), seconds(one.busy_s),
            f"{one.busy_s / one.held_s:.0%}" if one.held_s else "",
            inline(price.rate.text) if price else UNKNOWN,
            money(one.money, currency_of(price.rate)) if price else UNKNOWN,
        ])  # fmt: skip
    header = ["Card", "Held", "In steps", "Share", "Rate", "Cost, estimated"]
    return slim_table(header, rows, {1, 2, 3, 5}) if rows else None


def _failures(index: Index, sweep: Sweep, here: str) -> str | None:
    rows = [
        [
            cell.id, *_what(sweep, cell), str(number), chip(one.status), instant(one.queued),
            _ran(index, one.run, here), inline(clipped(one.message or "")),
        ]
        for cell in sweep.cells
        for number, one in enumerate(cell.attempts, 1)
        if one.ended is not None and one.status != "passed"
    ]  # fmt: skip
    names = [*_names(sweep), "Commit"]
    header = ["Cell", *map(inline, names), "Try", "Status", "Queued", "Run", "Why"]
    return stacked_table(header, rows, {0, len(names) + 1}) if rows else None
