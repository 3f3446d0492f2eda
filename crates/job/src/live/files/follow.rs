//! Scans the files of an input repeatedly and appends new events to its hub.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use highwater_connect::{FileSlice, FileSlicer, ReadError, SliceKind};
use highwater_env::disk::{self, Stamp};
use highwater_env::shutdown_signal;
use highwater_log::batch::NewRecord;
use highwater_log::{AppendError, Offset};

use super::Follower;
use super::directory_scan::DirectoryScan;
use super::file_marker::{FileMarker, FilePosition, HEADER};
use super::file_positions::{FilePositions, append};
use super::follower_state::{Backlog, FollowerState, ScannedFile};
use super::identity::{HEAD_BYTES, head_checksum};

/// Pause before a failed append is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A last line without a line end is read when the file has not changed for this long.
const LAST_LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// The position of a missing file is kept for this long: it may return, as when a disk is mounted again.
const GONE_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// Upper bound of appended bytes that the job has not read yet.
const BACKLOG_BYTES_MAX: u64 = 256 << 20;

impl Follower {
    /// Runs until the stop signal. An error is fatal.
    pub(crate) async fn run(self) -> Result<(), String> {
        let stopped = shutdown_signal(self.stop.clone());
        // An append in flight at the stop counts: the next follower finds it in the log.
        tokio::select! {
            ended = self.follow() => ended,
            () = stopped => Ok(()),
        }
    }

    async fn follow(&self) -> Result<(), String> {
        let mut positions = loop {
            match FilePositions::open(&*self.events, &*self.positions).await {
                Ok(positions) => break positions,
                Err(reason) => self.alarm(Some(format!("the positions cannot be read: {reason}"))),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        };
        let mut state = FollowerState::default();
        loop {
            let (paths, slicing) = (self.input.paths.clone(), self.slicing);
            let scan = run_blocking(move || DirectoryScan::scan(&paths, &slicing)).await?;
            let mut error_text = scan.errors.first().cloned();
            for (name, stamp) in &scan.files {
                let file = state.observe(name, *stamp, self.clock.elapsed());
                let is_back = state.gone.remove(name).is_some();
                if is_back
                    && positions
                        .get(name)
                        .is_some_and(|known| known.stamp != *stamp)
                {
                    // Another file of the same name.
                    positions.correct(name, FilePosition::start(*stamp));
                }
                if let Err(error) = self.ingest(&file, &mut positions, &mut state.backlog).await {
                    error_text = Some(error.transient_or_fatal()?);
                }
            }
            self.handle_missing(&scan, &mut positions, &mut state);
            self.alarm(error_text);
            if let Err(error) = positions.store(&*self.positions).await {
                // The markers are durable all the same; the next start takes longer.
                self.alarm(Some(error.to_string()));
            }
            tokio::time::sleep(self.scan_interval).await;
        }
    }

    fn alarm(&self, reason: Option<String>) {
        let input = &self.input.name;
        let alarm = reason.map(|reason| format!("files of input \"{input}\": {reason}"));
        self.status.set_alarm(&format!("files of {input}"), alarm);
    }

    /// Appends the new events of a file.
    async fn ingest(
        &self,
        file: &ScannedFile<'_>,
        positions: &mut FilePositions,
        backlog: &mut Backlog,
    ) -> Result<(), FileError> {
        let grows = self.slicing.may_grow(Path::new(file.name));
        let fresh = FilePosition::start(file.stamp);
        let known = match positions.get(file.name) {
            Some(known) if known.stamp == file.stamp => known,
            Some(known) => match self.is_same(file, &known).await? {
                true => {
                    // Touched, or grown.
                    let stamp = file.stamp;
                    let known = FilePosition { stamp, ..known };
                    positions.correct(file.name, known);
                    known
                }
                // Another file, which may still be incomplete.
                false if !grows && !file.is_stable => return Ok(()),
                false => {
                    let name = file.name;
                    self.status.log(format!(
                        "{name} was replaced by another file, which is read from its start"
                    ));
                    positions.correct(file.name, fresh);
                    fresh
                }
            },
            None => fresh,
        };
        let last = match grows {
            true => file.unchanged >= LAST_LINE_TIMEOUT,
            false => file.is_stable,
        };
        let has_more = !known.is_done && (!grows || known.next < file.stamp.len);
        match has_more && (grows || last) {
            true => {
                self.ingest_from(file, known, last, positions, backlog)
                    .await
            }
            false => Ok(()),
        }
    }

    /// Whether the file is the one that was read before.
    async fn is_same(
        &self,
        file: &ScannedFile<'_>,
        known: &FilePosition,
    ) -> Result<bool, FileError> {
        let fits = match self.slicing.may_grow(Path::new(file.name)) {
            true => file.stamp.len >= known.next,
            false => file.stamp.len == known.known,
        };
        Ok(fits && self.begins_with(file, known).await?)
    }

    async fn begins_with(
        &self,
        file: &ScannedFile<'_>,
        known: &FilePosition,
    ) -> Result<bool, FileError> {
        Ok(self.sum(file, known.known).await? == Some(known.sum))
    }

    /// The checksum of the first bytes; `None` if the file is shorter.
    async fn sum(&self, file: &ScannedFile<'_>, bytes: u64) -> Result<Option<u32>, FileError> {
        let path = file.name.to_owned();
        let sum = run_blocking(move || head_checksum(Path::new(&path), bytes)).await;
        Ok(sum.map_err(FileError::Fatal)??)
    }

    async fn ingest_from(
        &self,
        file: &ScannedFile<'_>,
        mut known: FilePosition,
        last: bool,
        positions: &mut FilePositions,
        backlog: &mut Backlog,
    ) -> Result<(), FileError> {
        let grows = self.slicing.may_grow(Path::new(file.name));
        let head = match grows {
            true => file.stamp.len.min(HEAD_BYTES),
            false => file.stamp.len,
        };
        self.identify(file, &mut known, head).await?;
        let (path, slicing, from) = (file.name.to_owned(), self.slicing, known.next);
        let opened = run_blocking(move || slicing.open(Path::new(&path), from)).await;
        let mut slicer = opened.map_err(FileError::Fatal)??;
        loop {
            let slice;
            (slicer, slice) = next_slice(slicer, last).await?;
            let Some(slice) = slice else { break };
            // The file may have been replaced meanwhile; its events must not be taken for the old file's.
            if grows && !self.begins_with(file, &known).await? {
                return Ok(());
            }
            (known.next, known.is_done) = (slice.next, slice.is_end);
            self.wait_for_job(backlog).await;
            let end = self.append(file.name, known, Some(&slice)).await?;
            backlog.add(end, slice.bytes() as u64);
            positions.set(file.name, known, end);
            if known.is_done {
                return Ok(());
            }
        }
        if !grows {
            known.is_done = true;
            let end = self.append(file.name, known, None).await?;
            positions.set(file.name, known, end);
            self.check_unchanged(file).await?;
        }
        Ok(())
    }

    /// Logs a warning if a file that is read as a whole changed meanwhile.
    async fn check_unchanged(&self, file: &ScannedFile<'_>) -> Result<(), FileError> {
        let path = file.name.to_owned();
        let now = run_blocking(move || disk::stamp(path))
            .await
            .map_err(FileError::Fatal)?;
        if !matches!(now, Ok(Some(now)) if now == file.stamp) {
            let name = file.name;
            self.status.log(format!(
                "{name} was changed or removed while it was read, and events may be missing: move complete files into the folder by renaming"
            ));
        }
        Ok(())
    }

    /// Records the checksum that identifies the file.
    async fn identify(
        &self,
        file: &ScannedFile<'_>,
        known: &mut FilePosition,
        bytes: u64,
    ) -> Result<(), FileError> {
        if known.known < bytes || known.next == 0 {
            let sum = self.sum(file, bytes).await?;
            let changed = || FileError::Transient(format!("{} is being changed", file.name));
            (known.known, known.sum) = (bytes, sum.ok_or_else(changed)?);
        }
        Ok(())
    }

    /// Appends a marker and its events, with retries.
    async fn append(
        &self,
        file: &str,
        position: FilePosition,
        slice: Option<&FileSlice>,
    ) -> Result<Offset, FileError> {
        let marker = FileMarker {
            file: file.into(),
            kind: slice.map_or(SliceKind::Json, |slice| slice.kind),
            position,
        };
        let marker = marker.encode();
        let headers = [(HEADER, Some(&marker[..]))];
        let record = |value, headers| NewRecord {
            key: None,
            value,
            headers,
        };
        let mut records = vec![record(None, &headers[..])];
        let values = slice.into_iter().flat_map(FileSlice::values);
        records.extend(values.map(|value| record(Some(value), &[])));
        loop {
            match append(&*self.events, &records).await {
                Ok(end) => return Ok(end),
                Err(error @ (AppendError::Deleted(_) | AppendError::TooLarge { .. })) => {
                    return Err(FileError::Fatal(error.to_string()));
                }
                Err(error) => self.alarm(Some(error.to_string())),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Waits while the backlog is above its limit.
    async fn wait_for_job(&self, backlog: &mut Backlog) {
        loop {
            let mut next = Offset(0);
            self.status
                .update_partition(self.stream, |status| next = status.next);
            backlog.advance(next);
            if backlog.bytes < BACKLOG_BYTES_MAX {
                return;
            }
            tokio::time::sleep(self.scan_interval).await;
        }
    }

    /// Logs missing files with unread bytes, and forgets missing files after a while.
    fn handle_missing(
        &self,
        scan: &DirectoryScan,
        positions: &mut FilePositions,
        state: &mut FollowerState,
    ) {
        let now = self.clock.elapsed();
        let there: BTreeSet<&String> = scan.files.iter().map(|(name, _)| name).collect();
        let is_gone = |name: &String| !there.contains(name) && scan.is_gone(name);
        let names = positions.files().map(|(name, _)| name.clone());
        let known: Vec<String> = names.chain(state.seen.keys().cloned()).collect();
        for name in known.into_iter().filter(is_gone) {
            let seen = state.seen.remove(&name).map(|(stamp, _)| stamp);
            let unread = self.unread_bytes(&name, positions.get(&name), seen);
            let since = *state.gone.entry(name.clone()).or_insert_with(|| {
                if unread > 0 {
                    self.status.log(format!(
                        "{name} is gone and was not read completely: at least {unread} bytes are missing"
                    ));
                }
                now
            });
            if now.saturating_sub(since) >= GONE_RETENTION || positions.get(&name).is_none() {
                state.gone.remove(&name);
                positions.forget(&name);
            }
        }
    }

    /// The known number of unread bytes of a file.
    fn unread_bytes(&self, name: &str, position: Option<FilePosition>, seen: Option<Stamp>) -> u64 {
        let grows = self.slicing.may_grow(Path::new(name));
        match (position, seen) {
            (Some(position), _) if position.is_done => 0,
            (Some(position), seen) if grows => {
                let len = seen.unwrap_or(position.stamp).len;
                len.saturating_sub(position.next)
            }
            (Some(position), _) => position.stamp.len,
            (None, seen) => seen.map_or(0, |stamp| stamp.len),
        }
    }
}

/// A file could not be read.
enum FileError {
    /// Retried at the next scan.
    Transient(String),
    /// The job fails.
    Fatal(String),
}

impl FileError {
    fn transient_or_fatal(self) -> Result<String, String> {
        match self {
            FileError::Transient(reason) => Ok(reason),
            FileError::Fatal(reason) => Err(reason),
        }
    }
}

impl From<ReadError> for FileError {
    fn from(error: ReadError) -> FileError {
        FileError::Transient(error.to_string())
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> FileError {
        FileError::Transient(error.to_string())
    }
}

async fn next_slice(
    mut slicer: FileSlicer,
    last: bool,
) -> Result<(FileSlicer, Option<FileSlice>), FileError> {
    let slice = run_blocking(move || {
        let slice = slicer.next(last);
        (slicer, slice)
    });
    let (slicer, slice) = slice.await.map_err(FileError::Fatal)?;
    Ok((slicer, slice?))
}

/// Runs blocking work on a thread of its own.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let result = tokio::task::spawn_blocking(work).await;
    result.map_err(|error| error.to_string())
}
