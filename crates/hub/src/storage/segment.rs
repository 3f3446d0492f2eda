//! A segment file and its index.

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

pub(super) struct Segment {
    pub base: Offset,
    pub path: PathBuf,
    /// Size of the file of a closed segment.
    pub bytes: u64,
    pub id: u64,
    last_time: OnceLock<Option<EnqueueTime>>,
}

/// The index of a closed segment, and its damage.
#[derive(Debug)]
pub(crate) struct SegmentMetadata {
    pub index: Index,
    /// Position and reason of the damage; the index ends there.
    pub broken: Option<(u64, String)>,
}

impl Segment {
    pub(super) fn new(shared: &Shared, folder: &Path, base: Offset, bytes: u64) -> Segment {
        Segment {
            base,
            path: folder.join(names::segment(base)),
            bytes,
            id: shared.new_id(),
            last_time: OnceLock::new(),
        }
    }

    /// The same file as a closed segment.
    pub(super) fn closed(&self, index: &Index) -> Segment {
        Segment {
            base: self.base,
            path: self.path.clone(),
            bytes: index.bytes,
            id: self.id,
            last_time: OnceLock::from(index.last_time),
        }
    }

    pub(super) fn file(&self, shared: &Shared) -> io::Result<Arc<dyn DiskFile>> {
        shared.open(self.id, &self.path, Access::Write)
    }

    /// The index of a closed segment, rebuilt if it is missing or invalid.
    pub(super) fn metadata(&self, shared: &Shared) -> io::Result<Arc<SegmentMetadata>> {
        shared.metadata.get(self.id, || {
            let metadata = match self.read_index(shared)? {
                Some(index) => SegmentMetadata {
                    index,
                    broken: None,
                },
                None => self.rebuild(shared)?,
            };
            Ok(Arc::new(metadata))
        })
    }

    /// Enqueue time of the last batch.
    pub(super) fn last_time(&self, shared: &Shared) -> io::Result<Option<EnqueueTime>> {
        if let Some(known) = self.last_time.get() {
            return Ok(*known);
        }
        let time = self.metadata(shared)?.index.last_time;
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

    /// Not synced: a lost index is rebuilt.
    pub(super) fn write_index(&self, shared: &Shared, index: &Index) -> io::Result<()> {
        let body = index.encode();
        checked_file::replace(&*shared.disk, &self.index_path(), INDEX, &body, false)
    }

    fn rebuild(&self, shared: &Shared) -> io::Result<SegmentMetadata> {
        let file = self.file(shared)?;
        let mut index = Index::new(self.base, None);
        let interval = shared.options.index_bytes;
        let scanned = scan(&*file, 0, self.bytes, self.base, |_, batch| {
            index.push(&batch.header, batch.bytes().len() as u64, interval);
        })?;
        let broken = match scanned.broken {
            Some(error) => Some((scanned.bytes, error.to_string())),
            None if scanned.bytes < self.bytes => {
                Some((scanned.bytes, "the file ends here".into()))
            }
            None => None,
        };
        if broken.is_none()
            && let Err(error) = self.write_index(shared, &index)
        {
            tracing::warn!(segment = %self.path.display(), %error, "index not written");
        }
        Ok(SegmentMetadata { index, broken })
    }
}
