//! The hub against the log in memory: the same calls give the same answers. // proves L1 L2 K4

use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, Disk, SimClock, SimDisk};
use highwater_hub::{Hub, Options};
use highwater_log::MemoryLog;
use highwater_log::batch::Codec;
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, TimestampType};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, EnqueueTime, HubSettings, Isolation, Log, Offset,
    Partition, Producer, ReadError, TimestampLookup, TransactionMarker,
};
use proptest::prelude::*;

use crate::common::*;

#[derive(Clone, Debug)]
enum Call {
    Append {
        producer: Option<(i64, i16, i32)>,
        transactional: bool,
        count: usize,
        codec: Codec,
        /// Before or after the time of the hub.
        created_ms: Option<i64>,
    },
    AppendRecords {
        count: usize,
        size: usize,
    },
    Marker {
        producer: i64,
        epoch: i16,
        commit: bool,
    },
    /// The end of the partition plus this.
    Punctuate {
        off: i64,
    },
    Read {
        from: i64,
        bytes_max: usize,
        committed: bool,
    },
    Find {
        back_ms: i64,
    },
    /// By the timestamps that consumers see; `None` finds the latest.
    FindTimestamp {
        back_ms: Option<i64>,
    },
    /// The timestamps that consumers see from here on.
    Timestamps {
        created: bool,
    },
    Trim {
        offset: i64,
    },
    Advance {
        ms: i64,
    },
    /// Stop and start again; the log in memory stays.
    Restart,
    Kill,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let append = (
        prop::option::weighted(0.7, (0..3i64, 0..2i16, 0..12i32)),
        any::<bool>(),
        1..4usize,
        prop::sample::select(vec![Codec::None, Codec::Lz4]),
        prop::option::weighted(0.8, -3_000..1_000i64),
    );
    let append =
        append.prop_map(
            |(producer, transactional, count, codec, created_ms)| Call::Append {
                producer,
                transactional,
                count,
                codec,
                created_ms,
            },
        );
    let records = (0..4usize, 0..400usize);
    let read = (-2..60i64, 0..3000usize, any::<bool>());
    let call = prop_oneof![
        8 => append,
        3 => records.prop_map(|(count, size)| Call::AppendRecords { count, size }),
        3 => (0..3i64, 0..2i16, any::<bool>())
            .prop_map(|(producer, epoch, commit)| Call::Marker { producer, epoch, commit }),
        2 => (-1..2i64).prop_map(|off| Call::Punctuate { off }),
        6 => read.prop_map(|(from, bytes_max, committed)| Call::Read { from, bytes_max, committed }),
        2 => (-10..3000i64).prop_map(|back_ms| Call::Find { back_ms }),
        4 => prop::option::weighted(0.8, -1_200..4_000i64)
            .prop_map(|back_ms| Call::FindTimestamp { back_ms }),
        1 => prop::bool::weighted(0.7).prop_map(|created| Call::Timestamps { created }),
        1 => (-1..50i64).prop_map(|offset| Call::Trim { offset }),
        2 => (-500..500i64).prop_map(|ms| Call::Advance { ms }),
        1 => Just(Call::Restart),
        1 => Just(Call::Kill),
    ];
    prop::collection::vec(call, 1..80)
}

struct Both {
    disk: SimDisk,
    clock: Arc<SimClock>,
    options: Options,
    hub: Hub,
    memory: MemoryLog,
}

impl Both {
    fn new(tail_bytes: usize) -> Both {
        let disk = SimDisk::new(1);
        let clock = Arc::new(SimClock::at_unix_nanos(1_000_000_000_000));
        let options = Options {
            segment_bytes: 700,
            index_bytes: 200,
            checkpoint_bytes: 500,
            reserve_bytes: 300,
            tail_bytes,
            shared_batch_bytes: 600,
            ..by_hand()
        };
        let now = clock.clone();
        let memory = MemoryLog::new(move || now.unix_millis());
        let hub = start(&disk, &clock, &options);
        let settings = settings(TimestampType::Create);
        done(hub.create(spec("h", 1, settings.clone()))).unwrap();
        done(memory.create(spec("h", 1, settings))).unwrap();
        Both {
            disk,
            clock,
            options,
            hub,
            memory,
        }
    }

    fn on_both<T>(&self, call: impl Fn(&dyn Partition) -> BoxFuture<T>, same: impl Fn(T, T)) {
        let hub = self.hub.partition("h", 0).unwrap();
        let memory = self.memory.partition("h", 0).unwrap();
        let mut pending = call(&*hub);
        self.hub.commit();
        let answer = poll(&mut pending).expect("it is done after a commit");
        same(answer, done(call(&*memory)));
        let (mut ours, mut theirs) = (hub.bounds(), memory.bounds());
        // Bytes before the start count until their segment is deleted.
        (ours.bytes, theirs.bytes) = (0, 0);
        assert_eq!(ours, theirs);
    }

    fn call(&mut self, call: &Call) {
        match call {
            Call::Append {
                producer,
                transactional,
                count,
                codec,
                created_ms,
            } => {
                let numbered = producer.map(|(id, epoch, number)| (Producer { id, epoch }, number));
                let transactional = *transactional && numbered.is_some();
                let created = created_ms.map(|ms| self.clock.unix_millis() + ms);
                let batch = packed(*count, numbered, transactional, *codec, created);
                self.on_both(|partition| partition.append(batch.clone()), same_append);
            }
            Call::AppendRecords { count, size } => {
                let text = "y".repeat(*size);
                let records = vec![record(&text); *count];
                self.on_both(|partition| partition.append_records(&records), same_append);
            }
            Call::Marker {
                producer,
                epoch,
                commit,
            } => {
                let producer = Producer {
                    id: *producer,
                    epoch: *epoch,
                };
                let marker = if *commit {
                    TransactionMarker::Commit
                } else {
                    TransactionMarker::Abort
                };
                self.on_both(
                    |partition| partition.append_marker(producer, marker),
                    same_append,
                );
            }
            Call::Punctuate { off } => {
                let end = self.hub.partition("h", 0).unwrap().bounds().end;
                let end = Offset(end.0 + off);
                self.on_both(
                    |partition| partition.punctuate(end),
                    |a, b| assert_eq!(a, b),
                );
            }
            Call::Read {
                from,
                bytes_max,
                committed,
            } => {
                let isolation = match committed {
                    true => Isolation::Committed,
                    false => Isolation::Uncommitted,
                };
                self.read(Offset(*from), *bytes_max, isolation);
            }
            Call::Find { back_ms } => {
                let now = self.clock.unix_millis();
                let time = EnqueueTime(now - back_ms);
                self.on_both(
                    |partition| partition.offset_for_time(time),
                    |a, b| assert_eq!(a, b),
                );
            }
            Call::FindTimestamp { back_ms } => {
                let now = self.clock.unix_millis();
                let lookup = match back_ms {
                    Some(back_ms) => TimestampLookup::AtLeast(now - back_ms),
                    None => TimestampLookup::Latest,
                };
                self.on_both(
                    |partition| partition.offset_for_timestamp(lookup),
                    |a, b| assert_eq!(a, b),
                );
            }
            Call::Timestamps { created } => {
                let settings = settings(match created {
                    true => TimestampType::Create,
                    false => TimestampType::LogAppend,
                });
                done(self.hub.change(&name("h"), settings.clone())).unwrap();
                done(self.memory.change(&name("h"), settings)).unwrap();
            }
            Call::Trim { offset } => {
                let offset = Offset(*offset);
                self.on_both(|partition| partition.trim(offset), |a, b| assert_eq!(a, b));
            }
            Call::Advance { ms } => match u64::try_from(*ms) {
                Ok(ms) => self.clock.advance(Duration::from_millis(ms)),
                Err(_) => {
                    let back = self.clock.unix_nanos() + i128::from(*ms) * 1_000_000;
                    self.clock.set_unix_nanos(back);
                }
            },
            Call::Restart => {
                assert_eq!(self.hub.stop(), Vec::<String>::new());
                self.hub = start(&self.disk, &self.clock, &self.options);
            }
            Call::Kill => {
                self.disk.restart();
                self.hub = start(&self.disk, &self.clock, &self.options);
            }
        }
    }

    /// A read may end early at the end of a segment, so all reads together are compared.
    fn read(&self, from: Offset, bytes_max: usize, isolation: Isolation) {
        let hub = self.hub.partition("h", 0).unwrap();
        let memory = self.memory.partition("h", 0).unwrap();
        let ours = read_from(&*hub, from, bytes_max, isolation);
        let theirs = read_from(&*memory, from, bytes_max, isolation);
        assert_eq!(ours, theirs);
        // The aborted transactions of a read are those with records in it.
        let Ok(ours) = done(hub.read(from, bytes_max, isolation)) else {
            return;
        };
        if ours.pieces.is_empty() {
            assert_eq!(ours.aborted, []);
            return;
        }
        let exactly = ours.pieces.iter().map(|piece| piece.len()).sum();
        let theirs = done(memory.read(from, exactly, isolation)).unwrap();
        assert_eq!(ours.aborted, theirs.aborted);
        assert_eq!(ours.pieces.concat(), theirs.pieces.concat());
    }
}

fn settings(kind: TimestampType) -> HubSettings {
    HubSettings {
        batch_bytes_max: 1024,
        ..timestamps(kind)
    }
}

fn packed(
    count: usize,
    producer: Option<(Producer, i32)>,
    transactional: bool,
    codec: Codec,
    timestamp: Option<i64>,
) -> Batch {
    let mut builder = BatchBuilder::new();
    for number in 0..count {
        builder.push(&record(&format!("value {number}")));
    }
    let seal = BatchOptions {
        codec,
        producer,
        transactional,
        timestamp,
    };
    builder.build(&seal).unwrap()
}

fn start(disk: &SimDisk, clock: &Arc<SimClock>, options: &Options) -> Hub {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = clock.clone();
    let (hub, recoveries) = open(&disk, &clock, options).unwrap();
    for recovery in recoveries {
        assert_eq!((recovery.torn_tail, recovery.damage), (None, None));
    }
    hub
}

fn same_append(ours: Result<AppendInfo, AppendError>, theirs: Result<AppendInfo, AppendError>) {
    assert_eq!(ours, theirs);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_call_has_the_same_answer(calls in calls(), tail in prop::sample::select(vec![0usize, 500, 1 << 20])) {
        let mut both = Both::new(tail);
        for call in &calls {
            both.call(call);
        }
        both.call(&Call::Read { from: both.hub.partition("h", 0).unwrap().bounds().start.0, bytes_max: 100, committed: true });
    }
}

#[test]
fn a_deleted_hub_says_so() {
    let both = Both::new(0);
    let partition = both.hub.partition("h", 0).unwrap();
    done(both.hub.delete(&name("h"))).unwrap();
    assert!(both.hub.partition("h", 0).is_none());
    let refused = done(partition.append_records(&[record("x")]));
    assert!(matches!(refused, Err(AppendError::Deleted(_))));
    let refused = done(partition.read(Offset(0), 1, Isolation::Uncommitted));
    assert!(matches!(refused, Err(ReadError::Deleted(_))));
    done(partition.wait_past(Offset(0), Isolation::Uncommitted));
}
