//! A bounded number of things kept at hand, such as open files: the one not used for longest goes.

use hashbrown::HashMap;
use parking_lot::Mutex;

pub struct Cache<T> {
    kept: Mutex<CacheState<T>>,
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
    pub fn new(count_max: usize) -> Cache<T> {
        let kept = CacheState {
            items: HashMap::new(),
            clock: 0,
        };
        Cache {
            kept: Mutex::new(kept),
            count_max: count_max.max(1),
        }
    }

    /// The thing of this number, made if it is not at hand. Two callers may make it at the same
    /// time; one of the two is kept.
    pub fn get<E>(&self, id: u64, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if let Some(found) = self.kept.lock().touch(id) {
            return Ok(found);
        }
        let made = make()?;
        let dropped = self.kept.lock().insert(id, made.clone(), self.count_max);
        // Closing a file may take a while, so it happens outside of the lock.
        drop(dropped);
        Ok(made)
    }

    pub fn forget(&self, id: u64) {
        let dropped = self.kept.lock().items.remove(&id);
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
    fn the_one_not_used_for_longest_goes_first() {
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
        // 3 pushed out 2, so 2 was made twice.
        assert_eq!(made.get(), 4);
        cache.forget(1);
        get(1);
        assert_eq!(made.get(), 5);
    }
}
