//! Runs a program: polls ranks in random turns until all have finished or one has broken a rule.

use super::machine::Machine;
use super::mutation::{Change, Mutator};
use super::oracle::{Data, in_place, operator};
use super::program::{Call, Program};
use super::random::Random;
use super::slots::Rings;
use super::violation::{Breach, Violation};
use super::{Rank, Running, lock};
use crate::coll::{Measures, REGISTRY, most_tickets};
use crate::topo::{Layout, Levels};
use crate::types::{Collective, CommRank};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// What a program that kept all rules did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations of all ranks.
    pub operations: u64,
    /// Operations that the program's mutation changed.
    pub mutated: u64,
}

impl Program {
    /// Runs the program with the data and the turns of `seed`.
    ///
    /// # Errors
    /// The first rule that the program broke.
    pub fn run(&self, seed: u64) -> Result<Stats, Violation> {
        self.run_in_turns(seed, seed)
    }

    /// Runs the program with the data of one seed and the turns of another.
    ///
    /// # Errors
    /// The first rule that the program broke.
    pub fn run_in_turns(&self, seed: u64, turns: u64) -> Result<Stats, Violation> {
        self.run_on(&self.machine(Mutator::new(self.mutation, self.labels.len())), seed, turns)
    }

    /// Which of `changes` would fit an operation, in the order of their first occasions. Makes none of them, nor the
    /// program's own mutation.
    ///
    /// # Errors
    /// The first rule that the program broke.
    pub fn occasions(&self, seed: u64, changes: &[Change]) -> Result<Vec<Change>, Violation> {
        let machine = self.machine(Mutator::seeking(changes, self.labels.len()));
        self.run_on(&machine, seed, seed)?;
        Ok(lock(&machine).occasions())
    }

    fn machine(&self, mutator: Mutator) -> Arc<Mutex<Machine>> {
        let rings = Rings::new(self.slots * self.lines_per_cell, self.slots, self.cell);
        Arc::new(Mutex::new(Machine::new(&self.layout(CommRank(0)), &rings, self.misses, mutator)))
    }

    fn run_on(&self, machine: &Arc<Mutex<Machine>>, seed: u64, turns: u64) -> Result<Stats, Violation> {
        let layout = self.layout(CommRank(0));
        let ranks: Vec<Rank> = (0..self.labels.len()).map(|me| self.rank(me, &layout, machine)).collect();
        Runner {
            program: self,
            machine,
            ranks: &ranks,
            random: Random::new(!turns),
            seed,
            data: self.calls.iter().map(|_| None).collect(),
            running: ranks.iter().map(|_| (0, None)).collect(),
            last: 0,
        }
        .run()
    }

    fn layout(&self, me: CommRank) -> Layout {
        Layout::new(&self.labels, me).with_leaders(self.leaders)
    }

    fn rank(&self, me: usize, layout: &Layout, machine: &Arc<Mutex<Machine>>) -> Rank {
        let (node, node_rank) = layout.place(CommRank(me as u32));
        let members = layout.members(node);
        let paths: Vec<Vec<u32>> = members.iter().map(|rank| self.paths[rank.index()].clone()).collect();
        Rank {
            me,
            node_rank,
            size: members.len(),
            levels: Levels::from_paths(&paths, node_rank),
            layout: self.layout(CommRank(me as u32)),
            cell: self.cell,
            slots: self.slots,
            is_in_place: AtomicBool::new(false),
            machine: Arc::clone(machine),
        }
    }
}

struct Runner<'a> {
    program: &'a Program,
    machine: &'a Mutex<Machine>,
    ranks: &'a [Rank],
    random: Random,
    seed: u64,
    /// By call: inputs and results, from the first rank's entry until all ranks have left.
    data: Vec<Option<Data>>,
    /// By rank: the call that it is in.
    running: Vec<(usize, Option<Running<'a>>)>,
    last: usize,
}

impl<'a> Runner<'a> {
    fn run(mut self) -> Result<Stats, Violation> {
        (0..self.ranks.len()).for_each(|rank| self.enter(rank));
        while let Some(rank) = self.pick()? {
            self.last = rank;
            if self.poll(rank).is_ready() {
                self.leave(rank);
            }
        }
        let machine = lock(self.machine);
        if self.running.iter().any(|(_, running)| running.is_some()) {
            return Err(machine.deadlock());
        }
        Ok(Stats { operations: machine.operations(), mutated: machine.mutated() })
    }

    /// One of the ranks that can go on: often the one that ran last, seldom the laggard.
    fn pick(&mut self) -> Result<Option<usize>, Violation> {
        let pace = self.program.pace;
        let mut machine = lock(self.machine);
        let ready = machine.ready()?;
        if ready.is_empty() {
            return Ok(None);
        }
        let stays = ready.last() == Some(&self.last) && !self.random.one_in(pace.switch);
        let mut at = if stays { ready.len() - 1 } else { self.random.below(ready.len()) };
        if Some(ready[at]) == pace.laggard && !self.random.one_in(32) {
            at = self.random.below(ready.len());
        }
        Ok(Some(ready.swap_remove(at)))
    }

    fn poll(&mut self, rank: usize) -> Poll<()> {
        let Some(future) = &mut self.running[rank].1 else {
            return Poll::Pending;
        };
        let mut context = Context::from_waker(Waker::noop());
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
            lock(self.machine).accuse(rank, "algorithm".into(), Breach::Panic(text));
            Poll::Pending
        })
    }

    /// Starts the next call of `rank`, or ends its program.
    fn enter(&mut self, rank: usize) {
        let index = self.running[rank].0;
        let Some(call) = self.program.calls.get(index) else {
            return lock(self.machine).finish(rank);
        };
        let data = self.data[index].get_or_insert_with(|| {
            let mut random = Random::new(self.seed.wrapping_mul(64).wrapping_add(index as u64));
            Data::random(call, self.ranks.len(), &mut random)
        });
        self.ranks[rank].is_in_place.store(in_place(call, rank).is_some(), Ordering::Relaxed);
        let fabric = &self.ranks[rank];
        let largest_node = fabric.layout.largest_node();
        let tickets = most_tickets(&REGISTRY[call.row], &call.plan, &Measures::of(fabric), largest_node);
        lock(self.machine).begin(rank, &call.plan, tickets, operator(call), data.buffers(call, rank));
        self.running[rank].1 = Some((call.start)(&self.ranks[rank], &call.plan));
    }

    /// Checks what `rank` got from its call, and goes on to the next.
    fn leave(&mut self, rank: usize) {
        let index = self.running[rank].0;
        self.check(rank, index, &self.program.calls[index]);
        lock(self.machine).end(rank);
        self.running[rank] = (index + 1, None);
        if self.running.iter().all(|(call, _)| *call > index) {
            self.data[index] = None;
        }
        self.enter(rank);
    }

    fn check(&self, rank: usize, index: usize, call: &Call) {
        let mut machine = lock(self.machine);
        let Some(data) = &self.data[index] else {
            return;
        };
        if let Some(at) = data.first_wrong(call, rank, machine.members[rank].memory.output()) {
            machine.accuse(rank, "result".into(), Breach::WrongResult { at });
        }
        if call.collective() == Collective::Barrier
            && let Some(missing) = machine.not_entered(rank, call.plan.epoch)
        {
            machine.accuse(rank, "return".into(), Breach::LeftBarrierEarly { missing });
        }
    }
}
