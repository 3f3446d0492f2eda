//! Makes checkpoints of cuts.

use std::time::Duration;

use highwater_engine::codec::Writer;
use highwater_time::Instant;

use super::build::Built;
use super::combine::Cut;
use super::output::Mark;
use super::print::Fingerprint;
use super::saved::{Saved, SavedOutput};
use super::stream::StreamCopy;
use crate::reference::InForce;

/// What is the same in all checkpoints of a run.
pub(super) struct Keeper {
    pub fingerprint: Fingerprint,
    pub epoch: u64,
    pub since: Instant,
    /// Of the outputs.
    pub names: Vec<String>,
    pub references: InForce,
    /// The number under which the tables without times are kept.
    pub tables: Option<u64>,
}

impl Keeper {
    /// Before anything was read.
    pub fn first(&self, built: &Built, marks: Vec<Option<Mark>>) -> Saved {
        let mut shared = Writer::default();
        built.combiner.snapshot(&mut shared);
        let cut = Cut {
            streams: built.streams.iter().map(|stream| stream.copy()).collect(),
            shared: shared.bytes,
            next: vec![0; self.names.len()],
            watermark: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            pause: Duration::ZERO,
        };
        self.saved(&cut, marks)
    }

    pub fn saved(&self, cut: &Cut, marks: Vec<Option<Mark>>) -> Saved {
        let outputs = self.names.iter().zip(&cut.next).zip(marks);
        Saved {
            fingerprint: self.fingerprint.clone(),
            epoch: self.epoch,
            since: self.since,
            watermark: cut.watermark,
            ended: cut.watermark == Instant::AFTER_ALL,
            streams: cut.streams.iter().map(StreamCopy::written).collect(),
            shared: cut.shared.clone(),
            outputs: outputs
                .map(|((name, next), mark)| SavedOutput {
                    name: name.clone(),
                    next: *next,
                    mark,
                })
                .collect(),
            reached: cut.reached,
            references: self.references.clone(),
            tables: self.tables,
        }
    }
}
