"""``kbtool session``: make, list, show and keep sessions; take in runs made elsewhere."""

from __future__ import annotations

import click

from kbtool.cli.session.faults import bug, fix
from kbtool.cli.session.life import close, new, pause, resume, start
from kbtool.cli.session.lines import cost, note
from kbtool.cli.session.look import list_, show
from kbtool.cli.session.take_in import import_

EPILOG = """\b
Examples:
  kbtool session new "Fix the NaN at S=4" --budget-time '2 h'
  kbtool session note "the tail is read past its end"
  kbtool session cost gpu 0.40 --basis billed
  kbtool session bug "NaN in the last tile" --lost '40 min'
  kbtool session fix nan-in-the-last-tile --confirmed
  kbtool session close --outcome "fixed; validated at 1e-3"
  kbtool session import ~/from-the-card --session N+8
  kbtool session list --status running
  kbtool session show N+7A

\b
A session goes by its id, its label, or the beginning of its id. Without one, a command takes the
session that is running (resume: the one that is paused) and is of who works here, as git's
user.name says it, or of nobody. What no command writes, session.yaml holds a hint for; what is
wrong is mended there."""


@click.group(epilog=EPILOG)
def session() -> None:
    """Make, list, show and keep the records of sittings."""


for _command in (new, list_, show, start, pause, resume, close, note, cost, bug, fix, import_):
    session.add_command(_command)
