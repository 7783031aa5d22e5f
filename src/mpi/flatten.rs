//! Flattening a datatype: from the constructor that made it ([`Constructor`]) to [`Segments`].
//!
//! Sizes and extents always come from the library, also of the inner datatypes, so alignment rules and the old bound
//! markers need no second implementation here.

use super::constructor::{Constructor, Part};
use crate::kernel::segments::{Builder, Segments, TooComplex};
use crate::mpi::handles::{Predefined, constants, predefined};
use crate::mpi::native::native;
use mpi_sys::{MPI_Count, MPI_Datatype};

/// Datatypes nested more deeply are not flattened.
const DEEPEST: usize = 48;

/// The most runs of a flattened datatype. Only huge datatypes may have more than 2^16; there runs are a small part of
/// the data.
pub(super) fn most_runs(size: usize) -> usize {
    (1 << 16).max(size / 2048)
}

/// A flattened datatype: `times` copies of `segments` after one another.
#[derive(Debug)]
pub(super) struct Flattened {
    pub(super) segments: Segments,
    pub(super) times: usize,
}

/// Size and bounds of a datatype, as the library reports them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) size: usize,
    pub(super) lb: isize,
    pub(super) extent: isize,
    pub(super) true_lb: isize,
    pub(super) true_extent: usize,
}

/// Packed bytes of an element of `datatype`; `None` if the library can't tell.
///
/// # Safety
/// MPI is initialised, and `datatype` is valid and not null.
pub(super) unsafe fn size(datatype: MPI_Datatype) -> Option<usize> {
    let mut size: MPI_Count = 0;
    // SAFETY: the caller's promise, and a valid place for the result.
    let code = unsafe { native().type_size_x(datatype, &mut size) };
    usize::try_from(size).ok().filter(|_| code == constants().success)
}

/// Size and extents of `datatype`; `None` if the library can't tell them (`MPI_UNDEFINED`) or they exceed the address
/// space.
///
/// # Safety
/// MPI is initialised, and `datatype` is valid and not null.
pub(super) unsafe fn extent(datatype: MPI_Datatype) -> Option<Extent> {
    if let Some(&Predefined { size, extent, .. }) = predefined(datatype).filter(|known| known.is_contiguous()) {
        // Known since MPI_Init: that saves three calls for each constructor.
        return Some(Extent { size, lb: 0, extent: extent as isize, true_lb: 0, true_extent: size });
    }
    // SAFETY: the caller's promise.
    let size = unsafe { size(datatype) }?;
    let (mut lb, mut extent): (MPI_Count, MPI_Count) = (0, 0);
    let (mut true_lb, mut true_extent): (MPI_Count, MPI_Count) = (0, 0);
    // SAFETY: a valid datatype and valid places for the results.
    let codes = unsafe {
        [
            native().type_get_extent_x(datatype, &mut lb, &mut extent),
            native().type_get_true_extent_x(datatype, &mut true_lb, &mut true_extent),
        ]
    };
    if codes != [constants().success; 2] {
        return None;
    }
    if size == 0 {
        // Observed: Open MPI 4.1.4 gives empty datatypes true bounds at the ends of the address space.
        (true_lb, true_extent) = (0, 0);
    }
    Some(Extent {
        size,
        lb: isize::try_from(lb).ok()?,
        extent: isize::try_from(extent).ok()?,
        true_lb: isize::try_from(true_lb).ok()?,
        true_extent: usize::try_from(true_extent).ok()?,
    })
}

/// Flattens `datatype`. `constructor` made it, unless it is basic; `known` are its size and extents.
///
/// # Errors
/// If it has too many pieces, or a constructor that isn't known here; then only the library can handle it.
///
/// # Safety
/// MPI is initialised, and `datatype` is valid and not null.
pub(super) unsafe fn flatten(
    datatype: MPI_Datatype,
    constructor: Option<&Constructor>,
    known: &Extent,
) -> Result<Flattened, TooComplex> {
    let most = most_runs(known.size);
    // Many copies of a type with many pieces are kept as a count of copies.
    if let Some(constructor) = constructor
        && constructor.combiner() == constants().combiner_contiguous
    {
        // SAFETY: the caller's promise.
        let child = unsafe { layout(constructor.part(0)?, most, 1) }?;
        let times = constructor.count(0)?;
        let length = isize::try_from(times).ok().and_then(|n| n.checked_mul(child.extent()));
        if child.runs() > 1 && length == Some(known.extent) {
            return Ok(Flattened { segments: child, times });
        }
    }
    // SAFETY: the caller's promise.
    let segments = unsafe { laid_out(datatype, constructor, known, most, 0) }?;
    Ok(Flattened { segments, times: 1 })
}

/// The layout of one element of `part`, which is nested `depth` levels deep in another datatype.
///
/// # Safety
/// As for [`flatten`].
unsafe fn layout(part: &Part, most: usize, depth: usize) -> Result<Segments, TooComplex> {
    if depth > DEEPEST {
        return Err(TooComplex);
    }
    // SAFETY: the caller's promise; a part's handle is valid.
    unsafe {
        let known = extent(part.handle()).ok_or(TooComplex)?;
        // A part whose constructor is unread is read here and dropped again, so many parts are not held at once.
        part.constructor(|constructor| laid_out(part.handle(), constructor, &known, most, depth))
    }
}

/// The layout of one element of `datatype`. `constructor` made it, unless it is basic; `known` are its size and
/// extents.
///
/// # Safety
/// As for [`flatten`].
unsafe fn laid_out(
    datatype: MPI_Datatype,
    constructor: Option<&Constructor>,
    known: &Extent,
    most: usize,
    depth: usize,
) -> Result<Segments, TooComplex> {
    let mut builder = Builder::new(most);
    match constructor {
        None => match predefined(datatype).and_then(|predefined| predefined.second) {
            Some((second_at, second_size)) if known.size > second_size => {
                builder.push(0, known.size - second_size)?;
                builder.push(second_at as isize, second_size)?;
            }
            // Bound markers have no data. A datatype with a hole at an unknown place is left to the library.
            _ if known.size != 0 && known.size != known.true_extent => return Err(TooComplex),
            _ => builder.push(known.true_lb, known.size)?,
        },
        // SAFETY: the caller's promise holds for the datatypes inside as well.
        Some(constructor) => unsafe { add(&mut builder, constructor, most, depth) }?,
    }
    let segments = builder.finish(known.extent)?;
    // A check on the reading of the constructor: the library knows the size.
    if segments.size() == known.size { Ok(segments) } else { Err(TooComplex) }
}

/// Adds the layout that a constructor makes to `builder`.
///
/// # Safety
/// As for [`flatten`].
unsafe fn add(builder: &mut Builder, constructor: &Constructor, most: usize, depth: usize) -> Result<(), TooComplex> {
    let constants = constants();
    let combiner = constructor.combiner();
    if combiner == constants.combiner_struct {
        let count = constructor.count(0)?;
        for index in 0..count {
            // SAFETY: the caller's promise.
            let child = unsafe { layout(constructor.part(index)?, most, depth + 1) }?;
            let at = constructor.address(index, 1 + count)?;
            builder.push_all(&child, at, child.extent(), constructor.count(1 + index)?)?;
        }
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let child = unsafe { layout(constructor.part(0)?, most, depth + 1) }?;
    let extent = child.extent();
    let units = |number: isize| number.checked_mul(extent).ok_or(TooComplex);
    if combiner == constants.combiner_dup || combiner == constants.combiner_resized {
        builder.push_all(&child, 0, 0, 1)
    } else if combiner == constants.combiner_contiguous {
        builder.push_all(&child, 0, extent, constructor.count(0)?)
    } else if combiner == constants.combiner_vector {
        let block = block(&child, constructor.count(1)?, most)?;
        builder.push_all(&block, 0, units(constructor.number(2)?)?, constructor.count(0)?)
    } else if combiner == constants.combiner_hvector {
        let block = block(&child, constructor.count(1)?, most)?;
        builder.push_all(&block, 0, constructor.address(0, 2)?, constructor.count(0)?)
    } else if combiner == constants.combiner_indexed {
        let count = constructor.count(0)?;
        (0..count).try_for_each(|index| {
            let at = units(constructor.number(1 + count + index)?)?;
            builder.push_all(&child, at, extent, constructor.count(1 + index)?)
        })
    } else if combiner == constants.combiner_hindexed {
        let count = constructor.count(0)?;
        (0..count).try_for_each(|index| {
            let at = constructor.address(index, 1 + count)?;
            builder.push_all(&child, at, extent, constructor.count(1 + index)?)
        })
    } else if combiner == constants.combiner_indexed_block {
        let block = block(&child, constructor.count(1)?, most)?;
        (0..constructor.count(0)?)
            .try_for_each(|index| builder.push_all(&block, units(constructor.number(2 + index)?)?, 0, 1))
    } else if combiner == constants.combiner_hindexed_block {
        let block = block(&child, constructor.count(1)?, most)?;
        (0..constructor.count(0)?).try_for_each(|index| builder.push_all(&block, constructor.address(index, 2)?, 0, 1))
    } else if combiner == constants.combiner_subarray {
        builder.push_all(&subarray(&child, constructor, most)?, 0, 0, 1)
    } else {
        // Distributed arrays, and constructors of later standards.
        Err(TooComplex)
    }
}

/// `length` copies of `child`, each an extent of `child` after the one before.
fn block(child: &Segments, length: usize, most: usize) -> Result<Segments, TooComplex> {
    let mut builder = Builder::new(most);
    builder.push_all(child, 0, child.extent(), length)?;
    builder.finish(0)
}

/// A subarray of an array of `child`: dimension by dimension, the one that varies fastest in memory first.
fn subarray(child: &Segments, constructor: &Constructor, most: usize) -> Result<Segments, TooComplex> {
    let dimensions = constructor.count(0)?;
    let is_c = constructor.number(1 + 3 * dimensions)? == constants().order_c as isize;
    let mut part = child.clone();
    let mut stride = child.extent();
    for step in 0..dimensions {
        let dimension = if is_c { dimensions - 1 - step } else { step };
        let (size, subsize) = (constructor.number(1 + dimension)?, constructor.count(1 + dimensions + dimension)?);
        let start = constructor.number(1 + 2 * dimensions + dimension)?;
        let mut builder = Builder::new(most);
        builder.push_all(&part, start.checked_mul(stride).ok_or(TooComplex)?, stride, subsize)?;
        stride = stride.checked_mul(size).ok_or(TooComplex)?;
        part = builder.finish(stride)?;
    }
    Ok(part)
}
