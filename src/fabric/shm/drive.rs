//! Driving a call to its end: polling, backing off, keeping the MPI library's traffic moving, noticing trouble.

use super::call::Call;
use super::hopes::looks_at_work;
use crate::fabric::words::{Awaited, Entered, Fault, Words};
use crate::sync::PeerCall;
use crate::types::{Bytes, Collective, CommRank, Epoch, NodeRank, Ticket};
use std::future::Future;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

/// How ranks wait; all but `patience` is the same on all ranks of a job.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// On some node of the job ranks outnumber the cores that they may run on.
    pub is_oversubscribed: bool,
    /// After how long a wait is reported, and again each time that long.
    pub stall: Option<Duration>,
    /// Lets the MPI library make progress on the program's own traffic. Cheap, never blocks.
    pub progress: fn(),
    /// Does so in a wait at that time, where ranks share cores, if it is time for that or the wait must.
    pub keep_pace: fn(Instant, bool),
    /// Where ranks share cores, how long a wait yields before it sleeps.
    pub patience: Duration,
    /// Reports a line.
    pub report: fn(&Stall),
}

impl Waiting {
    /// A wait this long may be for a rank whose core does something else. Where ranks share cores nobody sleeps sooner: yields are over at
    /// once where nobody else wants the core, and who sleeps is late for those who wait for it, which would sleep in their turn.
    pub const PATIENCE: Duration = Duration::from_micros(50);

    /// How often a wait looks once more before the first thought of anything else.
    #[inline]
    pub(super) fn looks(&self) -> u32 {
        const LOOKS: u32 = 1000;
        /// The awaited rank may need this core, and where it has one each look takes the line from it. More of them are for peers at work
        /// ([`looks_at_work`]).
        const LOOKS_OVERSUBSCRIBED: u32 = 1;
        if self.is_oversubscribed { LOOKS_OVERSUBSCRIBED } else { LOOKS }
    }
}

/// A wait that has lasted.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// In which collective.
    pub collective: Collective,
    /// Its ordinal on the communicator.
    pub epoch: Epoch,
    /// How long so far.
    pub waited: Duration,
    /// What for.
    pub awaited: Awaited,
    /// The awaited peer, by its rank in the communicator, and what it says it does.
    pub peer: Option<(CommRank, PeerCall)>,
}

/// Polls between two calls into the MPI library.
const POLLS_PER_PROGRESS: u32 = 64;
/// Where ranks share cores, yields of the core before a sleep, at least: usually, and in calls whose message or block has at least
/// [`LONG`] bytes: peers work on their pieces for longer than a few yields take. A rank that sleeps wakes tens of microseconds late, but leaves the
/// core to the others.
const YIELDS: [u32; 2] = [8, 32];
/// Bytes of the message or block of a long call.
const LONG: Bytes = Bytes(32 << 10);
/// Yields between two polls.
const YIELDS_PER_POLL: u32 = 4;
/// The longest sleep. The MPI library makes no progress meanwhile: a message of 64 MiB needs about 150 probes.
const NAP: Duration = Duration::from_micros(100);

/// How long one wait has lasted.
struct Patience {
    awaited: Awaited,
    /// From its second pause on, where ranks share cores: most waits end with the first, and a clock takes 20 to 40 ns.
    since: Option<Instant>,
    reported: Duration,
    /// Pauses of a poll or a yield each.
    pauses: u32,
}

impl Call<'_> {
    /// Runs a call to its end.
    ///
    /// # Errors
    /// If a peer failed, then this rank has failed the call too, as its peers can see, or contradicts.
    #[inline]
    pub fn drive(&self, call: impl Future<Output = ()>) -> Result<(), Fault> {
        let mut call = pin!(call);
        let mut task = TaskContext::from_waker(Waker::noop());
        let mut patience = None;
        // One place polls, so that the compiler can make one function of this and the algorithm.
        while call.as_mut().poll(&mut task) == Poll::Pending {
            if !self.persevere(&mut patience) {
                return self.give_up();
            }
        }
        if self.has_fault() { self.give_up() } else { self.end() }
    }

    /// Returns when `look` finds what it looks for.
    ///
    /// # Errors
    /// If a peer failed or contradicts, as `look` or this rank finds out.
    pub(super) fn outlast(&self, awaited: Awaited, look: &dyn Fn() -> Result<bool, Fault>) -> Result<(), Fault> {
        self.note(awaited);
        let mut patience = None;
        while !look()? {
            if !self.persevere(&mut patience)
                && let Some(fault) = self.fault.get()
            {
                return Err(*fault);
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Fault> {
        self.context().release(Ticket::last_of(self.entered.epoch));
        self.announce();
        Ok(())
    }

    #[cold]
    fn give_up(&self) -> Result<(), Fault> {
        let Some(&fault) = self.fault.get() else { return self.end() };
        self.context().leave_with(self.entered.epoch, fault);
        self.announce();
        Err(fault)
    }

    /// After a poll in vain: waits a little, and says whether there is hope.
    #[cold]
    #[inline(never)]
    fn persevere(&self, patience: &mut Option<Patience>) -> bool {
        // Trouble is in lines of the peer's, which take as long to come as many a wait: not before the first pause of all.
        if self.has_fault() || patience.is_some() && self.notice_trouble() {
            return false;
        }
        let awaited = self.awaited();
        let is_first = patience.is_none();
        let patience = match patience {
            Some(patience) if patience.awaited == awaited => patience,
            other => other.insert(Patience { awaited, since: None, reported: Duration::ZERO, pauses: 0 }),
        };
        if is_first && self.waiting.is_oversubscribed {
            self.yield_once(awaited);
            self.note_pause();
            patience.pauses = 1;
            return true;
        }
        let now = Instant::now();
        let waited = now - *patience.since.get_or_insert(now);
        let pauses = match self.waiting.is_oversubscribed {
            true => {
                self.note_pause();
                self.yield_core(awaited, patience.pauses, now, waited)
            }
            false => self.pause(patience.pauses, waited),
        };
        patience.pauses = patience.pauses.wrapping_add(pauses);
        if let Some(stall) = self.waiting.stall
            && waited >= patience.reported + stall
        {
            patience.reported = waited;
            self.report_stall(waited);
        }
        true
    }

    /// Where each rank has a core. -> 1, the pause
    fn pause(&self, before: u32, waited: Duration) -> u32 {
        std::hint::spin_loop();
        if (before + 1).is_multiple_of(POLLS_PER_PROGRESS) {
            (self.waiting.progress)();
            if waited > Waiting::PATIENCE {
                std::thread::yield_now();
            }
        }
        1
    }

    /// Where ranks share cores: the first pause of a call, with which most waits end. Of [`Self::yield_core`] what these need.
    fn yield_once(&self, awaited: Awaited) {
        let context = self.context();
        let has_come = !self.decide_to_give_way(awaited)
            && context.awaited_peer(awaited).is_some_and(|rank| self.has_come_from_work(awaited, rank));
        if !has_come {
            context.control(context.rank()).leave_core(std::thread::yield_now);
        }
    }

    /// Whether this rank gives its core away without a look at whom it awaits, as others of it may need what it has published.
    fn decide_to_give_way(&self, awaited: Awaited) -> bool {
        let has_root = matches!(self.entered.collective, Collective::Bcast | Collective::Reduce | Collective::Scatter);
        has_root
            && matches!(awaited, Awaited::Flag { .. })
            && self.context().givers.decide_to_give_way(self.entered.epoch, |epoch| self.has_published(epoch))
    }

    fn note_pause(&self) {
        self.context().givers.note_pause(self.entered.epoch, |epoch| self.has_published(epoch));
    }

    /// Whether this rank has published something in that call, as far as it has claimed lines for its first ticket.
    fn has_published(&self, epoch: Epoch) -> bool {
        self.context().claims().has_claimed(Ticket::new(epoch, 0))
    }

    /// Where ranks share cores, after so many pauses of this wait: a few more, of which this is the number.
    ///
    /// Between two yields it looks for nothing but what the peer was to do, and whether that is at work: all else that a poll
    /// looks at are lines that peers write, which take as long as the yield.
    fn yield_core(&self, awaited: Awaited, before: u32, now: Instant, waited: Duration) -> u32 {
        let context = self.context();
        let peer = context.awaited_peer(awaited);
        if let Some(rank) = peer
            && self.has_come_from_work(awaited, rank)
        {
            return 1;
        }
        let may_sleep = before >= YIELDS[usize::from(self.entered.bytes >= LONG)] && waited >= self.waiting.patience;
        let mut yields = 0;
        context.control(context.rank()).leave_core(|| {
            // Before a sleep in any case. Not more often: a probe may yield itself (Open MPI), or sleep (MPICH 5, throttled), and others wait
            // for this rank meanwhile.
            (self.waiting.keep_pace)(now, may_sleep);
            let Some(rank) = peer else {
                return std::thread::yield_now();
            };
            let has_come = || context.has_come(awaited, rank);
            if may_sleep {
                let has_come_at_last = || {
                    // The nudge of a peer that does not see this sleeper yet comes a moment after what the peer did: a yield takes
                    // longer. What is missed nevertheless is found after the nap.
                    std::thread::yield_now();
                    has_come()
                };
                return context.event(rank).sleep_unless(has_come_at_last, NAP);
            }
            while !has_come() && (yields == 0 || context.control(rank).is_away()) {
                std::thread::yield_now();
                yields += 1;
                if (before + yields).is_multiple_of(YIELDS_PER_POLL) {
                    break;
                }
            }
        });
        yields.max(1)
    }

    /// Looks for what `rank` is to do while it has a core of its own, as far as can be seen here and there is hope: to give this rank's core
    /// away and get it back takes longer than most of what peers do. Whether it came.
    fn has_come_from_work(&self, awaited: Awaited, rank: NodeRank) -> bool {
        let (context, peer) = (self.context(), self.context().control(rank));
        let hopes = &context.hopes;
        // To see where the peer is takes lines from it: not where nothing hangs on that.
        let is_in_call = hopes.are_dimmed() && peer.is_in_call();
        let looks = if is_in_call || hopes.take_chance() { looks_at_work() } else { 1 };
        for look in 0..looks {
            if context.has_come(awaited, rank) {
                if look > 0 && !is_in_call {
                    hopes.rise();
                }
                return true;
            }
            if peer.is_away() {
                return false;
            }
            std::hint::spin_loop();
        }
        if looks > 1 && !peer.is_in_call() {
            hopes.sink();
        }
        false
    }

    /// Whether the awaited peer will never do what this rank waits for; then the fault is set.
    fn notice_trouble(&self) -> bool {
        match self.context().trouble(&self.entered, self.awaited()) {
            Some(fault) => {
                self.set_fault(fault);
                true
            }
            None => false,
        }
    }

    fn report_stall(&self, waited: Duration) {
        let awaited = self.awaited();
        let context = self.context();
        let peer = context.awaited_peer(awaited);
        let peer = peer.map(|rank| (context.comm_rank(rank), context.control(rank).call.current()));
        let Entered { collective, epoch, .. } = self.entered;
        (self.waiting.report)(&Stall { collective, epoch, waited, awaited, peer });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::coll::{Knobs, Plan};
    use crate::fabric::shm::context::tests::two_ranks;
    use crate::fabric::shm::{Buffers, Context, Direct, Ends};
    use crate::fabric::{Fabric, Line};
    use crate::sync::Descriptor;
    use crate::types::{Bytes, OperandOrder};
    use std::ptr::null_mut;
    use std::sync::Mutex;

    /// Of ranks that have their cores for themselves.
    pub(in super::super) const WAITING: Waiting = Waiting {
        is_oversubscribed: false,
        stall: None,
        progress: || {},
        keep_pace: |_, _| {},
        patience: Waiting::PATIENCE,
        report: |stall| panic!("{stall:?}"),
    };

    fn plan(epoch: u64) -> Plan {
        Plan {
            epoch: Epoch(epoch),
            bytes: Bytes(8),
            granule: Bytes(1),
            root: CommRank(0),
            order: OperandOrder::Any,
            knobs: Knobs::UNSET,
            scratch: Bytes::ZERO,
            reach: Bytes::ZERO,
        }
    }

    fn enter(context: &Context, epoch: u64) -> Call<'_> {
        enter_to_wait(context, &WAITING, epoch)
    }

    fn enter_to_wait<'a>(context: &'a Context, waiting: &'a Waiting, epoch: u64) -> Call<'a> {
        // SAFETY: these calls touch no buffers.
        unsafe { Call::enter(context, waiting, Collective::Reduce, 0, &plan(epoch), Buffers::NONE) }
    }

    /// Where ranks share cores a wait asks the library before it yields if it is time for that, and in any case before it sleeps, which it
    /// does not before its patience is over.
    #[test]
    fn waits_ask_before_they_sleep() {
        static ASKED: Mutex<Vec<(Instant, bool)>> = Mutex::new(Vec::new());
        static SHARING: Waiting = Waiting {
            is_oversubscribed: true,
            keep_pace: |now, must| ASKED.lock().unwrap().push((now, must)),
            patience: Duration::from_millis(2),
            ..WAITING
        };
        let [me, peer] = two_ranks();
        let call = enter_to_wait(&me, &SHARING, 1);
        let ticket = Ticket::new(Epoch(1), 0);
        let started = Instant::now();
        let awaited = Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket };
        call.outlast(awaited, &|| {
            // On a busy machine each yield may take milliseconds.
            let has_slept = || ASKED.lock().unwrap().iter().any(|(_, must)| *must);
            let waited = started.elapsed();
            let has_come = waited > Duration::from_millis(10) && (has_slept() || waited > Duration::from_secs(10));
            if has_come {
                drop(enter(&peer, 1));
            }
            Ok(has_come)
        })
        .unwrap();
        let asked = ASKED.lock().unwrap();
        let first = asked.iter().position(|(_, must)| *must).expect("it slept");
        assert!(first >= YIELDS[0] as usize / YIELDS_PER_POLL as usize, "{first} yields before the first sleep");
        assert!(asked[first].0 - started >= SHARING.patience, "{:?}", asked[first].0 - started);
        assert!(asked[first..].iter().all(|(_, must)| *must));
    }

    /// Rank 0 finds nothing; then rank 1 publishes, `then` goes on; what does rank 0 think of it?
    fn is_trouble_after(then: impl FnOnce(&Context)) -> bool {
        let [me, peer] = two_ranks();
        let ticket = Ticket::new(Epoch(1), 0);
        let mut task = TaskContext::from_waker(Waker::noop());
        let call = enter(&me, 1);
        assert!(pin!(call.wait(NodeRank(1), Line::Up, ticket)).poll(&mut task).is_pending());
        let theirs = enter(&peer, 1);
        assert!(pin!(theirs.publish(Line::Up, ticket)).poll(&mut task).is_ready());
        then(&peer);
        call.notice_trouble()
    }

    /// Who is in a call here is looked at as long as it has its core, others as long as there is hope.
    #[test]
    fn looks_at_peers_elsewhere_end_when_they_were_in_vain() {
        let [me, _peer] = two_ranks();
        let call = enter(&me, 1);
        let awaited = Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket: Ticket::new(Epoch(1), 0) };
        assert!(!me.hopes.are_dimmed());
        (0..40).for_each(|_| assert!(!call.has_come_from_work(awaited, NodeRank(1))));
        assert!(!me.hopes.take_chance(), "in no call: in vain");
        let [me, peer] = two_ranks();
        let (call, _theirs) = (enter(&me, 1), enter(&peer, 1));
        (0..40).for_each(|_| assert!(!call.has_come_from_work(awaited, NodeRank(1))));
        assert!(!me.hopes.are_dimmed(), "in the call: no matter");
    }

    #[test]
    fn waits_for_a_peer_that_has_gone_on_end() {
        for is_oversubscribed in [false, true] {
            let waiting = Waiting { is_oversubscribed, ..WAITING };
            let [me, peer] = two_ranks();
            let ticket = Ticket::new(Epoch(1), 0);
            drop(enter(&peer, 2));
            let call = enter_to_wait(&me, &waiting, 1);
            let of_polls = call.drive(call.wait(NodeRank(1), Line::Up, ticket));
            assert!(matches!(of_polls, Err(Fault::Mismatch { .. })), "{of_polls:?}");
            drop(call);
            let call = enter_to_wait(&me, &waiting, 1);
            let awaited = Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket };
            let looks = std::cell::Cell::new(0);
            let of_looks = call.outlast(awaited, &|| {
                looks.set(looks.get() + 1);
                assert!(looks.get() < 1000, "nobody asks for trouble");
                Ok(false)
            });
            assert!(matches!(of_looks, Err(Fault::Mismatch { .. })), "{of_looks:?}");
        }
    }

    #[test]
    fn what_was_published_before_failures_counts() {
        assert!(!is_trouble_after(|_| {}));
        assert!(!is_trouble_after(|peer| peer.fail(Epoch(1))));
        assert!(!is_trouble_after(|peer| (2..=9).for_each(|epoch| peer.fail(Epoch(epoch)))));
        assert!(!is_trouble_after(|peer| drop(enter(peer, 2))));
    }

    #[test]
    fn calls_a_ring_apart_are_told_apart() {
        let [me, peer] = two_ranks();
        let [first, next, last] = [1, 257, 513].map(|epoch| Ticket::new(Epoch(epoch), 0));
        let flag = me.line(NodeRank(1), Line::Up, first);
        let publish = |collective, ticket: Ticket| {
            let descriptor = Descriptor::new(ticket.epoch(), collective, 0, 0, Bytes(8));
            let needs_claim = collective != Collective::Barrier;
            assert!(!needs_claim || peer.claim_lines(ticket, descriptor));
            peer.line(NodeRank(1), Line::Up, ticket).publish(ticket, descriptor.word());
        };
        publish(Collective::Reduce, first);
        let found = flag.reached(first);
        publish(Collective::Barrier, next);
        // Between its look at the flag and that at the descriptor the peer has come round: it is no contradiction.
        let verified = me.verify(&enter(&me, 1).entered, NodeRank(1), flag, first, found.unwrap());
        assert_eq!(verified, Ok(()));
        // The peer took its line in the first call, but not in the next one like it.
        publish(Collective::Barrier, last);
        let verified = me.verify(&enter(&me, 257).entered, NodeRank(1), flag, next, last.0);
        assert!(matches!(verified, Err(Fault::Mismatch { .. })));
    }

    /// Peers that learnt of it would end the job themselves, before the one that knows why has told.
    #[test]
    fn peers_do_not_learn_of_a_mismatch_but_of_failures() {
        let has_failed_after = |then: fn(&Context)| {
            let [me, peer] = two_ranks();
            then(&peer);
            let (call, ticket) = (enter(&me, 1), Ticket::new(Epoch(1), 0));
            let fault = call.drive(call.wait(NodeRank(1), Line::Up, ticket)).unwrap_err();
            let ends = Ends { send: null_mut(), recv: null_mut(), is_in_place: false };
            let again = (&call.entered, Epoch(2), CommRank(0));
            // SAFETY: this call touches no buffers.
            let plain = unsafe { Direct::<true>::enter(&me, &WAITING, again, Bytes(1), ends, None, false) };
            assert_eq!(plain.finish(Err(fault)), Err(fault));
            (
                matches!(fault, Fault::Mismatch { .. }),
                [1, 2].map(|epoch| peer.control(NodeRank(0)).call.has_failed(Epoch(epoch))),
            )
        };
        assert_eq!(has_failed_after(|peer| drop(enter(peer, 2))), (true, [false; 2]));
        assert_eq!(has_failed_after(|peer| peer.fail(Epoch(1))), (false, [true; 2]));
    }

    #[test]
    fn who_has_gone_on_or_failed_without_publishing_is_noticed() {
        let fault_after = |then: fn(&Context)| {
            let [me, peer] = two_ranks();
            let mut task = TaskContext::from_waker(Waker::noop());
            let call = enter(&me, 1);
            assert!(pin!(call.wait(NodeRank(1), Line::Up, Ticket::new(Epoch(1), 0))).poll(&mut task).is_pending());
            then(&peer);
            call.notice_trouble().then(|| call.fault.get().copied()).flatten()
        };
        let failed = Some(Fault::PeerFailed { rank: NodeRank(1) });
        assert_eq!(fault_after(|_| {}), None);
        assert_eq!(fault_after(|peer| drop(enter(peer, 1))), None);
        assert_eq!(fault_after(|peer| peer.fail(Epoch(1))), failed);
        assert_eq!(fault_after(|peer| (1..=9).for_each(|epoch| peer.fail(Epoch(epoch)))), failed);
        assert!(matches!(fault_after(|peer| drop(enter(peer, 2))), Some(Fault::Mismatch { .. })));
    }
}
