//! Values found once for each key, in an append-only list that is read without a lock.

use std::sync::OnceLock;

/// A cache of few keys, which are searched one after another.
#[derive(Debug)]
pub(super) struct Cache<K, V>(OnceLock<Box<Entry<K, V>>>);

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: OnceLock<V>,
    next: Cache<K, V>,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

/// A clone starts empty and finds its values again.
impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// All caches are equal: what was found is no part of the value that holds the cache.
impl<K, V> PartialEq for Cache<K, V> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<K, V> Eq for Cache<K, V> {}

impl<K: Copy + PartialEq, V> Cache<K, V> {
    /// The value of `key`. The first call for a key makes it.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> V) -> &V {
        let mut list = self;
        loop {
            let entry = list.0.get_or_init(|| Box::new(Entry { key, value: OnceLock::new(), next: Self::default() }));
            if entry.key == key {
                return entry.value.get_or_init(make);
            }
            list = &entry.next;
        }
    }
}
