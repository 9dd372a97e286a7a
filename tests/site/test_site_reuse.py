"""Built pages are reused, and pages are built when they are asked for: with the same outcome."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import site_trees as trees

from kbtool.site.html import engine, pieces, reuse
from kbtool.site.html.build import build as build_site
from kbtool.site.html.build import load_config, run_mkdocs, write_source
from kbtool.site.html.engine import OVERRIDES, Engine
from kbtool.site.html.pieces import cut
from kbtool.site.html.reuse import digest_of
from kbtool.site.html.serve import Live
from kbtool.site.html.tree import indexed, making_files, packaged, source_files
from kbtool.store import tree
from kbtool.store.tree import KnowledgeBase

pytestmark = pytest.mark.slow

LINKS = "# Links\n\n[a session](sessions/{}.md), [a bug](bugs/index.md#no-such-anchor)\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = trees.make(tmp_path / "kb", sessions=4)
    (root / "docs" / "guide").mkdir(parents=True)
    # Its links are right or wrong by what other files there are, while its text stays the same.
    (root / "docs" / "links.md").write_text(LINKS.format(trees.session_id(3)))
    return root


def files_in(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def record(root: Path, number: int) -> Path:
    return root / "sessions" / trees.session_id(number) / "session.yaml"


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class Editor:
    """Edits records at random, as people and agents do."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.draw = random.Random(seed)
        self.away = root.parent / "away"

    def edit(self) -> str:
        edits: list[Callable[[], None]] = [
            self.retitle, self.retag, self.reword, self.unbug, self.take_out, self.readme,
            self.pattern, self.navigation, self.document, self.nothing,
        ]  # fmt: skip
        chosen = self.draw.sample(edits, 2)
        for one in chosen:
            one()
        return ", ".join(one.__name__ for one in chosen)

    def word(self) -> str:
        return f"word{self.draw.randrange(10_000)}"

    def session(self) -> Path:
        return self.draw.choice(sorted(self.root.glob("sessions/*/session.yaml")))

    def retitle(self) -> None:
        change(self.session(), title=self.word())

    def retag(self) -> None:
        tags = ["l4", "nan", "slow"]
        change(self.session(), tags=self.draw.sample(tags, self.draw.choice([0, 0, 1, 3])))

    def reword(self) -> None:
        change(self.session(), objective=self.word(), outcome=self.word())

    def unbug(self) -> None:
        change(record(self.root, 0), bugs=[], fixes=[], claims=[])

    def take_out(self) -> None:
        """Take the last session away, or put it back."""
        last = record(self.root, 3).parent
        source, target = (last, self.away) if last.exists() else (self.away, last)
        source.rename(target)

    def readme(self) -> None:
        (self.root / "kernels" / "copy" / "README.md").write_text(f"# {self.word()}\n")

    def pattern(self) -> None:
        change(self.root / "patterns" / "p02.yaml", summary=self.word())

    def navigation(self) -> None:
        """A page that the navigation of every page shows by its own title."""
        (self.root / "docs" / "guide" / "attach.md").write_text(f"# {self.word()}\n\ntext\n")

    def document(self) -> None:
        (self.root / "docs" / f"{self.draw.choice('ab')}.md").write_text(f"# {self.word()}\n")

    def nothing(self) -> None:
        pass


def test_after_any_edits_what_is_reused_is_what_a_cold_build_makes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built again over the last build, and served since before the first edit: every file is that
    of a build from nothing, and so are the warnings."""
    monkeypatch.setattr(pieces, "LONG", 2)  # tables with few sessions are short
    monkeypatch.setattr(pieces, "_PIECE", 2)
    editor = Editor(root, 1)
    today = date.today()
    live = Live(root, tmp_path / "live", lambda line: None)
    for turn in range(9):
        edited = editor.edit() if turn else "before any edit"
        again = build_site(root, tmp_path / "again", today)
        live.refresh()
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(root, tmp_path / "copy", ignore=shutil.ignore_patterns(".kbtool"))
        cold = build_site(tmp_path / "copy", tmp_path / f"cold{turn}", today)
        whole = files_in(tmp_path / f"cold{turn}")
        assert files_in(tmp_path / "again") == whole, edited
        assert sorted(again.problems) == sorted(cold.problems), edited
        # Each page as it is asked for, in any order, before the others are there.
        pages = [path for path in whole if path.endswith(".html") and path != "404.html"]
        for path in editor.draw.sample(pages, len(pages)):
            assert live.read(path) == whole[path], (edited, path)
        assert live.bring_all()
        del whole[".kbtool-site"]
        assert files_in(live.out) == whole, edited
    live.end()


def test_a_repeated_build_renders_nothing_and_a_changed_page_alone(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    render = Engine._render

    def noted(self: Engine, pages: Any) -> None:
        rendered.extend(page.file.src_uri for page in pages)
        render(self, pages)

    monkeypatch.setattr(Engine, "_render", noted)
    build_site(root, tmp_path / "out")
    assert "kernels/copy.md" in rendered
    rendered.clear()
    stamp = (tmp_path / "out" / "index.html").stat().st_mtime_ns
    build_site(root, tmp_path / "out")
    assert rendered == []
    assert (tmp_path / "out" / "index.html").stat().st_mtime_ns == stamp
    change(record(root, 0), objective="another objective")
    build_site(root, tmp_path / "out")
    assert f"sessions/{trees.session_id(0)}.md" in rendered
    assert not {"kernels/copy.md", "guide/index.md", "tags.md"} & {*rendered}
    store = root / ".kbtool" / "cache" / "site.sqlite"
    assert store.stat().st_mode & 0o077 == 0
    sound = store.read_bytes()
    for damaged in (b"no database" * 1000, sound[:4096] + bytes(len(sound) - 4096)):
        rendered.clear()
        store.write_bytes(damaged)
        build_site(root, tmp_path / "out")
        assert "kernels/copy.md" in rendered
        build_site(root, tmp_path / "out")
        rendered.clear()
        build_site(root, tmp_path / "out")
        assert rendered == []


TABLE = "| A | B |\n| --- | ---: |\n" + "".join(f"| {n} | `x` &#124; **y** |\n" for n in range(60))
FENCED = f"# F\n\n```\n{TABLE}\n{TABLE}```\n"
DEFINED = f"# D\n\n{TABLE.replace('60', '[60][a]')}\n[a]: index.md\n"
BESIDE = f"# B\n\n{TABLE}\n{TABLE}{{: #b }}\n\n<pre>\n\n{TABLE}\n</pre>\n"


def test_a_long_table_in_pieces_is_that_of_the_whole_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trees.make(tmp_path / "kb", trees.attack, sessions=8)
    monkeypatch.setattr(pieces, "LONG", 5)
    docs = root / "docs"
    docs.mkdir(exist_ok=True)
    for name, text in {"t": f"# T\n\n{TABLE}", "f": FENCED, "d": DEFINED, "b": BESIDE}.items():
        (docs / f"{name}.md").write_text(text)
    built = build_site(root, tmp_path / "pieces")
    shutil.rmtree(root / ".kbtool")
    cuts: list[str] = []
    monkeypatch.setattr(
        engine, "cut", lambda markdown, around: (markdown, cuts.extend(cut(markdown, "")[1]) or {})
    )
    whole = build_site(root, tmp_path / "whole")
    assert len(cuts) > 10
    assert files_in(tmp_path / "pieces") == files_in(tmp_path / "whole")
    assert sorted(built.problems) == sorted(whole.problems)


def test_no_piece_has_more_rows_than_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE", 10**6)  # next to no row ends a piece
    rows = [f"| {number} |" for number in range(100)]
    _, parts = cut("\n".join(["| n |", "|---|", *rows]), "")
    assert [row for part in parts.values() for row in part.split("\n")[2:]] == rows
    assert max(part.count("\n") - 1 for part in parts.values()) == 24


def test_a_changed_row_renders_its_piece_alone(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = root / "docs" / "t.md"
    page.write_text(f"# T\n\n{TABLE}")
    rendered: list[str] = []
    whole = Engine._whole

    def noted(self: Engine, page: Any, markdown: str) -> Any:
        if page.file.src_uri == "t.md":
            rendered.append(markdown)
        return whole(self, page, markdown)

    monkeypatch.setattr(Engine, "_whole", noted)
    build_site(root, tmp_path / "out")
    rendered.clear()
    page.write_text(f"# T\n\n{TABLE}".replace("| 30 |", "| thirty |"))
    build_site(root, tmp_path / "out")
    assert len(rendered) == 2 and "thirty" in rendered[1] and "| 59 |" not in rendered[1]
    assert "thirty" in (tmp_path / "out" / "t.html").read_text()


def test_kbtool_templates_libraries_and_settings_count(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(root)
    settings = packaged("mkdocs.yml").read_text()
    templates = Path(shutil.copytree(OVERRIDES, tmp_path / "overrides"))

    def digest() -> str | None:
        return digest_of(load_config(root, tmp_path / "out"), templates)

    found = [digest()]
    assert found == [digest_of(load_config(root, tmp_path / "out"), OVERRIDES)]
    (root / "mkdocs.yml").write_text(settings + "site_author: me\n")
    found.append(digest())
    (templates / "404.html").write_text("another")
    found.append(digest())
    monkeypatch.setattr(reuse, "code_digest", lambda folders, libraries: f"{folders}")
    found.append(digest())
    assert None not in found and len({*found}) == len(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  - offline\n", "  - offline\n  - meta\n"),
        ("  - tables\n", "  - tables\n  - pymdownx.snippets\n"),
        ("  name: material\n", "  name: material\n  custom_dir: mine\n"),
        ("site_name: kbtool\n", "site_name: !ENV [NAME, x]\n"),
        ("site_name: kbtool\n", "site_name: kbtool\nINHERIT: other.yml\n"),
        ("  - tags\n", "  - tags:\n      tags_file: tags.md\n"),
    ],
)
def test_a_site_whose_pages_may_depend_on_more_is_built_whole(
    root: Path, tmp_path: Path, old: str, new: str
) -> None:
    write_source(root)
    (root / "mine").mkdir()
    (root / "other.yml").write_text("site_author: me\n")
    settings = packaged("mkdocs.yml").read_text()
    assert old in settings
    (root / "mkdocs.yml").write_text(settings.replace(old, new))
    assert digest_of(load_config(root, tmp_path / "out"), OVERRIDES) is None


def test_a_page_that_lists_tags_is_as_in_a_cold_build(root: Path, tmp_path: Path) -> None:
    (root / "docs" / "mine.md").write_text("# Mine\n\n<!-- material/tags -->\n")
    live = Live(root, tmp_path / "live", lambda line: None)
    build_site(root, tmp_path / "again")
    live.refresh()
    change(record(root, 0), tags=["quite-new"])
    build_site(root, tmp_path / "again")
    live.refresh()
    shown = (tmp_path / "again" / "mine.html").read_text()
    assert "quite-new" in shown and live.read("mine.html") == shown.encode()
    live.end()


def test_each_file_made_alone_is_that_of_all_made_together(root: Path) -> None:
    base = KnowledgeBase(root)
    alone = {path: make() for path, make in making_files(*indexed(base)).items()}
    assert alone == source_files(base)
    assert list(alone) == list(source_files(base))


def test_a_broken_record_keeps_its_pages_while_others_change(root: Path, tmp_path: Path) -> None:
    live = Live(root, tmp_path / "live", lambda line: None)
    live.refresh()
    page, costs = f"sessions/{trees.session_id(0)}.html", "costs.html"
    before = [live.read(page), live.read(costs)]
    sound = record(root, 0).read_text()
    run = next(root.glob("sessions/*/runs/*.json"))
    record(root, 0).write_text("id: [")
    run.write_text("{")
    change(record(root, 3), objective="another objective")
    live.refresh()
    assert [fault.partition(":")[0] for fault in live.faults] == [
        f"sessions/{trees.session_id(0)}/session.yaml", run.relative_to(root).as_posix(),
    ]  # fmt: skip
    assert [live.read(page), live.read(costs)] == before
    assert b"another objective" in (live.read(f"sessions/{trees.session_id(3)}.html") or b"")
    record(root, 0).write_text(sound)
    run.unlink()
    live.refresh()
    assert live.faults == []
    (root / "mkdocs.yml").write_text("nav: [")
    live.refresh()
    assert "mkdocs" in live.faults[0] and live.read(page) == before[0]
    live.end()


def test_only_changed_files_are_read_and_a_broken_one_is_told_of_each_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SETTLED_NS", -(10**12))  # files that just changed count as settled
    record(root, 1).write_text("id: [")
    before = KnowledgeBase(root)
    kept = before.sessions
    for _ in range(2):
        record(root, 0).write_text(record(root, 0).read_text().replace('"title":', ' "title":'))
        now = KnowledgeBase(root, before)
        same = {id_ for id_ in now.sessions if now.sessions[id_] is kept[id_]}
        assert now.sessions.keys() - same == {trees.session_id(0)} and len(same) == 2
        assert [one.path for one in now.findings] == [
            f"sessions/{trees.session_id(1)}/session.yaml"
        ]
        before, kept = now, now.sessions
    record(root, 2).write_text("id: [")
    for _ in range(2):
        before = KnowledgeBase(root, before)
        assert before.sessions[trees.session_id(2)] is kept[trees.session_id(2)]
        assert [one.path for one in before.stale] == [
            f"sessions/{trees.session_id(2)}/session.yaml"
        ]


def test_a_record_that_never_loaded_is_told_of(root: Path, tmp_path: Path) -> None:
    record(root, 0).write_text("id: [")
    live = Live(root, tmp_path / "live", lambda line: None)
    live.refresh()
    assert live.faults[0].endswith("; no page shows this record")
    assert live.read(f"sessions/{trees.session_id(0)}.html") is None
    live.end()


def test_mkdocs_says_nothing_of_the_tree_that_serve_writes(root: Path, tmp_path: Path) -> None:
    """``serve`` and ``build`` do not write into each other's folders."""
    write_source(root)
    tree = files_in(root / ".kbtool" / "site-src")
    live = Live(root, tmp_path / "live", lambda line: None)
    change(record(root, 0), title="another title")
    live.refresh()
    live.bring_all()
    live.end()
    assert files_in(root / ".kbtool" / "site-src") == tree
    assert run_mkdocs(root, tmp_path / "out") is not None


def test_the_first_search_waits_for_its_index(root: Path, tmp_path: Path) -> None:
    live = Live(root, tmp_path / "live", lambda line: None)
    live.refresh()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(live.read, "search/search_index.json")
        assert live.read("index.html") and not asked.done()  # pages are there before
        live.bring_all()
        assert b'"docs"' in (asked.result(timeout=60) or b"")
    live.end()


def test_a_served_page_loses_its_tags_at_once(root: Path, tmp_path: Path) -> None:
    live = Live(root, tmp_path / "live", lambda line: None)
    page = f"sessions/{trees.session_id(0)}.html"
    change(record(root, 1), tags=["slow"])  # so that the page of the tag stays
    for tags in (["slow"], []):
        change(record(root, 0), tags=tags)
        live.refresh()
        assert (b"md-tags" in (live.read(page) or b"")) == bool(tags)
    live.end()
