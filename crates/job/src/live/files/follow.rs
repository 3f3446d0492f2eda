//! Looks at the files of an input again and again, and takes what is new.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use highwater_connect::{FileSlice, FileSlicer, ReadError, SliceKind};
use highwater_env::disk::{self, Stamp};
use highwater_log::batch::NewRecord;
use highwater_log::{AppendError, Offset};

use super::Follower;
use super::identity::{HEAD_BYTES, sum_of};
use super::ledger::{Ledger, append};
use super::look::Found;
use super::mark::{HEADER, Mark, Taken};
use super::memory::{Ahead, Candidate, Memory};

/// Between two tries to write.
const PAUSE: Duration = Duration::from_secs(1);

/// A last line without an end is taken when its file has not changed for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// For so long a file that is gone is remembered: it may come back, as when a disk is mounted again.
const GONE: Duration = Duration::from_secs(24 * 3600);

/// How much of what was taken may wait for the job.
const AHEAD_BYTES_MAX: u64 = 256 << 20;

impl Follower {
    /// Runs until it is told to stop; an error is one that no waiting mends.
    pub async fn run(self) -> Result<(), String> {
        let mut stop = self.stop.clone();
        // What is being written when this ends is counted by whoever comes next.
        tokio::select! {
            ended = self.follow() => ended,
            _ = stop.wait_for(|stop| *stop) => Ok(()),
        }
    }

    async fn follow(&self) -> Result<(), String> {
        let mut ledger = loop {
            match Ledger::open(&*self.events, &*self.positions).await {
                Ok(ledger) => break ledger,
                Err(reason) => self.alarm(Some(format!(
                    "it is not known how far they were read: {reason}"
                ))),
            }
            tokio::time::sleep(PAUSE).await;
        };
        let mut memory = Memory::default();
        loop {
            let (paths, cutting) = (self.input.paths.clone(), self.cutting);
            let found = aside(move || Found::look(&paths, &cutting)).await?;
            let mut trouble = found.troubles.first().cloned();
            for (name, stamp) in &found.files {
                let file = memory.see(name, *stamp, self.clock.elapsed());
                let is_back = memory.gone.remove(name).is_some();
                if is_back && ledger.get(name).is_some_and(|known| known.stamp != *stamp) {
                    // Another file that has its name.
                    ledger.correct(name, Taken::of(*stamp));
                }
                if let Err(error) = self.take(&file, &mut ledger, &mut memory.ahead).await {
                    trouble = Some(error.or_fail()?);
                }
            }
            self.miss(&found, &mut ledger, &mut memory);
            self.alarm(trouble);
            if let Err(error) = ledger.keep(&*self.positions).await {
                // The marks are there all the same; a start takes longer.
                self.alarm(Some(error.to_string()));
            }
            tokio::time::sleep(self.every).await;
        }
    }

    fn alarm(&self, reason: Option<String>) {
        let input = &self.input.name;
        let alarm = reason.map(|reason| format!("files of input \"{input}\": {reason}"));
        self.board.set_alarm(&format!("files of {input}"), alarm);
    }

    /// Takes what there is to take of a file.
    async fn take(
        &self,
        file: &Candidate<'_>,
        ledger: &mut Ledger,
        ahead: &mut Ahead,
    ) -> Result<(), Failure> {
        let grows = self.cutting.may_grow(Path::new(file.name));
        let fresh = Taken::of(file.stamp);
        let known = match ledger.get(file.name) {
            Some(known) if known.stamp == file.stamp => known,
            Some(known) => match self.is_same(file, &known).await? {
                true => {
                    // Touched, or longer than it was.
                    let stamp = file.stamp;
                    let known = Taken { stamp, ..known };
                    ledger.correct(file.name, known);
                    known
                }
                // Another file, which may still be on its way.
                false if !grows && !file.is_still => return Ok(()),
                false => {
                    let name = file.name;
                    self.board.log(format!(
                        "{name} is another file than the one of that name that was read; it is read from its start"
                    ));
                    ledger.correct(file.name, fresh);
                    fresh
                }
            },
            None => fresh,
        };
        let last = match grows {
            true => file.unchanged >= PATIENCE,
            false => file.is_still,
        };
        let has_more = !known.is_done && (!grows || known.next < file.stamp.len);
        match has_more && (grows || last) {
            true => {
                self.take_from(file, (known, grows, last), ledger, ahead)
                    .await
            }
            false => Ok(()),
        }
    }

    /// Whether it is the file that was taken before.
    async fn is_same(&self, file: &Candidate<'_>, known: &Taken) -> Result<bool, Failure> {
        let fits = match self.cutting.may_grow(Path::new(file.name)) {
            true => file.stamp.len >= known.next,
            false => file.stamp.len == known.known,
        };
        Ok(fits && self.begins_with(file, known).await?)
    }

    async fn begins_with(&self, file: &Candidate<'_>, known: &Taken) -> Result<bool, Failure> {
        Ok(self.sum(file, known.known).await? == Some(known.sum))
    }

    /// The checksum of its first bytes, if it has so many.
    async fn sum(&self, file: &Candidate<'_>, bytes: u64) -> Result<Option<u32>, Failure> {
        let path = file.name.to_owned();
        let sum = aside(move || sum_of(Path::new(&path), bytes)).await;
        Ok(sum.map_err(Failure::Ends)??)
    }

    async fn take_from(
        &self,
        file: &Candidate<'_>,
        (mut known, grows, last): (Taken, bool, bool),
        ledger: &mut Ledger,
        ahead: &mut Ahead,
    ) -> Result<(), Failure> {
        let head = match grows {
            true => file.stamp.len.min(HEAD_BYTES),
            false => file.stamp.len,
        };
        self.know(file, &mut known, head).await?;
        let (path, cutting, from) = (file.name.to_owned(), self.cutting, known.next);
        let opened = aside(move || cutting.open(Path::new(&path), from)).await;
        let mut cutter = opened.map_err(Failure::Ends)??;
        loop {
            let cut;
            (cutter, cut) = next_cut(cutter, last).await?;
            let Some(cut) = cut else { break };
            // Of a file that was replaced just now, nothing may be counted as of the one before.
            if grows && !self.begins_with(file, &known).await? {
                return Ok(());
            }
            (known.next, known.is_done) = (cut.next, cut.is_end);
            self.wait_for_job(ahead).await;
            let end = self.append(file.name, known, Some(&cut)).await?;
            ahead.add(end, cut.bytes() as u64);
            ledger.note(file.name, known, end);
            if known.is_done {
                return Ok(());
            }
        }
        if !grows {
            known.is_done = true;
            let end = self.append(file.name, known, None).await?;
            ledger.note(file.name, known, end);
            self.look_behind(file).await?;
        }
        Ok(())
    }

    /// A file that is taken as a whole must not change meanwhile.
    async fn look_behind(&self, file: &Candidate<'_>) -> Result<(), Failure> {
        let path = file.name.to_owned();
        let now = aside(move || disk::stamp(path))
            .await
            .map_err(Failure::Ends)?;
        if !matches!(now, Ok(Some(now)) if now == file.stamp) {
            let name = file.name;
            self.board.log(format!(
                "{name} was changed or removed while it was read, and events may be missing: put files in place by renaming them"
            ));
        }
        Ok(())
    }

    /// Takes note of what tells the file from others.
    async fn know(
        &self,
        file: &Candidate<'_>,
        known: &mut Taken,
        bytes: u64,
    ) -> Result<(), Failure> {
        if known.known < bytes || known.next == 0 {
            let sum = self.sum(file, bytes).await?;
            let changed = || Failure::Waits(format!("{} is being changed", file.name));
            (known.known, known.sum) = (bytes, sum.ok_or_else(changed)?);
        }
        Ok(())
    }

    /// Appends a mark and what it stands for, however long that takes.
    async fn append(
        &self,
        file: &str,
        taken: Taken,
        cut: Option<&FileSlice>,
    ) -> Result<Offset, Failure> {
        let mark = Mark {
            file: file.into(),
            kind: cut.map_or(SliceKind::Json, |cut| cut.kind),
            taken,
        };
        let mark = mark.encode();
        let headers = [(HEADER, Some(&mark[..]))];
        let record = |value, headers| NewRecord {
            key: None,
            value,
            headers,
        };
        let mut records = vec![record(None, &headers[..])];
        let values = cut.into_iter().flat_map(FileSlice::values);
        records.extend(values.map(|value| record(Some(value), &[])));
        loop {
            match append(&*self.events, &records).await {
                Ok(end) => return Ok(end),
                Err(error @ (AppendError::Deleted(_) | AppendError::TooLarge { .. })) => {
                    return Err(Failure::Ends(error.to_string()));
                }
                Err(error) => self.alarm(Some(error.to_string())),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Until not too much waits for the job.
    async fn wait_for_job(&self, ahead: &mut Ahead) {
        loop {
            let mut next = Offset(0);
            self.board
                .update_partition(self.stream, |status| next = status.next);
            ahead.pass(next);
            if ahead.bytes < AHEAD_BYTES_MAX {
                return;
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Says of files that are gone if something of them was not taken, and forgets them after a while.
    fn miss(&self, found: &Found, ledger: &mut Ledger, memory: &mut Memory) {
        let now = self.clock.elapsed();
        let there: BTreeSet<&String> = found.files.iter().map(|(name, _)| name).collect();
        let is_gone = |name: &String| !there.contains(name) && found.is_gone(name);
        let names = ledger.files().map(|(name, _)| name.clone());
        let known: Vec<String> = names.chain(memory.seen.keys().cloned()).collect();
        for name in known.into_iter().filter(is_gone) {
            let seen = memory.seen.remove(&name).map(|(stamp, _)| stamp);
            let left = self.left(&name, ledger.get(&name), seen);
            let since = *memory.gone.entry(name.clone()).or_insert_with(|| {
                if left > 0 {
                    self.board.log(format!(
                        "{name} is gone, and not all of it had been read: {left} bytes or more are missing"
                    ));
                }
                now
            });
            if now.saturating_sub(since) >= GONE || ledger.get(&name).is_none() {
                memory.gone.remove(&name);
                ledger.forget(&name);
            }
        }
    }

    /// How much of a file was not taken, as far as is known.
    fn left(&self, name: &str, taken: Option<Taken>, seen: Option<Stamp>) -> u64 {
        let grows = self.cutting.may_grow(Path::new(name));
        match (taken, seen) {
            (Some(taken), _) if taken.is_done => 0,
            (Some(taken), seen) if grows => {
                let len = seen.unwrap_or(taken.stamp).len;
                len.saturating_sub(taken.next)
            }
            (Some(taken), _) => taken.stamp.len,
            (None, seen) => seen.map_or(0, |stamp| stamp.len),
        }
    }
}

/// Why a file was not taken.
enum Failure {
    /// For now.
    Waits(String),
    /// The job cannot go on.
    Ends(String),
}

impl Failure {
    fn or_fail(self) -> Result<String, String> {
        match self {
            Failure::Waits(reason) => Ok(reason),
            Failure::Ends(reason) => Err(reason),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        Failure::Waits(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Waits(error.to_string())
    }
}

async fn next_cut(
    mut cutter: FileSlicer,
    last: bool,
) -> Result<(FileSlicer, Option<FileSlice>), Failure> {
    let cut = aside(move || {
        let cut = cutter.next(last);
        (cutter, cut)
    });
    let (cutter, cut) = cut.await.map_err(Failure::Ends)?;
    Ok((cutter, cut?))
}

/// Does what may block where nobody waits for it.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())
}
