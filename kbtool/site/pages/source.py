"""The page of each file of a kernel: every line has a number and an anchor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import groupby

from kbtool.markdown.escape import attribute_line, code, inline, raw
from kbtool.markdown.figures import many
from kbtool.markdown.markup import bullets, facts, folded, join
from kbtool.model.kernel import Kernel
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import page_title
from kbtool.store.sources import kernel_file, kernel_paths, line_of


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    for kernel in index.kernels.values():
        for files in texts(index, kernel).values():
            for path, text in files.items():
                yield Page(
                    at.source_page(kernel.id, path), partial(page, index, kernel, path, text)
                )


PAGES = Pages(_pages)


_HIGHLIGHTED = 200_000
"""The most characters of a file with syntax colours."""


def texts(index: Index, kernel: Kernel) -> dict[str, dict[str, str]]:
    """Purpose → path → text of the manifest's files; missing files are left out."""
    found = {
        group: {
            path: text
            for path in paths
            if (text := kernel_file(index.base, kernel.id, path)) is not None
        }
        for group, paths in kernel_paths(kernel).items()
    }
    return {group: files for group, files in found.items() if files}


def page(index: Index, kernel: Kernel, path: str, text: str) -> str:
    """One file."""
    here = at.source_page(kernel.id, path)
    lines = text.count("\n") + (not text.endswith("\n"))
    record = index.base.kernels[kernel.id].path.rpartition("/")[0]
    return join(
        [
            page_title(inline(path)),
            f"<small>{index.link(at.kernel_page(kernel.id), here)} › {code(f'{record}/{path}')}"
            "</small>",
            facts([("Lines", f"{lines:,}"), ("Size", many(len(text.encode()), "byte"))]),
            _put_back(index, kernel, path, text, here),
            numbered(path, text),
        ]
    )  # fmt: skip


def _put_back(index: Index, kernel: Kernel, path: str, text: str, here: str) -> str | None:
    """The edits of this file that put a bug back, by line."""
    edits = (
        (line_of(mutant.find, text), mutant.id, case)
        for case in index.bugs.values()
        for mutant in case.bug.mutants
        if (mutant.kernel, mutant.file) == (kernel.id, path)
    )
    found = sorted((edit for edit in edits if edit[0] is not None), key=lambda edit: edit[:2])
    if not found:
        return None
    return folded(
        f"Bugs that an edit of this file puts back: {len(found)}",
        bullets(
            f"[{line}](#L{line}): "
            + at.link(code(name), f"{case.page}#mutants.{at.fragment(name)}", here)
            + f", {index.link(case.page, here)}"
            for line, name, case in found
        ),
    )


def listing(files: Mapping[str, Mapping[str, str]], kernel: Kernel, here: str) -> str:
    """Links to the files of a kernel, group by group."""
    return bullets(
        f"{inline(group[:1].upper() + group[1:])}: "
        + ", ".join(at.link(code(path), at.source_page(kernel.id, path), here) for path in paths)
        for group, paths in files.items()
    )


@lru_cache(maxsize=4096)
def numbered(path: str, text: str) -> str:
    """A text as lines of HTML with the anchors ``L1``, ``L2`` …"""
    lines = "".join(
        f'<a id="L{number}" href="#L{number}">{number}</a>{line}\n'
        for number, line in enumerate(_lines(path, text), 1)
    )
    # The colours of the theme's own code blocks.
    return raw(f'<div class="highlight kb-source"><pre tabindex="0">{lines}</pre></div>')


_COLOURS = (
    (("c", "sd"), "<i>", "</i>"),
    (("k", "nt", "nd", "nl", "ni"), "<b>", "</b>"),
    (("s", "l"), '<i class="s">', "</i>"),
    (("m", "il"), '<i class="m">', "</i>"),
    (("n",), '<b class="n">', "</b>"),
)
"""Prefix of a Pygments class → the element with that colour (``assets/charts.css``). One-letter
elements instead of classes keep pages of sources small."""
_UNCOLOURED = frozenset({"", "n", "w", "err"})
"""Names, spaces, operators and punctuation have the colour of the text."""


def _lines(path: str, text: str) -> list[str]:
    """The lines of a text as HTML with syntax colours."""
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.token import STANDARD_TYPES
    from pygments.util import ClassNotFound

    text = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    try:
        # Pygments reads .h as C and does not know .cuh; its CUDA lexer is C with a few more words.
        name = re.sub(r"\.(h|cuh|cu)$", ".cpp", path)
        lexer = get_lexer_for_filename(name, stripnl=False, ensurenl=False)
        if len(text) > _HIGHLIGHTED:
            raise ClassNotFound
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, words in lexer.get_tokens(text):
        colour = _colour(STANDARD_TYPES.get(kind, ""))
        first, *rest = words.split("\n")
        lines[-1].append((colour, first))
        lines += [[(colour, part)] for part in rest]
    return ["".join(_coloured(line)) for line in lines]


def _colour(css: str) -> str:
    """The opening tag of a class; empty if it has no colour of its own."""
    if css in _UNCOLOURED:
        return ""
    return next((tag for starts, tag, _ in _COLOURS if css.startswith(starts)), "")


_SHUT = {tag: shut for _, tag, shut in _COLOURS}


def _coloured(line: list[tuple[str, str]]) -> Iterator[str]:
    """The words of a line, those of one colour in one element."""
    for colour, words in groupby(line, key=lambda word: word[0]):
        text = attribute_line("".join(part for _, part in words))
        yield f"{colour}{text}{_SHUT[colour]}" if colour and text.strip() else text
