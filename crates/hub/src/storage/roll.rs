//! Closes a segment and starts the next one.
//!
//! The old segment is complete and durable before the new one is created, so only the last segment can be torn.

use std::sync::Arc;

use highwater_env::disk::Access;

use super::index::Index;
use super::names;
use super::segment::Segment;
use super::store::{ActiveWriter, Store, WriteError, Writer, failed, not_opened};
use super::sync_marker::{self, SyncMarker};
use super::view::ActiveSegment;

impl Store {
    /// Starts a segment if there is none, or if `size` more bytes would exceed the segment size.
    pub(super) fn ensure_segment(&self, writer: &mut Writer, size: u64) -> Result<(), WriteError> {
        match &writer.active {
            None => self.start_segment(writer),
            Some(written) => {
                let full = written.bytes + size > self.segment_bytes();
                match written.closed || written.bytes > 0 && full {
                    true => self.roll(writer),
                    false => Ok(()),
                }
            }
        }
    }

    pub(super) fn roll(&self, writer: &mut Writer) -> Result<(), WriteError> {
        if let Some(written) = writer.active.as_mut() {
            if written.bytes == 0 {
                return Ok(());
            }
            written.truncate(&self.shared)?;
            written.closed = true;
        }
        self.start_segment(writer)
    }

    fn start_segment(&self, writer: &mut Writer) -> Result<(), WriteError> {
        let disk = &*self.shared.disk;
        self.create_marker(writer)?;
        let base = self.end();
        let segment = Arc::new(Segment::new(&self.shared, &self.folder, base, 0));
        let file = self.shared.open(segment.id, &segment.path, Access::Create);
        let file = file.map_err(not_opened("create"))?;
        file.set_len(0).map_err(failed("cut"))?;
        if let Err(error) = disk.sync_folder(&self.folder) {
            // The next append starts the same segment again.
            self.shared.close(segment.id);
            return Err(not_opened("name")(error));
        }
        self.show_segment(segment.clone());
        writer.active = Some(ActiveWriter {
            segment,
            bytes: 0,
            synced: 0,
            reserved: 0,
            closed: false,
        });
        self.write_marker(writer);
        self.checkpoint(writer);
        Ok(())
    }

    /// Writes the first sync marker, in both slots and durable, before the first segment is created: without a marker
    /// recovery could not tell a torn end from a damaged one.
    fn create_marker(&self, writer: &mut Writer) -> Result<(), WriteError> {
        if writer.marker_number > 0 {
            return Ok(());
        }
        let path = self.folder.join(sync_marker::FILE);
        let write = || {
            let file = self.shared.open(writer.marker_id, &path, Access::Create)?;
            for number in [1, 2] {
                SyncMarker::nothing(number).write(&*file)?;
            }
            file.sync_all()
        };
        write().map_err(not_opened("mark"))?;
        writer.marker_number = 2;
        Ok(())
    }

    /// Writes the index of the previous segment and publishes the new one.
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
            // Two checkpoints are enough. One that cannot be removed does no harm.
            let path = self.folder.join(names::checkpoint(before));
            let _ = self.shared.disk.remove_file(&path);
        }
        let view = &mut *self.view.write();
        let index = Index::new(segment.base, view.last_time);
        view.closed.extend(old.map(|(closed, _)| Arc::new(closed)));
        view.active = Some(ActiveSegment { segment, index });
    }
}
