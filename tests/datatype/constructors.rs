//! The constructors of datatypes, which the engine itself does not use, and random datatypes made by them.

use crate::Random;
use huddle::mpi::handles::{Class, Predefined, all_predefined, constants};
use huddle::mpi::native::native;
use mpi_sys::{MPI_Aint, MPI_Count, MPI_Datatype};
use std::ffi::{CString, c_int, c_void};

macro_rules! constructors {
    ($($name:ident $symbol:literal ($($type:ty),*);)*) => {
        /// Functions of the library; `None` for those that it lacks.
        #[allow(missing_docs)]
        pub struct Constructors { $(pub $name: Option<unsafe extern "C" fn($($type),*) -> c_int>,)* }

        impl Constructors {
            /// Looks the functions up in the library.
            pub fn load(handle: *mut c_void) -> Self {
                Self { $($name: {
                    let name = CString::new($symbol).expect("no NUL");
                    // SAFETY: the signature is that of the standard.
                    unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) -> c_int>>(
                        libc::dlsym(handle, name.as_ptr())) }
                },)* }
            }
        }
    };
}

type Ints = *const c_int;
type Addresses = *const MPI_Aint;
type Old = MPI_Datatype;
type New = *mut MPI_Datatype;

constructors! {
    dup "PMPI_Type_dup" (Old, New);
    contiguous "PMPI_Type_contiguous" (c_int, Old, New);
    vector "PMPI_Type_vector" (c_int, c_int, c_int, Old, New);
    hvector "PMPI_Type_create_hvector" (c_int, c_int, MPI_Aint, Old, New);
    indexed "PMPI_Type_indexed" (c_int, Ints, Ints, Old, New);
    hindexed "PMPI_Type_create_hindexed" (c_int, Ints, Addresses, Old, New);
    indexed_block "PMPI_Type_create_indexed_block" (c_int, c_int, Ints, Old, New);
    hindexed_block "PMPI_Type_create_hindexed_block" (c_int, c_int, Addresses, Old, New);
    structure "PMPI_Type_create_struct" (c_int, Ints, Addresses, *const MPI_Datatype, New);
    subarray "PMPI_Type_create_subarray" (c_int, Ints, Ints, Ints, c_int, Old, New);
    darray "PMPI_Type_create_darray" (c_int, c_int, c_int, Ints, Ints, Ints, Ints, c_int, Old, New);
    resized "PMPI_Type_create_resized" (Old, MPI_Aint, MPI_Aint, New);
    f90_real "PMPI_Type_create_f90_real" (c_int, c_int, New);
    get_address "PMPI_Get_address" (*const c_void, *mut MPI_Aint);
    contiguous_c "PMPI_Type_contiguous_c" (MPI_Count, Old, New);
    vector_c "PMPI_Type_vector_c" (MPI_Count, MPI_Count, MPI_Count, Old, New);
    hvector_c "PMPI_Type_create_hvector_c" (MPI_Count, MPI_Count, MPI_Count, Old, New);
    indexed_c "PMPI_Type_indexed_c" (MPI_Count, *const MPI_Count, *const MPI_Count, Old, New);
    hindexed_c "PMPI_Type_create_hindexed_c" (MPI_Count, *const MPI_Count, *const MPI_Count, Old, New);
    hindexed_block_c "PMPI_Type_create_hindexed_block_c" (MPI_Count, MPI_Count, *const MPI_Count, Old, New);
    structure_c "PMPI_Type_create_struct_c" (MPI_Count, *const MPI_Count, *const MPI_Count, *const MPI_Datatype, New);
    subarray_c "PMPI_Type_create_subarray_c" (c_int, *const MPI_Count, *const MPI_Count, *const MPI_Count, c_int, Old, New);
    darray_c "PMPI_Type_create_darray_c" (c_int, c_int, c_int, *const MPI_Count, Ints, Ints, Ints, c_int, Old, New);
    resized_c "PMPI_Type_create_resized_c" (Old, MPI_Count, MPI_Count, New);
}

/// Frees a datatype.
pub fn free(mut datatype: MPI_Datatype) {
    // SAFETY: a derived datatype that nobody uses any more.
    assert_eq!(unsafe { native().type_free(&mut datatype) }, 0);
}

/// Commits a datatype.
pub fn committed(mut datatype: MPI_Datatype) -> MPI_Datatype {
    // SAFETY: a valid datatype.
    assert_eq!(unsafe { native().type_commit(&mut datatype) }, 0);
    datatype
}

/// Calls a constructor that has to exist.
macro_rules! make {
    ($constructors:expr, $name:ident, $($argument:expr),*) => {{
        let mut new = huddle::mpi::handles::constants().datatype_null;
        // SAFETY: valid arguments; arrays have the lengths that the counts say.
        #[allow(unused_unsafe)]
        let code = unsafe { ($constructors.$name.expect(stringify!($name)))($($argument),*, &mut new) };
        assert_eq!(code, 0, stringify!($name));
        new
    }};
}
pub(crate) use make;

/// A random predefined datatype without long doubles: MPICH 4.0.2 packs the ten bytes of their values and zeros.
pub fn basic(random: &mut Random) -> &'static Predefined {
    let is_extended = |known: &Predefined| match known.class {
        Class::Float | Class::Complex => known.element.is_none(),
        Class::Pair => known.size > 16,
        _ => false,
    };
    let mut all: Vec<_> = all_predefined().filter(|known| !is_extended(known)).collect();
    all.sort_by_key(|known| known.index);
    all[random.below(all.len())]
}

/// A random datatype, not committed, nested at most `depth` times; appends its description for messages to `names`.
///
/// Every datatype here has data, also inside others. Open MPI 4.1.4 packs elements of a struct with an empty member at
/// other distances than the extent that it reports, and MPICH 4.0.2 divides by zero when it packs some datatypes made
/// of empty ones.
pub fn random_datatype(make: &Constructors, random: &mut Random, depth: usize, names: &mut String) -> MPI_Datatype {
    loop {
        let mut name = String::new();
        let datatype = any_datatype(make, random, depth, &mut name);
        let mut size = 0;
        // SAFETY: a valid datatype.
        assert_eq!(unsafe { native().type_size(datatype, &mut size) }, 0);
        if size > 0 {
            names.push_str(&name);
            return datatype;
        }
        free(datatype);
    }
}

fn any_datatype(make: &Constructors, random: &mut Random, depth: usize, names: &mut String) -> MPI_Datatype {
    if depth == 0 {
        let basic = basic(random);
        names.push_str(&format!("{:?}{}", basic.class, basic.size));
        // A duplicate, so that every datatype here can be freed.
        return make!(make, dup, basic.handle);
    }
    let kind = random.below(11);
    if kind == 10 {
        return random_struct(make, random, depth, names);
    }
    let mut inner = String::new();
    let old = random_datatype(make, random, depth - 1, &mut inner);
    let n = random.below(5) as c_int;
    let length = random.below(4) as c_int;
    let stride = random.between(-5, 6) as c_int;
    let bytes = random.between(-90, 120) as MPI_Aint;
    let ints = |random: &mut Random, low, high| (0..n).map(|_| random.between(low, high) as c_int).collect::<Vec<_>>();
    let (lengths, units) = (ints(random, 0, 3), ints(random, -6, 9));
    let places: Vec<MPI_Aint> = ints(random, -90, 120).into_iter().map(|place| place as MPI_Aint).collect();
    let (new, name) = match kind {
        0 => (make!(make, dup, old), "dup".to_owned()),
        1 => (make!(make, contiguous, n, old), format!("contiguous {n}")),
        2 => (make!(make, vector, n, length, stride, old), format!("vector {n} × {length} every {stride}")),
        3 => (make!(make, hvector, n, length, bytes, old), format!("hvector {n} × {length} every {bytes}")),
        4 => {
            let new = make!(make, indexed, n, lengths.as_ptr(), units.as_ptr(), old);
            (new, format!("indexed {lengths:?} at {units:?}"))
        }
        5 => {
            let new = make!(make, hindexed, n, lengths.as_ptr(), places.as_ptr(), old);
            (new, format!("hindexed {lengths:?} at {places:?}"))
        }
        6 => {
            let new = make!(make, indexed_block, n, length, units.as_ptr(), old);
            (new, format!("indexed {length} at {units:?}"))
        }
        7 => {
            let new = make!(make, hindexed_block, n, length, places.as_ptr(), old);
            (new, format!("hindexed {length} at {places:?}"))
        }
        8 => (make!(make, resized, old, bytes, bytes.abs()), format!("resized {bytes} {}", bytes.abs())),
        _ => (random_subarray(make, random, old), "subarray".to_owned()),
    };
    free(old);
    names.push_str(&format!("{name} ({inner})"));
    new
}

fn random_subarray(make: &Constructors, random: &mut Random, old: MPI_Datatype) -> MPI_Datatype {
    let dimensions = 1 + random.below(3);
    let (mut sizes, mut subsizes, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..dimensions {
        let size = 1 + random.below(4);
        let subsize = 1 + random.below(size);
        sizes.push(size as c_int);
        subsizes.push(subsize as c_int);
        starts.push(random.below(size - subsize + 1) as c_int);
    }
    let order = if random.below(2) == 0 { constants().order_c } else { constants().order_fortran };
    let (sizes, subsizes, starts) = (sizes.as_ptr(), subsizes.as_ptr(), starts.as_ptr());
    make!(make, subarray, dimensions as c_int, sizes, subsizes, starts, order, old)
}

fn random_struct(make: &Constructors, random: &mut Random, depth: usize, names: &mut String) -> MPI_Datatype {
    let n = 1 + random.below(3);
    let olds: Vec<MPI_Datatype> = (0..n).map(|_| random_datatype(make, random, depth - 1, names)).collect();
    let lengths: Vec<c_int> = (0..n).map(|_| random.below(3) as c_int).collect();
    let places: Vec<MPI_Aint> = (0..n).map(|_| random.between(-100, 150) as MPI_Aint).collect();
    names.push_str(&format!(" struct {lengths:?} at {places:?}"));
    let new = make!(make, structure, n as c_int, lengths.as_ptr(), places.as_ptr(), olds.as_ptr());
    olds.into_iter().for_each(free);
    new
}
