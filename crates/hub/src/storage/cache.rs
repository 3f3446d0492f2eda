//! An LRU cache, such as that of open files.

use hashbrown::HashMap;
use parking_lot::Mutex;

pub(crate) struct Cache<T> {
    state: Mutex<CacheState<T>>,
    count_max: usize,
}

struct CacheState<T> {
    items: HashMap<u64, CacheItem<T>>,
    clock: u64,
}

struct CacheItem<T> {
    value: T,
    used: u64,
}

impl<T: Clone> Cache<T> {
    pub(crate) fn new(count_max: usize) -> Cache<T> {
        let state = CacheState {
            items: HashMap::new(),
            clock: 0,
        };
        Cache {
            state: Mutex::new(state),
            count_max: count_max.max(1),
        }
    }

    /// The value of `id`, created if it is missing. Two callers may create it concurrently; one value is kept.
    pub(crate) fn get<E>(&self, id: u64, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if let Some(found) = self.state.lock().touch(id) {
            return Ok(found);
        }
        let value = make()?;
        let dropped = self.state.lock().insert(id, value.clone(), self.count_max);
        // Closing a file may take a while, so it happens outside the lock.
        drop(dropped);
        Ok(value)
    }

    pub(crate) fn remove(&self, id: u64) {
        let dropped = self.state.lock().items.remove(&id);
        drop(dropped);
    }
}

impl<T: Clone> CacheState<T> {
    fn touch(&mut self, id: u64) -> Option<T> {
        self.clock += 1;
        let item = self.items.get_mut(&id)?;
        item.used = self.clock;
        Some(item.value.clone())
    }

    fn insert(&mut self, id: u64, value: T, count_max: usize) -> Option<CacheItem<T>> {
        self.clock += 1;
        let used = self.clock;
        self.items.insert(id, CacheItem { value, used });
        if self.items.len() <= count_max {
            return None;
        }
        let oldest = self.items.iter().min_by_key(|(_, item)| item.used);
        let oldest = oldest.map(|(id, _)| *id)?;
        self.items.remove(&oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_value_is_evicted() {
        let cache: Cache<u64> = Cache::new(2);
        let made = std::cell::Cell::new(0);
        let get = |id: u64| {
            let make = || {
                made.set(made.get() + 1);
                Ok::<u64, ()>(id)
            };
            cache.get(id, make).unwrap()
        };
        for id in [1, 2, 1, 3, 1, 2] {
            assert_eq!(get(id), id);
        }
        // 3 evicted 2, so 2 was created twice.
        assert_eq!(made.get(), 4);
        cache.remove(1);
        get(1);
        assert_eq!(made.get(), 5);
    }
}
