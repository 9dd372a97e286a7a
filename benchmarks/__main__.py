"""``python -m benchmarks``: every benchmark of the tool itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

for script in sorted(Path(__file__).parent.glob("bench_*.py")):
    print(f"== {script.stem}", flush=True)
    subprocess.run([sys.executable, str(script)], check=True)
    print(flush=True)
