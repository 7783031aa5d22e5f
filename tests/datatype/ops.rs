//! Operations on packed operands, compared with `MPI_Reduce_local`.

use crate::Random;
use crate::constructors::{Constructors, committed, free, make};
use huddle::kernel::PackedBuffer;
use huddle::mpi::datatype::{Rejected, TypeLayout};
use huddle::mpi::handles::{Class, Legality, Predefined, PredefinedOp, all_ops, all_predefined, constants};
use huddle::mpi::native::native;
use huddle::mpi::op::Operator;
use huddle::mpi::view::View;
use huddle::tune::OperatorClass;
use mpi_sys::{MPI_Aint, MPI_Comm, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};

/// One packed number of `size` bytes with an ordinary value.
fn number(class: Class, size: usize, random: &mut Random) -> Vec<u8> {
    // Observed: Open MPI 4.1.4 saturates sums of one and two bytes where the processor can; so nothing overflows here.
    let small = if size == 1 { random.between(-11, 11) } else { random.between(-100, 100) };
    match (class, size) {
        (Class::Float, 4) => (small as f32 / 4.0).to_le_bytes().to_vec(),
        (Class::Float, 8) => (small as f64 / 4.0).to_le_bytes().to_vec(),
        // Half, extended and quadruple precision: zeros.
        (Class::Float, _) => vec![0; size],
        (Class::Bool | Class::Logical, _) => i128::from(small > 0).to_le_bytes()[..size].to_vec(),
        // Observed: MPICH 4.0.2 compares MPI_UINT16_T as signed, Open MPI 4.1.4 MPI_AINT as unsigned.
        (Class::Unsigned | Class::Address, _) => small.unsigned_abs().to_le_bytes()[..size].to_vec(),
        _ => (small as i128).to_le_bytes()[..size.min(16)].to_vec(),
    }
}

/// `count` packed elements with ordinary values.
fn values(known: &Predefined, count: usize, random: &mut Random) -> Vec<u8> {
    let element = |random: &mut Random| match known.class {
        Class::Complex => [known.size / 2; 2].map(|size| number(Class::Float, size, random)).concat(),
        // Small numbers, whether the members are integers or floating point.
        Class::Pair => (0..known.size).map(|at| if at % 4 < 2 { random.below(256) as u8 } else { 0 }).collect(),
        class => number(class, known.size, random),
    };
    (0..count).flat_map(|_| element(random)).collect()
}

/// The packed result of `MPI_Reduce_local` on packed operands: `left op right`.
fn expected(op: MPI_Op, datatype: MPI_Datatype, left: &[u8], right: &[u8], count: usize, comm: MPI_Comm) -> Vec<u8> {
    // SAFETY: a valid datatype.
    let layout = unsafe { TypeLayout::of(datatype, comm) }.expect("valid");
    let room = (layout.extent as usize * count + layout.true_extent) / 16 + 8;
    let (mut input, mut inout) = (vec![0u128; room], vec![0u128; room]);
    let mut result = vec![0; right.len()];
    // SAFETY: both buffers hold `count` elements after the first words.
    unsafe {
        let (from, to) = (input.as_mut_ptr().add(4), inout.as_mut_ptr().add(4));
        View::new(from.cast(), count as u64, datatype, comm).expect("valid").write(0, left.as_ptr(), left.len());
        let view = View::new(to.cast(), count as u64, datatype, comm).expect("valid");
        view.write(0, right.as_ptr(), right.len());
        assert_eq!(native().reduce_local(from.cast(), to.cast(), count as c_int, datatype, op), 0);
        view.read(0, result.as_mut_ptr(), right.len());
    }
    result
}

/// Compares `operator` with the expected result, whatever the result replaces and wherever the operands lie.
fn compare(operator: &Operator, left: &[u8], right: &[u8], expected: &[u8], what: &str) {
    for shift in [0, 1, 8] {
        let place = |bytes: &[u8]| [vec![0; 16 + shift], bytes.to_vec(), vec![0; 16]].concat();
        for target in ["apart", "left", "right"] {
            let (mut left, mut right, mut apart) = (place(left), place(right), place(&vec![0; expected.len()]));
            let at = |bytes: &mut Vec<u8>| bytes.as_mut_ptr().wrapping_add(16 + shift);
            let (left_at, right_at) = (at(&mut left), at(&mut right));
            let to = match target {
                "apart" => at(&mut apart),
                "left" => left_at,
                _ => right_at,
            };
            // SAFETY: all have `expected.len()` bytes.
            unsafe {
                operator.as_combine().combine(to, left_at, right_at, expected.len());
                let result = std::slice::from_raw_parts(to, expected.len());
                assert_eq!(result, expected, "{what}, result {target}, shifted by {shift}");
            }
        }
    }
}

/// The numbers of a datatype of `MPI_Type_create_f90_real` decide whether huddle or the library computes with it, as on
/// a rank that knows the same type by another name.
pub fn numbers_of_fortran_are_as_others(make: &Constructors, comm: MPI_Comm) {
    let c = constants();
    let Some(f90_real) = make.f90_real else { return };
    for (digits, expected) in
        [(6, OperatorClass::Predefined), (15, OperatorClass::Predefined), (18, OperatorClass::Library)]
    {
        let mut real = c.datatype_null;
        // SAFETY: a valid place for the handle; libraries without such numbers say so.
        if unsafe { f90_real(digits, 4, &mut real) } != c.success || real == c.datatype_null {
            assert!(digits > 15, "no real of {digits} digits");
            continue;
        }
        let sum = all_ops().into_iter().find(|(_, name)| *name == PredefinedOp::Sum).expect("a sum").0;
        // SAFETY: valid handles and a communicator of this process.
        let operator = unsafe { Operator::resolve(sum, real, comm) };
        assert_eq!(operator.ok().map(|operator| operator.class()), Some(expected), "{digits} digits");
    }
}

/// Compares every predefined operation on every predefined datatype that the standard or the library allows.
pub fn predefined_operations_agree(comm: MPI_Comm) {
    let mut random = Random(11);
    let (mut kernels, mut others) = (0, 0);
    for known in all_predefined() {
        for (op, name) in all_ops() {
            // SAFETY: valid handles and a communicator of this process.
            let operator = unsafe { Operator::resolve(op, known.handle, comm) };
            let Ok(operator) = operator else {
                assert_eq!(known.legality(name), Legality::Unknown, "{name:?} on {known:?}");
                continue;
            };
            if !name.is_defined_on(known.class)
                && operator.as_combine().kernel().is_none()
                && matches!(name, PredefinedOp::Land | PredefinedOp::Lor | PredefinedOp::Lxor)
            {
                continue; // MPICH 4.0.2 accepts these on floating point, and aborts when it computes them.
            }
            let is_longer = matches!((known.class, known.size), (Class::Float, 16) | (Class::Complex, 32));
            let class = if is_longer { OperatorClass::Library } else { OperatorClass::Predefined };
            assert_eq!(operator.class(), class, "{name:?} on {known:?}");
            assert!(operator.is_commutative() && operator.granule() == known.size);
            for count in [0, 1, 5, 1200] {
                let (left, right) = (values(known, count, &mut random), values(known, count, &mut random));
                let expected = expected(op, known.handle, &left, &right, count, comm);
                compare(&operator, &left, &right, &expected, &format!("{name:?} on {count} of {known:?}"));
            }
            *if operator.as_combine().kernel().is_some() { &mut kernels } else { &mut others } += 1;
        }
    }
    assert!(kernels > 200 && others > 20, "{kernels} pairs have kernels, {others} are the library's");
}

/// `inout = in · inout` for 2 × 2 matrices of `double`, row by row: not commutative.
unsafe extern "C" fn matrices(input: *mut c_void, inout: *mut c_void, count: *mut c_int, _datatype: *mut MPI_Datatype) {
    // SAFETY: the library passes `count` elements.
    unsafe {
        for at in 0..*count as usize {
            let (a, b) = (input.cast::<[f64; 4]>().add(at).read(), inout.cast::<[f64; 4]>().add(at));
            let c = b.read();
            b.write([
                a[0] * c[0] + a[1] * c[2],
                a[0] * c[1] + a[1] * c[3],
                a[2] * c[0] + a[3] * c[2],
                a[2] * c[1] + a[3] * c[3],
            ]);
        }
    }
}

/// `inout = in - inout` on `{ double, int }` with padding, which must survive.
unsafe extern "C" fn differences(
    input: *mut c_void,
    inout: *mut c_void,
    count: *mut c_int,
    _datatype: *mut MPI_Datatype,
) {
    /// A struct with padding.
    #[repr(C)]
    struct Pair(f64, i32);
    // SAFETY: the library passes `count` elements, aligned.
    unsafe {
        assert!(input.cast::<Pair>().is_aligned() && inout.cast::<Pair>().is_aligned());
        for at in 0..*count as usize {
            let (left, right) = (&*input.cast::<Pair>().add(at), &mut *inout.cast::<Pair>().add(at));
            right.0 = left.0 - right.0;
            right.1 = left.1 - right.1;
        }
    }
}

/// User-defined operations, not commutative, on contiguous datatypes and on datatypes with padding.
pub fn user_operations_keep_their_order(make: &Constructors, comm: MPI_Comm) {
    let mut random = Random(13);
    let c = constants();
    let (lengths, places, types): ([c_int; 2], [MPI_Aint; 2], _) = ([1, 1], [0, 8], [c.double, c.int]);
    let record = make!(make, structure, 2, lengths.as_ptr(), places.as_ptr(), types.as_ptr());
    let cases = [
        (committed(make!(make, contiguous, 4, c.double)), matrices as unsafe extern "C" fn(_, _, _, _), 32),
        (committed(make!(make, resized, record, 0, 16)), differences, 12),
    ];
    for (datatype, function, granule) in cases {
        let mut op = c.op_null;
        // SAFETY: a function with the right signature.
        assert_eq!(unsafe { native().op_create(Some(function), 0, &mut op) }, 0);
        // SAFETY: valid handles.
        let operator = unsafe { Operator::resolve(op, datatype, comm) }.expect("any datatype will do");
        assert_eq!(operator.class(), OperatorClass::User);
        assert!(!operator.is_commutative() && operator.granule() == granule);
        for count in [0, 1, 3, 4000] {
            let element = |random: &mut Random| match granule {
                32 => [8; 4].map(|size| number(Class::Float, size, random)).concat(),
                _ => [number(Class::Float, 8, random), number(Class::Signed, 4, random)].concat(),
            };
            let mut operand = || (0..count).flat_map(|_| element(&mut random)).collect::<Vec<u8>>();
            let (left, right) = (operand(), operand());
            let expected = expected(op, datatype, &left, &right, count, comm);
            compare(&operator, &left, &right, &expected, &format!("a user's operation on {count} of {granule} bytes"));
        }
        drop(operator);
        // SAFETY: nobody uses the operation any more.
        unsafe { native().op_free(&mut op) };
        free(datatype);
    }
    free(record);
}

/// huddle rejects what the library rejects.
pub fn illegal_operations_are_rejected(make: &Constructors, comm: MPI_Comm) {
    let c = constants();
    // SAFETY: valid handles, a communicator of this process.
    unsafe {
        let rejected = |op, datatype| Operator::resolve(op, datatype, comm).err();
        assert_eq!(rejected(c.op_null, c.int), Some(Rejected::Null));
        assert_eq!(rejected(c.sum, c.datatype_null), Some(Rejected::Null));
        assert_eq!(rejected(c.band, c.double), Some(Rejected::NotDefined));
        assert_eq!(rejected(c.band, c.double), Some(Rejected::NotDefined));
        let pair = make!(make, contiguous, 2, c.int);
        assert_eq!(rejected(c.sum, pair), Some(Rejected::NotCommitted));
        let pair = committed(pair);
        assert_eq!(rejected(c.sum, pair), Some(Rejected::NotDefined));
        assert_eq!(rejected(c.sum, c.int), None);
        free(pair);
    }
}
