//! libhuddle.so, the loader: stands in front of any MPI library, found at run time, and forwards each call by a jump.
//!
//! 1. Every name in `names` is exported as a function of a few instructions that jumps to the target in its slot.
//! 2. At first all targets are `arch::lazy`. The first call of the process comes to `resolve`, which
//!    finds the MPI library (`mpi`), opens the engine built for it (`engine`), and fills the table.
//! 3. The entry jumps again, to its new target. From then on a call costs one jump.
//!
//! A profiler gets the same calls as without this library, whether it is loaded before or after it (`chain`).
//!
//! Nothing runs at load time, so a process without MPI (a launcher, a shell) is not touched. If no engine fits, one
//! line on stderr says so and the table holds the native functions.

mod abi;
mod arch;
mod chain;
mod engine;
mod mpi;
mod names;
mod narrow;
mod objects;
mod requests;
mod say;
mod slots;

use chain::Profilers;
use engine::Engine;
use mpi::Mpi;
use requests::Handles;
use slots::{Kind, LAZY, NAMES, Name, SLOTS, Slot, Target, locate, name_of};
use std::env;
use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Called by `arch::lazy`. When it returns, `target` isn't lazy any more.
extern "C" fn resolve(target: &Target) {
    static FILLED: Once = Once::new();
    match Mpi::find() {
        Some(mpi) => FILLED.call_once(|| fill(&mpi)),
        None => answer_without_mpi(target),
    }
}

/// Fills the table. All decisions come before the first store. A thread whose target is still lazy waits in `resolve`,
/// so no call goes to the native function if later calls of the same name go to the engine.
fn fill(mpi: &Mpi) {
    let engine = Engine::open(mpi).inspect_err(|reason| say::warn(reason)).ok();
    let is_profiling_native = env::var_os("HUDDLE_PMPI").is_some_and(|value| value == "0");
    // With HUDDLE_PMPI=0 a process compares MPI_X with PMPI_X. MPI_X then leads directly to the engine: a profiler
    // would be measured too, and the PMPI_X that it calls would bypass the engine.
    let profilers = (!is_profiling_native).then_some(Profilers(mpi));
    narrow::prepare(mpi, profilers);
    // Only an engine asks how many requests are open.
    let handles = engine.as_ref().and_then(|_| Handles::of(mpi));
    let choose = |name| targets(name, mpi, (engine.as_ref(), handles), profilers);
    let chosen: Vec<Slot> = NAMES.iter().map(choose).collect();
    for (index, slot) in SLOTS.iter().enumerate() {
        slot.is_chained.store(is_chained(index, &chosen), Relaxed);
        // [target] release: whoever jumps to a new target sees what the engine set up before. The jumps in `arch` load
        // the target with acquire (on x86-64 every load is one); `narrow` acquires too.
        slot.public.store(chosen[index].public.load(Relaxed), Release);
        slot.profiling.store(chosen[index].profiling.load(Relaxed), Release);
    }
}

/// The targets of the two symbols of `name`; without `profilers`, `PMPI_X` stays native.
fn targets(
    name: &Name,
    mpi: &Mpi,
    (engine, handles): (Option<&Engine>, Option<Handles>),
    profilers: Option<Profilers>,
) -> Slot {
    let slot = |public: *mut c_void, profiling: *mut c_void, is_chained: bool| Slot {
        public: public.into(),
        profiling: profiling.into(),
        is_chained: is_chained.into(),
    };
    let served = || engine.and_then(|engine| engine.entry(name.public));
    if name.kind == Kind::Api {
        let entry = served().unwrap_or(zero as *mut c_void);
        return slot(entry, entry, false);
    }
    // A function that counts requests stands in front of both names: without a profiler between them they do the same.
    let counting = |native| handles.and_then(|handles| handles.in_front_of(name, native)).map(|one| (one, one));
    let native = mpi.symbol(name.public).zip(mpi.symbol(name.profiling));
    let native = native.map(|(public, profiling)| counting(profiling).unwrap_or((public, profiling)));
    let entry = if name.kind == Kind::Served && native.is_some() { served() } else { None };
    let (public, profiling) = native.unwrap_or((arch::lacking as *mut c_void, arch::lacking as *mut c_void));
    let Some(profilers) = profilers else {
        return slot(entry.unwrap_or(public), profiling, false);
    };
    let next = profilers.behind(name);
    slot(next.or(entry).unwrap_or(public), entry.unwrap_or(profiling), next.is_some())
}

/// Whether a call of the `MPI_X` at `index` comes back through a profiler as a `PMPI_X`, perhaps in its plain form.
fn is_chained(index: usize, chosen: &[Slot]) -> bool {
    let is_lacking = chosen[index].public.load(Relaxed) == arch::lacking as *mut c_void;
    chosen[index].is_chained.load(Relaxed) || is_lacking && narrow::is_profiled(index, chosen)
}

/// Answers a call made before an MPI library is loaded: an `Api` name returns 0 until there is one, a name of MPI
/// aborts.
fn answer_without_mpi(slot: &Target) {
    if NAMES[locate(slot).0].kind != Kind::Api {
        say::die(&format!("{} was called, but no MPI library is loaded", name_of(slot)));
    }
    // Exchange only the lazy target: another thread may just have filled the table with the engine's entry.
    // [target] release: as in `fill`.
    let _ = slot.compare_exchange(LAZY, zero as *mut c_void, Release, Relaxed);
}

/// The answer of the `Api` names without an engine: 0, false or null.
extern "C" fn zero() -> usize {
    0
}
