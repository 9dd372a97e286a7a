"""What other programs follow: an Atom feed of what is new."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, urljoin
from uuid import UUID, uuid5
from xml.etree import ElementTree

from kbtool.model.prose import plain
from kbtool.runner.words import headline
from kbtool.site import addresses as at
from kbtool.site.index import NEVER, Index, moment

ENTRIES = 50
_NAMESPACE = UUID("6f0c6a5e-3c1d-4c0f-9f0e-2f1b7a4f8c11")
"""Of the ids of entries: made once, at random, and never changed."""
_ATOM = "http://www.w3.org/2005/Atom"
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Place(NamedTuple):
    """What the site is called, and where it is published."""

    name: str
    url: str | None
    """``None`` where nobody says: addresses are relative to the feed then."""

    def of(self, page: str) -> str:
        """The address of a page or of a file beside the pages."""
        address = quote(at.published(page))
        return urljoin(self.url.rstrip("/") + "/", address) if self.url else address


class _Entry(NamedTuple):
    id: str
    title: str
    page: str
    updated: datetime
    summary: str
    kind: str


def feed(index: Index, place: Place) -> bytes:
    """The newest sessions and runs as Atom 1.0; times are the records', never those of a build."""
    entries = sorted(_entries(index), key=lambda entry: (entry.updated, entry.id), reverse=True)
    root = ElementTree.Element("feed", xmlns=_ATOM)
    _text(root, "title", place.name)
    _text(root, "id", _urn(f"feed:{place.url or place.name}"))
    _text(root, "updated", _stamp(entries[0].updated if entries else NEVER))
    _text(ElementTree.SubElement(root, "author"), "name", place.name)
    _link(root, place.of(at.FEED), "self", "application/atom+xml")
    _link(root, place.of(at.HOME), "alternate", "text/html")
    for entry in entries[:ENTRIES]:
        node = ElementTree.SubElement(root, "entry")
        _text(node, "title", entry.title)
        _text(node, "id", _urn(f"{entry.kind}:{entry.id}"))
        _text(node, "updated", _stamp(entry.updated))
        _link(node, place.of(entry.page), "alternate", "text/html")
        _link(node, place.of(at.twin(entry.page)), "related", "application/json")
        ElementTree.SubElement(node, "category", term=entry.kind)
        _text(node, "summary", entry.summary)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _entries(index: Index) -> Iterator[_Entry]:
    for session in index.sessions.values():
        updated = moment(session)
        if updated is not None:
            title = plain(f"{session.label}: {session.title}")
            summary = plain(session.outcome or session.objective or "")
            page = at.session_page(session.id)
            yield _Entry(session.id, title, page, updated, summary, "session")
    for (session_id, run_id), attempts in index.runs.items():
        run = attempts[-1]
        summary = f"{run.outcome}. {headline(run)}".strip()
        title, page = f"Run of {run.source}: {run.outcome}", at.run_page(session_id, run_id)
        yield _Entry(run_id, title, page, run.ended, summary, "run")


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _urn(name: str) -> str:
    return uuid5(_NAMESPACE, name).urn


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _link(parent: ElementTree.Element, href: str, rel: str, kind: str) -> None:
    ElementTree.SubElement(parent, "link", rel=rel, type=kind, href=href)
