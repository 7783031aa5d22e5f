"""Installs MPIs, builds huddle and the benchmark programs, and runs them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mpis import ROOT, Mpi

PROGRAMS = {name: [f"{name}.c", "calls.c", "loops.c", "kernel.c", "measure.c"] for name in ("collectives", "shapes", "programs", "limits")}
FLAGS = ["-std=gnu11", "-O3", "-march=native", "-Wall", "-Wextra"]


class Failed(Exception):
    """A command did not do what it should; its output is in the text."""


def say(text: str) -> None:
    print(text, flush=True)


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\n{done.stdout}")


def install_packages(mpi: Mpi) -> None:
    """Makes the virtual environment of an MPI that comes from packages, unless it is there, whole."""
    mark = mpi.home / "installed"
    wanted = " ".join(mpi.packages)
    if not mpi.packages or (mark.exists() and mark.read_text() == wanted):
        return
    say(f"installing {wanted} in {mpi.home}")
    shutil.rmtree(mpi.home, ignore_errors=True)
    mpi.home.parent.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-m", "venv", str(mpi.home)])
    run([str(mpi.home / "bin/python"), "-m", "pip", "install", "--quiet", *mpi.packages])
    mark.write_text(wanted)


def install_huddle(prefix: Path, mpis: list[Mpi]) -> None:
    """Installs an engine for each MPI. Libraries of one ABI share an engine, which is built with the first."""
    environment: dict[str, str] = {}
    for mpi in reversed(mpis):
        environment |= mpi.environment()
    compilers = [part for mpi in mpis for part in ("--mpicc", mpi.cc)]
    say(f"building huddle into {prefix}")
    run([str(ROOT / "scripts/install"), "--prefix", str(prefix), *compilers], environment)


@dataclass(frozen=True)
class Bench:
    """Where huddle is installed, and where programs are built."""

    prefix: Path
    work: Path = ROOT / "target" / "bench"

    @cached_property
    def build_of_huddle(self) -> str:
        """A fingerprint of the engines."""
        engines = sorted((self.prefix / "lib/huddle").glob("*.so"))
        return hashlib.sha256(b"".join(engine.read_bytes() for engine in engines)).hexdigest()[:16]

    @cached_property
    def state(self) -> str | None:
        """The commit of this tree; None if the tree has changes or is no repository."""
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None
        return None if found.endswith("-dirty") else found

    def build(self, program: str, mpi: Mpi) -> Path:
        """Returns the program for this MPI, rebuilt if a source is newer."""
        target = self.work / mpi.name / program
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sources = [ROOT / "bench" / name for name in PROGRAMS[program]]
            newest = max(path.stat().st_mtime for path in [*sources, *(ROOT / "bench").glob("*.h")])
            if not target.exists() or target.stat().st_mtime < newest:
                run([mpi.cc, *FLAGS, *map(str, sources), "-o", str(target), "-lm"], mpi.environment())
        return target


@dataclass
class Job:
    """One start of mpiexec."""

    mpi: Mpi
    ranks: int
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    preload: Path | None = None
    timeout: float = 600

    def lines(self) -> Iterator[str]:
        """Its output, line by line as it comes. Ends the job after the timeout."""
        variables = dict(self.variables)
        if self.preload is not None:
            variables["LD_PRELOAD"] = str(self.preload)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HUDDLE_") and name != "LD_PRELOAD"}
        environment = {**clean, **self.mpi.environment(self.ranks), **variables}
        # timeout(1) ends mpiexec, which ends its ranks.
        command = ["timeout", "--kill-after=10", str(self.timeout), *self.mpi.command(self.ranks, list(variables)), *self.command]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        tail: list[str] = []
        for line in process.stdout:
            tail = [*tail[-19:], line]
            yield line
        if process.wait() != 0:
            raise Failed(f"exit code {process.returncode}: {' '.join(command)}\n{''.join(tail)}")

    def cases(self, show: Callable[[dict], None]) -> list[dict]:
        """Returns the lines of JSON in its output; shows each as it comes."""
        found = []
        for line in self.lines():
            if line.startswith("{"):
                found.append(json.loads(line))
                show(found[-1])
        return found


def machine() -> dict[str, str | int]:
    """The facts about the machine that belong to every number."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    model = fields.get("model name", os.uname().machine)
    # Virtual machines hide which of a maker's processors they have; generations differ by more than what is measured
    # here.
    if "cpu family" in fields:
        model += f", family {fields['cpu family']}, model {fields.get('model', '?')}"
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": os.cpu_count() or 1, "cpu": model,
            "kernel": os.uname().release.split("-")[0]}
