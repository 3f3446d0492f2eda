//! The hub over the simulated disk: after any crashes, torn or reordered writes, failures and full disks, no
//! acknowledged record is missing, moved, changed or repeated, and no acknowledged punctuation is lost. A record keeps
//! its enqueue time and its producer's timestamp, whichever of them consumers see. // proves L3 T1 T8 K4
//!
//! Each seed is one hub with many crashes, compared with a list of sent and answered appends. `HIGHWATER_SEED=7`
//! replays one seed, `HIGHWATER_SEEDS=100000` runs more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk::Faults;
use highwater_env::random::Random;
use highwater_env::{Clock, Disk, SimClock, SimDisk};
use highwater_hub::{Durability, Hub, Options};
use highwater_log::batch::TimestampType;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, EnqueueTime, Isolation, Log, Offset, Partition, Producer,
    TransactionMarker,
};

use crate::common::*;

const SEEDS: u64 = 2_000;
const STEPS: u64 = 60;

/// An append and its state.
struct Sent {
    topic_partition: usize,
    values: Vec<String>,
    /// The producer's timestamp.
    created: Option<i64>,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The outcome is unknown.
    Unknown,
    Acknowledged {
        offset: i64,
        time: i64,
    },
    /// Certainly not in the log.
    Refused,
}

/// A client that numbers its batches and repeats them until they are acknowledged.
struct Client {
    topic_partition: usize,
    producer: Producer,
    transactional: bool,
    next: i32,
    /// Sequence number, number of the append, and whether it is in flight.
    in_flight: Vec<(i32, usize, bool)>,
    /// Set while a transaction may be open.
    open: bool,
}

/// A punctuation in flight.
struct Silence {
    topic_partition: usize,
    end: Offset,
    pending: BoxFuture<Result<Option<AppendInfo>, AppendError>>,
}

struct World {
    random: Random,
    disk: SimDisk,
    clock: Arc<SimClock>,
    options: Options,
    hub: Option<Hub>,
    sent: Vec<Sent>,
    pending: Vec<(usize, BoxFuture<Result<AppendInfo, AppendError>>)>,
    markers: Vec<(usize, BoxFuture<Result<AppendInfo, AppendError>>)>,
    silences: Vec<Silence>,
    /// Offset and time of the acknowledged ones, by partition.
    silent: Vec<BTreeMap<i64, i64>>,
    clients: Vec<Client>,
    /// The records seen by readers, by partition and offset: it must not change.
    seen: Vec<BTreeMap<i64, ReadRecord>>,
    starts: Vec<i64>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::seeded(seed);
        // Without syncs only the end of the process is survived, not a power cut.
        let durability = match seed % 8 {
            7 => Durability::Os,
            _ => Durability::Fsync,
        };
        let options = Options {
            segment_bytes: 300 + random.below(3000),
            index_bytes: 1 + random.below(400),
            checkpoint_bytes: 1 + random.below(1500),
            reserve_bytes: random.below(3) * 700,
            tail_bytes: random.below(3) as usize * 600,
            queue_bytes: 3000,
            files_open: 1 + random.below(8) as usize,
            shared_batch_bytes: 300,
            durability,
            ..by_hand()
        };
        let client = |number: usize| Client {
            topic_partition: number % 2,
            producer: Producer {
                id: number as i64,
                epoch: 0,
            },
            transactional: number == 3,
            next: 0,
            in_flight: Vec::new(),
            open: false,
        };
        World {
            disk: SimDisk::new(random.next_u64()),
            clock: Arc::new(SimClock::at_unix_nanos(1_000_000_000_000)),
            options,
            hub: None,
            sent: Vec::new(),
            pending: Vec::new(),
            markers: Vec::new(),
            silences: Vec::new(),
            silent: vec![BTreeMap::new(); 2],
            clients: (0..4).map(client).collect(),
            seen: vec![BTreeMap::new(); 2],
            starts: vec![0; 2],
            random,
        }
    }

    fn partition(&self, topic_partition: usize) -> Arc<dyn Partition> {
        let hub = self.hub.as_ref().expect("the hub is open");
        hub.partition("h", topic_partition as u32)
            .expect("the hub was created")
    }

    /// Opens the hub, first with faults and then without: recovery always ends.
    fn open(&mut self) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let clock: Arc<dyn Clock> = self.clock.clone();
        let opened = open(&disk, &clock, &self.options).or_else(|_| {
            self.disk.set_faults(Faults::default());
            self.disk.restart();
            open(&disk, &clock, &self.options)
        });
        let (hub, recoveries) = opened.expect("a disk without faults can be opened");
        for recovery in recoveries {
            assert_eq!(recovery.damage, None);
        }
        if hub.hub("h").is_none() {
            self.disk.set_faults(Faults::default());
            done(hub.create(spec("h", 2, timestamps(TimestampType::Create)))).unwrap();
        }
        self.hub = Some(hub);
        self.check();
    }

    /// The process ends, and no append in flight is answered.
    fn die(&mut self, power_cut: bool) {
        match power_cut && self.options.durability == Durability::Fsync {
            true => self.disk.crash(),
            false => self.disk.restart(),
        }
        self.hub = None;
        self.pending.clear();
        self.markers.clear();
        self.silences.clear();
        for client in &mut self.clients {
            client
                .in_flight
                .iter_mut()
                .for_each(|(.., under_way)| *under_way = false);
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..20 => self.append_plain(),
            20..25 => self.punctuate(),
            25..50 => self.append_numbered(),
            50..72 => self.commit(),
            72..75 => self.end_transaction(),
            75..78 => self.trim(),
            78..81 => self.maintain(),
            81..84 => self.move_clock(),
            84..85 => self.change_timestamps(),
            85..89 => self.check(),
            89..93 => self.set_faults(),
            93..96 => {
                self.die(true);
                self.open();
            }
            96..98 => {
                self.die(false);
                self.open();
            }
            _ => self.stop_and_start(),
        }
    }

    fn values(&mut self) -> Vec<String> {
        let count = 1 + self.random.below(4);
        let number = self.sent.len();
        let padding = "x".repeat(self.random.below(250) as usize);
        (0..count)
            .map(|record| format!("{number}.{record}{padding}"))
            .collect()
    }

    fn note(&mut self, topic_partition: usize, values: Vec<String>, created: Option<i64>) -> usize {
        self.sent.push(Sent {
            topic_partition,
            values,
            created,
            fate: Fate::Unknown,
        });
        self.sent.len() - 1
    }

    /// A timestamp of a producer, whose clock is not the hub's.
    fn created(&mut self) -> Option<i64> {
        let now = self.clock.unix_millis();
        match self.random.below(4) {
            0 => None,
            _ => Some(now - 5_000 + self.random.below(10_000) as i64),
        }
    }

    /// The timestamps that consumers see; the enqueue times stay.
    fn change_timestamps(&mut self) {
        let kind = match self.random.below(3) {
            0 => TimestampType::LogAppend,
            _ => TimestampType::Create,
        };
        let hub = self.hub.as_ref().expect("the hub is open");
        // A full disk may refuse it.
        let _ = done(hub.change(&name("h"), timestamps(kind)));
    }

    fn append_plain(&mut self) {
        let topic_partition = self.random.below(2) as usize;
        let values = self.values();
        let partition = self.partition(topic_partition);
        let created = self.created();
        let (pending, created) = match self.random.below(2) {
            0 => {
                let batch = created_batch(&values, None, false, created);
                (partition.append(batch), created)
            }
            _ => {
                let records: Vec<_> = values.iter().map(|value| record(value)).collect();
                (partition.append_records(&records), None)
            }
        };
        let number = self.note(topic_partition, values, created);
        self.pending.push((number, pending));
    }

    /// Sends the unacknowledged batches of a client in order, then a new one.
    fn append_numbered(&mut self) {
        let number = self.random.below(4) as usize;
        if self.clients[number].in_flight.len() < 5 {
            let values = self.values();
            let created = self.created();
            let sent = self.note(self.clients[number].topic_partition, values, created);
            let client = &mut self.clients[number];
            client.in_flight.push((client.next, sent, false));
            client.next += self.sent[sent].values.len() as i32;
        }
        let client = &self.clients[number];
        if client.in_flight.iter().any(|(.., under_way)| *under_way) {
            // After a failed one others in flight will fail, too; wait for all of them.
            let Some((last, ..)) = client.in_flight.iter().rfind(|(.., under_way)| *under_way)
            else {
                return;
            };
            let waiting = client
                .in_flight
                .iter()
                .position(|(.., under_way)| !under_way);
            let first = waiting.map(|at| client.in_flight[at].0);
            if first.is_none_or(|first| first < *last) {
                return;
            }
        }
        let partition = self.partition(self.clients[number].topic_partition);
        let client = &mut self.clients[number];
        for (sequence, sent, under_way) in &mut client.in_flight {
            if !*under_way {
                *under_way = true;
                let producer = Some((client.producer, *sequence));
                let sent_batch = &self.sent[*sent];
                let batch = created_batch(
                    &sent_batch.values,
                    producer,
                    client.transactional,
                    sent_batch.created,
                );
                self.pending.push((*sent, partition.append(batch)));
                client.open |= client.transactional;
            }
        }
    }

    fn end_transaction(&mut self) {
        let marker = match self.random.below(2) {
            0 => TransactionMarker::Abort,
            _ => TransactionMarker::Commit,
        };
        let client = &self.clients[3];
        if client.open && client.in_flight.is_empty() {
            let partition = self.partition(client.topic_partition);
            let pending = partition.append_marker(client.producer, marker);
            self.markers.push((client.topic_partition, pending));
        }
    }

    fn punctuate(&mut self) {
        let topic_partition = self.random.below(2) as usize;
        let partition = self.partition(topic_partition);
        let end = partition.bounds().end;
        self.silences.push(Silence {
            topic_partition,
            end,
            pending: partition.punctuate(end),
        });
    }

    fn hear_of_silence(&mut self, mut silence: Silence) {
        let answer = poll(&mut silence.pending).expect("it is answered");
        match answer {
            Ok(Some(said)) => {
                assert_eq!(said.offset, silence.end, "it stands where it was asked for");
                self.silent[silence.topic_partition].insert(said.offset.0, said.time.0);
            }
            Ok(None) => {}
            Err(
                AppendError::QueueFull { .. }
                | AppendError::Busy { .. }
                | AppendError::DiskFull { .. }
                | AppendError::Stopped { .. },
            ) => {}
            Err(error) => panic!("punctuation: {error}"),
        }
    }

    fn commit(&mut self) {
        self.hub.as_ref().expect("the hub is open").commit();
        for (number, mut pending) in std::mem::take(&mut self.pending) {
            match poll(&mut pending) {
                Some(answer) => self.hear(number, answer),
                None => panic!("append {number} was not answered"),
            }
        }
        for (_, mut pending) in std::mem::take(&mut self.markers) {
            if let Some(Ok(_)) = poll(&mut pending) {
                self.clients[3].open = false;
            }
        }
        for silence in std::mem::take(&mut self.silences) {
            self.hear_of_silence(silence);
        }
    }

    fn hear(&mut self, number: usize, answer: Result<AppendInfo, AppendError>) {
        let mut owner = None;
        for client in &mut self.clients {
            if let Some(at) = client
                .in_flight
                .iter()
                .position(|(_, sent, _)| *sent == number)
            {
                client.in_flight[at].2 = false;
                owner = Some((client, at));
            }
        }
        match answer {
            Ok(appended) => {
                if let Some((client, at)) = owner {
                    client.in_flight.remove(at);
                }
                self.sent[number].fate = Fate::Acknowledged {
                    offset: appended.offset.0,
                    time: appended.time.0,
                };
            }
            Err(AppendError::Stopped { .. }) => {}
            // A numbered batch is sent again; one without a producer is lost.
            Err(
                AppendError::QueueFull { .. }
                | AppendError::Busy { .. }
                | AppendError::DiskFull { .. }
                | AppendError::OutOfSequence { .. },
            ) => {
                if owner.is_none() {
                    self.sent[number].fate = Fate::Refused;
                }
            }
            Err(error) => panic!("append {number}: {error}"),
        }
    }

    fn trim(&mut self) {
        let topic_partition = self.random.below(2) as usize;
        let partition = self.partition(topic_partition);
        let bounds = partition.bounds();
        let offset = bounds.start.0
            + self
                .random
                .below((bounds.end.0 - bounds.start.0 + 1) as u64) as i64;
        if self.random.below(2) == 0 && done(partition.trim(Offset(offset))).is_ok() {
            self.starts[topic_partition] = self.starts[topic_partition].max(offset);
        }
    }

    fn maintain(&mut self) {
        let now = self.clock.unix_millis();
        self.hub
            .as_ref()
            .expect("the hub is open")
            .maintain(EnqueueTime(now));
    }

    fn move_clock(&mut self) {
        match self.random.below(10) {
            0 => self
                .clock
                .set_unix_nanos(self.clock.unix_nanos() - 5_000_000_000),
            1 => self.clock.advance(Duration::from_secs(3 * 24 * 3600)),
            _ => self
                .clock
                .advance(Duration::from_millis(self.random.below(2000))),
        }
    }

    fn set_faults(&mut self) {
        let mut one_in = |often: u64| match self.random.below(3) {
            0 => often,
            _ => 0,
        };
        let mut faults = Faults {
            reads: one_in(40),
            writes: one_in(25),
            syncs: one_in(25),
            folder_syncs: one_in(10),
            opens: one_in(15),
            capacity: None,
        };
        if self.options.durability == Durability::Os {
            faults.syncs = 0;
        }
        if self.random.below(3) == 0 {
            let used: usize = (self.disk.files().iter())
                .map(|path| self.disk.contents(path).map_or(0, |bytes| bytes.len()))
                .sum();
            faults.capacity = Some(used as u64 + self.random.below(1500));
        }
        if self.random.below(2) == 0 {
            faults = Faults::default();
        }
        self.disk.set_faults(faults);
    }

    fn stop_and_start(&mut self) {
        self.commit();
        if let Some(hub) = self.hub.take() {
            hub.stop();
        }
        self.die(self.random.clone().below(2) == 0);
        self.open();
    }

    /// Compares the contents with the sent and answered appends.
    fn check(&mut self) {
        self.disk.set_faults(Faults::default());
        for topic_partition in 0..2 {
            self.check_place(topic_partition);
        }
    }

    fn check_place(&mut self, topic_partition: usize) {
        let partition = self.partition(topic_partition);
        let bounds = partition.bounds();
        let bytes_max = 1 + self.random.below(2000) as usize;
        let (headers, found, error) =
            read_from(&*partition, bounds.start, bytes_max, Isolation::Uncommitted);
        assert_eq!(error, None);

        for pair in headers.windows(2) {
            assert_eq!(
                pair[0].next_offset(),
                pair[1].base_offset(),
                "no gap, no overlap"
            );
            assert!(pair[0].time <= pair[1].time, "time never goes back");
        }
        let end = headers
            .last()
            .map_or(bounds.start, |header| header.next_offset());
        assert_eq!(end, bounds.end, "all that is durable can be read");
        assert!(
            bounds.start.0 >= self.starts[topic_partition],
            "trimmed records stay deleted"
        );

        let by_offset: BTreeMap<i64, &ReadRecord> =
            found.iter().map(|seen| (seen.offset, seen)).collect();
        for (offset, before) in self.seen[topic_partition].range(bounds.start.0..) {
            assert_eq!(
                by_offset.get(offset),
                Some(&before),
                "visible records do not change"
            );
        }
        let values: BTreeSet<&str> = found.iter().map(|seen| seen.value.as_str()).collect();
        assert_eq!(values.len(), found.len(), "no record is repeated");
        self.check_sent(topic_partition, bounds.start.0, &by_offset, &found);
        self.check_silence(topic_partition, bounds.start.0, &headers);
        self.check_transactions(&*partition, &headers, bounds.start);
        self.seen[topic_partition] = found.into_iter().map(|seen| (seen.offset, seen)).collect();
    }

    fn check_sent(
        &self,
        topic_partition: usize,
        start: i64,
        by_offset: &BTreeMap<i64, &ReadRecord>,
        found: &[ReadRecord],
    ) {
        let mut known: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (number, sent) in self
            .sent
            .iter()
            .enumerate()
            .filter(|(_, sent)| sent.topic_partition == topic_partition)
        {
            for (index, value) in sent.values.iter().enumerate() {
                known.insert(value, (number, index));
                let Fate::Acknowledged { offset, time } = sent.fate else {
                    continue;
                };
                let offset = offset + index as i64;
                if offset >= start {
                    let seen = by_offset.get(&offset);
                    let seen = seen.map(|seen| (seen.value.as_str(), seen.time, seen.created));
                    let created = sent.created.unwrap_or(time);
                    assert_eq!(
                        seen,
                        Some((value.as_str(), time, created)),
                        "append {number} is missing"
                    );
                }
            }
        }
        for pair in found.windows(2) {
            let (first, second) = (known[pair[0].value.as_str()], known[pair[1].value.as_str()]);
            assert!(
                second.0 != first.0 || second.1 == first.1 + 1,
                "a batch stays together"
            );
        }
        for seen in found {
            let (number, _) = known[seen.value.as_str()];
            assert_ne!(
                self.sent[number].fate,
                Fate::Refused,
                "append {number} was refused"
            );
        }
    }

    /// An acknowledged punctuation is found at its offset for ever.
    fn check_silence(&self, topic_partition: usize, start: i64, headers: &[ReadHeader]) {
        let found: BTreeMap<i64, i64> = headers
            .iter()
            .filter(|header| header.is_control() && !header.is_transactional())
            .map(|header| (header.base_offset().0, header.time.0))
            .collect();
        for (offset, time) in self.silent[topic_partition].range(start..) {
            assert_eq!(found.get(offset), Some(time), "punctuation at {offset}");
        }
    }

    /// Stable offset and aborted transactions, computed from the batches alone.
    fn check_transactions(&self, partition: &dyn Partition, headers: &[ReadHeader], start: Offset) {
        if start > Offset(0) {
            return;
        }
        let mut open = BTreeMap::new();
        for header in headers.iter().filter(|header| header.is_transactional()) {
            match header.is_control() {
                true => drop(open.remove(&header.producer_id())),
                false => drop(
                    open.entry(header.producer_id())
                        .or_insert(header.base_offset()),
                ),
            }
        }
        let bounds = partition.bounds();
        let stable = open.values().min().copied().unwrap_or(bounds.end);
        assert_eq!(
            bounds.stable, stable,
            "readers of committed records stop at an open transaction"
        );
    }
}

fn live(seed: u64) {
    let mut world = World::new(seed);
    world.open();
    for _ in 0..STEPS {
        world.step();
    }
    world.die(true);
    world.open();
    // Without faults every client completes in the end.
    for _ in 0..3 {
        for _ in 0..8 {
            world.append_numbered();
        }
        world.commit();
    }
    world.check();
    for client in &world.clients {
        for (sequence, sent, _) in &client.in_flight {
            assert_ne!(world.sent[*sent].fate, Fate::Refused, "{sequence}");
        }
    }
}

/// On a full disk the first batches of a group may be written completely before the rest fails. They were rejected with
/// the others, and no crash brings them back.
#[test]
fn batches_rejected_by_a_full_disk_never_come_back() {
    for seed in 0..200 {
        let mut world = World::new(seed * 8);
        world.options.reserve_bytes = 0;
        world.open();
        let append = |world: &mut World, text: &str| {
            let pending = world
                .partition(0)
                .append(batch(&[text.into()], None, false));
            let number = world.note(0, vec![text.into()], None);
            world.pending.push((number, pending));
        };
        append(&mut world, "first");
        world.commit();
        let files = world.disk.files();
        let used: usize = (files.iter())
            .map(|path| world.disk.contents(path).unwrap().len())
            .sum();
        world.disk.set_faults(Faults {
            capacity: Some(used as u64 + 120),
            ..Faults::default()
        });
        append(&mut world, "second");
        append(&mut world, "third");
        world.commit();
        let fates: Vec<Fate> = world.sent.iter().map(|sent| sent.fate).collect();
        assert_eq!(fates[1..], [Fate::Refused; 2]);
        world.die(true);
        world.open();
        append(&mut world, "fourth");
        world.commit();
        world.check();
        assert_eq!(world.partition(0).bounds().end, Offset(2), "seed {seed}");
    }
}

fn run(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let lived = std::panic::catch_unwind(|| live(seed));
        if let Err(panic) = lived {
            eprintln!("seed {seed} failed; replay it with HIGHWATER_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn run_part(part: u64, parts: u64) {
    match number("HIGHWATER_SEED") {
        Some(seed) if part == 0 => run(std::iter::once(seed)),
        Some(_) => {}
        None => {
            let seeds = number("HIGHWATER_SEEDS").unwrap_or(SEEDS);
            run((0..seeds).filter(|seed| seed % parts == part));
        }
    }
}

#[test]
fn no_acknowledged_record_is_ever_lost_even_seeds() {
    run_part(0, 2);
}

#[test]
fn no_acknowledged_record_is_ever_lost_odd_seeds() {
    run_part(1, 2);
}
