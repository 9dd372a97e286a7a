"""Zensical, the theme's successor, builds the written tree with its settings."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from site_html import Site

from kbtool.site.html.tree import SOURCE, packaged


def test_zensical_builds_every_page_of_the_written_tree(plain_site: Site, tmp_path: Path) -> None:
    """It says "no issues found" where it has built nothing: only the pages count."""
    pytest.importorskip("zensical", reason="pip install zensical")
    shutil.copytree(plain_site.root / SOURCE, tmp_path / SOURCE)
    shutil.copy(packaged("mkdocs.yml"), tmp_path)
    done = subprocess.run(
        [Path(sys.executable).parent / "zensical", "build"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = {
        path.relative_to(tmp_path / "site").as_posix() for path in tmp_path.glob("site/**/*.html")
    }
    assert built == set(plain_site.pages)
    first = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "assets/theme.css" in first and "assets/tables.js" in first
