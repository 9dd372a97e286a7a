"""What mkdocs and its plugins do again for each page, and a cold build does once or leaves out.

The outcome is the same, byte for byte. Each shortcut relies on how Python-Markdown, mkdocs and its
theme work, so it is taken only where ``digest_of`` knows all that a page depends on.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from markdown import Markdown
from markdown.treeprocessors import InlineProcessor
from markdown.util import AtomicString

_STARTS = {
    "backtick": "`", "escape": "\\", "reference": "[", "link": "[", "image_link": "![",
    "image_reference": "![", "short_reference": "[", "short_image_ref": "![", "autolink": "<",
    "automail": "<", "linebreak": "  \n", "html": "<", "entity": "&",
}  # fmt: skip
"""Python-Markdown's inline patterns → what they start with. Emphasis is not among them: it has
other names in other versions."""
_MARKUP = re.compile(r"[`\\\[<&*_]|  \n")
"""What any inline pattern starts with, emphasis too."""

_UNSEARCHED = re.compile(
    r'<a class="headerlink"[^>]*>[^<]*</a>'
    r'|</?(?:a|b|br|em|small|strong|table|tbody|td|th|thead|tr)(?:\s(?:[^">]|"[^"]*")*)?/?>'
)
"""HTML that adds nothing to the search index: the links of headings to themselves, and tags that
neither begin a section nor hide text from the search."""


class Renderer:
    """Renders pages with one parser, where mkdocs sets up one for each page."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._markdown = Markdown(
            extensions=config.markdown_extensions, extension_configs=config.mdx_configs
        )
        self._markdown.treeprocessors.register(_Inline(self._markdown), "inline", 20)

    def render(self, page: Any, files: Any) -> None:
        """Do what ``mkdocs.structure.pages.Page.render`` does."""
        from mkdocs.structure import pages
        from mkdocs.structure.toc import get_toc

        markdown, where = self._markdown.reset(), (page.file, files, self._config)
        raw, title = pages._RawHTMLPreprocessor(), pages._ExtractTitleTreeprocessor()
        anchors = pages._ExtractAnchorsTreeprocessor(*where)
        links = pages._RelativePathTreeprocessor(*where)
        for part in (raw, anchors, links, title):
            part._register(markdown)  # replaces that of the page before
        page.content = markdown.convert(page.markdown)
        page.toc = get_toc(markdown.toc_tokens)
        page._title_from_render = title.title
        page.present_anchor_ids = anchors.present_anchor_ids | raw.present_anchor_ids
        page.links_to_anchors = links.links_to_anchors


class _Inline(InlineProcessor):  # type: ignore[misc]
    """Tries only the inline patterns whose start is in the text: most text has none."""

    def __init__(self, md: Markdown) -> None:
        super().__init__(md)
        named = md.inlinePatterns
        starts = {named[name]: start for name, start in _STARTS.items() if name in named}
        self._patterns = [(pattern, starts.get(pattern, "")) for pattern in named]

    # Called by InlineProcessor for each text, of which it tries the patterns from ``first`` on.
    def _InlineProcessor__handleInline(self, data: str, first: int = 0) -> str:  # noqa: N802
        if isinstance(data, AtomicString) or not _MARKUP.search(data):
            return data
        for place in range(first, len(self._patterns)):
            pattern, start = self._patterns[place]
            matched, position = start in data, 0
            while matched:
                data, matched, position = self._InlineProcessor__applyPattern(
                    pattern, data, place, position
                )
        return data


def index_less(index: Any) -> None:
    """Give Material's search index pages without the tags that it ignores, but parses."""
    add = index.add_entry_from_context

    def add_less(page: Any) -> None:
        less = copy.copy(page)
        less.content = _UNSEARCHED.sub("", page.content)
        add(less)

    index.add_entry_from_context = add_less


def fill_navigation_once(env: Any, config: Any, nav: Any) -> None:
    """Fill the templates of the navigation once for all pages outside it that have the same links.

    Args:
        env: the templates; all pages have been read.
        config: mkdocs's loaded configuration.
        nav: the navigation.
    """
    own = {page.file.src_uri for page in nav.pages}
    linked = [*_addresses(nav.items), config.theme.get("logo"), config.extra.get("homepage")]
    deepest = max(str(address).count("/") for address in linked)

    def links_from(page: Any) -> tuple[Any, ...]:
        # Below the deepest folder that is linked to, only the depth matters.
        folders = page.url.split("/")[:-1]
        return (*folders[:deepest], len(folders))

    def once(fill: Callable[[Any], Iterator[str]]) -> Callable[[Any], Iterator[str]]:
        filled: dict[tuple[Any, ...], str] = {}

        def root(context: Any) -> Iterator[str]:
            page = context.get("page")
            if page is None or page.file.src_uri in own:
                yield from fill(context)
                return
            links = links_from(page)
            if links not in filled:
                filled[links] = "".join(fill(context))
            yield filled[links]

        return root

    for name in ("partials/nav.html", "partials/tabs.html"):
        template = env.get_template(name)
        template.root_render_func = once(template.root_render_func)


def _addresses(items: Sequence[Any]) -> Iterator[str]:
    for item in items:
        if item.children:
            yield from _addresses(item.children)
        else:
            yield item.url
