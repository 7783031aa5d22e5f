//! Driving a call to its end: polling, backing off, keeping the MPI library's traffic moving, noticing trouble.

use super::call::Call;
use super::clock;
use super::hopes::{Look, looks_at_work, pauses_in};
use super::pace::{Asking, Traffic};
use super::waiting_calls::Kind;
use super::yields::{Which, Yields};
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
    /// Does so in a wait at that time, as this says.
    pub keep_pace: fn(Instant, Asking),
    /// Whether the program may have such traffic. Cheap.
    pub traffic: fn() -> Traffic,
    /// Where ranks share cores, how long a wait yields before it sleeps.
    pub patience: Duration,
    /// Reports a line.
    pub report: fn(&Stall),
}

impl Waiting {
    /// Where ranks share cores nobody sleeps sooner, but where only a cgroup's quota is short ([`Self::patience`] is none then): yields are over at
    /// once where nobody else wants the core, and who sleeps is late for those who wait for it, which would sleep in their turn. Programs
    /// whose ranks compute for less between calls take up to a fifth longer otherwise (docs/PERFORMANCE.md, "Tried").
    pub const PATIENCE: Duration = Duration::from_millis(1);

    /// How often a wait looks once more before the first thought of anything else but the MPI library's traffic.
    #[inline]
    pub(super) fn looks(&self) -> u32 {
        const LOOKS: u32 = 1000;
        /// The awaited rank may need this core, and where it has one each look takes the line from it. More of them are for peers at work
        /// ([`looks_at_work`]).
        const LOOKS_OVERSUBSCRIBED: u32 = 1;
        if self.is_oversubscribed { LOOKS_OVERSUBSCRIBED } else { LOOKS }
    }

    /// How many looks a short call makes in its own code, before the rest of the wait goes on out of line ([`Call::outlast`]): most waits end with
    /// these.
    #[inline]
    pub(super) fn looks_in_line(&self) -> u32 {
        const IN_LINE: u32 = 16;
        self.looks().min(IN_LINE)
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

/// After how long a wait of a short call asks the MPI library, where each rank has a core, or after 100 pauses: about as long as the slowest takes to
/// answer while it is in the caches, so such a wait becomes at most twice as long.
const ASKS_AFTER: Duration = Duration::from_nanos(1300);
/// Polls between two calls into the MPI library, where a wait lasts.
const POLLS_PER_PROGRESS: u32 = 64;
/// Where ranks share cores, yields of the core before a sleep, at least: usually; and in calls whose message or block has at least [`LONG`] bytes,
/// as peers work on such pieces for longer than a few yields take. A rank that sleeps wakes tens of microseconds late, but leaves the core to the
/// others.
const YIELDS: [u32; 2] = [8, 32];
/// Bytes of the message or block of a long call.
const LONG: Bytes = Bytes(32 << 10);
/// Yields between two polls.
const YIELDS_PER_POLL: u32 = 4;
/// The longest sleep. The MPI library makes no progress meanwhile: a message of 64 MiB needs about 150 probes.
const NAP: Duration = Duration::from_micros(100);

/// How long one wait has lasted.
struct Wait {
    awaited: Awaited,
    /// From its second pause on, where ranks share cores: most waits end with the first, and a clock takes 20 to 40 ns.
    since: Option<Instant>,
    reported: Duration,
    /// Pauses of a poll or a yield each.
    pauses: u32,
    /// How long it had when it last asked the MPI library whatever the pace of that.
    asked: Duration,
    next_yield: Which,
}

impl Wait {
    fn of(awaited: Awaited) -> Self {
        let (reported, asked) = Default::default();
        Self { awaited, since: None, reported, pauses: 0, asked, next_yield: Which::First }
    }

    /// Whether this wait, in a call of so many bytes, has yielded often enough, and for long enough, to sleep from now on.
    fn may_sleep(&self, bytes: Bytes, patience: Duration, waited: Duration) -> bool {
        self.pauses >= YIELDS[usize::from(bytes >= LONG)] && waited >= patience
    }
}

impl Call<'_> {
    /// Runs a call to its end.
    ///
    /// # Errors
    /// If a peer contradicts, or has failed: then this rank has failed the call too, as its peers can see.
    #[inline]
    pub fn drive(&self, call: impl Future<Output = ()>) -> Result<(), Fault> {
        let mut call = pin!(call);
        let mut task = TaskContext::from_waker(Waker::noop());
        let mut wait = None;
        // One place polls, so that the compiler can make one function of this and the algorithm.
        while call.as_mut().poll(&mut task) == Poll::Pending {
            if !self.persevere(&mut wait) {
                return self.give_up();
            }
        }
        if self.has_fault() { self.give_up() } else { self.end() }
    }

    /// Returns when `look`, which has found nothing a few times, finds what it looks for.
    ///
    /// # Errors
    /// If a peer failed or contradicts, as `look` or this rank finds out.
    pub(super) fn outlast(&self, awaited: Awaited, look: &dyn Fn() -> Result<bool, Fault>) -> Result<(), Fault> {
        self.note(awaited);
        if !self.waiting.is_oversubscribed && self.comes_soon(look)? {
            return Ok(());
        }
        let mut wait = None;
        while !look()? {
            if !self.persevere(&mut wait)
                && let Some(fault) = self.fault.get()
            {
                return Err(*fault);
            }
        }
        Ok(())
    }

    /// Where each rank has a core: looks on for [`ASKS_AFTER`], asks the MPI library, if it is time for that, and looks on. Who waits has the time: at the end
    /// of a call, where it is asked else, that is time of all who wait for this rank next. Waits of calls that are futures take long anyway.
    /// Whether it came.
    fn comes_soon(&self, look: &dyn Fn() -> Result<bool, Fault>) -> Result<bool, Fault> {
        let comes_within = |looks| {
            for _ in 0..looks {
                std::hint::spin_loop();
                if look()? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        if comes_within(pauses_in(ASKS_AFTER))? {
            return Ok(true);
        }
        (self.waiting.keep_pace)(Instant::now(), Asking::WhenDue);
        comes_within(self.waiting.looks())
    }

    fn end(&self) -> Result<(), Fault> {
        let context = self.context();
        context.release(Ticket::last_of(self.entered.epoch));
        self.nudge_sleepers();
        context.note_leave(self.waiting);
        Ok(())
    }

    #[cold]
    fn give_up(&self) -> Result<(), Fault> {
        let Some(&fault) = self.fault.get() else { return self.end() };
        self.context().leave_with(self.entered.epoch, fault);
        self.context().loans.fail();
        self.nudge_sleepers();
        Err(fault)
    }

    /// After a poll in vain: waits a little, and says whether there is hope.
    #[cold]
    #[inline(never)]
    fn persevere(&self, wait: &mut Option<Wait>) -> bool {
        // Trouble is in lines of the peer's, which take as long to come as many a wait: not before the first pause of all.
        if self.has_fault() || wait.is_some() && self.notice_trouble() {
            return false;
        }
        let awaited = self.awaited();
        let is_first = wait.is_none();
        let wait = match wait {
            Some(wait) if wait.awaited == awaited => wait,
            other => other.insert(Wait::of(awaited)),
        };
        if is_first && self.waiting.is_oversubscribed {
            self.yield_once(awaited);
            wait.pauses = 1;
            return true;
        }
        let now = Instant::now();
        let waited = now - *wait.since.get_or_insert(now);
        let pauses = match self.waiting.is_oversubscribed {
            true => self.yield_core(wait, now, waited),
            false => {
                self.pause(wait, now, waited);
                1
            }
        };
        wait.pauses = wait.pauses.wrapping_add(pauses);
        if let Some(stall) = self.waiting.stall
            && waited >= wait.reported + stall
        {
            wait.reported = waited;
            self.report_stall(waited);
        }
        true
    }

    /// Where each rank has a core.
    fn pause(&self, wait: &mut Wait, now: Instant, waited: Duration) {
        std::hint::spin_loop();
        if wait.pauses.wrapping_add(1).is_multiple_of(POLLS_PER_PROGRESS) {
            (self.waiting.progress)();
            let yields = &self.context().yields;
            if waited >= Yields::SOON && waited >= yields.after(self.entered.epoch, || clock::at(now)) {
                let asked = Instant::now();
                std::thread::yield_now();
                let which = std::mem::replace(&mut wait.next_yield, Which::Later);
                yields.note(waited, asked.elapsed(), which);
            }
        }
    }

    /// Where ranks share cores: the first pause of a wait, with which most end. Of [`Self::yield_core`] what these need.
    fn yield_once(&self, awaited: Awaited) {
        let context = self.context();
        let has_come = !self.decide_to_give_way(awaited)
            && context.awaited_peer(awaited).is_some_and(|rank| self.has_come_from_work(awaited, rank));
        if !has_come {
            self.leave_core(std::thread::yield_now);
        }
    }

    /// Gives the core away by `leave`, as peers and this rank's later calls can see.
    fn leave_core(&self, leave: impl FnOnce()) {
        let (context, Entered { epoch, collective, .. }) = (self.context(), self.entered);
        context.givers.note_pause(epoch, Kind::of(collective));
        context.presence(context.rank()).leave_core(leave);
    }

    /// Whether this rank gives its core away without a look at whom it awaits, as others of it may need what it has published.
    fn decide_to_give_way(&self, awaited: Awaited) -> bool {
        let (context, Entered { epoch, collective, .. }) = (self.context(), self.entered);
        // Who has claimed a slot in a call that is over has published it, but for the root of a Reduce in place and who failed the call, who give
        // way for nothing then. Barriers claim none; to count these, and what is claimed first by a later step, gains nothing.
        let has_published = |epoch| context.claims().has_claimed(Ticket::new(epoch, 0));
        matches!(awaited, Awaited::Flag { .. })
            && context.givers.decide_to_give_way(epoch, Kind::of(collective), has_published)
    }

    /// Where ranks share cores: a few more pauses of this wait, of which this is the number.
    ///
    /// Between two yields it looks for nothing but what the peer was to do, and whether that is at work: all else that a poll
    /// looks at are lines that peers write, which take as long as the yield.
    fn yield_core(&self, wait: &mut Wait, now: Instant, waited: Duration) -> u32 {
        let (context, awaited, before) = (self.context(), wait.awaited, wait.pauses);
        let peer = context.awaited_peer(awaited);
        if let Some(rank) = peer
            && self.has_come_from_work(awaited, rank)
        {
            return 1;
        }
        let may_sleep = wait.may_sleep(self.entered.bytes, self.waiting.patience, waited);
        let asking = if may_sleep || waited >= wait.asked + NAP {
            wait.asked = waited;
            Asking::Now
        } else {
            Asking::WhenDue
        };
        let mut yields = 0;
        self.leave_core(|| {
            // Before a sleep, and as often as it would sleep, in any case. Not more often: a probe may yield itself (Open MPI), or sleep
            // (MPICH 5, throttled), and others wait for this rank meanwhile.
            (self.waiting.keep_pace)(now, asking);
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
            while !has_come() && (yields == 0 || context.presence(rank).is_away()) {
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
        let (hopes, Entered { epoch, collective, .. }) = (&context.hopes, self.entered);
        let look = hopes.look(epoch, Kind::of(collective), self.waiting.traffic, || peer.is_in_call());
        let looks = if look == Look::Once { 1 } else { looks_at_work() };
        for number in 0..looks {
            if context.has_come(awaited, rank) {
                if number > 0 && look == Look::Anywhere {
                    hopes.rise();
                }
                return true;
            }
            if context.presence(rank).is_away() {
                return false;
            }
            std::hint::spin_loop();
        }
        if look == Look::Anywhere && !peer.is_in_call() {
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
#[path = "drive_tests.rs"]
pub(super) mod tests;
