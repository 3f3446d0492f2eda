//! Deletes old records: by age of their enqueue time, by size or on request.
//!
//! The new start is durable before anything is deleted. After a crash the next start deletes the rest.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_codec::Reader;
use highwater_env::Disk;
use highwater_log::{EnqueueTime, HubSettings, Offset, ReadError};

use super::checked_file::{self, CheckedFile};
use super::names;
use super::segment::Segment;
use super::store::{Store, WriteError, Writer};
use super::view::{Damage, View};

const KIND: &[u8; 8] = b"hwstart1";

impl Store {
    /// Closes old segments, deletes expired ones, compacts. Fails only if the partition accepts no more writes.
    pub(crate) fn maintain(
        &self,
        settings: &HubSettings,
        now: EnqueueTime,
    ) -> Result<(), WriteError> {
        if self.damage().is_some() {
            return Ok(());
        }
        self.sync()?;
        self.roll_if_old(settings, now)?;
        let done = match self.continue_swap(now) {
            Ok(false) => Ok(()),
            Ok(true) => self.clean_up(settings, now),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::warn!(topic_partition = %self.topic_partition, %error, "maintenance failed and will be repeated");
        }
        let silent = before(now, self.shared.options.producer_age);
        self.view.write().producers.expire(silent);
        self.checkpoint_if_changed();
        Ok(())
    }

    fn clean_up(&self, settings: &HubSettings, now: EnqueueTime) -> io::Result<()> {
        if settings.cleanup.deletes() {
            self.delete_old(settings, now)?;
        }
        match settings.cleanup.compacts() {
            true => self.compact(&settings.compaction, now),
            false => Ok(()),
        }
    }

    /// Only closed segments are deleted and compacted, so none is active for longer than its records may wait for that.
    fn roll_if_old(&self, settings: &HubSettings, now: EnqueueTime) -> Result<(), WriteError> {
        let first = (self.view.read().active.as_ref()).and_then(|active| active.index.first_time());
        let cleanup = settings.cleanup;
        let retention = settings.retention.filter(|_| cleanup.deletes());
        let lag = settings.compaction.lag_max.filter(|_| cleanup.compacts());
        let age = settings.segments.age;
        let age = age.unwrap_or(self.shared.options.segment_age);
        let age = retention.into_iter().chain(lag).fold(age, Duration::min);
        match first {
            Some(first) if first < before(now, age) => {
                self.write(|writer| match writer.active.is_some() {
                    true => self.roll(writer),
                    false => Ok(()),
                })
            }
            _ => Ok(()),
        }
    }

    fn delete_old(&self, settings: &HubSettings, now: EnqueueTime) -> io::Result<()> {
        let mut writer = self.writer.lock();
        let (closed, mut bytes) = {
            let view = self.view.read();
            (view.closed.clone(), view.bytes())
        };
        let mut gone = 0;
        for segment in &closed {
            let too_many =
                (settings.retention_bytes).is_some_and(|max| bytes - segment.bytes >= max);
            if !too_many && !self.too_old(segment, settings, now)? {
                break;
            }
            bytes -= segment.bytes;
            gone += 1;
        }
        if gone == 0 {
            return Ok(());
        }
        let start = self.view.read().base_after(closed[gone - 1].base);
        self.move_start(&mut writer, start)
    }

    fn too_old(
        &self,
        segment: &Segment,
        settings: &HubSettings,
        now: EnqueueTime,
    ) -> io::Result<bool> {
        let Some(retention) = settings.retention else {
            return Ok(false);
        };
        let last = segment.last_time(&self.shared)?;
        Ok(last.is_none_or(|last| last < before(now, retention)))
    }

    /// Deletes the records before `offset`; returns the new start.
    pub(crate) fn trim(&self, offset: Offset) -> Result<Offset, ReadError> {
        let mut writer = self.writer.lock();
        let (bounds, deleted) = {
            let view = self.view.read();
            (view.bounds(), view.deleted)
        };
        if deleted {
            return Err(ReadError::Deleted(self.topic_partition.clone()));
        }
        if offset > bounds.end {
            return Err(self.out_of_range(offset, &bounds));
        }
        if offset > bounds.start {
            let moved = self.move_start(&mut writer, offset);
            moved.map_err(|error| self.storage_error(&error))?;
        }
        Ok(offset.max(bounds.start))
    }

    fn move_start(&self, _writer: &mut Writer, start: Offset) -> io::Result<()> {
        let disk = &*self.shared.disk;
        let path = self.folder.join(names::START);
        checked_file::replace(disk, &path, KIND, &start.0.to_be_bytes(), true)?;
        let gone = {
            let view = &mut *self.view.write();
            view.start = start;
            view.stable = view.stable.max(start);
            view.producers.trim(start);
            split_off_before(view, start)
        };
        for segment in gone {
            self.shared.close(segment.id);
            remove(disk, &segment)?;
        }
        Ok(())
    }
}

/// The time `age` before `now`.
pub(crate) fn before(now: EnqueueTime, age: Duration) -> EnqueueTime {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    EnqueueTime(now.0.saturating_sub(age))
}

/// Removes the closed segments that end at or before `start` from the view.
fn split_off_before(view: &mut View, start: Offset) -> Vec<Arc<Segment>> {
    let gone = (view.closed.iter())
        .take_while(|segment| view.base_after(segment.base) <= start)
        .count();
    view.closed.drain(..gone).collect()
}

/// A missing file is not an error.
fn remove(disk: &dyn Disk, segment: &Segment) -> io::Result<()> {
    let base = segment.base;
    let names = [
        names::index(base),
        names::checkpoint(base),
        names::segment(base),
    ];
    for name in names {
        match disk.remove_file(&segment.path.with_file_name(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The start of the partition, or the damage of its file.
pub(super) fn read_start(disk: &dyn Disk, folder: &Path) -> io::Result<Result<Offset, Damage>> {
    let start = match checked_file::read(disk, &folder.join(names::START), KIND)? {
        CheckedFile::Nothing => Some(0),
        CheckedFile::Body(body) => Reader::new(&body).i64_be().ok(),
        CheckedFile::Damaged => None,
    };
    Ok(start.map(Offset).ok_or_else(|| Damage {
        file: names::START.into(),
        position: 0,
        reason: "its checksum is wrong".into(),
    }))
}
