//! What the papers report to be faster, checked by the simulator and by the closed forms, for docs/ALGORITHMS.md.

use crate::coll::{Knob, Knobs, Plan, REGISTRY, find};
use crate::fabric::simulated::{Placement, simulate, simulate_in_succession};
use crate::model::papers::{MAGNY_COURS, Paper, THREADS_128, WESTMERE};
use crate::model::{Level, Nanos, Scene};
use crate::types::{Bytes, Collective, CommRank, Epoch, OperandOrder};

/// Cells long enough that a message of the papers' comparisons is one piece.
const CELL: Bytes = Bytes(64 << 10);

/// Nanoseconds that one call takes: simulated, and by its closed form.
pub struct Times {
    /// When the last rank ends in the simulator.
    pub simulated: f64,
    /// As [`Algorithm::cost`](crate::coll::Algorithm::cost) says.
    pub formula: Option<f64>,
}

/// A paper's machine with all its ranks.
pub struct Stage {
    paper: &'static Paper,
    placement: Placement,
    scene: Scene,
}

impl Stage {
    /// The stage of `paper` with all ranks of its machine.
    pub fn new(paper: &'static Paper) -> Self {
        let ranks = paper.ranks();
        let placement = Placement {
            labels: vec![0; ranks],
            paths: (0..ranks).map(|rank| vec![(rank / paper.cores) as u32, rank as u32]).collect(),
            slots: 32,
            cell: CELL,
        };
        let fans = [paper.sockets, paper.cores];
        let levels = fans.iter().zip(paper.crossings).map(|(fan, crossing)| Level { fan: *fan, crossing }).collect();
        let scene = Scene::new((ranks, 1, ranks), levels, (CELL, 32), paper.machine());
        Self { paper, placement, scene }
    }

    fn plan(&self, row: usize, bytes: usize, knobs: Knobs, epoch: u64) -> Plan {
        let collective = REGISTRY[row].collective;
        Plan {
            epoch: Epoch(epoch),
            bytes: if collective == Collective::Barrier { Bytes::ZERO } else { Bytes(bytes) },
            granule: Bytes(8),
            root: CommRank(0),
            order: OperandOrder::Any,
            knobs: knobs.or(Knob::Radix, 2).or(Knob::Tile, 8 << 10),
            scratch: Bytes::ZERO,
            reach: Bytes::ZERO,
        }
    }

    /// The times of one call.
    pub fn time(&self, row: usize, bytes: usize, knobs: Knobs) -> Times {
        let plan = self.plan(row, bytes, knobs, 1);
        let simulated = last(&simulate(&REGISTRY[row], &plan, &self.paper.machine(), &self.placement));
        Times { simulated, formula: (REGISTRY[row].cost)(&plan, &self.scene).map(|Nanos(time)| time) }
    }

    /// The time of each of many successive calls.
    fn time_in_succession(&self, row: usize, bytes: usize, knobs: Knobs) -> f64 {
        const CALLS: u64 = 16;
        let plans: Vec<Plan> = (1..=CALLS).map(|epoch| self.plan(row, bytes, knobs, epoch)).collect();
        last(&simulate_in_succession(&REGISTRY[row], &plans, &self.paper.machine(), &self.placement)) / CALLS as f64
    }
}

fn last(times: &[Nanos]) -> f64 {
    times.iter().map(|time| time.0).fold(0.0, f64::max)
}

/// How far a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It holds.
    Yes,
    /// The order holds, but changes at another size.
    ElsewhereOnly,
    /// It does not hold.
    No,
}

impl From<bool> for Holds {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// What a paper claims, and what the simulator says.
pub struct Verdict {
    /// The claim with its source.
    pub claim: String,
    /// What was found.
    pub found: String,
    /// Whether it holds.
    pub holds: Holds,
}

fn row(collective: Collective, name: &str) -> usize {
    find(collective, name).expect("a row of the registry")
}

fn radix(radix: u32) -> Knobs {
    Knobs::UNSET.with(Knob::Radix, radix)
}

/// The verdicts on all claims.
pub fn verdicts() -> Vec<Verdict> {
    let (westmere, magny_cours) = (Stage::new(&WESTMERE), Stage::new(&MAGNY_COURS));
    let mut verdicts = vec![crossover(&westmere, 16), crossover(&magny_cours, 14)];
    verdicts.extend([dissemination(&westmere), dissemination(&magny_cours)]);
    verdicts.extend([stages(&westmere, 1), stages(&magny_cours, 2)]);
    verdicts.extend([barriers(&Stage::new(&THREADS_128)), chains(&westmere)]);
    verdicts
}

const SIZES: [usize; 11] =
    [64, 1 << 10, 2 << 10, 4 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10, 48 << 10];

/// The least of [`SIZES`] from which on tiles are faster.
fn crossing(is_tiled_faster: impl Fn(usize) -> bool) -> Option<usize> {
    let slower = SIZES.iter().rposition(|bytes| !is_tiled_faster(*bytes));
    slower.map_or(SIZES.first(), |last| SIZES.get(last + 1)).copied()
}

fn crossover(stage: &Stage, kib: usize) -> Verdict {
    let (tree, tiled) = (row(Collective::Allreduce, "tree"), row(Collective::Allreduce, "hierarchical"));
    let stages = Knobs::UNSET.with(Knob::Stages, if stage.paper.sockets > 2 { 2 } else { 1 });
    let time = |row, bytes, knobs| stage.time(row, bytes, knobs).simulated;
    let simulated = crossing(|bytes| time(tiled, bytes, stages) < time(tree, bytes, stages));
    let node = stage.paper.node();
    let equations = crossing(|bytes| node.tiled(bytes as f64) < node.tree(bytes as f64));
    let say = |from: Option<usize>| from.map_or("above 48K".to_owned(), |bytes| format!("from {} bytes on", bytes));
    Verdict {
        claim: format!("{}: Allreduce takes a tree below about {kib} KB, tiles above (§3.4)", stage.paper.name),
        found: format!(
            "hierarchical tiles are faster {} simulated, {} by equations (5) and (11)",
            say(simulated),
            say(equations)
        ),
        holds: match simulated {
            Some(bytes) if (kib << 9..=kib << 11).contains(&bytes) => Holds::Yes,
            Some(bytes) if bytes > SIZES[0] => Holds::ElsewhereOnly,
            _ => Holds::No,
        },
    }
}

fn dissemination(stage: &Stage) -> Verdict {
    let rows = ["tree", "hierarchical", "flat"].map(|name| row(Collective::Allreduce, name));
    let candidate = row(Collective::Allreduce, "dissemination");
    let is_best = |bytes: &usize| {
        let time = stage.time(candidate, *bytes, Knobs::UNSET).simulated;
        rows.iter().all(|row| stage.time(*row, *bytes, Knobs::UNSET).simulated > time)
    };
    let list = |best: Vec<String>| {
        if best.is_empty() { "nowhere".to_owned() } else { format!("at {} bytes", best.join(", ")) }
    };
    let best: Vec<String> = SIZES.iter().filter(|bytes| is_best(bytes)).map(ToString::to_string).collect();
    let node = stage.paper.node();
    let is_first = |bytes: &&usize| {
        let m = **bytes as f64;
        node.dissemination(m) < node.tree(m).min(node.tiled(m))
    };
    let first: Vec<String> = SIZES.iter().filter(is_first).map(ToString::to_string).collect();
    let holds = best.is_empty();
    Verdict {
        claim: format!("{}: dissemination is never the best Allreduce (§3.3)", stage.paper.name),
        found: format!("the best {} simulated, {} by equations (5), (6), (7) and (11)", list(best), list(first)),
        holds: holds.into(),
    }
}

fn stages(stage: &Stage, better: u32) -> Verdict {
    let bcast = row(Collective::Bcast, "tree");
    let time = |stages, bytes| stage.time(bcast, bytes, Knobs::UNSET.with(Knob::Stages, stages)).simulated;
    let agreeing: Vec<bool> = SIZES.iter().map(|bytes| time(better, *bytes) < time(3 - better, *bytes)).collect();
    let count = agreeing.iter().filter(|agrees| **agrees).count();
    let names = ["", "one stage", "two stages"];
    Verdict {
        claim: format!("{}: a broadcast in {} is best at all sizes (§3.1)", stage.paper.name, names[better as usize]),
        found: format!("faster at {count} of {} sizes", SIZES.len()),
        holds: (count == SIZES.len()).into(),
    }
}

fn barriers(stage: &Stage) -> Verdict {
    let tree = row(Collective::Barrier, "tree");
    let time = |k: &u32| stage.time(tree, 0, radix(*k)).simulated;
    let best = [2, 3, 4, 8, 16].into_iter().min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(2);
    let gain = 100.0 * (time(&2) / time(&best) - 1.0);
    Verdict {
        claim: format!(
            "{} threads: the best barrier has a radix above 2 (Nishtala §7.1: 46 % faster)",
            stage.paper.ranks()
        ),
        found: format!("radix {best} of a tree is {gain:.0} % faster than radix 2"),
        holds: (best > 2).into(),
    }
}

fn chains(stage: &Stage) -> Verdict {
    let reduce = row(Collective::Reduce, "tree");
    let radices = [1, 2, 4];
    let loose = radices.map(|k| stage.time_in_succession(reduce, 8 << 10, radix(k)));
    let strict = radices.map(|k| stage.time(reduce, 8 << 10, radix(k)).simulated);
    let least =
        |times: [f64; 3]| (0..3).min_by(|a, b| times[*a].total_cmp(&times[*b])).map_or(0, |index| radices[index]);
    let list = |times: [f64; 3]| times.map(|time| format!("{:.1}", time / 1e3)).join("/");
    Verdict {
        claim: "Reduce of 8 KiB: a chain is best where successive calls overlap, radix 2 to 4 where they don't \
                (Nishtala §5.2)"
            .to_owned(),
        found: format!("radix 1/2/4: {} µs per call in succession, {} µs for one call", list(loose), list(strict)),
        holds: (least(loose) == 1 && least(strict) > 1).into(),
    }
}

/// The machines for tables of simulated and predicted times.
pub fn machines() -> [Stage; 2] {
    [Stage::new(&WESTMERE), Stage::new(&MAGNY_COURS)]
}

impl Stage {
    /// The machine's name.
    pub fn name(&self) -> &'static str {
        self.paper.name
    }
}
