//! How a datatype was made: the constructor and its arguments (`MPI_Type_get_envelope`, `MPI_Type_get_contents`).
//!
//! The types made by `MPI_Type_create_f90_*` count as predefined.

use crate::kernel::segments::TooComplex;
use crate::mpi::handles::{Class, constants, predefined};
use crate::mpi::native::native;
use mpi_sys::{MPI_Aint, MPI_Count, MPI_Datatype};
use smallvec::SmallVec;
use std::ffi::c_int;

/// Datatypes nested more deeply are not flattened.
const DEEPEST: usize = 48;

/// As many as most constructors have need no memory of the heap: programs make datatypes for each call.
type Few<T> = SmallVec<[T; 6]>;

/// A constructor with its arguments. Numbers are in the order of the standard, large counts like small ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Constructor {
    /// Which one.
    pub combiner: c_int,
    numbers: Few<i64>,
    addresses: Few<MPI_Aint>,
    parts: SmallVec<[Part; 1]>,
}

/// A datatype that a constructor was given.
#[derive(Debug)]
pub(super) struct Part {
    /// To be freed here if it is derived; null once it was.
    handle: MPI_Datatype,
    /// Of a derived one.
    envelope: Option<Envelope>,
    /// What made a derived one.
    made: Option<Box<Constructor>>,
}

/// What made a datatype and with how many integers, addresses, large counts and datatypes.
type Envelope = (c_int, [usize; 4]);

impl Constructor {
    /// What made `datatype`; none of one that lies in memory as it is packed.
    ///
    /// # Errors
    /// If the library does not tell, or it is nested too deeply.
    ///
    /// # Safety
    /// MPI is initialised, and `datatype` is valid and not null.
    #[inline]
    pub unsafe fn of(datatype: MPI_Datatype) -> Result<Option<Self>, TooComplex> {
        if predefined(datatype).is_some() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let Some(envelope) = envelope_of_derived(datatype) else { return Ok(None) };
            let mut constructor = contents(datatype, envelope).ok_or(TooComplex)?;
            constructor.read_parts(1)?;
            Ok(Some(constructor))
        }
    }

    /// Finds out what made the datatypes inside, which lie so deep in another one.
    ///
    /// # Safety
    /// As for [`Self::of`].
    unsafe fn read_parts(&mut self, depth: usize) -> Result<(), TooComplex> {
        for part in &mut self.parts {
            let Some(envelope) = part.envelope else { continue };
            if depth > DEEPEST {
                return Err(TooComplex);
            }
            // SAFETY: the caller's promise; handles inside are as valid.
            unsafe {
                let mut made = Box::new(contents(part.handle, envelope).ok_or(TooComplex)?);
                made.read_parts(depth + 1)?;
                part.made = Some(made);
            }
        }
        Ok(())
    }

    /// An argument.
    pub fn number(&self, index: usize) -> Result<isize, TooComplex> {
        self.numbers.get(index).and_then(|&number| isize::try_from(number).ok()).ok_or(TooComplex)
    }

    /// The same where it is a number of something.
    pub fn count(&self, index: usize) -> Result<usize, TooComplex> {
        self.number(index).and_then(|number| usize::try_from(number).map_err(|_| TooComplex))
    }

    /// The displacement in bytes with this index; `numbers_before` numbers precede the displacements where these are large
    /// counts.
    pub fn address(&self, index: usize, numbers_before: usize) -> Result<isize, TooComplex> {
        match self.addresses.get(index) {
            Some(address) => Ok(isize::from_ne_bytes(address.to_ne_bytes())),
            None => self.number(numbers_before + index),
        }
    }

    /// The datatype with this index.
    pub fn part(&self, index: usize) -> Result<&Part, TooComplex> {
        self.parts.get(index).ok_or(TooComplex)
    }

    /// How many arguments there are, also of what is inside; none where some datatype is not known for what it is.
    pub fn arguments(&self) -> Option<usize> {
        let own = self.numbers.len() + self.addresses.len() + self.parts.len();
        self.parts.iter().try_fold(own, |sum, part| match &part.made {
            Some(made) => Some(sum + made.arguments()?),
            None => predefined(part.handle).map(|_| sum),
        })
    }

    /// Frees the handles of datatypes inside: the constructor is good for comparisons only.
    pub fn let_go(&mut self) {
        for part in &mut self.parts {
            part.free();
            if let Some(made) = &mut part.made {
                made.let_go();
            }
        }
    }
}

impl Part {
    /// # Safety
    /// As for [`Constructor::of`]; the handle is this one's to free, unless it is basic.
    unsafe fn new(handle: MPI_Datatype) -> Self {
        // SAFETY: the caller's promise.
        let envelope = if predefined(handle).is_some() { None } else { unsafe { envelope_of_derived(handle) } };
        Self { handle, envelope, made: None }
    }

    /// Valid for as long as this is.
    pub fn handle(&self) -> MPI_Datatype {
        self.handle
    }

    /// What made it, if it is derived.
    pub fn made(&self) -> Option<&Constructor> {
        self.made.as_deref()
    }

    fn free(&mut self) {
        let null = constants().datatype_null;
        if self.envelope.is_some() && self.handle != null {
            let mut handle = std::mem::replace(&mut self.handle, null);
            // SAFETY: `get_contents` returned this handle for us to free, as it is not predefined.
            unsafe { native().type_free(&mut handle) };
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.free();
    }
}

impl PartialEq for Part {
    /// Whether they were made alike; handles of derived ones are each another one.
    fn eq(&self, other: &Self) -> bool {
        match (&self.made, &other.made) {
            (Some(made), Some(other)) => made == other,
            (None, None) => self.handle == other.handle,
            _ => false,
        }
    }
}

impl Eq for Part {}

/// What made a datatype and with how many arguments: integers, addresses, large counts, datatypes.
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

/// What made a derived datatype, as [`envelope`]; none of a basic one, and of what can't be examined, which is better left alone.
///
/// # Safety
/// As for [`Constructor::of`].
unsafe fn envelope_of_derived(datatype: MPI_Datatype) -> Option<Envelope> {
    let is_derived = |combiner| combiner != constants().combiner_named && class_by_f90(combiner).is_none();
    // SAFETY: the caller's promise.
    unsafe { envelope(datatype) }.filter(|(combiner, _)| is_derived(*combiner))
}

/// What numbers are the elements of a datatype of `MPI_Type_create_f90_*`.
///
/// # Safety
/// As for [`Constructor::of`].
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

/// The arguments of the constructor of `datatype`, of which this is the envelope; parts know nothing of their own constructors yet.
///
/// # Safety
/// As for [`Constructor::of`].
#[inline]
unsafe fn contents(
    datatype: MPI_Datatype,
    (combiner, [n_integers, n_addresses, n_large, n_datatypes]): Envelope,
) -> Option<Constructor> {
    // SAFETY: the caller's promise; the arrays have the lengths that the library asked for.
    unsafe {
        let mut integers: Few<c_int> = Few::from_elem(0, n_integers);
        let mut addresses: Few<MPI_Aint> = Few::from_elem(0, n_addresses);
        let mut large: Few<MPI_Count> = Few::from_elem(0, n_large);
        let mut datatypes: Few<MPI_Datatype> = Few::from_elem(constants().datatype_null, n_datatypes);
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
            return None;
        }
        let mut numbers: Few<i64> = integers.into_iter().map(i64::from).collect();
        // With large counts all numbers are such, but for the dimensions and the order of a subarray around them.
        numbers.insert_many(numbers.len().min(1), large);
        // All of them, so that those that are not basic are freed whatever comes.
        let parts = datatypes.into_iter().map(|datatype| Part::new(datatype)).collect();
        Some(Constructor { combiner, numbers, addresses, parts })
    }
}
