//! The slot protocol on the words that the ranks of a node share, and how each rank recognises failures and mismatches.
//! It does not depend on where the words are: the real fabric and the one under loom run this code.

pub use super::awaited::Awaited;
use super::shm::ROTATED;
use super::{Line, Room};
use crate::codegen::elsewhere;
use crate::coll::Plan;
use crate::sync::{Claims, Control, Descriptor, Flag, FlagLine, LastClaim, Next, Passed, PeerCall, Stretch};
use crate::types::{Bytes, Collective, Epoch, NodeRank, Ticket};

/// Why a call ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The arguments of `rank`, or of a rank that it depended on, were rejected. This call fails, later calls work.
    PeerFailed {
        /// On this node.
        rank: NodeRank,
    },
    /// `rank` is in another collective, or in the same one with another root or size: the program is erroneous. The
    /// rank that notices this does not tell its own waiting peers. Else they would end the job because of its silence,
    /// maybe before it has told why.
    Mismatch {
        /// On this node.
        rank: NodeRank,
        /// The call that it is in.
        peer: PeerCall,
    },
}

/// The call that a rank has entered.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    pub(crate) collective: Collective,
    pub(crate) epoch: Epoch,
    pub(crate) bytes: Bytes,
    pub(crate) descriptor: Descriptor,
    /// How far the call reaches into cells.
    pub(crate) reach: Bytes,
}

impl Entered {
    /// The call of `plan`, run by the algorithm of that `row` of the registry.
    #[inline]
    pub fn new(collective: Collective, row: usize, plan: &Plan) -> Self {
        let descriptor = Descriptor::new(plan.epoch, collective, row, plan.root.0, plan.bytes);
        let descriptor = descriptor.telling(plan.reach >= ROTATED).ordered(plan.order);
        Self { collective, epoch: plan.epoch, bytes: plan.bytes, descriptor, reach: plan.reach }
    }
}

/// The words of a node's ranks as one of them sees them.
pub(crate) trait Words {
    /// This rank.
    fn me(&self) -> NodeRank;
    /// Ranks of the node.
    fn ranks(&self) -> usize;
    /// What this rank knows of its own slots.
    fn claims(&self) -> &Claims;
    /// The cells that this rank passes to its one peer; empty unless the node has two ranks.
    fn passed(&self) -> &Passed;
    /// Where the passed cell number `cell` lies, counted from the first cell of `rank`, in units of
    /// [`HOME_UNIT`](crate::sync::HOME_UNIT).
    fn home_of_passed(&self, rank: NodeRank, cell: u32) -> u64;
    /// The number of the passed cell that lies at `home`, counted from the first cell of `rank`; `None` if none lies
    /// there.
    fn passed_at(&self, rank: NodeRank, home: u64) -> Option<u32>;
    /// What `rank` tells of itself.
    fn control(&self, rank: NodeRank) -> &Control;
    /// What this rank tells of itself. It has a method of its own, since each call asks for it several times.
    #[inline]
    fn mine(&self) -> &Control {
        self.control(self.me())
    }
    /// The flag of `line` for the slot that `ticket` uses.
    fn line(&self, rank: NodeRank, line: Line, ticket: Ticket) -> &FlagLine;
    /// What `from` has posted to `to`. Writer: `from`. Reader: `to`.
    fn post(&self, to: NodeRank, from: NodeRank) -> &Flag;
    /// The descriptor of the call in which `rank` last claimed the lines that `ticket` uses.
    fn last_claim(&self, rank: NodeRank, ticket: Ticket) -> &LastClaim;
    /// The descriptor of the call in which this rank last claimed the lines that `ticket` uses.
    #[inline]
    fn my_last_claim(&self, ticket: Ticket) -> &LastClaim {
        self.last_claim(self.me(), ticket)
    }

    /// All other ranks.
    #[inline]
    fn peers(&self) -> impl Iterator<Item = NodeRank> {
        let me = self.me();
        (0..self.ranks() as u32).map(NodeRank).filter(move |rank| *rank != me)
    }

    /// The flags of what all other ranks have released.
    #[inline]
    fn releases(&self) -> impl Iterator<Item = &Flag> {
        self.peers().map(|rank| &self.control(rank).released)
    }

    /// Tells peers which call this rank is in.
    #[inline]
    fn enter(&self, call: &Entered) {
        self.mine().call.enter(call.epoch, call.descriptor, call.bytes);
    }

    /// Claims `room` for `ticket` if this rank may write there; returns whether it may. The claim is for the call of
    /// `descriptor`, which reaches `reach` bytes into cells; `next` is as for [`Claims::claim_cell`].
    #[inline(always)]
    fn claim(
        &self,
        ticket: Ticket,
        room: Room,
        reach: Bytes,
        descriptor: Descriptor,
        next: impl FnOnce(u64) -> Stretch,
    ) -> bool {
        if room == Room::Lines {
            return self.claim_lines(ticket, descriptor);
        }
        let last = (self.my_last_claim(ticket), descriptor);
        let passed = if room == Room::Passed { self.passed().next(reach) } else { None };
        let stretch = |cursor| match passed {
            Some(Next { cell, .. }) => {
                Stretch { home: Some(self.home_of_passed(self.me(), cell)), grains: 0..0, cursor }
            }
            None => next(cursor),
        };
        let is_taken = self.claims().claim_cell(ticket, || self.releases(), last, stretch);
        match passed {
            Some(cell) if is_taken => self.passed().give(cell, ticket),
            None if is_taken && !self.passed().is_empty() => self.passed().miss(),
            _ => {}
        }
        is_taken
    }

    /// Claims [`Room::Lines`] for `ticket` if this rank may write them; returns whether it may.
    #[inline(always)]
    fn claim_lines(&self, ticket: Ticket, descriptor: Descriptor) -> bool {
        let last = (self.my_last_claim(ticket), descriptor);
        self.claims().claim_lines(ticket, || self.releases(), last)
    }

    /// Whether all peers have released the ticket for which this rank claimed a cell `cells` claims ago.
    #[inline]
    fn is_drained(&self, cells: usize) -> bool {
        self.claims().is_released(self.claims().claimed_ago(cells), || self.releases())
    }

    /// Announces `ticket`, in the call of `descriptor`, to ranks that wait for that flag. Tells with the flag where the
    /// ticket's cell is, if the ticket has a cell and this rank has to tell that.
    #[inline]
    fn publish(&self, line: Line, ticket: Ticket, descriptor: Descriptor) {
        let flag = self.line(self.me(), line, ticket);
        if let Some(home) = self.claims().home(ticket) {
            flag.tell_home(ticket, home);
        }
        flag.publish(ticket, descriptor.word());
    }

    /// Where the cell of `rank` for `ticket` begins. If the cell is this rank's own, it has claimed that cell. If it is
    /// a peer's, the peer has published that flag, and this rank has reached it, or a flag that follows from it.
    ///
    /// # Panics
    /// If this rank has neither claimed a cell for `ticket` nor been told of one.
    #[inline]
    fn home(&self, rank: NodeRank, line: Line, ticket: Ticket) -> u64 {
        let home = self.told_home(rank, line, ticket);
        home.expect(
            "who uses a cell has claimed it, or has waited for that flag of its owner, or for one that follows from it",
        )
    }

    /// Where the cell of `rank` for `ticket` begins; `None` if this rank has neither claimed it nor been told.
    #[inline]
    fn told_home(&self, rank: NodeRank, line: Line, ticket: Ticket) -> Option<u64> {
        match rank == self.me() {
            true => self.claims().home(ticket),
            false => self.line(rank, line, ticket).home(ticket),
        }
    }

    /// Promises to read no slot of any ticket up to `ticket` again, and to write no peer's slot of any of them. Cells
    /// that were passed with these tickets belong to this rank from here on.
    #[inline(always)]
    fn release(&self, ticket: Ticket) {
        self.mine().released.publish(ticket);
        self.passed().release(ticket);
    }

    /// Makes the promise of `release`. No cell that was passed with these tickets may be left for this rank to take.
    #[inline]
    fn release_lines(&self, ticket: Ticket) {
        debug_assert!(self.passed().awaits_none());
        self.mine().released.publish(ticket);
    }

    /// Tells peers that this rank takes no part in `epoch`; see [`Control::fail`].
    fn fail(&self, epoch: Epoch) {
        self.passed().forget();
        self.mine().fail(epoch);
    }

    /// Leaves `epoch`, which ended with `fault`. Tells peers that wait for this rank, unless the fault ends the job.
    fn leave_with(&self, epoch: Epoch, fault: Fault) {
        match fault {
            Fault::PeerFailed { .. } => self.fail(epoch),
            Fault::Mismatch { .. } => {}
        }
    }

    /// Whether `rank` has released all tickets that a claim of this rank waits for.
    fn has_released(&self, rank: NodeRank) -> bool {
        self.control(rank).released.reached(self.claims().missing()).is_some()
    }

    /// The peer that keeps this rank waiting.
    fn awaited_peer(&self, awaited: Awaited) -> Option<NodeRank> {
        match awaited {
            Awaited::Flag { rank, .. } | Awaited::Post { rank, .. } | Awaited::Cells { rank, .. } => Some(rank),
            Awaited::Slot { .. } => self.peers().find(|rank| !self.has_released(*rank)),
            Awaited::Release { ticket } => {
                self.peers().find(|rank| self.control(*rank).released.reached(ticket).is_none())
            }
            Awaited::Nothing | Awaited::Bridge => None,
        }
    }

    /// Whether `rank` has done what this rank awaits of it.
    fn has_come(&self, awaited: Awaited, rank: NodeRank) -> bool {
        match awaited {
            Awaited::Flag { line, ticket, .. } => self.line(rank, line, ticket).reached(ticket).is_some(),
            Awaited::Post { ticket, .. } => self.post(self.me(), rank).reached(ticket).is_some(),
            Awaited::Slot { .. } => self.has_released(rank),
            Awaited::Release { ticket } => self.control(rank).released.reached(ticket).is_some(),
            Awaited::Cells { epoch, .. } => self.control(rank).joined.reached(Ticket::new(epoch, 0)).is_some(),
            Awaited::Nothing | Awaited::Bridge => true,
        }
    }

    /// Verifies that `rank` took part in `call`, after this rank has reached its `flag` for `ticket` with `value`.
    ///
    /// # Errors
    /// If `rank` did not.
    #[inline(always)]
    fn verify(&self, call: &Entered, rank: NodeRank, flag: &FlagLine, ticket: Ticket, value: u64) -> Result<(), Fault> {
        if Ticket(value).epoch() != call.epoch {
            return self.verify_late(&elsewhere(*call), rank, ticket);
        }
        let word = flag.descriptor();
        if call.descriptor.contradicts(word) { Err(self.mismatch(&elsewhere(*call), rank, word)) } else { Ok(()) }
    }

    /// Whether `rank` has published `flag` for `ticket`. If a cell is passed to this rank with that flag, notes which
    /// one.
    ///
    /// # Errors
    /// If `rank` took no part in `call`, or published the flag in another call.
    #[inline(always)]
    fn has_come_of(&self, call: &Entered, rank: NodeRank, flag: &FlagLine, ticket: Ticket) -> Result<bool, Fault> {
        let has_come = self.has_line_come(call, rank, flag, ticket)?;
        // Data that fit lines have no cell.
        if has_come
            && call.reach > Bytes::ZERO
            && !self.passed().is_empty()
            && let Some(home) = flag.home(ticket)
            && let Some(cell) = self.passed_at(rank, home)
        {
            self.passed().await_release(ticket, cell, call.reach);
        }
        Ok(has_come)
    }

    /// Whether `rank` has published `flag` for `ticket`, which has no cell.
    ///
    /// # Errors
    /// If `rank` took no part in `call`, or was in another call.
    #[inline(always)]
    fn has_line_come(&self, call: &Entered, rank: NodeRank, flag: &FlagLine, ticket: Ticket) -> Result<bool, Fault> {
        let Some(value) = flag.reached(ticket) else { return Ok(false) };
        self.verify(call, rank, flag, ticket, value)?;
        if self.ranks() == 2 {
            self.claims().note_entered(call.epoch);
        }
        Ok(true)
    }

    /// Verifies that `rank` took part in `call`, after this rank has reached its post for `ticket` with `value`. Posts
    /// carry no descriptor: only barriers wait for them, and only for ranks that post.
    ///
    /// # Errors
    /// If `rank` did not.
    #[inline]
    fn verify_post(&self, call: &Entered, rank: NodeRank, ticket: Ticket, value: u64) -> Result<(), Fault> {
        if Ticket(value).epoch() == call.epoch { Ok(()) } else { self.verify_late(call, rank, ticket) }
    }

    /// Whether all ranks have reserved `depth` bytes of each of their cells, as each of them tells. This rank tells
    /// what `reserve` returns, unless it has told before, in a call that another rank failed. All ranks are in `call`.
    /// `wait` returns when the look that it is given finds that a peer has joined. No rank leaves before all ranks are
    /// in the call with accepted arguments. So all end with the same answer, or none has one.
    ///
    /// # Errors
    /// If a peer contradicts, or has failed; in the latter case this rank has failed the call too.
    fn agree_on_cells(
        &self,
        call: &Entered,
        depth: Bytes,
        reserve: impl FnOnce() -> bool,
        wait: impl Fn(Awaited, &dyn Fn() -> Result<bool, Fault>) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        self.enter(call);
        let mine = self.mine();
        if mine.has_cells(depth).is_none() {
            mine.tell_of_cells(depth, reserve());
        }
        // From here on peers count in this call what this rank has told, now or before.
        mine.joined.publish(Ticket::new(call.epoch, 0));
        mine.event().announce();
        let mut have_all = mine.has_cells(depth) == Some(true);
        for rank in self.peers() {
            let cells = || self.cells_of(call, rank, depth);
            let joined = wait(Awaited::Cells { rank, epoch: call.epoch }, &|| Ok(cells()?.is_some()));
            match joined.and_then(|()| cells()) {
                Ok(has_cells) => have_all &= has_cells == Some(true),
                Err(fault) => {
                    self.leave_with(call.epoch, fault);
                    return Err(fault);
                }
            }
        }
        mine.agreed.publish(Ticket::new(call.epoch, 0));
        if !have_all {
            // The call goes on without the segment, so this rank releases it here. Else a leader that has freed its
            // communicator would take the segment for idle while a peer still waits here.
            self.release(Ticket::last_of(call.epoch));
        }
        Ok(have_all)
    }

    /// Whether `rank` has reserved `depth` bytes of each of its cells; `None` while it has not joined `call`.
    ///
    /// # Errors
    /// If `rank` took no part in the call, or was in another call.
    fn cells_of(&self, call: &Entered, rank: NodeRank, depth: Bytes) -> Result<Option<bool>, Fault> {
        let control = self.control(rank);
        let Some(value) = control.joined.reached(Ticket::new(call.epoch, 0)) else {
            return Ok(None);
        };
        // No rank agrees in a later call before this rank joins that call. So a rank that is further on took part in
        // this call exactly if its last agreement was in this call.
        let is_further = Ticket(value).epoch() != call.epoch;
        if is_further && Ticket(control.agreed.peek()).epoch() != call.epoch {
            return Err(match control.call.has_failed(call.epoch) {
                true => Fault::PeerFailed { rank },
                false => Fault::Mismatch { rank, peer: control.call.current() },
            });
        }
        match control.has_cells(depth) {
            None => Err(Fault::Mismatch { rank, peer: control.call.current() }),
            known => Ok(known),
        }
    }

    /// Verifies that `rank` took part in `call`, where its flag already shows a later call. If it took part, its data
    /// are still there, since it can't have claimed the slot again: only barriers publish without a claim, and their
    /// waits are for no data.
    #[cold]
    fn verify_late(&self, call: &Entered, rank: NodeRank, ticket: Ticket) -> Result<(), Fault> {
        let (word, theirs) = (self.last_claim(rank, ticket).word(), &self.control(rank).call);
        let is_barrier = call.collective == Collective::Barrier;
        // A barrier has no arguments that could be rejected, so a rank fails one only where the program is erroneous. A
        // failure that is too long ago to be known may end well then.
        let has_failed = if is_barrier { theirs.has_failed_lately(call.epoch) } else { theirs.has_failed(call.epoch) };
        if has_failed {
            Err(Fault::PeerFailed { rank })
        } else if !is_barrier && word != call.descriptor.word() {
            Err(self.mismatch(call, rank, word))
        } else {
            Ok(())
        }
    }

    /// The mismatch with `rank`, which wrote `word` in its call. It may have gone on to another call meanwhile.
    #[cold]
    fn mismatch(&self, call: &Entered, rank: NodeRank, word: u64) -> Fault {
        let peer = self.control(rank).call.current();
        let is_this_call = peer.epoch != call.epoch && call.descriptor.contradicts(word);
        Fault::Mismatch { rank, peer: if is_this_call { PeerCall::of_word(call.epoch, word) } else { peer } }
    }

    /// Why the awaited peer will never do what this rank waits for in `call`, as far as is known.
    fn trouble(&self, call: &Entered, awaited: Awaited) -> Option<Fault> {
        let rank = self.awaited_peer(awaited)?;
        let theirs = &self.control(rank).call;
        if theirs.contradicts(call.epoch, call.descriptor, call.bytes) {
            return Some(Fault::Mismatch { rank, peer: theirs.current() });
        }
        let has_left = theirs.has_left(call.epoch);
        let has_failed = matches!(awaited, Awaited::Flag { .. } | Awaited::Post { .. } | Awaited::Cells { .. })
            && theirs.has_failed(call.epoch);
        // What it did before it left or failed is visible by now, and may be all that this rank waits for.
        if !(has_left || has_failed) || self.has_come(awaited, rank) {
            return None;
        }
        Some(match has_failed {
            true => Fault::PeerFailed { rank },
            false => Fault::Mismatch { rank, peer: theirs.current() },
        })
    }
}
