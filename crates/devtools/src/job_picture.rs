//! The picture of a finished run.

use std::collections::BTreeMap;

use highwater_job::{Job, Outcome, TracedEvent, origin_file, origin_line, why};
use highwater_time::{Instant, TimePolicy, Violation};

use crate::picture::{Picture, Point, WatermarkLine, WatermarkStep};

/// The picture of one input of the job, by default the first with events. `None` without events.
pub fn job_picture(job: &Job, outcome: &Outcome, input: Option<&str>) -> Option<Picture> {
    let trace = outcome.trace.as_ref()?;
    let input_of = |event: &TracedEvent| outcome.files[origin_file(event.origin)].input;
    let chosen = match input {
        Some(name) => job
            .plan
            .inputs
            .iter()
            .position(|i| i.name.eq_ignore_ascii_case(name))?,
        None => trace.events.first().map(input_of)?,
    };
    let mut events: Vec<&TracedEvent> = trace
        .events
        .iter()
        .filter(|event| input_of(event) == chosen)
        .collect();
    let arrivals_known = events.iter().all(|event| event.judged.arrival.is_some());
    let several = events.iter().any(|event| event.partition > 0);
    let mut latest = Instant::BEFORE_ALL;
    if arrivals_known {
        events.sort_by_key(|event| (event.judged.arrival, event.origin));
    }
    let floors = floors(&events, job.file.time);
    let mut points = Vec::with_capacity(events.len());
    let mut lines: BTreeMap<Option<String>, Vec<WatermarkStep>> = BTreeMap::new();
    for event in events {
        latest = latest.max(event.judged.arrival.unwrap_or(event.judged.event_time));
        let lane = match (&event.key, several) {
            (Some(key), _) => Some(key.clone()),
            (None, true) => Some(format!("partition {}", event.partition)),
            (None, false) => None,
        };
        let mut point = Point::new(&event.judged, latest);
        point.label = Some(origin_line(event.origin).to_string());
        point.lane = lane.clone();
        points.push(point);
        if event.judged.watermark_after > Instant::BEFORE_ALL {
            lines.entry(lane).or_default().push(WatermarkStep {
                arrival: latest,
                watermark: event.judged.watermark_after,
            });
        }
    }
    Some(Picture {
        title: job.file.name.clone(),
        subtitle: None,
        points,
        watermarks: lines
            .into_iter()
            .map(|(lane, steps)| WatermarkLine { lane, steps })
            .collect(),
        revisions: why::revision_times(job, outcome),
        floors,
        policy: job.file.time,
        arrivals_known,
    })
}

/// The floor of each partition: the latest arrival minus the late tolerance. Empty without substreams.
fn floors(events: &[&TracedEvent], policy: TimePolicy) -> Vec<WatermarkLine> {
    let mut lines: BTreeMap<usize, Vec<WatermarkStep>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.key.is_some()) {
        let is_early = event.judged.verdict.dropped_by() == Some(Violation::Early);
        if let Some(arrival) = event.judged.arrival.filter(|_| !is_early) {
            lines
                .entry(event.partition)
                .or_default()
                .push(WatermarkStep {
                    arrival,
                    watermark: arrival - policy.late_arrival,
                });
        }
    }
    let lines = lines.into_values();
    lines
        .map(|steps| WatermarkLine { lane: None, steps })
        .collect()
}
