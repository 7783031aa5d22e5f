//! What huddle knows about datatypes, and for how long.

use crate::constructors::{Constructors, committed, free, make};
use huddle::kernel::Element;
use huddle::mpi::datatype::{Rejected, TypeLayout, TypeMap};
use huddle::mpi::handles::{Class, PredefinedOp, all_predefined, constants, predefined, predefined_op};
use mpi_sys::{MPI_Comm, MPI_Datatype};
use std::sync::{Arc, Barrier};

/// The tables have the datatypes and operations that every MPI has.
pub fn predefined_datatypes_are_known() {
    let c = constants();
    let all: Vec<_> = all_predefined().collect();
    assert!(all.len() >= 55, "only {} predefined datatypes", all.len());
    for known in &all {
        assert!(std::ptr::eq(predefined(known.handle).expect("in the table"), *known));
        if let Some(element) = known.element {
            assert_eq!(element.bytes(), known.size);
        }
        assert!(known.is_contiguous() || known.class == Class::Pair, "{known:?}");
    }
    assert_eq!(predefined(c.int).map(|known| (known.element, known.size)), Some((Some(Element::I32), 4)));
    assert_eq!(predefined(c.double).map(|known| (known.class, known.size)), Some((Class::Float, 8)));
    assert_eq!(all.iter().filter(|known| known.class == Class::Pair && !known.is_contiguous()).count(), 4);
    assert!(predefined(c.datatype_null).is_none());
    assert_eq!(predefined_op(c.sum), Some(PredefinedOp::Sum));
    assert_eq!(predefined_op(c.bor), Some(PredefinedOp::Bor));
    assert_eq!(predefined_op(c.op_null), None);
}

/// Only committed datatypes are valid, whether or not huddle looked at them before.
pub fn uncommitted_datatypes_are_rejected(make: &Constructors, comm: MPI_Comm) {
    let c = constants();
    // SAFETY: valid datatypes and a communicator of this process.
    unsafe {
        assert_eq!(TypeLayout::of(c.datatype_null, comm).map(|_| ()), Err(Rejected::Null));
        for datatype in [make!(make, contiguous, 3, c.int), make!(make, vector, 3, 1, 2, c.int)] {
            assert_eq!(TypeLayout::of(datatype, comm).map(|_| ()), Err(Rejected::NotCommitted));
            let datatype = committed(datatype);
            assert_eq!(TypeLayout::of(datatype, comm).map(|layout| layout.size), Ok(12));
            free(datatype);
        }
        if let Some(f90_real) = make.f90_real {
            let mut real = c.datatype_null;
            assert_eq!(f90_real(15, 300, &mut real), 0);
            let layout = TypeLayout::of(real, comm).expect("F90 types are predefined");
            assert!(matches!(layout.type_map, TypeMap::Contiguous { at: 0 }) && layout.size == 8);
        }
    }
}

/// Handles are used again after a free; what huddle knew about the freed datatype must not be.
pub fn layouts_follow_their_datatype(make: &Constructors, comm: MPI_Comm) {
    let c = constants();
    let mut reused = 0;
    let mut last = c.datatype_null;
    for round in 0..200 {
        let datatype = committed(make!(make, vector, 2 + round % 7, 1, 2, c.double));
        reused += i32::from(datatype == last);
        last = datatype;
        // SAFETY: valid datatypes and a communicator of this process.
        let looks = [(); 4].map(|()| unsafe { TypeLayout::of(datatype, comm) }.expect("committed"));
        let [layout, again, others @ ..] = looks;
        assert_eq!(layout.size, 8 * (2 + round as usize % 7));
        let are_found = others.iter().chain([&again]).all(|other| Arc::ptr_eq(&layout, other));
        assert!(are_found, "the attribute is found again");
        drop(others);
        let duplicate = make!(make, dup, datatype);
        // SAFETY: a valid datatype and a communicator of this process.
        let copy = unsafe { TypeLayout::of(duplicate, comm) }.expect("duplicates of committed datatypes are committed");
        assert!(!Arc::ptr_eq(&layout, &copy));
        free(duplicate);
        drop(again);
        let before = Arc::strong_count(&layout);
        free(datatype);
        assert_eq!(Arc::strong_count(&layout), before - 1, "the attribute was deleted with its datatype");
    }
    assert!(reused > 50, "this library does not reuse handles: the test shows nothing");
}

/// Datatypes of one call each, under handles that are used again, and among them one of many calls.
pub fn layouts_of_one_call_are_hardly_ever_kept(make: &Constructors, comm: MPI_Comm) {
    // SAFETY: valid datatypes and a communicator of this process.
    let look = |datatype| unsafe { TypeLayout::of(datatype, comm) }.expect("committed");
    let c = constants();
    let of_many = committed(make!(make, vector, 9, 1, 2, c.double));
    let mut kept = 0;
    let mut is_found_again = false;
    for round in 0..1000 {
        let datatype = committed(make!(make, vector, 2 + round % 7, 1, 2, c.double));
        let layout = look(datatype);
        assert_eq!(layout.size, 8 * (2 + round as usize % 7));
        // A call looks at both of its buffers.
        assert_eq!(look(datatype).size, layout.size);
        let before = Arc::strong_count(&layout);
        free(datatype);
        kept += before - Arc::strong_count(&layout);
        if round > 100 {
            is_found_again = Arc::ptr_eq(&look(of_many), &look(of_many));
        }
    }
    assert!(kept < 200, "{kept} of 1000");
    assert!(is_found_again);
    free(of_many);
}

/// A datatype and a communicator whose handles threads share.
struct Shared(MPI_Datatype, MPI_Comm);
// SAFETY: handles may be used by all threads (MPI_THREAD_MULTIPLE).
unsafe impl Sync for Shared {}

/// Runs a test in a thread that has made no datatypes.
pub fn in_new_thread(make: &Constructors, comm: MPI_Comm, test: fn(&Constructors, MPI_Comm)) {
    let shared = Shared(constants().datatype_null, comm);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let shared = &shared;
            test(make, shared.1);
        });
    });
}

/// What huddle found out about a freed datatype serves for a datatype that the same thread makes alike, also of other
/// datatypes inside, and for no other one.
pub fn layouts_serve_for_what_is_made_alike(make: &Constructors, comm: MPI_Comm) {
    let c = constants();
    let column = |blocks, extent| {
        let inner = make!(make, vector, blocks, 1, 4, c.double);
        let outer = committed(make!(make, resized, inner, 0, extent));
        // SAFETY: a valid datatype and a communicator of this process.
        let layout = unsafe { TypeLayout::of(outer, comm) }.expect("committed");
        free(inner);
        free(outer);
        layout
    };
    let first = column(5, 8);
    let others = [column(6, 8), column(5, 16)];
    assert!(Arc::ptr_eq(&first, &column(5, 8)));
    assert_eq!(others.map(|other| (other.size, other.extent)), [(48, 8), (40, 16)]);
    (7..20).for_each(|blocks| assert_eq!(column(blocks, 8).size, 8 * blocks as usize));
    assert!(!Arc::ptr_eq(&first, &column(5, 8)), "it is long ago");
    assert_eq!(Arc::strong_count(&first), 1);
}

/// Two threads look at a new datatype at the same time.
pub fn threads_may_look_at_once(make: &Constructors, comm: MPI_Comm) {
    for round in 0..100 {
        let shared = Shared(committed(make!(make, vector, 3 + round % 5, 1, 2, constants().int)), comm);
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let shared = &shared;
                    start.wait();
                    // SAFETY: a valid datatype and a communicator of this process.
                    let layout = unsafe { TypeLayout::of(shared.0, shared.1) }.expect("committed");
                    assert_eq!(layout.size, 4 * (3 + round as usize % 5));
                });
            }
        });
        free(shared.0);
    }
}
