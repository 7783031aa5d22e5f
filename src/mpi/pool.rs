//! Contexts of communicators that were freed, for communicators of the same processes that come later: programs that make
//! and free communicators in loops pay for reserving and mapping memory once.

use crate::fabric::shm::Context;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Segments that a process keeps. The oldest goes first.
const MOST: usize = 8;

/// Segments that a rank offers at once.
pub(super) const OFFERED: usize = 4;

/// A context, and what its ranks know it by.
pub(super) struct Pooled {
    /// World ranks of its members on this node, in their order.
    pub members: Box<[c_int]>,
    /// The number in its header.
    pub nonce: u64,
    pub context: Context,
}

static POOL: Mutex<Vec<Pooled>> = Mutex::new(Vec::new());

fn pool() -> MutexGuard<'static, Vec<Pooled>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a context whose communicator this rank has freed. Its peers may still use theirs.
pub(super) fn keep(pooled: Pooled) {
    let mut pool = pool();
    if pool.len() == MOST {
        pool.remove(0);
    }
    pool.push(pooled);
}

/// The newest contexts of these members that `is_wanted`, by their nonces; zeroes where there are fewer.
pub(super) fn nonces(members: &[c_int], is_wanted: impl Fn(&Context) -> bool) -> [u64; OFFERED] {
    let mut nonces = [0; OFFERED];
    let pool = pool();
    let suitable = pool.iter().rev().filter(|pooled| *pooled.members == *members && is_wanted(&pooled.context));
    for (nonce, pooled) in nonces.iter_mut().zip(suitable) {
        *nonce = pooled.nonce;
    }
    nonces
}

/// Takes a context out of the pool.
pub(super) fn take(nonce: u64) -> Option<Context> {
    let mut pool = pool();
    let at = pool.iter().position(|pooled| pooled.nonce == nonce)?;
    Some(pool.remove(at).context)
}
