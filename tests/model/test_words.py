"""Words that messages share."""

from __future__ import annotations

import pytest

from kbtool.model.words import without_folders


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("at /usr/lib/x/include/a.h:49: no", "at a.h:49: no"),
        ("'/a/b.so' and /c-d/e_f/g.cu", "'b.so' and g.cu"),
        ("-I/home/x/include from:/home/x/a.h", "-Iinclude from:a.h"),
        ("file:///home/x/a.html", "file://a.html"),
        ("5 GB/s, 1/2 and a/b/c.h", "5 GB/s, 1/2 and a/b/c.h"),
        ("see https://docs.nvidia.com/cuda/x.html", "see https://docs.nvidia.com/cuda/x.html"),
        ("/single is a name, / is none", "/single is a name, / is none"),
    ],
)
def test_absolute_paths_are_cut_down_to_the_name(text: str, left: str) -> None:
    assert without_folders(text) == left
