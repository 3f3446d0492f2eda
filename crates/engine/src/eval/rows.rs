//! The rows for which an expression is evaluated.
//!
//! A branch of CASE, the right side of AND and later arguments of COALESCE apply only to some rows of a chunk. Typed
//! kernels compute all rows anyway, because a loop without branches is faster; but only these rows may fail, and
//! row-wise evaluation visits no others. The results of other rows are undefined and never read.

use arrow_buffer::BooleanBuffer;

#[derive(Clone, Debug)]
pub(super) struct Rows {
    len: usize,
    /// `None` for every row.
    mask: Option<BooleanBuffer>,
}

impl Rows {
    pub(super) fn all(len: usize) -> Rows {
        Rows { len, mask: None }
    }

    pub(super) fn of(mask: BooleanBuffer) -> Rows {
        Rows {
            len: mask.len(),
            mask: Some(mask),
        }
    }

    /// The number of rows of the chunk, selected or not.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is selected.
    pub(super) fn none(&self) -> bool {
        self.len == 0
            || self
                .mask
                .as_ref()
                .is_some_and(|mask| mask.count_set_bits() == 0)
    }

    pub(super) fn contains(&self, row: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask.value(row))
    }

    /// Those rows that `mask` selects as well.
    pub(super) fn and(&self, mask: &BooleanBuffer) -> Rows {
        Rows::of(self.clip(mask))
    }

    /// Those rows that `mask` does not select.
    pub(super) fn and_not(&self, mask: &BooleanBuffer) -> Rows {
        self.and(&!mask)
    }

    /// `mask`, false outside of these rows.
    pub(super) fn clip(&self, mask: &BooleanBuffer) -> BooleanBuffer {
        match &self.mask {
            Some(own) => own & mask,
            None => mask.clone(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.len).filter(|&row| self.contains(row))
    }
}
