//! How a datatype was made: the constructor and its arguments (`MPI_Type_get_envelope`, `MPI_Type_get_contents`).
//!
//! The types made by `MPI_Type_create_f90_*` count as predefined.

use crate::kernel::segments::TooComplex;
use crate::mpi::handles::{Class, constants, predefined};
use crate::mpi::native::native;
use mpi_sys::{MPI_Aint, MPI_Count, MPI_Datatype};
use smallvec::{SmallVec, smallvec};
use std::ffi::c_int;

/// Inline room for the arguments of most constructors, without heap memory: programs make datatypes for each call.
type Few<T> = SmallVec<[T; 8]>;

/// A constructor with one datatype and few other arguments, as the library returned them, without heap memory. Most
/// datatypes that programs make for each call are of this kind.
pub(super) struct Plain {
    combiner: c_int,
    n_numbers: usize,
    n_addresses: usize,
    numbers: [c_int; Self::FEW],
    addresses: [MPI_Aint; Self::FEW],
    part: MPI_Datatype,
}

/// A constructor and its arguments other than datatypes. `numbers` are in the order of the standard, large counts among
/// the others.
#[derive(Debug, PartialEq, Eq)]
struct Scalars {
    combiner: c_int,
    numbers: Few<i64>,
    /// How many of `numbers` are large counts: distributed arrays have these at other places.
    large: usize,
    addresses: Few<MPI_Aint>,
}

/// A constructor with its arguments, for the duration of the call that reads them.
#[derive(Debug)]
pub(super) struct Constructor {
    scalars: Scalars,
    parts: SmallVec<[Part; 1]>,
}

/// A datatype that a constructor was given.
#[derive(Debug)]
pub(super) enum Part {
    /// A datatype without a constructor to read, such as a predefined one.
    Basic(MPI_Datatype),
    /// A derived datatype whose constructor has been read.
    Derived(Box<Inner>),
    /// A derived datatype whose constructor has not been read yet.
    Unread(Owned, Envelope),
}

/// A derived datatype inside another one.
#[derive(Debug)]
pub(super) struct Inner {
    handle: Owned,
    constructor: Constructor,
}

/// A handle that `get_contents` returned and that huddle has to free.
#[derive(Debug)]
pub(super) struct Owned(MPI_Datatype);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle is not predefined, and huddle owns it; it lives within the call that read it, so MPI is
        // not finalised.
        unsafe { native().type_free(&mut self.0) };
    }
}

/// A constructor with its arguments, to compare with others; it holds no handle of a derived datatype.
#[derive(Debug)]
pub(super) struct Arguments {
    scalars: Scalars,
    parts: SmallVec<[KnownPart; 1]>,
}

#[derive(Debug)]
enum KnownPart {
    Predefined(MPI_Datatype),
    Derived(Box<Arguments>),
}

/// The constructor of a datatype, and its numbers of integers, addresses, large counts and datatypes.
type Envelope = (c_int, [usize; 4]);

impl Plain {
    const FEW: usize = 8;

    /// The constructor of `datatype`, if it is of this kind.
    ///
    /// # Safety
    /// MPI is initialised, and `datatype` is valid and not null.
    #[inline]
    pub unsafe fn of(datatype: MPI_Datatype) -> Option<Self> {
        // SAFETY: the caller's promise.
        let (combiner, [n_numbers, n_addresses, n_large, n_datatypes]) = unsafe { envelope(datatype) }?;
        if n_numbers > Self::FEW || n_addresses > Self::FEW || n_large > 0 || n_datatypes != 1 {
            return None;
        }
        let (numbers, addresses, part) = ([0; Self::FEW], [0; Self::FEW], constants().datatype_null);
        let mut plain = Self { combiner, n_numbers, n_addresses, numbers, addresses, part };
        // SAFETY: the caller's promise; each array is at least as long as the library reported.
        let code = unsafe {
            let (numbers, addresses) = (plain.numbers.as_mut_ptr(), plain.addresses.as_mut_ptr());
            let (numbers, addresses) = ((n_numbers, numbers), (n_addresses, addresses));
            get_contents(datatype, numbers, addresses, (0, std::ptr::null_mut()), (1, &mut plain.part))
        };
        if code != constants().success {
            return None;
        }
        Some(plain)
    }

    /// Whether its datatype is predefined. Any other has to be freed, as a [`Constructor`] made from this does.
    pub fn is_of_predefined(&self) -> bool {
        predefined(self.part).is_some()
    }

    fn numbers(&self) -> &[c_int] {
        &self.numbers[..self.n_numbers]
    }

    fn addresses(&self) -> &[MPI_Aint] {
        &self.addresses[..self.n_addresses]
    }
}

impl Constructor {
    /// The constructor of `datatype`; `None` for a basic one. Constructors of datatypes inside are read until `most`
    /// arguments have been read in all.
    ///
    /// # Errors
    /// If the library does not return the arguments.
    ///
    /// # Safety
    /// MPI is initialised, and `datatype` is valid and not null.
    #[inline]
    pub unsafe fn of(datatype: MPI_Datatype, mut most: usize) -> Result<Option<Self>, TooComplex> {
        if predefined(datatype).is_some() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let Some(envelope) = envelope_of_derived(datatype) else { return Ok(None) };
            Self::read(datatype, envelope, &mut most).map(Some).ok_or(TooComplex)
        }
    }

    /// The constructor for `plain`. Constructors of datatypes inside are read until `most` arguments have been read in
    /// all.
    ///
    /// # Errors
    /// If the library does not return the arguments of a datatype inside.
    ///
    /// # Safety
    /// MPI is initialised, and huddle has to free the datatype of `plain` if it is derived.
    pub unsafe fn of_plain(plain: &Plain, most: usize) -> Result<Self, TooComplex> {
        let mut left = most.saturating_sub(plain.n_numbers + plain.n_addresses + 1);
        // SAFETY: the caller's promise.
        let parts = unsafe { Part::read_all(smallvec![plain.part], &mut left) }.ok_or(TooComplex)?;
        let numbers = plain.numbers().iter().copied().map(i64::from).collect();
        let addresses = Few::from_slice(plain.addresses());
        Ok(Self { scalars: Scalars { combiner: plain.combiner, numbers, large: 0, addresses }, parts })
    }

    /// The constructor of `datatype`, which has this envelope. Constructors of datatypes inside are read as long as
    /// `left` is not 0.
    ///
    /// # Safety
    /// As for [`Self::of`].
    unsafe fn read(datatype: MPI_Datatype, envelope: Envelope, left: &mut usize) -> Option<Self> {
        // SAFETY: the caller's promise.
        let (scalars, datatypes) = unsafe { contents(datatype, envelope) }?;
        *left = left.saturating_sub(envelope.1.iter().sum());
        let parts = if datatypes.iter().all(|part| predefined(*part).is_some()) {
            datatypes.into_iter().map(Part::Basic).collect()
        } else {
            // SAFETY: as above; the library has passed ownership of the handles to huddle.
            unsafe { Part::read_all(datatypes, left) }?
        };
        Some(Self { scalars, parts })
    }

    /// The combiner, such as `MPI_COMBINER_VECTOR`.
    pub fn combiner(&self) -> c_int {
        self.scalars.combiner
    }

    /// The number with this index; an error if there is none or it exceeds the address space.
    pub fn number(&self, index: usize) -> Result<isize, TooComplex> {
        self.scalars.numbers.get(index).and_then(|&number| isize::try_from(number).ok()).ok_or(TooComplex)
    }

    /// The number with this index, which counts something; an error also if it is negative.
    pub fn count(&self, index: usize) -> Result<usize, TooComplex> {
        self.number(index).and_then(|number| usize::try_from(number).map_err(|_| TooComplex))
    }

    /// The displacement in bytes with this index. Where displacements are large counts, they are among the numbers,
    /// after `numbers_before` others.
    pub fn address(&self, index: usize, numbers_before: usize) -> Result<isize, TooComplex> {
        match self.scalars.addresses.get(index) {
            Some(address) => Ok(isize::from_ne_bytes(address.to_ne_bytes())),
            None => self.number(numbers_before + index),
        }
    }

    /// The datatype with this index.
    pub fn part(&self, index: usize) -> Result<&Part, TooComplex> {
        self.parts.get(index).ok_or(TooComplex)
    }

    /// Its arguments without owned handles, if there are at most `most` of them, those of datatypes inside included.
    /// `None` also if a basic datatype is not in huddle's tables, since its handle may be reused.
    pub fn into_arguments(self, most: usize) -> Option<Arguments> {
        let mut left = most;
        self.within(&mut left)
    }

    fn within(self, left: &mut usize) -> Option<Arguments> {
        let Self { scalars, parts } = self;
        *left = left.checked_sub(scalars.numbers.len() + scalars.addresses.len() + parts.len())?;
        let known = |part| match part {
            Part::Basic(handle) => predefined(handle).map(|_| KnownPart::Predefined(handle)),
            Part::Derived(inner) => inner.constructor.within(left).map(|part| KnownPart::Derived(Box::new(part))),
            Part::Unread(..) => None,
        };
        Some(Arguments { scalars, parts: parts.into_iter().map(known).collect::<Option<_>>()? })
    }
}

impl Part {
    /// # Safety
    /// As for [`Constructor::of`]; huddle has to free those handles that are derived.
    #[inline(never)]
    unsafe fn read_all(datatypes: Few<MPI_Datatype>, left: &mut usize) -> Option<SmallVec<[Self; 1]>> {
        // All handles are taken over first, so that each derived one is freed even if a later step fails.
        // SAFETY: the caller's promise.
        let mut parts: SmallVec<[Self; 1]> = datatypes.into_iter().map(|part| unsafe { Self::new(part) }).collect();
        for part in &mut parts {
            let Self::Unread(handle, envelope) = part else { continue };
            if *left == 0 {
                break;
            }
            // SAFETY: the caller's promise; a handle inside a valid datatype is valid.
            let constructor = unsafe { Constructor::read(handle.0, *envelope, left) }?;
            if let Self::Unread(handle, _) = std::mem::replace(part, Self::Basic(constants().datatype_null)) {
                *part = Self::Derived(Box::new(Inner { handle, constructor }));
            }
        }
        Some(parts)
    }

    /// # Safety
    /// As for [`Constructor::of`]; huddle has to free the handle if it is derived.
    unsafe fn new(handle: MPI_Datatype) -> Self {
        if predefined(handle).is_some() {
            return Self::Basic(handle);
        }
        // SAFETY: the caller's promise.
        match unsafe { envelope_of_derived(handle) } {
            None => Self::Basic(handle),
            Some(envelope) => Self::Unread(Owned(handle), envelope),
        }
    }

    /// Calls `with` with the constructor of the datatype, or `None` for a basic one. Reads an unread constructor, but
    /// not those of the datatypes inside.
    ///
    /// # Errors
    /// If the library does not return the arguments, or as `with` says.
    ///
    /// # Safety
    /// MPI is initialised.
    #[inline]
    pub unsafe fn constructor<T>(
        &self,
        with: impl FnOnce(Option<&Constructor>) -> Result<T, TooComplex>,
    ) -> Result<T, TooComplex> {
        match self {
            Self::Basic(_) => with(None),
            Self::Derived(inner) => with(Some(&inner.constructor)),
            Self::Unread(handle, envelope) => {
                // SAFETY: the caller's promise; the handle is valid.
                let constructor = unsafe { Constructor::read(handle.0, *envelope, &mut 0) };
                with(Some(&constructor.ok_or(TooComplex)?))
            }
        }
    }

    /// The datatype's handle, valid as long as `self` lives.
    pub fn handle(&self) -> MPI_Datatype {
        match self {
            Self::Basic(handle) => *handle,
            Self::Derived(inner) => inner.handle.0,
            Self::Unread(handle, _) => handle.0,
        }
    }
}

impl PartialEq<Constructor> for Arguments {
    /// Whether both make the same datatype.
    fn eq(&self, other: &Constructor) -> bool {
        let is_alike = |(own, other): (&KnownPart, &Part)| match (own, other) {
            (KnownPart::Predefined(own), Part::Basic(other)) => own == other,
            (KnownPart::Derived(own), Part::Derived(other)) => **own == other.constructor,
            _ => false,
        };
        self.scalars == other.scalars
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(is_alike)
    }
}

impl PartialEq<Plain> for Arguments {
    /// Whether both make the same datatype.
    fn eq(&self, other: &Plain) -> bool {
        let Scalars { combiner, numbers, large, addresses } = &self.scalars;
        *combiner == other.combiner
            && *large == 0
            && numbers.iter().copied().eq(other.numbers().iter().copied().map(i64::from))
            && **addresses == *other.addresses()
            && matches!(*self.parts, [KnownPart::Predefined(part)] if part == other.part)
    }
}

/// The constructor of a datatype and its numbers of arguments: integers, addresses, large counts, datatypes.
///
/// # Safety
/// As for [`Constructor::of`].
unsafe fn envelope(datatype: MPI_Datatype) -> Option<Envelope> {
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

/// The [`envelope`] of a derived datatype. `None` for a basic one, and for one that the library tells nothing of, which
/// is better left alone.
///
/// # Safety
/// As for [`Constructor::of`].
unsafe fn envelope_of_derived(datatype: MPI_Datatype) -> Option<Envelope> {
    let is_derived = |combiner| combiner != constants().combiner_named && class_by_f90(combiner).is_none();
    // SAFETY: the caller's promise.
    unsafe { envelope(datatype) }.filter(|(combiner, _)| is_derived(*combiner))
}

/// The class of the elements of a datatype that `MPI_Type_create_f90_*` made; `None` for others.
///
/// # Safety
/// As for [`Constructor::of`].
pub unsafe fn class_of_f90(datatype: MPI_Datatype) -> Option<Class> {
    // SAFETY: the caller's promise.
    unsafe { envelope(datatype) }.and_then(|(combiner, _)| class_by_f90(combiner))
}

/// The class of the elements of what `combiner` makes, if it is one of `MPI_Type_create_f90_*`.
fn class_by_f90(combiner: c_int) -> Option<Class> {
    let c = constants();
    let classes = [
        (c.combiner_f90_real, Class::Float),
        (c.combiner_f90_complex, Class::Complex),
        (c.combiner_f90_integer, Class::FortranInteger),
    ];
    classes.iter().find(|(known, _)| *known == combiner).map(|(_, class)| *class)
}

/// The arguments of the constructor of `datatype`, which has this envelope: scalars and datatypes.
///
/// # Safety
/// As for [`Constructor::of`].
#[inline]
unsafe fn contents(
    datatype: MPI_Datatype,
    (combiner, [n_integers, n_addresses, n_large, n_datatypes]): Envelope,
) -> Option<(Scalars, Few<MPI_Datatype>)> {
    // SAFETY: the caller's promise; the arrays have the lengths that the library asked for.
    unsafe {
        let mut integers: Few<c_int> = Few::from_elem(0, n_integers);
        let mut addresses: Few<MPI_Aint> = Few::from_elem(0, n_addresses);
        let mut large: Few<MPI_Count> = Few::from_elem(0, n_large);
        let mut datatypes: Few<MPI_Datatype> = Few::from_elem(constants().datatype_null, n_datatypes);
        let (numbers, addressed) = ((n_integers, integers.as_mut_ptr()), (n_addresses, addresses.as_mut_ptr()));
        let (larger, parts) = ((n_large, large.as_mut_ptr()), (n_datatypes, datatypes.as_mut_ptr()));
        let code = get_contents(datatype, numbers, addressed, larger, parts);
        if code != constants().success {
            return None;
        }
        let mut numbers: Few<i64> = integers.into_iter().map(i64::from).collect();
        // A constructor with large counts has no other numbers, but for a subarray: the number of its dimensions
        // precedes them, its order follows.
        numbers.insert_many(numbers.len().min(1), large);
        Some((Scalars { combiner, numbers, large: n_large, addresses }, datatypes))
    }
}

/// Calls the library for the arguments of the constructor of `datatype`, given their numbers and the arrays for them.
/// Returns its code.
///
/// # Safety
/// As for [`Constructor::of`]; each array has room for its number of arguments.
#[inline]
unsafe fn get_contents(
    datatype: MPI_Datatype,
    (n_integers, integers): (usize, *mut c_int),
    (n_addresses, addresses): (usize, *mut MPI_Aint),
    (n_large, large): (usize, *mut MPI_Count),
    (n_datatypes, datatypes): (usize, *mut MPI_Datatype),
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match native().type_get_contents_c {
            Some(type_get_contents_c) => type_get_contents_c(
                datatype,
                n_integers as MPI_Count,
                n_addresses as MPI_Count,
                n_large as MPI_Count,
                n_datatypes as MPI_Count,
                integers,
                addresses,
                large,
                datatypes,
            ),
            None => native().type_get_contents(
                datatype,
                n_integers as c_int,
                n_addresses as c_int,
                n_datatypes as c_int,
                integers,
                addresses,
                datatypes,
            ),
        }
    }
}
