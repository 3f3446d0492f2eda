//! The rows that an expression is evaluated for.
//!
//! A branch of CASE, the right side of AND and later arguments of COALESCE count only for some rows of a chunk. Typed
//! kernels compute all rows anyway, because a loop without branches is faster than picking; but only rows in here may
//! fail, and the slow road visits no others. What a kernel leaves in rows outside is never looked at.

use arrow_buffer::BooleanBuffer;

#[derive(Clone, Debug)]
pub(super) struct Rows {
    len: usize,
    /// `None` means every row.
    mask: Option<BooleanBuffer>,
}

impl Rows {
    pub fn all(len: usize) -> Rows {
        Rows { len, mask: None }
    }

    pub fn of(mask: BooleanBuffer) -> Rows {
        Rows {
            len: mask.len(),
            mask: Some(mask),
        }
    }

    /// How many rows the chunk has, in here or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to do.
    pub fn none(&self) -> bool {
        self.len == 0
            || self
                .mask
                .as_ref()
                .is_some_and(|mask| mask.count_set_bits() == 0)
    }

    pub fn contains(&self, row: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask.value(row))
    }

    /// Those rows that `mask` selects as well.
    pub fn and(&self, mask: &BooleanBuffer) -> Rows {
        Rows::of(self.clip(mask))
    }

    /// Those rows that `mask` does not select.
    pub fn and_not(&self, mask: &BooleanBuffer) -> Rows {
        self.and(&!mask)
    }

    /// `mask`, false outside of these rows.
    pub fn clip(&self, mask: &BooleanBuffer) -> BooleanBuffer {
        match &self.mask {
            Some(own) => own & mask,
            None => mask.clone(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.len).filter(|&row| self.contains(row))
    }
}
