//! One partition on the disk: appends a group of batches and publishes it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use highwater_env::disk::{Access, DiskFile};
use highwater_env::is_descriptor_shortage;
use highwater_log::{Bounds, HubSettings, Offset, TopicPartition};
use parking_lot::{Mutex, RwLock};

use super::segment::Segment;
use super::swap::InterruptedSwap;
use super::sync_marker::{self, SyncMarker};
use super::view::{Damage, View};
use super::{Counters, Shared, WriteGroup, checkpoint};
use crate::options::Durability;

pub(crate) struct Store {
    pub(super) shared: Arc<Shared>,
    pub(super) topic_partition: TopicPartition,
    pub(super) folder: PathBuf,
    /// Held by the writer while it uses the disk.
    pub(super) writer: Mutex<Writer>,
    /// Held only briefly.
    pub(super) view: RwLock<View>,
    /// A replacement of segments that failed half-way.
    pub(super) interrupted_swap: Mutex<Option<InterruptedSwap>>,
    /// Maximum size of a segment.
    pub(super) segment_bytes: AtomicU64,
    pub(super) me: Weak<Store>,
}

/// The state of the writer.
pub(super) struct Writer {
    pub active: Option<ActiveWriter>,
    /// Number of the last sync marker.
    pub marker_number: u64,
    pub marker_id: u64,
    /// Size of the active segment at the last checkpoint, and at the next.
    pub checkpointed: u64,
    pub checkpoint_at: u64,
    /// The contents of the disk are unknown; nothing is written until a restart.
    pub failed: bool,
}

/// Progress of the active segment.
pub(super) struct ActiveWriter {
    pub segment: Arc<Segment>,
    /// End of the published batches.
    pub bytes: u64,
    /// End of the synced bytes.
    pub synced: u64,
    /// Length of the file.
    pub reserved: u64,
    /// The next segment may exist on the disk, so nothing more is written to this one.
    pub(super) closed: bool,
}

impl ActiveWriter {
    /// Cuts the file to its batches, and syncs it.
    pub(super) fn truncate(&mut self, shared: &Shared) -> Result<(), WriteError> {
        let file = self.segment.file(shared).map_err(not_opened("open"))?;
        file.set_len(self.bytes).map_err(failed("cut"))?;
        file.sync_all().map_err(failed("sync"))?;
        self.reserved = self.bytes;
        self.synced = self.bytes;
        Ok(())
    }
}

/// Why a group was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WriteError {
    /// The group is not in the log. The next one may succeed.
    #[error("the disk is full: {0}")]
    Full(String),
    /// No file descriptor was free. The group is not in the log. The next one may succeed.
    #[error("{0}")]
    Busy(String),
    /// The disk may contain a part of the group.
    #[error("{0}")]
    Failed(String),
}

impl Store {
    /// Writes a group, syncs it if the options require that, and publishes it.
    pub(crate) fn append(&self, group: &WriteGroup) -> Result<(), WriteError> {
        self.write(|writer| self.append_with(writer, group))
    }

    /// All changes of the log go through here: after a failure nothing is written.
    pub(super) fn write(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let writer = &mut *self.writer.lock();
        if writer.failed {
            return Err(WriteError::Failed("an earlier write failed".into()));
        }
        let done = work(writer);
        writer.failed = matches!(done, Err(WriteError::Failed(_)));
        done
    }

    fn append_with(&self, writer: &mut Writer, group: &WriteGroup) -> Result<(), WriteError> {
        let size = group.bytes().len() as u64;
        self.ensure_segment(writer, size)?;
        let written = writer.active.as_mut().ok_or_else(no_segment)?;
        let file = written
            .segment
            .file(&self.shared)
            .map_err(not_opened("open"))?;
        self.reserve(written, &*file, written.bytes + size);
        if let Err(error) = file.write_all_at(&[group.bytes()], written.bytes) {
            return Err(truncate_after(written, &*file, error));
        }
        written.reserved = written.reserved.max(written.bytes + size);
        if self.shared.options.durability == Durability::Fsync {
            self.shared.sync(&*file).map_err(failed("sync"))?;
            written.synced = written.bytes + size;
        }
        written.bytes += size;
        self.write_marker(writer);
        self.publish(group);
        Ok(())
    }

    /// Writes the sync marker. If that fails, recovery only rewrites more than necessary.
    pub(super) fn write_marker(&self, writer: &mut Writer) {
        let Some(written) = &writer.active else {
            return;
        };
        let mark = SyncMarker {
            number: writer.marker_number + 1,
            segment: written.segment.base,
            bytes: written.synced,
        };
        let path = self.folder.join(sync_marker::FILE);
        let file = self.shared.open(writer.marker_id, &path, Access::Create);
        match file.and_then(|file| mark.write(&*file)) {
            Ok(()) => writer.marker_number = mark.number,
            Err(error) => {
                tracing::warn!(topic_partition = %self.topic_partition, %error, "sync marker not written")
            }
        }
    }

    fn publish(&self, group: &WriteGroup) {
        let counters = &self.shared.counters;
        let pieces = group.pieces();
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.bytes.len()).collect();
        {
            let view = &mut *self.view.write();
            let active = view
                .active
                .as_mut()
                .expect("a group is written to a segment");
            for batch in group.batches() {
                let (header, time) = (&batch.header, batch.time);
                let interval = self.shared.options.index_bytes;
                let index = &mut active.index;
                index.push(header, time, batch.size as u64, interval);
                view.producers.apply(header, time, batch.marker);
                if !header.is_control() {
                    Counters::add(&counters.records, header.count().max(0) as u64);
                }
                Counters::add(&counters.batches, 1);
            }
            view.end = active.index.next;
            view.last_time = active.index.last_time;
            view.producers.advance_durable(view.end);
            view.stable = view.producers.last_stable_offset(view.end).max(view.start);
            pieces.into_iter().for_each(|piece| view.tail.push(piece));
        }
        Counters::add(&counters.groups, 1);
        Counters::add(&counters.bytes, group.bytes().len() as u64);
        for size in sizes {
            self.shared.tails.add(self.me.clone(), size);
        }
    }

    /// Allocates space ahead, so that not every sync allocates. A failure is ignored.
    fn reserve(&self, written: &mut ActiveWriter, file: &dyn DiskFile, end: u64) {
        let options = &self.shared.options;
        if end <= written.reserved || options.reserve_bytes == 0 {
            return;
        }
        let ahead = end.clamp(
            RESERVE_MIN.min(options.reserve_bytes),
            options.reserve_bytes,
        );
        let wanted = (end + ahead).min(self.segment_bytes()).max(end);
        if file.allocate(wanted).is_ok() {
            written.reserved = wanted;
        }
    }

    /// Writes a checkpoint if enough bytes were written since the last one.
    pub(crate) fn checkpoint_if_due(&self) {
        self.checkpoint_if(|writer, bytes| bytes >= writer.checkpoint_at);
    }

    /// Writes a checkpoint if anything changed since the last one.
    pub(super) fn checkpoint_if_changed(&self) {
        self.checkpoint_if(|writer, bytes| bytes != writer.checkpointed);
    }

    /// A checkpoint contains only synced batches.
    fn checkpoint_if(&self, wanted: impl FnOnce(&Writer, u64) -> bool) {
        let mut writer = self.writer.lock();
        match &writer.active {
            Some(written) if written.synced == written.bytes && wanted(&writer, written.bytes) => {
                self.checkpoint(&mut writer);
            }
            _ => {}
        }
    }

    pub(super) fn checkpoint(&self, writer: &mut Writer) {
        let (base, bytes, body) = {
            let view = self.view.read();
            let Some(active) = &view.active else {
                return;
            };
            let body = checkpoint::encode(&active.index, &view.producers);
            (active.segment.base, active.index.bytes, body)
        };
        // With many producers it is written less often, to bound its cost.
        let pause = (self.shared.options.checkpoint_bytes).max(8 * body.len() as u64);
        writer.checkpointed = bytes;
        writer.checkpoint_at = bytes + pause;
        if let Err(error) = checkpoint::write(&*self.shared.disk, &self.folder, base, &body) {
            tracing::warn!(topic_partition = %self.topic_partition, %error, "checkpoint not written");
        }
    }

    /// Syncs the written bytes, for [`Durability::Os`].
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.write(|writer| self.sync_with(writer))
    }

    fn sync_with(&self, writer: &mut Writer) -> Result<(), WriteError> {
        let Some(written) = writer.active.as_mut() else {
            return Ok(());
        };
        if written.synced < written.bytes {
            let file = written
                .segment
                .file(&self.shared)
                .map_err(not_opened("open"))?;
            self.shared.sync(&*file).map_err(failed("sync"))?;
            written.synced = written.bytes;
            self.write_marker(writer);
        }
        Ok(())
    }

    /// Prepares a fast start: syncs, truncates the file to the log, writes a checkpoint.
    pub(crate) fn stop(&self) -> Result<(), WriteError> {
        self.write(|writer| {
            self.sync_with(writer)?;
            let Some(written) = writer.active.as_mut() else {
                return Ok(());
            };
            if written.reserved == written.bytes && writer.checkpointed == written.bytes {
                return Ok(());
            }
            if written.reserved > written.bytes {
                written.truncate(&self.shared)?;
            }
            self.write_marker(writer);
            self.checkpoint(writer);
            Ok(())
        })
    }

    /// Takes over the settings that writes need.
    pub(crate) fn configure(&self, settings: &HubSettings) {
        let bytes = settings.segments.bytes;
        let bytes = bytes.unwrap_or(self.shared.options.segment_bytes);
        self.segment_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.view.read().bounds()
    }

    pub(crate) fn segments(&self) -> usize {
        self.view.read().segments()
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.view.read().bytes()
    }

    pub(crate) fn damage(&self) -> Option<Damage> {
        self.view.read().damage.clone()
    }

    /// The durable producer states.
    pub(crate) fn producers(&self) -> highwater_log::producer_states::ProducerStates {
        self.view.read().producers.clone()
    }

    pub(crate) fn set_deleted(&self) {
        let _no_writer = self.writer.lock();
        self.view.write().deleted = true;
    }

    pub(super) fn drop_oldest_of_tail(&self) {
        self.view.write().tail.drop_oldest();
    }

    pub(super) fn end(&self) -> Offset {
        self.view.read().end
    }
}

/// Minimum space allocated ahead.
const RESERVE_MIN: u64 = 64 << 10;

/// Handles a failed write. If the disk is full, truncates the file to the durable batches and syncs, so that the group
/// is certainly not in the log.
fn truncate_after(written: &mut ActiveWriter, file: &dyn DiskFile, error: io::Error) -> WriteError {
    if !is_full(&error) {
        return failed("write")(error);
    }
    let cut = file.set_len(written.bytes).and_then(|()| file.sync_all());
    match cut {
        Ok(()) => {
            written.reserved = written.bytes;
            written.synced = written.bytes;
            WriteError::Full(error.to_string())
        }
        Err(error) => failed("cut back")(error),
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// An error of an operation that opens a file and has written nothing yet.
pub(super) fn not_opened(doing: &'static str) -> impl Fn(io::Error) -> WriteError {
    move |error| match is_full(&error) {
        true => WriteError::Full(error.to_string()),
        false if is_descriptor_shortage(&error) => {
            WriteError::Busy(format!("could not {doing} a segment: {error}"))
        }
        false => failed(doing)(error),
    }
}

pub(super) fn failed(doing: &'static str) -> impl Fn(io::Error) -> WriteError {
    move |error| WriteError::Failed(format!("could not {doing} a segment: {error}"))
}

fn no_segment() -> WriteError {
    WriteError::Failed("there is no segment to write to".into())
}
