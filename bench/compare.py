#!/usr/bin/env python3
"""Compares builds or settings of huddle: jobs of a benchmark program with each of them in turn.

    bench/compare.py --mpi openmpi --ranks 3 --turns 6 shapes before=/tmp/before after=/tmp/after
    bench/compare.py --mpi intel --ranks 4 collectives flat=DIR,HUDDLE_SCATTER=flat own=DIR -- --sizes 4096 --only Scatter
    bench/compare.py --ranks 4 --bind blocks collectives before=/tmp/before after=/tmp/after

A subject is a name, where `scripts/install --prefix` put huddle, and variables for its jobs. What follows -- goes to the
program. For each case: native/huddle, the median over all rounds of all jobs with its 95 % interval, by subject; then the
geometric means. Where ranks outnumber cores much depends on which of them share one: --bind gives neighbours different
cores, or the same. Machines have fast and slow hours, and jobs good and bad places in memory: what differs by less than the
intervals, or is of few turns, is the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "bench")]
from jobs import PROGRAMS, Bench, Failed, Job, install_packages
from mpis import Mpi, read_mpis
from parts import title_of
from results import Case, geometric_mean, pooled


@dataclass(frozen=True)
class Subject:
    """A build of huddle, with variables."""

    name: str
    prefix: Path
    variables: dict[str, str]

    @staticmethod
    def of(text: str) -> Subject:
        name, _, rest = text.partition("=")
        prefix, *variables = rest.split(",")
        library = Path(prefix, "lib/libhuddle.so")
        if not library.exists():
            raise argparse.ArgumentTypeError(f"{text}: no {library}")
        return Subject(name, Path(prefix).resolve(), dict(variable.split("=", 1) for variable in variables))


def bound(ranks: int, bind: str) -> list[str]:
    """The words before a command whose ranks shall lie on cores so."""
    cores = sorted(os.sched_getaffinity(0))
    rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
    index = f"{rank} % {len(cores)}" if bind == "alternating" else f"{rank} * {len(cores)} / {ranks}"
    script = f'cores=({" ".join(map(str, cores))}); exec taskset -c ${{cores[$(({index}))]}} "$@"'
    return ["bash", "-c", script, "bash"]


def measure(subject: Subject, mpi: Mpi, options: argparse.Namespace, arguments: list[str]) -> list[dict]:
    command = [str(Bench(subject.prefix).build(options.program, mpi)), *arguments]
    if options.bind:
        command = [*bound(options.ranks, options.bind), *command]
    variables = {"HUDDLE_PMPI": "0", **subject.variables}
    return Job(mpi, options.ranks, command, variables, subject.prefix / "lib/libhuddle.so").cases(lambda line: None)


def comparisons(lines: list[dict]) -> list[dict]:
    return [line for line in lines if {"native", "huddle"} <= set(line.get("ns", {}))]


def name_of(case: dict) -> str:
    return ": ".join(filter(None, (case.get("group"), title_of(case))))


def show(found: dict[str, list[dict]]) -> None:
    print(f"{'':<52}" + "".join(f"{name:>24}" for name in found))
    for cases in zip(*found.values(), strict=True):
        ratios = [Case(case).ratio for case in cases]
        print(f"{name_of(cases[0]):<52}" + "".join(f"{f'{ratio.value:.2f} ({ratio.low:.2f} … {ratio.high:.2f})':>24}" for ratio in ratios))
    means = [geometric_mean([Case(case).ratio.value for case in cases]) for cases in found.values()]
    print(f"{'geometric mean':<52}" + "".join(f"{mean:>24.3f}" for mean in means), flush=True)


def main() -> int:
    mpis = read_mpis()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", choices=mpis, default="openmpi")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5, help="jobs of each subject")
    parser.add_argument("--bind", choices=("alternating", "blocks"), help="where ranks lie; else as the MPI library does it")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("subjects", type=Subject.of, nargs="+", metavar="NAME=PREFIX[,VARIABLE=VALUE…]")
    own, arguments = sys.argv[1:], []
    if "--" in own:
        own, arguments = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    mpi = mpis[options.mpi]
    found: dict[str, list[dict]] = {subject.name: [] for subject in options.subjects}
    try:
        install_packages(mpi)
        for turn in range(options.turns):
            for subject in options.subjects[:: -1 if turn % 2 else 1]:
                lines = comparisons(measure(subject, mpi, options, arguments))
                found[subject.name] = pooled(found[subject.name], lines)
    except Failed as failure:
        print(f"compare: {failure}")
        return 1
    show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
