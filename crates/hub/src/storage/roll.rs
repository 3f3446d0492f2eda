//! Closing a segment and starting the next.
//!
//! The old one is whole and durable before the new one can be found, so only the last segment of a
//! partition can ever be torn.

use std::sync::Arc;

use highwater_env::disk::Access;

use super::index::Index;
use super::names;
use super::segment::Segment;
use super::store::{ActiveWriter, Store, WriteError, Writer, failed, is_full};
use super::sync_marker::{self, SyncMarker};
use super::view::ActiveSegment;

impl Store {
    /// Makes sure that there is a segment to write to, and that `size` more bytes do not make it too
    /// long.
    pub(super) fn make_room(&self, writer: &mut Writer, size: u64) -> Result<(), WriteError> {
        match &writer.active {
            None => self.start_segment(writer),
            Some(written)
                if written.bytes > 0
                    && written.bytes + size > self.shared.options.segment_bytes =>
            {
                self.roll(writer)
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) fn roll(&self, writer: &mut Writer) -> Result<(), WriteError> {
        if let Some(written) = writer.active.as_mut() {
            if written.bytes == 0 {
                return Ok(());
            }
            let file = written.segment.file(&self.shared).map_err(failed("open"))?;
            file.set_len(written.bytes).map_err(failed("cut"))?;
            file.sync_all().map_err(failed("sync"))?;
            written.reserved = written.bytes;
            written.synced = written.bytes;
        }
        self.start_segment(writer)
    }

    fn start_segment(&self, writer: &mut Writer) -> Result<(), WriteError> {
        let disk = &*self.shared.disk;
        self.start_mark(writer)?;
        let base = self.end();
        let segment = Arc::new(Segment::new(&self.shared, &self.folder, base, 0));
        let opened = self.shared.open(segment.id, &segment.path, Access::Create);
        let file = opened.map_err(|error| match is_full(&error) {
            true => WriteError::Full(error.to_string()),
            false => failed("create")(error),
        })?;
        file.set_len(0).map_err(failed("cut"))?;
        disk.sync_folder(&self.folder).map_err(failed("name"))?;
        self.show_segment(segment.clone());
        writer.active = Some(ActiveWriter {
            segment,
            bytes: 0,
            synced: 0,
            reserved: 0,
        });
        self.mark(writer);
        self.checkpoint(writer);
        Ok(())
    }

    /// A partition without a mark would not know a torn end from a damaged one, so before there is a
    /// first segment there is a mark, in both slots and durable.
    fn start_mark(&self, writer: &mut Writer) -> Result<(), WriteError> {
        if writer.mark_number > 0 {
            return Ok(());
        }
        let path = self.folder.join(sync_marker::FILE);
        let write = || {
            let file = self.shared.open(writer.mark_id, &path, Access::Create)?;
            for number in [1, 2] {
                SyncMarker::nothing(number).write(&*file)?;
            }
            file.sync_all()
        };
        match write() {
            Ok(()) => {
                writer.mark_number = 2;
                Ok(())
            }
            Err(error) if is_full(&error) => Err(WriteError::Full(error.to_string())),
            Err(error) => Err(failed("mark")(error)),
        }
    }

    /// Writes the index of the segment before, and lets readers find the new one.
    fn show_segment(&self, segment: Arc<Segment>) {
        let (old, before) = {
            let view = self.view.read();
            let old = view.active.as_ref();
            let old = old.map(|old| (old.segment.closed(&old.index), old.index.clone()));
            (old, view.closed.last().map(|before| before.base))
        };
        if let Some((closed, index)) = &old
            && let Err(error) = closed.write_index(&self.shared, index)
        {
            tracing::warn!(topic_partition = %self.topic_partition, %error, "index not written");
        }
        if let Some(before) = before {
            // Two checkpoints are enough. One that cannot be removed is only a file too many.
            let path = self.folder.join(names::checkpoint(before));
            let _ = self.shared.disk.remove_file(&path);
        }
        let view = &mut *self.view.write();
        let index = Index::new(segment.base, view.last_time);
        view.closed.extend(old.map(|(closed, _)| Arc::new(closed)));
        view.active = Some(ActiveSegment { segment, index });
    }
}
