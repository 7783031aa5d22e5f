"""Intel's IMB-MPI1, as it comes in impi-devel, bare and preloaded in turn. It is linked to libmpi.so.12, so it runs under
MPICH 5 too. This build of it has no option to check its results.

IMB times a call from the moment at which its rank has left the barrier before it. Ranks leave native barriers further apart than
huddle's, and a receiver that comes late finds its data there. So the preloaded program runs with native barriers too: then both
sides are measured from the same start. A job does not notice when a shared machine moves its cores. So jobs are short, of one
collective and some lengths each, and jobs are compared only if the bare exchange of two cache lines took alike beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from jobs import Bench, Failed, Job, say
from mpis import Mpi, read_mpis
from results import Case, Estimate

BARRIERS_NATIVE = "huddle, barriers native"
TRIES = 4
COLLECTIVES = ["Allreduce", "Bcast", "Reduce", "Allgather", "Scatter", "Barrier"]
# Lengths as powers of two, from and to: jobs of 1000 calls of each take 0.3 to 3 seconds.
LENGTHS = ["0:12", "13:17", "18:22"]


def rows(lines: Iterator[str]) -> Iterator[tuple[str, int, float]]:
    """Yields collective, bytes and nanoseconds of the slowest rank (t_max) for each row of IMB's tables."""
    collective, columns = "", []
    for line in lines:
        words = line.split()
        if line.startswith("# Benchmarking"):
            collective = words[2]
        elif words and words[0] in ("#bytes", "#repetitions"):
            columns = words
        elif words and columns and len(words) == len(columns) and words[0].isdigit():
            found = dict(zip(columns, words))
            yield collective, int(found.get("#bytes", 0)), 1000 * float(found["t_max[usec]"])


@dataclass(frozen=True)
class Taken:
    """What a job of one collective and some lengths took."""

    # Nanoseconds by bytes.
    times: dict[int, float]
    # The bare exchange of two cache lines in nanoseconds, before the job and after it.
    bare: tuple[float, float]
    # Accelerated calls, by the report of a preloaded job.
    calls: int


def are_alike(jobs: tuple[Taken, ...]) -> bool:
    """Whether the cores lay alike for all jobs: close cores exchange lines four to ten times as fast as far ones."""
    bare = [time for job in jobs for time in job.bare]
    return max(bare) < 2 * min(bare)


def exchange(bench: Bench, mpi: Mpi) -> float:
    """Returns the nanoseconds of the bare exchange."""
    command = [str(bench.build("collectives", mpi)), "--only", "Barrier", "--rounds", "1", "--block", "1"]
    [line] = Job(mpi, 2, command).cases(lambda _: None)
    return line["ns"]["bare"][0]


def accelerated(report: Path) -> dict[str, int]:
    """Returns the accelerated calls by collective."""
    if not report.exists():
        raise Failed(f"IMB-MPI1: no report {report}, so huddle was not there")
    return {name: counts["accelerated"] for name, counts in json.loads(report.read_text())["collectives"].items()}


def turn(bench: Bench, mpi: Mpi, ranks: int, collective: str, lengths: str | None) -> dict[str, Taken]:
    """Runs one job of each subject, in turn."""
    program = read_mpis()["intel"].home / "bin" / "IMB-MPI1"
    if not program.exists():
        raise Failed(f"no {program}: install Intel MPI (scripts/bench --mpi intel)")
    selection = ["-msglog", lengths] if lengths else []
    command = [str(program), "-npmin", str(ranks), "-iter_policy", "off", *selection, collective]
    library, found, before = bench.prefix / "lib/libhuddle.so", {}, exchange(bench, mpi)
    jobs = [("native", None, {}), ("huddle", library, {}), (BARRIERS_NATIVE, library, {"HUDDLE_BARRIER": "native"})]
    for subject, preload, variables in jobs:
        report = bench.work / f"imb-{mpi.name}.json"
        report.unlink(missing_ok=True)
        lines = Job(mpi, ranks, command, {**variables, "HUDDLE_REPORT": str(report)} if preload else {}, preload).lines()
        times = {size: time for _, size, time in rows(lines)}
        calls = accelerated(report) if preload else {}
        is_native = preload is None or subject == BARRIERS_NATIVE and collective == "Barrier"
        if not is_native and calls.get(collective, 0) == 0:
            raise Failed(f"IMB-MPI1, {subject}: the report shows no accelerated call of {collective}")
        if subject == BARRIERS_NATIVE and calls.get("Barrier", 0) > 0:
            raise Failed("IMB-MPI1: barriers that should be native were not")
        after = exchange(bench, mpi)
        found[subject] = Taken(times, (before, after), calls.get(collective, 0))
        before = after
    return found


def steady_turn(bench: Bench, mpi: Mpi, ranks: int, collective: str, lengths: str | None) -> dict[str, Taken] | None:
    """Jobs that saw the cores alike, one of each subject: the latest out of up to TRIES turns. None if there are no such jobs."""
    taken: dict[str, list[Taken]] = {}
    for _ in range(TRIES):
        for subject, job in turn(bench, mpi, ranks, collective, lengths).items():
            taken.setdefault(subject, []).insert(0, job)
        if alike := next(filter(are_alike, product(*taken.values())), None):
            return dict(zip(taken, alike))
    say(f"  {collective} {lengths or ''}: cores moved in each of {TRIES} turns, left out")
    return None


def lines_of(collective: str, taken: dict[str, Taken]) -> list[dict]:
    """One line per length, each with one round."""
    lines = []
    bare = Estimate.of([time for job in taken.values() for time in job.bare]).value
    for size in taken["huddle"].times:
        times = {subject: [job.times[size]] for subject, job in taken.items()} | {"bare": [bare]}
        if (size > 0 or collective == "Barrier") and all(found[0] > 0 for found in times.values()):
            lines.append({"what": "IMB", "collective": collective, "bytes": size, "calls": taken["huddle"].calls, "ns": times})
    return lines


def measure(bench: Bench, mpi: Mpi, ranks: int, only: str | None) -> list[dict]:
    """One turn of each collective."""
    lines = []
    for collective in (name for name in COLLECTIVES if only is None or name in only.split(",")):
        for lengths in [None] if collective == "Barrier" else LENGTHS:
            if taken := steady_turn(bench, mpi, ranks, collective, lengths):
                lines += lines_of(collective, taken)
    for line in lines:
        ratio, same_start = Case(line).ratio, Case(line).ratio_of("native", BARRIERS_NATIVE)
        say(f"  {line['collective']:<10} {line['bytes']:>8}  x{ratio.value:.2f}, barriers native x{same_start.value:.2f}")
    return lines
