"""What the benchmark programs printed, and its statistics: nothing else computes a median, ratio or interval."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CONFIDENCE = 0.95
# Header fields that results must share to be pooled.
OF_ONE_KIND = ["cpu", "cores", "kernel", "mpi", "ranks", "quick", "huddle"]


def interval_ranks(n: int) -> tuple[int, int]:
    """Among n sorted values, the indices of the narrowest symmetric pair that encloses the median with CONFIDENCE; both ends if n
    is too small for that. The binomial distribution gives them, whatever the distribution of the values."""
    below = 0.0
    low = 0
    for k in range(n // 2):
        below += math.comb(n, k) / 2**n
        if 2 * below > 1 - CONFIDENCE:
            break
        low = k
    return low, n - 1 - low


@dataclass(frozen=True)
class Estimate:
    """A median with its interval."""

    value: float
    low: float
    high: float

    @property
    def lies_below_1(self) -> bool:
        """The whole interval lies below 1: for a ratio this means that huddle is slower."""
        return self.high < 1

    @staticmethod
    def of(values: list[float]) -> Estimate:
        ordered = sorted(values)
        low, high = interval_ranks(len(ordered))
        middle = len(ordered) // 2
        median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        return Estimate(median, ordered[low], ordered[high])


@dataclass(frozen=True)
class Case:
    """One line of a program's output."""

    line: dict

    def __getitem__(self, name: str):
        return self.line[name]

    def get(self, name: str, otherwise=None):
        return self.line.get(name, otherwise)

    def ns(self, subject: str) -> list[float]:
        return self.line["ns"][subject]

    def time(self, subject: str) -> Estimate:
        """Nanoseconds per call."""
        return Estimate.of(self.ns(subject))

    def ratio_of(self, above: str, below: str) -> Estimate:
        """The ratio round by round, since the machine's speed changes between rounds."""
        return Estimate.of([a / b for a, b in zip(self.ns(above), self.ns(below))])

    def difference_of(self, more: str, less: str) -> Estimate:
        return Estimate.of([a - b for a, b in zip(self.ns(more), self.ns(less))])

    @cached_property
    def ratio(self) -> Estimate:
        """native / huddle"""
        return self.ratio_of("native", "huddle")


@dataclass(frozen=True)
class Results:
    """The lines of one part: a program under one MPI with so many ranks."""

    header: dict
    cases: list[Case]

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios."""
        return geometric_mean([case.ratio.value for case in self.cases])

    def only(self, is_wanted: Callable[[Case], bool]) -> Results:
        return Results(self.header, [case for case in self.cases if is_wanted(case)])

    def mean_of(self, above: str, below: str) -> float:
        """The geometric mean of the ratios between two subjects, over the cases that have both."""
        both = self.only(lambda case: {above, below} <= case.line["ns"].keys())
        return geometric_mean([case.ratio_of(above, below).value for case in both.cases])

    @property
    def slower(self) -> list[Case]:
        """Cases whose whole interval lies below 1."""
        return [case for case in self.cases if case.ratio.lies_below_1]


def geometric_mean(values: list[float]) -> float:
    """NaN for an empty list."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else math.nan


def pooled(before: list[dict], after: list[dict]) -> list[dict]:
    """The lines of a program that was run twice, with the rounds of both runs. The way of a loop may differ: each run takes the fastest."""

    def name(line: dict) -> tuple:
        return tuple((field, value) for field, value in line.items() if field not in ("ns", "calls", "chunk", "ring", "whole"))

    found = {name(line): line for line in before}
    for line in after:
        old = found.get(name(line), {}).get("ns", {})
        if old.keys() != line["ns"].keys():
            old = {}  # the earlier program had other subjects
        times = {subject: old.get(subject, []) + new for subject, new in line["ns"].items()}
        found[name(line)] = {**line, "ns": times}
    return list(found.values())


class Store:
    """A file of lines per part: the header, then the cases. They can be shown without measuring again, or be added to."""

    def __init__(self, directory: Path):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def scaling(self) -> Path:
        """The file of the simulator's results."""
        return self.directory / "scaling.jsonl"

    def path(self, part: str, mpi: str, ranks: int) -> Path:
        return self.directory / f"{part}-{mpi}-{ranks}.jsonl"

    def passes(self, part: str, mpi: str, ranks: int, header: dict) -> int:
        """How many passes were measured with such a header: on this machine, with this build of huddle."""
        found = self.read(part, mpi, ranks)
        is_like = found and all(found.header.get(field) == header.get(field) for field in OF_ONE_KIND)
        return found.header.get("passes", 1) if found and is_like else 0

    def add(self, part: str, mpi: str, ranks: int, header: dict, lines: list[dict]) -> None:
        """Adds lines to those of other passes, or replaces lines of another kind."""
        passes = self.passes(part, mpi, ranks, header)
        if passes and (before := self.read(part, mpi, ranks)):
            lines = pooled([case.line for case in before.cases], lines)
            header = {**header, "rounds": min((len(times) for line in lines for times in line["ns"].values()), default=0)}
        self.write(part, mpi, ranks, {**header, "passes": passes + 1}, lines)

    def forget(self, part: str, mpi: str, ranks: int) -> None:
        self.path(part, mpi, ranks).unlink(missing_ok=True)

    def write(self, part: str, mpi: str, ranks: int, header: dict, lines: list[dict]) -> None:
        path = self.path(part, mpi, ranks)
        scratch = path.with_suffix(".new")
        scratch.write_text("".join(json.dumps(line) + "\n" for line in [header, *lines]))
        scratch.replace(path)

    def read(self, part: str, mpi: str, ranks: int) -> Results | None:
        path = self.path(part, mpi, ranks)
        if not path.exists():
            return None
        header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
        return Results(header, [Case(line) for line in lines])
