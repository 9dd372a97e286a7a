"""A tuning on the page of its run: each case with every setting that was timed."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import noise_reason, significant
from kbtool.markdown.markup import chip, facts, folded, join, no_ratio, nothing, slim_table, table
from kbtool.model.kinds.tune import TuneCase, TuneResult
from kbtool.steps.base import Links, not_reached


def page(result: TuneResult, links: Links) -> str:
    """The library's own choice and the best setting, then all times."""
    noise, none = noise_reason(result), no_ratio(result)
    better = sum(case.best != case.own for case in result.cases)
    rows = [
        [
            inline(case.name),
            inline(case.variant),
            none or significant(case.gain),
            code(case.own),
            _time(case, case.own),
            none or code(case.best),
            none or _time(case, case.best),
            inline(case.wrong or ""),
        ]
        for case in result.cases
    ]
    every = [
        [
            inline(case.name),
            ", ".join(
                f"{inline(name)}: {significant(timing.median_us)}"
                for name, timing in case.settings.items()
            ),
        ]
        for case in result.cases
    ]
    setting = inline(result.setting)
    header = [
        "Case", "Variant", "Gain", f"Own {setting}", "µs", f"Best {setting}", "µs", "Wrong",
    ]  # fmt: skip
    return join(
        [
            facts(
                [
                    ("Cases", f"{len(result.cases)} timed{not_reached(result.not_reached)}"),
                    ("Another setting is faster", none or f"in {better}"),
                    ("Noise", chip("noisy") + " " + inline(noise) if noise else ""),
                    ("Written to", code(result.table) if result.table else ""),
                    ("Device", inline(result.device)),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            "Median, with the 25th and the 75th percentile in small type. The best setting is the"
            " fastest whose percentiles do not overlap those of the library's own choice. If the"
            " two were timed again, that must hold for the second times too, and those are shown.",
            slim_table(header, rows, {2, 4, 6}) if rows else nothing("No case was timed."),
            folded(
                f"Every {setting} of every case", table(["Case", f"{setting}: median µs"], every)
            )
            if every
            else None,
            f"How it was timed: {inline(result.protocol)}",
        ]
    )


def _time(case: TuneCase, setting: str) -> str:
    timing = case.times[setting]
    low, high = significant(timing.low_us), significant(timing.high_us)
    return f"{significant(timing.median_us)} <small>{low}–{high}</small>"
