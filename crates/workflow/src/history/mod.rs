//! Ended instances: one record each in a hub of its own, found by id through an index.
//!
//! An id is known as long as its record is kept. A million ended instances cost a start one search in memory,
//! and a restart the reading of twelve bytes each.

mod index;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_log::batch::{Batches, Decompressor, NewRecord};
use highwater_log::{Isolation, Offset, Partition, ReadError};

use crate::journal::{self, JournalError, Record, read_all, read_from, read_range};
use crate::machine::Instance;
use crate::versions::Versions;
use index::{Index, Run};

/// The history of one partition.
pub(crate) struct History {
    partition: Arc<dyn Partition>,
    runs: Arc<dyn Partition>,
    index: Mutex<Index>,
    /// The next offset to index. Records are indexed in the order of the hub, no matter who wrote them.
    next: tokio::sync::Mutex<Offset>,
    versions: Versions,
}

/// Id and record of an ended instance.
pub(crate) type ArchivedRecord = (Arc<str>, Vec<u8>);

impl History {
    pub(crate) async fn open(
        partition: Arc<dyn Partition>,
        runs: Arc<dyn Partition>,
        versions: Versions,
    ) -> Result<History, JournalError> {
        let mut index = Index::default();
        let start = partition.fetch_bounds().await?.start;
        let mut outlived = None;
        read_all(&*runs, |record| {
            let Some(run) = record.value.and_then(Run::from_bytes) else {
                return Ok(());
            };
            if run.next <= start.0 {
                outlived = Some(Offset(record.offset.0 + 1));
            }
            index.add_run(run);
            index.tidy(start);
            Ok(())
        })
        .await?;
        if let Some(outlived) = outlived {
            runs.trim(outlived).await?;
        }
        let history = History {
            partition,
            runs,
            next: tokio::sync::Mutex::new(index.recent_from()),
            index: Mutex::new(index),
            versions,
        };
        history.catch_up().await?;
        Ok(history)
    }

    /// Appends records. Completes when they are durable and indexed.
    pub(crate) async fn put(&self, ended: &[ArchivedRecord]) -> Result<(), JournalError> {
        let records: Vec<NewRecord<'_>> = (ended.iter())
            .map(|(id, value)| journal::record(id, value))
            .collect();
        journal::append(&*self.partition, &records).await?;
        self.catch_up().await
    }

    /// Indexes all records up to the current end of the hub.
    async fn catch_up(&self) -> Result<(), JournalError> {
        let mut next = self.next.lock().await;
        let start = self.partition.bounds().start;
        let mut full = Vec::new();
        *next = read_from(&*self.partition, *next, |record| {
            let id = String::from_utf8_lossy(record.key.unwrap_or_default());
            let mut index = self.lock();
            if let Some(run) = index.add(&id, record.offset) {
                full.push(run.to_bytes());
                index.tidy(start);
            }
            Ok(())
        })
        .await?;
        for run in full {
            self.keep_run(run).await?;
        }
        Ok(())
    }

    async fn keep_run(&self, run: Vec<u8>) -> Result<(), JournalError> {
        let record = NewRecord {
            key: None,
            value: Some(&run),
            headers: &[],
        };
        journal::append(&*self.runs, &[record]).await?;
        Ok(())
    }

    /// Whether an instance with this id may have ended; `false` is certain.
    pub(crate) fn may_have(&self, id: &str) -> bool {
        !self.lock().offsets(id).is_empty()
    }

    /// Number of known ids.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) async fn find(&self, id: &str) -> Result<Option<Instance>, JournalError> {
        let offsets = self.lock().offsets(id);
        let start = self.partition.bounds().start;
        for offset in offsets.into_iter().filter(|offset| *offset >= start) {
            if let Some(found) = self.read_at(offset, id).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn read_at(&self, offset: Offset, id: &str) -> Result<Option<Instance>, JournalError> {
        let read = self.partition.read(offset, 1, Isolation::Uncommitted);
        let fetched = match read.await {
            Err(ReadError::OutOfRange { start, .. }) if offset < start => return Ok(None),
            fetched => fetched?,
        };
        let mut decompressor = Decompressor::new(256 << 20);
        for piece in &fetched.pieces {
            for batch in Batches::new(piece) {
                for record in batch?.records(&mut decompressor)? {
                    let record = record?;
                    if record.offset == offset && record.key == Some(id.as_bytes()) {
                        return Ok(self.decode(id, record.value));
                    }
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn start(&self) -> Offset {
        self.partition.bounds().start
    }

    pub(crate) fn end(&self) -> Offset {
        self.partition.bounds().end
    }

    /// The readable instances of a range, in the order in which they ended.
    pub(crate) async fn range(
        &self,
        range: Range<Offset>,
    ) -> Result<Vec<(Offset, Instance)>, JournalError> {
        let mut found = Vec::new();
        read_range(&*self.partition, range, |record| {
            if let Some(id) = record.key {
                let instance = self.decode(&String::from_utf8_lossy(id), record.value);
                found.extend(instance.map(|instance| (record.offset, instance)));
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// An unreadable instance is known to have ended, but cannot be shown.
    fn decode(&self, id: &str, value: Option<&[u8]>) -> Option<Instance> {
        match journal::read(id, value?, &self.versions) {
            Ok(Record::Snapshot(instance)) => Some(*instance),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
