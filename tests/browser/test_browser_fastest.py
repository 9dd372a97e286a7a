"""The form that looks a shape up answers as ``kbtool.ledger.fastest`` does."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import Served, Visit

from kbtool.ledger.fastest import nearest, why_none
from kbtool.model.twin import Answers, MeasuredSet, ProblemField
from kbtool.store.tree import KnowledgeBase

Open = Callable[..., Visit]

ROOT = Path(__file__).parents[2]
DRAWN = 200
NEAREST = """(questions) => questions.map(([machine, asked]) => ({
  nearest: kbFastest.nearest(machine, asked).map(one => [
    one.item.name, one.set.target, one.distance, one.apart, one.own, one.fastest]),
  never: kbFastest.never(machine, asked).map(field => field.name),
}))"""


@pytest.fixture(scope="module")
def answers(own: Served) -> Answers:
    return Answers.model_validate_json((own.out / "answers.json").read_text())


def of(answers: Answers, kernel: str) -> list[MeasuredSet]:
    return [one for one in answers.results if one.kernel == kernel]


def drawn(fields: list[ProblemField], start: dict[str, Any], choice: random.Random) -> Any:
    """The shape of a measured case, with some fields changed, as a user would."""
    asked = dict(start)
    for field in choice.sample(fields, choice.randint(0, 3)):
        if choice.random() < 0.5:
            asked[field.name] = choice.choice(field.values)
        elif field.type == "int":
            asked[field.name] = choice.randint(0, 100_000)
        elif field.type == "float":
            asked[field.name] = choice.uniform(0, 10)
    return asked


def opened(seen: Visit, base: str, kernel: str, state: str = "") -> None:
    seen.goto("about:blank")
    seen.goto(f"{base}/kernels/{kernel}/fastest.html{state}")
    seen.page.locator("#kb-fastest .kb-verdict").wait_for()


def verdict(seen: Visit) -> str:
    text: str = seen.page.locator("#kb-fastest .kb-verdict").inner_text()
    return text


@pytest.mark.parametrize("kernel", ["split_k_attention", "split_k_gemm"])
def test_it_finds_the_same_cases_for_drawn_shapes(
    own: Served, visit: Open, answers: Answers, kernel: str
) -> None:
    choice = random.Random(7)
    results, fields = of(answers, kernel), answers.fields[kernel]
    cases = [(one.machine, case.case) for one in results for case in one.cases if case.current]
    questions = [
        (machine, drawn(fields, case, choice)) for machine, case in choice.choices(cases, k=DRAWN)
    ]
    seen = visit(own.http)
    opened(seen, own.http, kernel)
    told = seen.page.evaluate(NEAREST, json.loads(json.dumps(questions)))
    answered = 0
    for (machine, asked), one in zip(questions, told, strict=True):
        found = nearest(fields, results, machine, asked)
        answered += bool(found)
        assert one["nearest"] == [
            [each.case.name, each.of.target, each.distance, each.apart, each.own, each.fastest]
            for each in found
        ], asked
        if not found:
            why = why_none(fields, results, machine, asked)
            named = why.removeprefix("no case with ")
            lacking = [] if "together" in named else [p.split("=")[0] for p in named.split(", ")]
            assert one["never"] == lacking, asked
    assert DRAWN / 4 < answered < DRAWN


def test_fields_that_most_shapes_do_without_are_folded_until_one_is_asked_for(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http)
    opened(seen, own.http, "split_k_attention")
    more = seen.page.locator("#kb-fastest details", has_text="More fields")
    pages = more.get_by_label("page_size")
    assert "page_size" in more.locator("summary").inner_text() and not pages.is_visible()
    assert seen.page.locator("#kb-fastest form").get_by_label("Skv").is_visible()
    more.locator("summary").click()
    pages.fill("16")
    opened(seen, own.http, "split_k_attention", seen.page.evaluate("location.hash"))
    assert pages.is_visible() and pages.input_value() == "16"


@pytest.mark.parametrize("way", ["http", "file"])
def test_the_form_asks_and_the_address_keeps_what_was_asked(
    own: Served, visit: Open, answers: Answers, way: str
) -> None:
    base, kernel = own.bases()[way], "split_k_gemm"
    results, fields = of(answers, kernel), answers.fields[kernel]
    seen = visit(base)
    opened(seen, base, kernel)
    assert verdict(seen).startswith("Measured: ")
    for name, value in (("M", 4), ("N", 4096), ("K", 5000)):
        seen.page.locator(f"#kb-fastest input[list='kb-measured-{name}']").fill(str(value))
    machine = seen.page.get_by_label("Machine").input_value()
    dtype = seen.page.locator("#kb-fastest label", has_text="dtype").locator("select").input_value()
    asked = {"M": 4, "N": 4096, "K": 5000, "dtype": dtype}
    first = nearest(fields, results, machine, asked)[0]
    assert verdict(seen).startswith("Not measured. The nearest measured case is 1.22 × away (K ")
    shown = seen.page.locator("#kb-fastest table").first.locator("tbody tr")
    assert shown.count() == len(first.case.arms)
    assert shown.first.locator("th").inner_text().startswith(first.fastest)
    told = KnowledgeBase(ROOT).kernels[kernel].record.implementations[first.fastest]
    assert shown.first.locator(".kb-meaning").inner_text() == told
    labels = seen.page.locator("#kb-fastest label span").all_inner_texts()
    assert all(name.partition(" ")[2] for name in labels if name != "Machine")
    commands = seen.page.locator("#kb-fastest pre").first.inner_text()
    assert commands == "\n".join(first.commands)
    assert "kbtool run-recipe" in commands
    again = visit(base)
    opened(again, base, kernel, seen.page.url.partition(".html")[2])
    assert verdict(again) == verdict(seen)
    run = again.page.locator("#kb-fastest table a").first
    run.click()
    id = again.page.locator("h1 + p code").inner_text()
    assert id == first.case.arms[first.fastest].run


def test_what_was_never_measured_and_what_is_no_size_is_said(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    opened(seen, own.http, "split_k_gemm")
    box = seen.page.locator("#kb-fastest input[list='kb-measured-M']")
    box.fill("1.5")
    assert verdict(seen) == "M has to be a whole number."
    box.fill("0")
    assert verdict(seen).startswith("No case with M 0 was measured on NVIDIA ")
    box.fill("3")
    assert verdict(seen).startswith("Not measured. ")


def test_a_shape_that_the_kernel_does_not_take_is_refused_as_by_the_command(
    own: Served, visit: Open, kbtool: Callable[..., Any]
) -> None:
    seen = visit(own.http)
    opened(seen, own.http, "split_k_attention")
    for changed in ({"H": 8, "Hkv": 3}, {"H": 8, "Hkv": 2, "D": 100_000}, {"D": 64, "B": -1}):
        for name, value in changed.items():
            seen.page.locator(f"#kb-fastest input[list='kb-measured-{name}']").fill(str(value))
        settings = [part for one in changed.items() for part in ("--set", "=".join(map(str, one)))]
        done = kbtool("fastest", "split_k_attention", *settings, root=own.out.parent)
        assert done.code == 2
        assert verdict(seen).rstrip(".") in done.err, (verdict(seen), done.err)


def test_a_case_and_the_chart_lead_to_each_other(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    opened(seen, own.http, "split_k_gemm", "#shape=M%3D16+N%3D4096+K%3D4096")
    told = verdict(seen)
    assert told.startswith("Measured: ")
    seen.page.get_by_role("link", name="This case and its neighbours as a chart").first.click()
    seen.page.wait_for_url("**/charts.html#*")
    seen.page.wait_for_function("window.kbChart")
    over = seen.page.locator("#kb-chart table thead th").first.inner_text()
    size = {"M": "16", "N": "4,096", "K": "4,096"}[over]
    seen.page.locator("#kb-chart table tbody th a", has_text=re.compile(f"^{size}$")).click()
    seen.page.wait_for_url("**/fastest.html#*")
    seen.page.locator("#kb-fastest .kb-verdict").wait_for()
    assert verdict(seen) == told


def test_it_works_by_keyboard_and_on_a_narrow_screen(own: Served, visit: Open) -> None:
    seen = visit(own.http, viewport={"width": 390, "height": 844})
    # A card: runs of this machine would change which one the page begins with.
    opened(seen, own.http, "split_k_attention", "#on=NVIDIA+H200")
    first = seen.page.get_by_label("Machine")
    first.focus()
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.getAttribute('list')") == "kb-measured-B"
    seen.page.keyboard.press("Control+A")
    seen.page.keyboard.type("3")
    assert "shape=B%3D3+" in seen.page.url
    assert re.search(r"\bB \d+, not 3\b", verdict(seen))
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_scripts_the_tables_are_there(own: Served, visit: Open) -> None:
    seen = visit(own.http, java_script_enabled=False)
    seen.page.goto(f"{own.http}/kernels/split_k_gemm/fastest.html")
    assert "needs JavaScript" in seen.page.locator("#kb-fastest").inner_text()
    seen.page.locator("details:has(table) > summary").first.click()
    assert seen.page.locator("details table tbody tr").first.is_visible()
