"""FOCUS 1.2, judged by the FinOps Foundation's own validator, where it is installed."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import date
from itertools import product
from pathlib import Path

import pytest
from costed import line, session
from focus_rules import MANDATORY, NOT_NULL, NUMERIC, read

from kbtool.ledger.export.focus import COLUMNS, SERVICES, focus
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]
DAY = date(2025, 10, 1)
OWN = str(REPOSITORY / ".venv-focus" / "bin" / "focus-validator")
COMMAND = shutil.which(OWN) or shutil.which("focus-validator")

pytestmark = pytest.mark.skipif(
    COMMAND is None,
    reason="no focus-validator; `make focus` installs it, with Python 3.12",
)

WRONG = {True: "InvoiceId-C-004-C", False: "InvoiceId-C-005-C"}
"""Whether charges are on an invoice → the rule that the validator wrongly asks of them: that the
column is null (C-004) or is not (C-005), each without the condition that it has."""


def verdicts(data: bytes, folder: Path) -> dict[str, str]:
    """What the validator says of a dataset: rule → passed, skipped, failure or error.

    It skips rules on columns that are not there, on what a provider may not support, and those
    that it has no check for. Its files go to ``folder``.
    """
    assert COMMAND is not None
    command = Path(COMMAND).resolve()
    # It looks for its own list of currencies in the working folder.
    where = "import focus_validator as v; print(*v.__path__)"
    package = subprocess.check_output([command.with_name("python"), "-c", where], text=True)
    (folder / "focus_validator").symlink_to(package.strip())
    # It wants ASCII, where the specification wants Unicode (StringHandling-A-001-M).
    (folder / "costs.csv").write_bytes(data.decode().encode("ascii", errors="replace"))
    report = folder / "report.xml"
    argv = [command, "--data-file", "costs.csv", "--validate-version", "1.2", "--block-download"]
    argv += ["--output-type", "unittest", "--output-destination", report]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {
        case.attrib["name"].split(" :: ")[0]: next((child.tag for child in case), "passed")
        for case in ET.parse(report).iter("testcase")
    }


def failed(found: dict[str, str]) -> set[str]:
    return {rule for rule, verdict in found.items() if verdict not in {"passed", "skipped"}}


def lines() -> Iterator[dict]:
    """Every kind of cost line, with and without what may be left out."""
    for kind, basis, currency, invoice in product(
        (*SERVICES, "engineer"), ("claimed", "estimated", "billed"), ("USD", "EUR"), (None, "A-7")
    ):
        if invoice is None or basis == "billed":
            common = {"basis": basis, "currency": currency, "invoice": invoice}
            for amount in ("0", "0.000001", "12345678.9"):
                yield line(kind, amount, **common)
            yield line(kind, "5", duration="5..10 min", **common)
            yield line(
                kind, "1.40", duration="7 h", rate=f"0.20 {currency}/h", card="H100",
                note='=1+1, "übrig"\nund mehr', **common,
            )  # fmt: skip
    yield line("ai", None)


def every_kind() -> list[Session]:
    days = ("2024-02-29", "2025-12-31", "undated")
    return [session(f"{day}-a", *lines(), label="=1+1") for day in days]


def own() -> list[Session]:
    return [entry.record for entry in KnowledgeBase(REPOSITORY).sessions.values()]


@pytest.mark.parametrize(
    ("sessions", "invoiced"), [(own, False), (every_kind, False), (every_kind, True)]
)
def test_the_focus_validator_accepts_the_export(sessions, invoiced, tmp_path):
    part = [
        one.model_copy(
            update={"costs": [cost for cost in one.costs if bool(cost.invoice) is invoiced]}
        )
        for one in sessions()
    ]
    found = verdicts(focus(part, undated=DAY, providers={"gpu": "A cloud"}).data, tmp_path)
    assert failed(found) <= {WRONG[invoiced]}
    judged = {rule.split("-")[0] for rule, verdict in found.items() if verdict == "passed"}
    assert judged >= {name for name in COLUMNS if not name.startswith("x_")}


def test_the_focus_validator_reports_broken_rows(tmp_path):
    header, (row,) = read(focus([session("2025-10-12-a", line("gpu", "1.40"))]).data)
    changes = [
        *({column: ""} for column in NOT_NULL),
        *({column: "+1,5"} for column in NUMERIC),
        {"BillingCurrency": "tokens"},
        {"ServiceCategory": "Other", "ServiceSubcategory": "Other (Other)"},
        {"PricingUnit": ""},
    ]
    header.remove("PublisherName")
    text = io.StringIO()
    writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows([row, *({**row, **change} for change in changes)])
    assert failed(verdicts(text.getvalue().encode(), tmp_path)) >= {
        *(f"{column}-C-{place}" for column, place in NOT_NULL.items()),
        *(f"{column}-C-{place}" for column, place in NUMERIC.items()),
        f"CostAndUsage-{MANDATORY['PublisherName']}",
        "BillingCurrency-C-006-M",
        "ServiceName-C-005-C",
        "ServiceName-C-008-C",
        "PricingUnit-C-006-C",
    }
