//! The user's datatypes as packed bytes.
//!
//! A derived datatype is flattened when a call first uses it. The result is an attribute of the datatype, so it lives
//! as long as the datatype and is never found under a reused handle; duplicates don't inherit it. Where a program makes
//! datatypes for one call each, the attribute is left out (`habit`), and the layout of one datatype serves for others
//! that are made alike (`alike`).
//!
//! The library packs and unpacks as a whole what can't be flattened (distributed arrays, layouts with too many pieces).
//! Observed: `MPI_Pack` of MPICH 4.0.2 and Open MPI 4.1.4 writes the packed bytes without a header.
//!
//! Datatypes that were not committed must be rejected, and no MPI query tells whether one was. Observed: both libraries
//! reject them in `MPI_Pack` and `MPI_Unpack`, even of no elements (class `MPI_ERR_TYPE`). The collectives themselves
//! are less strict: MPICH's Bcast of no elements passes; Open MPI ignores the receive type of Allgather and Scatter,
//! and crashes on it if there is data.

use super::alike;
use super::constructor::{Constructor, Plain};
use super::flatten::{Extent, Flattened, extent, flatten, size};
use super::habit::Habit;
use crate::kernel::Segments;
use crate::kernel::segments::TooComplex;
use crate::mpi::handles::{PREDEFINED_MOST, Predefined, constants, predefined};
use crate::mpi::native::native;
use crate::sync::Private;
use mpi_sys::{MPI_Comm, MPI_Datatype};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Why the native call has to answer: MPI rejects these arguments, or they exceed the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The null handle of a datatype or operation.
    Null,
    /// A datatype that was not committed.
    NotCommitted,
    /// More bytes than fit the address space, or one element that even the library can't pack.
    TooLarge,
    /// An operation that the library doesn't have for this datatype.
    NotDefined,
}

/// How the elements of a datatype lie in memory: its type map, in the words of MPI.
#[derive(Debug)]
pub enum TypeMap {
    /// As they are packed, from `at` bytes after the buffer's address on.
    Contiguous {
        /// The true lower bound.
        at: isize,
    },
    /// In segments: each element of the datatype is `times` elements of `segments`.
    Segments {
        /// Their layout.
        segments: Segments,
        /// How many there are.
        times: usize,
    },
    /// Known to the library only.
    Opaque,
}

/// How elements of a datatype lie in memory. Datatypes that are made alike share one; predefined ones without holes
/// need none.
#[derive(Debug)]
pub struct TypeLayout {
    /// Packed bytes of an element.
    pub size: usize,
    /// The lower bound of an element, which the program may have set.
    pub lb: isize,
    /// Distance between elements.
    pub extent: isize,
    /// Where the data of an element start.
    pub true_lb: isize,
    /// How far the data of an element reach.
    pub true_extent: usize,
    /// How elements lie in memory.
    pub type_map: TypeMap,
}

/// The attribute of a datatype, which has been found to be committed.
struct Attribute {
    layout: Arc<TypeLayout>,
    /// How often calls have looked it up, counted up to [`Self::AGAIN`].
    looks: Private<u8>,
}

/// Whether attributes are worth making, for all datatypes of the process.
static HABIT: Habit = Habit::new();

/// How many attributes exist. Where programs make datatypes for each call there are mostly none, and then no datatype
/// is queried.
static ATTRIBUTES: AtomicUsize = AtomicUsize::new(0);

impl TypeLayout {
    /// The layout of `datatype`: that of a remembered datatype which was made alike, or else read from the library.
    ///
    /// # Safety
    /// MPI is initialised, and `datatype` is valid and not null.
    unsafe fn read(datatype: MPI_Datatype) -> Option<Arc<Self>> {
        // SAFETY: the caller's promise.
        let read = |constructor: Option<&Constructor>| unsafe {
            let known = extent(datatype)?;
            Some(Arc::new(Self::new(known, flatten(datatype, constructor, &known).ok())))
        };
        // SAFETY: as above.
        let size = || unsafe { size(datatype) };
        // SAFETY: as above; the library is asked once for the handles inside, so each has one owner.
        unsafe {
            let plain = Plain::of(datatype);
            if let Some(plain) = plain.as_ref().filter(|plain| plain.is_of_predefined())
                && let Some(found) = alike::find(plain, size)
            {
                return Some(found);
            }
            let made = match plain {
                Some(plain) => Constructor::of_plain(&plain, alike::MOST_ARGUMENTS).map(Some),
                None => Constructor::of(datatype, alike::MOST_ARGUMENTS),
            };
            match made {
                Ok(None) => read(None),
                Ok(Some(constructor)) => match alike::find(&constructor, size) {
                    Some(found) => Some(found),
                    None => alike::remember(constructor, |constructor| read(Some(constructor))),
                },
                Err(TooComplex) => Some(Arc::new(Self::new(extent(datatype)?, None))),
            }
        }
    }

    /// The layout of a datatype of these sizes and extents; opaque if it was not flattened.
    fn new(Extent { size, lb, extent, true_lb, true_extent }: Extent, flat: Option<Flattened>) -> Self {
        let type_map = match flat {
            None => TypeMap::Opaque,
            // The library has another idea of this datatype, and its idea counts: Open MPI 4.1.4 takes a stride of -1
            // byte for none, so that a vector that turns bytes around becomes contiguous.
            Some(flat)
                if size > 0 && flat.segments.bounds(flat.times) != Some((true_lb, true_lb + true_extent as isize)) =>
            {
                TypeMap::Opaque
            }
            Some(flat) => match flat.segments.contiguous_at(2) {
                Some(at) if flat.times == 1 => TypeMap::Contiguous { at },
                _ => TypeMap::Segments { segments: flat.segments, times: flat.times },
            },
        };
        Self { size, lb, extent, true_lb, true_extent, type_map }
    }

    /// As [`Self::of`], for a call that has looked the datatype up already: this look is not counted.
    ///
    /// # Errors
    /// As for `of`.
    ///
    /// # Safety
    /// As for `of`.
    pub(super) unsafe fn of_again(datatype: MPI_Datatype, self_comm: MPI_Comm) -> Result<Arc<Self>, Rejected> {
        // SAFETY: the caller's promise; the attribute lives as long as the datatype.
        unsafe {
            match Attribute::of(datatype) {
                Some(kept) => Ok(Arc::clone(&kept.layout)),
                None => Self::of(datatype, self_comm),
            }
        }
    }

    /// The layout of `datatype`: that of its attribute, or one that is found out now.
    ///
    /// # Errors
    /// If the datatype is null, not committed, or exceeds the address space.
    ///
    /// # Safety
    /// MPI is initialised; `datatype` is valid or null, and not freed meanwhile; `self_comm` is a private communicator
    /// of this process alone whose errors return.
    pub unsafe fn of(datatype: MPI_Datatype, self_comm: MPI_Comm) -> Result<Arc<Self>, Rejected> {
        if datatype == constants().datatype_null {
            return Err(Rejected::Null);
        }
        if let Some(known) = predefined(datatype) {
            // SAFETY: the caller's promise.
            return unsafe { Self::of_predefined(known) }.ok_or(Rejected::TooLarge);
        }
        // SAFETY: the caller's promise; the attribute lives as long as the datatype.
        if let Some(kept) = unsafe { Attribute::of(datatype) } {
            kept.note_look();
            return Ok(Arc::clone(&kept.layout));
        }
        // SAFETY: the caller's promise.
        unsafe { Self::first_of(datatype, self_comm) }
    }

    /// The layout of `datatype`, which has no attribute; makes it an attribute if that is of use.
    ///
    /// # Errors
    /// If the datatype is not committed, or exceeds the address space.
    ///
    /// # Safety
    /// As for `of`.
    #[inline(never)]
    unsafe fn first_of(datatype: MPI_Datatype, self_comm: MPI_Comm) -> Result<Arc<Self>, Rejected> {
        // SAFETY: the caller's promise; no element is packed, so the addresses are not used.
        let code = unsafe {
            let (from, mut to, mut position) = ([0u64; 2], [0u64; 2], 0);
            native().pack(from.as_ptr().cast(), 0, datatype, to.as_mut_ptr().cast(), 16, &mut position, self_comm)
        };
        if code != constants().success {
            return Err(Rejected::NotCommitted);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let layout = Self::read(datatype).ok_or(Rejected::TooLarge)?;
            if HABIT.keeps_next() {
                Attribute::keep(datatype, &layout);
            }
            Ok(layout)
        }
    }

    /// The segments of this layout, whose elements must lie in segments.
    #[inline]
    pub(super) fn segments(&self) -> &Segments {
        match &self.type_map {
            TypeMap::Segments { segments, .. } => segments,
            _ => unreachable!("asked for where elements lie in segments"),
        }
    }

    /// The layout of a predefined datatype that is a pair with a hole; read once per process.
    ///
    /// # Safety
    /// MPI is initialised.
    unsafe fn of_predefined(known: &Predefined) -> Option<Arc<Self>> {
        static LAYOUTS: [OnceLock<Option<Arc<TypeLayout>>>; PREDEFINED_MOST] =
            [const { OnceLock::new() }; PREDEFINED_MOST];
        // SAFETY: the caller's promise.
        let read = || unsafe { Self::read(known.handle) };
        LAYOUTS[known.index].get_or_init(read).clone()
    }

    /// The layout of `datatype`, if it is predefined or an earlier call has used it. The layout of a predefined one
    /// holds for good, that of any other until the datatype is freed: while [`freed`] stays the same, it was not.
    ///
    /// # Safety
    /// As for `of`.
    pub(super) unsafe fn kept(datatype: MPI_Datatype) -> Option<Arc<Self>> {
        // SAFETY: the caller's promise; the attribute lives as long as the datatype.
        unsafe {
            match predefined(datatype) {
                Some(known) => Self::of_predefined(known),
                None => {
                    Attribute::of(datatype).filter(|kept| kept.is_used_again()).map(|kept| Arc::clone(&kept.layout))
                }
            }
        }
    }

    /// Packed bytes of an element of `datatype`, if a call has used it before.
    ///
    /// # Safety
    /// As for `of`.
    pub(super) unsafe fn known_size(datatype: MPI_Datatype) -> Option<usize> {
        // SAFETY: the caller's promise; the attribute lives as long as the datatype.
        let kept = unsafe { Attribute::of(datatype) }?;
        kept.note_look();
        Some(kept.layout.size)
    }
}

impl Attribute {
    /// The attribute of `datatype`.
    ///
    /// # Safety
    /// As for [`TypeLayout::of`]; the datatype is not freed while the result is used.
    #[inline]
    unsafe fn of<'a>(datatype: MPI_Datatype) -> Option<&'a Self> {
        // Relaxed: a thread that got the datatype from the thread that made its attribute also sees this count.
        if ATTRIBUTES.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let keyval = keyval()?;
        let (mut value, mut found): (*const Self, c_int) = (std::ptr::null(), 0);
        // SAFETY: the caller's promise.
        let code = unsafe { native().type_get_attr(datatype, keyval, (&raw mut value).cast(), &mut found) };
        let is_found = code == constants().success && found != 0;
        // SAFETY: the value is the box that `keep` made, which lives as long as the datatype.
        if is_found { unsafe { value.as_ref() } } else { None }
    }

    /// Makes the layout of `datatype` an attribute. If two threads do so at once, one of them makes it.
    ///
    /// # Safety
    /// As for [`TypeLayout::of`].
    unsafe fn keep(datatype: MPI_Datatype, layout: &Arc<TypeLayout>) {
        static SETTING: Mutex<()> = Mutex::new(());
        let Some(keyval) = keyval() else { return };
        let _one_at_a_time = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise; the attribute owns the box, which `delete` frees.
        unsafe {
            if Self::of(datatype).is_some() {
                return;
            }
            let kept = Box::into_raw(Box::new(Self { layout: Arc::clone(layout), looks: Private::new(1) }));
            match native().type_set_attr(datatype, keyval, kept.cast()) == constants().success {
                true => _ = ATTRIBUTES.fetch_add(1, Ordering::Relaxed),
                false => drop(Box::from_raw(kept)),
            }
        }
    }

    /// This many looks show that a second call has used the datatype: each call looks at most three times, for a lane
    /// and for its two buffers.
    const AGAIN: u8 = 4;

    // The count is a hint, and may miss the look of another thread.
    fn note_look(&self) {
        let looks = self.looks.get();
        if looks < Self::AGAIN {
            self.looks.set(looks + 1);
        }
    }

    fn is_used_again(&self) -> bool {
        self.looks.get() == Self::AGAIN
    }
}

static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();

/// The key of the attribute; `None` if the library has no more keys.
#[inline]
fn keyval() -> Option<c_int> {
    *KEYVAL.get_or_init(|| {
        let mut keyval = constants().keyval_invalid;
        // SAFETY: MPI is initialised, since there is a datatype to look at.
        let code =
            unsafe { native().type_create_keyval(Some(no_copy), Some(delete), &mut keyval, std::ptr::null_mut()) };
        (code == constants().success).then_some(keyval)
    })
}

/// The copy callback of the attribute: a duplicate of the datatype starts without it.
unsafe extern "C" fn no_copy(
    _datatype: MPI_Datatype,
    _keyval: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _new_value: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the library passes the place for the flag.
    unsafe { *flag = 0 };
    constants().success
}

/// How many datatypes with a layout attribute were freed. While it stays the same, the handle of a datatype that has
/// such an attribute still means that datatype. It tells nothing of datatypes for which the library took no attribute.
static FREED: AtomicU64 = AtomicU64::new(0);

/// See [`FREED`]. A thread that uses a handle again which another thread has freed is ordered after that free.
#[inline(always)]
pub(super) fn freed() -> u64 {
    FREED.load(Ordering::Relaxed)
}

/// The delete callback of the attribute: frees what it owned.
unsafe extern "C" fn delete(_datatype: MPI_Datatype, _keyval: c_int, value: *mut c_void, _extra: *mut c_void) -> c_int {
    FREED.fetch_add(1, Ordering::Relaxed);
    ATTRIBUTES.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the value is the pointer that `keep` stored, deleted once.
    let kept = unsafe { Box::from_raw(value.cast::<Attribute>()) };
    HABIT.note_freed(kept.is_used_again());
    constants().success
}
