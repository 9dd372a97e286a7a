"""``kbtool explain`` and ``kbtool search``: from a symptom, or from words, to what helps."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, warn_unreadable
from kbtool.cli.complete import run_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtool.model.explanation import Asked, Explanation, Fit
    from kbtool.store.tree import KnowledgeBase

BEST = 3
"""So many are shown without ``--all``."""
HITS = 10

_LONGEST_LINE = 200


@click.command(
    epilog="""\b
Examples:
  kbtool explain build.log             what its messages mean, and what to do
  ninja 2>&1 | kbtool explain          the same, of what a program prints
  kbtool explain --run last              the failing steps of a run
  kbtool explain --words "my CUDA extension compiles for 80 minutes"
  ncu --csv --page raw ./app | kbtool explain -
  kbtool explain build.log --ask "llm -m MODEL"   the catalogue, and a language model

\b
Read are the output of compilers, linkers, ninja, CMake, pip, PyTorch, Triton, NCCL,
compute-sanitizer and Nsight Compute, and error messages of CUDA. Each line is compared with the
symptoms of the patterns and of the catalogue in symptoms/. Tables of `ncu --csv` and of
`nsys stats --format csv` are read as figures with their unit, of the kernels that took longest.
Causes come first, and of these what stands first in the text. Advice for other GPU architectures
than those that the text names is left out. If no line fits, records are shown that the text
resembles in its words.

\b
With --ask a program that you name gets the text, what the catalogue says and a question, and its
remedies are shown first, as what a model says: nobody has verified them. A reason that the text
does not hold is left out. The text may leave this machine: that is up to the program.

\b
Exit status: 0 something fits; 1 nothing does; 2 usage; 3 the file cannot be read, or the program
that is asked does not answer."""
)
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option(
    "--run",
    "run",
    metavar="RUN",
    shell_complete=run_names,
    help="Explain the failing steps of this run.",
)
@click.option("--words", metavar="TEXT", help="Explain this text.")
@click.option(
    "--card",
    "cards",
    metavar="CARD",
    multiple=True,
    help="The card, or its architecture (sm_90), that it is about; repeatable.",
)
@click.option(
    "--ask",
    "program",
    metavar="COMMAND",
    help="Ask a language model too: a program that reads a question on standard input and prints"
    " the answer. The text goes to that program.",
)
@click.option("--all", "show_all", is_flag=True, help=f"Show all that fits, not the best {BEST}.")
@json_option
@click.pass_context
def explain(
    ctx: click.Context,
    file: str | None,
    run: str | None,
    words: str | None,
    cards: tuple[str, ...],
    program: str | None,
    show_all: bool,
    as_json: bool,
) -> None:
    """Say what messages of tools mean, and what to do: the text of a failed build, of a crash, of a
    wrong result, of a profile."""
    from kbtool.model.errors import UsageError
    from kbtool.runner import remedies

    if sum(one is not None for one in (file, run, words)) > 1:
        raise UsageError("give one of FILE, --run and --words")
    base = knowledge_base(ctx)
    about = [architecture_of(card) for card in cards]
    with contextlib.ExitStack() as stack:
        text: Iterable[bytes]
        if run is not None:
            text, card = text_of_run(base, run)
            about += [card] if card else []
        elif words is not None:
            text = [words.encode("utf-8", "replace")]
        else:
            text = of_file(file, stack)
        named = file if file not in {None, "-"} else None
        if program is not None:
            click.echo(f"kbtool: asking: {program}", err=True)
        found = remedies.explain(base, text, about, named, program)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found, None if show_all else BEST)
    warn_unreadable(base)
    if found.asked is not None and found.asked.problem is not None:
        click.echo(f"kbtool: {found.asked.problem}", err=True)
        ctx.exit(3)
    if not found.fits and not (found.asked and found.asked.remedies):
        ctx.exit(1)


def architecture_of(card: str) -> str:
    """The architecture of a card, such as ``sm_90``; one that is given stays as it is.

    Raises:
        UsageError: it is neither.
    """
    from kbtool.model.cards import capability_of, card_of
    from kbtool.model.errors import UsageError

    known = card_of(card)
    if known is not None:
        return f"sm_{known.capability}"
    if capability_of(card) is None:
        raise UsageError(f"--card {card}: not a known card; write its architecture, such as sm_90")
    return card


def of_file(file: str | None, stack: contextlib.ExitStack) -> Iterator[bytes]:
    """The text of a file, or of what is piped in, in blocks."""
    import sys

    from kbtool.model.errors import MachineError, UsageError
    from kbtool.runner.explain import blocks_of

    if file is None and sys.stdin.isatty():
        raise UsageError(
            "there is nothing to explain: name a file, or pipe the text in: ninja 2>&1 | kbtool"
            " explain"
        )
    if file is None or file == "-":
        return blocks_of(sys.stdin.buffer)
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - ``stack`` closes it
        stack.enter_context(opened)
        opened.peek(1)
    except OSError as error:
        raise MachineError(f"{file} cannot be read: {error.strerror}") from None
    return blocks_of(opened)


def text_of_run(base: KnowledgeBase, name: str) -> tuple[list[bytes], str | None]:
    """What the failing steps of a run say, and the architecture of its card."""
    entry = base.run_named(name)
    lines = [
        line
        for step in entry.record.steps
        if step.outcome != "passed"
        for line in (step.error, step.message)
        if line
    ]
    capability = entry.record.machine.compute_capability
    return ["\n".join(lines).encode("utf-8", "replace")], capability


def _print(found: Explanation, most: int | None) -> None:
    from kbtool.model.words import many

    if found.asked is not None and found.asked.problem is None:
        _print_asked(found.asked)
    if not found.fits:
        click.echo(
            f"kbtool: nothing that is known fits: {many(found.lines, 'line')} read. Once it is"
            f" solved, keep it for the next time: {found.record}",
            err=True,
        )
        return
    shown = found.fits[:most]
    for fit in shown:
        if fit.rank > 1:
            click.echo()
        _print_fit(fit)
    left = len(found.fits) - len(shown)
    if left:
        click.echo(f"kbtool: {left} more: --all shows them", err=True)


def _print_asked(asked: Asked) -> None:
    click.echo(f"What `{asked.command}` says; nobody has verified it:")
    for number, one in enumerate(asked.remedies, 1):
        click.echo(f"{number}. {one.cause}")
        if one.text:
            click.echo(f"   as the text has: {' '.join(one.text.split())}")
        click.echo(f"   do: {one.advice}")
        if one.command:
            click.echo(f"   run: {one.command}")
    if not asked.remedies:
        click.echo("   it knows of no remedy")
    click.echo("\nWhat the records say:")


def _print_fit(fit: Fit) -> None:
    click.echo(f"{fit.rank}. {fit.title} ({fit.name})")
    if fit.how == "match":
        click.echo(f"   line {fit.line}: {fit.text}")
    else:
        click.echo(f"   resembles the text in: {', '.join(fit.shared)}")
    if fit.architectures:
        click.echo(f"   for: {', '.join(fit.architectures)}")
    for cause in fit.causes:
        click.echo(f"   do: {cause.advice}")
        click.echo(f"      as the text has: {cause.text}")
        if cause.command:
            click.echo(f"      run: {cause.command}")
    if fit.advice:
        click.echo(f"   {'else' if fit.causes else 'do'}: {fit.advice}")
    if fit.command:
        click.echo(f"   run: {fit.command}")
    for pattern in fit.patterns:
        click.echo(f"   pattern: {pattern.id} {pattern.title}")
    for bug in fit.bugs:
        fixes = f": {'; '.join(bug.fixes)}" if bug.fixes else ""
        click.echo(f"   seen before: {bug.session}#bugs.{bug.id} {bug.title} ({bug.status}){fixes}")
    if fit.source:
        click.echo(f"   source: {fit.source}")


@click.command(
    epilog="""\b
Examples:
  kbtool search "extension compiles for 80 minutes"
  kbtool search NaN last tile
  kbtool search --json wgmma | jq -r '.hits[].id'

\b
Patterns, symptoms, bugs, sessions, recipes, kernels and the pages under docs/ are searched. Words
count by their stems (compiles finds compiled) and by synonyms (slow finds takes long); rare words
count more. Numbers are words, and S>64 finds S=64. A word that no record has is taken for those
that are one letter away. What is called as the search says comes first (bug 4, P08). The search of
the site ranks in the same way. Exit status: 0 something is found; 1 nothing is."""
)
@click.argument("words", nargs=-1, required=True)
@click.option("--all", "show_all", is_flag=True, help=f"Show all that is found, not {HITS}.")
@json_option
@click.pass_context
def search(ctx: click.Context, words: tuple[str, ...], show_all: bool, as_json: bool) -> None:
    """Search all records by WORDS, the best first."""
    from kbtool.store.pool import collector_off

    with collector_off():  # around the imports too: they make a third of what it would look at
        from kbtool.runner.index import index_of
        from kbtool.store.root import find_root

        index = index_of(find_root(ctx.find_root().obj))
        found = index.search(" ".join(words))
    hits = found["hits"]
    if as_json:
        print_json(found)
    else:
        for hit in hits if show_all else hits[:HITS]:
            click.echo(f"{hit['rank']}. {hit['kind']} {hit['id']}: {hit['title']}")
            if hit["text"]:
                text = " ".join(hit["text"].split())
                cut = text if len(text) <= _LONGEST_LINE else text[:_LONGEST_LINE] + "…"
                click.echo(f"   {cut}")
        if found["unknown"]:
            click.echo(f"kbtool: in no record: {', '.join(found['unknown'])}", err=True)
        if not hits:
            click.echo("kbtool: nothing is found; try other words", err=True)
    warn_unreadable(index)
    if not hits:
        ctx.exit(1)
