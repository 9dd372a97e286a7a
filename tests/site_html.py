"""Reading built pages: their links, anchors, elements and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from kbtool.site.html.build import Built

VOID = {"br", "hr", "img", "input", "link", "meta", "col", "path", "circle", "source"}


@dataclass
class Page:
    """One HTML page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    """What the browser fetches by itself."""
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    """Elements inside the article."""
    text: str = ""
    """Text inside the article."""
    title: str = ""


class Site(NamedTuple):
    root: Path
    out: Path
    built: Built
    pages: dict[str, Page]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.article = 0
        self.in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.page.ids.add(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.page.links.append(str(given["href"]))
        if tag in {"script", "img", "iframe", "source", "video", "audio", "embed"}:
            self.page.resources.append(given.get("src") or "")
        if tag == "link" and given.get("rel") not in {"canonical", "next", "prev"}:
            self.page.resources.append(given.get("href") or "")
        if tag == "article":
            self.article += 1
        elif self.article:
            self.page.elements.append((tag, given))
        self.in_title = tag == "title" or self.in_title

    def handle_endtag(self, tag: str) -> None:
        self.article -= tag == "article"
        if tag == "title":
            self.in_title = False

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.page.title += data
        if self.article:
            self.page.text += data


def read_page(text: str) -> Page:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def read_site(out: Path) -> dict[str, Page]:
    return {
        path.relative_to(out).as_posix(): read_page(path.read_text(encoding="utf-8"))
        for path in sorted(out.rglob("*.html"))
    }


def fragment(html: str) -> Page:
    """Markup without a page around it."""
    return read_page(f"<article>{html}</article>")
