//! The hub output over the embedded hub, with its own transactions, on a disk that fails, fills up and loses power.

use std::path::Path;
use std::sync::Arc;

use highwater_connect::{Endpoint, EndpointError, HubOutput, OutputContext, OutputSettings, Rows};
use highwater_engine::{Chunk, Column};
use highwater_env::disk::Faults;
use highwater_env::random::Random;
use highwater_env::{Clock, Disk, SimClock, SimDisk};
use highwater_hub::{Hub, Options, groups, transactions};
use highwater_log::batch::{Batches, Decompressor};
use highwater_log::{
    HubName, HubSettings, HubSpec, Isolation, Log, TransactionCoordinator, partition_for_key,
};
use highwater_query::plan::Name;
use tokio::runtime::Runtime;

const PARTITIONS: u32 = 3;
const ROWS: u64 = 300;

struct Node {
    runtime: Runtime,
    hub: Arc<Hub>,
    transactions: Arc<dyn TransactionCoordinator>,
}

impl Node {
    fn start(disk: &SimDisk) -> Node {
        let runtime = Runtime::new().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let clock: Arc<dyn Clock> = Arc::new(SimClock::at_unix_nanos(0));
        let options = Options {
            committers: 1,
            readers: 1,
            reserve_bytes: 4096,
            ..Options::default()
        };
        let hub = Hub::open(disk, Path::new("data"), options, clock.clone(), &|_| {}).unwrap();
        let hub = Arc::new(hub);
        let log = || Arc::clone(&hub) as Arc<dyn Log>;
        let (random, options) = (Random::seeded(1), groups::Options::default());
        let groups = groups::Service::new(log(), clock.clone(), random, options);
        let (handle, options) = (groups.handle(), transactions::Options::default());
        let service = transactions::Service::new(log(), clock, handle, options);
        let transactions = Arc::new(service.handle());
        // Their hubs may fail with the disk; the output then gets the error.
        runtime.spawn(async { drop(groups.run(std::future::pending()).await) });
        runtime.spawn(async { drop(service.run(std::future::pending()).await) });
        Node {
            runtime,
            hub,
            transactions,
        }
    }

    fn endpoint(&self) -> Box<dyn Endpoint> {
        let output = HubOutput {
            hub: "out".into(),
            key: Some("Device".into()),
        };
        let mut context = OutputContext::new("job", "out", Arc::new(SimDisk::new(0)));
        context.hubs = Some((
            Arc::clone(&self.hub) as Arc<dyn Log>,
            Arc::clone(&self.transactions),
        ));
        let names = ["Device", "Number"].map(|name| Name::Field(name.into()));
        output.open(names.into(), &context).unwrap()
    }

    /// The values of each partition.
    fn contents(&self) -> Vec<Vec<String>> {
        let read = |partition: u32| {
            let partition = self.hub.partition("out", partition).unwrap();
            let start = partition.bounds().start;
            let fetched = partition.read(start, usize::MAX, Isolation::Uncommitted);
            let fetched = self.runtime.block_on(fetched).unwrap();
            let mut unpacker = Decompressor::new(1 << 20);
            let mut values = Vec::new();
            for piece in &fetched.pieces {
                for batch in Batches::new(piece).map(Result::unwrap) {
                    if !batch.header.is_control() {
                        let records = batch.records(&mut unpacker).unwrap();
                        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                        values.extend(records.map(|record| text(record.unwrap().value.unwrap())));
                    }
                }
            }
            values
        };
        (0..PARTITIONS).map(read).collect()
    }
}

fn device(number: u64) -> i64 {
    (number * number % 7) as i64
}

fn rows(first: u64, end: u64) -> Rows {
    let devices = (first..end).map(device).collect();
    let numbers = (first..end).map(|number| number as i64).collect();
    let columns = vec![Column::from_ints(devices), Column::from_ints(numbers)];
    Rows {
        first,
        chunk: Chunk::new(vec![0; (end - first) as usize].into(), columns),
    }
}

fn expected() -> Vec<Vec<String>> {
    let mut partitions = vec![Vec::new(); PARTITIONS as usize];
    for number in 0..ROWS {
        let device = device(number);
        let partition = partition_for_key(device.to_string().as_bytes(), PARTITIONS);
        let line = format!("{{\"Device\":{device},\"Number\":{number}}}");
        partitions[partition as usize].push(line);
    }
    partitions
}

/// A job that crashes in every way.
struct World {
    disk: SimDisk,
    random: Random,
    node: Option<Node>,
    endpoint: Option<Box<dyn Endpoint>>,
    mark: Option<(Vec<u8>, u64)>,
    at: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk::new(seed);
        let node = Node::start(&disk);
        let made = node.hub.create(HubSpec {
            name: HubName::new("out").unwrap(),
            partitions: PARTITIONS,
            settings: HubSettings::default(),
        });
        node.runtime.block_on(made).unwrap();
        World {
            disk,
            random: Random::seeded(seed),
            node: Some(node),
            endpoint: None,
            mark: None,
            at: 0,
        }
    }

    /// The machine loses power, or only the process is killed.
    fn crash(&mut self, power: bool) {
        self.disk.set_faults(Faults::default());
        match power {
            true => self.disk.crash(),
            false => self.disk.restart(),
        }
        self.endpoint = None;
        if let Some(node) = self.node.take() {
            node.hub.stop();
            node.runtime.shutdown_background();
        }
        self.node = Some(Node::start(&self.disk));
    }

    /// Opens an endpoint that resumes from the last checkpoint.
    fn open(&mut self) -> bool {
        if self.endpoint.is_some() {
            return true;
        }
        let Some(node) = &self.node else { return false };
        let mut endpoint = node.endpoint();
        let mark = self.mark.clone();
        let opened = node.runtime.block_on(async {
            let bytes = mark.as_ref().map(|(bytes, _)| &bytes[..]);
            // The coordinator reads its hub first.
            for _ in 0..1_000_000 {
                match endpoint.resume(bytes).await {
                    Err(EndpointError::Unavailable { reason, .. }) if reason.contains("loaded") => {
                        tokio::task::yield_now().await;
                    }
                    opened => return opened,
                }
            }
            panic!("they never read it");
        });
        match opened {
            Ok(()) => {
                self.at = mark.map_or(0, |(_, at)| at);
                self.endpoint = Some(endpoint);
                if self.mark.is_none() {
                    self.checkpoint();
                }
                true
            }
            Err(error) => self.failed(error),
        }
    }

    fn write(&mut self, count: u64) {
        let end = (self.at + count).min(ROWS);
        let given = rows(self.at, end);
        if let (Some(endpoint), Some(node)) = (&mut self.endpoint, &self.node) {
            match node.runtime.block_on(endpoint.write(&given)) {
                Ok(()) => self.at = end,
                Err(error) => drop(self.failed(error)),
            }
        }
    }

    fn checkpoint(&mut self) -> bool {
        let (Some(endpoint), Some(node)) = (&mut self.endpoint, &self.node) else {
            return false;
        };
        match node.runtime.block_on(endpoint.checkpoint()) {
            Ok(mark) => {
                self.mark = Some((mark, self.at));
                true
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: EndpointError) -> bool {
        let EndpointError::Unavailable { reason, .. } = &error else {
            panic!("{error:?}");
        };
        // A full disk gets space again; a failed one needs a restart.
        if !reason.contains("no room") {
            self.crash(true);
        }
        false
    }

    fn step(&mut self) {
        if !self.open() {
            return;
        }
        match self.random.below(12) {
            0..6 => {
                let count = 1 + self.random.below(12);
                self.write(count);
            }
            6 => drop(self.checkpoint()),
            // The job restarts while its batches may still be in flight.
            7 => self.endpoint = None,
            8 => self.crash(false),
            9 => self.crash(true),
            10 => self.disk.set_faults(Faults {
                capacity: Some(0),
                ..Faults::default()
            }),
            _ => {
                let failing = self.random.below(3) == 0;
                self.disk.set_faults(Faults {
                    syncs: if failing { 10 } else { 0 },
                    writes: if failing { 10 } else { 0 },
                    ..Faults::default()
                });
            }
        }
    }
}

// proves S4
#[test]
fn rows_are_on_the_hub_once_and_in_order_whatever_happens() {
    let seeds = std::env::var("HIGHWATER_SEEDS").ok();
    let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(25);
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..60 {
            world.step();
        }
        while !(world.open() && world.at == ROWS && world.checkpoint()) {
            world.disk.set_faults(Faults::default());
            world.write(50);
        }
        let node = world.node.as_ref().unwrap();
        assert_eq!(node.contents(), expected(), "seed {seed}");
        node.hub.stop();
    }
}
