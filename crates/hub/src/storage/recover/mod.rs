//! Recovery of a partition at a start.
//!
//! Only the last segment can be torn, and only after the sync marker. Invalid bytes after the marker are truncated and
//! reported. Invalid bytes before it are damage: the partition serves the batches before them and accepts no writes,
//! because acknowledged records are missing.

pub(super) mod files;

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use highwater_env::disk::{Access, DiskFile};
use highwater_log::batch::{BatchError, Batches};
use highwater_log::producer_states::ProducerStates;
use highwater_log::{Isolation, Offset, TopicPartition};
use parking_lot::{Mutex, RwLock};

use self::files::{Files, SegmentFile};
use super::checkpoint::{self, Checkpoint};
use super::compaction_progress::CompactionProgress;
use super::index::Index;
use super::scan::scan;
use super::segment::Segment;
use super::store::{ActiveWriter, Store, Writer};
use super::sync_marker::{self, SyncMarker};
use super::tail::{Piece, Tail};
use super::view::{ActiveSegment, Damage, View};
use super::{Shared, names};

/// A torn end that was truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub file: String,
    pub position: u64,
    pub bytes: u64,
    pub reason: String,
}

/// The result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub scanned_bytes: u64,
    pub torn_tail: Option<TornTail>,
    pub damage: Option<Damage>,
}

impl Store {
    /// Opens a partition, which may be new. After an error it is safe to try again.
    pub(crate) fn open(
        shared: Arc<Shared>,
        topic_partition: TopicPartition,
        folder: &Path,
    ) -> io::Result<(Arc<Store>, Recovery)> {
        let files = Files::clean_up(&shared, folder)?;
        let mut recoverer = Recoverer {
            recovery: Recovery {
                damage: files.damage.clone(),
                ..Recovery::default()
            },
            shared: &shared,
            folder,
            marker_id: shared.new_id(),
        };
        let (mut view, writer) = recoverer.recover(&files)?;
        let recovery = recoverer.recovery;
        view.damage = recovery.damage.clone();
        if files.is_compacted {
            view.compacted = CompactionProgress::read(&*shared.disk, folder, view.end)?;
        }
        let store = Arc::new_cyclic(|me: &Weak<Store>| Store {
            segment_bytes: AtomicU64::new(shared.options.segment_bytes),
            shared,
            topic_partition,
            folder: folder.to_path_buf(),
            writer: Mutex::new(writer),
            view: RwLock::new(view),
            interrupted_swap: Mutex::new(None),
            me: me.clone(),
        });
        store.load_small_log();
        Ok((store, recovery))
    }

    /// Reads a small log into the tail while its file is open. A node with many queues replays as many small journals
    /// at its start.
    fn load_small_log(&self) {
        let (base, next) = {
            let view = self.view.read();
            let is_small = (view.active.as_ref())
                .is_some_and(|active| active.index.bytes <= SMALL_LOG_BYTES as u64);
            let is_whole = view.closed.is_empty() && view.damage.is_none();
            if !is_small || !is_whole || view.compacted.end() > Offset(0) {
                return;
            }
            (view.start, view.end)
        };
        // Reading it returns the error.
        let Ok(read) = self.read(base, SMALL_LOG_BYTES, Isolation::Uncommitted) else {
            return;
        };
        if let [bytes] = &read.pieces[..]
            && let Some(last) = Batches::new(bytes).flatten().last()
            && last.header.next_offset() == next
        {
            let piece = Piece {
                base,
                next,
                bytes: bytes.clone(),
            };
            self.view.write().tail.push(piece);
            self.shared.tails.add(self.me.clone(), bytes.len());
        }
    }
}

/// The size up to which a log is kept in memory from its recovery on.
const SMALL_LOG_BYTES: usize = 4 << 10;

struct Recoverer<'a> {
    shared: &'a Shared,
    folder: &'a Path,
    marker_id: u64,
    recovery: Recovery,
}

/// The state at the end of the log and of the last segment.
struct ReplayState {
    index: Index,
    producers: ProducerStates,
    broken: Option<BatchError>,
}

impl Recoverer<'_> {
    fn recover(&mut self, files: &Files) -> io::Result<(View, Writer)> {
        let mark = self.read_marker()?;
        self.check_missing_segment(files, mark);
        let mut writer = Writer {
            active: None,
            marker_number: mark.map_or(0, |mark| mark.number),
            marker_id: self.marker_id,
            checkpointed: u64::MAX,
            failed: false,
            checkpoint_at: self.shared.options.checkpoint_bytes,
        };
        let Some((last, closed)) = files.segments.split_last() else {
            let index = Index::new(files.start, None);
            let producers = ProducerStates::new(files.start);
            return Ok((view(files, &[], index, producers, None), writer));
        };
        let replayed = self.replay(&files.segments)?;
        if self.recovery.scanned_bytes == 0 {
            writer.checkpointed = replayed.index.bytes;
        }
        let segment = Arc::new(last.segment.closed(&replayed.index));
        let exact = mark.map(|mark| (mark.segment, mark.bytes));
        let mark = mark.map(|mark| match mark.segment == segment.base {
            true => mark.bytes,
            false => 0,
        });
        self.check_end(last, &replayed, mark)?;
        let ReplayState {
            index, producers, ..
        } = replayed;
        if self.recovery.damage.is_none() {
            let written = self.repair_end(last, &index, mark.unwrap_or(0), &segment)?;
            if exact != Some((segment.base, written.bytes)) {
                self.write_marker(&mut writer, &written)?;
            }
            writer.checkpoint_at += written.bytes;
            if files.start <= index.next {
                writer.active = Some(written);
            }
        }
        let active = Some(segment).filter(|_| files.start <= index.next);
        Ok((view(files, closed, index, producers, active), writer))
    }

    fn read_marker(&self) -> io::Result<Option<SyncMarker>> {
        let path = self.folder.join(sync_marker::FILE);
        match self.shared.disk.open(&path, Access::Read) {
            Ok(file) => SyncMarker::read(&*file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The segment of the sync marker must exist.
    fn check_missing_segment(&mut self, files: &Files, mark: Option<SyncMarker>) {
        let Some(mark) = mark else {
            return;
        };
        let last = files.segments.last().map(|file| file.segment.base);
        if last.unwrap_or(Offset(-1)) < mark.segment {
            self.damaged(
                names::segment(mark.segment),
                0,
                "the file is missing".into(),
            );
        }
    }

    fn damaged(&mut self, file: String, position: u64, reason: String) {
        self.recovery.damage.get_or_insert(Damage {
            file,
            position,
            reason,
        });
    }

    /// Reads the log from the last valid checkpoint to the end.
    fn replay(&mut self, files: &[SegmentFile]) -> io::Result<ReplayState> {
        let (first, mut state) = self.last_checkpoint(files)?;
        let interval = self.shared.options.index_bytes;
        for (number, file) in files.iter().enumerate().skip(first) {
            let SegmentFile { segment, bytes } = file;
            if number > first {
                state.index = Index::new(segment.base, state.index.last_time);
            }
            let open = segment.file(self.shared)?;
            let ReplayState {
                index, producers, ..
            } = &mut state;
            let from = index.bytes;
            let scanned = scan(&*open, from, *bytes, index.next, |_, batch| {
                let (time, size) = (batch.enqueue_time(), batch.stored_size() as u64);
                index.push(&batch.header, time, size, interval);
                // Other control batches change nothing.
                producers.apply(&batch.header, time, batch.as_marker().unwrap_or(None));
            })?;
            self.recovery.scanned_bytes += scanned.bytes - from;
            let is_last = number + 1 == files.len();
            if !is_last && scanned.bytes < *bytes {
                let reason = scanned.broken.as_ref().map(BatchError::to_string);
                self.damaged(
                    names::segment(segment.base),
                    scanned.bytes,
                    reason.unwrap_or_default(),
                );
            }
            state.broken = scanned.broken;
        }
        Ok(state)
    }

    /// The segment to read from, and the state at that point.
    fn last_checkpoint(&self, files: &[SegmentFile]) -> io::Result<(usize, ReplayState)> {
        for (number, file) in files.iter().enumerate().rev() {
            let base = file.segment.base;
            if let Some(Checkpoint { index, producers }) =
                checkpoint::read(&*self.shared.disk, self.folder, base)?
                && self.agrees(file, &index)?
            {
                let broken = None;
                return Ok((
                    number,
                    ReplayState {
                        index,
                        producers,
                        broken,
                    },
                ));
            }
        }
        let base = files[0].segment.base;
        let state = ReplayState {
            index: Index::new(base, None),
            producers: ProducerStates::new(base),
            broken: None,
        };
        Ok((0, state))
    }

    /// Whether the last batch of the checkpoint is at its position and valid. Other damage is detected by reads.
    fn agrees(&self, file: &SegmentFile, index: &Index) -> io::Result<bool> {
        if index.bytes == 0 {
            return Ok(index.next == file.segment.base);
        }
        if index.bytes > file.bytes || index.last_position >= index.bytes {
            return Ok(false);
        }
        let mut bytes = vec![0; (index.bytes - index.last_position) as usize];
        let open = file.segment.file(self.shared)?;
        let count = open.read_full_at(&mut bytes, index.last_position)?;
        let mut batches = Batches::new(&bytes[..count]);
        Ok(match batches.next() {
            Some(Ok(batch)) => {
                batch.check().is_ok()
                    && batch.end() == bytes.len()
                    && batch.header.next_offset() == index.next
                    && batch.header.leader_epoch() == 0
            }
            _ => false,
        })
    }

    /// Tells a torn end from a damaged one. Zeros are allocated space.
    fn check_end(
        &mut self,
        last: &SegmentFile,
        replayed: &ReplayState,
        mark: Option<u64>,
    ) -> io::Result<()> {
        let end = replayed.index.bytes;
        let name = names::segment(last.segment.base);
        let broken = replayed.broken.as_ref().map(BatchError::to_string);
        let reason = broken.unwrap_or_else(|| "the file ends here".into());
        if mark.is_some_and(|mark| end < mark) {
            self.damaged(name, end, reason);
            return Ok(());
        }
        let file = last.segment.file(self.shared)?;
        if !has_data(&*file, end, last.bytes)? {
            return Ok(());
        }
        match mark {
            None => {
                let reason = format!(
                    "{reason}, and without `{}` it is unknown whether the log ends here",
                    sync_marker::FILE
                );
                self.damaged(name, end, reason);
            }
            Some(_) => {
                self.recovery.torn_tail = Some(TornTail {
                    file: name,
                    position: end,
                    bytes: last.bytes - end,
                    reason,
                });
            }
        }
        Ok(())
    }

    /// Truncates a torn end and rewrites the bytes after the sync marker: the operating system may show bytes that an
    /// earlier failed sync has lost, and only a new write brings them to the disk.
    fn repair_end(
        &self,
        last: &SegmentFile,
        index: &Index,
        mark: u64,
        segment: &Arc<Segment>,
    ) -> io::Result<ActiveWriter> {
        let file = last.segment.file(self.shared)?;
        let cut = self.recovery.torn_tail.is_some();
        if cut {
            file.set_len(index.bytes)?;
        }
        rewrite(&*file, mark, index.bytes)?;
        if cut || mark < index.bytes {
            file.sync_all()?;
        }
        Ok(ActiveWriter {
            segment: segment.clone(),
            bytes: index.bytes,
            synced: index.bytes,
            reserved: if cut { index.bytes } else { last.bytes },
            closed: false,
        })
    }

    /// Writes the sync marker for the recovered end. The folder is synced first, in case the process ended before that.
    fn write_marker(&self, writer: &mut Writer, written: &ActiveWriter) -> io::Result<()> {
        self.shared.disk.sync_folder(self.folder)?;
        let path = self.folder.join(sync_marker::FILE);
        let file = self.shared.open(self.marker_id, &path, Access::Create)?;
        writer.marker_number += 1;
        let mark = SyncMarker {
            number: writer.marker_number,
            segment: written.segment.base,
            bytes: written.bytes,
        };
        mark.write(&*file)
    }
}

/// The published state. A log that ends before its start, because a power cut lost unsynced bytes, continues at the
/// start.
fn view(
    files: &Files,
    closed: &[SegmentFile],
    index: Index,
    mut producers: ProducerStates,
    active: Option<Arc<Segment>>,
) -> View {
    let lost = index.next < files.start;
    if lost {
        producers = ProducerStates::new(files.start);
    }
    producers.trim(files.start);
    let end = producers.end();
    producers.advance_durable(end);
    let closed = closed.iter().filter(|_| !lost);
    View {
        start: files.first_offset(),
        stable: producers.last_stable_offset(end).max(files.first_offset()),
        end,
        last_time: index.last_time,
        closed: closed.map(|file| file.segment.clone()).collect(),
        active: active.map(|segment| ActiveSegment { segment, index }),
        producers,
        tail: Tail::default(),
        damage: None,
        deleted: false,
        compacted: CompactionProgress::default(),
    }
}

const CHUNK: u64 = 1 << 20;

fn has_data(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<bool> {
    each_chunk(file, from, to, |_, bytes| {
        Ok(bytes.iter().any(|byte| *byte != 0))
    })
}

fn rewrite(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let write = |position, bytes: &[u8]| file.write_all_at(&[bytes], position).map(|()| false);
    each_chunk(file, from, to, write).map(|_| ())
}

/// Reads a range in chunks until `done` returns true.
fn each_chunk(
    file: &dyn DiskFile,
    from: u64,
    to: u64,
    mut done: impl FnMut(u64, &[u8]) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut position = from;
    let mut chunk = Vec::new();
    while position < to {
        chunk.resize(CHUNK.min(to - position) as usize, 0);
        let count = file.read_full_at(&mut chunk, position)?;
        if done(position, &chunk[..count])? {
            return Ok(true);
        }
        if count < chunk.len() {
            break;
        }
        position += count as u64;
    }
    Ok(false)
}
