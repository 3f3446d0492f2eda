//! The ledger of accepted requests: one line each.

use std::io::{self, Write};
use std::path::Path;

use highwater_env::disk::{self, AtomicFile};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<Id = String> {
    pub id: Id,
    pub wish: CustomerAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CustomerAction {
    Deliver,
    Cancel,
}

/// A ledger in memory. It is written when it is closed, because the load measures latencies, and a write could wait for
/// the disk that the measured processes sync.
pub struct Ledger {
    file: AtomicFile,
    lines: Vec<u8>,
}

impl Ledger {
    pub fn create(path: &Path) -> io::Result<Ledger> {
        Ok(Ledger {
            file: disk::create_atomic(path)?,
            lines: Vec::new(),
        })
    }

    pub fn record(&mut self, id: &str, wish: CustomerAction) {
        let entry = serde_json::to_writer(&mut self.lines, &Entry { id, wish });
        entry.expect("a text and a name, to a vector");
        self.lines.push(b'\n');
    }

    pub fn close(mut self) -> io::Result<()> {
        self.file.write_all(&self.lines)?;
        self.file.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::read_lines;

    #[test]
    fn what_is_entered_is_read_by_the_checker() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        let mut ledger = Ledger::create(&path).unwrap();
        ledger.record("a", CustomerAction::Deliver);
        ledger.record("a", CustomerAction::Cancel);
        ledger.close().unwrap();
        let entry = |wish| Entry {
            id: "a".to_owned(),
            wish,
        };
        let entries: Vec<Entry> = read_lines(&path).unwrap();
        assert_eq!(
            entries,
            [
                entry(CustomerAction::Deliver),
                entry(CustomerAction::Cancel)
            ]
        );
    }
}
