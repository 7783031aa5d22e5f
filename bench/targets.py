"""What huddle aims at, beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from imb import BARRIERS_NATIVE
from mpis import Mpi
from parts import SHAPE_RANKS, size_text
from results import Case, Estimate, Results, Store

# The least geometric mean of native/huddle that is aimed at, by ranks on 2 cores and by MPI.
MEANS = {
    2: {"mpich": 4.0, "mpich5": 4.0, "openmpi": 3.0, "openmpi5": 3.0, "intel": 1.75},
    4: {"openmpi": 1.5, "openmpi5": 1.5, "intel": 1.3, "mpich5": 10.0},
    8: {"openmpi": 1.5, "openmpi5": 1.5, "intel": 1.3},
}
OVERHEAD_NS = 45
LOOP_FACTOR = 1.5
LONG_BYTES = 1 << 20  # LOOP_FACTOR is a target from this length on
DECLINED_NS = 20
INIT_NS = 5e6
COMMUNICATOR_NS = 1e5
MEMORY_BYTES = 8 << 20
# Lines that each MPI's results must have.
STARTS = {"MPI_Init", "MPI_Init and four Barriers"}


@dataclass(frozen=True)
class Row:
    """A target, what was measured, and whether that is enough."""

    target: str
    measured: str
    is_met: bool


def title_at(mpi: Mpi, ranks: int) -> str:
    """Its title, with a note where it is throttled because so many ranks run on 2 cores."""
    return f"{mpi.title}, throttled" if ranks > 2 and "oversubscribed_env" in mpi.table else mpi.title


def case_name(case: Case) -> str:
    size = f" {size_text(case['bytes'])}" if case.get("bytes") else ""
    return f"{case['collective']}{size}"


def none_slower(titled: str, found: list[tuple[str, Estimate]]) -> Row:
    slower = [f"{name} {ratio.value:.2f}" for name, ratio in found if ratio.lies_below_1]
    return Row(f"{titled}: no case whose interval lies below 1",
               f"{len(slower)} of {len(found)}" + (f": {', '.join(slower)}" if slower else ""), not slower)


def mean_rows(store: Store, mpis: dict[str, Mpi]) -> Iterator[Row]:
    for ranks, goals in MEANS.items():
        for name, goal in goals.items():
            if grid := store.read("grid", name, ranks):
                title = title_at(mpis[name], ranks)
                loops = store.read("limits", name, ranks)
                known = {(case["collective"], case["bytes"]) for case in loops.cases if case["what"] == "loop"} if loops else set()
                is_known = known == {(case["collective"], case["bytes"]) for case in grid.cases}
                beside = f"; hand-written loops {loops.mean_of('native', 'loop'):.2f}" if loops and is_known else ""
                yield Row(f"{title}, {ranks} ranks: geometric mean at least {goal:g}", f"{grid.mean:.2f}{beside}", grid.mean >= goal)
                yield none_slower(f"{title}, {ranks} ranks", [(case_name(case), case.ratio) for case in grid.cases])


def further_rows(store: Store, mpis: dict[str, Mpi]) -> Iterator[Row]:
    """Rows for other shapes, and for IMB with native barriers on both sides, so that calls are measured from the same start."""
    shapes = [(f"{case['group']}: {case['shape']}, {mpi.title}, {ranks} ranks", case.ratio) for ranks in SHAPE_RANKS for mpi in mpis.values()
              if (found := store.read("shapes", mpi.name, ranks)) for case in found.cases]
    if shapes:
        yield none_slower("other shapes", shapes)
    for mpi in mpis.values():
        if found := store.read("imb", mpi.name, 2):
            ratios = [(case_name(case), case.ratio_of("native", "huddle" if case["collective"] == "Barrier" else BARRIERS_NATIVE))
                      for case in found.cases]
            yield none_slower(f"IMB-MPI1, {mpi.title}, 2 ranks, from the same start", ratios)


def limit_row(target: str, found: list[tuple[str, float]], limit: float, show: Callable[[float], str]) -> Iterator[Row]:
    """One row for all MPIs: the worst of what was found, and all that exceed the limit."""
    if not found:
        return
    over = [(name, value) for name, value in found if value > limit]
    worst = max(found, key=lambda pair: pair[1])
    listed = over or [worst]
    text = "; ".join(f"{name}: {show(value)}" for name, value in listed)
    yield Row(target, text if over else f"at most {text}", not over)


def nanoseconds(value: float) -> str:
    return f"{value:.0f} ns"


def limits(store: Store, mpis: dict[str, Mpi]) -> Iterator[tuple[Mpi, Results]]:
    for mpi in mpis.values():
        if found := store.read("limits", mpi.name, 2):
            yield mpi, found


def limit_rows(store: Store, mpis: dict[str, Mpi]) -> Iterator[Row]:
    cases = [(mpi, case) for mpi, results in limits(store, mpis) for case in results.cases]

    def those(what: str) -> list[tuple[Mpi, Case]]:
        return [(mpi, case) for mpi, case in cases if case["what"].startswith(what)]

    def named(mpi: Mpi, case: Case) -> str:
        return f"{case_name(case)}, {mpi.title}"

    yield from limit_row(f"8-byte Allreduce and Barrier: bare exchange + at most {OVERHEAD_NS} ns",
                         [(named(mpi, case), case.difference_of("huddle", "bare").value) for mpi, case in those("overhead")],
                         OVERHEAD_NS, nanoseconds)
    yield from limit_row(f"1 and 4 MiB: at most {LOOP_FACTOR} × the hand-written loop",
                         [(named(mpi, case), case.ratio_of("huddle", "loop").value) for mpi, case in those("loop") if case["bytes"] >= LONG_BYTES],
                         LOOP_FACTOR, lambda value: f"{value:.2f}")
    yield from limit_row(f"a declined call costs at most {DECLINED_NS} ns over native",
                         [(f"{case['what'].split(': ')[1]}, {named(mpi, case)}", case.difference_of("huddle", "native").value)
                          for mpi, case in those("declined")], DECLINED_NS, nanoseconds)
    starts = [(f"{case['what']}, {mpi.title}", case.time("huddle").value - case.time("native").value) for mpi, case in those("MPI_Init")]
    unknown = [(f"{what}, {mpi.title}", math.inf) for mpi, results in limits(store, mpis)
               for what in sorted(STARTS - {case["what"] for case in results.cases})]
    yield from limit_row("MPI_Init takes at most 5 ms more, also with the first calls after it", starts + unknown, INIT_NS,
                         lambda value: f"{value / 1e6:.1f} ms" if math.isfinite(value) else "not measured")
    yield from limit_row("a further communicator takes at most 0.1 ms more",
                         [(f"{case['what'].split(', ')[1]}, {mpi.title}", case.difference_of("huddle", "native").value)
                          for mpi, case in those("communicator")], COMMUNICATOR_NS, lambda value: f"{value / 1e3:.0f} µs")
    memory = [(mpi.title, float(case["reserved"])) for mpi in mpis.values() if (case := first_alone(store.read("memory", mpi.name, 2)))]
    yield from limit_row("at most 8 MiB of shared memory per node for a job of 2 ranks", memory, MEMORY_BYTES,
                         lambda value: f"{value / (1 << 20):.1f} MiB")


def first_alone(found: Results | None) -> Case | None:
    """The memory of one communicator before there were others: later lines count what freed ones left, too."""
    return next((case for case in found.cases if case["communicators"] == 1), None) if found else None


def rows(store: Store, mpis: dict[str, Mpi]) -> list[Row]:
    return [*mean_rows(store, mpis), *further_rows(store, mpis), *limit_rows(store, mpis)]
