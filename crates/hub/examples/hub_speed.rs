//! Measures the hub on this disk, and the disk itself.
//!
//! ```sh
//! cargo run --release -p highwater-hub --example hub_speed -- [FOLDER]
//! ```
//!
//! Every figure comes with that of a plain loop over the same bytes in the same run, because the speed of a disk and of
//! a busy machine changes by the minute.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk::Access;
use highwater_env::{Clock, Disk, RealClock, RealDisk};
use highwater_hub::{Hub, Options};
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, NewRecord, TimestampType};
use highwater_log::{HubName, HubSettings, HubSpec, Isolation, Log, Offset, Partition};

type Outcome<T> = Result<T, Box<dyn Error>>;

const RECORD: &[u8] = &[b'x'; 100];

fn main() -> Outcome<()> {
    let folder = match std::env::args().nth(1) {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()?;
    let bench = Bench::open(folder.path())?;
    runtime.block_on(bench.latency())?;
    runtime.block_on(bench.throughput("batches of 100 records", 8, 4000, 100))?;
    runtime.block_on(bench.throughput("batches of 1000 records", 8, 2000, 1000))?;
    runtime.block_on(bench.single_records())?;
    for records in [1, 10, 100, 1000] {
        runtime.block_on(bench.timestamps(records))?;
    }
    runtime.block_on(bench.reading())?;
    bench.hub.stop();
    drop(bench);
    runtime.block_on(starting(folder.path()))
}

/// Many partitions: time and memory of a start.
async fn starting(folder: &Path) -> Outcome<()> {
    let clock = RealClock::new();
    let path = folder.join("many");
    let open = || {
        let before = clock.elapsed();
        let shared = Arc::new(clock.clone());
        let hub = Hub::open(
            Arc::new(RealDisk),
            &path,
            Options::default(),
            shared,
            &|_| {},
        )?;
        Ok::<(Hub, Duration), Box<dyn Error>>((hub, clock.elapsed() - before))
    };
    let (hub, _) = open()?;
    let spec = HubSpec {
        name: HubName::new("many")?,
        partitions: HubSpec::PARTITIONS_MAX,
        settings: HubSettings::default(),
    };
    let before = clock.elapsed();
    hub.create(spec).await?;
    let created = clock.elapsed() - before;
    let batch = batch(1000)?;
    let before = clock.elapsed();
    for _ in 0..8 {
        let mut pending = Vec::new();
        for number in 0..HubSpec::PARTITIONS_MAX {
            let partition = hub.partition("many", number);
            pending.push(
                partition
                    .ok_or("the hub was just made")?
                    .append(batch.clone()),
            );
        }
        for pending in pending {
            pending.await?;
        }
    }
    let appended = clock.elapsed() - before;
    let megabytes = hub.status().totals.bytes / 1_000_000;
    hub.stop();
    drop(hub);
    let (hub, started) = open()?;
    println!(
        "1024 partitions        made in {created:?}, {megabytes} MB in {appended:?}, started in {started:?}"
    );
    hub.stop();
    Ok(())
}

struct Bench<'a> {
    folder: &'a Path,
    clock: RealClock,
    hub: Hub,
}

impl Bench<'_> {
    fn open(folder: &Path) -> Outcome<Bench<'_>> {
        let clock = RealClock::new();
        let hub = Hub::open(
            Arc::new(RealDisk),
            &folder.join("data"),
            Options::default(),
            Arc::new(clock.clone()),
            &|_| {},
        )?;
        Ok(Bench { folder, clock, hub })
    }

    async fn partition(&self, name: &str) -> Outcome<Arc<dyn Partition>> {
        self.partition_with(name, HubSettings::default()).await
    }

    async fn partition_with(
        &self,
        name: &str,
        settings: HubSettings,
    ) -> Outcome<Arc<dyn Partition>> {
        let spec = HubSpec {
            name: HubName::new(name)?,
            partitions: 1,
            settings,
        };
        self.hub.create(spec).await?;
        self.hub
            .partition(name, 0)
            .ok_or_else(|| "the hub was just made".into())
    }

    /// One append at a time, each waiting for the disk, alternating with a plain write and sync.
    async fn latency(&self) -> Outcome<()> {
        let partition = self.partition("latency").await?;
        let raw = RealDisk.open(&self.folder.join("raw"), Access::Create)?;
        let record = NewRecord {
            key: None,
            value: Some(RECORD),
            headers: &[],
        };
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for number in 0..3000u64 {
            let before = self.clock.elapsed();
            partition.append_records(&[record]).await?;
            ours.push(self.clock.elapsed() - before);
            let before = self.clock.elapsed();
            raw.write_all_at(&[&[b'x'; 180]], number * 180)?;
            raw.sync_data()?;
            plain.push(self.clock.elapsed() - before);
        }
        let (ours, plain) = (quantiles(ours), quantiles(plain));
        println!(
            "one record at a time   hub p50 {:?} p99 {:?}   write+fdatasync p50 {:?} p99 {:?}",
            ours.0, ours.1, plain.0, plain.1
        );
        Ok(())
    }

    /// Callers that each wait for their batch before they send the next; then a plain loop that writes as much in as
    /// many groups.
    async fn throughput(
        &self,
        what: &str,
        callers: usize,
        batches: usize,
        records: usize,
    ) -> Outcome<()> {
        let partition = self.partition(&format!("append-{records}")).await?;
        let batch = batch(records)?;
        let before = (self.hub.status().totals, self.clock.elapsed());
        let mut tasks = Vec::new();
        for _ in 0..callers {
            let (partition, batch) = (partition.clone(), batch.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..batches / callers {
                    partition.append(batch.clone()).await?;
                }
                Ok::<(), highwater_log::AppendError>(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        let took = self.clock.elapsed() - before.1;
        let totals = self.hub.status().totals;
        let groups = totals.groups - before.0.groups;
        let bytes = totals.bytes - before.0.bytes;
        let plain = self.plain(bytes / groups, groups)?;
        println!(
            "{what:<22} hub {:>6.1} MB/s, {groups} groups of {} kB   same groups plain {:>6.1} MB/s   ratio {:.2}",
            rate(bytes, took),
            bytes / groups / 1000,
            rate(bytes, plain),
            plain.as_secs_f64() / took.as_secs_f64()
        );
        Ok(())
    }

    fn plain(&self, size: u64, groups: u64) -> Outcome<Duration> {
        let file = RealDisk.open(&self.folder.join("plain"), Access::Create)?;
        file.set_len(0)?;
        let bytes = vec![b'x'; size as usize];
        let before = self.clock.elapsed();
        for number in 0..groups {
            file.write_all_at(&[&bytes], number * size)?;
            file.sync_data()?;
        }
        Ok(self.clock.elapsed() - before)
    }

    /// Many callers with one record each, like HTTP requests.
    async fn single_records(&self) -> Outcome<()> {
        let partition = self.partition("single").await?;
        let (callers, each) = (256, 400);
        let before = (self.hub.status().totals, self.clock.elapsed());
        let cpu = highwater_env::usage().cpu.unwrap_or_default();
        let mut tasks = Vec::new();
        for _ in 0..callers {
            let partition = partition.clone();
            tasks.push(tokio::spawn(async move {
                let record = NewRecord {
                    key: None,
                    value: Some(RECORD),
                    headers: &[],
                };
                for _ in 0..each {
                    let pending = partition.append_records(&[record]);
                    pending.await?;
                }
                Ok::<(), highwater_log::AppendError>(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        let took = self.clock.elapsed() - before.1;
        let cpu = highwater_env::usage().cpu.unwrap_or_default() - cpu;
        let totals = self.hub.status().totals;
        let count = totals.records - before.0.records;
        println!(
            "single records         {:>6.0} thousand/s in {} batches, {:.2} CPU s per million",
            count as f64 / took.as_secs_f64() / 1e3,
            totals.batches - before.0.batches,
            cpu.as_secs_f64() / count as f64 * 1e6,
        );
        Ok(())
    }

    /// Batches of a Kafka producer, 64 in flight, into a hub with the log's timestamps and one with the producers', in
    /// turn.
    async fn timestamps(&self, records: usize) -> Outcome<()> {
        let sent = batch(records)?.to_bytes();
        let mut partitions = Vec::new();
        for kind in [TimestampType::LogAppend, TimestampType::Create] {
            let mut settings = HubSettings::default();
            settings.timestamps.kind = kind;
            let name = format!("{kind:?}-{records}");
            partitions.push(self.partition_with(&name, settings).await?);
        }
        let mut took = [Duration::ZERO; 2];
        let mut cpu = [Duration::ZERO; 2];
        for _ in 0..30 {
            for (number, partition) in partitions.iter().enumerate() {
                let now = || highwater_env::usage().cpu.unwrap_or_default();
                let before = (self.clock.elapsed(), now());
                let mut pending = std::collections::VecDeque::new();
                for _ in 0..200_000 / (records + 20) {
                    let (mut batch, _) = Batch::parse(sent.clone())?;
                    let checked = batch.check_records()?;
                    batch.set_max_timestamp(checked.timestamp_max);
                    pending.push_back(partition.append(batch));
                    if pending.len() >= 64
                        && let Some(first) = pending.pop_front()
                    {
                        first.await?;
                    }
                }
                for appended in pending {
                    appended.await?;
                }
                took[number] += self.clock.elapsed() - before.0;
                cpu[number] += now() - before.1;
            }
        }
        let ratio = |of: [Duration; 2]| of[1].as_secs_f64() / of[0].as_secs_f64();
        println!(
            "producers' timestamps  batches of {records:>4}: time {:.3} and CPU {:.3} of those with the log's",
            ratio(took),
            ratio(cpu),
        );
        Ok(())
    }

    /// A reader at the end, from memory; then everything again from the disk.
    async fn reading(&self) -> Outcome<()> {
        let partition = self.partition("read").await?;
        let batch = batch(1000)?;
        for _ in 0..64 {
            partition.append(batch.clone()).await?;
        }
        let before = (self.hub.status().totals, self.clock.elapsed());
        for _ in 0..200 {
            self.read_all(&*partition, Offset(0)).await?;
        }
        let reads = self.hub.status().totals.reads_tail - before.0.reads_tail;
        let tail = (self.clock.elapsed() - before.1) / (reads as u32).max(1);
        let partition = self
            .hub
            .partition("append-1000", 0)
            .ok_or("the hub is there")?;
        self.read_all(&*partition, Offset(0)).await?;
        let before = self.clock.elapsed();
        let bytes = self.read_all(&*partition, Offset(0)).await?;
        let disk = rate(bytes, self.clock.elapsed() - before);
        let plain = rate(bytes, self.plain_read(bytes)?);
        println!(
            "reading                a megabyte of the tail in {tail:?}   disk {disk:.0} MB/s   plain pread {plain:.0} MB/s   ratio {:.2}",
            disk / plain
        );
        Ok(())
    }

    async fn read_all(&self, partition: &dyn Partition, from: Offset) -> Outcome<u64> {
        let (mut bytes, mut from) = (0, from);
        loop {
            let fetched = partition
                .read(from, 1 << 20, Isolation::Uncommitted)
                .await?;
            let Some(last) = fetched.pieces.last() else {
                return Ok(bytes);
            };
            let last = highwater_log::batch::Batches::new(last).flatten().last();
            from = last.ok_or("a piece holds a batch")?.header.next_offset();
            bytes += fetched
                .pieces
                .iter()
                .map(|piece| piece.len() as u64)
                .sum::<u64>();
        }
    }

    fn plain_read(&self, bytes: u64) -> Outcome<Duration> {
        let file = RealDisk.open(&self.folder.join("plain"), Access::Read)?;
        let before = self.clock.elapsed();
        let mut position = 0;
        while position < bytes {
            let mut buffer = vec![0; 1 << 20];
            let count = file.read_full_at(&mut buffer, position)?;
            if count == 0 {
                break;
            }
            position += count as u64;
        }
        Ok(self.clock.elapsed() - before)
    }
}

fn batch(records: usize) -> Outcome<Batch> {
    let mut builder = BatchBuilder::new();
    for _ in 0..records {
        builder.push(&NewRecord {
            key: None,
            value: Some(RECORD),
            headers: &[],
        });
    }
    let options = BatchOptions {
        timestamp: Some(1_700_000_000_000),
        ..BatchOptions::default()
    };
    Ok(builder.build(&options)?)
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1e6
}

fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}
