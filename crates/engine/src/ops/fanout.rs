//! Output of operators that turn one row into any number of rows.
//!
//! One input chunk may give several output chunks, so that many results of one row do not exhaust memory. Results
//! inherit the time, lane and origin of their row, and watermarks keep their position between them.

use highwater_time::LaneWatermark;

use crate::chunk::{Chunk, ChunkLanes, LaneName};
use crate::column::Column;

/// The results of one chunk, in pieces.
pub(crate) struct Fanout<'a> {
    chunk: &'a Chunk,
    next_watermark: usize,
    /// The next lane name.
    name: usize,
}

impl<'a> Fanout<'a> {
    pub(super) fn of(chunk: &'a Chunk) -> Fanout<'a> {
        Fanout {
            chunk,
            next_watermark: 0,
            name: 0,
        }
    }

    /// The next results. `rows` has the input row of each, never decreasing. Includes the watermarks up to the row
    /// `until`; results of earlier rows must not follow.
    pub(super) fn piece(&mut self, rows: &[u32], until: usize, columns: Vec<Column>) -> Chunk {
        let times = rows.iter().map(|&row| self.chunk.times[row as usize]);
        let mut piece = Chunk::new(times.collect(), columns);
        let origins = self.chunk.origins.as_ref();
        piece.origins = origins.map(|of| rows.iter().map(|&row| of[row as usize]).collect());
        piece.lanes = self.chunk.lanes.as_ref().map(|lanes| {
            let watermarks = lanes.watermarks[self.next_watermark..]
                .iter()
                .take_while(|mark| mark.before_row <= until)
                .map(|mark| LaneWatermark {
                    before_row: rows.partition_point(|&row| (row as usize) < mark.before_row),
                    ..*mark
                });
            let watermarks: Vec<LaneWatermark> = watermarks.collect();
            let done = self.next_watermark + watermarks.len();
            let names = lanes.names[self.name..]
                .iter()
                .take_while(|name| name.after <= done)
                .map(|name| LaneName {
                    after: name.after - self.next_watermark,
                    ..name.clone()
                });
            ChunkLanes {
                names: names.collect(),
                watermarks,
                of_row: rows.iter().map(|&row| lanes.of_row[row as usize]).collect(),
            }
        });
        if let Some(lanes) = &piece.lanes {
            self.next_watermark += lanes.watermarks.len();
            self.name += lanes.names.len();
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use highwater_time::Instant;

    use super::*;

    // proves T9
    #[test]
    fn clock_movements_keep_their_place_between_the_results() {
        let mark = |before: usize| LaneWatermark {
            before_row: before,
            lane: None,
            watermark: Instant::from_ticks(before as i64),
        };
        let name = |after: usize, lane: u32| LaneName {
            after,
            lane,
            key: [7].into(),
        };
        let mut chunk = Chunk::new(vec![5, 6, 7].into(), Vec::new());
        chunk.origins = Some(vec![50, 60, 70].into());
        chunk.lanes = Some(ChunkLanes {
            of_row: vec![1, 2, 1],
            watermarks: vec![mark(0), mark(1), mark(2), mark(3)],
            names: vec![name(0, 1), name(1, 2), name(3, 1)],
        });
        let mut fanout = Fanout::of(&chunk);
        let seen = |piece: &Chunk| -> (Vec<i64>, Vec<u32>, Vec<(usize, i64)>) {
            let lanes = piece.lanes.clone().unwrap_or_default();
            let watermarks = lanes.watermarks.iter();
            let watermarks = watermarks.map(|mark| (mark.before_row, mark.watermark.ticks()));
            (piece.times.to_vec(), lanes.of_row, watermarks.collect())
        };
        // Row 0 has three results, the last of which did not fit; row 1 has none.
        let first = fanout.piece(&[0, 0], 0, Vec::new());
        assert_eq!(seen(&first), (vec![5, 5], vec![1, 1], vec![(0, 0)]));
        let second = fanout.piece(&[0, 2], usize::MAX, Vec::new());
        let watermarks = vec![(1, 1), (1, 2), (2, 3)];
        assert_eq!(seen(&second), (vec![5, 7], vec![1, 1], watermarks));
        let names = |piece: &Chunk| -> Vec<(usize, u32)> {
            let lanes = piece.lanes.iter();
            let names = lanes.flat_map(|lanes| &lanes.names);
            names.map(|name| (name.after, name.lane)).collect()
        };
        assert_eq!(names(&first), [(0, 1), (1, 2)]);
        assert_eq!(names(&second), [(2, 1)]);
        let origins = second.origins.map(|origins| origins.to_vec());
        assert_eq!(origins, Some(vec![50, 70]));
    }
}
