//! What customers were told: a line for every request that was accepted.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use highwater_env::disk::{self, AtomicFile};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<Id = String> {
    pub id: Id,
    pub wish: Wish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wish {
    Deliver,
    Cancel,
}

/// A ledger that is being written; it has its name once it is closed.
pub struct Ledger {
    file: BufWriter<AtomicFile>,
}

impl Ledger {
    pub fn create(path: &Path) -> io::Result<Ledger> {
        const BUFFER_BYTES: usize = 64 << 10;
        let file = disk::create_atomic(path)?;
        Ok(Ledger {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
        })
    }

    pub fn enter(&mut self, id: &str, wish: Wish) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, &Entry { id, wish })?;
        self.file.write_all(b"\n")
    }

    pub fn close(self) -> io::Result<()> {
        self.file.into_inner()?.commit()
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
        ledger.enter("a", Wish::Deliver).unwrap();
        ledger.enter("a", Wish::Cancel).unwrap();
        ledger.close().unwrap();
        let entry = |wish| Entry {
            id: "a".to_owned(),
            wish,
        };
        let entries: Vec<Entry> = read_lines(&path).unwrap();
        assert_eq!(entries, [entry(Wish::Deliver), entry(Wish::Cancel)]);
    }
}
