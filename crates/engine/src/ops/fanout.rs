//! Operators that turn one row into none, one or many, in place.
//!
//! A chunk of rows may become several, so that no output chunk outgrows memory because one row had many results. The
//! time, lane and origin of a row go on to its results, and clock movements keep their place between them.

use highwater_time::LaneMark;

use crate::chunk::{Chunk, Lanes};
use crate::column::Column;

/// The results of one chunk, piece by piece.
pub(crate) struct Fanout<'a> {
    chunk: &'a Chunk,
    /// Clock movements before this one have gone out.
    mark: usize,
}

impl<'a> Fanout<'a> {
    pub fn of(chunk: &'a Chunk) -> Fanout<'a> {
        Fanout { chunk, mark: 0 }
    }

    /// The next results: `rows` names the row that each stems from, never going back. Clock movements up to the row
    /// `until` go out with them; results of earlier rows must not follow.
    pub fn piece(&mut self, rows: &[u32], until: usize, columns: Vec<Column>) -> Chunk {
        let times = rows.iter().map(|&row| self.chunk.times[row as usize]);
        let mut piece = Chunk::new(times.collect(), columns);
        let origins = self.chunk.origins.as_ref();
        piece.origins = origins.map(|of| rows.iter().map(|&row| of[row as usize]).collect());
        piece.lanes = self.chunk.lanes.as_ref().map(|lanes| {
            let marks = lanes.marks[self.mark..]
                .iter()
                .take_while(|mark| mark.before <= until)
                .map(|mark| LaneMark {
                    before: rows.partition_point(|&row| (row as usize) < mark.before),
                    ..*mark
                });
            Lanes {
                marks: marks.collect(),
                of_row: rows.iter().map(|&row| lanes.of_row[row as usize]).collect(),
            }
        });
        self.mark += piece.lanes.as_ref().map_or(0, |lanes| lanes.marks.len());
        piece
    }
}
