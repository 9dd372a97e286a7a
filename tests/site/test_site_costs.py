"""The page of costs: charts that draw what the tables say, boxes, what counts once."""

from __future__ import annotations

import html
import json
import re
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pytest
import site_trees as trees
from hypothesis import given
from hypothesis import strategies as st
from knowledge import RUN, Knowledge, sealed
from site_trees import attack

from kbtool.markdown.chart import Bar, stacked
from kbtool.model.session import Session
from kbtool.site import addresses as at
from kbtool.site.feeds import twins
from kbtool.site.index import Index
from kbtool.site.pages import costs, home, session
from kbtool.site.sums import rollups, unstated
from kbtool.store.tree import KnowledgeBase

KINDS = ("gpu", "ai", "engineer", "other")
AMOUNT = st.decimals(min_value=0, max_value=100_000, places=2)
BARS = st.lists(
    st.builds(
        Bar,
        label=st.text(min_size=1, max_size=30),
        parts=st.dictionaries(st.sampled_from(KINDS), AMOUNT, max_size=4),
        unknown=st.sampled_from(["", "ai in 1"]),
        limit=st.none() | AMOUNT,
        running_total=st.none() | AMOUNT,
    ),
    min_size=1,
    max_size=8,
)


def drawn(chart: str) -> ElementTree.Element:
    assert "\n" not in chart  # Markdown must pass it on as one block
    (svg,) = ElementTree.fromstring(chart.replace(" data-search-exclude", "")).iter("svg")
    return svg


def test_heights_are_in_proportion_and_stand_on_each_other():
    two = {"gpu": Decimal(1), "ai": Decimal(3)}
    svg = drawn(stacked("t", [Bar("a", two), Bar("b", {"gpu": Decimal(2)})], "USD"))
    bars = [one for one in svg.iter("rect") if one.find("title") is not None]
    heights = {one.find("title").text: float(one.get("height")) for one in bars}
    assert heights["a: ai 3.00 USD"] == pytest.approx(3 * heights["a: gpu 1.00 USD"], abs=0.2)
    assert heights["b: gpu 2.00 USD"] == pytest.approx(2 * heights["a: gpu 1.00 USD"], abs=0.2)
    first, second = bars[:2]
    foot = float(second.get("y")) + float(second.get("height"))
    assert foot == pytest.approx(float(first.get("y")), abs=0.2)


@given(BARS)
def test_whatever_is_drawn_is_inside_the_chart(bars):
    svg = drawn(stacked("t", bars, "USD"))
    _, _, wide, high = map(float, svg.get("viewBox").split())
    for one in svg.iter():
        for axis, most in (("x", wide), ("y", high)):
            for name in (axis, f"{axis}1", f"{axis}2", f"c{axis}"):
                assert 0 <= float(one.get(name, 0)) <= most, (one.tag, one.attrib)
        if one.tag == "rect":
            assert float(one.get("y")) + float(one.get("height")) <= high
    known = [bar for bar in bars if bar.parts or not bar.unknown]
    assert len(list(svg.iter("circle"))) == sum(bar.running_total is not None for bar in known)
    for x, y, name in turned(svg):  # letters of 8, at 35 degrees
        assert x - 6.5 * len(name) >= 0 and y + 4.5 * len(name) <= high


def turned(svg: ElementTree.Element) -> list[tuple[float, float, str]]:
    """Where each name that is turned ends, and the name."""
    found = []
    for one in svg.iter("text"):
        place = re.match(r"translate\(([\d.]+) (\d+)\) rotate", one.get("transform", ""))
        if place:
            found.append((float(place[1]), float(place[2]), one.text or ""))
    return found


def names(labels: list[str]) -> list[str]:
    """What stands below the bars, line by line."""
    svg = drawn(stacked("t", [Bar(label, {"gpu": Decimal(1)}) for label in labels], "USD"))
    return [one.text or "" for one in svg.iter("text") if float(one.get("y", 300)) > 220]


def test_a_label_of_several_words_is_broken_into_lines():
    assert names(["H100 80GB HBM3", "H100 80GB HBM3, and H200 for the checks", "a", "b", "c"]) == [
        "H100 80GB HBM3", "H100 80GB HBM3,", "and H200 for the", "checks", "a", "b", "c",
    ]  # fmt: skip


def test_labels_with_the_same_beginning_are_shortened_in_the_middle():
    alike = [f"run-of-recipe-split-k-on-the-card{end}" for end in ("", "-2", "-3")]
    shown = names(["N"] * 10 + alike)
    assert shown[10:] == [
        "run-of-recip…on-the-card", "run-of-recip…-the-card-2", "run-of-recip…-the-card-3",
    ]  # fmt: skip


def test_horizontal_labels_leave_no_empty_space_below():
    def foot(label):
        svg = drawn(stacked("t", [Bar(label * n, {"gpu": Decimal(1)}) for n in (1, 1)], "USD"))
        return float(svg.get("viewBox").split()[3]) - max(
            float(one.get("y")) + float(one.get("height")) for one in svg.iter("rect")
        )

    assert foot("a") == 24

    long = drawn(stacked("t", [Bar("long-name", {"gpu": Decimal(1)})] * 20, "USD"))
    assert float(long.get("viewBox").split()[3]) > 260


def test_the_sum_so_far_is_dashed_where_nothing_is_known():
    known, unknown = {"gpu": Decimal(1)}, "gpu in 1"
    bars = [
        Bar("a", known, running_total=Decimal(1)),
        Bar("b", known, "ai in 1", running_total=Decimal(2)),
        Bar("c", {}, unknown, running_total=Decimal(2)),
        Bar("d", {}, unknown, running_total=Decimal(2)),
    ]
    svg = drawn(stacked("t", bars, "USD"))
    lines = [one.get("class", "") for one in svg.iter("polyline")]
    assert ["kb-unknown" in one for one in lines] == [False, True, True]
    assert {one.get("class") for one in svg.iter("line")} >= {"kb-sofar", "kb-sofar kb-unknown"}
    assert "nothing known" in [one.text for one in svg.iter("text")]
    said = [one.text for one in svg.iter("title") if "so far" in (one.text or "")]
    assert said == ["a: 1.00 USD so far", "b: 2.00 USD so far"]
    every = drawn(stacked("t", bars[:2], "USD"))
    assert "nothing known" not in [one.text for one in every.iter("text")]


def test_an_unknown_cost_is_drawn_as_a_mark_and_not_as_zero():
    svg = drawn(stacked("t", [Bar("a", {}, "gpu in 1"), Bar("b", {"ai": Decimal(1)})], "USD"))
    titles = [one.text for one in svg.iter("title")]
    assert titles == ["a: not known: gpu in 1", "b: ai 1.00 USD"]


def test_html_in_a_chart_label_is_escaped():
    chart = stacked(attack("t"), [Bar(attack("l"), {"gpu": Decimal(1)})], "USD")
    assert {one.tag for one in drawn(chart).iter()} <= {
        "svg", "line", "text", "rect", "title", "circle", "polyline",
    }  # fmt: skip
    assert "onerror=" not in chart and "<script" not in chart


def page(root: Path, ledger: dict | None = None) -> str:
    if ledger is not None:
        trees.put(root / "sessions" / "ledger.yaml", ledger)
    return costs.page(Index(KnowledgeBase(root)))


def test_the_page_of_costs_has_charts_and_budgets(tmp_path):
    root = trees.make(tmp_path / "base")
    for path in (root / "sessions").glob("*/session.yaml"):
        text = path.read_text().replace('"duration"', '"budget_time": "50 min", "duration"', 1)
        path.write_text(text)
    month = trees.session_id(0)[:7]
    made = page(root, {"budgets": [{"month": month, "money": "0.50 USD", "time": "3 h"}]})
    over_time = made.split("## Budgets")[0]
    # Over time, by month beside its box, by week; one kind, one card, one outcome are no chart.
    assert len(re.findall("<svg", made)) == 3
    assert over_time.count("<rect") == 3  # two sessions and the legend
    assert "0.70 USD so far" in over_time.replace("&#46;", ".")
    boxes = made.split("## Budgets")[1].split("\n## ")[0]
    assert boxes.count("| 50 min | 60 min | -10 min |") == 2
    assert f"| {month} | money | 0.50 USD | 0.70 USD | -0.20 USD |" in boxes
    assert f"| {month} | time | 180 min | 120 min | 60 min |" in boxes
    exceeded, kept = boxes.split("<summary>1 budget kept</summary>")
    assert (exceeded.count("exceeded</span>"), exceeded.count("kept</span>")) == (3, 0)
    assert (kept.count("exceeded</span>"), kept.count("kept</span>")) == (0, 1)
    assert boxes.count("| Session or month | Budget |") == 2
    by_month = made.split("## By month")[1].split("\n## ")[0]
    assert by_month.count("kb-limit") == 2  # the budget and its entry in the legend
    # Both sessions are of two patterns: the column adds up to what was spent once.
    by_pattern = made.split("## By pattern")[1].split("\n## ")[0]
    assert "| *minus what is in several rows* | 2 |" in by_pattern
    in_last = r"\| \**(-?[\d.]+) USD\** \| [^|]*\|$"
    amounts = [Decimal(amount) for amount in re.findall(in_last, by_pattern, re.M)]
    assert sum(amounts[:-1]) == amounts[-1] == Decimal("0.70")
    assert at.pattern_page("P01") in by_pattern
    by_engineer = made.split("## By engineer")[1].split("\n## ")[0]
    heads = re.findall(r"[\w ]+", by_engineer.split("\n| ---")[0].splitlines()[-1])
    assert [head.strip() for head in heads if head.strip()][:2] == ["By engineer", "Sessions"]


def test_costs_of_cards_that_no_record_states_are_marked_and_their_coverage_is_told(tmp_path):
    base = Knowledge(tmp_path / "base")
    rate = {"id": "h100", "kind": "gpu", "rate": "1.25 USD/h", "day": "2024-10-12", "card": "H100"}
    trees.put(base.root / "sessions" / "ledger.yaml", {"rates": [rate]})
    for name, card in (("a", "NVIDIA H100 80GB HBM3"), ("b", "NVIDIA H200")):
        base.session(f"2025-01-01-{name}")
        machine = {**RUN["machine"], "card": card}
        base.run(sealed({
            **RUN, "id": f"20250101T090000Z-{name}", "machine": machine, "attempt": 1,
            "session": f"2025-01-01-{name}", "ended": "2025-01-01T09:06:00Z",
        }))  # fmt: skip
    index = Index(KnowledgeBase(base.root))
    made = costs.page(index)
    assert "**0.13 USD, 1 of 2 sessions priced, GPU estimated for 1**" in made
    by_month = made.split("## By month")[1].split("\n## ")[0]
    assert by_month.count("1 of 2 |") == 1 and "**1 of 2**" in by_month
    first_page = home.page(index, None)
    assert "0.13 USD" in first_page and "1 of 2 sessions priced; GPU estimated for 1" in first_page
    known, unknown = map(html.unescape, (session.page(index, s) for s in index.sessions.values()))
    card = "NVIDIA H100 80GB HBM3"
    assert f"| gpu | 0.13 USD | estimated | 6 min | 1.25 USD/h | {card} |" in known
    assert "| gpu | unknown | estimated | 6 min | unknown | NVIDIA H200 |" in unknown
    assert "0.13 USD, GPU estimated" in session.listing(index)
    twins_ = [json.loads(twins.files(index)[f"sessions/2025-01-01-{name}.json"]) for name in "ab"]
    totals = [one["derived"]["totals"][0] for one in twins_]
    assert [(one["gpu"], one["gpu_estimated"]) for one in totals] == [("0.13", True), (None, False)]


def test_the_rates_are_linked_where_there_are_some(tmp_path):
    root = trees.make(tmp_path / "base")
    assert "](#rates)" not in page(root)
    rate = {"id": "l4", "kind": "gpu", "rate": "1 USD/h", "day": "2025-01-01", "card": "L4"}
    made = page(root, {"rates": [rate]})
    assert "](#rates)" in made and "{#rates}" in made


def test_many_sessions_are_drawn_by_month(tmp_path):
    made = page(trees.make(tmp_path / "base", sessions=40))
    assert "One bar per month" in made
    assert made.split("## By kind")[0].count("<rect") == 3  # two months and the legend


def test_what_is_stated_in_two_currencies_is_not_unstated() -> None:
    lines = [
        {"kind": kind, "amount": amount, "currency": currency, "basis": "billed"}
        for kind, amount, currency in (
            ("gpu", "1", "USD"), ("gpu", "2", "EUR"), ("ai", "3", "EUR"), ("ai", None, "USD"),
        )
    ]  # fmt: skip
    data = {"id": "2025-01-01-a", "label": "A", "title": "T", "origin": "person"}
    one = Session.model_validate({**data, "status": "complete", "costs": lines})
    assert unstated(one) == "ai, engineer"
    assert unstated(Session.model_validate({**data, "status": "planned"})) == ""


def test_sessions_without_a_date_stand_apart_from_the_months(tmp_path, monkeypatch):
    base = Knowledge(tmp_path / "base")
    cost = "duration: 60 min\ncosts: [{kind: gpu, amount: 1.00, basis: billed}]\n"
    for name in ("2025-01-01-a", "2025-01-02-b", "undated-c"):
        base.session(name, cost)
    index = Index(KnowledgeBase(base.root))
    (table,) = rollups(list(index.costs.sessions.values()), "month")
    bars = costs._set_apart([costs._bar(row, "month") for row in table.rows], table.rows, "month")
    assert [bar.label.partition(":")[0] for bar in bars] == ["2025-01", "", "undated"]
    monkeypatch.setattr(costs, "_MOST_BARS", 2)  # more sessions than that: months are drawn
    drawn = "".join(costs._over_time({"session": [table], "month": [table]}))
    assert "undated: 1 of 1 priced: gpu" in html.unescape(drawn)
    said = re.findall(r"<title>([^<]*so far)</title>", html.unescape(drawn))
    assert said == ["2025-01: 2 of 2 priced: 2.00 USD so far"]
