//! One partition on the disk: appending a group, and making it seen.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use highwater_env::disk::{Access, DiskFile};
use highwater_log::{Bounds, Offset, TopicPartition};
use parking_lot::{Mutex, RwLock};

use super::segment::Segment;
use super::sync_marker::{self, SyncMarker};
use super::view::{Damage, View};
use super::{Counters, Shared, WriteGroup, checkpoint};
use crate::options::Durability;

pub struct Store {
    pub(super) shared: Arc<Shared>,
    pub(super) topic_partition: TopicPartition,
    pub(super) folder: PathBuf,
    /// Whoever writes holds this for as long as the disk takes.
    pub(super) writer: Mutex<Writer>,
    /// Held for moments only.
    pub(super) view: RwLock<View>,
    pub(super) me: Weak<Store>,
}

/// What the writing side alone needs to know.
pub struct Writer {
    pub active: Option<ActiveWriter>,
    /// Of the last mark that was written.
    pub mark_number: u64,
    pub mark_id: u64,
    /// The size of the active segment at the last checkpoint, and at which the next is due.
    pub checkpointed: u64,
    pub checkpoint_at: u64,
    /// Nobody can say what the disk holds, so it is left as it is until the next start.
    pub failed: bool,
}

/// How far the active segment has come.
pub struct ActiveWriter {
    pub segment: Arc<Segment>,
    /// Whole batches end here, and everything before has been shown to readers.
    pub bytes: u64,
    /// Known to be on the disk.
    pub synced: u64,
    /// The length of the file.
    pub reserved: u64,
}

/// Why a group was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Nothing of it is in the log, nor will be. The next one may succeed.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Nobody can say what the disk holds of it.
    #[error("{0}")]
    Failed(String),
}

impl Store {
    /// Writes a group, syncs it if the options ask for that, and shows it to readers.
    pub fn append(&self, group: &WriteGroup) -> Result<(), WriteError> {
        self.write(|writer| self.append_with(writer, group))
    }

    /// Whatever changes the log goes through here: after a failure nothing does.
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
        self.make_room(writer, size)?;
        let written = writer.active.as_mut().ok_or_else(no_segment)?;
        let file = written.segment.file(&self.shared).map_err(failed("open"))?;
        self.reserve(written, &*file, written.bytes + size);
        if let Err(error) = file.write_all_at(&[group.bytes()], written.bytes) {
            return Err(cut_back(written, &*file, error));
        }
        written.reserved = written.reserved.max(written.bytes + size);
        if self.shared.options.durability == Durability::Fsync {
            self.shared.sync(&*file).map_err(failed("sync"))?;
            written.synced = written.bytes + size;
        }
        written.bytes += size;
        self.mark(writer);
        self.publish(group);
        Ok(())
    }

    /// Says how far the disk has the log. If it cannot be said, recovery takes the log for less
    /// certain than it is, which is no harm.
    pub(super) fn mark(&self, writer: &mut Writer) {
        let Some(written) = &writer.active else {
            return;
        };
        let mark = SyncMarker {
            number: writer.mark_number + 1,
            segment: written.segment.base,
            bytes: written.synced,
        };
        let path = self.folder.join(sync_marker::FILE);
        let file = self.shared.open(writer.mark_id, &path, Access::Create);
        match file.and_then(|file| mark.write(&*file)) {
            Ok(()) => writer.mark_number = mark.number,
            Err(error) => {
                tracing::warn!(topic_partition = %self.topic_partition, %error, "mark not written")
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
            for (header, marker, size) in group.batches() {
                active
                    .index
                    .push(header, size, self.shared.options.index_bytes);
                view.producers.apply(header, marker);
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

    /// Reserving saves the file system from finding room at every sync. It may fail; writing goes
    /// on without.
    fn reserve(&self, written: &mut ActiveWriter, file: &dyn DiskFile, end: u64) {
        let options = &self.shared.options;
        if end <= written.reserved || options.reserve_bytes == 0 {
            return;
        }
        let ahead = end.clamp(
            RESERVE_MIN.min(options.reserve_bytes),
            options.reserve_bytes,
        );
        let wanted = (end + ahead).min(options.segment_bytes).max(end);
        if file.allocate(wanted).is_ok() {
            written.reserved = wanted;
        }
    }

    /// Writes down the state that a restart would have to read the log for, if that has become much.
    pub fn checkpoint_if_due(&self) {
        self.checkpoint_if(|writer, bytes| bytes >= writer.checkpoint_at);
    }

    /// The same, however little it is.
    pub(super) fn checkpoint_if_changed(&self) {
        self.checkpoint_if(|writer, bytes| bytes != writer.checkpointed);
    }

    /// Only what is on the disk may be in a checkpoint.
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
        // Where there are many producers it is written less often, so as not to become the main work.
        let pause = (self.shared.options.checkpoint_bytes).max(8 * body.len() as u64);
        writer.checkpointed = bytes;
        writer.checkpoint_at = bytes + pause;
        if let Err(error) = checkpoint::write(&*self.shared.disk, &self.folder, base, &body) {
            tracing::warn!(topic_partition = %self.topic_partition, %error, "checkpoint not written");
        }
    }

    /// Syncs what has been written but not synced; for [`Durability::Os`].
    pub fn sync(&self) -> Result<(), WriteError> {
        self.write(|writer| self.sync_with(writer))
    }

    fn sync_with(&self, writer: &mut Writer) -> Result<(), WriteError> {
        let Some(written) = writer.active.as_mut() else {
            return Ok(());
        };
        if written.synced < written.bytes {
            let file = written.segment.file(&self.shared).map_err(failed("open"))?;
            self.shared.sync(&*file).map_err(failed("sync"))?;
            written.synced = written.bytes;
            self.mark(writer);
        }
        Ok(())
    }

    /// Leaves the partition as a start finds it fastest: all synced, the file no longer than the
    /// log, and a checkpoint at its end.
    pub fn stop(&self) -> Result<(), WriteError> {
        self.write(|writer| {
            self.sync_with(writer)?;
            let Some(written) = writer.active.as_mut() else {
                return Ok(());
            };
            if written.reserved == written.bytes && writer.checkpointed == written.bytes {
                return Ok(());
            }
            if written.reserved > written.bytes {
                let file = written.segment.file(&self.shared).map_err(failed("open"))?;
                file.set_len(written.bytes).map_err(failed("cut"))?;
                file.sync_all().map_err(failed("sync"))?;
                written.reserved = written.bytes;
            }
            self.mark(writer);
            self.checkpoint(writer);
            Ok(())
        })
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub fn bounds(&self) -> Bounds {
        self.view.read().bounds()
    }

    pub fn segments(&self) -> usize {
        self.view.read().segments()
    }

    pub fn damage(&self) -> Option<Damage> {
        self.view.read().damage.clone()
    }

    /// The state of the producers as far as it is durable.
    pub fn producers(&self) -> highwater_log::producer_states::ProducerStates {
        self.view.read().producers.clone()
    }

    pub fn set_deleted(&self) {
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

/// The least that is reserved at a time.
const RESERVE_MIN: u64 = 64 << 10;

/// After a failed write. If only room was missing, the file is cut back to what is durable, and once
/// that is durable too it is certain that the group will never be seen. Otherwise nothing is.
fn cut_back(written: &mut ActiveWriter, file: &dyn DiskFile, error: io::Error) -> WriteError {
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

pub(super) fn failed(doing: &'static str) -> impl Fn(io::Error) -> WriteError {
    move |error| WriteError::Failed(format!("could not {doing} a segment: {error}"))
}

fn no_segment() -> WriteError {
    WriteError::Failed("there is no segment to write to".into())
}
