//! What happens in `MPI_Finalize`: the report.
//!
//! The report runs in the delete callback of an attribute of `MPI_COMM_SELF`. MPI deletes these attributes first, the
//! last one set first, so it runs after all callbacks of the program, which may still call collectives.

use super::communicator::do_not_copy;
use super::job::{self, Job};
use super::loader::LOADER;
use super::own;
use crate::log;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::report::{Report, Tally, tally};
use mpi_sys::MPI_Comm;
use std::ffi::{CStr, c_int, c_void};

/// Arranges for [`finalize`] to run.
pub(super) fn at_finalize() {
    let c = constants();
    let mut keyval = c.keyval_invalid;
    // SAFETY: MPI is initialised; valid places.
    unsafe {
        if native().comm_create_keyval(Some(do_not_copy), Some(finalize), &mut keyval, std::ptr::null_mut())
            == c.success
        {
            native().comm_set_attr(c.comm_self, keyval, std::ptr::null_mut());
        }
    }
}

unsafe extern "C" fn finalize(_: MPI_Comm, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    if let Some(job) = job::job() {
        job::retire();
        crate::report::deactivate();
        if let Some(path) = &job.config.report {
            report(job, path);
        }
    }
    constants().success
}

/// Sums the counters of all ranks; rank 0 writes them.
fn report(job: &Job, path: &std::path::Path) {
    let names = unserved_names();
    let loader = LOADER.get();
    let mut mine: Vec<u64> = tally().as_slice().to_vec();
    // SAFETY: the loader's function, with its own names.
    mine.extend(names.iter().map(|name| loader.map_or(0, |loader| unsafe { (loader.calls)(name.as_ptr()) })));
    let Some(mut all) = summed(job, mine) else {
        return;
    };
    let unserved = all.split_off(all.len() - names.len());
    let Some(tally) = Tally::from_values(all) else {
        return;
    };
    let report = Report {
        version: env!("CARGO_PKG_VERSION").into(),
        build: own::build_id(),
        mpi: loader.map_or_else(String::new, |loader| loader.mpi_version.clone()),
        ranks: job.size,
        nodes: job.nodes,
        inactive: job.inactive,
        counters: tally,
        unserved: called(&names, unserved),
    };
    report.write(path);
}

/// On rank 0 the sums over all ranks, or its own numbers where other ranks run another build of huddle; `None` on other
/// ranks.
fn summed(job: &Job, mine: Vec<u64>) -> Option<Vec<u64>> {
    let (c, n) = (constants(), mine.len() as c_int);
    if !(job.is_one_build && is_common(job, n)) {
        let mine = (job.rank == 0).then_some(mine)?;
        log::warning(format_args!("the report tells of rank 0 alone: other ranks run another build of huddle"));
        return Some(mine);
    }
    let mut all = vec![0; mine.len()];
    // SAFETY: buffers of `n` numbers.
    let code = unsafe {
        let (from, to) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
        native().reduce(from, to, n, c.uint64, c.sum, 0, job.world)
    };
    (job.rank == 0 && code == c.success).then_some(all)
}

/// Whether all ranks have the same `n`: loaders of several builds may count other names.
fn is_common(job: &Job, n: c_int) -> bool {
    let (c, own, mut least) = (constants(), [n, -n], [0; 2]);
    // SAFETY: buffers of two ints.
    unsafe { native().allreduce(own.as_ptr().cast(), least.as_mut_ptr().cast(), 2, c.int, c.min, job.world) };
    least[0] == -least[1]
}

/// The names that were called, each with its number of calls.
fn called(names: &[&CStr], calls: Vec<u64>) -> Vec<(String, u64)> {
    let named = names.iter().map(|name| name.to_string_lossy().into_owned());
    named.zip(calls).filter(|(_, calls)| *calls > 0).collect()
}

fn unserved_names() -> Vec<&'static CStr> {
    let Some(loader) = LOADER.get() else {
        return Vec::new();
    };
    (0..)
        .map(|index| (loader.counted)(index))
        .take_while(|name| !name.is_null())
        // SAFETY: the loader's names are C strings that live as long as the process.
        .map(|name| unsafe { CStr::from_ptr(name) })
        .collect()
}
