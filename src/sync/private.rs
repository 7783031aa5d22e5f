//! Words that no peer reads.

use std::fmt::Debug;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// A word of this process. It is an atomic so that threads may share what holds it. All accesses are relaxed and none
/// is locked: it orders nothing else, and if several threads change it at a time, changes may be lost. So it holds what
/// one thread uses at a time, or counts and hints. Under loom too the atomic is the standard library's.
pub struct Private<T: Word>(T::Atomic);

/// A value that fits an atomic of the standard library.
pub trait Word: Copy {
    /// The atomic that holds it.
    type Atomic: Debug;

    /// An atomic that holds zero, false or null.
    const ZERO: Self::Atomic;

    /// An atomic that holds this value.
    fn held(self) -> Self::Atomic;

    /// Returns what `atomic` holds.
    fn load(atomic: &Self::Atomic) -> Self;

    /// Sets what `atomic` holds.
    fn store(self, atomic: &Self::Atomic);
}

impl<T: Word> Private<T> {
    /// A word that holds zero, false or null, for statics.
    pub const ZERO: Self = Self(T::ZERO);

    /// A word that holds `value`.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        Self(value.held())
    }

    /// Returns the value.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::load(&self.0)
    }

    /// Sets the value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        value.store(&self.0);
    }

    /// Sets the value and returns the one before.
    #[inline(always)]
    pub fn replace(&self, value: T) -> T {
        let before = self.get();
        self.set(value);
        before
    }
}

impl<T: Word> Default for Private<T> {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<T: Word> Debug for Private<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! words {
    ($($value:ty: $atomic:ty = $zero:expr),* $(,)?) => { $(
        impl Word for $value {
            type Atomic = $atomic;

            const ZERO: $atomic = <$atomic>::new($zero);

            #[inline(always)]
            fn held(self) -> $atomic {
                <$atomic>::new(self)
            }

            #[inline(always)]
            fn load(atomic: &$atomic) -> Self {
                atomic.load(Ordering::Relaxed)
            }

            #[inline(always)]
            fn store(self, atomic: &$atomic) {
                atomic.store(self, Ordering::Relaxed);
            }
        }
    )* };
}

words! {
    bool: AtomicBool = false,
    i32: AtomicI32 = 0,
    u8: AtomicU8 = 0,
    u16: AtomicU16 = 0,
    u32: AtomicU32 = 0,
    u64: AtomicU64 = 0,
    usize: AtomicUsize = 0,
    *mut u8: AtomicPtr<u8> = std::ptr::null_mut(),
}
