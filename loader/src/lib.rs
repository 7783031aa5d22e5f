//! libhuddle.so, the loader: stands in front of any MPI library, found at run time, and forwards each call by a jump.
//!
//! 1. Every name in `names` is exported as a function of a few instructions that jumps to the target in its slot.
//! 2. At first all targets are `arch::lazy`. The first call of the process comes to `resolve`, which
//!    finds the MPI library (`mpi`), opens the engine built for it (`engine`), and fills the table.
//! 3. The jump is made again. From then on a call costs the jump.
//!
//! Nothing runs at load time, so that a process without MPI (a launcher, a shell) is not touched. Where no engine fits,
//! one line says so and the table holds the native functions.

mod abi;
mod arch;
mod engine;
mod mpi;
mod names;
mod narrow;
mod say;
mod slots;

use engine::Engine;
use mpi::Mpi;
use slots::{locate, name_of, Kind, Name, Slot, Target, LAZY, NAMES, SLOTS};
use std::env;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::Once;

/// What `arch::lazy` calls: afterwards `target` isn't lazy any more.
extern "C" fn resolve(target: &Target) {
    static FILLED: Once = Once::new();
    match Mpi::find() {
        Some(mpi) => FILLED.call_once(|| fill(&mpi)),
        None => answer_without_mpi(target),
    }
}

/// Fills the table. All decisions come before the first store: a thread whose target is still lazy waits in `resolve`,
/// so no call goes to the native function that later ones of its kind won't go to.
fn fill(mpi: &Mpi) {
    let engine = Engine::open(mpi).inspect_err(|reason| say::warn(reason)).ok();
    let is_profiling_native = env::var_os("HUDDLE_PMPI").is_some_and(|value| value == "0");
    narrow::prepare(mpi);
    let choose = |name| targets(name, mpi, engine.as_ref(), is_profiling_native);
    let filled: Vec<Slot> = NAMES.iter().map(choose).collect();
    for (slot, filled) in SLOTS.iter().zip(filled) {
        slot.public.store(filled.public.into_inner(), Release);
        slot.profiling.store(filled.profiling.into_inner(), Release);
    }
}

/// Where the two symbols of `name` lead.
fn targets(name: &Name, mpi: &Mpi, engine: Option<&Engine>, is_profiling_native: bool) -> Slot {
    let slot =
        |public: *mut c_void, profiling: *mut c_void| Slot { public: public.into(), profiling: profiling.into() };
    let served = || engine.and_then(|engine| engine.entry(name.public));
    if name.kind == Kind::Api {
        let entry = served().unwrap_or(zero as *mut c_void);
        return slot(entry, entry);
    }
    let native = (mpi.symbol(name.public), mpi.symbol(name.profiling));
    let (Some(public), Some(profiling)) = native else {
        return slot(arch::lacking as *mut c_void, arch::lacking as *mut c_void);
    };
    let entry = if name.kind == Kind::Served { served() } else { None };
    match entry {
        Some(entry) if is_profiling_native => slot(entry, profiling),
        Some(entry) => slot(entry, entry),
        None => slot(public, profiling),
    }
}

/// A question about huddle is answered with 0 until there is an MPI library; a call of MPI can't go on.
fn answer_without_mpi(slot: &Target) {
    if NAMES[locate(slot).0].kind != Kind::Api {
        say::die(&format!("{} was called, but no MPI library is loaded", name_of(slot)));
    }
    // Not over the engine's entry, if another thread has just filled the table.
    let _ = slot.compare_exchange(LAZY, zero as *mut c_void, Release, Relaxed);
}

/// The answer of the `Api` names without an engine: 0, false or null.
extern "C" fn zero() -> usize {
    0
}
