//! Room for long lists that grow, without much of it standing empty.
//!
//! A list that doubles when it is full is half empty at worst, which for a hundred megabytes of state is another hundred.
//! Large lists grow by an eighth instead: they are moved more often, but moving a large list is a matter of page tables.

/// Shorter lists grow as they like.
const LARGE_BYTES: usize = 1 << 18;

/// Makes room for `more` elements.
#[inline]
pub(crate) fn make<T>(list: &mut Vec<T>, more: usize) {
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
    make(list, len.saturating_sub(list.len()));
    list.resize(len, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_list_is_never_much_larger_than_what_is_in_it() {
        let mut list: Vec<u64> = Vec::new();
        for value in 0..1_000_000 {
            make(&mut list, 1);
            list.push(value);
            let spare = (list.capacity() - list.len()) * size_of::<u64>();
            assert!(spare <= LARGE_BYTES.max(list.len()));
        }
        assert_eq!(list.last(), Some(&999_999));
    }
}
