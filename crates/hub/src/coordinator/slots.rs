//! The entries of a coordinator by name, each behind a lock of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

pub(crate) type Slot<E> = Arc<Mutex<E>>;

/// The lock of the map is held only to find, insert or remove an entry, never while waiting for the lock of an entry.
pub(crate) struct Slots<E>(RwLock<BTreeMap<String, Slot<E>>>);

impl<E> Default for Slots<E> {
    fn default() -> Slots<E> {
        Slots(RwLock::default())
    }
}

impl<E> Slots<E> {
    pub(crate) fn get(&self, name: &str) -> Option<Slot<E>> {
        self.0.read().get(name).cloned()
    }

    pub(crate) fn get_or_insert(&self, name: &str, new: impl FnOnce() -> E) -> Slot<E> {
        self.get(name).unwrap_or_else(|| {
            let mut slots = self.0.write();
            let slot = slots.entry(name.to_owned());
            Arc::clone(slot.or_insert_with(|| Arc::new(Mutex::new(new()))))
        })
    }

    /// Removes an entry, unless another one has its name by now.
    pub(crate) fn remove(&self, name: &str, slot: &Slot<E>) {
        let mut slots = self.0.write();
        if slots.get(name).is_some_and(|own| Arc::ptr_eq(own, slot)) {
            slots.remove(name);
        }
    }

    /// All entries, sorted by name.
    pub(crate) fn all(&self) -> Vec<Slot<E>> {
        self.0.read().values().cloned().collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.read().keys().cloned().collect()
    }
}
