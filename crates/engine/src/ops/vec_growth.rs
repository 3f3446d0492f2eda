//! Growth of large vectors by an eighth.
//!
//! A vector that doubles is half empty at worst, which wastes another hundred megabytes for a hundred megabytes of
//! state. Growing by an eighth reallocates more often, but reallocating a large vector only remaps pages.

/// Smaller vectors grow as usual.
const LARGE_BYTES: usize = 1 << 18;

/// Like [`Vec::reserve`].
#[inline]
pub(crate) fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        grow(list, more);
    }
}

#[cold]
fn grow<T>(list: &mut Vec<T>, more: usize) {
    if list.len() * size_of::<T>() < LARGE_BYTES {
        list.reserve(more);
    } else {
        list.reserve_exact(more.max(list.len() / 8));
    }
}

/// Like [`Vec::resize`].
pub(crate) fn resize<T: Clone>(list: &mut Vec<T>, len: usize, value: T) {
    reserve(list, len.saturating_sub(list.len()));
    list.resize(len, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_list_is_never_much_larger_than_what_is_in_it() {
        let mut list: Vec<u64> = Vec::new();
        for value in 0..1_000_000 {
            reserve(&mut list, 1);
            list.push(value);
            let spare = (list.capacity() - list.len()) * size_of::<u64>();
            assert!(spare <= LARGE_BYTES.max(list.len()));
        }
        assert_eq!(list.last(), Some(&999_999));
    }
}
