"""Intel's IMB-MPI1, as it comes in impi-devel, bare and preloaded in turn. It is linked to libmpi.so.12, so it runs under
MPICH 5 too. This build of it has no option to check its results.

IMB takes the time of a call from where its rank has left the barrier before it. After native barriers ranks go their ways further
apart than after huddle's, and a receiver that comes late finds its data there. So the preloaded program runs with native barriers
too: then both sides are measured from the same start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from jobs import Bench, Failed, Job, say
from mpis import Mpi, read_mpis
from results import Case

BARRIERS_NATIVE = "huddle, barriers native"
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


def turn(mpi: Mpi, ranks: int, collectives: list[str], preload: Path | None,
         variables: dict[str, str]) -> dict[tuple[str, int], float]:
    program = read_mpis()["intel"].home / "bin" / "IMB-MPI1"
    if not program.exists():
        raise Failed(f"no {program}: install Intel MPI (scripts/bench --mpi intel)")
    command = [str(program), "-npmin", str(ranks), "-iter_policy", "off", *collectives]
    return {(name, size): time for name, size, time in rows(Job(mpi, ranks, command, variables, preload).lines())}


def accelerated(report: Path, collectives: list[str]) -> dict[str, int]:
    """-> calls by collective, of a run in which all of `collectives` must have been accelerated"""
    found = json.loads(report.read_text())["collectives"]
    calls = {name: counts["accelerated"] for name, counts in found.items()}
    if missing := [name for name in collectives if calls.get(name, 0) == 0]:
        raise Failed(f"IMB-MPI1: the report shows no accelerated call of {', '.join(missing)}")
    return calls


def measure(bench: Bench, mpi: Mpi, ranks: int, turns: int, only: str | None) -> list[dict]:
    collectives = [name for name in COLLECTIVES if only is None or name in only.split(",")]
    report, with_native = (bench.work / f"imb-{mpi.name}{which}.json" for which in ("", "-barriers"))
    library = bench.prefix / "lib/libhuddle.so"
    runs: dict[str, list[dict[tuple[str, int], float]]] = {"native": [], "huddle": [], BARRIERS_NATIVE: []}
    for number in range(turns):
        say(f"  IMB-MPI1 {' '.join(collectives)}, turn {number + 1}, bare, preloaded, and preloaded with native barriers")
        runs["native"].append(turn(mpi, ranks, collectives, None, {}))
        runs["huddle"].append(turn(mpi, ranks, collectives, library, {"HUDDLE_REPORT": str(report)}))
        runs[BARRIERS_NATIVE].append(turn(mpi, ranks, collectives, library,
                                          {"HUDDLE_BARRIER": "native", "HUDDLE_REPORT": str(with_native)}))
    calls = accelerated(report, collectives)
    if accelerated(with_native, [name for name in collectives if name != "Barrier"]).get("Barrier", 0) > 0:
        raise Failed("IMB-MPI1: barriers that should be native were not")
    lines = []
    for collective, size in runs["huddle"][0]:
        times = {subject: [run[collective, size] for run in found] for subject, found in runs.items()}
        if size == 0 and collective != "Barrier" or any(0 in found for found in times.values()):
            continue
        lines.append({"what": "IMB", "collective": collective, "bytes": size, "calls": calls[collective], "ns": times})
    for line in lines:
        ratio, same_start = Case(line).ratio, Case(line).ratio_of("native", BARRIERS_NATIVE)
        say(f"  {line['collective']:<10} {line['bytes']:>8}  x{ratio.value:.2f} ({ratio.low:.2f} … {ratio.high:.2f}), "
            f"barriers native x{same_start.value:.2f} ({same_start.low:.2f} … {same_start.high:.2f})")
    return lines
