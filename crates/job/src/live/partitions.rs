//! The partitions that a job reads, in order: input by input, hub by hub.

use std::sync::Arc;

use highwater_log::{EnqueueTime, HubId, HubName, Offset, Partition, TopicPartition};
use highwater_query::lookback;
use highwater_time::{Duration, Instant};

use super::StartError;
use super::input_logs::InputLogs;
use crate::load::Job;

#[derive(Clone)]
pub(super) struct InputPartitions {
    /// In the order in which they were added.
    pub all: Vec<InputPartition>,
    /// The number of partitions per input of the plan.
    pub per_input: Vec<usize>,
}

#[derive(Clone)]
pub(super) struct InputPartition {
    pub input: usize,
    /// Its number among the partitions of its input.
    pub number: usize,
    pub hub: HubId,
    pub place: TopicPartition,
    pub partition: Arc<dyn Partition>,
}

impl InputPartitions {
    /// The logs of all inputs are connected.
    pub(super) async fn find(job: &Job, logs: &InputLogs) -> Result<InputPartitions, StartError> {
        let mut partitions = InputPartitions {
            all: Vec::new(),
            per_input: Vec::new(),
        };
        for (input, planned) in job.plan.inputs.iter().enumerate() {
            let declared = job.file.input(&planned.name);
            let hubs = declared
                .map(|declared| &declared.hubs[..])
                .unwrap_or_default();
            if hubs.is_empty() {
                return Err(StartError::NotAHub(planned.name.clone()));
            }
            let before = partitions.all.len();
            for name in hubs {
                let missing = || StartError::NoHub {
                    input: planned.name.clone(),
                    hub: name.clone(),
                };
                let log = logs.log(job, input).ok_or_else(missing)?;
                let hub = log.hub(name).ok_or_else(missing)?;
                for number in 0..hub.partitions {
                    let partition = log.partition(name, number).ok_or_else(missing)?;
                    // Those of a cluster are unknown before.
                    partition.fetch_bounds().await?;
                    partitions.all.push(InputPartition {
                        input,
                        number: partitions.all.len() - before,
                        hub: hub.id,
                        place: hub.topic_partition(number),
                        partition,
                    });
                }
            }
            let count = partitions.all.len() - before;
            job.physical.check_partitions(input, count > 1)?;
            partitions.per_input.push(count);
        }
        Ok(partitions)
    }

    /// One line per partition, with the id of its hub: a hub that was deleted and recreated is another one.
    pub(super) fn description(&self) -> String {
        self.all.iter().map(InputPartition::description).collect()
    }

    /// The partitions of a checkpoint in its order, and the new ones of grown hubs. `None` if anything else changed.
    pub(super) fn known_and_new(
        &self,
        description: &str,
    ) -> Option<(InputPartitions, Vec<InputPartition>)> {
        let mut partitions = InputPartitions {
            all: Vec::new(),
            per_input: vec![0; self.per_input.len()],
        };
        for line in description.lines() {
            let mut found = self.all.iter();
            let source = found.find(|source| source.description().trim_end() == line)?;
            partitions.add(source.clone());
        }
        let is_known = |source: &InputPartition| {
            let mut known = partitions.all.iter();
            known.any(|known| (known.input, &known.place) == (source.input, &source.place))
        };
        let grew = |source: &InputPartition| {
            let mut known = partitions.all.iter();
            known.any(|known| (known.input, known.hub) == (source.input, source.hub))
        };
        let new: Vec<InputPartition> = self.all.iter().filter(|s| !is_known(s)).cloned().collect();
        new.iter().all(grew).then_some((partitions, new))
    }

    /// Appends a partition to those of its input.
    pub(super) fn add(&mut self, mut source: InputPartition) -> &InputPartition {
        source.number = self.per_input[source.input];
        self.per_input[source.input] += 1;
        let number = self.all.len();
        self.all.push(source);
        &self.all[number]
    }

    /// The hubs, each with an input that reads it and the number of its partitions that are read.
    pub(super) fn hubs(&self) -> Vec<(HubName, usize, u32)> {
        let mut hubs: Vec<(HubName, usize, u32)> = Vec::new();
        for source in &self.all {
            let (hub, count) = (&source.place.hub, source.place.partition + 1);
            let mut known = hubs.iter_mut();
            match known.find(|(name, input, _)| name == hub && *input == source.input) {
                Some((_, _, read)) => *read = (*read).max(count),
                None => hubs.push((hub.clone(), source.input, count)),
            }
        }
        hubs
    }

    pub(super) fn starts(&self) -> Vec<Offset> {
        let all = self.all.iter();
        all.map(|source| source.partition.bounds().start).collect()
    }

    /// The offsets from which rows since `since` are complete.
    ///
    /// A row needs events as far back as the query looks, and an event of that time may have arrived up to
    /// `early_arrival` earlier. Events that arrived before cannot have moved the watermark past that time, so the
    /// verdicts about the needed events are the same as with all events.
    pub(super) async fn positions_for(
        &self,
        since: Instant,
        job: &Job,
    ) -> Result<Vec<Offset>, StartError> {
        let Some(early) = job.file.time.early_arrival else {
            return Ok(self.starts());
        };
        let arrival = since - lookback(&job.plan) - early - Duration::from_millis(1);
        let mut positions = Vec::with_capacity(self.all.len());
        for source in &self.all {
            let end = source.partition.bounds().end;
            let found = source
                .partition
                .offset_for_time(EnqueueTime(arrival.to_unix_millis()));
            let found = found.await?;
            positions.push(found.map_or(end, |(offset, _)| offset));
        }
        Ok(positions)
    }
}

impl InputPartition {
    fn description(&self) -> String {
        format!("{} {} {}\n", self.input, self.place, self.hub)
    }
}
