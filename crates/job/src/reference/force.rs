//! Which snapshots of its reference data a live job goes by, and from when on.
//!
//! A snapshot takes effect at the time in its name. One that comes too late for that takes effect when it comes, because rows
//! up to there are out already; one that is older than what is in force by then is passed over. What was decided is in every
//! checkpoint, and nothing new is taken up but together with a checkpoint: so after a crash every event meets the same
//! reference data again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_env::disk;
use highwater_time::Instant;

use super::{ReferenceError, snapshot_files};
use crate::load::Job;

/// Per input, its snapshots by the time in their names, with the time from which each counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce(BTreeMap<String, BTreeMap<Instant, Instant>>);

/// The files of all reference data as they lie there. A file is told apart by when it was written and how long it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen(BTreeMap<String, BTreeMap<Instant, Vec<Stamp>>>);

type Stamp = (PathBuf, i128, u64);

impl Seen {
    /// Looks at the disk, which may block.
    pub fn look(job: &Job) -> Result<Seen, ReferenceError> {
        let mut seen = BTreeMap::new();
        for reference in &job.plan.references {
            let Some(input) = job.file.input(&reference.name) else {
                continue;
            };
            let stamp = |path: PathBuf| {
                // One that is gone meanwhile is missed where it is read.
                let file = disk::open(&path).ok();
                let facts = file.map_or((0, 0), |file| (file.modified(), file.len()));
                (path, facts.0, facts.1)
            };
            let snapshots = snapshot_files(input)?.into_iter();
            let snapshots =
                snapshots.map(|(from, files)| (from, files.into_iter().map(stamp).collect()));
            seen.insert(input.name.clone(), snapshots.collect());
        }
        Ok(Seen(seen))
    }
}

impl InForce {
    /// Everything by the time in its name, for a job that begins.
    pub fn first(seen: &Seen) -> InForce {
        let mut force = InForce::default();
        force.add_unknown(seen);
        force
    }

    /// From when on a snapshot counts; `None` if it does not.
    pub fn since(&self, input: &str, named: Instant) -> Option<Instant> {
        self.0.get(input)?.get(&named).copied()
    }

    /// Inputs that nothing was decided about, and no snapshots that are gone.
    pub fn mend(&mut self, seen: &Seen) {
        self.add_unknown(seen);
        for (input, known) in &mut self.0 {
            let there = seen.0.get(input);
            known.retain(|named, _| there.is_some_and(|there| there.contains_key(named)));
        }
        self.0.retain(|input, _| seen.0.contains_key(input));
    }

    fn add_unknown(&mut self, seen: &Seen) {
        for (input, snapshots) in &seen.0 {
            let by_name = || snapshots.keys().map(|named| (*named, *named)).collect();
            self.0.entry(input.clone()).or_insert_with(by_name);
        }
    }

    /// Takes up what is new, where events up to `reached` have been worked off. Says what was done.
    pub fn take_up(&mut self, seen: &Seen, reached: Instant) -> Vec<String> {
        let mut said = Vec::new();
        let at_once = Instant::from_ticks(reached.ticks().saturating_add(1));
        for (input, snapshots) in &seen.0 {
            let known = self.0.entry(input.clone()).or_default();
            let new: Vec<Instant> = snapshots.keys().copied().collect();
            for named in new.into_iter().rev() {
                if known.contains_key(&named) {
                    continue;
                }
                let newer = known.range(named..).any(|(_, since)| *since <= at_once);
                let words = match named > reached {
                    true => {
                        known.insert(named, named);
                        format!("reference data \"{input}\" of {named} will count from then on")
                    }
                    false if newer => continue,
                    false => {
                        known.insert(named, at_once);
                        format!(
                            "reference data \"{input}\" of {named} came late and counts from {at_once} on"
                        )
                    }
                };
                said.push(words);
            }
        }
        said
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.count(self.0.len());
        for (input, snapshots) in &self.0 {
            out.blob(input.as_bytes());
            out.count(snapshots.len());
            for (named, since) in snapshots {
                out.i64(named.ticks());
                out.i64(since.ticks());
            }
        }
    }

    pub fn read(from: &mut Reader<'_>) -> Result<InForce, DecodeError> {
        let mut force = BTreeMap::new();
        for _ in 0..from.count()? {
            let input = String::from_utf8_lossy(from.blob()?).into_owned();
            let mut snapshots = BTreeMap::new();
            for _ in 0..from.count()? {
                let (named, since) = (from.i64()?, from.i64()?);
                snapshots.insert(Instant::from_ticks(named), Instant::from_ticks(since));
            }
            force.insert(input, snapshots);
        }
        Ok(InForce(force))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Instant {
        Instant::from_unix_millis(minute * 60_000)
    }

    fn seen(minutes: &[i64]) -> Seen {
        let snapshots = minutes.iter().map(|minute| (at(*minute), Vec::new()));
        Seen([("Ref".to_owned(), snapshots.collect())].into())
    }

    fn shown(force: &InForce) -> Vec<(Instant, Instant)> {
        let snapshots = force.0["Ref"].iter();
        snapshots.map(|(named, since)| (*named, *since)).collect()
    }

    // proves S3 T8
    #[test]
    fn a_snapshot_counts_from_its_time_on_and_a_late_one_from_now_on() {
        let mut force = InForce::first(&seen(&[10, 20]));
        assert_eq!(shown(&force), [(at(10), at(10)), (at(20), at(20))]);
        let now = Instant::from_ticks(at(34).ticks() + 1);
        // 15 is older than what is in force, 30 and 32 are late, 40 is in time.
        let said = force.take_up(&seen(&[10, 15, 20, 30, 32, 40]), at(34));
        let decided = [
            (at(10), at(10)),
            (at(20), at(20)),
            (at(32), now),
            (at(40), at(40)),
        ];
        assert_eq!(shown(&force), decided);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[1].contains("came late"), "{said:?}");
        assert!(
            force
                .take_up(&seen(&[10, 15, 20, 30, 32, 40]), at(36))
                .is_empty()
        );

        let mut out = Vec::new();
        force.write(&mut out);
        assert_eq!(InForce::read(&mut Reader::new(&out)).unwrap(), force);
        force.mend(&seen(&[32, 40, 50]));
        assert_eq!(shown(&force), [(at(32), now), (at(40), at(40))]);
        assert_eq!(force.since("Ref", at(50)), None);
    }
}
