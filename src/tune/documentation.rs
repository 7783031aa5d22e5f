//! docs/ALGORITHMS.md, printed from the registry, the models and the simulator.

use super::combining::{LIBRARY, USER};
use super::orders::{Holds, Stage, machines, verdicts};
use crate::coll::{CLASSES, Knobs, REGISTRY, Row, SIGNALS, SOURCES, Takes, rows_of};
use crate::model::Parameters;
use crate::topo::Kind;
use crate::types::Collective;
use std::fmt::{self, Write};

const INTRODUCTION: &str = "\
# Algorithms

This page lists what huddle can run for each collective: the rows of its registry. `HUDDLE_ALLREDUCE=tree:radix=4` and the like force
one of them ([ENVIRONMENT.md](ENVIRONMENT.md)). `huddle info` shows which ones huddle would choose on a machine, with predicted times.

Terms (ARCHITECTURE.md, beside the sources, has all of them):

- Each rank has a ring of *slots*. A slot has a flag's line and a *cell*. Only the rank writes its slots, and all others read them.
  Cells of relays are an exception: several ranks write them.
- A *piece* is what one step moves. In tiled algorithms it is at most a tile, in trees at most a segment, otherwise as much as a cell holds.
- Between nodes a message goes in *chunks*. One of the leaders of a node takes each chunk.

Drawings are for five ranks. `a->b` means that b reads what a has put into its slot. In relays it means that b continues in the same cell.

In costs, p is the number of ranks of a node, q the number of ranks of a group, m the length, and k the radix. `a` is the time for a
line, `b` for a byte of one stream, `B` for a byte of all streams over a link together. Radix 1 turns a tree into a chain, and counts as
2 in a dissemination.

Knobs are for experiments: a tile of 64 bytes is legal, and slow.

- `radix`: children of a rank in a tree, partners of a rank in a dissemination.
- `class` and `stages`: which tree.
- `tile`, `segment` and `chunk`: bytes of each.
- `buffers`: how many pieces a broadcast's root may be ahead of its slowest reader. Without the knob: its whole ring.
- `leaders`: how many ranks of a node take chunks in turn.
- `up` and `down`: whether a barrier's signals are on a line of the rank that sends them or of the rank that waits for them.
- `try`: huddle tries both the memory and the slots of the rank that has data, the named one first. Without the knob: memory alone.
";

const ORIGIN: &str = "\
This page is printed from the sources of huddle: `HUDDLE_WRITE_DOCS=1 cargo test --no-default-features documentation` renews it, and
`scripts/model` renews the part on measurements.
";

const MODEL: &str = "\
## Costs

Most algorithms have a closed form for the cost of a call. The exceptions are `single` Bcasts and Allgathers, and relays if each rank has a
core or there are several nodes. huddle evaluates the form on the tree that the algorithm walks, for the hierarchy of the communicator's
first node, with the parameters of rank 0. The form charges each flag's line, each read of a peer's slot by the level that it crosses,
copies and combinations, streams that share a link (Li et al. 2014, equations 1 to 11; between nodes LogGP, as Nishtala 2009), and
huddle's own instructions. The papers' own formulas are in `src/model`, with their worked values as tests.

Unless the user forces an algorithm, huddle runs the algorithm and knobs of the least cost, or what it tries in their place (below). On two
ranks a flat algorithm wins if the models find it about as fast as the best one, because it waits the least. huddle makes this choice when
the first call of a size comes. The choice holds for all sizes from a power of two to halfway to the next one, or from there to the
next one. huddle keeps it in a map, which communicators with the same layout of ranks share. Later calls look the choice up in some
nanoseconds (`cargo bench --package huddle-benches --bench choose`). huddle compares:

- radix, class and stages of trees;
- tiles and segments that fit the first-level cache;
- one buffer, two buffers, and a whole ring;
- chunks between nodes;
- pulled and pushed signals;
- as many leaders as `HUDDLE_LEADERS` permits. With several leaders, the phases of other chunks go on during a leader's step between nodes.

### Slots or memory

No model tells whether data are better copied twice through slots, or once out of memory by the system. That depends on whether the
program changes the data between calls. So huddle tries both in some calls, if ranks may read each other's memory: it runs `single` with
`try`. The rank that has the data decides for each call, and tells the others with its first flag.

Two ranks with a core each try both in Bcasts and Scatters of more than 12 KiB, and in Allgathers of more than 48 KiB. They do so if the
models choose `flat`, `tiled` or, for a Scatter, `single`. huddle treats the lengths between two powers of two alike, for each collective:

- The first calls go as the models choose. They are eight, or more through slots: as many as go round twice in 2 MiB.
- The next 32 calls are a trial. They run in blocks of eight, and each block goes one way.
- After that, 32 of every 4096 calls are a trial. For data shorter than 256 KiB it is 32 calls for each gigabyte.
- Until so many calls were made, there are trials after 512 calls (1024 where ranks share cores), and after four times as many calls each
  time, because the first calls use new memory.
- The other calls go the way that took less time from call to call (`src/fabric/shm/loans.rs`, `trials.rs`).

Where ranks share cores, Scatters try both in these cases:

- The models choose `single`, blocks have at most 6 MiB, and all data that ranks send and receive fit the last-level cache.
- The models choose `flat` or `tiled`, and half of the last-level cache does not hold what all ranks send, each as the root in turn, and
  what they receive.
- The models choose `flat` or `tiled`, and predict that `single` takes no more than twice as long.

There 64 of 4096 calls are a trial, or 64 calls for each gigabyte if blocks are shorter than 256 KiB. A rank's time within calls counts:
the mean of intervals of four calls, without the longest interval. Each rank publishes what it has found, and every rank goes by the
findings of all. On up to 8 ranks, a trial of blocks of 256 KiB and more can end after its first half. It ends if that half speaks for
the usual way, by more than half of the ranks' verdicts. So a way that is clearly slower is tried in 16 calls, not in 32.

### Ranks that share cores

- A phase takes the work of all ranks divided by the number of their cores, and the part of its longest path that does not overlap with
  that work (Graham's bound). No more ranks read at a time than there are cores.
- Each wait that follows from another takes a turn of all ranks of a core, with a switch for each rank. If all ranks wait for all, it takes
  half a turn more for each two ranks of a core beyond the second. If ranks run ahead, it takes one turn for as many pieces as they have slots.
- The root of a Scatter waits for all others if its slots do not hold the blocks, and with single copies. That takes twelve waits.
- If half of the cores have one rank more than the others, these cores decide how long all ranks are at work.
- A flat Allreduce takes longer as soon as the operands of all ranks together exceed 64 KiB, because they no longer fit a first-level cache.
- A tiled Allreduce waits once more than its parts do. A hierarchical one also waits for other groups, with each piece.
- In a Reduce on one node that is not flat, ranks other than the root wait too. Meanwhile the other ranks of their cores write their next
  operands.

### Operations without huddle's kernels

The MPI library combines some operands for huddle, such as sums of long doubles. The models charge LIBRARY ns/byte more for these; that is
assumed. So they prefer sooner that these operands are combined once for all ranks, not by each rank. The models charge USER ns/byte
more for a user's operation. That is how much slower an operation is that adds doubles one by one. Nothing tells before a call how slow
the user's operation is.

### Lengths of pieces

On a node of two ranks, a Bcast or Reduce may have more pieces than a rank has cells to pass. Then the models charge the time to get back
the lines of slots that the other rank has read. So messages beyond some 256 KiB move in few long pieces. In tiled Bcasts they move in
tiles of which several share a cell. The models can't tell which length of these tiles is best, so huddle compares no lengths.

On a node of two ranks, pieces of these algorithms have about equal length, in whole pages, because a full piece overlaps little with a
short last one: flat and tiled Allreduces, flat, tiled and tree Reduces, and Allgathers by `flat`, `tiled` and `single`. In all other
algorithms every piece but the last is full.

The length of a tile, unless the user sets it (quarters of caches are rounded down to a power of two):

- In general it is a quarter of the message, but no shorter than a quarter of the first-level cache and no longer than a quarter of the
  second-level cache.
- In a Bcast between two ranks, whose tiles share cells, it is three quarters of the first-level cache. In messages of four times the
  first-level cache or longer it is all of that cache. It is at most a quarter of a cell.
- In such a Bcast it is a quarter of the first-level cache if the message has no more than one tile of that length. It is half of the
  message if the message has no more than two of these tiles and slots and memory are both tried. It is longer if the message has more than 32 of them.
- Where ranks share cores, tiles are as long as cells. Tiles of relays are half of the message, but no shorter than a quarter of the
  first-level cache and no longer than 128 KiB.

A segment is at most as long as a tile may be. Where ranks share cores, segments too are as long as cells.

A rank's slots together take twice the second-level cache. Where ranks share cores they take 1 MiB, or more if there are more slots than
usual and the cache is longer. The smallest caches of the job count. If the machine does not tell, huddle assumes 32 KiB and 1 MiB; `huddle
info` says which.

### Parameters

- Rates of copies and reductions come from the kernels' probe.
- `huddle probe` measures, on an idle machine and for later jobs, what moves between its processors. It also measures the time in which two
  threads give each other a core. huddle adds 600 ns for what a rank then misses in the caches.
- If a job has several nodes whose ranks do not share cores, rank 0 and a rank of another node measure in MPI_Init what messages between
  nodes take. That takes some two milliseconds. huddle keeps the result with those of the machine, by MPI library, and all ranks
  use rank 0's.
- If nobody has measured a machine, huddle assumes the one below.
- For what moves between ranks that share cores, huddle assumes the machine below on all machines. The second rank on a core finds there
  what the first one has fetched. With the measurements of a single pair, huddle would choose trees and relays too soon.
";

const SIMULATED: &str = "\
## The papers' machines

The simulator runs the algorithms themselves on virtual time, rank by rank, while the closed forms follow one rank. The tables have µs per
call, simulated / by the closed form, with trees of radix 2 and cells of 64 KiB. The paper's text gives the latencies of the
2×6 machine (§3.4; its worked 306.7 ns is a test). Those of the 4×8 machine are in a picture only (figure 21). The latencies assumed for it
give the paper's sum of 608.4 ns. All bandwidths are assumed (`src/model/papers.rs`).
";

const ORDERS: &str = "\
### What the papers report

";

/// The markers around the part that measurements fill.
const MEASURED: [&str; 2] = ["<!-- measured -->", "<!-- end -->"];

/// The page; `measured` is the text between its markers.
pub fn documentation(measured: &str) -> String {
    let mut page = INTRODUCTION.to_owned();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, measured);
    page
}

fn write_page(page: &mut String, measured: &str) -> fmt::Result {
    for collective in Collective::ALL {
        writeln!(page, "\n## {}", collective.name())?;
        rows_of(collective).try_for_each(|(_, row)| write_row(page, row))?;
    }
    write!(page, "\n{}", MODEL.replace("LIBRARY", &LIBRARY.to_string()).replace("USER", &USER.to_string()))?;
    write_parameters(page)?;
    write!(page, "\n{SIMULATED}")?;
    machines().iter().try_for_each(|machine| write_times(page, machine))?;
    write!(page, "\n{ORDERS}")?;
    writeln!(page, "| claim | simulated | |\n| --- | --- | --- |")?;
    for verdict in verdicts() {
        let holds = match verdict.holds {
            Holds::Yes => "holds",
            Holds::ElsewhereOnly => "holds, but at another size",
            Holds::No => "**does not hold**",
        };
        writeln!(page, "| {} | {} | {holds} |", verdict.claim, verdict.found)?;
    }
    write!(page, "\n{WHY}")?;
    write!(page, "\n## Model and measurement\n\n{}{measured}{}\n\n{ORIGIN}", MEASURED[0], MEASURED[1])
}

const WHY: &str = "\
Why some claims do not hold, or hold at other sizes:

- The bandwidths are not in the paper's text. With its latencies, equations (5) and (11) cross at 16 KB only if a tree's bandwidth is
  within a percent of the tiles'. With bandwidths like those of such machines they cross below 1 KB.
- The paper's threads read each other's buffers. huddle's ranks copy into slots first. A tree does that once per level, a tiled
  reduction once.
- Dissemination has fewer steps than a tree and its broadcast. So the paper's own equations, like the simulator, put it first for
  short messages. The paper measured otherwise, and supposes redundant work and contention to be the reason (§3.3).
";

fn write_row(page: &mut String, row: &Row) -> fmt::Result {
    writeln!(page, "\n### {}: `{}`\n", row.collective.name(), row.name)?;
    writeln!(page, "{}{}. Source: {}.\n", row.summary[..1].to_uppercase(), &row.summary[1..], row.source)?;
    if !row.drawing.is_empty() {
        writeln!(page, "```\n{}\n```\n", row.drawing)?;
    }
    let needs: Vec<&str> = row.needs.iter().map(|need| need.name()).collect();
    let needs = if needs.is_empty() { "nothing".to_owned() } else { needs.join(", ") };
    let knobs: Vec<String> =
        row.knobs.iter().map(|knob| format!("`{}` ({})", knob.name(), values(knob.takes()))).collect();
    let knobs = if knobs.is_empty() { "none".to_owned() } else { knobs.join(", ") };
    writeln!(page, "- Needs: {needs}\n- Knobs: {knobs}\n- Cost: {}", row.cost_in_words)
}

fn values(takes: Takes) -> String {
    match takes {
        Takes::Number(most) => format!("1 to {most}"),
        Takes::Size(least) => format!("a size, at least {least}"),
        Takes::Word(words) => {
            debug_assert!([&CLASSES[..], &SIGNALS[..], &SOURCES[..]].contains(&words));
            words.join(" or ")
        }
    }
}

fn write_parameters(page: &mut String) -> fmt::Result {
    let parameters = Parameters::default();
    writeln!(
        page,
        "\n| ranks share | line, ns | one stream, ns/byte | all streams, ns/byte |\n| --- | --- | --- | --- |"
    )?;
    for shares in std::iter::once(None).chain(Kind::ALL.map(Some)) {
        let crossing = parameters.crossing(shares);
        let name = shares.map_or("the node", Kind::name);
        writeln!(page, "| {name} | {} | {} | {} |", crossing.latency, crossing.stream, crossing.shared)?;
    }
    let network = parameters.network;
    writeln!(
        page,
        "\nA rank's own cache answers in {} ns. The rank copies at {} and combines at {} ns/byte. Between nodes LogGP has \
         L = {} ns, o = {} ns, g = {} ns, G = {} ns/byte.",
        parameters.local,
        parameters.copy,
        parameters.reduce,
        network.latency,
        network.overhead,
        network.gap,
        network.per_byte
    )?;
    let (far, software) = (parameters.far, parameters.software);
    writeln!(
        page,
        "The part of a call's data that exceeds {} KiB is copied at {} and combined at {} ns/byte. Copies into slots, whose \
         lines come back from their readers, take {} ns/byte. Data behind a flag add {} of a line's latency, because \
         processors load ahead. huddle's own instructions take {} ns in a call. They take {} ns more for each piece in a \
         phase, unless the call is flat and fits a slot. If a rank fetches data and works on them, the shorter of the \
         two times is hidden in part: by a factor of {} for a copy, of {} for a reduction. It takes {} ns to give a core to another \
         rank. A single copy takes {} ns, and {} ns/byte more than a copy of a rank's own memory, and nothing of it \
         overlaps. If all data come from memory, it takes the longer of this time and that of a copy from memory.",
        far.beyond / 1024.0,
        far.copy,
        far.reduce,
        parameters.write,
        parameters.ahead,
        software.call,
        software.step,
        parameters.overlap.copy,
        parameters.overlap.reduce,
        parameters.switch,
        parameters.single_copy.call,
        parameters.single_copy.per_byte
    )
}

const SIZES: [usize; 3] = [8, 1 << 10, 32 << 10];

fn write_times(page: &mut String, machine: &Stage) -> fmt::Result {
    let head: Vec<String> = SIZES.iter().map(|bytes| format!("{bytes} bytes")).collect();
    writeln!(page, "\n| {} | {} |\n| --- |{}", machine.name(), head.join(" | "), " --- |".repeat(SIZES.len()))?;
    for (index, row) in REGISTRY.iter().enumerate() {
        let is_barrier = row.collective == Collective::Barrier;
        let cells = SIZES.map(|bytes| {
            if is_barrier && bytes != SIZES[0] {
                return String::new();
            }
            let times = machine.time(index, bytes, Knobs::UNSET);
            let formula = times.formula.map_or("?".to_owned(), |time| format!("{:.2}", time / 1e3));
            format!("{:.2} / {formula}", times.simulated / 1e3)
        });
        writeln!(page, "| {} `{}` | {} |", row.collective.name(), row.name, cells.join(" | "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_of_algorithms_is_committed() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ALGORITHMS.md");
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let measured = committed.split_once(MEASURED[0]).and_then(|(_, rest)| rest.split_once(MEASURED[1]));
        let page = documentation(measured.map_or("\n", |(measured, _)| measured));
        if std::env::var_os("HUDDLE_WRITE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        } else {
            assert!(committed == page, "docs/ALGORITHMS.md is old: run this test with HUDDLE_WRITE_DOCS=1");
        }
    }

    #[test]
    fn every_algorithm_has_all_parts() {
        for row in REGISTRY {
            let what = format!("{} {}", row.collective.name(), row.name);
            assert!(!row.cost_in_words.is_empty() && !row.drawing.is_empty(), "{what}");
        }
    }
}
