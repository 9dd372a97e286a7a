"""A build takes shortcuts around mkdocs, with the same outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
import site_trees as trees

from kbtool.site.html.build import load_config, run_mkdocs, write_source
from kbtool.site.html.engine import Engine
from kbtool.site.html.tree import packaged

pytestmark = pytest.mark.slow

MARKUP = """\
# A *heading* with `code`, &amp; <b>bold</b> and a [link](index.md "t")

Only words

One of each: `a [b](c) <d>`, [ref] and [text][ref], ![i](x.png) and ![i][ref], &copy; &#38; a < b,
<http://x.example/a_b>, <me@x.example>, \\*, **strong _and_ em**, [a `b` **c _d_**](index.md#none),
***x***, [unclosed](, `unclosed, "q" 'q' [ref]: no, snake_case_word, 2 * 3 * 4

{each}

[ref]: index.md

## With a tag <em title="a > b">that holds</em> a sign

| a | b <br> c |
|---|---|
| <small>one *two*</small> | [x](index.md) `|` |

> quoted <span title="<td>">raw</span>

<div markdown="block" id="one">
In *raw* <a name="two" href="index.html">HTML</a>
</div>

<span data-search-exclude>hidden <span>seen</span> <b>rest</b></span> after

<table><tr><td>cell <p>in</p> a</td></tr></table>

```python
x = {"<td>": 1}  # &amp;
```

- one

    two <script>let a = "<b>";</script>

### Again &lt;b&gt; `<i>`
"""
EACH = (
    "a `b` c", "a \\* c", "a [ref] c", "a [b](index.md) c", "![b](x.png)", "![b][ref]", "![ref]",
    "[b][ref]", "<http://x.example>", "<me@x.example>", "a  \nc", "a <b>c</b>", "a &copy; c",
    "a *b* c", "a _b_ c",
)  # fmt: skip
"""Texts with one kind of mark-up."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = trees.make(tmp_path / "kb", trees.attack)
    for path in ("markup.md", "alone.md", "deep/markup.md", "deep/er/markup.md", "deep/est/er.md"):
        page = root / "docs" / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(MARKUP.replace("{each}", "\n\n".join(EACH)), encoding="utf-8")
    (root / "docs" / "plain.md").write_text("No [ref] defined here", encoding="utf-8")
    settings = packaged("mkdocs.yml").read_text("utf-8")
    own = "nav:\n  - Mine:\n      - deep/er/markup.md\n      - Elsewhere: https://x.example/a\n"
    (root / "mkdocs.yml").write_text(settings.replace("nav:\n", own, 1), encoding="utf-8")
    return root


def test_a_build_is_what_mkdocs_makes_of_it(root: Path, tmp_path: Path) -> None:
    write_source(root)
    said = run_mkdocs(root, tmp_path / "short")
    config = load_config(root, tmp_path / "long")
    config.plugins.on_startup(command="build", dirty=False)
    engine = Engine(config)
    engine.build()
    assert not engine.page_by_page  # without a store no shortcut is taken
    short, long = (
        {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for out in (tmp_path / "short", tmp_path / "long")
    )
    assert short == long
    assert any("deep/er/markup.md" in line for line in said)
