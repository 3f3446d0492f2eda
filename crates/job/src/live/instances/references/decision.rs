//! The effective times of reference snapshots: a pure function of the versions and of the votes of streams.
//!
//! A version has the snapshots that are new. No row has a later time than the latest that a stream has reached when it
//! votes, so a snapshot that takes effect later applies to the same rows, wherever and however often they are computed.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::ReferenceTable;
use highwater_time::Instant;

use super::super::super::store_object::ObjectFormat;
use crate::reference::write_rows;

const PROPOSAL: ObjectFormat = ObjectFormat {
    title: *b"HWTABLES",
    version: 1,
    mistaken: "it is not reference data (unknown header)",
};
const DECISION: ObjectFormat = ObjectFormat {
    title: *b"HWTABDEC",
    version: 1,
    mistaken: "it is not a decision about reference data (unknown header)",
};
const VOTE: ObjectFormat = ObjectFormat {
    title: *b"HWTABVOT",
    version: 1,
    mistaken: "it is not a vote about reference data (unknown header)",
};

/// A snapshot of a table that is new, or whose rows have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProposedSnapshot {
    /// The index among the references of the plan.
    pub table: usize,
    /// The time in its path; `BEFORE_ALL` for a static table.
    pub named: Instant,
    /// The encoded rows.
    pub rows: Vec<u8>,
}

/// The snapshots of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableProposal {
    pub snapshots: Vec<ProposedSnapshot>,
}

/// The position of a shard that stops for a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live::instances) struct ShardVote {
    /// It has processed no row with a later time.
    pub reached: Instant,
    /// It will process no row with an earlier time.
    pub watermark: Instant,
}

/// The combination of all shards' votes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreement {
    /// No stream has processed a row with a later time.
    pub reached: Instant,
    /// No shard will process a row with an earlier time.
    pub base: Instant,
}

/// A snapshot that a decision knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecidedSnapshot {
    pub table: usize,
    pub named: Instant,
    /// The version that has its rows.
    pub version: u64,
    /// Tells whether a file has changed.
    digest: RowsDigest,
    /// `None`: no row sees it, because a newer one was in effect before.
    pub effective: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowsDigest {
    bytes: u64,
    checksum: u32,
}

impl RowsDigest {
    fn of(rows: &[u8]) -> RowsDigest {
        RowsDigest {
            bytes: rows.len() as u64,
            checksum: crc32c::crc32c(rows),
        }
    }
}

/// The snapshots of all versions up to one, and the times from which rows see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableDecision {
    pub version: u64,
    /// Snapshots that only earlier rows see are forgotten.
    pub base: Instant,
    pub snapshots: Vec<DecidedSnapshot>,
}

impl TableDecision {
    /// The snapshots of the first version take effect at the times in their paths; rows before all of them see the
    /// first one.
    pub(super) fn first(proposal: &TableProposal) -> TableDecision {
        let own = |snapshot: &ProposedSnapshot| {
            let of_table = proposal.snapshots.iter();
            let earlier = of_table.filter(|other| other.table == snapshot.table);
            let is_first = earlier.map(|other| other.named).min() == Some(snapshot.named);
            match is_first {
                true => Instant::BEFORE_ALL,
                false => snapshot.named,
            }
        };
        let snapshots = proposal.snapshots.iter();
        TableDecision {
            version: 0,
            base: Instant::BEFORE_ALL,
            snapshots: snapshots
                .map(|snapshot| snapshot.decided(0, Some(own(snapshot))))
                .collect(),
        }
    }

    /// The decision about the next version. A snapshot takes effect at the time in its path, or, if that is reached, at
    /// once, unless a newer one is in effect.
    pub(super) fn next(&self, proposal: &TableProposal, agreed: Agreement) -> TableDecision {
        let mut next = TableDecision {
            version: self.version + 1,
            base: self.base.max(agreed.base),
            snapshots: self.snapshots.clone(),
        };
        let at_once = Instant::from_ticks(agreed.reached.ticks().saturating_add(1));
        let mut newest_first: Vec<&ProposedSnapshot> = proposal.snapshots.iter().collect();
        newest_first.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.named, snapshot.table)));
        for snapshot in newest_first {
            let effective = match snapshot.named > agreed.reached {
                true => Some(snapshot.named),
                false if next.has_newer(snapshot.table, snapshot.named, at_once) => None,
                false => Some(at_once),
            };
            let decided = snapshot.decided(next.version, effective);
            next.snapshots.retain(|other| {
                let is_replaced = other.effective.is_some() && other.effective == effective;
                other.table != snapshot.table || !is_replaced
            });
            next.snapshots.push(decided);
        }
        next.forget();
        next
    }

    /// Whether a snapshot with a later time in its path is in effect at `time`.
    fn has_newer(&self, table: usize, named: Instant, time: Instant) -> bool {
        let mut snapshots = self.snapshots.iter();
        snapshots.any(|other| {
            let is_newer = other.table == table && other.named > named;
            is_newer && other.effective.is_some_and(|effective| effective <= time)
        })
    }

    /// Whether a snapshot that takes effect later is in effect at `base`.
    fn is_superseded(&self, table: usize, effective: Instant) -> bool {
        let of_table = self.snapshots.iter().filter(|other| other.table == table);
        let mut effective_from = of_table.filter_map(|other| other.effective);
        effective_from.any(|from| effective < from && from <= self.base)
    }

    /// Removes snapshots that no row will see.
    fn forget(&mut self) {
        let all = self.clone();
        self.snapshots.retain(|snapshot| match snapshot.effective {
            Some(effective) => !all.is_superseded(snapshot.table, effective),
            None => !all.has_newer(snapshot.table, snapshot.named, all.base),
        });
    }

    /// The snapshots of files that the decision does not know of.
    pub(super) fn changes<'a>(
        &self,
        tables: impl Iterator<Item = &'a ReferenceTable>,
    ) -> TableProposal {
        let mut snapshots = Vec::new();
        for (table, files) in tables.enumerate() {
            for (named, chunk) in &files.snapshots {
                let mut rows = Vec::new();
                write_rows(chunk, &mut rows);
                let known = self.snapshots.iter();
                let known = known.filter(|known| (known.table, known.named) == (table, *named));
                let known = known.max_by_key(|known| known.version);
                let is_known = known.is_some_and(|known| known.digest == RowsDigest::of(&rows));
                if !is_known && !self.has_newer(table, *named, self.base) {
                    let named = *named;
                    snapshots.push(ProposedSnapshot { table, named, rows });
                }
            }
        }
        TableProposal { snapshots }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        DECISION.encode(|out| {
            out.u64(self.version);
            out.i64(self.base.ticks());
            out.count(self.snapshots.len());
            for snapshot in &self.snapshots {
                out.u64(snapshot.table as u64);
                out.i64(snapshot.named.ticks());
                out.u64(snapshot.version);
                out.u64(snapshot.digest.bytes);
                out.u32(snapshot.digest.checksum);
                out.bool(snapshot.effective.is_some());
                out.i64(snapshot.effective.unwrap_or(Instant::BEFORE_ALL).ticks());
            }
        })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<TableDecision, DecodeError> {
        DECISION.decode(bytes, |from| {
            let (version, base) = (from.u64()?, read_time(from)?);
            let count = from.count()?;
            let read = |_| {
                Ok(DecidedSnapshot {
                    table: from.u64()? as usize,
                    named: read_time(from)?,
                    version: from.u64()?,
                    digest: RowsDigest {
                        bytes: from.u64()?,
                        checksum: from.u32()?,
                    },
                    effective: match (from.bool()?, read_time(from)?) {
                        (true, effective) => Some(effective),
                        (false, _) => None,
                    },
                })
            };
            Ok(TableDecision {
                version,
                base,
                snapshots: (0..count).map(read).collect::<Result<_, _>>()?,
            })
        })
    }
}

fn read_time(from: &mut Reader<'_>) -> Result<Instant, DecodeError> {
    from.i64().map(Instant::from_ticks)
}

impl ProposedSnapshot {
    fn decided(&self, version: u64, effective: Option<Instant>) -> DecidedSnapshot {
        DecidedSnapshot {
            table: self.table,
            named: self.named,
            version,
            digest: RowsDigest::of(&self.rows),
            effective,
        }
    }
}

impl TableProposal {
    pub(super) fn encode(&self) -> Vec<u8> {
        PROPOSAL.encode(|out| {
            out.count(self.snapshots.len());
            for snapshot in &self.snapshots {
                out.u64(snapshot.table as u64);
                out.i64(snapshot.named.ticks());
                out.blob(&snapshot.rows);
            }
        })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<TableProposal, DecodeError> {
        PROPOSAL.decode(bytes, |from| {
            let count = from.count()?;
            let read = |_| {
                Ok(ProposedSnapshot {
                    table: from.u64()? as usize,
                    named: read_time(from)?,
                    rows: from.blob()?.to_vec(),
                })
            };
            let snapshots = (0..count).map(read).collect::<Result<_, _>>()?;
            Ok(TableProposal { snapshots })
        })
    }
}

impl ShardVote {
    pub(super) fn encode(self) -> Vec<u8> {
        VOTE.encode(|out| {
            out.i64(self.reached.ticks());
            out.i64(self.watermark.ticks());
        })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<ShardVote, DecodeError> {
        VOTE.decode(bytes, |from| {
            Ok(ShardVote {
                reached: read_time(from)?,
                watermark: read_time(from)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use highwater_engine::{Chunk, Column};

    use super::*;

    fn at(minute: i64) -> Instant {
        Instant::from_unix_millis(minute * 60_000)
    }

    fn snapshot(named: Instant, content: u8) -> ProposedSnapshot {
        ProposedSnapshot {
            table: 0,
            named,
            rows: vec![content],
        }
    }

    fn proposal(snapshots: &[(Instant, u8)]) -> TableProposal {
        let snapshots = snapshots.iter();
        TableProposal {
            snapshots: snapshots
                .map(|(named, content)| snapshot(*named, *content))
                .collect(),
        }
    }

    fn agreed(reached: i64, base: i64) -> Agreement {
        Agreement {
            reached: at(reached),
            base: at(base),
        }
    }

    /// Version and effective time of each snapshot that rows see, by that time.
    fn effective(decision: &TableDecision) -> Vec<(u64, Instant)> {
        let snapshots = decision.snapshots.iter();
        let mut found: Vec<(u64, Instant)> = snapshots
            .filter_map(|snapshot| Some((snapshot.version, snapshot.effective?)))
            .collect();
        found.sort_by_key(|(_, effective)| *effective);
        found
    }

    fn just_after(minute: i64) -> Instant {
        Instant::from_ticks(at(minute).ticks() + 1)
    }

    // proves S3 X3
    #[test]
    fn a_snapshot_counts_from_its_time_on_and_a_late_one_from_where_streams_stopped() {
        let first = TableDecision::first(&proposal(&[(at(10), 1), (at(20), 2)]));
        assert_eq!(effective(&first), [(0, Instant::BEFORE_ALL), (0, at(20))]);
        // 15 is older than the snapshot in effect, 30 and 32 are late, 40 is in time.
        let new = proposal(&[(at(15), 3), (at(30), 4), (at(32), 5), (at(40), 6)]);
        let second = first.next(&new, agreed(34, 0));
        let decided = [
            (0, Instant::BEFORE_ALL),
            (0, at(20)),
            (1, just_after(34)),
            (1, at(40)),
        ];
        assert_eq!(effective(&second), decided);
        // Rows from minute 35 on are all that will come.
        let third = second.next(&proposal(&[(at(50), 7)]), agreed(36, 35));
        assert_eq!(
            effective(&third),
            [(1, just_after(34)), (1, at(40)), (2, at(50))]
        );
        assert_eq!(TableDecision::decode(&third.encode()), Ok(third));
    }

    #[test]
    fn a_static_table_is_replaced_and_a_snapshot_of_the_future_as_well() {
        let first = TableDecision::first(&proposal(&[(Instant::BEFORE_ALL, 1)]));
        let second = first.next(&proposal(&[(Instant::BEFORE_ALL, 2)]), agreed(5, 0));
        let expected = [(0, Instant::BEFORE_ALL), (1, just_after(5))];
        assert_eq!(effective(&second), expected);
        let dated = TableDecision::first(&proposal(&[(at(10), 1), (at(20), 1)]));
        let changed = dated.next(&proposal(&[(at(20), 2)]), agreed(15, 0));
        assert_eq!(effective(&changed), [(0, Instant::BEFORE_ALL), (1, at(20))]);
    }

    // proves X3
    #[test]
    fn only_what_has_changed_is_proposed_and_what_no_row_will_see_is_not() {
        let files = |snapshots: &[(i64, i64)]| {
            let chunk =
                |value: i64| Chunk::new(vec![0].into(), vec![Column::from_ints(vec![value])]);
            let snapshots = snapshots.iter();
            ReferenceTable {
                snapshots: snapshots
                    .map(|(minute, value)| (at(*minute), chunk(*value)))
                    .collect(),
            }
        };
        let named = |proposal: &TableProposal| -> Vec<Instant> {
            let snapshots = proposal.snapshots.iter();
            snapshots.map(|snapshot| snapshot.named).collect()
        };
        let there = files(&[(10, 1), (20, 2)]);
        let nothing = TableDecision::first(&TableProposal::default());
        let first = TableDecision::first(&nothing.changes([&there].into_iter()));
        assert_eq!(first.snapshots.len(), 2);
        assert_eq!(named(&first.changes([&there].into_iter())), []);
        let more = files(&[(10, 1), (15, 9), (20, 3), (30, 4)]);
        let new = first.changes([&more].into_iter());
        assert_eq!(named(&new), [at(15), at(20), at(30)]);
        let second = first.next(&new, agreed(25, 0));
        assert_eq!(named(&second.changes([&more].into_iter())), []);
        // All rows to come are later than 26.
        let third = second.next(&TableProposal::default(), agreed(26, 26));
        assert_eq!(named(&third.changes([&more].into_iter())), []);
        let late = files(&[(12, 5), (20, 3), (30, 4)]);
        assert_eq!(named(&third.changes([&late].into_iter())), []);
        assert_eq!(effective(&third), [(1, just_after(25)), (1, at(30))]);
    }

    #[test]
    fn objects_are_read_back_and_no_flipped_bit_goes_unnoticed() {
        let vote = ShardVote {
            reached: at(3),
            watermark: at(2),
        };
        assert_eq!(ShardVote::decode(&vote.encode()), Ok(vote));
        let tables = proposal(&[(at(1), 1), (Instant::BEFORE_ALL, 2)]);
        let bytes = tables.encode();
        assert_eq!(TableProposal::decode(&bytes), Ok(tables));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            TableProposal::decode(&damaged).unwrap_err();
        }
    }
}
