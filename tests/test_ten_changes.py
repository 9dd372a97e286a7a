"""The table of changes in CONTRIBUTING.md agrees with the code.

Each test makes a small change on a copy of the package, in the files that the table names and in
no other, and looks for its effect. A file too few, and the effect is missing; a file too many, and
the test knows nothing to do in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from knowledge import KERNEL, PATTERN, Knowledge

from kbtool.gpu.harness import FUNCTIONS

REPOSITORY = Path(__file__).parents[1]
Edit = Callable[[str], str]

pytestmark = pytest.mark.xdist_group("ten changes")  # they share one copy of the package


def table() -> dict[str, list[str]]:
    """Change → the files that CONTRIBUTING.md says it takes."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Ten changes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| ([^|]+) \|", section, flags=re.MULTILINE)
    assert len(rows) == 10
    found = {change: re.findall(r"`([^`]+)`", files) for change, _, files in rows}
    assert {change: len(files) for change, files in found.items()} == {
        change: int(count) for change, count, _ in rows
    }
    return found


def after(place: str, text: str) -> Edit:
    """Put ``text`` behind the only ``place`` in the file."""

    def edit(content: str) -> str:
        assert content.count(place) == 1, place
        return content.replace(place, place + text)

    return edit


def within(folder: str, edits: Mapping[str, Edit]) -> list[str]:
    """The files that a change makes in a folder of its own."""
    return [path for path in edits if path.startswith(folder)]


def both(first: Edit, second: Edit) -> Edit:
    """Make two edits of one file."""
    return lambda content: second(first(content))


def appended(text: str) -> Edit:
    """Put ``text`` at the end of the file, which may be new."""
    return lambda content: content + text


PAGE = """
from functools import partial
from kbtool.site.pages.base import Page, Pages
from kbtool.site.parts import page_title

def page(index):
    return page_title("Cards") + f"\\n\\n{len(index.sessions)} sessions\\n"

PAGES = Pages(lambda source: [Page("cards.md", partial(page, source.index))], "cards.md", "Cards")
"""

COMMAND = """
import click

@click.command()
def greet():
    \"\"\"Say hello.\"\"\"
    click.echo("hello")
"""

RULE = """

def todos(path, text):
    if "TODO" in text:
        yield Finding(path, 1, "todo", "says TODO")


TEXT_RULES = (*TEXT_RULES, todos)
"""

EXPORT = """
from kbtool.ledger.export.lines import Export

def titles(base, sessions):
    return Export("".join(f"{one.title}\\n" for one in sessions).encode(), len(sessions))
"""

EXPORT_COMMAND = '''

@export.command()
@selection_options
@_output_option
@click.pass_context
def titles(ctx, selection, output):
    """Write the titles."""
    from kbtool.ledger.export.titles import titles

    _export(ctx, selection, output, "title", titles)
'''

MODEL = '''
from typing import Literal
from kbtool.model.kinds.base import ResultBase, StepBase

class HailStep(StepBase):
    kind: Literal["hail"]
    whom: str
    """Who is hailed."""

class HailResult(ResultBase):
    type: Literal["hail"] = "hail"
    said: str
'''

RUN = """
import importlib.util
from pathlib import Path
from kbtool.gpu.build_plan import sha256_of
from kbtool.model.kinds.hail import HailResult, HailStep
from kbtool.steps.base import Outcome, StepKind
from kbtool.steps.worker import run_worker, worker_failure

class Hail(StepKind[HailStep, HailResult]):
    result = HailResult

    def plan(self, step, context):
        return [f"hail {step.whom}"]

    def run(self, step, context):
        # A library of torch itself stands for a kernel's: nothing has to be compiled.
        library = Path(importlib.util.find_spec("torch").origin).parent / "lib" / "libc10.so"
        event, done = run_worker(
            {
                "task": "kbtool.steps.hail.task:Hail", "library": str(library),
                "sha256": sha256_of(library), "harness": str(context.root / "harness.py"),
                "cases": [], "seed": 1, "threads": 1, "whom": step.whom,
            },
            context,
        )
        failure = worker_failure(event, done, "hailing")
        if failure is not None:
            return failure
        return Outcome("passed", event["result"], HailResult(said=event["result"]))

    def page(self, result, links):
        return f"It said: {result.said}"
"""

TASK = """
import os
from kbtool.gpu.task import Task

class Hail(Task):
    whom: str

    def run(self, harness, send):
        return f"hail, {self.whom}: {harness.SUBJECT}"
"""

IMPORT = "from kbtool.steps.hail.run import Hail\n"

RECIPE = """\
recipes:
  - name: hail
    title: Hail
    steps:
      - {id: hail, kind: hail, title: H, expected: 1 s, timeout: 5 min, whom: Caesar}
"""

HARNESS = "SUBJECT = BASELINE_ARM = 'ours'\nPEERS = ('ours',)\n" + "".join(
    f"def {name}(*_, **__): ...\n" for name in (*FUNCTIONS, "arms")
)

CHANGES: dict[str, dict[str, Edit]] = {
    "a kind of step": {
        "kbtool/model/kinds/NAME.py": appended(MODEL),
        "kbtool/model/kinds/__init__.py": lambda text: both(
            after("    | CommandStep", "\n    | HailStep"),
            after("    | CommandResult", "\n    | HailResult"),
        )(
            after(
                "from pydantic import Field\n",
                "from kbtool.model.kinds.hail import HailResult, HailStep\n",
            )(text)
        ),
        "kbtool/steps/NAME/run.py": appended(RUN),
        "kbtool/steps/NAME/task.py": appended(TASK),
        "kbtool/steps/__init__.py": both(
            after(
                "from types import MappingProxyType\n", "from kbtool.steps.hail.run import Hail\n"
            ),
            after('        "command": Command(),\n', '        "hail": Hail(),\n'),
        ),
    },
    "a field of a bug": {
        "kbtool/model/bug.py": after(
            '    """Time spent on it in this session."""\n',
            '    severity: Text | None = None\n    """How bad it is."""\n',
        ),
        "kbtool/site/pages/bug.py": after(
            '("Component", optional(bug.component)),', '("Severity", optional(bug.severity)),'
        ),
    },
    "a page of the site": {
        "kbtool/site/pages/NAME.py": appended(PAGE),
        "kbtool/site/pages/__init__.py": lambda text: after(
            "    home.PAGES,\n", "    NAME.PAGES,\n"
        )(after("    home,\n", "    NAME,\n")(text)),
    },
    "a subcommand": {
        "kbtool/cli/NAME.py": appended(COMMAND),
        "kbtool/cli/main.py": after("COMMANDS = {\n", '    "greet": "kbtool.cli.greet",\n'),
    },
    "a rule of check": {"kbtool/checks/text_rules.py": appended(RULE)},
    "an export": {
        "kbtool/ledger/export/NAME.py": appended(EXPORT),
        "kbtool/cli/export.py": appended(EXPORT_COMMAND),
    },
    "how money rounds": {
        "kbtool/model/money.py": lambda text: text.replace(" + Fraction(1, 2)", "")
    },
    "a case set": {
        "kernels/NAME/kernel.yaml": appended("  large: {title: Large ones, cases: [{n: 4096}]}\n")
    },
}
NAMES = {
    "a kind of step": "hail", "a page of the site": "cards", "a subcommand": "greet",
    "an export": "titles", "a case set": "add",
}  # fmt: skip

EFFECTS = '''
import contextlib, io, json
from pathlib import Path

import kbtool
from kbtool.cli.main import run

def said(*arguments):
    """What a command writes to stdout."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        run(list(arguments))
    out.flush()
    return out.buffer.getvalue().decode()

def add_site(found):
    """What the site has: its generated pages, and the JSON of a bug."""
    from kbtool.site.feeds.twins import files
    from kbtool.site.index import Index
    from kbtool.site.pages import pages
    from kbtool.store.tree import KnowledgeBase

    index = Index(KnowledgeBase(Path.cwd()))
    found["twin"] = files(index)["bugs/2025-01-01-a/it-crashes.json"].decode()
    found["pages"] = pages(index)

run(["session", "bug", "It crashes", "--severity", "high", "--session", "A"])
found = {
    "code": kbtool.__file__,
    "schema": said("schema", "session"),
    "show": said("session", "show", "A"),
    "greet": said("greet"),
    "help": said("--help"),
    "check": said("check", "--json"),
    "costs": said("costs", "--json"),
    "titles": said("export", "titles"),
    "corpus": said("export", "corpus"),
    "corpus schema": said("schema", "corpus"),
    "hail": said("run-recipe", "hail", "--session", "A", "--force", "--json"),
}
try:
    add_site(found)
finally:
    Path("effects.json").write_text(json.dumps(found))
'''


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is seen after all the changes: one copy of the package, one process."""
    code = tmp_path_factory.mktemp("code")
    shutil.copytree(
        REPOSITORY / "kbtool",
        code / "kbtool",
        ignore=shutil.ignore_patterns("__pycache__", "assets"),
    )
    base = Knowledge(tmp_path_factory.mktemp("base"))
    base.kernel(KERNEL.replace("It adds.", "It adds. TODO"))
    base.session(more="costs: [{kind: gpu, basis: estimated, rate: 1.25 USD/h, duration: 6 min}]\n")
    named = table()
    base.write("patterns/p01.yaml", PATTERN.format(id="P01", number=1) + RECIPE)
    base.write("harness.py", HARNESS)
    for change, edits in CHANGES.items():
        files = [
            file
            for path in named[change]
            for file in (within(path, edits) if path.endswith("/") else [path])
        ]
        for path in files:
            assert path in edits, f"{path} has no part in: {change}"
            name = NAMES.get(change, "")
            root = base.root if path.startswith("kernels/") else code
            file = root / path.replace("NAME", name)
            file.parent.mkdir(exist_ok=True)
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            file.write_text(edits[path](text).replace("NAME", name), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", EFFECTS],
        cwd=base.root, env={**os.environ, "PYTHONPATH": str(code)}, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads((base.root / "effects.json").read_text())
    assert found["code"].startswith(str(code))
    found["err"] = done.stderr
    return found


@pytest.mark.slow
def test_a_kind_of_step(effects):
    """It runs in a process of its own, is recorded, and tells its result on the run's page."""
    assert effects["hail"], effects["err"]
    run = json.loads(effects["hail"])
    assert run["status"] == "passed", effects["err"]
    assert run["steps"][0]["result"] == {"type": "hail", "said": "hail, Caesar: ours"}
    assert any("It said: hail, Caesar: ours" in text for text in effects["pages"].values())


def test_a_field_of_a_bug(effects):
    assert "How bad it is." in effects["schema"]
    assert "severity: high" in effects["show"]
    assert json.loads(effects["twin"])["record"]["severity"] == "high"
    (bug,) = [
        line for line in map(json.loads, effects["corpus"].splitlines()) if line["type"] == "bug"
    ]
    assert bug["severity"] == "high"
    assert "severity" in json.loads(effects["corpus schema"])["$defs"]["CorpusBug"]["properties"]
    assert "Severity" in effects["pages"]["bugs/2025-01-01-a/it-crashes.md"], effects["err"]


def test_how_money_rounds(effects):
    assert json.loads(effects["costs"])["total"]["gpu"] == "0.12"  # half a cent, down


def test_a_page_of_the_site(effects):
    assert "1 sessions" in effects["pages"]["cards.md"]


def test_a_subcommand(effects):
    assert effects["greet"] == "hello\n"
    assert "Say hello." in effects["help"]


def test_a_rule_of_check(effects):
    assert "todo" in {finding["rule"] for finding in json.loads(effects["check"])["findings"]}


def test_an_export(effects):
    assert effects["titles"] == "A sitting\n"


def test_a_case_set(effects):
    assert "Large ones" in effects["pages"]["kernels/add/cases.md"]


def test_every_file_that_the_table_names_is_there():
    for change, files in table().items():
        for path in files:
            pattern = re.sub(r"\b[A-Z]{4,}\b", "*", path)
            assert any(REPOSITORY.glob(pattern)), f"{change}: {path}"
