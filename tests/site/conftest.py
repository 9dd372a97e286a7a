"""Built sites, one of each kind for the whole run."""

from __future__ import annotations

from pathlib import Path

import pytest
import site_trees as trees
from site_html import Site, read_site

from kbtool.site.build import build


def make_site(root: Path) -> Site:
    out = root / "site"
    return Site(root, out, build(root, out), read_site(out))


@pytest.fixture(scope="session")
def plain_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(trees.make(tmp_path_factory.mktemp("plain") / "kb", sessions=3))


@pytest.fixture(scope="session")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(trees.make(tmp_path_factory.mktemp("hostile") / "kb", trees.attack))


@pytest.fixture(scope="session")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(trees.empty(tmp_path_factory.mktemp("empty") / "kb"))


@pytest.fixture(scope="session")
def real_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The repository's own records, built from a copy so that nothing is written beside them."""
    import shutil

    here = Path(__file__).parents[2]
    root = tmp_path_factory.mktemp("real") / "kb"
    for name in ("sessions", "patterns", "kernels", "docs"):
        if (here / name).is_dir():
            shutil.copytree(here / name, root / name)
    return make_site(root)
