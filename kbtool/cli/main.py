"""Entry point: finds commands lazily, turns errors into messages and exit codes.

Command modules import click and nothing heavy; records, torch, git and mkdocs are imported inside
the functions that need them, so that ``kbtool --help`` answers at once.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
import keyword
import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from kbtool import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COMMANDS = {
    "init": "kbtool.cli.init",
    "check": "kbtool.cli.check",
    "migrate": "kbtool.cli.migrate",
    "recipes": "kbtool.cli.recipe",
    "run-recipe": "kbtool.cli.recipe",
    "recover": "kbtool.cli.recipe",
    "sweep": "kbtool.cli.sweep",
    "forget": "kbtool.cli.forget",
    "session": "kbtool.cli.session",
    "import": "kbtool.cli.import_log",
    "import-results": "kbtool.cli.import_results",
    "kernel": "kbtool.cli.kernel",
    "compare": "kbtool.cli.compare",
    "bisect": "kbtool.cli.bisect",
    "fastest": "kbtool.cli.fastest",
    "history": "kbtool.cli.history",
    "costs": "kbtool.cli.costs",
    "audit": "kbtool.cli.audit",
    "status": "kbtool.cli.status",
    "keep-or-stop": "kbtool.cli.keep_or_stop",
    "doctor": "kbtool.cli.doctor",
    "explain": "kbtool.cli.explain",
    "search": "kbtool.cli.explain",
    "patterns": "kbtool.cli.patterns",
    "mcp": "kbtool.cli.mcp",
    "export": "kbtool.cli.export",
    "site": "kbtool.cli.site",
    "schema": "kbtool.cli.schema",
    "completion": "kbtool.cli.complete",
}
"""Command → the module that defines it, as a click command of that name, or ``import_``."""

EPILOG = """\b
Examples:
  kbtool recipes                  what can be run here; kbtool run-recipe RECIPE runs it
  kbtool session new "Fix NaN"    start the record of a session
  kbtool check                    every problem in every record
  kbtool costs --by month         where money and time went

\b
In the examples of all commands, replace words in capitals by names of your own.

\b
Exit status: 0 done and passed; 1 a finding (a wrong kernel, a bad record);
2 usage; 3 something is missing on this machine; 4 timeout or interrupted; 70 a bug in kbtool;
75 noisy: other processes were busy while it measured; run it again."""


_NARROW, _NARROWEST = 50, 20
"""Columns of a terminal in which names and texts do not fit side by side, and in which none do."""


class Help(click.HelpFormatter):
    """Help whose examples and usage can be pasted, as wide as the terminal."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # click takes no terminal to be narrower than 50 columns, and the lines were torn.
        self.width = min(self.width, max(shutil.get_terminal_size().columns, _NARROWEST))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Options and commands; in a narrow terminal the text stands below a long name."""
        super().write_dl(
            list(rows), self.width // 3 if self.width < _NARROW else col_max, col_spacing
        )

    def getvalue(self) -> str:
        """The text."""
        from kbtool.cli.pasted import pasted

        return pasted(super().getvalue())


click.Context.formatter_class = Help


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(module, f"{name}_" if keyword.iskeyword(name) else name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` name; of an unknown one the error says which may be meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2)
            if not near:
                raise
            said = f"{error.message} Did you mean {' or '.join(near)}?"
            raise click.UsageError(said, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click itself would end with status 1, and no word, at a broken pipe."""
        from kbtool.model.errors import MachineError

        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # not of stdout or stderr, see ``_Output``
            raise MachineError("a program that kbtool had started ended too early") from error


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--root",
    metavar="DIR",
    help="The knowledge base. Default: KBTOOL_ROOT, else the nearest from this folder upwards.",
)
@click.version_option(__version__, prog_name="kbtool")
@click.pass_context
def cli(ctx: click.Context, root: str | None) -> None:
    """Keep GPU kernel work as records in git: check them, run their recipes, sum their costs."""
    ctx.obj = root


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with kbtool's exit status."""
    if argv is None:
        _read_as_utf8()
    _open_streams()
    if argv is None and COMPLETING in os.environ:
        from kbtool.cli.complete import answer

        status = answer()
        if status is not None:
            sys.exit(status)
    status = run(argv)
    # What was done is done: a second Ctrl-C must not change the status of the first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


COMPLETING = "_KBTOOL_COMPLETE"
"""The variable that a shell sets to ask for completions."""


def _read_as_utf8() -> None:
    """Start again in Python's UTF-8 mode where arguments and file names are ASCII to Python.

    So they are in the locale C with ``PYTHONUTF8=0``: no text with an umlaut could be recorded.
    """
    ascii_only = codecs.lookup(sys.getfilesystemencoding()).name == "ascii"
    if ascii_only and sys.executable and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class _Output(io.FileIO):
    """Stdout or stderr whose reader may go away (``| head``): what is written then is lost, and
    the command goes on. Its exit status says what it found, and a run is worth its record.

    Progress and messages on stderr may be lost to a full disk too; output may not.
    """

    def write(self, data: Any) -> int:
        """Write to the descriptor, or from the first error on to nowhere."""
        try:
            return super().write(data) or 0
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                raise
            return len(data)


def _open_streams() -> None:
    """Make stdout and stderr such that no command ends because of who reads them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed (``>&-``): the next file to be opened would take its number
            os.open(os.devnull, os.O_RDWR)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            stream.flush()
            # A character that the terminal's encoding lacks becomes a question mark, not a crash.
            errors = "replace" if stream.errors == "strict" else stream.errors
            buffer = io.BufferedWriter(_Output(descriptor, "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(
                buffer, stream.encoding, errors, line_buffering=stream.line_buffering,
            ))  # fmt: skip


def run(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status. Errors go to stderr."""
    from kbtool.cli.pasted import pasted
    from kbtool.runner.terminal import Guarded

    with (
        contextlib.redirect_stdout(Guarded(sys.stdout)),
        contextlib.redirect_stderr(Guarded(sys.stderr, pasted)),
    ):
        return _run(argv)


def _run(argv: list[str] | None) -> int:
    from kbtool.model.errors import UserError

    given = sys.argv[1:] if argv is None else argv
    _asked.as_json = "--json" in given[: given.index("--") if "--" in given else None]
    _asked.words = given
    try:
        _check_time_zone()
        # ctx.exit(n) in a command comes back as the return value.
        status = cli.main(argv, prog_name="kbtool", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        return _say(str(error), error.exit_code, error.code)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return 2
    except click.UsageError as error:
        error.show()
        help_ = f"{error.ctx.command_path} --help" if error.ctx is not None else "kbtool --help"
        return _tell(error.format_message(), 2, "usage", f"see `{help_}`")
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code, "usage")
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", 4, "interrupted")
    except OSError as error:
        return _say(_os_error(error), 3, "system")
    except Exception as error:
        return _bug(error)
    return status if isinstance(status, int) else 0


def _check_time_zone() -> None:
    """Refuse a zone that Python cannot compute with, before a command meets it halfway."""
    from kbtool.model.errors import UsageError

    if abs(time.localtime().tm_gmtoff) >= _DAY:
        zone = os.environ.get("TZ", "")
        raise UsageError(f"TZ={zone} is 24 hours or more from UTC; unset TZ or name a zone")


_DAY = 24 * 60 * 60


class _Asked:
    """What the command line asks for, whatever becomes of it."""

    as_json = False
    words: Sequence[str] = ()


_asked = _Asked()


def _say(message: str, status: int, code: str) -> int:
    click.echo(f"kbtool: {message}", err=True)
    return _tell(message, status, code)


def _tell(message: str, status: int, code: str, remedy: str | None = None) -> int:
    """With ``--json``, the error as the one JSON object on stdout; returns the exit status.

    Args:
        message: what is wrong, and what to do about it.
        status: the exit status.
        code: what a program tells the error by.
        remedy: what to do. Default: what the message says after its first semicolon, else what
            helps with errors of this code.
    """
    if _asked.as_json:
        from kbtool.cli.common import print_json
        from kbtool.cli.pasted import pasted

        said = pasted(message)
        told = remedy or said.partition("; ")[2] or _remedy(said, code)
        error = {"code": code, "status": status, "message": said, "remedy": pasted(told)}
        with contextlib.suppress(OSError):
            print_json({"error": error})
            sys.stdout.flush()
    return status


def _remedy(said: str, code: str) -> str:
    """What to do about an error whose message does not say it apart."""
    if code == "interrupted":
        return "run it again"
    if code == "record":
        return f"{said}: mend the record; `kbtool check` names each finding"
    if code in {"machine", "system"}:
        return f"{said}: mend that, then run it again"
    return f"{said}: see `{_command_path()} --help`"


def _command_path() -> str:
    """The command that was asked for, without its arguments."""
    command: click.Command = cli
    path = ["kbtool"]
    for word in _asked.words:
        if isinstance(command, click.Group):
            below = command.get_command(click.Context(command), word)
            if below is not None:
                command = below
                path.append(word)
    return " ".join(path)


def _os_error(error: OSError) -> str:
    import errno

    place = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"{place}the disk is full; no file was left half-written: make room and run it again"
    return f"{place}{error.strerror or error}"


def _bug(error: Exception) -> int:
    import platform
    import tempfile
    import traceback

    report = "".join(traceback.format_exception(error))
    details: dict[str, Any] = {
        "kbtool": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "command": " ".join(sys.argv[1:]),
    }
    text = "\n".join(f"{key}: {value}" for key, value in details.items()) + "\n\n" + report
    click.echo(f"kbtool: this is a bug in kbtool: {type(error).__name__}: {error}", err=True)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="kbtool-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        click.echo(f"kbtool: a report to paste is in {file.name}", err=True)
        remedy = f"report it, with {file.name}"
    except OSError:
        click.echo(f"kbtool: a report to paste:\n{text}", err=True)
        remedy = "report it, with what stands on stderr"
    return _tell(f"a bug in kbtool: {type(error).__name__}: {error}", 70, "bug", remedy)
