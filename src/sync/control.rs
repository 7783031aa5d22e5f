//! What a rank tells its peers besides the flags of its slots.

use super::atomic::{AtomicU32, AtomicU64, Ordering, Pair, Side, acquire, fence, release};
use super::{Descriptor, Event, Flag, PeerCall};
use crate::types::{Bytes, Epoch, Ticket};
use std::mem::offset_of;
use std::ops::Range;

/// What a rank tells its peers besides the flags of its slots, on cache lines of its own.
///
/// Zeroed memory is valid. Writer: the rank. Readers: all ranks that map it.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Control {
    /// All tickets up to this one are released: the rank reads no slot of any of them again.
    pub released: Flag,
    /// The last call for which the rank has told, in `cells`, what it could reserve.
    pub joined: Flag,
    /// The last call in which the rank has found what all ranks told there. Published before the rank joins another
    /// call.
    pub agreed: Flag,
    /// Bytes of each of the rank's cells. Lower half: how many the rank has reserved. Upper half: how many it could not
    /// reserve, or zero if it never failed.
    cells: AtomicU64,
    /// The call that the rank is in.
    pub call: CallLine,
    event: EventLine,
    evidence: EvidenceLine,
}

/// What trials have shown this rank, for ranks that decide by what all ranks have found. These are hints.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct EvidenceLine {
    /// By subject: a [`Finding`].
    of: [AtomicU32; Control::SUBJECTS],
}

/// The event, which only ranks that share cores use. It has a line of its own, since sleepers write it too.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct EventLine {
    event: Event,
}

/// What trials have shown one rank, or several ranks together: the evidence for something less the evidence against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// From trials that are over.
    pub evidence: i32,
    /// From the first half of the trial under way.
    pub verdict: i32,
}

impl Finding {
    /// The sum of both findings.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { evidence: self.evidence + other.evidence, verdict: self.verdict + other.verdict }
    }

    /// Packs the finding of one rank: its numbers are those of a few trials, so each fits 16 bits.
    fn pack(self) -> u32 {
        let [evidence, verdict] = [self.evidence, self.verdict].map(|number| number as i16);
        u32::from(evidence.cast_unsigned()) | u32::from(verdict.cast_unsigned()) << 16
    }

    fn unpack(packed: u32) -> Self {
        let [evidence, verdict] = [packed as u16, (packed >> 16) as u16].map(|half| i32::from(half.cast_signed()));
        Self { evidence, verdict }
    }
}

impl Control {
    /// How many subjects findings may have: as many as the line holds.
    pub const SUBJECTS: usize = 32;

    /// The bytes of the event's line within a `Control`.
    pub const EVENT: Range<usize> = offset_of!(Self, event)..offset_of!(Self, event) + size_of::<EventLine>();

    /// Tells peers what this rank has found about `subject`.
    pub fn tell_finding(&self, subject: usize, finding: Finding) {
        self.evidence.of[subject].store(finding.pack(), Ordering::Relaxed);
    }

    /// What the rank has told about `subject`; no evidence either way if it has told nothing.
    pub fn finding(&self, subject: usize) -> Finding {
        Finding::unpack(self.evidence.of[subject].load(Ordering::Relaxed))
    }

    /// Tells peers whether this rank could reserve `depth` bytes of each of its cells. What it once told about a depth
    /// stays.
    pub fn tell_of_cells(&self, depth: Bytes, is_reserved: bool) {
        // Relaxed, and not one atomic update: only this rank writes the word, and it publishes `joined` afterwards.
        let [reserved, refused] = self.told_of_cells();
        let depth = depth.0 as u64;
        let [reserved, refused] = match is_reserved {
            true => [reserved.max(depth), refused],
            false => [reserved, if refused == 0 { depth } else { refused.min(depth) }],
        };
        debug_assert!(reserved <= u64::from(u32::MAX) && (refused == 0 || reserved < refused));
        self.cells.store(reserved | refused << 32, Ordering::Relaxed);
    }

    /// Whether the rank could reserve `depth` bytes of each of its cells; `None` if it has not tried. Peers call this
    /// once they have reached `joined`.
    pub fn has_cells(&self, depth: Bytes) -> Option<bool> {
        let ([reserved, refused], depth) = (self.told_of_cells(), depth.0 as u64);
        if depth <= reserved { Some(true) } else { (refused != 0 && refused <= depth).then_some(false) }
    }

    fn told_of_cells(&self) -> [u64; 2] {
        let cells = self.cells.load(Ordering::Relaxed);
        [cells & u64::from(u32::MAX), cells >> 32]
    }

    /// The event that this rank announces with every flag and release where ranks share cores.
    #[inline]
    pub fn event(&self) -> &Event {
        &self.event.event
    }

    /// Whether the rank is in a call of this communicator; a hint. If not, the rank computes, or is in a call of
    /// another communicator.
    pub fn is_in_call(&self) -> bool {
        let entered = self.call.entered();
        entered > Epoch(0) && self.released.peek() < Ticket::last_of(entered).0
    }

    /// Tells peers that this rank takes no part in `epoch`: its arguments were rejected, or a peer's were. Peers that
    /// depend on this rank fail too; the others end the call. Later calls are not affected.
    pub fn fail(&self, epoch: Epoch) {
        self.call.fail(epoch);
        self.released.publish(Ticket::last_of(epoch));
        // The fence in `announce` pairs with the acquire in `has_failed_meanwhile` too: what the program writes from
        // here on comes after the mark that `CallLine::fail` has set.
        self.event().announce();
    }
}

/// The call that a rank is in, for diagnosis, and the last calls that it could not take part in.
///
/// Zeroed memory is a valid line. Writer: one rank, with growing epochs. Readers: all ranks that map it.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct CallLine {
    /// The epoch of the call, with [`CallLine::BUSY`] set while `what` and `bytes` change.
    epoch: AtomicU64,
    what: AtomicU64,
    bytes: AtomicU64,
    /// How many runs of failed calls there were so far.
    runs: AtomicU64,
    /// The last epoch of the latest run whose entry was used again.
    forgotten: AtomicU64,
    /// The last runs, each as a packed [`Run`].
    failed: [AtomicU64; CallLine::RUNS],
}

/// A run of failed calls with consecutive epochs.
#[derive(Clone, Copy)]
struct Run {
    first: u64,
    /// How many calls follow the first.
    more: u64,
}

impl Run {
    /// The largest `more`: a longer sequence of failed calls is kept as several runs.
    const MOST: u64 = Ticket::STEPS - 1;

    /// Packs the run as a ticket, with `first` as its epoch and `more` as its step.
    fn pack(self) -> u64 {
        Ticket::new(Epoch(self.first), self.more).0
    }

    fn unpack(word: u64) -> Self {
        Self { first: Ticket(word).epoch().0, more: Ticket(word).step() }
    }

    fn last(self) -> u64 {
        self.first + self.more
    }

    /// The run extended by `epoch`, if `epoch` comes next and the run is not full.
    fn and(self, epoch: u64) -> Option<Self> {
        (self.first > 0 && self.last() + 1 == epoch && self.more < Self::MOST)
            .then_some(Self { more: self.more + 1, ..self })
    }

    fn has(self, epoch: u64) -> bool {
        (self.first..=self.last()).contains(&epoch)
    }
}

impl CallLine {
    const RUNS: usize = 3;
    const BUSY: u64 = 1 << 63;

    /// Tells peers which call this rank is in.
    #[inline]
    pub fn enter(&self, epoch: Epoch, descriptor: Descriptor, bytes: Bytes) {
        self.epoch.store(epoch.0 | Self::BUSY, Ordering::Relaxed);
        // Pairs with the acquire in `contradicts`.
        fence(Pair::Busy, Side::Release);
        self.what.store(descriptor.what(), Ordering::Relaxed);
        self.bytes.store(bytes.0 as u64, Ordering::Relaxed);
        // Pairs with the acquires in `current`, `contradicts` and `has_left`.
        self.epoch.store(epoch.0, release(Pair::Call));
    }

    /// The epoch of the call that this line's rank entered last, or is entering; for hints.
    fn entered(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed) & !Self::BUSY)
    }

    /// The algorithm of the call that its rank entered last, as an index in the registry.
    pub fn row(&self) -> usize {
        PeerCall::row(self.what.load(Ordering::Relaxed))
    }

    /// The call that its rank entered last. While the rank enters a call, part of the result may belong to the call
    /// before.
    pub fn current(&self) -> PeerCall {
        // Pairs with the release in `enter`.
        let epoch = Epoch(self.epoch.load(acquire(Pair::Call)) & !Self::BUSY);
        PeerCall::new(epoch, self.what.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Whether its rank is in `epoch`, but in a call other than `descriptor`, or of another length than `bytes`.
    pub fn contradicts(&self, epoch: Epoch, descriptor: Descriptor, bytes: Bytes) -> bool {
        // Pairs with the release in `enter`.
        if self.epoch.load(acquire(Pair::Call)) != epoch.0 {
            return false;
        }
        let differs = self.what.load(Ordering::Relaxed) != descriptor.what()
            || self.bytes.load(Ordering::Relaxed) != bytes.0 as u64;
        // The rank may have begun to enter its next call meanwhile. Pairs with the release in `enter`.
        fence(Pair::Busy, Side::Acquire);
        differs && self.epoch.load(Ordering::Relaxed) == epoch.0
    }

    /// Whether its rank has entered a call after `epoch`. If so, everything that the rank did up to `epoch` is visible
    /// to the caller.
    pub fn has_left(&self, epoch: Epoch) -> bool {
        // Pairs with the release in `enter`.
        let current = self.epoch.load(acquire(Pair::Call));
        current & Self::BUSY == 0 && current > epoch.0
    }

    /// Marks `epoch` as one that this rank takes no part in.
    pub(super) fn fail(&self, epoch: Epoch) {
        let runs = self.runs.load(Ordering::Relaxed);
        let entry = |run: u64| &self.failed[run as usize % Self::RUNS];
        let latest = entry(runs.wrapping_sub(1));
        if runs > 0
            && let Some(longer) = Run::unpack(latest.load(Ordering::Relaxed)).and(epoch.0)
        {
            // Pairs with the acquire in `remembers`.
            latest.store(longer.pack(), release(Pair::Forgotten));
            return;
        }
        let entry = entry(runs);
        self.forgotten.store(Run::unpack(entry.load(Ordering::Relaxed)).last(), Ordering::Relaxed);
        // These pair with the acquires in `remembers` and `has_failed_any`.
        entry.store(Run { first: epoch.0, more: 0 }.pack(), release(Pair::Forgotten));
        self.runs.store(runs + 1, release(Pair::Failed));
    }

    /// Whether its rank took no part in `epoch`; the rank is then beyond `epoch`, or will not publish in it. Of runs of
    /// failures before the last three the line remembers only where the latest ended, and all calls up to there count
    /// as failed: a peer so far behind fails rather than trust the rank's data.
    pub fn has_failed(&self, epoch: Epoch) -> bool {
        // A reader that misses the epoch because its entry was used again finds it among the forgotten.
        self.has_failed_any() && (self.remembers(epoch) || self.forgotten.load(Ordering::Relaxed) >= epoch.0)
    }

    /// Whether its rank took no part in `epoch`, as the last three runs tell; false for older failures. This is for
    /// calls that no rank of a correct program fails.
    pub fn has_failed_lately(&self, epoch: Epoch) -> bool {
        self.has_failed_any() && self.remembers(epoch)
    }

    fn has_failed_any(&self) -> bool {
        // Pairs with the release in `fail`.
        self.runs.load(acquire(Pair::Failed)) > 0
    }

    fn remembers(&self, epoch: Epoch) -> bool {
        // Pairs with the releases in `fail`.
        self.failed.iter().any(|run| Run::unpack(run.load(acquire(Pair::Forgotten))).has(epoch.0))
    }
}

impl CallLine {
    /// Whether its rank may have failed `epoch` before the caller had read the memory that the rank exposed in it. The
    /// caller asks after the read: once a rank has ended a call early, its memory is the program's again.
    pub fn has_failed_meanwhile(&self, epoch: Epoch) -> bool {
        // Pairs with the fence in `announce`, in `Control::fail`.
        fence(Pair::Exposed, Side::Acquire);
        self.has_failed(epoch)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::Collective;
    use std::sync::atomic::AtomicBool;

    fn descriptor(epoch: u64, bytes: usize) -> Descriptor {
        Descriptor::new(Epoch(epoch), Collective::Reduce, 3, 5, Bytes(bytes))
    }

    #[test]
    fn a_peer_that_enters_its_next_call_contradicts_nobody() {
        let (line, is_over) = (CallLine::default(), AtomicBool::new(false));
        let mut contradictions = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut epoch = 0;
                while !is_over.load(Ordering::Relaxed) {
                    epoch += 1;
                    line.enter(Epoch(epoch), descriptor(epoch, epoch as usize), Bytes(epoch as usize));
                }
            });
            let contradicts = |_: &u32| {
                let Epoch(epoch) = line.current().epoch;
                let bytes = epoch as usize;
                epoch > 0 && line.contradicts(Epoch(epoch), descriptor(epoch, bytes), Bytes(bytes))
            };
            contradictions = (0..1_000_000).filter(contradicts).count();
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(contradictions, 0);
    }

    #[test]
    fn what_was_said_of_a_depth_of_cells_stays() {
        let control = Control::default();
        let has = |depths: [usize; 4]| depths.map(|depth| control.has_cells(Bytes(depth)));
        assert_eq!(has([1, 64, 128, 256]), [None; 4]);
        for (depth, is_reserved, expected) in [
            (64, true, [Some(true), Some(true), None, None]),
            (32, true, [Some(true), Some(true), None, None]),
            (256, false, [Some(true), Some(true), None, Some(false)]),
            (512, false, [Some(true), Some(true), None, Some(false)]),
            (128, true, [Some(true), Some(true), Some(true), Some(false)]),
        ] {
            control.tell_of_cells(Bytes(depth), is_reserved);
            assert_eq!(has([1, 64, 128, 256]), expected);
        }
    }

    #[test]
    fn a_rank_is_in_a_call_until_it_has_released_all_of_it() {
        let control = Control::default();
        assert!(!control.is_in_call());
        control.call.enter(Epoch(3), descriptor(3, 8), Bytes(8));
        assert!(control.is_in_call());
        control.released.publish(Ticket::new(Epoch(3), 0));
        assert!(control.is_in_call());
        control.released.publish(Ticket::last_of(Epoch(3)));
        assert!(!control.is_in_call());
        control.call.enter(Epoch(5), descriptor(5, 8), Bytes(8));
        assert!(control.is_in_call());
        control.fail(Epoch(5));
        assert!(!control.is_in_call());
    }

    #[test]
    fn failures_are_remembered_and_forgotten_ones_count_as_failed() {
        let control = Control::default();
        assert!(!control.call.has_failed(Epoch(1)));
        [2, 4, 6, 8].into_iter().for_each(|epoch| control.fail(Epoch(epoch)));
        let has_failed = |epoch| control.call.has_failed(Epoch(epoch));
        assert!([2, 4, 6, 8].into_iter().all(has_failed));
        assert!(has_failed(1), "too long ago to be known");
        assert!(![3, 5, 7, 9].into_iter().any(has_failed));
        assert!(!control.call.has_failed_lately(Epoch(1)) && control.call.has_failed_lately(Epoch(4)));
        assert_eq!(control.released.peek(), Ticket::last_of(Epoch(8)).0);
    }

    #[test]
    fn failures_one_after_the_other_take_one_entry() {
        let control = Control::default();
        (10..1000).for_each(|epoch| control.fail(Epoch(epoch)));
        control.fail(Epoch(1001));
        let has_failed = |epoch| control.call.has_failed(Epoch(epoch));
        assert!((10..1000).all(has_failed) && has_failed(1001));
        assert!(![1, 9, 1000, 1002].into_iter().any(has_failed));
        let full = Run { first: 3, more: Run::MOST };
        assert!(Run::unpack(full.pack()).has(full.last()) && full.and(full.last() + 1).is_none());
    }
}
