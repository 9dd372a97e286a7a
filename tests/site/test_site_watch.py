"""What is watched while the site is served."""

from __future__ import annotations

import os
from pathlib import Path

from kbtool.site.html.watch import stamps


def test_each_change_of_a_file_that_the_site_is_made_from_is_seen(tmp_path: Path) -> None:
    assert stamps(tmp_path) == {}
    record, settings = tmp_path / "sessions" / "a" / "session.yaml", tmp_path / "mkdocs.yml"
    record.parent.mkdir(parents=True)
    record.write_text("a")
    settings.write_text("b")
    (tmp_path / ".kbtool").mkdir()
    (tmp_path / ".kbtool" / "made").write_text("c")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "gone.md").symlink_to("nowhere")
    seen = [stamps(tmp_path)]
    assert seen[0].keys() == {"sessions/a/session.yaml", "mkdocs.yml"}
    os.utime(record, ns=(1, 1))  # as an editor or a copy may set it
    seen.append(stamps(tmp_path))
    settings.rename(tmp_path / "kept")
    seen.append(stamps(tmp_path))
    assert seen[1] != seen[0]
    assert seen[2].keys() == {"sessions/a/session.yaml"}
