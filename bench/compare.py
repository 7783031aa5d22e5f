#!/usr/bin/env python3
"""Compares builds or settings of huddle: jobs of a benchmark program with each of them in turn.

    bench/compare.py --mpi openmpi --ranks 3 --turns 6 shapes before=/tmp/before after=/tmp/after
    bench/compare.py --mpi intel --ranks 4 collectives flat=DIR,HUDDLE_SCATTER=flat own=DIR -- --sizes 4096 --only Scatter
    bench/compare.py --ranks 4 --bind blocks collectives before=/tmp/before after=/tmp/after
    bench/compare.py --mpi intel --apart 150 collectives before=/tmp/before after=/tmp/after
    bench/compare.py --beside 2 shapes before=/tmp/before after=/tmp/after -- --only "after computing"

A subject is a name, where `scripts/install --prefix` put huddle, and variables for its jobs. What follows -- goes to the
program. For each case: huddle's time in microseconds and native/huddle, medians over all rounds of all jobs, with its 95 %
interval, by subject; then the geometric means. --apart shows rounds whose bare exchange took less than so many nanoseconds
apart from the others, for machines on which ranks lie now near each other and now far. Where ranks share two cores,
their own exchange does not tell, so two ranks measure it before and after each job. Where ranks outnumber cores much depends on
which of them share one: --bind gives neighbours different cores, or the same. --beside starts other programs that compute as
long as the jobs run, as on a node that several users share. Machines have fast and slow hours, and jobs good and bad places
in memory: what differs by less than the intervals, or is of few turns, is the same.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "bench")]
from jobs import PROGRAMS, Bench, Failed, Job, install_packages
from mpis import Mpi, read_mpis
from parts import title_of
from results import Case, geometric_mean, pooled

FEW = 5  # least rounds with which a case that was split is shown


@dataclass(frozen=True)
class Subject:
    """A build of huddle, and the variables for its jobs."""

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
    """The words before a command that bind its ranks to cores in this way."""
    cores = sorted(os.sched_getaffinity(0))
    rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
    index = f"{rank} % {len(cores)}" if bind == "alternating" else f"{rank} * {len(cores)} / {ranks}"
    script = f'cores=({" ".join(map(str, cores))}); exec taskset -c ${{cores[$(({index}))]}} "$@"'
    return ["bash", "-c", script, "bash"]


def bare_exchange(bench: Bench, mpi: Mpi) -> float:
    """How long the bare exchange of two ranks takes now, in nanoseconds."""
    command = [str(bench.build("collectives", mpi)), "--sizes", "8", "--only", "Barrier", "--rounds", "3"]
    lines = Job(mpi, 2, [*bound(2, "alternating"), *command]).cases(lambda line: None)
    return median(next(line["ns"]["bare"] for line in lines if "ns" in line))


def measure_near_or_far(job: Callable[[], list[dict]], exchange: Callable[[], float], limit: float) -> list[dict]:
    """The lines of a job, each round with the bare exchange of two ranks around the job in place of its own; not a number if
    cores came nearer or went farther meanwhile."""
    before, lines, after = exchange(), job(), exchange()
    bare = after if (before < limit) == (after < limit) else math.nan
    return [{**line, "ns": {**line["ns"], "bare": [bare] * len(line["ns"]["bare"])}} for line in lines]


def measure(subject: Subject, mpi: Mpi, options: argparse.Namespace, arguments: list[str]) -> list[dict]:
    command = [str(Bench(subject.prefix).build(options.program, mpi)), *arguments]
    if options.bind:
        command = [*bound(options.ranks, options.bind), *command]
    variables = {"HUDDLE_PMPI": "0", **subject.variables}
    return Job(mpi, options.ranks, command, variables, subject.prefix / "lib/libhuddle.so").cases(lambda line: None)


@contextmanager
def others(number: int) -> Iterator[None]:
    """Runs so many processes that compute meanwhile."""
    computing = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in computing:
            process.kill()
            process.wait()


def comparisons(lines: list[dict]) -> list[dict]:
    return [line for line in lines if {"native", "huddle"} <= set(line.get("ns", {}))]


def name_of(case: dict) -> str:
    return ": ".join(filter(None, (case.get("group"), title_of(case))))


def rounds_of(case: dict, is_wanted: Callable[[float], bool]) -> Case | None:
    """The case with only the rounds whose bare exchange took the wanted time; None if they are too few."""
    rounds = [index for index, bare in enumerate(case["ns"]["bare"]) if is_wanted(bare)]
    ns = {subject: [times[index] for index in rounds] for subject, times in case["ns"].items()}
    return Case({**case, "ns": ns}) if len(rounds) >= min(FEW, len(case["ns"]["bare"])) else None


def cell(case: Case | None) -> str:
    if case is None:
        return "-"
    return f"{case.time('huddle').value / 1e3:.4g} us ×{case.ratio.value:.2f} ({case.ratio.low:.2f} … {case.ratio.high:.2f})"


def show(found: dict[str, list[dict]], is_wanted: Callable[[float], bool] = lambda bare: True) -> None:
    print(f"{'':<52}" + "".join(f"{name:>34}" for name in found))
    shown = []
    for lines in zip(*found.values(), strict=True):
        cases = [rounds_of(line, is_wanted) for line in lines]
        print(f"{name_of(lines[0]):<52}" + "".join(f"{cell(case):>34}" for case in cases))
        if None not in cases:
            shown.append([case.ratio.value for case in cases])
    means = [geometric_mean(list(ratios)) for ratios in zip(*shown)] or [math.nan] * len(found)
    print(f"{'geometric mean':<52}" + "".join(f"{f'×{mean:.3f}':>34}" for mean in means), flush=True)


def show_apart(found: dict[str, list[dict]], limit: float) -> None:
    print(f"bare exchange below {limit:g} ns:")
    show(found, lambda bare: bare < limit)
    print(f"from {limit:g} ns on:")
    show(found, lambda bare: bare >= limit)


def main() -> int:
    mpis = read_mpis()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", choices=mpis, default="openmpi")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5, help="jobs of each subject")
    parser.add_argument("--bind", choices=("alternating", "blocks"), help="where ranks lie; else as the MPI library does it")
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="so many other programs compute meanwhile")
    parser.add_argument("--apart", type=float, metavar="NS", help="shows rounds with a faster bare exchange apart from the others")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("subjects", type=Subject.of, nargs="+", metavar="NAME=PREFIX[,VARIABLE=VALUE…]")
    own, arguments = sys.argv[1:], []
    if "--" in own:
        own, arguments = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    mpi = mpis[options.mpi]
    cores = len(os.sched_getaffinity(0))
    if options.apart and options.ranks > cores > 2:
        parser.error("--apart: two ranks don't tell how far apart more than two cores are")
    found: dict[str, list[dict]] = {subject.name: [] for subject in options.subjects}

    def lines_of(subject: Subject) -> list[dict]:
        def job() -> list[dict]:
            return comparisons(measure(subject, mpi, options, arguments))

        if not options.apart or options.ranks <= cores:
            return job()
        return measure_near_or_far(job, lambda: bare_exchange(Bench(subject.prefix), mpi), options.apart)

    try:
        install_packages(mpi)
        with others(options.beside):
            for turn in range(options.turns):
                for subject in options.subjects[:: -1 if turn % 2 else 1]:
                    lines = lines_of(subject)
                    found[subject.name] = pooled(found[subject.name], lines)
    except Failed as failure:
        print(f"compare: {failure}")
        return 1
    if options.apart:
        show_apart(found, options.apart)
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
