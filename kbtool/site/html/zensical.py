"""Zensical lays out the written tree: the successor of mkdocs-material, by its authors (ADR 0068).

It takes mkdocs.yml and kbtool's templates as mkdocs does. What it lacks is made up for here: its
files have to be below its settings, and it adds no pages to a navigation.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kbtool import __version__
from kbtool.model.errors import MachineError
from kbtool.site.html.engine import OVERRIDES
from kbtool.site.html.navigation import missing_pages
from kbtool.site.html.tree import SOURCE, packaged, settings_of
from kbtool.store.private import private_folder

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_WARNING = re.compile(r"^Warning: (.+)\n.*?\[ (\S+?):(\d+):\d+ \]", re.MULTILINE)


def build(root: Path, out: Path) -> list[str]:
    """Build the written tree into ``out``; returns Zensical's warnings.

    Raises:
        MachineError: Zensical could not build it.
    """
    settings, built = write_settings(root)
    shutil.rmtree(built, ignore_errors=True)  # pages of records that are gone
    done = subprocess.run(
        [*command("build"), "-f", settings], capture_output=True, text=True, check=False
    )
    said = _COLOURS.sub("", done.stdout + done.stderr)
    # It ends well, too, where it has built nothing.
    missing = next((page for page in _pages(root) if not (built / page).is_file()), None)
    if done.returncode or missing:
        told = said.partition("Error: ")[2] or said  # of a traceback, what it ends with
        reason = told.strip() if done.returncode else f"it made no {missing}"
        raise MachineError(f"Zensical could not build the site: {reason}")
    _replace(out, built)
    return problems(said)


def problems(said: str) -> list[str]:
    """The warnings in what Zensical said, one line each."""
    return [f"{path}:{line}: {what}" for what, path, line in _WARNING.findall(said)]


def command(name: str) -> list[str]:
    """Zensical, of the Python that runs kbtool."""
    return [sys.executable, "-m", "zensical", name]


def write_settings(root: Path) -> tuple[Path, Path]:
    """Write Zensical's settings; returns their path, and where the site is built by them.

    They inherit those of the knowledge base. Zensical refuses files outside of their folder.
    """
    folder = private_folder(root, Path(SOURCE).name).parent
    own = root / "mkdocs.yml"
    given = settings_of(root)
    theme = given.get("theme")
    theme = dict(theme) if isinstance(theme, dict) else {"name": theme or "material"}
    changed: dict[str, Any] = {
        "INHERIT": str(own.absolute() if own.is_file() else packaged("mkdocs.yml")),
        "docs_dir": Path(SOURCE).name,
        "site_dir": "zensical",
        "extra": {"kbtool_version": __version__},
        "nav": missing_pages(given.get("nav"), given.get("not_in_nav")),  # added to theirs
    }
    if theme.get("name") == "material":
        changed["theme"] = {
            "name": "material",
            "variant": "classic",
            "custom_dir": str(_templates(root, folder, theme.get("custom_dir"))),
        }
    settings = folder / "zensical.yml"
    settings.write_text(yaml.safe_dump(changed), encoding="utf-8")
    return settings, folder / "zensical"


def _templates(root: Path, folder: Path, own: str | None) -> Path:
    """kbtool's templates; those of the knowledge base, if it has any, before them."""
    if not own:
        return OVERRIDES
    both = folder / "overrides"
    shutil.rmtree(both, ignore_errors=True)
    shutil.copytree(OVERRIDES, both)
    shutil.copytree(root / own, both, dirs_exist_ok=True)
    return both


def _pages(root: Path) -> Iterator[Path]:
    source = root / SOURCE
    for path in source.rglob("*.md"):
        name = "index.md" if path.name == "README.md" else path.name
        yield path.relative_to(source).with_name(name).with_suffix(".html")


def _replace(out: Path, built: Path) -> None:
    """Move the built site into ``out``, in place of what was there."""
    out.mkdir(parents=True, exist_ok=True)
    for path in out.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in built.iterdir():
        shutil.move(path, out / path.name)
