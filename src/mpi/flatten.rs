//! Flattening a datatype: from the calls that made it (`MPI_Type_get_envelope`, `MPI_Type_get_contents`) to [`Segments`].
//!
//! Sizes and extents always come from the library, also of the inner datatypes, so alignment rules and the old bound markers
//! need no second implementation here. Handles that `get_contents` returns are freed again unless they are predefined; the
//! types made by `MPI_Type_create_f90_*` count as predefined.

use crate::kernel::segments::{Builder, Segments, TooComplex};
use crate::mpi::handles::{Class, Predefined, constants, predefined};
use crate::mpi::native::native;
use mpi_sys::{MPI_Aint, MPI_Count, MPI_Datatype};
use smallvec::SmallVec;
use std::ffi::c_int;

/// Datatypes nested more deeply are not flattened.
const DEEPEST: usize = 48;

/// Runs of a flattened datatype; more are allowed only to huge datatypes, where they are a small part of the data.
pub(super) fn most_runs(size: usize) -> usize {
    (1 << 16).max(size / 2048)
}

/// A flattened datatype: `times` copies of `segments` after one another.
#[derive(Debug)]
pub(super) struct Flattened {
    pub(super) segments: Segments,
    pub(super) times: usize,
}

/// What the library says about the size of a datatype.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) size: usize,
    pub(super) extent: isize,
    pub(super) true_lb: isize,
    pub(super) true_extent: usize,
}

/// Size and extents of `datatype`, none if the library can't tell them (`MPI_UNDEFINED`) or they exceed the address space.
///
/// # Safety
/// MPI is initialised, and `datatype` is valid and not null.
pub(super) unsafe fn extent(datatype: MPI_Datatype) -> Option<Extent> {
    if let Some(&Predefined { size, extent, .. }) = predefined(datatype).filter(|known| known.is_contiguous()) {
        // Known since MPI_Init: that saves three calls for each constructor.
        return Some(Extent { size, extent: extent as isize, true_lb: 0, true_extent: size });
    }
    let (mut size, mut lb, mut extent): (MPI_Count, MPI_Count, MPI_Count) = (0, 0, 0);
    let (mut true_lb, mut true_extent): (MPI_Count, MPI_Count) = (0, 0);
    // SAFETY: a valid datatype and valid places for the results.
    let codes = unsafe {
        [
            native().type_size_x(datatype, &mut size),
            native().type_get_extent_x(datatype, &mut lb, &mut extent),
            native().type_get_true_extent_x(datatype, &mut true_lb, &mut true_extent),
        ]
    };
    if codes != [constants().success; 3] {
        return None;
    }
    if size == 0 {
        // Observed: Open MPI 4.1.4 gives empty datatypes true bounds at the ends of the address space.
        (true_lb, true_extent) = (0, 0);
    }
    Some(Extent {
        size: usize::try_from(size).ok()?,
        extent: isize::try_from(extent).ok()?,
        true_lb: isize::try_from(true_lb).ok()?,
        true_extent: usize::try_from(true_extent).ok()?,
    })
}

/// Flattens `datatype`, whose size and extents are `known`.
///
/// # Errors
/// If it has too many pieces, or was made in a way that isn't known here; then only the library can handle it.
///
/// # Safety
/// MPI is initialised, and `datatype` is valid and not null.
pub(super) unsafe fn flatten(datatype: MPI_Datatype, known: &Extent) -> Result<Flattened, TooComplex> {
    let most = most_runs(known.size);
    // SAFETY: the caller's promise, which holds for the datatypes inside as well.
    unsafe {
        let construction = construction(datatype)?;
        // Many copies of a type with many pieces are kept as copies.
        if let Construction::Derived(contents) = &construction
            && contents.combiner == constants().combiner_contiguous
        {
            let child = layout(contents.datatype(0)?, most, 1)?;
            let times = contents.count(0)?;
            let length = isize::try_from(times).ok().and_then(|n| n.checked_mul(child.extent()));
            if child.runs() > 1 && length == Some(known.extent) {
                return Ok(Flattened { segments: child, times });
            }
        }
        Ok(Flattened { segments: laid_out(datatype, &construction, known, most, 0)?, times: 1 })
    }
}

/// How a datatype was made.
enum Construction {
    /// It lies in memory as it is packed.
    Basic,
    /// By a constructor.
    Derived(Contents),
}

/// The arguments of a constructor. Numbers are in the order of the standard, large counts like small ones.
struct Contents {
    combiner: c_int,
    numbers: Few<i64>,
    addresses: Few<MPI_Aint>,
    datatypes: Few<MPI_Datatype>,
}

/// As many as most constructors have need no memory of the heap: programs make datatypes for each call.
type Few<T> = SmallVec<[T; 8]>;

impl Contents {
    fn number(&self, index: usize) -> Result<isize, TooComplex> {
        self.numbers.get(index).and_then(|&number| isize::try_from(number).ok()).ok_or(TooComplex)
    }

    fn count(&self, index: usize) -> Result<usize, TooComplex> {
        self.number(index).and_then(|number| usize::try_from(number).map_err(|_| TooComplex))
    }

    fn datatype(&self, index: usize) -> Result<MPI_Datatype, TooComplex> {
        self.datatypes.get(index).copied().ok_or(TooComplex)
    }

    /// The displacement in bytes with this index; `numbers_before` numbers precede the displacements where these are large
    /// counts.
    fn address(&self, index: usize, numbers_before: usize) -> Result<isize, TooComplex> {
        match self.addresses.get(index) {
            Some(address) => Ok(isize::from_ne_bytes(address.to_ne_bytes())),
            None => self.number(numbers_before + index),
        }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        for &mut mut datatype in &mut self.datatypes {
            // SAFETY: `get_contents` returned these handles for us to free, but for predefined ones.
            unsafe {
                if predefined(datatype).is_none() && !is_basic(datatype) {
                    native().type_free(&mut datatype);
                }
            }
        }
    }
}

/// What made a datatype and with how many arguments: integers, addresses, large counts, datatypes.
///
/// # Safety
/// As for [`flatten`].
unsafe fn envelope(datatype: MPI_Datatype) -> Option<(c_int, [usize; 4])> {
    let mut combiner = 0;
    let count = |number: MPI_Count| usize::try_from(number).ok();
    if let Some(type_get_envelope_c) = native().type_get_envelope_c {
        let mut counts: [MPI_Count; 4] = [0; 4];
        let [integers, addresses, large, datatypes] = &mut counts;
        // SAFETY: a valid datatype and valid places for the results.
        let code = unsafe { type_get_envelope_c(datatype, integers, addresses, large, datatypes, &mut combiner) };
        let [integers, addresses, large, datatypes] = counts.map(count);
        return (code == constants().success).then_some((combiner, [integers?, addresses?, large?, datatypes?]));
    }
    let mut counts: [c_int; 3] = [0; 3];
    let [integers, addresses, datatypes] = &mut counts;
    // SAFETY: as above.
    let code = unsafe { native().type_get_envelope(datatype, integers, addresses, datatypes, &mut combiner) };
    let [integers, addresses, datatypes] = counts.map(|number| count(MPI_Count::from(number)));
    (code == constants().success).then_some((combiner, [integers?, addresses?, 0, datatypes?]))
}

/// Whether a datatype is predefined in the sense of the standard, even if it isn't in our table.
///
/// # Safety
/// As for [`flatten`].
unsafe fn is_basic(datatype: MPI_Datatype) -> bool {
    // SAFETY: the caller's promise.
    unsafe { constructor(datatype) }.is_none()
}

/// What made a derived datatype, as [`envelope`]; none of a basic one, and of what can't be examined, which is better left alone.
///
/// # Safety
/// As for [`flatten`].
unsafe fn constructor(datatype: MPI_Datatype) -> Option<(c_int, [usize; 4])> {
    let is_derived = |combiner| combiner != constants().combiner_named && class_by_f90(combiner).is_none();
    // SAFETY: the caller's promise.
    unsafe { envelope(datatype) }.filter(|(combiner, _)| is_derived(*combiner))
}

/// What numbers are the elements of a datatype of `MPI_Type_create_f90_*`.
///
/// # Safety
/// As for [`flatten`].
pub unsafe fn class_of_f90(datatype: MPI_Datatype) -> Option<Class> {
    // SAFETY: the caller's promise.
    unsafe { envelope(datatype) }.and_then(|(combiner, _)| class_by_f90(combiner))
}

/// The same by what made the datatype.
fn class_by_f90(combiner: c_int) -> Option<Class> {
    let c = constants();
    let classes = [
        (c.combiner_f90_real, Class::Float),
        (c.combiner_f90_complex, Class::Complex),
        (c.combiner_f90_integer, Class::FortranInteger),
    ];
    classes.iter().find(|(known, _)| *known == combiner).map(|(_, class)| *class)
}

/// How `datatype` was made.
///
/// # Safety
/// As for [`flatten`].
unsafe fn construction(datatype: MPI_Datatype) -> Result<Construction, TooComplex> {
    // SAFETY: the caller's promise; the arrays have the lengths that the library asked for.
    unsafe {
        if predefined(datatype).is_some() {
            return Ok(Construction::Basic);
        }
        let Some((combiner, [n_integers, n_addresses, n_large, n_datatypes])) = constructor(datatype) else {
            return Ok(Construction::Basic);
        };
        let mut integers: Few<c_int> = Few::from_elem(0, n_integers);
        let mut addresses: Few<MPI_Aint> = Few::from_elem(0, n_addresses);
        let mut large: Few<MPI_Count> = Few::from_elem(0, n_large);
        let mut datatypes = Few::from_elem(constants().datatype_null, n_datatypes);
        let code = match native().type_get_contents_c {
            Some(type_get_contents_c) => type_get_contents_c(
                datatype,
                n_integers as MPI_Count,
                n_addresses as MPI_Count,
                n_large as MPI_Count,
                n_datatypes as MPI_Count,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                large.as_mut_ptr(),
                datatypes.as_mut_ptr(),
            ),
            None => native().type_get_contents(
                datatype,
                n_integers as c_int,
                n_addresses as c_int,
                n_datatypes as c_int,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                datatypes.as_mut_ptr(),
            ),
        };
        if code != constants().success {
            return Err(TooComplex);
        }
        let mut numbers: Few<i64> = integers.into_iter().map(i64::from).collect();
        // With large counts all numbers are such, but for the dimensions and the order of a subarray around them.
        numbers.insert_many(numbers.len().min(1), large);
        Ok(Construction::Derived(Contents { combiner, numbers, addresses, datatypes }))
    }
}

/// The layout of one element of `datatype`.
///
/// # Safety
/// As for [`flatten`].
unsafe fn layout(datatype: MPI_Datatype, most: usize, depth: usize) -> Result<Segments, TooComplex> {
    if depth > DEEPEST {
        return Err(TooComplex);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let known = extent(datatype).ok_or(TooComplex)?;
        laid_out(datatype, &construction(datatype)?, &known, most, depth)
    }
}

/// The layout of one element of `datatype`, which was made by `construction`, and whose size and extents are `known`.
///
/// # Safety
/// As for [`flatten`].
unsafe fn laid_out(
    datatype: MPI_Datatype,
    construction: &Construction,
    known: &Extent,
    most: usize,
    depth: usize,
) -> Result<Segments, TooComplex> {
    let mut builder = Builder::new(most);
    match construction {
        Construction::Basic => match predefined(datatype).and_then(|predefined| predefined.second) {
            Some((second_at, second_size)) if known.size > second_size => {
                builder.push(0, known.size - second_size)?;
                builder.push(second_at as isize, second_size)?;
            }
            // Bound markers have no data; a hole that isn't known leaves the datatype to the library.
            _ if known.size != 0 && known.size != known.true_extent => return Err(TooComplex),
            _ => builder.push(known.true_lb, known.size)?,
        },
        // SAFETY: the caller's promise holds for the datatypes inside as well.
        Construction::Derived(contents) => unsafe { add(&mut builder, contents, most, depth) }?,
    }
    let segments = builder.finish(known.extent)?;
    // A check on the reading of the envelope: the library knows the size.
    if segments.size() == known.size { Ok(segments) } else { Err(TooComplex) }
}

/// Adds what a constructor made.
///
/// # Safety
/// As for [`flatten`].
unsafe fn add(builder: &mut Builder, contents: &Contents, most: usize, depth: usize) -> Result<(), TooComplex> {
    let constants = constants();
    let combiner = contents.combiner;
    if combiner == constants.combiner_struct {
        let count = contents.count(0)?;
        for index in 0..count {
            // SAFETY: the caller's promise.
            let child = unsafe { layout(contents.datatype(index)?, most, depth + 1) }?;
            let at = contents.address(index, 1 + count)?;
            builder.push_all(&child, at, child.extent(), contents.count(1 + index)?)?;
        }
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let child = unsafe { layout(contents.datatype(0)?, most, depth + 1) }?;
    let extent = child.extent();
    let units = |number: isize| number.checked_mul(extent).ok_or(TooComplex);
    if combiner == constants.combiner_dup || combiner == constants.combiner_resized {
        builder.push_all(&child, 0, 0, 1)
    } else if combiner == constants.combiner_contiguous {
        builder.push_all(&child, 0, extent, contents.count(0)?)
    } else if combiner == constants.combiner_vector {
        let block = block(&child, contents.count(1)?, most)?;
        builder.push_all(&block, 0, units(contents.number(2)?)?, contents.count(0)?)
    } else if combiner == constants.combiner_hvector {
        let block = block(&child, contents.count(1)?, most)?;
        builder.push_all(&block, 0, contents.address(0, 2)?, contents.count(0)?)
    } else if combiner == constants.combiner_indexed {
        let count = contents.count(0)?;
        (0..count).try_for_each(|index| {
            let at = units(contents.number(1 + count + index)?)?;
            builder.push_all(&child, at, extent, contents.count(1 + index)?)
        })
    } else if combiner == constants.combiner_hindexed {
        let count = contents.count(0)?;
        (0..count).try_for_each(|index| {
            let at = contents.address(index, 1 + count)?;
            builder.push_all(&child, at, extent, contents.count(1 + index)?)
        })
    } else if combiner == constants.combiner_indexed_block {
        let block = block(&child, contents.count(1)?, most)?;
        (0..contents.count(0)?)
            .try_for_each(|index| builder.push_all(&block, units(contents.number(2 + index)?)?, 0, 1))
    } else if combiner == constants.combiner_hindexed_block {
        let block = block(&child, contents.count(1)?, most)?;
        (0..contents.count(0)?).try_for_each(|index| builder.push_all(&block, contents.address(index, 2)?, 0, 1))
    } else if combiner == constants.combiner_subarray {
        builder.push_all(&subarray(&child, contents, most)?, 0, 0, 1)
    } else {
        // Distributed arrays, and constructors of later standards.
        Err(TooComplex)
    }
}

/// `length` copies of `child`, an extent apart.
fn block(child: &Segments, length: usize, most: usize) -> Result<Segments, TooComplex> {
    let mut builder = Builder::new(most);
    builder.push_all(child, 0, child.extent(), length)?;
    builder.finish(0)
}

/// A subarray of an array of `child`: dimension by dimension, the one that varies fastest in memory first.
fn subarray(child: &Segments, contents: &Contents, most: usize) -> Result<Segments, TooComplex> {
    let dimensions = contents.count(0)?;
    let is_c = contents.number(1 + 3 * dimensions)? == constants().order_c as isize;
    let mut part = child.clone();
    let mut stride = child.extent();
    for step in 0..dimensions {
        let dimension = if is_c { dimensions - 1 - step } else { step };
        let (size, subsize) = (contents.number(1 + dimension)?, contents.count(1 + dimensions + dimension)?);
        let start = contents.number(1 + 2 * dimensions + dimension)?;
        let mut builder = Builder::new(most);
        builder.push_all(&part, start.checked_mul(stride).ok_or(TooComplex)?, stride, subsize)?;
        stride = stride.checked_mul(size).ok_or(TooComplex)?;
        part = builder.finish(stride)?;
    }
    Ok(part)
}
