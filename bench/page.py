"""Writes what was measured into PERFORMANCE.md and README.md, between their markers, and the pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import scaling
import targets
from imb import BARRIERS_NATIVE, COLLECTIVES
from jobs import ROOT, run, say
from mpis import Mpi
from parts import GRID_RANKS, MEMORY, PARTS, SHAPE_RANKS, microseconds, size_text
from results import Case, Estimate, Results, Store, geometric_mean

DOCS = ROOT / "docs"
BEGIN, END = "<!-- measured by scripts/bench --all -->", "<!-- end -->"
HEADLINE = ["mpich", "openmpi", "intel"]  # the MPIs that README.md names


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows), ""]


def rows_of(columns: list[Results], cell: Callable[[Case], tuple[tuple[str, ...], str] | None]) -> list[list[str]]:
    """A row for each heading that `cell` gives for a case, with its text; empty in a column without such a case."""
    rows: dict[tuple[str, ...], dict[int, str]] = {}
    for index, results in enumerate(columns):
        for case in results.cases:
            if found := cell(case):
                heading, text = found
                rows.setdefault(heading, {})[index] = text
    return [[*heading, *(cells.get(index, "") for index in range(len(columns)))] for heading, cells in rows.items()]


def shown(ratio: Estimate, sign: str = "") -> str:
    """ratio (its interval); in bold if the interval lies below 1"""
    text = f"{sign}{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
    return f"**{text}**" if ratio.lies_below_1 else text


def compared(case: Case, subject: str = "huddle") -> str:
    """native → huddle, ratio"""
    times = [microseconds(case.time(name).value) for name in ("native", subject)]
    return f"{' → '.join(times)} {shown(case.ratio_of('native', subject), '×')}"


def grids(store: Store, mpis: dict[str, Mpi], ranks: int) -> dict[str, Results]:
    return {name: found for name in mpis if (found := store.read("grid", name, ranks))}


def of_state(header: dict) -> str:
    """The commit that was measured, if it is known."""
    return f", state {state}" if (state := header.get("state")) else ""


def when(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    headers = [(part.name, found.header) for part in PARTS for ranks in part.ranks for name in mpis if (found := store.read(part.name, name, ranks))]
    for line in sorted({f"{h['date']}{of_state(h)}: {h['cpu']}, {h['cores']} cores, Linux {h['kernel']}" for _, h in headers}):
        yield f"Measured {line}."
    if counted := [h for name, h in headers if name in ("grid", "limits", "shapes")]:
        passes = min(h.get("passes", 1) for h in counted)
        text = f", in {passes} passes over all cases" if passes > 1 else ""
        yield f"{min(h['rounds'] for h in counted)} rounds or more{text}."


def headline(store: Store, mpis: dict[str, Mpi]) -> list[str]:
    """For README.md: what people want to know first, if it was measured."""
    found = {name: results for name, results in grids(store, mpis, 2).items() if name in HEADLINE}
    if not found:
        return []
    some = next(iter(found.values()))
    means = [f"{results.mean:.2f} times as fast as {mpis[name].title} alone" for name, results in found.items()]
    return [f"With 2 ranks on {some.header['cores']} cores ({some.header['cpu']}) these collectives are, in the geometric mean over "
            f"{len(some.cases)} cases from 8 bytes to 4 MiB,", ",\n".join(means),
            f"(`scripts/bench --all`{of_state(some.header)}). [docs/PERFORMANCE.md](docs/PERFORMANCE.md) has every case, and",
            "[what is slower than without huddle](docs/PERFORMANCE.md#targets-that-are-missed)."]


def target_table(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    rows = targets.rows(store, mpis)
    yield "## Targets\n"
    yield "What huddle aims at on such a machine, and how far it is.\n"
    yield from table(["target", "measured", "met"], [[row.target, row.measured, "yes" if row.is_met else "**no**"] for row in rows])


def means(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    yield "## Geometric means of native/huddle\n"
    yield "All sizes together; above 1 huddle is faster.\n"
    rows = []
    for ranks in GRID_RANKS:
        for name, found in grids(store, mpis, ranks).items():
            by = [[case.ratio.value for case in found.cases if case["collective"] == collective] for collective in COLLECTIVES]
            rows.append([str(ranks), targets.title_at(mpis[name], ranks), f"{found.mean:.2f}", *(f"{geometric_mean(values):.2f}" for values in by)])
    yield from table(["ranks", "MPI", "all", *COLLECTIVES], rows)
    yield from extremes(store, mpis)


EXTREME = 50  # native/huddle


def extremes(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    """Cases so extreme that they dominate a mean. Throttled libraries are left out: all their calls take that long."""
    for ranks in GRID_RANKS:
        for name, found in grids(store, mpis, ranks).items():
            cases = [case for case in found.cases if case.ratio.value > EXTREME]
            title = targets.title_at(mpis[name], ranks)
            if cases and title == mpis[name].title:
                listed = ", ".join(f"{targets.case_name(case)} ({case.ratio.value:.0f})" for case in cases)
                others = geometric_mean([case.ratio.value for case in found.cases if case.ratio.value <= EXTREME])
                yield f"Under {title} on {ranks} ranks huddle is more than {EXTREME} times as fast in {listed}, since the native calls take\n" \
                      f"milliseconds. Without these cases the mean is {others:.2f}.\n"


def collective_tables(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    yield "## Collectives\n"
    yield "Each cell is native → huddle in microseconds, medians over the rounds of the slowest rank's time since the first one began; then\n" \
          "native/huddle, the median of the rounds' ratios (not the ratio of the medians), with its 95 % interval; bold where the whole interval\n" \
          "is below 1. Data are modified between calls, roots rotate. Sizes are bytes of the message, or of one rank's block for Allgather\n" \
          "and Scatter.\n"
    for collective in COLLECTIVES:
        yield f"### MPI_{collective}\n"
        if collective != "Barrier":
            yield f"![MPI_{collective}: time against size](pictures/{collective.lower()}.svg)\n"
        for ranks in GRID_RANKS:
            found = grids(store, mpis, ranks)
            sizes = {case["bytes"] for results in found.values() for case in results.cases if case["collective"] == collective}
            rows = []
            for size in sorted(sizes):
                cells = [next((compared(case) for case in results.cases if (case["collective"], case["bytes"]) == (collective, size)), "")
                         for results in found.values()]
                rows.append([f"{ranks} ranks" if size == 0 else size_text(size), *cells])
            if rows:
                yield from table([f"{ranks} ranks", *(targets.title_at(mpis[name], ranks) for name in found)], rows)


def short_cost(case: Case) -> tuple[tuple[str, ...], str] | None:
    if not case["what"].startswith(("overhead", "declined")):
        return None
    less = "bare" if case["what"] == "overhead" else "native"
    over = case.difference_of("huddle", less)
    text = f"{over.value:.0f} ({over.low:.0f}–{over.high:.0f})"
    if less == "bare":
        text += f", bare {case.time('bare').value:.0f}"
    elif "forwarding" in case["ns"]:
        text += f", forwarding {case.difference_of('forwarding', 'native').value:.0f}"
    return (f"{case['what']}: {case['collective']}",), text


def long_cost(case: Case) -> tuple[tuple[str, ...], str] | None:
    if not case["what"].startswith(("MPI_Init", "communicator", "first calls")):
        return None
    return (case["what"],), f"{case.time('native').value / 1e6:.3g} → {case.time('huddle').value / 1e6:.3g}"


def limit_tables(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    found = list(targets.limits(store, mpis))
    yield "## Other costs\n"
    yield "Nanoseconds: 8-byte Allreduce and Barrier, entry to exit, less the bare exchange of two cache lines in the same round; calls\n" \
          "left to the native library or empty (\"no elements\"), less the same call made by PMPI; \"forwarding\" is what a function takes\n" \
          "there that only counts and calls on (bench/limits.c), more than some nanoseconds where the native call exchanges messages.\n"
    head, columns = ["", *(mpi.title for mpi, _ in found)], [results for _, results in found]
    yield from table(head, rows_of(columns, short_cost))
    yield "Milliseconds, native → huddle: MPI_Init; the same with four Barriers, the first of which build what huddle holds for MPI_COMM_WORLD; MPI_Comm_dup\n" \
          "with four calls of 8 bytes, which do so for the communicator; the same with longer calls, which also reserve as much of its slots as they need.\n"
    yield from table(head, rows_of(columns, long_cost))
    yield from loop_table(found)
    yield from kernel_table(found)
    yield from memory_table(store, mpis)


def loop_table(found: list[tuple[Mpi, Results]]) -> Iterator[str]:
    yield "### Beside hand-written loops\n"
    yield "2 ranks with private buffers and a shared segment; n bytes of a message or block, read and written by the rank that has\n" \
          "most to do. The loops (bench/loops.c, which says why less is impossible) know what comes and check nothing; each case goes in\n" \
          "chunks and rings as long as were fastest. Their lines lie in whichever pages the system gave. Cells: huddle's time over the loop's.\n"
    least = {"Bcast": "n + n", "Reduce": "2n + n", "Allreduce": "2n + 2n, or 3n + 2n", "Allgather": "2n + 3n", "Scatter": "2n + 2n",
             "Barrier": "a line each"}

    def cell(case: Case) -> tuple[tuple[str, ...], str] | None:
        if case["what"] != "loop":
            return None
        factor, name = case.ratio_of("huddle", "loop"), case["collective"]
        text = f"{factor.value:.2f} ({factor.low:.2f}–{factor.high:.2f}) of {microseconds(case.time('loop').value)} µs"
        return (targets.case_name(case), least[name]), text

    yield from table(["", "reads + writes", *(mpi.title for mpi, _ in found)], rows_of([results for _, results in found], cell))
    yield "Geometric means of native/huddle and of native/loop in these rounds: what such loops would gain in place of huddle.\n"
    looped = [results.only(lambda case: case["what"] == "loop") for _, results in found]
    rows = [[f"native/{subject}", *(f"{results.mean_of('native', subject):.2f}" for results in looped)] for subject in ("huddle", "loop")]
    yield from table(["", *(mpi.title for mpi, _ in found)], rows if found else [])


def kernel_table(found: list[tuple[Mpi, Results]]) -> Iterator[str]:
    yield "### Beside single copies by the kernel\n"
    yield "2 ranks; data cross once, by process_vm_readv out of the sender's buffer (bench/kernel.c), which huddle uses where it is faster:\n" \
          "between two ranks with cores of their own by trials; where ranks share cores for Scatters alone, where its models choose it, and by\n" \
          "trials as long as the last-level cache holds the data. Cells: their time over huddle's.\n"

    def cell(case: Case) -> tuple[tuple[str, ...], str] | None:
        if case["what"] != "kernel":
            return None
        factor = case.ratio_of("kernel", "huddle")
        return (f"{case['collective']} {size_text(case['bytes'])}",), f"{factor.value:.2f} ({factor.low:.2f}–{factor.high:.2f})"

    yield from table(["", *(mpi.title for mpi, _ in found)], rows_of([results for _, results in found], cell))


def memory_table(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    yield "### Shared memory\n"
    yield "MiB on the node, reserved (touched by rank 0), after all six collectives at 4 MiB; then with 8 further communicators that have\n" \
          "moved 8 bytes; then after these were freed. What was freed is kept for later ones, of the last 8.\n"
    rows = []
    for ranks in MEMORY:
        for name in mpis:
            if results := store.read("memory", name, ranks):
                cells = [f"{case['reserved'] / (1 << 20):.1f} ({case['touched'] / (1 << 20):.1f})" for case in results.cases[1:]]
                rows.append([str(ranks), mpis[name].title, *cells])
    yield from table(["ranks", "MPI", "one communicator", "9 communicators", "8 of them freed"], rows)


def shape_table(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    yield "## Other shapes\n"
    yield "Ratios as above; \"after a barrier\" of a Barrier and the call after it together; from \"lengths at random\" on of whole steps of\n" \
          "loops as programs have them, with what they write, read, compute and send between calls (bench/programs.c).\n"
    columns = [(ranks, name, found) for ranks in SHAPE_RANKS for name in mpis if (found := store.read("shapes", name, ranks))]
    head = ["", "", *(f"{mpis[name].title}, {ranks} ranks" for ranks, name, _ in columns)]
    yield from table(head, rows_of([found for _, _, found in columns], lambda case: ((case["group"], case["shape"]), shown(case.ratio))))


def imb_table(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    found = {name: results for name in mpis if (results := store.read("imb", name, 2))}
    if not found:
        return
    yield "## IMB-MPI1, unmodified\n"
    yield "`scripts/bench --imb`: the binary of impi-devel, bare and preloaded in turn, 2 ranks, its own settings; t_max of its tables,\n" \
          "native/huddle. It checks no results. Calls accelerated, by the report of one job of each collective: " + "; ".join(
              f"{mpis[name].title} " + ", ".join(f"{collective} {calls}" for collective, calls in
                                                  {case['collective']: case['calls'] for case in results.cases}.items())
              for name, results in found.items()) + ".\n"
    yield "A job is of one collective and of some lengths. Compared are jobs before and after which the bare exchange of two cache lines took\n" \
          "alike, by a factor of two; those of which four turns have no such are left out. It took " + ", ".join(
              f"{min(bare):.0f} to {max(bare):.0f} ns under {mpis[name].title}" for name, results in found.items()
              if (bare := [time for case in results.cases for time in case["ns"].get("bare", [])])) + ".\n"
    yield "IMB takes a call's time from where its rank left the barrier before it, and has that untimed. Natively ranks leave it further\n" \
          "apart than huddle's, so that a receiver comes when its data are there. In the second column of each library the preloaded program\n" \
          "has native barriers too (`HUDDLE_BARRIER=native`): both measured from the same start.\n"
    rows: dict[tuple[str, int], list[str]] = {}
    for place, results in enumerate(found.values()):
        for case in results.cases:
            cells = rows.setdefault((case["collective"], case["bytes"]), [""] * (2 * len(found)))
            cells[2 * place] = compared(case)
            if case["collective"] != "Barrier" and BARRIERS_NATIVE in case["ns"]:
                cells[2 * place + 1] = compared(case, BARRIERS_NATIVE)
    yield from table(["", *(title for name in found for title in (mpis[name].title, "barriers native"))],
                     [[f"{collective} {size_text(size) if size else ''}".strip(), *cells] for (collective, size), cells in rows.items()])


def scaling_table(store: Store, mpis: dict[str, Mpi]) -> Iterator[str]:
    lines = [line for line in scaling.read(store.scaling) if line["algorithm"] == "chosen"]
    if not lines:
        return
    yield "## Time against ranks\n"
    yield "Simulated: one node of four packages of sixteen caches of eight cores, with the parameters assumed of a machine that nobody\n" \
          "measured (`src/model/parameters.rs`); microseconds of what huddle chooses where nothing is set. `tests/scaling.rs` asserts the growth.\n"
    for collective in dict.fromkeys(line["collective"] for line in lines):
        yield f"![MPI_{collective}: time against ranks](pictures/scaling-{collective.lower()}.svg)\n"
    ranks = sorted({line["ranks"] for line in lines})
    found: dict[tuple[str, int], dict[int, str]] = {}
    for line in lines:
        found.setdefault((line["collective"], line["bytes"]), {})[line["ranks"]] = f"{microseconds(line['ns'])} {line['row']}"
    yield from table(["", *(f"{number} ranks" for number in ranks)],
                     [[f"{name} {size_text(size) if size else ''}".strip(), *(cells.get(number, "") for number in ranks)]
                      for (name, size), cells in found.items()])


def curves(store: Store, mpis: dict[str, Mpi]) -> list[dict]:
    """For the pictures: the medians in microseconds, by collective and MPI."""
    found = []
    for collective in COLLECTIVES[:-1]:
        for name, results in grids(store, mpis, 2).items():
            cases = [case for case in results.cases if case["collective"] == collective]
            for subject in ("native", "huddle"):
                points = [[case["bytes"], case.time(subject).value / 1000] for case in cases]
                found.append({"collective": collective, "mpi": mpis[name].title, "subject": subject, "points": points})
    return found


def draw(data: dict, directory: Path) -> None:
    """Draws by matplotlib, in a virtual environment of its own."""
    home = ROOT / "target" / "plots"
    if not (home / "bin" / "python").exists():
        run([sys.executable, "-m", "venv", str(home)])
    if subprocess.run([str(home / "bin/python"), "-c", "import matplotlib"], capture_output=True).returncode != 0:
        run([str(home / "bin/python"), "-m", "pip", "install", "--quiet", "matplotlib"])
    source = ROOT / "target" / "bench" / "pictures.json"
    source.write_text(json.dumps(data))
    directory.mkdir(parents=True, exist_ok=True)
    run([str(home / "bin/python"), str(ROOT / "bench/pictures.py"), str(source), str(directory)])


def filled(page: Path, lines: list[str]) -> str:
    """The page with these lines between its markers."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}"


def write(store: Store, mpis: dict[str, Mpi], directory: Path = DOCS) -> None:
    """Writes all that is in the store to the page and the pictures in `directory`; to README.md too, if that is docs."""
    sections = [means, collective_tables, limit_tables, shape_table, imb_table, scaling_table, target_table]
    lines = [*when(store, mpis), ""]
    for section in sections:
        lines += section(store, mpis)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "PERFORMANCE.md").write_text(filled(DOCS / "PERFORMANCE.md", lines))
    if directory == DOCS and (first := headline(store, mpis)):
        (ROOT / "README.md").write_text(filled(ROOT / "README.md", first + [""]))
    draw({"curves": curves(store, mpis), "scaling": scaling.read(store.scaling)}, directory / "pictures")
    say(f"wrote {directory / 'PERFORMANCE.md'} and pictures")
