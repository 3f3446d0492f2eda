//! A queue in blocks, for many large entries: it grows without copying them, and gives memory back as it empties.
//!
//! A ring buffer in one piece would be copied whenever it grows, and would be up to twice as large as what is in it.

use std::collections::VecDeque;
use std::ops::Range;

/// How many entries a block has; all but the last block are full.
const BLOCK: usize = 1024;
/// Fewer gone entries of the only block are not worth moving the others.
const GONE_MIN: usize = 16;

#[derive(Debug)]
pub(super) struct BlockRing<T> {
    blocks: VecDeque<Vec<T>>,
    /// How many entries of the first block are gone.
    gone: usize,
    /// An emptied block, to be used again.
    spare: Option<Vec<T>>,
}

impl<T> Default for BlockRing<T> {
    fn default() -> BlockRing<T> {
        BlockRing {
            blocks: VecDeque::new(),
            gone: 0,
            spare: None,
        }
    }
}

impl<T> BlockRing<T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        let last = self.blocks.back().map_or(0, Vec::len);
        self.blocks.len().saturating_sub(1) * BLOCK + last - self.gone
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        let at = self.gone + index;
        self.blocks.get(at / BLOCK)?.get(at % BLOCK)
    }

    pub(super) fn range_mut(&mut self, range: Range<usize>) -> impl Iterator<Item = &mut T> {
        let start = (self.gone + range.start) / BLOCK;
        let skipped = (self.gone + range.start) % BLOCK;
        let blocks = self.blocks.range_mut(start.min(self.blocks.len())..);
        blocks.flatten().skip(skipped).take(range.len())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten().skip(self.gone)
    }

    /// The number of entries at the front for which `is_before` holds; it holds for none behind them.
    pub(super) fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).is_some_and(&is_before) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    #[inline]
    pub(super) fn push_back(&mut self, entry: T) {
        match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK => last.push(entry),
            _ => self.push_block(entry),
        }
    }

    #[cold]
    fn push_block(&mut self, entry: T) {
        // The first block grows from nothing, because there may be very many short queues.
        let first = self.blocks.is_empty();
        let fresh = || Vec::with_capacity(if first { 0 } else { BLOCK });
        let mut block = self.spare.take().unwrap_or_else(fresh);
        block.push(entry);
        self.blocks.push_back(block);
    }

    /// Removes the first entry if `is_gone` holds for it.
    #[inline]
    pub(super) fn pop_front_if(&mut self, is_gone: impl Fn(&T) -> bool) -> Option<T>
    where
        T: Copy,
    {
        let first = *self.get(0).filter(|first| is_gone(first))?;
        self.gone += 1;
        let alone = self.blocks.len() == 1 && self.gone >= GONE_MIN;
        if self.gone == BLOCK {
            self.spare = self.blocks.pop_front().map(|mut block| {
                block.clear();
                block
            });
            self.gone = 0;
        } else if alone && self.gone * 2 >= self.blocks[0].len() {
            self.blocks[0].drain(..self.gone);
            self.gone = 0;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn it_is_a_queue(steps in prop::collection::vec((0..3_000usize, 0..3_000usize), 0..12)) {
            let (mut ring, mut naive) = (BlockRing::default(), VecDeque::new());
            let mut next = 0;
            for (added, kept) in steps {
                for _ in 0..added {
                    ring.push_back(next);
                    naive.push_back(next);
                    next += 1;
                }
                let bound = naive.get(naive.len().saturating_sub(kept)).copied().unwrap_or(next);
                while let Some(gone) = ring.pop_front_if(|entry| *entry < bound) {
                    prop_assert_eq!(naive.pop_front(), Some(gone));
                }
                prop_assert_eq!(ring.len(), naive.len());
                prop_assert!(ring.iter().eq(&naive));
                for index in [0, 1, naive.len() / 2, naive.len().saturating_sub(1), naive.len()] {
                    prop_assert_eq!(ring.get(index), naive.get(index));
                    let tail = index.min(naive.len())..naive.len();
                    prop_assert!(ring.range_mut(tail.clone()).eq(naive.range_mut(tail)));
                }
                let middle = next - (next - bound) / 2;
                prop_assert_eq!(
                    ring.partition_point(|entry| *entry < middle),
                    naive.partition_point(|entry| *entry < middle)
                );
                let blocks: usize = ring.blocks.iter().map(Vec::capacity).sum();
                prop_assert!(blocks <= naive.len() + 2 * BLOCK);
            }
        }
    }

    #[test]
    fn a_queue_that_stays_short_stays_small() {
        let mut ring = BlockRing::default();
        for number in 0..100_000 {
            ring.push_back(number);
            ring.pop_front_if(|entry| entry + 3 < number);
        }
        assert!(ring.blocks[0].capacity() <= 64);
    }
}
