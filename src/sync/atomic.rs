//! Atomics and cells: the standard library's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

    /// `std::cell::UnsafeCell` with the interface of loom's.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline]
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(not(loom))]
pub(crate) use real::{AtomicU64, Ordering, UnsafeCell};

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, Ordering},
};
