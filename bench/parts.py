"""What is measured: each part is one program under one MPI with a number of ranks, and leaves one file of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import imb
from jobs import Bench, Job, machine, say
from mpis import Mpi
from results import Case, Store

SIZES = [8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20, 4 << 20]
QUICK_SIZES = [8, 512, 32 << 10, 1 << 20, 4 << 20]
# MPIs by number of ranks: those for which targets.py has goals (MEANS), and whose native calls end in reasonable time
# there.
GRID_RANKS = {2: ["mpich", "openmpi", "mpich5", "openmpi5", "intel"], 4: ["openmpi", "mpich5", "openmpi5", "intel"],
              8: ["openmpi", "openmpi5", "intel"]}
SHAPE_RANKS = {2: GRID_RANKS[2], 3: ["openmpi", "openmpi5", "intel"], 5: ["openmpi", "openmpi5", "intel"]}
PAIR = {2: GRID_RANKS[2]}
MEMORY = {ranks: GRID_RANKS[8] for ranks in GRID_RANKS}
INITS = 15


@dataclass(frozen=True)
class Options:
    """How much is measured."""

    rounds: int = 15
    block: float = 2.0  # milliseconds
    only: str | None = None  # collectives
    quick: bool = False

    @property
    def arguments(self) -> list[str]:
        return ["--rounds", str(self.rounds), "--block", str(self.block)]

    @property
    def selection(self) -> list[str]:
        return ["--only", self.only] if self.only else []


@dataclass(frozen=True)
class Part:
    """One kind of measurement."""

    name: str
    ranks: dict[int, list[str]]  # number of ranks: MPIs
    measure: Callable[[Bench, Mpi, int, Options], list[dict]]
    varies: bool = True  # whether its results vary from pass to pass
    has_rounds: bool = True

    def times(self, passes: int, options: Options) -> int:
        """How often it is measured in a pass; results are kept each time."""
        if self.has_rounds or options.quick:
            return 1
        return 5 if passes == 1 else 2


def microseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.3g}" if nanoseconds < 1e6 else f"{nanoseconds / 1000:.0f}"


def size_text(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def title_of(line: dict) -> str:
    name = line.get("what") or line.get("shape")
    parts = [name] if name else []
    if "collective" in line:
        parts.append(line["collective"])
    if line.get("bytes"):
        parts.append(size_text(line["bytes"]))
    return " ".join(parts)


def show(line: dict) -> None:
    """Shows progress: a line of a program, for people."""
    if not isinstance(line.get("ns"), dict):
        say("  " + ", ".join(f"{name} {value}" for name, value in line.items()))
        return
    case = Case(line)
    times = "  ".join(f"{subject} {microseconds(case.time(subject).value):>8}" for subject in line["ns"])
    ratio = case.ratio
    say(f"  {title_of(line):<44} {times} us  x{ratio.value:.2f} ({ratio.low:.2f} … {ratio.high:.2f})")


def preloaded(bench: Bench, mpi: Mpi, ranks: int, program: str, arguments: list[str], variables: dict[str, str] | None = None) -> list[dict]:
    command = [str(bench.build(program, mpi)), *arguments]
    job = Job(mpi, ranks, command, {"HUDDLE_PMPI": "0", **(variables or {})}, bench.prefix / "lib/libhuddle.so")
    return job.cases(show)


def measure_grid(bench: Bench, mpi: Mpi, ranks: int, options: Options) -> list[dict]:
    sizes = ",".join(map(str, QUICK_SIZES if options.quick else SIZES))
    return preloaded(bench, mpi, ranks, "collectives", ["--sizes", sizes, *options.selection, *options.arguments])


def measure_shapes(bench: Bench, mpi: Mpi, ranks: int, options: Options) -> list[dict]:
    return [case for program in ("shapes", "programs") for case in preloaded(bench, mpi, ranks, program, options.arguments)]


def measure_limits(bench: Bench, mpi: Mpi, ranks: int, options: Options) -> list[dict]:
    found = []
    for what in ("overhead", "loops", "kernel", "communicators"):
        found += preloaded(bench, mpi, ranks, "limits", [what, *options.arguments])
    declined = {"HUDDLE_ALLREDUCE": "<=1K:native", "HUDDLE_BARRIER": "native"}
    return found + preloaded(bench, mpi, ranks, "limits", ["declined", *options.arguments], declined) + measure_init(bench, mpi, ranks)


def measure_init(bench: Bench, mpi: Mpi, ranks: int) -> list[dict]:
    """Times MPI_Init, and the time until the first calls have ended, bare and preloaded in turn."""
    program = str(bench.build("limits", mpi))
    times: dict[str, dict[str, list[float]]] = {}
    for turn in range(-1, INITS):  # the first fills caches
        for subject, preload in (("native", None), ("huddle", bench.prefix / "lib/libhuddle.so")):
            for line in Job(mpi, ranks, [program, "init"], {}, preload, 60).cases(lambda line: None):
                if turn >= 0:
                    times.setdefault(line["what"], {}).setdefault(subject, []).append(line["ns"])
    lines = [{"what": what, "ns": found} for what, found in times.items()]
    for line in lines:
        show(line)
        huddle, native = (Case(line).time(subject).value / 1e6 for subject in ("huddle", "native"))
        say(f"  median {huddle:.1f} ms, native {native:.1f} ms")
    return lines


def measure_memory(bench: Bench, mpi: Mpi, ranks: int, options: Options) -> list[dict]:
    return preloaded(bench, mpi, ranks, "limits", ["memory"])


def measure_imb(bench: Bench, mpi: Mpi, ranks: int, options: Options) -> list[dict]:
    return imb.measure(bench, mpi, ranks, options.only)


PARTS = [
    Part("grid", GRID_RANKS, measure_grid),
    Part("limits", PAIR, measure_limits),
    Part("memory", MEMORY, measure_memory, varies=False),
    Part("shapes", SHAPE_RANKS, measure_shapes),
    Part("imb", {2: ["mpich5", "intel"]}, measure_imb, has_rounds=False),
]


def header_of(bench: Bench, mpi: Mpi, ranks: int, options: Options) -> dict:
    return {**machine(), "huddle": bench.build_of_huddle, "state": bench.state, "mpi": mpi.title, "ranks": ranks, "rounds": options.rounds, "quick": options.quick}


def measure(bench: Bench, store: Store, part: Part, mpi: Mpi, ranks: int, options: Options) -> None:
    """Measures, and adds the results to those that are kept of this build."""
    store.add(part.name, mpi.name, ranks, header_of(bench, mpi, ranks, options), part.measure(bench, mpi, ranks, options))
