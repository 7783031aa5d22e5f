"""Time against ranks in the simulator (examples/scaling.rs), which needs no MPI and no quiet machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from jobs import ROOT, Failed, say

COMMAND = ["cargo", "run", "--quiet", "--release", "--no-default-features", "--example", "scaling"]


def measure(path: Path) -> None:
    """Writes to `path` a line of JSON for each collective, size, number of ranks and algorithm."""
    say("simulating 2 to 512 ranks")
    environment = {"CARGO_TARGET_DIR": str(ROOT / "target"), **os.environ}
    done = subprocess.run(COMMAND, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(COMMAND)}\n{done.stderr}")
    scratch = path.with_suffix(".new")
    scratch.write_text(done.stdout)
    scratch.replace(path)


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
