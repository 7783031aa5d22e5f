//! Stands in for the `_c` names that an MPI library lacks (Open MPI 4 and 5, MPICH 3). mpi4py calls these names
//! wherever they exist, so they have to work. The call goes to the plain form, with each MPI_Count narrowed to an int.
//! A count that doesn't fit becomes -1, which MPI refuses as an invalid count, through the communicator's error
//! handler.

use crate::arch::REGISTERS;
use crate::chain::Profilers;
use crate::mpi::Mpi;
use crate::say::die;
use crate::slots::{NAMES, SLOTS, Slot, Target, W, index, locate, name_of};
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The most arguments that any form in the table has.
const ARGUMENTS: usize = 9;
const INVALID: c_int = -1;

/// Positions of those arguments of an operation that differ between its `_c` and its plain form.
struct Positions {
    stem: &'static str,
    counts: &'static [usize],
    arrays: &'static [Array],
    /// Position of the last argument of the blocking form. It is the communicator in operations with arrays.
    last: usize,
}

/// Positions of an array of counts and of its array of displacements.
struct Array {
    counts: usize,
    displacements: Option<usize>,
    read: Read,
}

/// When MPI reads the array.
enum Read {
    Always,
    AtRoot(usize),
    UnlessInPlace,
}

const fn positions(stem: &'static str, counts: &'static [usize], arrays: &'static [Array], last: usize) -> Positions {
    Positions { stem, counts, arrays, last }
}

const fn array(counts: usize, read: Read) -> Array {
    Array { counts, displacements: Some(counts + 1), read }
}

static POSITIONS: [Positions; 25] = [
    positions("allgather", &[1, 4], &[], 6),
    positions("allgatherv", &[1], &[array(4, Read::Always)], 7),
    positions("allreduce", &[2], &[], 5),
    positions("alltoall", &[1, 4], &[], 6),
    positions("alltoallv", &[], &EXCHANGE, 8),
    positions("alltoallw", &[], &EXCHANGE, 8),
    positions("bcast", &[1], &[], 4),
    positions("bsend", &[1], &[], 5),
    positions("buffer_attach", &[1], &[], 1),
    positions("exscan", &[2], &[], 5),
    positions("gather", &[1, 4], &[], 7),
    positions("gatherv", &[1], &[array(4, Read::AtRoot(7))], 8),
    positions("mrecv", &[1], &[], 3),
    positions("neighbor_allgather", &[1, 4], &[], 6),
    positions("neighbor_alltoall", &[1, 4], &[], 6),
    positions("recv", &[1], &[], 5),
    positions("reduce", &[2], &[], 6),
    positions("reduce_scatter", &[], &[LOCAL], 5),
    positions("reduce_scatter_block", &[2], &[], 5),
    positions("rsend", &[1], &[], 5),
    positions("scan", &[2], &[], 5),
    positions("scatter", &[1, 4], &[], 7),
    positions("scatterv", &[5], &[array(1, Read::AtRoot(7))], 8),
    positions("send", &[1], &[], 5),
    positions("ssend", &[1], &[], 5),
];
const EXCHANGE: [Array; 2] = [array(1, Read::UnlessInPlace), array(5, Read::Always)];
const LOCAL: Array = Array { counts: 2, displacements: None, read: Read::Always };

/// How a call of a lacking `_c` name reaches its plain form.
struct Route {
    plain: usize,
    /// The plain `MPI_X` of a profiler that comes before this library.
    profiler: Option<Plain>,
    positions: &'static Positions,
    arguments: usize,
}

/// What the stand-ins need from the MPI library.
struct Native {
    routes: Vec<Option<Route>>,
    comm_rank: Query,
    comm_size: Query,
    comm_remote_size: Query,
    comm_test_inter: Query,
}

/// `int PMPI_Comm_…(MPI_Comm, int *)`. A handle is an int or a pointer; both fit the register.
type Query = unsafe extern "C-unwind" fn(comm: usize, answer: *mut c_int) -> c_int;

/// Any plain form. A callee with fewer parameters does not read the remaining arguments.
type Plain = unsafe extern "C-unwind" fn(W, W, W, W, W, W, W, W, W) -> c_int;

static NATIVE: OnceLock<Native> = OnceLock::new();

/// Prepares the stand-ins. Must run before the first `arch::lacking` is stored in the table.
pub fn prepare(mpi: &Mpi, profilers: Option<Profilers>) {
    let query = |name: &CStr| match mpi.symbol(name) {
        // SAFETY: the four queries have this prototype in every MPI.
        Some(function) => unsafe { transmute::<*mut c_void, Query>(function) },
        None => die(&format!("{} is not in this MPI library", name.to_string_lossy())),
    };
    NATIVE.get_or_init(|| Native {
        routes: NAMES.iter().map(|name| route(mpi, profilers, name.public)).collect(),
        comm_rank: query(c"PMPI_Comm_rank"),
        comm_size: query(c"PMPI_Comm_size"),
        comm_remote_size: query(c"PMPI_Comm_remote_size"),
        comm_test_inter: query(c"PMPI_Comm_test_inter"),
    });
}

/// The route of `name` if it is a `_c` form whose plain form the library has.
fn route(mpi: &Mpi, profilers: Option<Profilers>, name: &CStr) -> Option<Route> {
    let plain = name.to_str().ok()?.strip_suffix("_c")?;
    let operation = plain.strip_prefix("MPI_")?;
    let nonblocking = operation.strip_prefix('I').filter(|rest| rest.starts_with(char::is_lowercase));
    let stem = nonblocking.unwrap_or(operation);
    let positions = POSITIONS.iter().find(|positions| positions.stem.eq_ignore_ascii_case(stem))?;
    let plain = CString::new(plain).ok()?;
    mpi.symbol(&plain)?;
    let plain = index(&plain)?;
    let profiler = profilers.and_then(|profilers| profilers.in_front(&NAMES[plain]));
    // SAFETY: `function` is the operation's plain form, with at most `ARGUMENTS` arguments.
    let profiler = profiler.map(|function| unsafe { transmute::<*mut c_void, Plain>(function) });
    let arguments = positions.last + 1 + usize::from(nonblocking.is_some());
    Some(Route { plain, profiler, positions, arguments })
}

/// Whether, with the targets `chosen`, a call of the lacking `MPI_X_c` at `index` goes to a profiler, before or after
/// this library.
pub fn is_profiled(index: usize, chosen: &[Slot]) -> bool {
    let route = NATIVE.get().and_then(|native| native.routes[index].as_ref());
    route.is_some_and(|route| route.profiler.is_some() || chosen[route.plain].is_chained.load(Relaxed))
}

/// Called by `arch::lacking`: makes the call of `target`'s name through its plain form, or aborts if there is none.
///
/// # Safety
/// `registers` and `stack` hold the arguments of the call, in order.
pub unsafe extern "C-unwind" fn call(target: &Target, registers: *const usize, stack: *const usize) -> c_int {
    let (index, is_profiling) = locate(target);
    let native = NATIVE.get();
    let Some((native, route)) = native.and_then(|n| Some((n, n.routes[index].as_ref()?))) else {
        die(&format!("{} is not in this MPI library", name_of(target)))
    };
    let mut a = [0; ARGUMENTS];
    for (position, argument) in a.iter_mut().enumerate().take(route.arguments) {
        // SAFETY: the caller promises that registers and stack hold the arguments; the name has that many arguments.
        *argument = unsafe {
            match position.checked_sub(REGISTERS) {
                None => *registers.add(position),
                Some(above) => *stack.add(above),
            }
        };
    }
    for &position in route.positions.counts {
        a[position] = narrow(a[position] as i64).unwrap_or(INVALID) as usize;
    }
    let mut arrays = Vec::new(); // doesn't allocate if there are no arrays
    for array in route.positions.arrays {
        // SAFETY: `positions` describes the arguments of this operation, and `a` holds them.
        arrays.push(unsafe { native.narrow_array(array, &mut a, route.positions.last) });
    }
    let slot = &SLOTS[route.plain];
    let plain = if is_profiling { &slot.profiling } else { &slot.public };
    // [target] acquire: pairs with the release in `fill`.
    // SAFETY: the target is a function of the operation's plain form, which `route` found in the library.
    let plain = unsafe { transmute::<*mut c_void, Plain>(plain.load(Acquire)) };
    let plain = route.profiler.filter(|_| !is_profiling).unwrap_or(plain);
    // SAFETY: these are the arguments of the call; the plain form reads only as many as it has.
    unsafe { plain(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]) }
}

impl Native {
    /// Replaces an array and its displacements in `a` by narrowed copies. The returned copies have to outlive the call.
    ///
    /// # Safety
    /// `a` holds the arguments of a call that `array` describes.
    unsafe fn narrow_array(&self, array: &Array, a: &mut [usize; ARGUMENTS], comm: usize) -> [Vec<c_int>; 2] {
        let comm = a[comm];
        let is_inter = self.ask(self.comm_test_inter, comm) != 0;
        let is_read = match array.read {
            Read::Always => true,
            Read::UnlessInPlace => a[0] != 1 && a[0] != usize::MAX, // the values of MPI_IN_PLACE in all MPIs
            Read::AtRoot(root) if is_inter => a[root] as c_int <= -3, // MPI_ROOT; MPI_PROC_NULL is -1 or -2
            Read::AtRoot(root) => a[root] as c_int == self.ask(self.comm_rank, comm),
        };
        if !is_read || a[array.counts] == 0 {
            return Default::default();
        }
        let remote = is_inter && array.displacements.is_some();
        let size = if remote { self.comm_remote_size } else { self.comm_size };
        let size = usize::try_from(self.ask(size, comm)).unwrap_or(0);
        // SAFETY: MPI demands an MPI_Count, and an MPI_Aint, for every rank of the group; `size` is 0 for a bad handle.
        let wide = |at: usize| unsafe { slice::from_raw_parts(a[at] as *const i64, size) };
        let narrow = |wide: &[i64]| wide.iter().map(|&wide| narrow(wide)).collect::<Vec<_>>();
        let mut counts = narrow(wide(array.counts));
        let displacements = array.displacements.filter(|&at| a[at] != 0);
        let narrowed = displacements.map_or(vec![], |at| narrow(wide(at)));
        for (count, displacement) in counts.iter_mut().zip(&narrowed) {
            *count = (*count).filter(|_| displacement.is_some());
        }
        let put = |at: usize, with: Vec<Option<c_int>>, a: &mut [usize; ARGUMENTS]| {
            let ints: Vec<_> = with.into_iter().map(|int| int.unwrap_or(INVALID)).collect();
            a[at] = ints.as_ptr() as usize;
            ints
        };
        [put(array.counts, counts, a), displacements.map_or(vec![], |at| put(at, narrowed, a))]
    }

    /// The answer to a query; 0 after an error, which the call itself will meet again.
    fn ask(&self, query: Query, comm: usize) -> c_int {
        let mut answer = 0;
        // SAFETY: `answer` is an int; MPI checks the handle.
        unsafe { query(comm, &mut answer) };
        answer
    }
}

fn narrow(wide: i64) -> Option<c_int> {
    wide.try_into().ok()
}
