"""The page that compares runs, with two runs of known times."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import site_trees as trees
from browsing import Served, Visit, served

from kbtool.site.html.build import build

Open = Callable[..., Visit]

OLD, NEW = "20251121T101010Z-copy", "20251122T101010Z-copy"


def timing(median: float, spread: float = 0.1) -> dict[str, Any]:
    samples = [median - 2 * spread, median - spread, median, median + spread, median + 2 * spread]
    return {"samples_us": samples, "median_us": median, "low_us": samples[1],
            "high_us": samples[3], "calls_per_sample": 10}  # fmt: skip


def case(name: str, ours: dict[str, Any], theirs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "case_set": "quick", "case": {"S": 64, "dtype": "float16"},
            "arms": {"ours": ours, "theirs": theirs}, "bytes": 1, "flops": 1, "rechecked": True,
            **more}  # fmt: skip


def put_runs(root: Path) -> None:
    """A run on the processor; a newer one on a card, of other cases in part."""
    runs = root / "sessions" / trees.session_id(1) / "runs"
    old = json.loads((runs / "two.json").read_text())
    (runs / "one.json").unlink()
    old["attempt"] = 1
    bench = old["steps"][3]["result"]
    bench.update(subject="ours", baseline="theirs", device="cuda", sm_clocks_mhz=[1980, 1980])
    bench["cases"] = [
        case("S=64", timing(10), timing(20)),
        case("S=128", timing(10), timing(10.12)),
        case("gone", timing(10), timing(10)),
        case("other", timing(10), timing(10)),
        case("refused", timing(10), timing(30)),
    ]
    new = copy.deepcopy(old)
    new.update(id=NEW, started="2025-11-22T10:10:10Z", ended="2025-11-22T10:11:10Z")
    new["machine"]["card"] = "A <b>card</b>"
    bench = new["steps"][3]["result"]
    bench["sm_clocks_mhz"] = [1410, 1425, 1440]
    bench["cases"] = [
        case("S=64", timing(5), timing(20)),
        case("S=128", timing(40), timing(10)),
        case("S=256", timing(10), timing(10.12), case={"S": 256, "dtype": "bfloat16"}),
        case("other", timing(10), timing(10), case={"S": 32, "dtype": "float16"}),
        case("refused", timing(10), timing(30), refused="faster than the card can read"),
    ]
    for name, run in (("old.json", old), ("new.json", new)):
        del run["digest"]
        trees.put(runs / name, trees.sealed(run))
    (runs / "two.json").unlink()


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = trees.make(tmp_path_factory.mktemp("timed") / "kb")
    put_runs(root)
    build(root, root / "site")
    with served(root / "site") as site:
        yield site


def opened(seen: Visit, base: str, state: str = "") -> None:
    seen.goto("about:blank")
    seen.goto(f"{base}/compare.html{state}")
    seen.page.locator("#kb-compare h2, #kb-compare .admonition").first.wait_for()


def facts(seen: Visit) -> dict[str, str]:
    lines = [each.inner_text().split("\n") for each in seen.page.locator(".kb-facts p").all()]
    return {name.strip(): value for name, value in lines}


def rows(seen: Visit) -> list[list[str]]:
    table = seen.page.locator("#kb-compare table").first
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


@pytest.mark.parametrize("way", ["http", "file"])
def test_the_newest_run_is_compared_with_its_baseline(timed: Served, visit: Open, way: str) -> None:
    base = timed.bases()[way]
    seen = visit(base)
    opened(seen, base)
    assert f"#a={NEW}/theirs&b={NEW}/ours" in seen.page.url
    legends = seen.page.locator("#kb-compare legend").all_inner_texts()
    assert legends == ["A, the reference", "B, which is judged"]
    assert [(row[0], row[3], row[4]) for row in rows(seen)] == [
        ("words about set: S=64", "0.250", "faster"),
        ("words about set: S=128", "4.00", "slower"),
        ("words about set: S=256", "0.988", "same"),
        ("words about set: other", "1.00", "same"),
    ]
    said = (
        "B (ours) is slower than A (theirs) in 1 of 4 cases, by 300 %;"
        " faster in 1 of 4 cases, by 75 %; 1 missing"
    )
    assert seen.page.locator("#kb-answer").inner_text() == said
    assert facts(seen) == {
        "Cases compared": "4", "B slower": "1", "B faster": "1", "Same": "2",
        "Geometric mean, B ÷ A": "0.997", "Largest loss": "4.00 × at S=128",
        "Largest gain": "0.250 × at S=64",
    }  # fmt: skip
    assert "of one run" in seen.page.locator("#kb-compare").inner_text()
    assert "refused: faster than the card can read" in (
        seen.page.locator("#kb-compare").text_content() or ""
    )


@pytest.mark.parametrize("arm", ["ours", "theirs"])
def test_the_baseline_is_the_reference_of_what_a_link_names(
    timed: Served, visit: Open, arm: str
) -> None:
    seen = visit(timed.http)
    opened(seen, timed.http, f"#b={OLD}/{arm}")
    chosen = sorted(seen.page.url.partition("#")[2].split("&"))
    assert chosen == [f"a={OLD}/theirs", f"b={OLD}/ours"]
    opened(seen, timed.http, f"#a={OLD}/ours&b={OLD}/theirs")
    assert f"#a={OLD}/ours&b={OLD}/theirs" in seen.page.url
    opened(seen, timed.http, "#b=nowhere/ours")
    assert "this site has no run nowhere." in seen.page.locator("#kb-compare").inner_text()


def test_a_run_is_chosen_in_the_full_width_of_its_box(timed: Served, visit: Open) -> None:
    seen = visit(timed.http)
    opened(seen, timed.http)
    run, box = (seen.page.locator(f"{place}").first.bounding_box() for place in (
        "#kb-a-run", "#kb-compare fieldset label:has(#kb-a-run)"))  # fmt: skip
    assert run and box and run["width"] > 0.98 * box["width"]


def test_two_runs_on_two_machines(timed: Served, visit: Open) -> None:
    seen = visit(timed.http)
    opened(seen, timed.http, f"#a={NEW}/ours&b={OLD}/ours")
    assert [(row[0], row[3], row[4]) for row in rows(seen)] == [
        ("words about set: S=64", "2.00", "unlike"), ("words about set: S=128", "0.250", "unlike"),
    ]  # fmt: skip
    said = seen.page.locator("#kb-compare").text_content() or ""
    assert "Nothing is ranked, different card, SM clock." in said
    assert "A <b>card</b>" in said
    assert "Only in A: 1" in said and "Only in B: 1" in said
    assert "other: different S" in said and "Not compared: 2" in said
    seen.page.get_by_role("button", name="Swap A and B").click()
    seen.page.locator("td", has_text="0.500").wait_for()
    assert f"#a={OLD}/ours&b={NEW}/ours" in seen.page.url


@pytest.mark.parametrize(
    ("clock", "where"),
    [(1980, "warned"), (1430, "alike"), (1380, "warned"), (None, "told")],
)
def test_different_clocks_show_a_warning(
    timed: Served, visit: Open, clock: int | None, where: str
) -> None:
    """A little is what a clock does by itself; one that is not known is no reason to warn."""
    seen = visit(timed.http)

    def answer(route: Any) -> None:
        text = route.fetch().text()
        route.fulfill(body=text.replace('"figure":1980.0', f'"figure":{json.dumps(clock)}'))

    seen.page.route("**/runs/**/*.js", answer)
    opened(seen, timed.http, f"#a={NEW}/ours&b={OLD}/ours")
    warned = seen.page.locator("#kb-compare .admonition").all_inner_texts()
    assert any("SM clock" in text for text in warned) == (where == "warned")
    differs = seen.page.get_by_role("row", name="SM clock 1,410–1,440 MHz 1,980 MHz")
    assert differs.count() == (where != "alike")
    same = seen.page.locator("#kb-compare details", has_text="The same in both")
    alike = same.text_content() or ""
    assert ("SM clock 1,410–1,440 MHz and 1,980 MHz" in alike) == (where == "alike")


def test_selecting_another_run_keeps_the_arm(timed: Served, visit: Open) -> None:
    seen = visit(timed.http)
    opened(seen, timed.http)
    assert f"a={NEW}/theirs" in seen.page.url
    seen.page.get_by_label("Run").nth(0).select_option(OLD)
    seen.page.wait_for_url(lambda url: f"#a={OLD}/ours&b={NEW}/ours" in unquote(url))
    assert seen.page.evaluate("document.activeElement.id") == "kb-a-run"


def test_choice_filters_and_order_are_in_the_address(timed: Served, visit: Open) -> None:
    seen = visit(timed.http)
    opened(seen, timed.http)
    seen.page.get_by_label("Cases with").fill("s=")
    seen.page.get_by_label("Only what changed").check()
    seen.page.get_by_role("button", name="B ÷ A").click()
    shown = rows(seen)
    assert [row[0] for row in shown] == ["words about set: S=64", "words about set: S=128"]
    # Hidden rows count in the figures; filtered ones do not.
    assert facts(seen)["Same"] == "1"
    address = seen.page.url
    assert "q=s%3D" in address and "noise=hide" in address
    again = visit(timed.http)
    opened(again, timed.http, "#" + address.partition("#")[2])
    assert rows(again) == shown
    assert again.page.get_by_label("Only what changed").is_checked()
    seen.page.get_by_label("Cases with").fill("nothing has this")
    assert "No case passes the filters" in seen.page.locator("#kb-compare").inner_text()
    arm = seen.page.get_by_label("Implementation").first
    arm.select_option("ours")
    seen.page.wait_for_url(lambda url: f"a={NEW}/ours" in unquote(url))
    assert seen.page.evaluate("document.activeElement.id") == "kb-a-arm"


def test_an_unknown_run_in_the_address_is_named(timed: Served, visit: Open) -> None:
    seen = visit(timed.http)
    opened(seen, timed.http, "#a=nowhere/ours")
    said = seen.page.locator("#kb-compare").inner_text()
    assert "No data because this site has no run nowhere." in said
    seen.page.get_by_role("link", name="Compare the implementations of the newest run").click()
    seen.page.locator("#kb-compare table").first.wait_for()
    assert f"#a={NEW}/theirs&b={NEW}/ours" in seen.page.url
    opened(seen, timed.http, f"#a={NEW}/nobody")
    said = seen.page.locator("#kb-compare").inner_text()
    assert f"the run {NEW} timed no implementation nobody." in said
    seen.page.goto(f"{timed.http}/compare.html#a={NEW}/theirs")
    seen.page.locator("#kb-compare table").first.wait_for()
    assert f"b={NEW}/ours" in seen.page.url


def test_the_comparison_as_markdown(timed: Served, visit: Open) -> None:
    seen = visit(timed.http)
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(seen, timed.http, f"#a={NEW}/ours&b={OLD}/ours")
    seen.page.get_by_role("button", name="Copy as Markdown").click()
    seen.page.get_by_text("Copied.").wait_for()
    text = seen.page.evaluate("navigator.clipboard.readText()")
    assert text.startswith("**no verdict; 3 not comparable; 3 missing**")
    assert "| words about set: S=64 | 5.00 | 10.0 | 2.00 | unlike |" in text
    assert "- Not comparable: 2" in text
    assert "- Card: A A <b>card</b>, B –" in text


def test_without_scripts_the_runs_are_listed(timed: Served, visit: Open) -> None:
    seen = visit(timed.http, java_script_enabled=False)
    seen.page.goto(f"{timed.http}/compare.html")
    assert "needs JavaScript" in seen.page.locator("#kb-compare").inner_text()
    assert seen.page.locator(f"article li a[title='{NEW}']").count() == 1


def test_a_run_is_chosen_by_card_commit_and_case_set(timed: Served, visit: Open) -> None:
    seen = visit(timed.http)
    opened(seen, timed.http, f"#a={NEW}/ours&b={NEW}/theirs")
    options = "document.querySelector('#kb-a-run').options.length"
    assert seen.page.evaluate(options) == 2
    offered = seen.page.locator("#kb-a-card-list option").evaluate_all(
        "all => all.map(one => one.value)"
    )
    assert offered[0] == "A <b>card</b>" and len(offered) == 2

    def narrow(key: str, text: str) -> None:
        seen.page.locator(f"#kb-a-{key}").fill(text)
        seen.page.locator(f"#kb-a-{key}").press("Tab")

    narrow("card", offered[1])
    # Of two runs one looks at the same implementation first.
    seen.page.wait_for_url(lambda url: f"#a={OLD}/theirs" in unquote(url))
    seen.page.wait_for_function(f"{options} === 1")
    assert seen.page.evaluate("document.activeElement.id") == "kb-a-card"
    assert seen.page.locator("#kb-a-card").input_value() == offered[1]
    narrow("sets", "no such set")
    seen.page.get_by_text("No run has all of these.").wait_for()
    assert f"#a={OLD}/theirs" in unquote(seen.page.url)  # the choice stays
    narrow("sets", "")
    narrow("card", "")
    narrow("commit", "7e1")
    seen.page.wait_for_function(f"{options} === 2")


def test_the_lists_of_commits_cards_and_case_sets_are_those_of_the_runs(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http)
    opened(seen, own.http)
    for key, part in (("commit", ""), ("card", "H200"), ("sets", "decode")):
        values = seen.page.locator(f"#kb-b-{key}-list option").evaluate_all(
            "all => all.map(one => one.value)"
        )
        assert len(values) == len(set(values)) > 1
        assert any(part in value for value in values)
