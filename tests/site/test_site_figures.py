"""Figures and findings in the words of a page."""

from __future__ import annotations

from html import unescape

import pytest
import site_trees as trees
from hypothesis import given
from hypothesis import strategies as st

from kbtool.markdown.escape import inline
from kbtool.markdown.figures import counted, figure, many
from kbtool.model.base import Instant, Quantity
from kbtool.model.kinds.profile import KernelLaunch, ProfileCase, ProfileResult
from kbtool.model.run import Run
from kbtool.model.words import significant
from kbtool.runner.words import headline
from kbtool.site.pages.run import RunLinks
from kbtool.steps.benchmark.report import span
from kbtool.steps.profile.page import page as profiled


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (1200, "1,200 cases")]
)
def test_a_count_of_one_is_singular(count: int, shown: str) -> None:
    assert many(count, "case") == shown


@pytest.mark.parametrize(
    ("stated", "shown"),
    [
        ("5..10 min", "5–10 min"), ("-1.6..-1.2 USD", "−1.6 to −1.2 USD"),
        (">=0 min", "≥ 0 min"), ("<= 3 USD", "≤ 3 USD"), ("<0.1", "<0.1"),
        ("~0.19", "~0.19"), ("1e-5 s", "1e-5 s"), ("60+ min", "60+ min"),
    ],
)  # fmt: skip
def test_a_range_has_a_dash_and_a_bound_its_sign(stated: str, shown: str) -> None:
    assert figure(Quantity(stated)) == shown == unescape(inline(Quantity(stated)))


def test_a_moment_has_its_zone_where_it_is_known() -> None:
    assert figure(Instant("2025-10-12T19:42Z")) == "2025-10-12 19:42 UTC"
    assert figure(Instant("2025-10-12T03:13-08:00")) == "2025-10-12 03:13 UTC-08:00"
    assert figure(Instant("2025-10-12T21:03")) == "2025-10-12 21:03"


@given(st.text())
def test_text_without_figures_is_unchanged(text: str) -> None:
    assert figure(text) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.9998, "1.00"), (9.996, "10.0"), (999.6, "1,000"), (0.9994, "0.999"), (-0.9998, "-1.00")],
)
def test_what_is_rounded_up_to_a_power_of_ten_has_three_digits(value: float, shown: str) -> None:
    assert significant(value) == shown


def test_a_whole_number_keeps_every_digit() -> None:
    assert counted(65535) == "65,535" and counted(2048.0) == "2,048" and counted(1.0) == "1"
    assert counted(63.94) == "63.9" and counted(float("inf")) == "inf"


def run(**of_step: object) -> Run:
    """A run that built, validated, and then did one step more."""
    record = trees.run("2025-01-01-s0", 1, "passed", trees.plain)
    kept = [step for step in record["steps"] if step["kind"] in {"build", "validate"}]
    last = {"id": "last", "title": "t", "expected_seconds": 5, "expected_from": "declared"}
    return Run.model_validate(
        {
            **record,
            "steps": [*kept, {**last, **of_step}],
            "status": of_step["status"],
        }
    )


def test_a_headline_tells_what_every_step_found() -> None:
    found = run(kind="profile", status="passed", message="bottleneck: bytes")
    assert headline(found) == "1 of 1 case passed; bottleneck: bytes"
    stopped = run(kind="benchmark", status="interrupted", message="its processes were stopped")
    assert headline(stopped) == "1 of 1 case passed; last: its processes were stopped"
    silent = run(kind="command", status="crashed")
    assert headline(silent) == "1 of 1 case passed; last: crashed"
    judged = trees.run("2025-01-01-s0", 1, "passed", trees.plain)["steps"]
    result = next(step["result"] for step in judged if step["kind"] == "mutants")
    result |= {"not_reached": 3}
    cut_off = run(kind="mutants", status="interrupted", message="interrupted", result=result)
    assert "1 of 1 bug put back was found; 3 not reached" in headline(cut_off)
    assert headline(cut_off).endswith("; interrupted")
    checked = next(step["result"] for step in judged if step["kind"] == "validate")
    checked |= {"not_reached": 2}
    late = run(kind="validate", status="timeout", message="stopped after 9 s", result=checked)
    assert headline(late) == "1 of 1 case passed; 2 not reached; stopped after 9 s"
    alone = run(kind="command", status="passed")
    alone = alone.model_copy(update={"steps": alone.steps[:1]})
    assert headline(alone) == "words about built"


def test_ratios_have_the_mean_that_their_step_reports() -> None:
    assert span([4.0, 1.0, 1.0]) == "1.00–4.00 (geometric mean 1.59)"
    assert span([2.0]) == "2.00"


def profile(*launches: dict[str, float]) -> str:
    case = ProfileCase(
        name="long", case={}, bottleneck="bytes", verdict="v", reasons=[],
        launches=[KernelLaunch(kernel="k", grid="1", block="1", metrics=m) for m in launches],
    )  # fmt: skip
    result = ProfileResult(sha256="0" * 64, arm="ours", profiler="p", protocol="q", cases=[case])
    return unescape(profiled(result, RunLinks(None, None, "runs/s/r.md")))


def test_metrics_are_told_in_full_and_those_alike_once() -> None:
    page = profile({"limit": 65535.0, "time": 7.944}, {"limit": 65535.0, "time": 8.0})
    assert "<summary>Metrics: 1</summary>" in page and "| 7.94 | 8 |" in page
    assert "Metrics equal in every launch: 1; the [JSON](r.json) has them." in page
    assert "| <code>limit</code> | 65,535 |" in profile({"limit": 65535.0})
    assert "alike" not in profile({"limit": 65535.0})
    assert "No metrics." in profile()
