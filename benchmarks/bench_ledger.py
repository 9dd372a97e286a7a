"""How long sums and the audit of many costs take, beside hledger and beancount on the same lines.

    python benchmarks/bench_ledger.py
    python benchmarks/bench_ledger.py --sessions 10000 --lines 10 --repeat 5

The knowledge base is generated. The peers get the lines of ``kbtool export jsonl`` in the shortest
journal that holds them: no metadata, one transaction per session. Whole processes are timed in turn
within each round, so that other load on the machine affects all of them. Reported are medians and
their ratio to each peer. Cold: without the program's own cache; warm: the same command again. Files
are in the page cache. The benchmark fails if any sum differs by a cent.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from bench_check import SETTLE
from generate import generate

from kbtool.cli.main import COMMANDS

Sums = dict[str, Decimal]
"""Kind of cost → sum."""

BEANCOUNT = """
import sys
from collections import defaultdict
from decimal import Decimal
from beancount import loader
from beancount.core.data import Transaction
entries, errors, _ = loader.load_file(sys.argv[1])
assert not errors, errors[:3]
sums = defaultdict(Decimal)
for entry in entries:
    if isinstance(entry, Transaction):
        for posting in entry.postings:
            sums[posting.account] += posting.units.number
for account, number in sums.items():
    print(f"{account},{number}")
"""


@dataclass
class Arm:
    """One program, run with the same arguments in each round."""

    name: str
    command: list[str]
    read: Callable[[str], Sums] | None = None
    """Reads the sums from its output, if it prints any."""
    cache: Path | None = None
    """What to remove before a cold run."""
    env: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """CPU seconds, of all its processes."""
    is_peer: bool = False
    expected: int = 0
    """The exit status of success."""

    def ask(self) -> Sums | None:
        if self.cache is not None:
            shutil.rmtree(self.cache, ignore_errors=True)
        start, cpu = time.perf_counter(), _cpu()
        done = subprocess.run(
            self.command, capture_output=True, text=True, env={**os.environ, **self.env}
        )
        self.seconds.append(time.perf_counter() - start)
        self.cpu.append(_cpu() - cpu)
        if done.returncode != self.expected:
            sys.exit(f"{self.name} ended with {done.returncode}:\n{done.stderr[:2000]}")
        return self.read(done.stdout) if self.read else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=10, help="cost lines a session")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbtool-bench-") as folder:
        root = Path(folder, "base")
        generate(root, options.sessions, options.lines)
        journals = _journals(root, Path(folder))
        time.sleep(SETTLE)
        arms = _arms(root, journals)
        print(
            f"{options.sessions:,} sessions, {options.sessions * options.lines:,} cost lines;"
            f" {os.cpu_count()} cores, Python {sys.version.split()[0]}, {options.repeat} rounds;"
            f" load {os.getloadavg()[0]:.1f}\n"
        )
        sums: dict[str, Sums] = {}
        for _ in range(options.repeat):
            for arm in arms:
                answer = arm.ask()
                if answer is not None:
                    sums[arm.name] = answer
    first = next(iter(sums.values()))
    for name, answer in sums.items():
        if answer != first:
            sys.exit(f"{name} has other sums: {answer}, not {first}")
    peers = [arm for arm in arms if arm.is_peer]
    print(f"{'':22}median s     min–max s   CPU s" + "".join(f"{'÷ ' + p.name:>19}" for p in peers))
    for arm in arms:
        median = statistics.median(arm.seconds)
        spread = f"{min(arm.seconds):.2f}–{max(arm.seconds):.2f}"
        ratios = "".join(
            f"{median / statistics.median(peer.seconds):19.2f}"
            for peer in (() if arm.is_peer else peers)
        )
        cpu = statistics.median(arm.cpu)
        print(f"{arm.name:22}{median:8.2f}  {spread:>12}{cpu:8.2f}{ratios}")
    agreed = ", ".join(f"{kind} {amount}" for kind, amount in sorted(first.items()))
    print(f"\nthe same sums in all of them, to the cent: {agreed}")
    if not any(peer.name == "hledger" for peer in peers):
        print("hledger is not installed, so it is not in the table (Debian: apt install hledger)")


def _cpu() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _arms(root: Path, journals: dict[str, Path]) -> list[Arm]:
    kbtool = [sys.executable, "-m", "kbtool", "--root", str(root)]
    cache = root / ".kbtool"
    costs = [*kbtool, "costs", "--by", "kind", "--json"]
    arms = [
        Arm("kbtool costs, cold", costs, _kbtool_sums, cache=cache),
        Arm("kbtool costs, warm", costs, _kbtool_sums),
    ]
    if "audit" in COMMANDS:
        audit = [*kbtool, "audit", "--json"]
        arms += [Arm("kbtool audit, cold", audit, cache=cache), Arm("kbtool audit, warm", audit)]
    hledger = shutil.which("hledger")
    if hledger:
        ask = [hledger, "-f", str(journals["hledger"]), "balance", "Expenses", "-N", "-O", "csv"]
        arms.append(Arm("hledger", ask, _account_sums, is_peer=True))
    ask = [sys.executable, "-c", BEANCOUNT, str(journals["beancount"])]
    off = {"BEANCOUNT_DISABLE_LOAD_CACHE": "1"}
    arms.append(Arm("beancount, cold", ask, _account_sums, env=off, is_peer=True))
    arms.append(Arm("beancount, warm", ask, _account_sums, is_peer=True))
    return arms


def _journals(root: Path, folder: Path) -> dict[str, Path]:
    """The cost lines of ``root`` as journals."""
    command = [sys.executable, "-m", "kbtool", "--root", str(root), "export", "jsonl"]
    exported = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in exported.splitlines()]
    body: list[str] = []
    for place, line in enumerate(lines):
        if place == 0 or line["session"] != lines[place - 1]["session"]:
            body.append(f'\n{line["day"]} * "{line["label"]}"\n')
        body.append(f"  Expenses:{line['kind'].title()}  {line['amount']} {line['currency']}\n")
        if place + 1 == len(lines) or line["session"] != lines[place + 1]["session"]:
            body.append("  Equity:Costs\n")
    accounts = [f"Expenses:{kind.title()}" for kind in sorted({line["kind"] for line in lines})]
    first = min(line["day"] for line in lines)
    opened = "".join(f"{first} open {account}\n" for account in [*accounts, "Equity:Costs"])
    journals = {"hledger": folder / "costs.journal", "beancount": folder / "costs.beancount"}
    journals["hledger"].write_text("".join(body), encoding="utf-8")
    journals["beancount"].write_text(opened + "".join(body), encoding="utf-8")
    return journals


def _kbtool_sums(text: str) -> Sums:
    return {row["key"]: Decimal(row["total"]) for row in json.loads(text)["rows"]}


def _account_sums(text: str) -> Sums:
    sums = {}
    for account, amount in csv.reader(io.StringIO(text)):
        if account.startswith("Expenses:"):
            sums[account.removeprefix("Expenses:").lower()] = Decimal(amount.split()[0])
    return sums


if __name__ == "__main__":
    main()
