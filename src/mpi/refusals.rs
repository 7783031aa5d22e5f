//! Rejected arguments of a leader. It takes no step between nodes in that call. So its next step would meet the step in
//! which the other leaders still are, and they would take wrong data for those of their call.
//!
//! 1. A leader whose arguments are rejected tells the other leaders which call it left out ([`BridgeComm::refuse`]).
//! 2. Before its next step it waits until all others have left out the same calls ([`BridgeComm::settle`]): so a
//!    program whose ranks all pass wrong arguments goes on.
//! 3. A leader that has taken part in such a call, or is in it, ends the job when it hears of the refusal. It listens
//!    while it waits for a step of that call, and before its later steps.
//! 4. A communicator is freed after all refusals on it were heard, or not at all (`BridgeComm::close`): libraries give
//!    its context to another communicator, which would receive them.

use super::bridge::BridgeComm;
use super::failure::expect;
use super::job::{abort, job};
use crate::log;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::topo::Layout;
use crate::types::{Epoch, NodeIndex};
use mpi_sys::{MPI_Comm, MPI_Request};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Steps between nodes use another tag.
const TAG: c_int = 1;
/// When calls here fail, for people.
const REFUSING: &str = "while leaders tell each other of rejected arguments";

/// A message: which leader has left out which call.
#[derive(Clone, Copy, Default, PartialEq)]
#[repr(C)]
struct Word {
    node: u64,
    epoch: u64,
}

/// The calls that leaders have left out.
#[derive(Default)]
pub struct Refusals(Mutex<State>);

#[derive(Default)]
struct State {
    /// Calls that this leader has left out, until all others have left them out as well.
    own: Vec<u64>,
    /// The refusals of other leaders.
    heard: Vec<Word>,
    /// Sent messages that may still be under way.
    sent: Vec<(MPI_Request, Box<Word>)>,
}

// SAFETY: any thread may pass the requests to MPI, one thread at a time.
unsafe impl Send for State {}

impl Refusals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BridgeComm {
    /// Tells the other leaders that this one takes no part in call `epoch`.
    pub fn refuse(&self, epoch: Epoch) {
        let mut state = self.refusals().state();
        for node in self.others() {
            let word = Box::new(Word { node: self.node() as u64, epoch: epoch.0 });
            let (mut request, n) = (constants().request_null, size_of::<Word>() as c_int);
            let from = (&raw const *word).cast();
            // SAFETY: the word stays where it is until the message has gone.
            let code =
                unsafe { native().isend(from, n, constants().byte, node as c_int, TAG, self.comm(), &mut request) };
            expect("MPI_Isend", REFUSING, code);
            state.sent.push((request, word));
        }
        state.own.push(epoch.0);
    }

    /// Called before a step of call `epoch`, and while this leader waits for one. Ends the job if another leader left
    /// out that call or an earlier one and this leader did not. Returns when all others have left out the calls that
    /// this one has left out: they may come to these late.
    pub fn settle(&self, epoch: Epoch, layout: &Layout) {
        let mut state = self.refusals().state();
        let mut wait = Wait::default();
        loop {
            state.listen(self.comm());
            if let Some(word) =
                state.heard.iter().find(|word| word.epoch <= epoch.0 && !state.own.contains(&word.epoch))
            {
                give_up(*word, layout);
            }
            let Some(missing) = state.missing(self) else {
                state.own.clear();
                state.heard.retain(|word| word.epoch > epoch.0);
                return;
            };
            wait.go_on(missing, layout);
        }
    }

    /// Called before the communicator is freed, which all leaders do. Returns whether all others have said that they
    /// left out the calls that this one has, and no others. Waits a while for that: some may come late, and in programs
    /// whose ranks differ they never do.
    pub(super) fn close(&self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(1);
        let mut state = self.refusals().state();
        let since = Instant::now();
        loop {
            state.listen(self.comm());
            if state.missing(self).is_none() {
                return state.heard.iter().all(|word| state.own.contains(&word.epoch));
            }
            if since.elapsed() >= PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

/// A wait for what other leaders have not said yet.
#[derive(Default)]
struct Wait {
    since: Option<Instant>,
    reported: Duration,
}

impl Wait {
    fn go_on(&mut self, Word { node, epoch }: Word, layout: &Layout) {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if let Some(stall) = job().and_then(|job| job.waiting.stall)
            && waited >= self.reported + stall
        {
            self.reported = waited;
            log::warning(format_args!(
                "call {epoch} of a communicator: the arguments of this rank were rejected, and since {:.1} s it waits for rank {} \
                 on another node to reject its own: that has not come to the call, or was served",
                waited.as_secs_f64(),
                leader(node, layout)
            ));
        }
        std::thread::yield_now();
    }
}

impl State {
    fn listen(&mut self, comm: MPI_Comm) {
        let c = constants();
        loop {
            let mut found = 0;
            // SAFETY: valid communicator and places; what was found is received.
            unsafe {
                expect("MPI_Iprobe", REFUSING, native().iprobe(c.any_source, TAG, comm, &mut found, c.status_ignore));
                if found == 0 {
                    break;
                }
                let (mut word, n) = (Word::default(), size_of::<Word>() as c_int);
                let to = (&raw mut word).cast();
                expect("MPI_Recv", REFUSING, native().recv(to, n, c.byte, c.any_source, TAG, comm, c.status_ignore));
                self.heard.push(word);
            }
        }
        self.sent.retain_mut(|(request, _)| {
            let mut done = 0;
            // SAFETY: the request of a message, or null.
            expect("MPI_Test", REFUSING, unsafe { native().test(request, &mut done, c.status_ignore) });
            done == 0
        });
    }

    /// A call that this leader has left out, and another leader that has not said so of that call.
    fn missing(&self, bridge: &BridgeComm) -> Option<Word> {
        let of_others = |&epoch: &u64| bridge.others().map(move |node| Word { node: node as u64, epoch });
        self.own.iter().flat_map(of_others).find(|word| !self.heard.contains(word))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // The MPI library may still read messages that nobody waits for any more.
        for (_, word) in self.sent.drain(..) {
            Box::leak(word);
        }
    }
}

#[cold]
fn give_up(word: Word, layout: &Layout) -> ! {
    log::error(format_args!(
        "call {} of a communicator can't end: a leader on the node of rank {} takes no part, its arguments were rejected, and \
         other nodes wait",
        word.epoch,
        leader(word.node, layout)
    ));
    abort()
}

/// The first rank of a node.
fn leader(node: u64, layout: &Layout) -> u32 {
    layout.members(NodeIndex(node as u32))[0].0
}
