//! A segment file and its index.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use highwater_codec::Reader;
use highwater_env::disk::{Access, DiskFile};
use highwater_log::{EnqueueTime, Offset};

use super::checked_file::{self, CheckedFile};
use super::index::{Index, IndexVersion};
use super::scan::scan;
use super::{Shared, names};

const INDEX: &[u8; 8] = b"hwindex2";
const INDEX_1: &[u8; 8] = b"hwindex1";

pub(super) struct Segment {
    pub base: Offset,
    pub path: PathBuf,
    /// Size of the file of a closed segment.
    pub bytes: u64,
    pub id: u64,
    times: OnceLock<SegmentTimes>,
}

/// The latest times of a segment.
#[derive(Clone, Copy, Debug)]
struct SegmentTimes {
    enqueued: Option<EnqueueTime>,
    timestamp: Option<i64>,
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
            times: OnceLock::new(),
        }
    }

    /// The same file as a closed segment.
    pub(super) fn closed(&self, index: &Index) -> Segment {
        Segment {
            base: self.base,
            path: self.path.clone(),
            bytes: index.bytes,
            id: self.id,
            times: OnceLock::from(SegmentTimes::of(index)),
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
        Ok(self.times(shared)?.enqueued)
    }

    /// The latest timestamp that consumers see, or more.
    pub(super) fn timestamp_max(&self, shared: &Shared) -> io::Result<Option<i64>> {
        Ok(self.times(shared)?.timestamp)
    }

    fn times(&self, shared: &Shared) -> io::Result<SegmentTimes> {
        if let Some(known) = self.times.get() {
            return Ok(*known);
        }
        let times = SegmentTimes::of(&self.metadata(shared)?.index);
        Ok(*self.times.get_or_init(|| times))
    }

    fn index_path(&self) -> PathBuf {
        self.path.with_file_name(names::index(self.base))
    }

    fn read_index(&self, shared: &Shared) -> io::Result<Option<Index>> {
        let (disk, path) = (&*shared.disk, self.index_path());
        for (kind, version) in [(INDEX, IndexVersion::Two), (INDEX_1, IndexVersion::One)] {
            if let CheckedFile::Body(body) = checked_file::read(disk, &path, kind)? {
                let index = Index::decode(&mut Reader::new(&body), version).ok();
                return Ok(index.filter(|index| index.bytes == self.bytes));
            }
        }
        Ok(None)
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
            let size = batch.stored_size() as u64;
            index.push(&batch.header, batch.enqueue_time(), size, interval);
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

impl SegmentTimes {
    fn of(index: &Index) -> SegmentTimes {
        SegmentTimes {
            enqueued: index.last_time,
            timestamp: index.timestamp_max,
        }
    }
}
