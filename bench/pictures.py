"""pictures.py DATA DIRECTORY: draws what bench/page.py wrote into DATA, one SVG per collective."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "huddle"  # the same picture from the same numbers
import matplotlib.pyplot as plt


def label_of(size: float) -> str:
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g}{unit}"
    return f"{size:g}"


def save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_collective(name: str, curves: list[dict], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 5))
    mpis = list(dict.fromkeys(curve["mpi"] for curve in curves))
    for curve in curves:
        sizes, times = zip(*curve["points"])
        is_native = curve["subject"] == "native"
        axes.plot(sizes, times, color=f"C{mpis.index(curve['mpi'])}", linestyle="--" if is_native else "-", marker="." if is_native else "o",
                  markersize=4, label=f"{curve['mpi']}, {'native' if is_native else 'huddle'}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda size, _: label_of(size))
    axes.set_xlabel("bytes" + (" of a rank's block" if name in ("Allgather", "Scatter") else ""))
    axes.set_ylabel("µs")
    axes.set_title(f"MPI_{name}, 2 ranks")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=7)
    save(figure, path)


def draw_scaling(name: str, lines: list[dict], path: Path) -> None:
    sizes = sorted({line["bytes"] for line in lines})
    figure, panels = plt.subplots(1, len(sizes), figsize=(5 * len(sizes), 4.5), squeeze=False)
    for axes, size in zip(panels[0], sizes):
        for algorithm in dict.fromkeys(line["algorithm"] for line in lines):
            points = [(line["ranks"], line["ns"] / 1000) for line in lines if (line["algorithm"], line["bytes"]) == (algorithm, size)]
            is_chosen = algorithm == "chosen"
            style = {"color": "black", "linewidth": 2.5, "zorder": 0} if is_chosen else {"marker": ".", "linewidth": 1}
            axes.plot(*zip(*points), label=algorithm, **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("ranks of a node")
        axes.set_ylabel("µs, simulated")
        axes.set_title(f"MPI_{name}" + (f", {label_of(size)}B" if size else ""))
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=7)
    save(figure, path)


def main() -> None:
    source, directory = Path(sys.argv[1]), Path(sys.argv[2])
    data = json.loads(source.read_text())
    for name in dict.fromkeys(curve["collective"] for curve in data["curves"]):
        curves = [curve for curve in data["curves"] if curve["collective"] == name and curve["points"]]
        draw_collective(name, curves, directory / f"{name.lower()}.svg")
    for name in dict.fromkeys(line["collective"] for line in data["scaling"]):
        draw_scaling(name, [line for line in data["scaling"] if line["collective"] == name], directory / f"scaling-{name.lower()}.svg")


if __name__ == "__main__":
    main()
