//! The jump table: a slot, a counter and the exported entries of every name in `names`.

use crate::abi::OwnTraffic;
use crate::arch;
use crate::names::names;
use std::ffi::{CStr, c_void};
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64};

/// An argument passed in an integer register: a number, a handle or an address.
pub type W = usize;

/// The address that an entry jumps to. Written by the resolver, read by the entries.
pub type Target = AtomicPtr<c_void>;

/// The two targets of a name, `MPI_X` and `PMPI_X`; an `Api` name has only the first.
#[repr(C)]
pub struct Slot {
    pub public: Target,
    pub profiling: Target,
    /// Whether `MPI_X` goes to a profiler, which calls `PMPI_X`.
    pub is_chained: AtomicBool,
}

/// How often a `Counted` or `Begun` name was called under each of its two symbols.
#[repr(C)]
struct Calls {
    public: AtomicU64,
    profiling: AtomicU64,
}

/// The target of an entry before the first call.
pub const LAZY: *mut c_void = arch::lazy as *mut c_void;

/// Where a call of a name goes, and what its entry does first: see `names`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Served,
    Counted,
    Opens,
    Begun,
    Followed,
    Noted,
    Window,
    OneSided,
    OneSidedBegun,
    Api,
}

/// A row of the table.
pub struct Name {
    pub kind: Kind,
    pub public: &'static CStr,
    pub profiling: &'static CStr,
}

const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a name with a NUL inside"),
    }
}

/// Defines the exported function `$symbol`, which applies the effects in turn and then jumps to the target at `$slot`.
/// Arguments and stack stay untouched, so it needs no prototype. Effects: `note(field of OwnTraffic)`, `raise` the
/// notice, `open` a request, `open_unless_chained(name)`, `count(place of the counter)`. Each effect has its own names
/// of operands, because effects combine and a name may be given only once.
macro_rules! entry {
    ($symbol:expr, $slot:expr $(, $($effects:tt)*)?) => {
        entry!(@ $symbol, [] [slot = const $slot] $($($effects)*)?);
    };
    (@ $symbol:expr, [$($code:expr,)*] [$($operands:tt)*]) => {
        naked!($symbol, [$($code,)* arch::forward!()], $($operands)*);
    };
    (@ $symbol:expr, [$($code:expr,)*] [$($operands:tt)*] note($field:ident) $($rest:tt)*) => {
        entry!(
            @ $symbol,
            [$($code,)* arch::note!(),]
            [$($operands)*, noted = sym TRAFFIC, note = const offset_of!(OwnTraffic, $field)] $($rest)*
        );
    };
    (@ $symbol:expr, [$($code:expr,)*] [$($operands:tt)*] raise $($rest:tt)*) => {
        entry!(
            @ $symbol,
            [$($code,)* arch::raise!(),]
            [$($operands)*, raised = sym TRAFFIC, notice = const offset_of!(OwnTraffic, notice)] $($rest)*
        );
    };
    (@ $symbol:expr, [$($code:expr,)*] [$($operands:tt)*] open $($rest:tt)*) => {
        entry!(
            @ $symbol,
            [$($code,)* arch::open!(),]
            [$($operands)*, opened = sym TRAFFIC, open = const offset_of!(OwnTraffic, open)] $($rest)*
        );
    };
    (@ $symbol:expr, [$($code:expr,)*] [$($operands:tt)*] open_unless_chained($id:expr) $($rest:tt)*) => {
        entry!(
            @ $symbol,
            [$($code,)* arch::unless!(arch::open!()),]
            [
                $($operands)*,
                unless = const chained($id), opened = sym TRAFFIC, open = const offset_of!(OwnTraffic, open)
            ] $($rest)*
        );
    };
    (@ $symbol:expr, [$($code:expr,)*] [$($operands:tt)*] count($place:expr) $($rest:tt)*) => {
        entry!(
            @ $symbol,
            [$($code,)* arch::count!(),]
            [$($operands)*, calls = sym CALLS, call = const $place] $($rest)*
        );
    };
}

macro_rules! naked {
    ($symbol:expr, [$($code:expr),*], $($operands:tt)*) => {
        const _: () = {
            #[unsafe(naked)]
            #[unsafe(export_name = $symbol)]
            extern "C" fn entry() {
                core::arch::naked_asm!(arch::land!(), $($code,)* slots = sym SLOTS, $($operands)*)
            }
        };
    };
}

/// Exports both functions of a name. If calls of an `MPI_X` go to a profiler, they come back as calls of `PMPI_X`, and
/// only that one counts the request as open. Whether this is so is known once the table is filled, in the first call of
/// the process, which begins no request.
macro_rules! export {
    (Served $name:ident) => {
        entry!(stringify!($name), public(Id::$name));
        entry!(concat!("P", stringify!($name)), profiling(Id::$name));
    };
    (Counted $name:ident) => {
        entry!(stringify!($name), public(Id::$name), count(public_calls(Id::$name)));
        entry!(concat!("P", stringify!($name)), profiling(Id::$name), count(profiling_calls(Id::$name)));
    };
    (Opens $name:ident) => {
        entry!(stringify!($name), public(Id::$name), open_unless_chained(Id::$name));
        entry!(concat!("P", stringify!($name)), profiling(Id::$name), open);
    };
    (Begun $name:ident) => {
        entry!(
            stringify!($name),
            public(Id::$name),
            open_unless_chained(Id::$name) count(public_calls(Id::$name))
        );
        entry!(concat!("P", stringify!($name)), profiling(Id::$name), open count(profiling_calls(Id::$name)));
    };
    (Followed $name:ident) => {
        export!(Served $name);
    };
    (Noted $name:ident) => {
        entry!(stringify!($name), public(Id::$name), note(is_endless));
        entry!(concat!("P", stringify!($name)), profiling(Id::$name), note(is_endless));
    };
    (Window $name:ident) => {
        entry!(stringify!($name), public(Id::$name), note(has_windows));
        entry!(concat!("P", stringify!($name)), profiling(Id::$name), note(has_windows));
    };
    (OneSided $name:ident) => {
        entry!(stringify!($name), public(Id::$name), note(has_windows) raise);
        entry!(concat!("P", stringify!($name)), profiling(Id::$name), note(has_windows) raise);
    };
    (OneSidedBegun $name:ident) => {
        entry!(stringify!($name), public(Id::$name), raise open_unless_chained(Id::$name));
        entry!(concat!("P", stringify!($name)), profiling(Id::$name), raise open);
    };
    (Api $name:ident) => {
        entry!(stringify!($name), public(Id::$name));
    };
}

macro_rules! define {
    ($($kind:ident: $($name:ident)*;)*) => {
        /// The index of a name in `NAMES`, `SLOTS` and `CALLS`.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Id { $($($name,)*)* }

        const COUNT: usize = [$($(Id::$name,)*)*].len();

        /// The table of names.
        pub static NAMES: [Name; COUNT] = [$($(Name {
            kind: Kind::$kind,
            public: c_str(concat!(stringify!($name), "\0")),
            profiling: c_str(concat!("P", stringify!($name), "\0")),
        },)*)*];

        $($(export!($kind $name);)*)*
    };
}
names!(define);

/// The targets by index; all lazy until the first call is resolved.
pub static SLOTS: [Slot; COUNT] = [const {
    Slot { public: AtomicPtr::new(LAZY), profiling: AtomicPtr::new(LAZY), is_chained: AtomicBool::new(false) }
}; COUNT];

/// The counters by index, written by the entries.
static CALLS: [Calls; COUNT] = [const { Calls { public: AtomicU64::new(0), profiling: AtomicU64::new(0) } }; COUNT];

/// The program's own traffic, written by the entries and by `requests`.
pub static TRAFFIC: OwnTraffic = OwnTraffic {
    open: AtomicI64::new(0),
    is_endless: AtomicBool::new(false),
    has_windows: AtomicBool::new(false),
    notice: AtomicPtr::new((&raw const NOTICE).cast_mut()),
};

/// The notice's word that this process starts with; no other process sees it.
static NOTICE: AtomicU32 = AtomicU32::new(0);

const fn public(id: Id) -> usize {
    id as usize * size_of::<Slot>() + offset_of!(Slot, public)
}

const fn profiling(id: Id) -> usize {
    id as usize * size_of::<Slot>() + offset_of!(Slot, profiling)
}

const fn chained(id: Id) -> usize {
    id as usize * size_of::<Slot>() + offset_of!(Slot, is_chained)
}

const fn public_calls(id: Id) -> usize {
    id as usize * size_of::<Calls>() + offset_of!(Calls, public)
}

const fn profiling_calls(id: Id) -> usize {
    id as usize * size_of::<Calls>() + offset_of!(Calls, profiling)
}

/// The index of the name that `target` belongs to, and whether `target` is of its `PMPI_X`.
pub fn locate(target: &Target) -> (usize, bool) {
    let offset = target as *const Target as usize - SLOTS.as_ptr() as usize;
    let within = offset % size_of::<Slot>();
    (offset / size_of::<Slot>(), within == offset_of!(Slot, profiling))
}

/// The exported name that jumps to `target`.
pub fn name_of(target: &Target) -> &'static str {
    let (index, is_profiling) = locate(target);
    let Name { public, profiling, .. } = &NAMES[index];
    if is_profiling { profiling } else { public }.to_str().unwrap_or_default()
}

/// The index of the name spelled `MPI_X`.
pub fn index(name: &CStr) -> Option<usize> {
    NAMES.iter().position(|row| row.public == name)
}

/// How often the operation spelled `MPI_X` was called so far; 0 if it is neither `Counted` nor `Begun`. With a profiler
/// between `MPI_X` and `PMPI_X` a call goes through both, and only the second is counted here, which arrives at MPI.
pub fn calls(name: &CStr) -> u64 {
    let Some(index) = index(name) else {
        return 0;
    };
    let Calls { public, profiling } = &CALLS[index];
    let public = if SLOTS[index].is_chained.load(Relaxed) { 0 } else { public.load(Relaxed) };
    public + profiling.load(Relaxed)
}
