"""The glossary: its entries, and the links to them from prose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import site_trees as trees
from site_html import fragment

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import glossary
from kbtool.site.pages import pages as all_pages
from kbtool.site.text.glossary import Terms
from kbtool.site.text.prose import rendered
from kbtool.store.tree import KnowledgeBase

WRITTEN = (Path(__file__).parents[2] / at.GLOSSARY.replace("guide/", "docs/guide/")).read_text()
TERMS = Terms(WRITTEN)
SMALL = """\
# Glossary

### Split-K {#split-k}
<!-- linked as: Split-K; KV split -->

Cutting the [sum](#sum) into pieces. And more.

### Online softmax {#online}
<!-- linked as: online softmax; LSE; cp.async -->

In one "pass".

### Wave {#wave}

A word of every day.
"""


def linked(text: str, page: str = "sessions/a.md") -> str:
    """What the small glossary makes of ``text``: ⟨words→entry⟩ for a link."""
    made = Terms(SMALL).linker(page)(text)
    return re.sub(
        r'<a class="kb-term" href="[^"#]*#([a-z-]+)" title="[^"]*">([^<]*)</a>', r"⟨\2→\1⟩", made
    )


def test_every_entry_says_something_and_is_found_by_its_own_spellings():
    anchors = [term.id for term in TERMS.entries]
    assert len(anchors) == len(set(anchors)) > 60
    owner: dict[str, str] = {}
    for term in TERMS.entries:
        assert len(term.gist) > 20, term.id
        for spelling in term.spellings:
            assert owner.setdefault(spelling, term.id) == term.id
            assert TERMS.named_in(f"so {spelling} it is") == {term.id}, spelling
    assert len(WRITTEN.split("\n### ")) - 1 == len(anchors)  # none is written so that it is missed


def test_links_between_entries_lead_to_entries():
    targets = set(re.findall(r"\]\(#([^)]+)\)", WRITTEN))
    assert len(targets) > 20
    assert targets <= {term.id for term in TERMS.entries}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Split-K and Split-K", "⟨Split-K→split-k⟩ and Split-K"),
        ("a KV split, then Split-K", "a ⟨KV split→split-k⟩, then Split-K"),
        ("split-k, SPLIT-K", "split-k, SPLIT-K"),
        ("Online softmax", "⟨Online softmax→online⟩"),
        ("Online Softmax", "Online Softmax"),
        ("LSEs, lse", "⟨LSEs→online⟩, lse"),
        ("FALSE, LSE2, an LSE-like, dir/LSE, LSE/dir, cp.async.wait", None),
        ("The wave", None),
        ("online&#10;softmax", "⟨online&#10;softmax→online⟩"),
        ("cp.async.", "⟨cp.async→online⟩."),
        ("## LSE {#lse}\n\nLSE", "## LSE {#lse}\n\n⟨LSE→online⟩"),
        ("[LSE](a.md) <a href='LSE'>LSE <b>x</b></a> <code>LSE</code> <pre>LSE</pre>", None),
        ("<math><mi>LSE</mi></math><svg><title>LSE</title></svg><h3>LSE</h3>", None),
        ('<p title="LSE">x</p>', None),
    ],
)  # fmt: skip
def test_the_first_use_is_linked_and_code_links_and_headings_are_left_alone(text, made):
    assert linked(text) == (text if made is None else made)


def test_a_glossary_link_has_the_first_sentence_as_its_title():
    made = Terms(SMALL).linker("bugs/a/b.md")("LSE Split-K")
    assert 'href="../../guide/glossary.html#online"' in made
    assert 'title="Cutting the sum into pieces."' in made.replace("&#46;", ".")
    assert 'title="In one &#34;pass&#34;.' in made
    assert Terms("").linker("a.md")("LSE") == "LSE"


def test_prose_is_linked_outside_of_code_and_an_attack_stays_text():
    text = f"`LSE`\n\n    LSE\n\n[LSE](http://a.example) LSE\n\n{trees.attack('LSE')}"
    markup = rendered(text, "notes", 3)
    before, after = fragment(markup), fragment(Terms(SMALL).linker("a.md")(markup))
    new = [one for one in after.elements if one[1].get("class") == "kb-term"]
    assert len(new) == 1
    assert [one for one in after.elements if one not in new] == before.elements
    assert after.text == before.text


def test_pages_link_to_the_glossary_and_the_glossary_to_patterns_and_kernels(tmp_path):
    root = trees.make(tmp_path / "kb", lambda name: f"LSE of {name}")
    made = all_pages(Index(KnowledgeBase(root), SMALL))
    session, pattern = trees.session_id(0), "P01"
    bug = at.bug_page(session, "nan")
    for page in (at.session_page(session), at.pattern_page(pattern), bug, at.kernel_page("copy")):
        assert made[page].count('class="kb-term"') == 1, page
    written = glossary.page(Index(KnowledgeBase(root), SMALL), SMALL)
    used = re.search(r"### Online softmax.*?Used in: (.*?)</small>\n\n### Wave", written, re.S)
    assert used
    assert used[1].count("](../patterns/") == 2 and "](../kernels/copy.md)" in used[1]
    assert written.count("Used in:") == 1
    assert written.replace(f"<small>Used in: {used[1]}</small>\n\n", "") == SMALL
