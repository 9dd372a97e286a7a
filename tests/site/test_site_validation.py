"""A validation of many cases is shown as sums, failures and the nearest cases."""

from __future__ import annotations

from html import unescape

from kbtool.model.kinds.validate import CaseResult, OutputError, ValidationResult
from kbtool.site.pages.run import RunLinks
from kbtool.steps.validate.page import NEAREST, rule_text
from kbtool.steps.validate.page import page as validated

HERE = "runs/s/r.md"


def case(number: int, share: float, variant: str | None = None) -> CaseResult:
    """A case whose first output errs by ``share`` of its bound, and whose second by less."""
    outputs = {
        name: OutputError(
            passed=of <= 1, error=of * 1e-3, bound=1e-3, torch_error=0.0,
            message=None if of <= 1 else f"{name} is off",
        )
        for name, of in (("out", share), ("lse", share / 2))
    }  # fmt: skip
    return CaseResult(
        case_set="small", name=f"case {number}", variant=variant, case={}, passed=share <= 1,
        outputs=outputs, repeatable=share < 2,
    )  # fmt: skip


def shown(*cases: CaseResult) -> str:
    result = ValidationResult(sha256="0" * 64, device="cpu", seed=1, rule="r", cases=list(cases))
    return unescape(validated(result, RunLinks(None, None, HERE)))


def test_each_set_and_variant_has_a_row_with_its_worst_case():
    page = shown(case(1, 0.25), case(2, 0.5), case(3, 0.125, "fused"))
    assert "| small | default |" in page and "2 of 2 | 2 of 2 | 0.500 | case 2 |" in page
    assert "| small | fused |" in page and "1 of 1 | 1 of 1 | 0.125 | case 3 |" in page


def test_the_first_verdict_has_its_time_where_it_was_kept():
    result = ValidationResult(
        sha256="0" * 64, device="cpu", seed=1, rule="r", cases=[case(1, 0.25)], first_seconds=2.5
    )
    assert "2.50 s" in unescape(validated(result, RunLinks(None, None, HERE)))
    assert "First verdict" not in shown(case(1, 0.25))


def test_a_rule_is_told_in_plain_words_and_as_the_run_has_it():
    rule = "|out - ref| <= 2 max|torch - ref| + 2, both in ulps"
    told = unescape(rule_text(rule))
    assert told.startswith("An output passes if") and rule in told
    assert rule_text("another rule") == "Rule: another rule"


def test_every_case_that_failed_is_shown():
    page = shown(*(case(n, 1.5 + n) for n in range(2 * NEAREST)), case(99, 0.5))
    assert f"Cases that failed: {2 * NEAREST}" in page
    for number in range(2 * NEAREST):
        assert f"| case {number} |" in page
    assert "out: out is off" in page
    assert f"1 of {2 * NEAREST + 1} | 2 of {2 * NEAREST + 1} |" in page  # passed, repeat bitwise


def test_of_many_that_passed_the_nearest_are_shown_and_the_rest_is_in_the_json():
    page = shown(*(case(n, n / 100) for n in range(1, 2 * NEAREST)))
    assert f"Nearest to their bounds of the {2 * NEAREST - 1} that passed" in page
    assert "[JSON](r.json) has all" in page
    nearest = page.partition("has all")[2]
    assert f"| case {2 * NEAREST - 1} |" in nearest and "| case 1 |" not in nearest
    few = shown(case(1, 0.5), case(2, 0.25))
    assert "Cases that passed, nearest to their bounds first" in few
    assert few.index("| case 1 |") < few.rindex("| case 2 |")
