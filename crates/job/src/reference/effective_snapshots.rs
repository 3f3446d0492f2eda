//! The snapshots of reference data that a live job uses, and the times from which they are in effect.
//!
//! A snapshot takes effect at the time in its path. A late one takes effect when it is found, because rows up to then
//! are written; one that is older than the snapshot in effect is ignored. Checkpoints hold these decisions, and a new
//! snapshot is adopted only together with a checkpoint, so that after a crash every event meets the same reference
//! data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_env::disk;
use highwater_time::Instant;

use super::{ReferenceError, snapshot_files};
use crate::load::Job;

/// For each input, the effective time of each snapshot, by the time in its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EffectiveSnapshots(BTreeMap<String, BTreeMap<Instant, Instant>>);

/// The files of all reference data, with modification time and length to detect changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotListing(BTreeMap<String, BTreeMap<Instant, Vec<FileStamp>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    path: PathBuf,
    modified: i128,
    len: u64,
}

impl SnapshotListing {
    /// Lists the files. Blocks.
    pub(crate) fn list(job: &Job) -> Result<SnapshotListing, ReferenceError> {
        let mut listing = BTreeMap::new();
        for reference in &job.plan.references {
            let Some(input) = job.file.input(&reference.name) else {
                continue;
            };
            let stamp = |path: PathBuf| {
                // A file that is gone meanwhile fails when it is read.
                let file = disk::open(&path).ok();
                let (modified, len) = file.map_or((0, 0), |file| (file.modified(), file.len()));
                FileStamp {
                    path,
                    modified,
                    len,
                }
            };
            let snapshots = snapshot_files(input)?.into_iter();
            let snapshots =
                snapshots.map(|(from, files)| (from, files.into_iter().map(stamp).collect()));
            listing.insert(input.name.clone(), snapshots.collect());
        }
        Ok(SnapshotListing(listing))
    }
}

impl EffectiveSnapshots {
    /// All snapshots, in effect from the times in their paths, for a first start.
    pub(crate) fn initial(listing: &SnapshotListing) -> EffectiveSnapshots {
        let mut snapshots = EffectiveSnapshots::default();
        snapshots.add_unknown(listing);
        snapshots
    }

    /// The time from which a snapshot is in effect; `None` if it is not used.
    pub(crate) fn effective_from(&self, input: &str, named: Instant) -> Option<Instant> {
        self.0.get(input)?.get(&named).copied()
    }

    /// Adds new inputs and removes snapshots whose files are gone.
    pub(crate) fn reconcile(&mut self, listing: &SnapshotListing) {
        self.add_unknown(listing);
        for (input, known) in &mut self.0 {
            let listed = listing.0.get(input);
            known.retain(|named, _| listed.is_some_and(|listed| listed.contains_key(named)));
        }
        self.0.retain(|input, _| listing.0.contains_key(input));
    }

    fn add_unknown(&mut self, listing: &SnapshotListing) {
        for (input, snapshots) in &listing.0 {
            let by_name = || snapshots.keys().map(|named| (*named, *named)).collect();
            self.0.entry(input.clone()).or_insert_with(by_name);
        }
    }

    /// Adopts new snapshots, with events up to `reached` processed. Returns log lines.
    pub(crate) fn adopt(&mut self, listing: &SnapshotListing, reached: Instant) -> Vec<String> {
        let mut log = Vec::new();
        let at_once = Instant::from_ticks(reached.ticks().saturating_add(1));
        for (input, snapshots) in &listing.0 {
            let known = self.0.entry(input.clone()).or_default();
            let new: Vec<Instant> = snapshots.keys().copied().collect();
            for named in new.into_iter().rev() {
                if known.contains_key(&named) {
                    continue;
                }
                let newer = known.range(named..).any(|(_, since)| *since <= at_once);
                let line = match named > reached {
                    true => {
                        known.insert(named, named);
                        format!("reference data \"{input}\" of {named} takes effect then")
                    }
                    false if newer => continue,
                    false => {
                        known.insert(named, at_once);
                        format!(
                            "reference data \"{input}\" of {named} is late and takes effect at {at_once}"
                        )
                    }
                };
                log.push(line);
            }
        }
        log
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
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

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<EffectiveSnapshots, DecodeError> {
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
        Ok(EffectiveSnapshots(force))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Instant {
        Instant::from_unix_millis(minute * 60_000)
    }

    fn seen(minutes: &[i64]) -> SnapshotListing {
        let snapshots = minutes.iter().map(|minute| (at(*minute), Vec::new()));
        SnapshotListing([("Ref".to_owned(), snapshots.collect())].into())
    }

    fn shown(force: &EffectiveSnapshots) -> Vec<(Instant, Instant)> {
        let snapshots = force.0["Ref"].iter();
        snapshots.map(|(named, since)| (*named, *since)).collect()
    }

    // proves S3 T8
    #[test]
    fn a_snapshot_counts_from_its_time_on_and_a_late_one_from_now_on() {
        let mut force = EffectiveSnapshots::initial(&seen(&[10, 20]));
        assert_eq!(shown(&force), [(at(10), at(10)), (at(20), at(20))]);
        let now = Instant::from_ticks(at(34).ticks() + 1);
        // 15 is older than the snapshot in effect, 30 and 32 are late, 40 is in time.
        let log = force.adopt(&seen(&[10, 15, 20, 30, 32, 40]), at(34));
        let decided = [
            (at(10), at(10)),
            (at(20), at(20)),
            (at(32), now),
            (at(40), at(40)),
        ];
        assert_eq!(shown(&force), decided);
        assert_eq!(log.len(), 2, "{log:?}");
        assert!(log[1].contains("is late"), "{log:?}");
        assert!(
            force
                .adopt(&seen(&[10, 15, 20, 30, 32, 40]), at(36))
                .is_empty()
        );

        let mut out = Vec::new();
        force.write(&mut out);
        assert_eq!(
            EffectiveSnapshots::read(&mut Reader::new(&out)).unwrap(),
            force
        );
        force.reconcile(&seen(&[32, 40, 50]));
        assert_eq!(shown(&force), [(at(32), now), (at(40), at(40))]);
        assert_eq!(force.effective_from("Ref", at(50)), None);
    }
}
