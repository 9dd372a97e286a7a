"""Removing redundant attributes leaves the text, links and anchors of a page."""

from __future__ import annotations

import pytest
from site_html import fragment

from kbtool.site.html.lean import COLUMNS, lean

RIGHT = ' style="text-align: right;"'


def table(*rows: str) -> str:
    head = "<thead>\n<tr>\n<th>A</th>\n</tr>\n</thead>\n"
    body = "".join(f"<tr>\n{row}\n</tr>\n" for row in rows)
    return f"<table>\n{head}<tbody>\n{body}</tbody>\n</table>"


def test_a_table_says_once_what_is_true_of_its_columns() -> None:
    made = lean(
        table(
            f'<td><span class="kb-long">a <span class="x">b</span></span></td>\n<td{RIGHT}>1</td>',
            f"<td>c</td>\n<td{RIGHT}>2</td>",
        )
    )
    assert made.startswith('<table data-right="2" data-long="1">')
    assert "kb-long" not in made and "style" not in made
    assert '<td>a <span class="x">b</span>\n<td>1' in made
    assert "<th>A</th>" in made


def test_columns_beyond_what_the_styles_know_keep_theirs() -> None:
    made = lean(table(f"<td{RIGHT}>1</td>" * (COLUMNS + 1)))
    assert made.count(RIGHT) == 1
    assert f'{COLUMNS - 1} {COLUMNS}">' in made


def test_a_cell_with_a_class_of_its_own_keeps_it() -> None:
    assert '<td class="x">1' in lean(table('<td class="x">1</td>'))


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("<p>a\n\n    b  c</p>", "<p>a\nb c</p>"),
        ("<ul>\n  <li>a</li>\n  <li>b</li>\n</ul>", "<ul>\n<li>a\n<li>b\n</ul>"),
        ("a&#46;b&#42; &#955;", "a.b* λ"),
        ("&#60;&#62;&#38;&#34;&#39; &lt;", "&#60;&#62;&#38;&#34;&#39; &lt;"),
        ("&#1;&#8238;", "&#1;&#8238;"),
        ('<pre><code>a  b&#10;\n   c</code></pre>', "<pre><code>a  b\n\n   c</code></pre>"),
        ('<pre><span></span>a<span class="w">  </span>b</pre>', "<pre>a  b</pre>"),
        ('<script>x = "a  &#46;  b</li>"</script>', '<script>x = "a  &#46;  b</li>"</script>'),
        ("<svg><text>a  b</text></svg>", "<svg><text>a  b</text></svg>"),
    ],
)  # fmt: skip
def test_redundant_attributes_of_tables_are_removed(given: str, made: str) -> None:
    assert lean(given) == made


def test_lean_keeps_text_links_and_anchors() -> None:
    given = table('<td><a href="a&#46;html#x">one</a> two</td>\n<td id="y">three</td>')
    before, after = fragment(given), fragment(lean(given))
    assert after.text.split() == before.text.split()
    assert (after.links, after.ids) == (before.links, before.ids) == (["a.html#x"], {"y"})
