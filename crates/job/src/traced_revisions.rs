//! The revisions of a run with early results, and the first one that counts a traced event.

use std::collections::{BTreeSet, HashMap};

use highwater_time::Instant;

use crate::early::{CountedWindow, RevisionTimes, SubstreamReleases, WindowBounds};
use crate::event_trace::{EventTrace, TracedEvent, origin_file};
use crate::load::Job;
use crate::run::Outcome;

/// The windows that contain an event, by its origin.
pub(crate) type WindowsOfEvents = HashMap<u64, BTreeSet<WindowBounds>>;

pub(crate) struct TracedRevisions {
    revisions: RevisionTimes,
    /// The time after which revisions count an event, by its origin.
    counted_from: HashMap<u64, Instant>,
    /// The partitions of inputs with substreams.
    releases: HashMap<(usize, usize), SubstreamReleases>,
    /// The same for the first event of a window of a substream.
    windows_from: HashMap<(SubstreamOf, WindowBounds), Instant>,
}

/// Input, partition and key.
type SubstreamOf = (usize, usize, Option<String>);

impl TracedRevisions {
    /// `None` without early results.
    pub(crate) fn new(
        job: &Job,
        outcome: &Outcome,
        windows: &WindowsOfEvents,
    ) -> Option<TracedRevisions> {
        let (early, trace) = (job.early.as_ref()?, outcome.trace.as_ref()?);
        let input = |event: &TracedEvent| outcome.files[origin_file(event.origin)].input;
        let releases = releases(job, trace, input);
        let mut counted_from = HashMap::new();
        let mut windows_from = HashMap::new();
        let mut numbers: HashMap<(usize, usize), usize> = HashMap::new();
        for event in &trace.events {
            let partition = (input(event), event.partition);
            let number = numbers.entry(partition).or_default();
            *number += 1;
            let Some(timestamp) = event.judged.timestamp else {
                continue;
            };
            let Some(releases) = releases.get(&partition) else {
                counted_from.insert(event.origin, timestamp);
                continue;
            };
            let from = releases.counted_from(*number - 1, event, timestamp);
            counted_from.insert(event.origin, from);
            let substream = (partition.0, partition.1, event.key.clone());
            for bounds in windows.get(&event.origin).into_iter().flatten() {
                let first = windows_from
                    .entry((substream.clone(), *bounds))
                    .or_insert(from);
                *first = from.min(*first);
            }
        }
        let kept = trace.events.iter();
        let kept = kept.filter_map(|event| Some((input(event), *counted_from.get(&event.origin)?)));
        Some(TracedRevisions {
            revisions: RevisionTimes::new(early, &job.plan, kept),
            counted_from,
            releases,
            windows_from,
        })
    }

    /// The times of all revisions.
    pub(crate) fn times(&self) -> BTreeSet<Instant> {
        self.revisions.times()
    }

    /// Per output, the first revision that counts an event of an input.
    pub(crate) fn first(
        &self,
        input: usize,
        event: &TracedEvent,
        windows: &BTreeSet<WindowBounds>,
    ) -> Vec<(&str, Instant)> {
        let Some(counted_from) = self.counted_from.get(&event.origin) else {
            return Vec::new();
        };
        let windows = windows
            .iter()
            .map(|bounds| self.window(input, event, *bounds));
        let windows: Vec<CountedWindow> = windows.collect();
        self.revisions.first(input, *counted_from, &windows)
    }

    fn window(&self, input: usize, event: &TracedEvent, bounds: WindowBounds) -> CountedWindow {
        let (start, end) = bounds;
        let Some(releases) = self.releases.get(&(input, event.partition)) else {
            return CountedWindow {
                bounds,
                counted_from: start,
                complete_from: end,
            };
        };
        let substream = (input, event.partition, event.key.clone());
        let first = self.windows_from.get(&(substream, bounds));
        CountedWindow {
            bounds,
            counted_from: first.copied().unwrap_or(Instant::AFTER_ALL),
            complete_from: releases.complete_from(&event.key, end),
        }
    }
}

fn releases(
    job: &Job,
    trace: &EventTrace,
    input: impl Fn(&TracedEvent) -> usize,
) -> HashMap<(usize, usize), SubstreamReleases> {
    let mut releases: HashMap<(usize, usize), SubstreamReleases> = HashMap::new();
    for event in &trace.events {
        let input = input(event);
        if !job.plan.inputs[input].substream.is_empty() {
            let partition = releases.entry((input, event.partition)).or_default();
            partition.add(event, &job.file.time);
        }
    }
    releases
}
