//! Attaches the key of each lane to the rows of an input.
//!
//! Lanes are numbered by each partition for itself. Where streams of several partitions or inputs meet, lanes are
//! matched by key, so the key is sent with the lane: once, in front of its first row, and again whenever the number is
//! reused for another key. This operator is right behind the source, where the OVER columns exist and no row has been
//! filtered out.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_query::plan::Expr;

use highwater_codec::{DecodeError, Reader};

use super::super::{Context, Item, Operator};
use crate::chunk::{Chunk, LaneName};
use crate::eval::{self, Faults};

pub(crate) struct LaneNamer {
    /// The OVER columns.
    over: Vec<Expr>,
    known: HashMap<u32, Arc<[u8]>, FixedState>,
}

impl LaneNamer {
    pub(crate) fn new(over: &[Expr]) -> LaneNamer {
        LaneNamer {
            over: over.to_vec(),
            known: HashMap::default(),
        }
    }

    fn name(&mut self, chunk: &mut Chunk) {
        let mut faults = Faults::new(chunk.rows());
        let keys: Vec<_> = eval::evaluate_all(&self.over, chunk, &mut faults);
        debug_assert!(faults.is_empty(), "an event without a key has no lane");
        let Some(lanes) = &mut chunk.lanes else {
            return;
        };
        let (mut watermarks, mut bytes) = (0, Vec::new());
        for (row, &lane) in lanes.of_row.iter().enumerate() {
            bytes.clear();
            for key in &keys {
                eval::encode_key(key.get(row), &mut bytes);
            }
            if self.known.get(&lane).is_some_and(|key| **key == *bytes) {
                continue;
            }
            while lanes
                .watermarks
                .get(watermarks)
                .is_some_and(|m| m.before_row <= row)
            {
                watermarks += 1;
            }
            let key: Arc<[u8]> = bytes.as_slice().into();
            self.known.insert(lane, key.clone());
            lanes.names.push(LaneName {
                after: watermarks,
                lane,
                key,
            });
        }
    }
}

impl Operator for LaneNamer {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        context.out.push(item.map_rows(|mut chunk| {
            self.name(&mut chunk);
            chunk
        }));
    }

    // No snapshot: repeating a name is harmless.
    fn restore(&mut self, _from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.known.clear();
        Ok(())
    }
}
