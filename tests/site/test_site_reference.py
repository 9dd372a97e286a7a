"""The pages made from the code: the commands, and what a record may say."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from site_html import Site

from kbtool.cli import reference as commands_page
from kbtool.cli.main import cli
from kbtool.model.json_schema import MODELS, json_schema
from kbtool.site.index import Index
from kbtool.site.pages import reference
from kbtool.site.pages.base import Source
from kbtool.store.tree import KnowledgeBase

HERE = Path(__file__).parents[2]


def every(command: click.Command, path: str = "kbtool") -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            found += every(below, f"{path} {name}")
    return found


COMMANDS = every(cli)


def test_the_page_of_the_commands_is_as_the_code_is() -> None:
    written = (HERE / "docs" / "guide" / "cli.md").read_text(encoding="utf-8")
    assert written == commands_page.text(), (
        "write it anew: python -m kbtool.cli.reference > docs/guide/cli.md"
    )


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_every_command_and_option_is_on_the_page(path: str, command: click.Command) -> None:
    text = commands_page.text()
    section = re.split(r"^#+ kbtool.*$", text.split(f"# {path}\n", 1)[1], flags=re.MULTILINE)[0]
    assert f"```text\n{path} " in section
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert max(param.opts, key=len) in section
            assert param.help and param.help.split()[0] in section.replace("\\", "")
    for line in (command.help or "").splitlines() + (command.epilog or "").splitlines():
        if line.strip().startswith("kbtool "):
            assert line.strip() in section, "an example"


def test_anchors_of_commands_are_stable(plain_site: Site) -> None:
    ids = plain_site.pages["guide/cli.html"].ids
    assert {path.replace(" ", "-") for path, _ in COMMANDS} <= ids
    assert "Exit status: 0 done and passed" in plain_site.pages["guide/cli.html"].text


@pytest.mark.parametrize("kind", MODELS)
def test_every_field_is_on_a_page_with_its_meaning(plain_site: Site, kind: str) -> None:
    schema = json_schema(kind)
    pages = [page for path, page in plain_site.pages.items() if path.startswith("guide/schema/")]
    ids = set().union(*(page.ids for page in pages))
    text = " ".join(" ".join(page.text for page in pages).split())
    models = dict(schema.get("$defs", {}))
    if "properties" in schema:
        models[schema["title"]] = schema
        assert schema["title"] in plain_site.pages[f"guide/schema/{kind}.html"].ids
    assert set(models) <= ids
    for name, model in models.items():
        for field, about in model.get("properties", {}).items():
            assert f"{name}.{field}" in ids
            said = re.sub(r"\s+", " ", about.get("description", "").replace("`", ""))
            assert said in text, f"{name}.{field}"


def test_the_reference_pages_say_where_each_kind_of_record_is(plain_site: Site) -> None:
    page = plain_site.pages["guide/schema.html"]
    assert {f"schema/{kind}.html" for kind in MODELS} <= set(page.links)
    assert {"../index.json", "../feed.xml", "../llms.txt"} <= set(page.links)


def test_field_types_are_described_in_words(tmp_path: Path) -> None:
    made = reference.PAGES.make(Source(Index(KnowledgeBase(tmp_path))))
    pages = {page.path: page.text() for page in made}
    session = pages["guide/schema/session.md"]

    def type_of(field: str) -> str:
        row = next(line for line in session.splitlines() if f'id="{field}"' in line)
        return re.sub(r"<[^>]*>", "", row.split(" | ")[1])

    assert type_of("Session.costs") == "list of [CostLine](#CostLine)"
    assert type_of("Session.follows") == "text or null"
    assert type_of("Session.sources") == "name → [SourceFile](#SourceFile)"
    assert type_of("Session.duration") == "text, such as 25 min or null"
    # A model that another kind has already is told of once.
    assert "](session.md#Step)" in pages["guide/schema/corpus.md"]
    assert "## Step {" not in pages["guide/schema/corpus.md"]
