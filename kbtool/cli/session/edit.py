"""``kbtool session edit``: the record in an editor, taken only if ``check`` finds nothing in it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.complete import session_names
from kbtool.cli.session.common import current

if TYPE_CHECKING:
    from kbtool.model.finding import Finding
    from kbtool.store.tree import KnowledgeBase

ON_A_TERMINAL = frozenset(
    ("vi", "vim", "nvim", "view", "nano", "pico", "micro", "helix", "hx", "joe", "ne", "kak",
     "mcedit", "sensible-editor", "editor")
)  # fmt: skip
"""Editors that need a terminal."""
_USUAL = ("sensible-editor", "editor", "nano", "vi")
"""Editors that are tried, in this order, if neither variable is set."""
_AT_ONCE_S = 1.0
"""An editor that ends within it was most likely started in the background."""
_MARK = "#! kbtool: "
"""How the lines at the top begin that say what was wrong; they are taken out again."""


class Draft(NamedTuple):
    """The text that is edited, and the text of the record that it was made from."""

    text: Path
    origin: Path

    def keep(self, origin: bytes) -> None:
        """Write both: the text of the record, from which the editing starts."""
        from kbtool.store.write import write_atomic

        write_atomic(self.origin, origin)
        write_atomic(self.text, origin)

    def drop(self) -> None:
        """Remove both."""
        self.text.unlink(missing_ok=True)
        self.origin.unlink(missing_ok=True)


@click.command(
    epilog="""\b
Examples:
  kbtool session edit
  kbtool session edit last
  EDITOR='code --wait' kbtool session edit
  kbtool session edit --notes

\b
The editor is $VISUAL, else $EDITOR, else one that is usual here. The text is taken if `kbtool
check` would find nothing in it. If it would, the findings are shown and you can edit again. If you
do not, the text is kept, and the next `kbtool session edit` goes on with it. What other commands
wrote into the record meanwhile is merged. Delete all text, or let the editor fail, to leave the
record as it is."""
)
@click.argument("name", metavar="[ID|LABEL]", required=False, shell_complete=session_names)
@click.option("--notes", is_flag=True, default=False, help="Edit notes.md of the session instead.")
@click.option(
    "--discard",
    is_flag=True,
    default=False,
    help="Leave out the text that was kept, and begin anew.",
)
@json_option
@click.pass_context
def edit(ctx: click.Context, name: str | None, notes: bool, discard: bool, as_json: bool) -> None:
    """Open the record of a session in an editor, and take what passes `kbtool check`."""
    from kbtool.store.lock import LockTimeoutError, lock
    from kbtool.store.private import private_folder

    base = knowledge_base(ctx)
    path = _path(base, name).with_name("notes.md" if notes else "session.yaml")
    shown = base.shown(path)
    editor = _editor(shown)
    folder = private_folder(base.root, "edit")
    stem = f"{path.parent.name}{path.suffix}"
    draft = Draft(folder / stem, folder / f".{stem}.origin")
    try:
        with lock(folder / f".{stem}.lock", timeout=0):
            done = _edit(base, path, draft, editor, discard=discard)
    except LockTimeoutError:
        from kbtool.model.errors import UsageError

        raise UsageError(
            f"{shown} is being edited already, by another `session edit`: close its editor first;"
            " `kbtool session add` writes meanwhile"
        ) from None
    if as_json:
        print_json({"session": path.parent.name, "path": shown, "changed": done})
    else:
        click.echo(f"{shown} is changed" if done else f"{shown} is as it was")


def _path(base: KnowledgeBase, name: str | None) -> Path:
    """The record; one that does not load can be edited too, to mend it."""
    if name is not None and "/" not in name and name not in ("", ".", ".."):
        path = base.root / "sessions" / name / "session.yaml"
        if path.is_file():
            return path
    if name is not None:
        return base.root / base.session(name).path
    return current(base, name)[0]


def _edit(base: KnowledgeBase, path: Path, draft: Draft, editor: str, *, discard: bool) -> bool:
    """Edit until the text is taken or left; whether the record changed."""
    from kbtool.model.errors import RecordError
    from kbtool.store.write import write_atomic

    if draft.text.exists() and draft.origin.exists() and not discard:
        click.echo(f"kbtool: going on with the text that was not taken, {base.shown(draft.text)};"
                   " --discard begins anew", err=True)  # fmt: skip
    else:
        draft.keep(path.read_bytes() if path.exists() else b"")
    refused: bytes | None = None
    while True:
        began = time.monotonic()
        _run_editor(editor, draft, path)
        text = _text_of(draft)
        if not text.strip():
            draft.drop()
            click.echo("kbtool: the text is empty, which leaves the record as it is", err=True)
            return False
        if text == draft.origin.read_bytes() and refused is None:
            draft.drop()
            if time.monotonic() - began < _AT_ONCE_S:
                click.echo("kbtool: if the editor is still open, give it its option to wait:"
                           " EDITOR='code --wait'", err=True)  # fmt: skip
            return False
        problems = _take(base, path, draft, text)
        if not problems:
            draft.drop()
            return True
        for problem in problems:
            click.echo(f"kbtool: {problem}", err=True)
        text = _text_of(draft)  # it may have been merged
        if text == refused or not _again():
            write_atomic(draft.text, text)
            raise RecordError(
                f"nothing was written into {base.shown(path)}. Your text is kept in"
                f" {base.shown(draft.text)}; `kbtool session edit {path.parent.name}` goes on with"
                " it"
            )
        write_atomic(draft.text, _with_findings(text, problems, base.shown(path)))
        refused = text


def _text_of(draft: Draft) -> bytes:
    """What the editor left, without the lines at its top that say what was wrong."""
    try:
        text = draft.text.read_bytes()
    except FileNotFoundError:
        return b""
    if text == draft.origin.read_bytes():
        return text
    return re.sub(rb"\A(?:%s.*\n?)+" % re.escape(_MARK.encode()), b"", text)


def _take(base: KnowledgeBase, path: Path, draft: Draft, text: bytes) -> list[Finding]:
    """Write the text if ``check`` finds nothing in it; what it finds."""
    from kbtool.model.finding import Finding
    from kbtool.store.edit import exclusively
    from kbtool.store.write import write_atomic

    with exclusively(path.with_name("session.yaml")):
        now = path.read_bytes() if path.exists() else b""
        origin = draft.origin.read_bytes()
        if now != origin:
            merged = _merged(text, origin, now)
            write_atomic(draft.origin, now)
            write_atomic(draft.text, text if merged is None else merged)
            if merged is None:
                why = (
                    "another command changed the record meanwhile, and there is no git to merge it:"
                    " put its changes into your text"
                )
                return [Finding(base.shown(path), 1, "file", why)]
            text = merged
        problems = _findings(base, path, text)
        if not problems:
            write_atomic(path, text)
        return problems


def _findings(base: KnowledgeBase, path: Path, text: bytes) -> list[Finding]:
    """What ``check`` would say of the text, or only because of it of other files."""
    from kbtool.checks.check import check_tree
    from kbtool.checks.examine import examine

    shown = base.shown(path)
    if not path.exists():  # the first notes of a session
        return examine(shown, "notes", text).findings
    before = {(one.path, one.rule, one.message) for one in check_tree(base.root).findings}
    return [
        one
        for one in check_tree(base.root, texts={shown: text}).findings
        if one.path == shown or (one.path, one.rule, one.message) not in before
    ]


def _merged(own: bytes, origin: bytes, theirs: bytes) -> bytes | None:
    """The own text with what others changed; conflicts are marked as git marks them. ``None``
    without git."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("yours", "before", "theirs")
        for name, content in zip(names, (own, origin, theirs), strict=True):
            Path(folder, name).write_bytes(content)
        labels = [option for name in ("your text", "before", "the record now")
                  for option in ("-L", name)]  # fmt: skip
        with contextlib.suppress(OSError):
            done = subprocess.run(
                ["git", "merge-file", "-p", "-q", *labels, *names],
                cwd=folder, capture_output=True, check=False,
            )  # fmt: skip
            if 0 <= done.returncode < 128:
                return done.stdout
    return None


def _with_findings(text: bytes, problems: list[Finding], shown: str) -> bytes:
    """The text, and before it in comments what is wrong, with the lines as they are then."""
    said = ["nothing was written yet. These lines are taken out again."]
    for one in problems:
        where = f"line {one.line + len(problems) + 1}" if one.path == shown else one.path
        said.append(f"{where}: {one.rule}: {' '.join(one.message.splitlines())}")
    return "".join(f"{_MARK}{line}\n" for line in said).encode() + text


def _again() -> bool:
    """Whether the user edits again; nobody is there to answer without a terminal."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return click.confirm("edit it again?", default=True, err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def _editor(shown: str) -> str:
    """The command of the editor.

    Raises:
        MachineError: there is none, or it needs a terminal and there is none.
    """
    from kbtool.model.errors import MachineError

    instead = f"edit {shown} as you like, then run `kbtool check`"
    given = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    on_terminal = sys.stdin is not None and sys.stdin.isatty() and os.isatty(2)
    if not given:
        found = next(filter(None, map(shutil.which, _USUAL)), None)
        if found is None or not on_terminal:
            why = "there is no terminal" if found else "there is no usual editor here"
            raise MachineError(
                f"neither VISUAL nor EDITOR is set, and {why}: set one, or {instead}"
            )
        return shlex.quote(found)
    words = given.split()
    if not on_terminal and Path(words[0]).name in ON_A_TERMINAL and "-es" not in words:
        raise MachineError(
            f"{words[0]} needs a terminal, and there is none: set EDITOR to one that does not"
            f" ('code --wait'), or {instead}"
        )
    return given


def _run_editor(editor: str, draft: Draft, path: Path) -> None:
    """Run it as git does: the shell splits its arguments.

    Raises:
        MachineError: it is not there.
        UsageError: it failed.
    """
    from kbtool.model.errors import MachineError, UsageError

    with _deaf_to_interrupts():
        # Of --json stdout holds the answer only.
        stdout = None if os.isatty(1) else 2
        status = subprocess.run(
            ["/bin/sh", "-c", f'{editor} "$@"', editor, str(draft.text)], stdout=stdout, check=False
        ).returncode
    if status in (126, 127):
        raise MachineError(f"the editor {editor!r} cannot be started: set VISUAL or EDITOR to one")
    if status:
        kept = _text_of(draft) not in (b"", draft.origin.read_bytes())
        if not kept:
            draft.drop()
        goes_on = (
            f"; `kbtool session edit {path.parent.name}` goes on with its text" if kept else ""
        )
        raise UsageError(
            f"the editor ended with status {status}, so {path.name} is as it was{goes_on}"
        )


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C is for the editor."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # one that is ignored stays so in it
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
