"""The site's search, on texts made for the tests and on this repository's records."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import Served, Visit

from kbtool.runner.index import index_of
from kbtool.site import addresses as at
from kbtool.site.feeds.words import place_of

Open = Callable[..., Visit]

TAG = re.compile(
    r"</?(a|b|br|code|details|div|em|h\d|li|mark|ol|p|pre|s(mall|pan|trong|vg)|t[dhr]|ul)\b"
)

ANSWERS = """([docs, queries]) => new Promise((done) => {
  const worker = new Worker("assets/search.js"), answers = [];
  worker.onmessage = ({ data }) => {
    if (data.type === 3) answers.push(data.data.items);
    if (answers.length === queries.length) { worker.terminate(); done(answers); }
    else worker.postMessage({ type: 2, data: queries[answers.length] });
  };
  worker.postMessage({ type: 0, data: { docs } });
})"""


def doc(location: str, title: str, text: str = "", tags: list[str] | None = None) -> dict[str, Any]:
    return {"location": location, "title": title, "text": text, **({"tags": tags} if tags else {})}


# None of these pages is one of a record of this repository, which the worker ranks first.
DOCS = [
    doc("bugs/index.html", "Bugs", "Split-K differs wrong at S=64 and a list of many others"),
    doc("bugs/b4.html", "Split-K differs from the reference"),
    doc("bugs/b4.html#symptom", "Symptom", "wrong at S=64"),
    doc("patterns/p8.html", "P08 Build", "one command", ["linker", "cuda"]),
    doc("patterns/p8.html#symptoms", "Symptoms", "an error says what is undefined", ["linker"]),
    doc("patterns/p8.html#steps", "Step times", "what it cost"),
    doc("patterns/p16.html", "P16 One remedy", "the latency of a launch"),
    doc("guide/words.html#latency-bound", "Latency-bound", "of small work"),
    *(doc(f"runs/{n}.html", f"Run {n}") for n in range(4)),
    *(doc(f"runs/{n}.html#evidence-for", "For", "nothing") for n in range(4)),
    *(doc(f"runs/{n}.html#evidence-against", "Against", "nothing") for n in range(4)),
    doc("adr/1.html#against", "What speaks against it", "it is slow"),
]


def answers(seen: Visit, base: str, *queries: str) -> list[list[list[dict[str, Any]]]]:
    seen.goto(f"{base}/index.html")
    found: list[list[list[dict[str, Any]]]] = seen.page.evaluate(ANSWERS, [DOCS, list(queries)])
    return found


def first(groups: list[list[dict[str, Any]]]) -> list[str]:
    """Where the best of each record is."""
    return [group[0]["location"] for group in groups]


def test_function_words_are_not_needed_but_where_there_are_no_others(
    own: Served, visit: Open
) -> None:
    asked, quoted, alone = answers(
        visit(own.http),
        own.http,
        "Cost of the linker error is what?",
        '"what is" error',
        "what is?",
    )
    assert first(asked) == ["patterns/p8.html"]
    assert asked[0][0]["terms"] == {"cost": True, "linker": True, "error": True}
    assert quoted[0][0]["terms"] == {"what is": True, "error": True}
    assert alone[0][0]["terms"] == {"what": True, "is": True}


@pytest.mark.parametrize("query", ["S>64", "S > 64", "s<=64", "S=64", "wrong for S>64"])
def test_a_comparison_is_found_whichever_its_sign(own: Served, visit: Open, query: str) -> None:
    (found,) = answers(visit(own.http), own.http, query)
    # Both say it; the bug says less else.
    assert first(found) == ["bugs/b4.html#symptom", "bugs/index.html"]
    assert "<mark>S=64</mark>" in found[0][0]["text"]


def test_one_part_of_a_compound_that_few_have_is_enough(own: Served, visit: Open) -> None:
    (found,) = answers(visit(own.http), own.http, "latency-bound")
    assert first(found) == ["guide/words.html#latency-bound", "patterns/p16.html"]


def test_quoted_words_are_searched_for_literally(own: Served, visit: Open) -> None:
    compound, sign, other = answers(
        visit(own.http), own.http, '"latency-bound"', '"S=64"', '"S>64"'
    )
    assert first(compound) == ["guide/words.html#latency-bound"]
    assert len(sign) == 2 and other == []


def test_headings_common_to_many_records_score_low(own: Served, visit: Open) -> None:
    for_, against = answers(visit(own.http), own.http, "for", "against")
    assert max(group[0]["score"] for group in for_) < 8
    assert first(against)[0] == "adr/1.html#against"


def test_sections_of_a_page_are_one_search_result(own: Served, visit: Open) -> None:
    found, none = answers(visit(own.http), own.http, "command cost", "command nowhere")
    assert [item["location"] for item in found[0]] == [
        "patterns/p8.html", "patterns/p8.html#steps",
    ]  # fmt: skip
    assert none[0][0]["terms"] == {"command": True, "nowhere": False}


def test_a_tag_is_the_pages_not_each_sections(own: Served, visit: Open) -> None:
    (found,) = answers(visit(own.http), own.http, "linker")
    assert [item["location"] for item in found[0]] == ["patterns/p8.html"]
    assert found[0][0]["tags"] == ["linker", "cuda"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("wrong for S>64", "/bugs/2025-10-12-n7d/bug-4.html"),
        ("what did the linker error cost", "/patterns/P12"),
        ("fastest decode H100", "/kernels/split_k_attention"),
        ("latency-bound", "/patterns/P"),
    ],
)
def test_queries_find_the_expected_records(
    own: Served, visit: Open, query: str, wanted: str
) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/runs/index.html")
    links = seen.ask(query).all()
    assert any(wanted in str(link.get_attribute("href")) for link in links)
    # Text of a record may have a "<", as name=<unknown>; a tag of HTML is none of its text.
    assert not [text for link in links if TAG.search(text := link.inner_text())]


QUESTIONS = [
    ("my CUDA extension compiles for 80 minutes", "symptoms/torch-extension/"),
    ("undefined symbol c10", "symptoms/torch-extension/"),
    ("NaN in the last tile", "bugs/2025-10-12-n7d/nan-fully-masked.html"),
    ("bug 4", "bugs/2025-10-12-n7d/bug-4.html"),
    ("FlashAttention-3", "guide/glossary.html#flash-attention"),
    ("split_k slow at 96", "bugs/2026-11-23-the-last-sources-on-a-card/part-of-a-bucket.html"),
    ("wrong for S>64", "bugs/2025-10-12-n7d/bug-4.html"),
    ("undefned symbl", "bugs/2025-10-12-n7a/split-k-undefined-symbol.html"),
]


@pytest.mark.parametrize("base", ["http", "file"])
def test_a_question_finds_its_page_among_the_first_three(
    own: Served, visit: Open, base: str
) -> None:
    address = own.bases()[base]
    seen = visit(address)
    seen.goto(f"{address}/index.html")
    for query, wanted in QUESTIONS:
        seen.ask(query)
        groups = seen.page.locator(".kb-search__item")
        found = [
            re.sub(r"\?h=[^#]*", "", str(link.get_attribute("href")))
            for n in range(3)
            for link in groups.nth(n).locator("a").all()
        ]
        assert any(wanted in href for href in found), (query, found)


RANKED = """(queries) => fetch("search/search_index.json").then(got => got.json()).then(index =>
  new Promise((done) => {
    const worker = new Worker("assets/search.js"), answers = [];
    worker.onmessage = ({ data }) => {
      if (data.type === 3)
        answers.push(data.data.items.map((group) => group[0].location.split("#")[0]));
      if (answers.length === queries.length) { worker.terminate(); done(answers); }
      else worker.postMessage({ type: 2, data: queries[answers.length] });
    };
    worker.postMessage({ type: 0, data: { docs: index.docs } });
  }))"""


def test_records_are_in_the_order_of_the_command(own: Served, visit: Open) -> None:
    index = index_of(Path(__file__).parents[2])
    drawn = random.Random(63)
    titles = drawn.sample([record.title for record, _ in index.words.documents()], 30)
    slips = [title.replace(title[len(title) // 2], "", 1) for title in titles[:10]]
    queries = [query for query, _ in QUESTIONS] + titles + slips
    queries = [query.replace('"', "") for query in queries]
    seen = visit(own.http)
    seen.goto(f"{own.http}/index.html")
    docs = json.loads((own.out / "search" / "search_index.json").read_text())["docs"]
    pages = {doc["location"].split("#")[0] for doc in docs}
    items = [record for record, _ in index.words.documents()]
    of_records = {at.published(place_of(item)).split("#")[0] for item in items}
    for query, answer in zip(queries, seen.page.evaluate(RANKED, queries), strict=True):
        ranked = (at.published(place_of(hit.item)).split("#")[0] for hit in index.ranked(query))
        wanted = [page for page in dict.fromkeys(ranked) if page in pages]
        if not wanted:  # such as words that every record has, or two without the space between them
            assert not of_records & set(answer), query
            continue
        titled = answer[: next((n for n, page in enumerate(answer) if page == wanted[0]), 0)]
        known = set(wanted)
        assert [page for page in answer if page in known] == wanted, query
        assert not known & set(titled)


def test_runs_come_after_records_but_for_their_own_name(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/index.html")
    run = next(iter(sorted((own.out / "runs").glob("*/2*.html")))).stem
    mutants, by_name = seen.page.evaluate(RANKED, ["mutants of packed queries", run])
    assert not any(page.startswith("runs/") for page in mutants[:10])
    assert by_name[0].endswith(f"{run}.html")


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desk", "phone"])
def test_the_search_is_worked_by_keys_and_by_touch(
    own: Served, visit: Open, size: tuple[int, int]
) -> None:
    seen = visit(own.http, viewport={"width": size[0], "height": size[1]}, has_touch=True)
    page = seen.page
    seen.goto(f"{own.http}/index.html")
    field, output = page.locator("[name=query]"), page.locator(".kb-search__output")
    focused = "document.activeElement.className.split(' ')[0] || document.activeElement.name"
    if size[0] < 960:
        assert not field.is_visible()
        page.locator(".md-header__button[for=__search]").tap()
    else:
        page.keyboard.press("s")
    assert page.evaluate("document.activeElement.name") == "query"
    links = seen.ask("undefined symbol")
    assert output.is_visible() and links.count() > 3
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "kb-search__link"
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.name") == "query"
    page.keyboard.press("Escape")
    assert not output.is_visible() and page.evaluate("document.activeElement === document.body")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "query" and output.is_visible()
    page.keyboard.press("Enter")  # the first result
    page.wait_for_url("**/*h=undefined+symbol*")
    marks = page.locator("article mark").all_inner_texts()
    assert {mark.lower() for mark in marks} >= {"undefined", "symbol"}


def test_a_word_of_a_title_is_completed_while_it_is_typed(hostile: Served, visit: Open) -> None:
    seen = visit(hostile.http)
    seen.goto(f"{hostile.http}/index.html")
    page, rest = seen.page, "document.querySelector('.kb-search__completed').textContent"
    field = page.locator("[name=query]")
    seen.ask("what regress")
    page.wait_for_function(f"{rest} === 'ions'")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")  # back to the end: not taken from within the word
    assert field.input_value() == "what regress"
    page.keyboard.press("ArrowRight")
    assert field.input_value() == "what regressions"
    page.wait_for_function(f"{rest} === ''")


def test_results_are_added_as_one_scrolls(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/index.html")
    seen.ask("kernel")
    groups = seen.page.locator(".kb-search__item")
    first = groups.count()
    assert int(seen.page.locator(".kb-search__meta").inner_text().split()[0]) > first > 0
    seen.page.locator(".kb-search__output").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    seen.page.wait_for_function(
        "n => document.querySelectorAll('.kb-search__item').length > n", arg=first
    )
    seen.page.keyboard.press("Control+A")
    seen.page.keyboard.insert_text("qzxqzx")
    seen.page.wait_for_function(
        "document.querySelector('.kb-search__meta').innerText === 'No page matches'"
    )
