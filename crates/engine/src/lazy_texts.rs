//! The texts of records and arrays that are not put together yet: pieces of one text.
//!
//! The pieces of a decoded column follow one another. Those of the elements of arrays are cut out of the texts of the
//! arrays without a copy.

use arrow_array::StringArray;
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};

#[derive(Clone, Debug)]
pub(crate) struct LazyTexts {
    /// The whole text as the only value: it is known to be UTF-8.
    whole: StringArray,
    /// Where the text of each row starts in the whole.
    starts: ScalarBuffer<i32>,
    ends: ScalarBuffer<i32>,
    nulls: Option<NullBuffer>,
}

/// The texts of several rows, read together.
#[derive(Clone, Copy, Debug)]
pub struct NestedTexts<'a> {
    all: &'a str,
    starts: &'a [i32],
    nulls: Option<&'a NullBuffer>,
}

impl<'a> NestedTexts<'a> {
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// The text that holds those of all rows.
    pub fn all(&self) -> &'a str {
        self.all
    }

    /// Where the text of a row starts in [`NestedTexts::all`].
    #[inline]
    pub fn start(&self, row: usize) -> Option<usize> {
        let valid = self.nulls.is_none_or(|nulls| nulls.is_valid(row));
        valid.then(|| self.starts[row] as usize)
    }
}

impl LazyTexts {
    pub(crate) fn of(texts: StringArray) -> LazyTexts {
        let (offsets, bytes, nulls) = texts.into_parts();
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        let rows = offsets.len() - 1;
        let text = bytes.slice_with_length(first as usize, (last - first) as usize);
        let offsets: ScalarBuffer<i32> = match first {
            0 => offsets.into_inner(),
            _ => offsets.iter().map(|offset| offset - first).collect(),
        };
        let ends = OffsetBuffer::new(vec![0, last - first].into());
        LazyTexts {
            whole: StringArray::new(ends, text, None),
            starts: offsets.slice(0, rows),
            ends: offsets.slice(1, rows),
            nulls,
        }
    }

    /// Other pieces of the same text.
    pub(crate) fn pieces(&self, starts: Vec<i32>, ends: Vec<i32>) -> LazyTexts {
        debug_assert_eq!(starts.len(), ends.len(), "a piece has a start and an end");
        LazyTexts {
            whole: self.whole.clone(),
            starts: starts.into(),
            ends: ends.into(),
            nulls: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    pub(crate) fn has_nulls(&self) -> bool {
        self.nulls
            .as_ref()
            .is_some_and(|nulls| nulls.null_count() > 0)
    }

    pub(crate) fn nulls(&self) -> Option<&NullBuffer> {
        self.nulls.as_ref()
    }

    /// The text of a row that is not NULL.
    #[inline]
    pub(crate) fn value(&self, row: usize) -> &str {
        let range = self.starts[row] as usize..self.ends[row] as usize;
        &self.whole.value(0)[range]
    }

    /// Where the text of a row starts in the whole.
    #[inline]
    pub(crate) fn start(&self, row: usize) -> i32 {
        self.starts[row]
    }

    #[inline]
    pub(crate) fn value_bytes(&self, row: usize) -> usize {
        (self.ends[row] - self.starts[row]) as usize
    }

    pub(crate) fn all(&self) -> NestedTexts<'_> {
        NestedTexts {
            all: self.whole.value(0),
            starts: &self.starts,
            nulls: self.nulls.as_ref(),
        }
    }

    /// About the size of the texts: they are in order.
    pub(crate) fn bytes(&self) -> usize {
        match (self.starts.first(), self.ends.last()) {
            (Some(first), Some(last)) => last.saturating_sub(*first).max(0) as usize,
            _ => 0,
        }
    }

    pub(crate) fn slice(&self, start: usize, len: usize) -> LazyTexts {
        LazyTexts {
            whole: self.whole.clone(),
            starts: self.starts.slice(start, len),
            ends: self.ends.slice(start, len),
            nulls: self.nulls.as_ref().map(|nulls| nulls.slice(start, len)),
        }
    }

    /// Some rows. A small part is copied, because it would keep the memory of all; `None` if there is too much text for
    /// one array.
    pub(crate) fn take(&self, rows: &[u32]) -> Option<LazyTexts> {
        let gather = |of: &[i32]| rows.iter().map(|&row| of[row as usize]).collect();
        let nulls = self.nulls.as_ref().map(|nulls| {
            NullBuffer::from_iter(rows.iter().map(|&row| nulls.is_valid(row as usize)))
        });
        if rows.len() * 2 > self.len() {
            return Some(LazyTexts {
                whole: self.whole.clone(),
                starts: gather(&self.starts),
                ends: gather(&self.ends),
                nulls,
            });
        }
        let lengths = rows.iter().map(|&row| self.value_bytes(row as usize));
        let mut bytes = Vec::with_capacity(lengths.sum());
        let mut offsets: Vec<i32> = Vec::with_capacity(rows.len() + 1);
        offsets.push(0);
        for &row in rows {
            bytes.extend_from_slice(self.value(row as usize).as_bytes());
            offsets.push(i32::try_from(bytes.len()).ok()?);
        }
        let offsets = OffsetBuffer::new(offsets.into());
        Some(LazyTexts::of(StringArray::new(
            offsets,
            bytes.into(),
            nulls,
        )))
    }
}
