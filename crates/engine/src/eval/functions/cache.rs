//! A cache of compiled patterns.
//!
//! Most patterns are constants of the query; some come from reference data and are few. A short list, most recently
//! used first, serves both, and its bound keeps data from filling the memory.

const ENTRIES_MAX: usize = 32;

pub(super) struct Cache<T> {
    /// Most recently used first.
    entries: Vec<(Box<str>, T)>,
}

impl<T> Cache<T> {
    pub(super) const fn new() -> Cache<T> {
        Cache {
            entries: Vec::new(),
        }
    }

    /// The value of the text, made on a miss.
    pub(super) fn get(&mut self, text: &str, make: impl FnOnce(&str) -> T) -> &T {
        match self.entries.iter().position(|(known, _)| **known == *text) {
            Some(0) => {}
            Some(at) => self.entries[..=at].rotate_right(1),
            None => {
                self.entries.truncate(ENTRIES_MAX - 1);
                self.entries.insert(0, (text.into(), make(text)));
            }
        }
        &self.entries[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn a_text_is_compiled_again_only_after_many_others() {
        let mut cache = Cache::new();
        let mut made = 0;
        let mut get = |text: &str| {
            cache.get(text, |text| {
                made += 1;
                text.len()
            });
            made
        };
        assert_eq!(get("a"), 1);
        assert_eq!(get("b"), 2);
        assert_eq!(get("a"), 2);
        for n in 0..ENTRIES_MAX - 1 {
            get(&format!("other {n}"));
        }
        assert_eq!(get("a"), 33, "the latest use keeps a text longest");
        assert_eq!(get("b"), 34);
    }
}
