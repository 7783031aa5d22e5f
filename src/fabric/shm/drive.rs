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
    /// After how long a wait is reported, and the time between further reports of it.
    pub stall: Option<Duration>,
    /// Lets the MPI library make progress on the program's own traffic. Cheap, never blocks.
    pub progress: fn(),
    /// Lets the library make progress from within a wait, at the given time: if that is due, or in any case.
    pub keep_pace: fn(Instant, Asking),
    /// Whether the program may have traffic of its own there. Cheap.
    pub traffic: fn() -> Traffic,
    /// Where ranks share cores, how long a wait yields before it sleeps.
    pub patience: Duration,
    /// Reports a wait that lasts, by a line.
    pub report: fn(&Stall),
}

impl Waiting {
    /// Where ranks share cores no rank sleeps sooner, unless only a cgroup's quota is short ([`Self::patience`] is zero
    /// then). A yield is over at once where nobody else wants the core. A rank that sleeps is late for the ranks that
    /// wait for it, which would then sleep in their turn. Programs whose ranks compute for less than this between calls
    /// take up to a fifth longer otherwise (docs/PERFORMANCE.md, "Tried").
    pub const PATIENCE: Duration = Duration::from_millis(1);

    /// How many more looks a wait takes before it attends to anything but the MPI library's traffic.
    #[inline]
    pub(super) fn looks(&self) -> u32 {
        const LOOKS: u32 = 1000;
        /// The awaited rank may need this core; if it has a core, each look takes the line from it. A wait for a peer
        /// at work takes more looks ([`looks_at_work`]).
        const LOOKS_OVERSUBSCRIBED: u32 = 1;
        if self.is_oversubscribed { LOOKS_OVERSUBSCRIBED } else { LOOKS }
    }

    /// How many looks a short call makes in its own code. Most waits end within them; the rest of a wait goes on out of
    /// line ([`Call::outlast`]).
    #[inline]
    pub(super) fn looks_in_line(&self) -> u32 {
        const IN_LINE: u32 = 16;
        self.looks().min(IN_LINE)
    }
}

/// A wait that has lasted for long.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// The collective in which the rank waits.
    pub collective: Collective,
    /// Its ordinal on the communicator.
    pub epoch: Epoch,
    /// How long the rank has waited so far.
    pub waited: Duration,
    /// What the rank waits for.
    pub awaited: Awaited,
    /// The awaited peer, by its rank in the communicator, and the call that it says it is in.
    pub peer: Option<(CommRank, PeerCall)>,
}

/// Where each rank has a core, a wait of a short call asks the MPI library after this time, or after 100 pauses. The
/// slowest library takes about as long to answer while it is in the caches, so such a wait becomes at most twice as
/// long.
const ASKS_AFTER: Duration = Duration::from_nanos(1300);
/// Polls between two calls into the MPI library, where a wait lasts.
const POLLS_PER_PROGRESS: u32 = 64;
/// Where ranks share cores, the least number of yields before a sleep: usually, and in calls whose message or block has
/// at least [`LONG`] bytes. Peers work on such pieces for longer than a few yields take. A rank that sleeps wakes tens
/// of microseconds late, but leaves the core to the others.
const YIELDS: [u32; 2] = [8, 32];
/// Bytes of the message or block of a long call.
const LONG: Bytes = Bytes(32 << 10);
/// Yields between two polls, at most.
const YIELDS_PER_POLL: u32 = 4;
/// The longest sleep. The MPI library makes no progress meanwhile: a message of 64 MiB needs about 150 probes.
const NAP: Duration = Duration::from_micros(100);

/// How long one wait has lasted.
struct Wait {
    awaited: Awaited,
    /// When it began; where ranks share cores, its second pause. Most waits end with the first pause, and to read a
    /// clock takes 20 to 40 ns.
    since: Option<Instant>,
    reported: Duration,
    /// Pauses so far, each a poll or a yield.
    pauses: u32,
    /// How long the wait had lasted when it last asked the MPI library in any case.
    asked: Duration,
    next_yield: Which,
}

impl Wait {
    fn of(awaited: Awaited) -> Self {
        let (reported, asked) = Default::default();
        Self { awaited, since: None, reported, pauses: 0, asked, next_yield: Which::First }
    }

    /// Whether this wait, in a call of `bytes` bytes, has yielded often enough, and for long enough, to sleep from now
    /// on.
    fn may_sleep(&self, bytes: Bytes, patience: Duration, waited: Duration) -> bool {
        self.pauses >= YIELDS[usize::from(bytes >= LONG)] && waited >= patience
    }
}

impl Call<'_> {
    /// Runs a call to its end.
    ///
    /// # Errors
    /// If a peer contradicts, or has failed: in the latter case this rank has failed the call too, as its peers can
    /// see.
    #[inline]
    pub fn drive(&self, call: impl Future<Output = ()>) -> Result<(), Fault> {
        let mut call = pin!(call);
        let mut task = TaskContext::from_waker(Waker::noop());
        let mut wait = None;
        // There is one poll, so that the compiler can make one function of this and the algorithm.
        while call.as_mut().poll(&mut task) == Poll::Pending {
            if !self.persevere(&mut wait) {
                return self.give_up();
            }
        }
        if self.has_fault() { self.give_up() } else { self.end() }
    }

    /// Waits until `look`, which has found nothing a few times, returns true.
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

    /// Where each rank has a core: looks for [`ASKS_AFTER`], asks the MPI library if it is time for that, and looks on.
    /// Returns whether what is awaited came. A rank that waits has the time to ask. Calls that do not wait ask at their
    /// end, which delays all ranks that wait for this rank next. Calls that are futures skip this, since their waits
    /// take long anyway.
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
        self.context().nudge_sleepers(self.waiting);
        context.note_leave(self.waiting);
        Ok(())
    }

    #[cold]
    fn give_up(&self) -> Result<(), Fault> {
        let Some(&fault) = self.fault.get() else { return self.end() };
        self.context().give_up(self.entered.epoch, fault, self.waiting);
        Err(fault)
    }

    /// Waits a little after a poll in vain. Returns false, with a fault set, if what is awaited will never come.
    #[cold]
    #[inline(never)]
    fn persevere(&self, wait: &mut Option<Wait>) -> bool {
        // To notice trouble this rank reads lines of the peer, which take as long to arrive as many waits last. So it
        // does not look before the very first pause.
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

    /// One pause of a wait where each rank has a core.
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

    /// The first pause of a wait where ranks share cores. Most waits end with it, so it does only the part of
    /// [`Self::yield_core`] that these need.
    fn yield_once(&self, awaited: Awaited) {
        let context = self.context();
        let has_come = !self.decide_to_give_way(awaited)
            && context.awaited_peer(awaited).is_some_and(|rank| self.has_come_from_work(awaited, rank));
        if !has_come {
            self.leave_core(std::thread::yield_now);
        }
    }

    /// Gives the core away by `leave`, and notes that for peers and for this rank's later calls.
    fn leave_core(&self, leave: impl FnOnce()) {
        let (context, Entered { epoch, collective, .. }) = (self.context(), self.entered);
        context.givers.note_pause(epoch, Kind::of(collective));
        context.presence(context.rank()).leave_core(leave);
    }

    /// Whether this rank gives its core away without a look at the awaited peer, as other ranks of the core may need
    /// what this rank has published.
    fn decide_to_give_way(&self, awaited: Awaited) -> bool {
        let (context, Entered { epoch, collective, .. }) = (self.context(), self.entered);
        // A rank that claimed a slot in a call that is over has published it. Exceptions are the root of a Reduce in
        // place and a rank that failed the call, which give way for nothing. Barriers claim no slot, and some calls
        // claim their first one in a later step; to count those too gains nothing.
        let has_published = |epoch| context.claims().has_claimed(Ticket::new(epoch, 0));
        matches!(awaited, Awaited::Flag { .. })
            && context.givers.decide_to_give_way(epoch, Kind::of(collective), has_published)
    }

    /// Where ranks share cores: takes a few more pauses of `wait`, and returns how many.
    ///
    /// Between two yields it looks only whether the peer has done what this rank waits for, and whether the peer is at
    /// work. All else that a poll reads is in lines that peers write, which take as long to arrive as the yield.
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
            // The library is asked in any case before a sleep, and as often as the wait would sleep. Not more often: a
            // probe may itself yield (Open MPI) or sleep (MPICH 5, throttled), and others wait for this rank meanwhile.
            (self.waiting.keep_pace)(now, asking);
            let Some(rank) = peer else {
                return std::thread::yield_now();
            };
            let has_come = || context.has_come(awaited, rank);
            if may_sleep {
                let has_come_at_last = || {
                    // A peer that does not see this sleeper yet looks for sleepers a moment after it has stored what is
                    // awaited. This yield takes longer than that moment, so the store is found now; if not, it is found
                    // after the nap.
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

    /// Looks for what `rank` is awaited for, while `rank` seems to have a core and there is hope. To give this rank's
    /// core away and get it back takes longer than most of what peers do. Returns whether it came.
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
