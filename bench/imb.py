"""Intel's IMB-MPI1, as it comes in impi-devel, bare and preloaded in turn. It is linked to libmpi.so.12, so it runs under
MPICH 5 too. This build of it has no option to check its results.

IMB takes the time of a call from where its rank has left the barrier before it. After native barriers ranks go their ways further
apart than after huddle's, and a receiver that comes late finds its data there. So the preloaded program runs with native barriers
too: then both sides are measured from the same start. A job takes no notice of when a shared machine moves its cores, so jobs are
of one collective each, and made again where the bare exchange of two cache lines beside them shows that cores moved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jobs import Bench, Failed, Job, say
from mpis import Mpi, read_mpis
from results import Case, Estimate

BARRIERS_NATIVE = "huddle, barriers native"
TRIES = 4
COLLECTIVES = ["Allreduce", "Bcast", "Reduce", "Allgather", "Scatter", "Barrier"]


def rows(lines: Iterator[str]) -> Iterator[tuple[str, int, float]]:
    """-> collective, bytes, nanoseconds of the slowest rank (t_max) per row of IMB's tables"""
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
class Turn:
    """Jobs of one collective: bare, preloaded, and preloaded with native barriers."""

    # Subject, then bytes -> nanoseconds.
    times: dict[str, dict[int, float]]
    # The bare exchange of two cache lines, in nanoseconds, before the jobs, between them, and after them.
    bare: list[float]
    # By the report of the preloaded job.
    calls: int

    @property
    def is_steady(self) -> bool:
        """Whether the cores lay alike for all jobs: close ones exchange lines four to ten times as fast as far ones."""
        return max(self.bare) < 2 * min(self.bare)


def exchange(bench: Bench, mpi: Mpi) -> float:
    """-> nanoseconds of the bare exchange"""
    command = [str(bench.build("collectives", mpi)), "--only", "Barrier", "--rounds", "1", "--block", "1"]
    [line] = Job(mpi, 2, command).cases(lambda _: None)
    return line["ns"]["bare"][0]


def accelerated(report: Path) -> dict[str, int]:
    """-> calls by collective"""
    if not report.exists():
        raise Failed(f"IMB-MPI1: no report {report}, so huddle was not there")
    return {name: counts["accelerated"] for name, counts in json.loads(report.read_text())["collectives"].items()}


def turn(bench: Bench, mpi: Mpi, ranks: int, collective: str) -> Turn:
    program = read_mpis()["intel"].home / "bin" / "IMB-MPI1"
    if not program.exists():
        raise Failed(f"no {program}: install Intel MPI (scripts/bench --mpi intel)")
    command = [str(program), "-npmin", str(ranks), "-iter_policy", "off", collective]
    library, reported = bench.prefix / "lib/libhuddle.so", {}
    times, bare = {}, [exchange(bench, mpi)]
    jobs = [("native", None, {}), ("huddle", library, {}), (BARRIERS_NATIVE, library, {"HUDDLE_BARRIER": "native"})]
    for subject, preload, variables in jobs:
        report = bench.work / f"imb-{mpi.name}.json"
        report.unlink(missing_ok=True)
        lines = Job(mpi, ranks, command, {**variables, "HUDDLE_REPORT": str(report)} if preload else {}, preload).lines()
        times[subject] = {size: time for _, size, time in rows(lines)}
        bare.append(exchange(bench, mpi))
        reported[subject] = accelerated(report) if preload else {}
    for subject in ("huddle", BARRIERS_NATIVE):
        is_native = subject == BARRIERS_NATIVE and collective == "Barrier"
        if not is_native and reported[subject].get(collective, 0) == 0:
            raise Failed(f"IMB-MPI1, {subject}: the report shows no accelerated call of {collective}")
    if reported[BARRIERS_NATIVE].get("Barrier", 0) > 0:
        raise Failed("IMB-MPI1: barriers that should be native were not")
    return Turn(times, bare, reported["huddle"][collective])


def steady_turn(bench: Bench, mpi: Mpi, ranks: int, collective: str) -> Turn:
    """A turn during which cores stayed where they were, or the last of TRIES."""
    for _ in range(TRIES):
        taken = turn(bench, mpi, ranks, collective)
        if taken.is_steady:
            break
        say(f"  {collective}: cores moved, by bare exchanges of {', '.join(f'{time:.0f}' for time in taken.bare)} ns")
    return taken


def measure(bench: Bench, mpi: Mpi, ranks: int, turns: int, only: str | None) -> list[dict]:
    taken: dict[str, list[Turn]] = {name: [] for name in COLLECTIVES if only is None or name in only.split(",")}
    # Collectives in turn, so that a slow hour does not hit one alone.
    for number in range(turns):
        say(f"  IMB-MPI1 {' '.join(taken)}, turn {number + 1}, each bare, preloaded, and preloaded with native barriers")
        for collective, found in taken.items():
            found.append(steady_turn(bench, mpi, ranks, collective))
    lines = []
    for collective, found in taken.items():
        for size in found[0].times["huddle"]:
            times = {subject: [one.times[subject][size] for one in found] for subject in found[0].times}
            if size == 0 and collective != "Barrier" or any(0 in of_subject for of_subject in times.values()):
                continue
            times["bare"] = [Estimate.of(one.bare).value for one in found]
            lines.append({"what": "IMB", "collective": collective, "bytes": size, "calls": found[-1].calls, "ns": times})
    for line in lines:
        ratio, same_start = Case(line).ratio, Case(line).ratio_of("native", BARRIERS_NATIVE)
        say(f"  {line['collective']:<10} {line['bytes']:>8}  x{ratio.value:.2f} ({ratio.low:.2f} … {ratio.high:.2f}), "
            f"barriers native x{same_start.value:.2f} ({same_start.low:.2f} … {same_start.high:.2f})")
    return lines
