"""How long a coding agent waits for the first answer of ``kbtool mcp``, and for a later one.

    python benchmarks/bench_mcp.py

Each turn starts the server on this repository's records, as an agent's configuration does, and asks
two questions. The time of the first answer is from the start of the process. An empty server of the
SDK takes turns with it, so that other load on the machine affects both. Of a machine that others
use too, the least time is nearest to that of a quiet one. The processor time is of a whole turn.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

ROOT = Path(__file__).parents[1]
EMPTY = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("empty")
@server.tool()
def search(words: str) -> str: return words
server.run()
"""
SERVERS = {
    "empty server of the SDK": ["-c", EMPTY],
    "kbtool mcp": ["-m", "kbtool", "--root", str(ROOT), "mcp"],
}
QUESTIONS = ("the extension compiles for 80 minutes", "NaN in the last tile")


async def answers(arguments: list[str]) -> list[float]:
    """Seconds to the connection, to the first answer, and for a second one."""
    parameters = StdioServerParameters(
        command=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)}, cwd=ROOT
    )
    start = time.perf_counter()
    times = []
    async with Client(parameters) as client:
        times.append(time.perf_counter() - start)
        for words in QUESTIONS:
            done = await client.call_tool("search", {"words": words})
            assert not done.is_error
            times.append(time.perf_counter() - start)
    return [times[0], times[1], times[2] - times[1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    times: dict[str, list[list[float]]] = {name: [] for name in SERVERS}
    processor: dict[str, list[float]] = {name: [] for name in SERVERS}
    for turn in range(repeat + 1):
        for name, arguments in SERVERS.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken = anyio.run(answers, arguments)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if turn:  # the first fills the caches
                times[name].append(taken)
                used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                processor[name].append(used)
    print(f"{'':25}connected ms  first answer ms  min–max ms  next answer ms  processor ms")
    for name, each in times.items():
        connected, first, later = (
            [1e3 * one for one in column] for column in zip(*each, strict=True)
        )
        spread = f"{min(first):.0f}–{max(first):.0f}"
        print(
            f"{name:25}{statistics.median(connected):12.0f} {statistics.median(first):16.0f}"
            f" {spread:>11} {statistics.median(later):15.1f} {1e3 * min(processor[name]):13.0f}"
        )


if __name__ == "__main__":
    main()
