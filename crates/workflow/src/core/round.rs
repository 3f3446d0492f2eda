//! Records appended together, and the effects to perform once they are durable.

use std::ops::Range;
use std::sync::Arc;

use super::Effect;
use crate::journal;
use crate::machine::Event;

/// One append.
#[derive(Default)]
pub(crate) struct Round {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    pub effects: Vec<Effect>,
}

/// A record: its key, and where in the round's bytes its value is.
struct Entry {
    id: Arc<str>,
    value: Range<usize>,
}

impl Round {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.effects.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn records(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &[u8])> {
        let value = |entry: &Entry| &self.bytes[entry.value.clone()];
        self.entries
            .iter()
            .map(move |entry| (&entry.id, value(entry)))
    }

    pub(super) fn put(&mut self, id: &Arc<str>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.entries.push(Entry {
            id: Arc::clone(id),
            value: start..self.bytes.len(),
        });
    }

    pub(super) fn event(&mut self, id: &Arc<str>, event: &Event) {
        self.put(id, |out| journal::write_event(out, event));
    }
}
