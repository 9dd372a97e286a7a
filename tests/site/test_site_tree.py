"""Writing the tree, the command, the server: what changes, what goes, what is refused."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import site_trees as trees

from kbtool.cli.main import run
from kbtool.markdown.figures import money, seconds, significant
from kbtool.model.errors import MachineError, UsageError
from kbtool.site import addresses as at
from kbtool.site import needs
from kbtool.site.html.build import SOURCE, _guide_aside, build, load_config, write_source
from kbtool.site.html.serve import HOST, free_port, serve
from kbtool.site.html.tree import packaged, source_files, write
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.store.tree import KnowledgeBase

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.make(tmp_path / "kb")


def change(root: Path, **fields: Any) -> None:
    path = root / "sessions" / trees.session_id(0) / "session.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_only_what_changed_is_written(root: Path) -> None:
    first, _ = write_source(root)
    assert first.changed and not first.removed
    assert write_source(root)[0][1:] == ([], [])
    change(root, title="another title")
    changed = write_source(root)[0].changed
    assert f"sessions/{trees.session_id(0)}.md" in changed
    assert not {"kernels/copy.md", "kernels/index.md", "tags.md", "guide/index.md"} & set(changed)


def test_stale_pages_are_removed(root: Path) -> None:
    write_source(root)
    change(root, bugs=[], fixes=[], claims=[], unknown={"costs.ai.amount": "nobody asked"})
    folder = f"bugs/{trees.session_id(0)}"
    removed = write_source(root)[0].removed
    assert f"{folder}/nan.md" in removed
    assert not (root / SOURCE / folder).exists()


def test_a_page_may_take_the_place_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, {"a/b.md": b"1"})
    written = write(tmp_path, {"a": b"2", "c.md": b"3"})
    assert (tmp_path / "a").read_bytes() == b"2"
    assert written.changed == ["a", "c.md"] and written.removed == ["a/b.md"]


def test_hand_written_pages_and_decisions(root: Path) -> None:
    (root / "docs" / "adr").mkdir(parents=True)
    (root / "docs" / "adr" / "0001-x.md").write_text("# Why <x>\n\ntext\n")
    (root / "docs" / ".hidden.md").write_text("no")
    files = source_files(KnowledgeBase(root))
    assert files["adr/0001-x.md"] == b"# Why <x>\n\ntext\n"
    assert b"](0001-x.md)" in files["adr/index.md"]
    assert b"<x>" not in files["adr/index.md"]
    assert "guide/index.md" in files and ".hidden.md" not in files


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        ("accepted, 2025-01-02", ["accepted", "2025-01-02", "–"]),
        ("accepted, 2025-01-02, extended\n2025-02-03; wider by [x](0001-x.md)",
         ["accepted", "2025-01-02", "extended 2025-02-03; wider by [x](0001-x.md)"]),
        ("accepted, 2025-01-02; replaced 2025-03-04 by a | b",
         ["replaced", "2025-01-02", r"replaced 2025-03-04 by a \| b"]),
        ("proposed", ["proposed", "–", "–"]),
    ],
)  # fmt: skip
def test_decisions_are_listed_with_their_status_day_and_what_came_since(
    root: Path, status: str, cells: list[str]
) -> None:
    (root / "docs" / "adr").mkdir(parents=True)
    for name, said in (("x", status), ("y", "accepted, 2025-01-01, and again; later")):
        text = f"# Why\n\n**Status:** {said}\n\ntext; more\n"
        (root / "docs" / "adr" / f"0001-{name}.md").write_text(text)
    listed = source_files(KnowledgeBase(root))["adr/index.md"].decode()
    (row,) = (line for line in listed.splitlines() if "(0001-x.md) |" in line)
    told = re.sub("<[^>]+>|&#45;", lambda tag: "-" if tag[0] == "&#45;" else "", row)
    assert [cell.strip() for cell in re.split(r"(?<!\\)\|", told)][2:-1] == cells


def test_a_page_that_mkdocs_yml_does_not_name_is_in_the_navigation_unless_left_out(
    root: Path,
) -> None:
    (root / SOURCE).mkdir(parents=True)
    settings = packaged("mkdocs.yml").read_text(encoding="utf-8")
    listed = load_config(root, root / "site").nav
    older = settings.replace("  - Compare: compare.md\n", "")
    (root / "mkdocs.yml").write_text(older)
    added = load_config(root, root / "site").nav
    assert added[-1] == {"Compare": "compare.md"} and len(added) == len(listed)
    (root / "mkdocs.yml").write_text(older.replace("not_in_nav: |", "not_in_nav: |\n  /compare.md"))
    assert {"Compare": "compare.md"} not in load_config(root, root / "site").nav


def test_the_guide_of_this_kbtool_may_have_pages_that_an_older_mkdocs_yml_does_not_name(
    root: Path,
) -> None:
    (root / SOURCE).mkdir(parents=True)
    settings = packaged("mkdocs.yml").read_text(encoding="utf-8")
    older = settings.replace("      - guide/attach.md\n", "").replace("  /guide/schema/*\n", "")
    (root / "mkdocs.yml").write_text(older)
    aside = load_config(root, root / "site").not_in_nav
    assert aside.match_file("guide/attach.md") and aside.match_file("guide/schema/run.md")
    assert not aside.match_file("guide/mine.md")
    assert list(_guide_aside(packaged("mkdocs.yml"))) == []  # kbtool's own has to name each


def test_this_month_is_counted_from_the_day_given(root: Path) -> None:
    base = KnowledgeBase(root)
    assert "this month: [0.70 USD" in pages(Index(base), date(2025, 1, 31))[at.HOME]
    assert "nothing this month; last in 2025-01" in pages(Index(base), date(2026, 1, 31))[at.HOME]


@pytest.mark.parametrize("name", ["index", "x" * 200, "a.md", "0"])
def test_ids_that_are_no_file_names_have_pages_of_their_own(root: Path, name: str) -> None:
    change(
        root, claims=[], fixes=[], unknown={"costs.ai.amount": "nobody asked"},
        bugs=[{"id": name, "title": "x", "status": "open", "source": "log:1"}],
    )  # fmt: skip
    written, problems = write_source(root)
    assert problems == []
    assert "bugs/index.md" in written.changed
    page = at.bug_page(trees.session_id(0), name)
    assert (root / SOURCE / page).read_text().startswith("---\ntitle:")


def test_a_record_that_does_not_load_fails_a_strict_build(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "sessions" / trees.session_id(0) / "session.yaml").write_text("id: [")
    command = ["--root", str(root), "site", "build", "--out", str(tmp_path / "out")]
    assert run(command) == 1
    told = capsys.readouterr()
    assert "session.yaml:2: yaml" in told.err and "pages in" in told.out
    assert "could not be read" in (tmp_path / "out" / "index.html").read_text()
    assert run([*command, "--no-strict"]) == 0


def test_a_broken_link_fails_a_strict_build(root: Path, tmp_path: Path) -> None:
    (root / "docs").mkdir()
    (root / "docs" / "guide").mkdir()
    (root / "docs" / "guide" / "index.md").write_text(
        "# X\n\n[a](nowhere.md) [b](concepts.md#no)\n"
    )
    problems = build(root, tmp_path / "out").problems
    assert any("nowhere.md" in problem for problem in problems)
    assert any("#no" in problem for problem in problems)


def test_the_command_builds_and_says_where(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert run(["site", "build"]) == 0
    assert capsys.readouterr().out.endswith("; open site/index.html\n")
    assert run(["site", "build"]) == 0  # over its own site


def test_build_refuses_to_overwrite_a_folder_that_is_no_site(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "precious"
    out.mkdir()
    (out / "work.txt").write_text("x")
    with pytest.raises(UsageError, match="would delete them"):
        build(root, out)
    with pytest.raises(UsageError, match="is a file"):
        build(root, out / "work.txt")
    assert (out / "work.txt").read_text() == "x"


def test_without_the_extra_the_command_names_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = needs.importlib.util.find_spec
    monkeypatch.setattr(
        needs.importlib.util, "find_spec",
        lambda name, *rest: None if name == "material" else real(name, *rest),
    )  # fmt: skip
    assert run(["--root", str(root), "site", "build"]) == 3
    assert "pip install 'kbtool[site]'" in capsys.readouterr().err


def test_a_port_in_use_is_reported(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match="name another with --port"):
            serve(root, port, print)


def test_the_server_shows_a_changed_record_and_what_is_wrong_with_a_broken_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of serve, on a free port of the loopback interface."""
    from mkdocs import livereload

    servers: list[Any] = []
    begin = livereload.LiveReloadServer.serve

    def remember(server: Any) -> None:
        servers.append(server)
        begin(server)

    monkeypatch.setattr(livereload.LiveReloadServer, "serve", remember)
    port = free_port(HOST, 0)
    said: list[str] = []
    thread = threading.Thread(target=serve, args=(root, port, said.append), daemon=True)
    thread.start()
    page = f"http://127.0.0.1:{port}/sessions/{trees.session_id(0)}.html"
    assert wait_for(page, "words about title", 30)
    change(root, title="another title")
    took = wait_for(page, "another title", 15)
    assert took is not None and took < 10
    assert wait_for(f"http://127.0.0.1:{port}/sessions/", "another title", 15)
    record = root / "sessions" / trees.session_id(0) / "session.yaml"
    record.write_text("<i>: [")
    assert wait_for(page, "session.yaml:2: yaml", 15)
    shown = read(page)
    assert shown.index('role="alert"') < shown.index("<h1") < shown.rindex("another title")
    assert wait_for(f"http://127.0.0.1:{port}/search/search_index.json", "another title", 60)
    with pytest.raises(urllib.error.HTTPError) as refused:
        read(f"http://127.0.0.1:{port}/nowhere.html")
    assert refused.value.code == 404 and "no such page" in refused.value.read().decode()
    servers[0].shutdown()
    thread.join(10)
    assert not thread.is_alive()
    assert any(line.startswith("open http://127.0.0.1:") for line in said)


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def wait_for(url: str, words: str, limit: float) -> float | None:
    start = time.monotonic()
    while time.monotonic() - start < limit:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if words in answer.read().decode():
                    return time.monotonic() - start
        except OSError:
            pass
        time.sleep(0.1)
    return None


def test_the_status_of_a_bug_follows_its_fixes_and_recurrences(root: Path) -> None:
    """The last fix mends it at every meeting, unless no test confirmed it; met again, the newest
    meeting speaks."""
    first, second = trees.session_id(0), trees.session_id(1)

    def statuses() -> dict[tuple[str, str], tuple[str, bool]]:
        index = Index(KnowledgeBase(root))
        return {key: (case.status, case.is_open) for key, case in index.bugs.items()}

    assert statuses() == {
        (first, "nan"): ("fixed", False), (first, "odd_.x"): ("open", True),
        (second, "nan"): ("fixed", False), (second, "odd_.x"): ("open", True),
    }  # fmt: skip
    last = root / "sessions" / second / "session.yaml"
    record = json.loads(last.read_text())
    unconfirmed = {"bug": "#bugs.nan", "change": "x", "confirmed": "false", "source": "log:1"}
    last.write_text(json.dumps({**record, "fixes": [unconfirmed]}))
    change(root, fixes=[])
    assert statuses()[second, "nan"] == ("fix unconfirmed", True)
    assert statuses()[first, "nan"] == ("met again", False)
    change(root, fixes=[{"bug": "#bugs.nan", "change": "x", "source": "log:1"}])
    assert statuses()[first, "nan"] == ("met again", False), "fixed before it was met again"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.1234, "0.123"), (12.345, "12.3"), (999.6, "1,000"), (1234567.0, "1,230,000"),
     (1e-9, "1.00e-09"), (-0.5, "-0.500"), (float("inf"), "inf")],
)  # fmt: skip
def test_figures_have_three_digits(value: float, shown: str) -> None:
    assert significant(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0 s"), (0.002, "2 ms"), (0.0564321, "56.4 ms"), (0.42, "0.420 s"), (75.0, "75 s"),
     (300.0, "5 min"), (725.0, "12 min 5 s")],
)  # fmt: skip
def test_the_time_of_a_step_is_in_a_unit_that_fits_it(value: float, shown: str) -> None:
    assert seconds(value) == shown


def test_money_keeps_every_digit() -> None:
    assert money(Decimal("1234.5")) == "1,234.50 USD"
    assert money(Decimal("0.000125")) == "0.000125 USD"
    assert money(Decimal("100")) == "100.00 USD"
    assert money(None) == "unknown"
