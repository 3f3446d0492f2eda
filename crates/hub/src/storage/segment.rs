//! A file of batches, and what one has to know to read it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use highwater_codec::Reader;
use highwater_env::disk::{Access, DiskFile};
use highwater_log::{EnqueueTime, Offset};

use super::checked_file::{self, CheckedFile};
use super::index::Index;
use super::scan::scan;
use super::{Shared, names};

const INDEX: &[u8; 8] = b"hwindex1";

pub struct Segment {
    pub base: Offset,
    pub path: PathBuf,
    /// Of the file, when it is closed.
    pub bytes: u64,
    pub id: u64,
    last_time: OnceLock<Option<EnqueueTime>>,
}

/// What is known of a closed segment.
#[derive(Debug)]
pub struct SegmentFacts {
    pub index: Index,
    /// Where it is damaged and how; the index ends there.
    pub broken: Option<(u64, String)>,
}

impl Segment {
    pub fn new(shared: &Shared, folder: &Path, base: Offset, bytes: u64) -> Segment {
        Segment {
            base,
            path: folder.join(names::segment(base)),
            bytes,
            id: shared.new_id(),
            last_time: OnceLock::new(),
        }
    }

    /// The same file, known to be closed now.
    pub fn closed(&self, index: &Index) -> Segment {
        Segment {
            base: self.base,
            path: self.path.clone(),
            bytes: index.bytes,
            id: self.id,
            last_time: OnceLock::from(index.last_time),
        }
    }

    pub fn file(&self, shared: &Shared) -> io::Result<Arc<dyn DiskFile>> {
        shared.open(self.id, &self.path, Access::Write)
    }

    /// Of a closed segment: its index, made again if it is missing or not right.
    pub fn facts(&self, shared: &Shared) -> io::Result<Arc<SegmentFacts>> {
        shared.facts.get(self.id, || {
            let facts = match self.read_index(shared)? {
                Some(index) => SegmentFacts {
                    index,
                    broken: None,
                },
                None => self.rebuild(shared)?,
            };
            Ok(Arc::new(facts))
        })
    }

    /// Of the last batch.
    pub fn last_time(&self, shared: &Shared) -> io::Result<Option<EnqueueTime>> {
        if let Some(known) = self.last_time.get() {
            return Ok(*known);
        }
        let time = self.facts(shared)?.index.last_time;
        Ok(*self.last_time.get_or_init(|| time))
    }

    fn index_path(&self) -> PathBuf {
        self.path.with_file_name(names::index(self.base))
    }

    fn read_index(&self, shared: &Shared) -> io::Result<Option<Index>> {
        let CheckedFile::Body(body) = checked_file::read(&*shared.disk, &self.index_path(), INDEX)?
        else {
            return Ok(None);
        };
        let index = Index::decode(&mut Reader::new(&body)).ok();
        Ok(index.filter(|index| index.bytes == self.bytes))
    }

    /// Only speed depends on it, so it need not be durable.
    pub fn write_index(&self, shared: &Shared, index: &Index) -> io::Result<()> {
        let body = index.encode();
        checked_file::replace(&*shared.disk, &self.index_path(), INDEX, &body, false)
    }

    fn rebuild(&self, shared: &Shared) -> io::Result<SegmentFacts> {
        let file = self.file(shared)?;
        let mut index = Index::new(self.base, None);
        let interval = shared.options.index_bytes;
        let scanned = scan(&*file, 0, self.bytes, self.base, |_, batch| {
            index.push(&batch.header, batch.bytes().len() as u64, interval);
        })?;
        let broken = match scanned.broken {
            Some(error) => Some((scanned.bytes, error.to_string())),
            None if scanned.bytes < self.bytes => Some((scanned.bytes, "it ends here".into())),
            None => None,
        };
        if broken.is_none()
            && let Err(error) = self.write_index(shared, &index)
        {
            tracing::warn!(segment = %self.path.display(), %error, "index not written");
        }
        Ok(SegmentFacts { index, broken })
    }
}
