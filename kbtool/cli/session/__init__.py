"""``kbtool session``: create, list, show and update sessions; import runs."""

from __future__ import annotations

import click

from kbtool.cli.session.edit import edit
from kbtool.cli.session.facts import decision, evidence, hypothesis, lesson, plan, step
from kbtool.cli.session.faults import bug, fix
from kbtool.cli.session.life import close, new, pause, resume, start
from kbtool.cli.session.lines import cost, note
from kbtool.cli.session.look import list_, show
from kbtool.cli.session.measured import measurement
from kbtool.cli.session.take_in import import_
from kbtool.cli.session.together import add

EPILOG = """\b
Examples:
  kbtool session new "Fix the NaN at S=4" --budget-time '2 h'
  kbtool session note "the tail is read past its end"
  kbtool session cost gpu 0.40 --basis billed
  kbtool session bug "NaN in the last tile" --lost '40 min'
  kbtool session fix nan-in-the-last-tile --confirmed
  kbtool session lesson "Check S=4 first."
  kbtool session close --outcome "fixed; validated at 1e-3"
  kbtool session import ~/from-the-card --session last
  kbtool session list --status running
  kbtool session show last

\b
Name a session by its id or a part of it, by its label, or as last. Without a name, a command takes
the running session (resume: the paused one) whose engineer is git's user.name, or that names no
engineer. session.yaml has a commented example of each part that a record may have. Correct mistakes
there."""


@click.group(epilog=EPILOG)
def session() -> None:
    """Create, list, show and update sessions."""


for _command in (
    new, list_, show, start, pause, resume, close, note, cost, bug, hypothesis, fix, measurement,
    decision, evidence, plan, step, lesson, add, edit, import_,
):  # fmt: skip
    session.add_command(_command)
