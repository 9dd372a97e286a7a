"""What runs measured of a kernel: its times beside its peers', over size, over time, by variant.

Cases are told by case set. Of each set and machine the newest quiet run counts, and what passed in
that very run stands beside its times. Of a noisy run times are told, and no ratio of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import NamedTuple

from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.figures import (
    benchmark,
    build,
    instant,
    many,
    noise_reason,
    share_of_ceiling,
    significant,
    validation,
)
from kbtool.markdown.markup import bullets, chip, heading, join, muted, nothing, nowrap, slim_table
from kbtool.markdown.plot import Axis, Mark, Point, Row, Series, plot, rows, timed
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.run import Run
from kbtool.runner.words import not_reached
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.benchmark import ceiling
from kbtool.site.pages.run import commands
from kbtool.site.parts import compare_link, folded, newer_noisy, no_ratio

_MOST_POINTS = 400
"""In one chart; with more, peers other than the baseline are left to the table."""


_MOST_RUNS = 40
"""In a history: more would be a column of figures that nobody reads."""

_UNSAID = "the run did not time it"

OLDER = "older than the sources"
"""Said of a run that built other sources than the tree has now."""


class Machine(NamedTuple):
    """What figures are compared on: a target on a card, or on a processor and so many threads."""

    target: str
    name: str

    @property
    def anchor(self) -> str:
        """The anchor of its heading."""
        return f"results.{at.fragment(f'{self.target}.{self.name}')}"


class Group(NamedTuple):
    """The cases of one case set, as one run timed them."""

    case_set: str
    title: str
    run: Run
    result: BenchmarkResult
    cases: list[BenchmarkCase]

    @property
    def key(self) -> tuple[str, frozenset[str]]:
        """What makes two groups comparable: the very same cases."""
        return self.case_set, frozenset(case.name for case in self.cases)

    @property
    def label(self) -> str:
        """Its name in a chart."""
        return f"{self.title} ({many(len(self.cases), 'case')})"


def target_of(run: Run) -> str | None:
    """The target that a run built, ``None`` if it built none."""
    built = build(run)
    return built.target if built else None


def groups(index: Index, kernel: Kernel) -> dict[Machine, list[Group]]:
    """Every benchmark of a kernel by machine, both newest first."""
    names = {
        case_set: {str(case["name"]) for case in kernel.cases(case_set)}
        for case_set in kernel.case_sets
    }
    found: dict[Machine, list[Group]] = {}
    for run in index.runs_of(kernel=kernel.id):
        target, result = target_of(run), benchmark(run)
        if target is None or result is None:
            continue
        card = run.machine.card if target != "cpu" else None
        machine = Machine(target, card or f"{run.machine.cpu}, {result.threads} threads")
        found.setdefault(machine, []).extend(_groups(kernel, names, run, result))
    return {machine: every for machine, every in found.items() if every}


def _groups(
    kernel: Kernel, names: Mapping[str, set[str]], run: Run, result: BenchmarkResult
) -> list[Group]:
    """A benchmark's cases by case set. Older records do not name the set: it is the one that has
    all of the cases."""
    timed_names = {case.name for case in result.cases}
    only = next((name for name, known in names.items() if timed_names <= known), "")
    by_set: dict[str, list[BenchmarkCase]] = {}
    for case in result.cases:
        if case.refused is None and result.subject in case.arms:
            by_set.setdefault(case.case_set or only, []).append(case)
    return [
        Group(name, _title(kernel, name) or f"Cases of {run.recipe}", run, result, cases)
        for name, cases in by_set.items()
    ]


def _title(kernel: Kernel, case_set: str) -> str:
    return kernel.case_sets[case_set].title if case_set in kernel.case_sets else case_set


def results(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """A part a machine: against each peer, over size, and how to measure it again."""
    here = at.kernel_page(kernel.id)
    parts = []
    for machine, every in found.items():
        newest = newest_of_sets(every)
        peers = list(dict.fromkeys(peer for group in newest for peer in _peers(group)))
        parts += [
            heading(3, f"{inline(machine.name)}, {code(machine.target)}", machine.anchor),
            _against(index, every, newest, peers, here),
            _relative(machine, newest, peers),
            *_over_size(kernel, machine, newest, peers),
            _figures(newest),
            *_again(index, newest, here),
        ]
    return parts


def newest_of_sets(every: Iterable[Group]) -> list[Group]:
    """Of each case set the first group whose times prove something, else the first."""
    found: dict[str, Group] = {}
    for group in every:
        known = found.get(group.case_set)
        if known is None or (noise_reason(known.result) and not noise_reason(group.result)):
            found[group.case_set] = group
    return list(found.values())


def newer_than(every: Iterable[Group], told: Group) -> Group | None:
    """The first of the same case set, newest first, where ``told`` stands for it: a noisy one."""
    first = next(group for group in every if group.case_set == told.case_set)
    return None if first is told else first


def _peers(group: Group) -> list[str]:
    """The arms that are not the library's, the baseline first."""
    ours = {group.result.subject, *group.result.variants}
    arms = dict.fromkeys(
        [group.result.baseline, *(arm for case in group.cases for arm in case.arms)]
    )
    return [arm for arm in arms if arm not in ours]


class _Ratio(NamedTuple):
    """A peer's time ÷ ours over the cases of a group."""

    mean: float
    least: float
    most: float
    low: float
    """With the quartiles that make it least …"""
    high: float
    """… and most."""
    cases: int


def _ratio(group: Group, arm: str) -> _Ratio | None:
    """Over the cases that both were timed on and the arm was right on; ``None`` without any, and
    where no ratio is told."""
    return _ratio_over(group, _pairs(group, arm))


def _pairs(group: Group, arm: str) -> list[tuple[Timing, Timing]]:
    return [
        (case.arms[arm], case.arms[group.result.subject])
        for case in group.cases
        if arm in case.arms and (arm not in case.peers or case.peers[arm].passed)
    ]


def _ratio_over(group: Group, pairs: Sequence[tuple[Timing, Timing]]) -> _Ratio | None:
    if not pairs or noise_reason(group.result):
        return None
    ratios = [theirs.median_us / ours.median_us for theirs, ours in pairs]
    return _Ratio(
        geometric_mean(ratios),
        min(ratios),
        max(ratios),
        geometric_mean(theirs.low_us / ours.high_us for theirs, ours in pairs),
        geometric_mean(theirs.high_us / ours.low_us for theirs, ours in pairs),
        len(pairs),
    )


def against(group: Group, arm: str) -> str:
    """An arm's time ÷ ours in words, with the least and the most of the cases."""
    return _shown(group, _pairs(group, arm))


def speed(group: Group) -> float | None:
    """The baseline's time ÷ ours, geometric mean over the cases; ``None`` where none has both,
    and of a noisy run."""
    ratio = _ratio(group, group.result.baseline)
    return ratio.mean if ratio else None


def _shown(group: Group, pairs: Sequence[tuple[Timing, Timing]]) -> str:
    ratio, of = _ratio_over(group, pairs), len(group.cases)
    if ratio is None:
        return no_ratio(group.result) if pairs else ""
    spread = nowrap(f"{significant(ratio.least)}–{significant(ratio.most)}")
    part = f" <br>{ratio.cases} of {of} cases" if ratio.cases < of else ""
    return f"{significant(ratio.mean)} <br>{muted(spread + part)}"


def _shares(group: Group) -> list[float]:
    found = [share_of_ceiling(group.result, case) for case in group.cases]
    return [share for share in found if share is not None]


def _right(run: Run) -> str:
    """The cases that passed in the same run."""
    checked = validation(run)
    if checked is None:
        return "no data because the run has no validation"
    return nowrap(f"{checked.cases_passed} of {len(checked.cases)}{not_reached(checked)}")


def _against(
    index: Index,
    every: Sequence[Group],
    newest: Sequence[Group],
    peers: Sequence[str],
    here: str,
) -> str:
    lines = []
    for group in newest:
        shares, newer = _shares(group), newer_than(every, group)
        lines.append(
            [
                inline(group.title)
                + (f" {chip('noisy')}" if noise_reason(group.result) else "")
                + (f" <br>{muted(newer_noisy(index, newer.run, here))}" if newer else ""),
                str(len(group.cases)),
                _right(group.run),
                *(against(group, peer) for peer in peers),
                f"{significant(100 * median(shares))} %"
                + f" <br>{muted(f'up to {significant(100 * max(shares))} %')}"
                if shares
                else no_ratio(group.result),
            ]
        )
    header = [
        "Case set", "Timed", "Right in the same run",
        *(f"{inline(peer)} ÷ ours" for peer in peers), "Share of read ceiling",
    ]  # fmt: skip
    ours = sorted({group.result.subject for group in newest})
    return join(
        [
            "Time of each peer ÷ time of "
            + ", ".join(code(subject) for subject in ours)
            + ", geometric mean over the cases, least and most in small type: above 1 ours is"
            " faster.",
            slim_table(header, lines, range(1, len(header))),
            bullets([*_noisy(newest), *_missing(newest, peers)]),
        ]
    )


def _noisy(newest: Iterable[Group]) -> list[str]:
    """Why no ratio is told of a case set of which there is no quiet run."""
    return [
        f"{inline(group.title)}: no ratio because the run is {inline(noise)}"
        for group in newest
        if (noise := noise_reason(group.result))
    ]


def _missing(newest: Iterable[Group], peers: Sequence[str]) -> list[str]:
    """Why a peer has no figure, and where it was wrong: each reason once."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for group in newest:
        for case in group.cases:
            reasons = {
                arm: f"no data because {case.absent.get(arm, _UNSAID)}"
                for arm in peers
                if arm not in case.arms
            }
            reasons |= {arm: "wrong" for arm, out in case.peers.items() if not out.passed}
            for arm, why in reasons.items():
                counts = found.setdefault((arm, why), {})
                counts[group.title] = counts.get(group.title, 0) + 1
    return [
        f"{inline(arm)}, {inline(', '.join(f'{title} ({n})' for title, n in counts.items()))}:"
        f" {inline(why)}"
        for (arm, why), counts in found.items()
    ]


def _relative(machine: Machine, newest: Sequence[Group], peers: Sequence[str]) -> str:
    cases = []
    for group in newest:
        ratios = {peer: _ratio(group, peer) for peer in peers}
        marks = {
            peer: Mark(r.mean, f"{peer}: {significant(r.mean)} × our time", r.low, r.high)
            for peer, r in ratios.items()
            if r is not None
        }
        shares = _shares(group)
        if not shares:
            continue
        least = geometric_mean(shares)
        limit = Mark(least, f"read ceiling: {significant(least)} × our time")
        cases.append(Row(group.label, marks, limit))
    title = (
        f"Time of each peer against ours on {machine.name}, by case set, with the quartiles of"
        " both; the table above has the figures"
    )
    axis = Axis("time ÷ ours, log scale; right of 1 is slower than ours", "log2")
    return rows(title, axis, _arms(newest, peers), cases, 1.0)


def _arms(newest: Iterable[Group], peers: Iterable[str]) -> list[str]:
    """Ours, then peers: an order, so that an arm has one colour in every chart."""
    return list(dict.fromkeys([*(group.result.subject for group in newest), *peers]))


def _over_size(
    kernel: Kernel, machine: Machine, newest: Sequence[Group], peers: Sequence[str]
) -> list[str]:
    """Times over the bytes to move, and over the field of the cases that varies most: the keys of
    attention."""
    arms = _arms(newest, peers)
    if len(arms) * sum(len(group.cases) for group in newest) > _MOST_POINTS:
        arms = _arms(newest, [group.result.baseline for group in newest])
    cases = [case for group in newest for case in group.cases]
    rate = newest[0].result.read_gb_s * 1e3  # bytes a microsecond
    # A read of few bytes takes no time at all beside a launch: the line begins where it counts.
    least = min(timing.median_us for case in cases for timing in case.arms.values())
    first = max(min(case.bytes for case in cases), rate * least / 2)
    last = max(case.bytes for case in cases)
    limit = (
        (
            f"read ceiling, {significant(rate / 1e3)} GB/s",
            [(first, first / rate), (last, last / rate)],
        )
        if first < last
        else None
    )
    charts = [
        _over(
            f"the bytes that it has to move, on {machine.name}",
            Axis("least bytes to move, log scale", "log10"),
            [(case, float(case.bytes)) for case in cases],
            arms,
            limit,
        )
    ]
    field = _widest(cases)
    if field:
        known = kernel.case_fields.get(field)
        words = f"{field}, {known.help.rstrip('.').lower()}" if known and known.help else field
        axis = Axis(f"{words}, log scale", "log2")
        sized = [(case, float(case.case[field])) for case in cases if field in case.case]
        charts.append(_over(f"{words}, on {machine.name}", axis, sized, arms, None))
    return charts


def _widest(cases: Sequence[BenchmarkCase]) -> str | None:
    """The whole number of the cases whose largest value is most times the least, if any varies."""
    sizes: dict[str, list[int]] = {}
    for case in cases:
        for field, value in case.case.items():
            if isinstance(value, int) and value > 0:
                sizes.setdefault(field, []).append(value)
    spans = {field: max(values) / min(values) for field, values in sizes.items()}
    widest = max(spans, key=lambda field: spans[field], default=None)
    return widest if widest and spans[widest] > 1 else None


def _over(
    what: str,
    axis: Axis,
    sized: Sequence[tuple[BenchmarkCase, float]],
    arms: Sequence[str],
    limit: tuple[str, Sequence[tuple[float, float]]] | None,
) -> str:
    """The time of every arm over one size of the cases."""
    series = [
        Series(arm, [_point(arm, case, size) for case, size in sized if arm in case.arms])
        for arm in arms
    ]
    return plot(
        f"Time of a call over {what}, both on log scales, with quartiles; the figures are folded up"
        " below",
        axis,
        Axis("µs a call, log scale", "log10"),
        series,
        limit,
    )


def _point(arm: str, case: BenchmarkCase, size: float) -> Point:
    one = case.arms[arm]
    mark = timed(arm, one.median_us, one.low_us, one.high_us)
    return Point(size, mark.value, f"{case.name}, {mark.said}", mark.low, mark.high)


def _figures(newest: Sequence[Group]) -> str:
    """The figures of the charts, folded up."""
    lines = []
    apart = any(case.plain_us for group in newest for case in group.cases)
    for group in newest:
        for case in group.cases:
            one, best = case.arms[group.result.subject], group.result.best_peer(case)
            peer = group.result.best_peer(case, between=True)
            between = group.result.ratio_to_best(case, between=True)
            ratio, share = group.result.ratio_to_best(case), share_of_ceiling(group.result, case)
            needs, none = case.workspace_bytes.get(group.result.subject), no_ratio(group.result)
            lines.append(
                [
                    inline(case.name),
                    f"{case.bytes:,}",
                    f"{significant(one.median_us)}"
                    f" {muted(f'{significant(one.low_us)}–{significant(one.high_us)}')}",
                    f"{significant(ratio)} {muted(inline(best))}" if ratio else none,
                    *(
                        [f"{significant(between)} {muted(inline(peer))}" if between else ""]
                        if apart
                        else []
                    ),
                    f"{significant(100 * share)} %" if share else none,
                    f"{needs:,}" if needs is not None else "",
                ]
            )
    header = [
        "Case", "Least bytes", "Ours (µs)", "Best peer ÷ ours",
        *(["The same, between plain kernels"] if apart else []), "Share of read ceiling",
        "Workspace (bytes)",
    ]  # fmt: skip
    return folded("The figures, case by case", slim_table(header, lines, range(1, len(header))))


def _again(index: Index, newest: Sequence[Group], here: str) -> list[str]:
    """The runs that what is shown is from, each with the commands that measured it."""
    parts = []
    for run_id in dict.fromkeys(group.run.id for group in newest):
        of_run = [group for group in newest if group.run.id == run_id]
        run, subject = of_run[0].run, of_run[0].result.subject
        titles = inline(", ".join(group.title for group in of_run))
        comparison = compare_link("compare it", run.id, subject, here)
        changed = " and changes that no commit has" if run.repository.dirty else ""
        changed += f", {OLDER}" if index.is_older(run) else ""
        parts += [
            f"{titles}: run of {_run(index, run, here)}, commit {_commit(run)}{changed},"
            f" {comparison}. To measure it again:",
            block("\n".join(commands(run))),
        ]
    return parts


def history(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """A chart a machine: the speed against the baseline, quiet run by quiet run, the commits
    marked. The table below it has the noisy ones too."""
    here = at.kernel_page(kernel.id)
    parts = []
    for number, (machine, every) in enumerate(found.items(), 1):
        parts.append(
            heading(3, f"{inline(machine.name)}, {code(machine.target)}", f"history.{number}")
        )
        runs = list({group.run.id: group.run for group in reversed(every)}.values())[-_MOST_RUNS:]
        newest = {run.id for run in runs}
        shown = [group for group in every if group.run.id in newest]
        if len(shown) < len(every):
            everyone = at.link("the table of runs", at.RUNS, here)
            parts.append(f"The newest {_MOST_RUNS} runs; {everyone} has all.")
        noisy = {group.run.id for group in shown if noise_reason(group.result)}
        quiet = [run for run in runs if run.id not in noisy]
        if noisy:
            parts.append(f"Left out of the course: {many(len(noisy), 'noisy run')}.")
        if len(quiet) < 2:
            so_far = "one run" if not noisy else "one quiet run" if quiet else "no quiet run"
            parts.append(nothing(f"No course to show because {so_far} timed it so far."))
        else:
            parts.append(_course(machine, quiet, shown, here))
        parts.append(_runs(index, shown, here))
    return parts


def _course(machine: Machine, runs: Sequence[Run], every: Sequence[Group], here: str) -> str:
    places = {run.id: float(number) for number, run in enumerate(runs)}
    lines: dict[tuple[str, frozenset[str]], list[Point]] = {}
    labels: dict[tuple[str, frozenset[str]], str] = {}
    for group in reversed(every):
        ratio = _ratio(group, group.result.baseline)
        if ratio is None:
            continue
        said = (
            f"{group.label}, {instant(group.run.started)}, commit {_short_commit(group.run)}:"
            f" {significant(ratio.mean)} × the speed of {group.result.baseline}"
        )
        lines.setdefault(group.key, []).append(
            Point(
                places[group.run.id], ratio.mean, said, ratio.low, ratio.high,
                at.published(at.relative(_page(group.run), here)),
            )
        )  # fmt: skip
        labels[group.key] = group.label
    return plot(
        f"Speed against the baseline on {machine.name}, run by run, with the quartiles of both;"
        " the table below has the figures",
        Axis("runs, oldest first, by commit", names=_commit_names(runs, places)),
        Axis("baseline's time ÷ ours", "log2"),
        [Series(labels[key], points, joined=True) for key, points in lines.items()],
    )


def _commit_names(runs: Sequence[Run], places: Mapping[str, float]) -> dict[float, str]:
    return {places[run.id]: _short_commit(run) for run in runs}


def _runs(index: Index, every: Sequence[Group], here: str) -> str:
    lines = []
    for group in every:
        ours = geometric_mean(case.arms[group.result.subject].median_us for case in group.cases)
        lines.append(
            [
                _run(index, group.run, here),
                _commit(group.run),
                inline(group.label),
                against(group, group.result.baseline),
                significant(ours),
                _right(group.run),
            ]
        )
    header = [
        "Run", "Commit", "Cases", "Baseline ÷ ours", "Ours, geometric mean (µs)",
        "Right in the same run",
    ]  # fmt: skip
    return slim_table(header, lines, {3, 4})


def ladder(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """The variants of each target, simplest first, and what each is worth where it was timed."""
    here = at.kernel_page(kernel.id)
    parts: list[str] = []
    for name, target in kernel.targets.items():
        if len(target.variants) < 2:
            continue
        parts.append(heading(3, code(name), f"ladder.{at.fragment(name)}"))
        timed_here = [
            (machine, group)
            for machine, every in found.items()
            if machine.target == name
            for group in newest_of_sets(group for group in every if group.result.variants)
        ]
        for machine, group in timed_here:
            newer = newer_than((one for one in found[machine] if one.result.variants), group)
            parts.append(_rungs(index, kernel, machine, group, newer, here))
        if not timed_here:
            rungs = ", ".join(code(variant) for variant in target.variants)
            parts += [
                rungs,
                nothing("No figures because no run of this target timed its variants."),
            ]
    return parts


def _rungs(
    index: Index, kernel: Kernel, machine: Machine, group: Group, newer: Group | None, here: str
) -> str:
    target = kernel.targets[machine.target]
    order = [name for name in target.variants if name in group.result.variants]
    order += [name for name in group.result.variants if name not in order]
    checked = validation(group.run)
    lines = []
    for name in order:
        judged = [case.passed for case in checked.cases if case.variant == name] if checked else []
        spec = target.variants.get(name)
        lines.append(
            [
                code(name),
                ", ".join(map(inline, spec.architectures)) or "every" if spec else "",
                f"{sum(judged)} of {many(len(judged), 'case')}"
                if judged
                else "not tried by itself",
                _shown(group, _both(group, order[0], name)),
                _shown(group, _both(group, group.result.baseline, name)),
                _shown(group, _both(group, group.result.subject, name)),
                _workspace(group, name),
            ]
        )
    header = [
        "Variant", "Architectures", "Right in the same run", f"{code(order[0])} ÷ it",
        f"{inline(group.result.baseline)} ÷ it", "Default choice ÷ it", "Workspace (bytes)",
    ]  # fmt: skip
    cases = [
        Row(
            case.name,
            {
                arm: timed(arm, one.median_us, one.low_us, one.high_us)
                for arm in [group.result.baseline, *order]
                if (one := case.arms.get(arm)) is not None
            },
            ceiling(group.result, case),
        )
        for case in group.cases
    ]
    run = _run(index, group.run, here)
    age = f", {OLDER}" if index.is_older(group.run) else ""
    noise = f", {inline(why)}" if (why := noise_reason(group.result)) else ""
    noise += f"; {newer_noisy(index, newer.run, here)}" if newer else ""
    title = (
        f"Time of a call of each variant on {machine.name}, {group.title}, with quartiles;"
        " the page of the run has the figures"
    )
    return join(
        [
            f"{inline(group.label)} on {inline(machine.name)}, run of {run}, commit"
            f" {_commit(group.run)}{age}{noise}. Above 1 the variant is faster.",
            slim_table(header, lines, {3, 4, 5, 6}),
            rows(
                title,
                Axis("µs a call, log scale", "log10"),
                list(dict.fromkeys([group.result.subject, group.result.baseline, *order])),
                cases,
            ),
        ]
    )


def _workspace(group: Group, arm: str) -> str:
    """The memory that an arm needs beside inputs and outputs, least to most over the cases."""
    needs = [case.workspace_bytes[arm] for case in group.cases if arm in case.workspace_bytes]
    if not needs:
        return ""
    low, high = min(needs), max(needs)
    return f"{high:,}" if low == high else nowrap(f"{low:,}–{high:,}")


def _both(group: Group, slower: str, faster: str) -> list[tuple[Timing, Timing]]:
    """The times of one arm and of another, where both were timed."""
    return [
        (case.arms[slower], case.arms[faster])
        for case in group.cases
        if slower in case.arms and faster in case.arms
    ]


def _run(index: Index, run: Run, here: str) -> str:
    return nowrap(index.link(_page(run), here, instant(run.started)))


def _page(run: Run) -> str:
    return at.run_page(run.session, run.id)


def _short_commit(run: Run) -> str:
    if not run.repository.commit:
        return "unknown"
    return run.repository.commit[:7] + ("+" if run.repository.dirty else "")


def _commit(run: Run) -> str:
    return code(_short_commit(run))
