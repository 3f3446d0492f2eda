//! The partitions that a job reads, in order: input by input, hub by hub.

use std::fmt::Write;
use std::sync::Arc;

use highwater_log::{EnqueueTime, HubId, HubName, Log, Offset, Partition, Place};
use highwater_query::lookback;
use highwater_time::{Duration, Instant};

use super::StartError;
use crate::load::Job;

pub(super) struct Places {
    pub all: Vec<Source>,
    /// Per input of the plan, how many of them.
    pub per_input: Vec<usize>,
}

pub(super) struct Source {
    pub input: usize,
    /// Its place among the partitions of its input.
    pub number: usize,
    pub hub: HubId,
    pub place: Place,
    pub partition: Arc<dyn Partition>,
}

impl Places {
    pub fn find(job: &Job, log: &dyn Log) -> Result<Places, StartError> {
        let mut places = Places {
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
            let before = places.all.len();
            for name in hubs {
                let missing = || StartError::NoHub {
                    input: planned.name.clone(),
                    hub: name.clone(),
                };
                let hub = log.hub(name).ok_or_else(missing)?;
                for number in 0..hub.partitions {
                    places.all.push(Source {
                        input,
                        number: places.all.len() - before,
                        hub: hub.id,
                        place: hub.place(number),
                        partition: log.partition(name, number).ok_or_else(missing)?,
                    });
                }
            }
            let count = places.all.len() - before;
            job.physical.check_partitions(input, count > 1)?;
            places.per_input.push(count);
        }
        Ok(places)
    }

    /// A hub that was deleted and made again is another one.
    pub fn in_words(&self) -> String {
        let mut words = String::new();
        for source in &self.all {
            // Writing to a string does not fail.
            let _ = writeln!(words, "{} {} {}", source.input, source.place, source.hub);
        }
        words
    }

    /// The hubs, each with how many of its partitions are read.
    pub fn hubs(&self) -> Vec<(HubName, u32)> {
        let mut hubs: Vec<(HubName, u32)> = Vec::new();
        for source in &self.all {
            let known = hubs.iter_mut().find(|(name, _)| *name == source.place.hub);
            match known {
                Some((_, count)) => *count = (*count).max(source.place.partition + 1),
                None => hubs.push((source.place.hub.clone(), source.place.partition + 1)),
            }
        }
        hubs
    }

    pub fn starts(&self) -> Vec<Offset> {
        let all = self.all.iter();
        all.map(|source| source.partition.bounds().start).collect()
    }

    /// Where to read from, so that rows from `since` on are complete.
    ///
    /// A row needs events as far back as the query looks, and an event of that time may have arrived `early_arrival`
    /// before it. What arrived still earlier cannot have moved the watermark past that time either, so verdicts about the
    /// events that count are the same as if all had been read.
    pub async fn positions_for(
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
            let found = source.partition.find(EnqueueTime(arrival.to_unix_millis()));
            let found = found.await?;
            positions.push(found.map_or(end, |(offset, _)| offset));
        }
        Ok(positions)
    }
}
