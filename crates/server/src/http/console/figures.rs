//! Figures of the node over the last minute, sampled once a second, so that a page shows rates as soon as it opens.
//!
//! Dead letters and parked instances are counted less often: counting them reads a hub or asks a scheduler. Rates that
//! only one page shows, such as those of the steps of a job, are measured between two renderings of the page instead.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_access::Resource;
use highwater_console::Attention;
use highwater_console::circuit::FailureHistory;
use highwater_flow::DeadLetterPartition;
use highwater_log::Offset;
use highwater_workflow::ListFilter;

use super::Context;
use crate::http::app::{App, Backend};
use crate::http::processors::is_open;
use crate::processors::Entry;

const INTERVAL: Duration = Duration::from_secs(1);

/// Points of a series.
const POINTS_MAX: usize = 60;

/// Ticks between two counts of dead letters and parked instances.
const ATTENTION_TICKS: u32 = 5;

/// Ticks of one interval of [`FailureSeries`], and the intervals it has: fifteen minutes.
const FAILURE_TICKS: u32 = 10;
const FAILURE_INTERVALS: usize = 90;

/// Parked instances of a workflow that are counted; more are shown as this many.
const PARKED_MAX: usize = 10_000;

const COUNT_SHARE: u32 = 100;

/// Meters that are kept; with more, the one that was read longest ago is forgotten.
const METERS_MAX: usize = 256;

/// The shortest time that a meter measures a rate over: two people may look at one page.
const METER_INTERVAL_MIN: Duration = Duration::from_millis(800);

/// A counter as rates a second, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    last: Option<u64>,
    points: VecDeque<f64>,
}

impl Series {
    fn add(&mut self, counter: u64, seconds: f64) {
        // A counter that went back belongs to a new run.
        if let Some(last) = self.last {
            if self.points.len() == POINTS_MAX {
                self.points.pop_front();
            }
            let rate = counter.saturating_sub(last) as f64 / seconds;
            self.points.push_back(rate);
        }
        self.last = Some(counter);
    }

    /// The mean of the last seconds: a single one jumps.
    pub(super) fn rate(&self) -> f64 {
        let recent = self.points.iter().rev().take(3);
        let count = recent.len().max(1);
        recent.sum::<f64>() / count as f64
    }

    pub(super) fn points(&self) -> Vec<f64> {
        self.points.iter().copied().collect()
    }
}

/// The failed calls of a processor, counted in intervals of [`FAILURE_TICKS`].
#[derive(Clone, Debug, Default)]
struct FailureSeries {
    last: Option<u64>,
    ticks: u32,
    counts: VecDeque<u32>,
}

impl FailureSeries {
    fn add(&mut self, failures: u64) {
        if self.ticks.is_multiple_of(FAILURE_TICKS) {
            self.counts.push_back(0);
            if self.counts.len() > FAILURE_INTERVALS {
                self.counts.pop_front();
            }
        }
        self.ticks = self.ticks.wrapping_add(1);
        let new = self.last.map_or(0, |last| failures.saturating_sub(last));
        if let Some(count) = self.counts.back_mut() {
            *count = count.saturating_add(u32::try_from(new).unwrap_or(u32::MAX));
        }
        self.last = Some(failures);
    }

    /// With zeros before the first sample, so that the intervals do not jump.
    fn history(&self) -> FailureHistory {
        let before = std::iter::repeat_n(0, FAILURE_INTERVALS - self.counts.len());
        FailureHistory {
            counts: before.chain(self.counts.iter().copied()).collect(),
            interval_seconds: FAILURE_TICKS,
        }
    }
}

/// The series of one processor.
pub(super) struct ProcessorSeries {
    /// Events handled.
    pub(super) handled: Series,
    /// Failed calls.
    pub(super) failures: Series,
    pub(super) failure_history: FailureHistory,
}

/// Counters of one page as they were when it was rendered last.
#[derive(Default)]
struct Meter {
    read: Duration,
    counters: Vec<u64>,
    rates: Option<Vec<f64>>,
}

impl Meter {
    fn update(&mut self, now: Duration, counters: Vec<u64>) {
        let passed = now.saturating_sub(self.read);
        let same = self.counters.len() == counters.len();
        if same && passed < METER_INTERVAL_MIN {
            return;
        }
        let seconds = passed.as_secs_f64();
        let pairs = counters.iter().zip(&self.counters);
        let rates = pairs.map(|(now, before)| now.saturating_sub(*before) as f64 / seconds);
        self.rates = same.then(|| rates.collect());
        (self.read, self.counters) = (now, counters);
    }
}

/// The series of one queue.
pub(super) struct QueueSeries {
    pub(super) sent: Series,
    pub(super) completed: Series,
}

#[derive(Default)]
pub(in crate::http) struct Figures {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sampled: Option<Duration>,
    series: BTreeMap<SeriesKey, Series>,
    failure_series: BTreeMap<String, FailureSeries>,
    meters: BTreeMap<String, Meter>,
    dead_letters: BTreeMap<String, DeadLetterCount>,
    /// Per workflow.
    parked: BTreeMap<String, u64>,
}

/// A counter, and the hub, queue or processor that has it.
type SeriesKey = (Counter, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counter {
    HubAppended,
    QueueSent,
    QueueCompleted,
    ProcessorHandled,
    /// Failed calls.
    ProcessorFailures,
}

/// The dead letters of a processor when its dead-letter hub ended at `end`.
#[derive(Clone, Copy)]
struct DeadLetterCount {
    end: Offset,
    count: u64,
    /// When they may be counted again.
    next: Duration,
}

/// Samples the figures until the node stops.
pub(in crate::http) async fn sample(app: Arc<App>) {
    if !app.options.console {
        return std::future::pending().await;
    }
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for tick in 0_u32.. {
        ticks.tick().await;
        let Ok(backend) = app.backend() else {
            continue;
        };
        app.console.figures.sample(backend, app.clock.elapsed());
        if tick % ATTENTION_TICKS == 0 {
            app.console.figures.count_attention(&app, backend).await;
        }
    }
}

impl Figures {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self, backend: &Backend, now: Duration) {
        let mut samples: Vec<(SeriesKey, u64)> = Vec::new();
        let mut add =
            |counter, name: &str, value| samples.push(((counter, name.to_owned()), value));
        for hub in backend
            .log
            .hubs()
            .iter()
            .filter(|hub| !hub.name.is_internal())
        {
            let name = hub.name.as_str();
            let partitions = (0..hub.partitions).filter_map(|n| backend.log.partition(name, n));
            let ends = partitions.map(|partition| partition.bounds().end.0.max(0) as u64);
            add(Counter::HubAppended, name, ends.sum());
        }
        for queue in backend.queues.iter().flat_map(|queues| queues.list()) {
            let (_, totals) = queue.counters();
            add(Counter::QueueSent, queue.name(), totals.sent);
            add(Counter::QueueCompleted, queue.name(), totals.completed);
        }
        let mut inner = self.lock();
        for Entry { spec, activity, .. } in backend.processors.iter().flat_map(|all| all.entries())
        {
            let failures = activity.failures.load(Ordering::Relaxed);
            let handled = activity.handled.load(Ordering::Relaxed);
            add(Counter::ProcessorHandled, &spec.name, handled);
            add(Counter::ProcessorFailures, &spec.name, failures);
            let series = inner.failure_series.entry(spec.name.clone());
            series.or_default().add(failures);
        }
        let seconds = match inner.sampled.replace(now) {
            Some(before) => now.saturating_sub(before).as_secs_f64().max(0.001),
            None => 1.0,
        };
        add_all(&mut inner.series, samples, seconds);
    }

    async fn count_attention(&self, app: &App, backend: &Backend) {
        for entry in backend.processors.iter().flat_map(|all| all.entries()) {
            self.count_dead_letters(app, entry).await;
        }
        for workflow in backend.workflows.list() {
            let parked = match workflow.failed() {
                0 => 0,
                _ => {
                    let filter = ListFilter {
                        states: vec!["parked".to_owned()],
                        limit: PARKED_MAX,
                        ..ListFilter::default()
                    };
                    let Ok(parked) = workflow.list(&filter).await else {
                        continue;
                    };
                    parked.instances.len() as u64
                }
            };
            let name = workflow.name().to_owned();
            self.lock().parked.insert(name, parked);
        }
    }

    /// Counts them only if the hub has grown: a count reads all of it. Counting takes at most 1 / `COUNT_SHARE` of the
    /// time.
    async fn count_dead_letters(&self, app: &App, entry: &Entry) {
        let DeadLetterPartition(partition) = &entry.letters;
        let (end, started) = (partition.bounds().end, app.clock.elapsed());
        let name = &entry.spec.name;
        let known = self.lock().dead_letters.get(name).copied();
        if known.is_some_and(|known| known.end == end || started < known.next) {
            return;
        }
        if let Ok(count) = entry.letters.count().await {
            let now = app.clock.elapsed();
            let counted = DeadLetterCount {
                end,
                count: count as u64,
                next: now + (now - started) * COUNT_SHARE,
            };
            self.lock().dead_letters.insert(name.clone(), counted);
        }
    }

    /// The open circuits, dead letters and parked instances that the caller may see.
    pub(super) fn attention(&self, context: &Context<'_>, backend: &Backend) -> Attention {
        let inner = self.lock();
        let letters = inner.dead_letters.iter();
        let letters = letters.filter(|(name, _)| context.may_see(Resource::Deployment(name)));
        let parked = inner.parked.iter();
        let parked = parked.filter(|(name, _)| context.may_see(Resource::Workflow(name)));
        let processors = super::processors::visible(context, backend).into_iter();
        let open = processors.filter(|entry| is_open(entry));
        Attention {
            dead_letters: letters.map(|(_, counted)| counted.count).sum(),
            circuits_open: open.count() as u64,
            parked: parked.map(|(_, count)| count).sum(),
        }
    }

    pub(super) fn dead_letters(&self, processor: &str) -> u64 {
        let inner = self.lock();
        let counted = inner.dead_letters.get(processor);
        counted.map_or(0, |counted| counted.count)
    }

    pub(super) fn parked(&self, workflow: &str) -> u64 {
        self.lock().parked.get(workflow).copied().unwrap_or(0)
    }

    pub(super) fn hub(&self, name: &str) -> Series {
        self.lock().series(Counter::HubAppended, name)
    }

    pub(super) fn queue(&self, name: &str) -> QueueSeries {
        let inner = self.lock();
        QueueSeries {
            sent: inner.series(Counter::QueueSent, name),
            completed: inner.series(Counter::QueueCompleted, name),
        }
    }

    pub(super) fn processor(&self, name: &str) -> ProcessorSeries {
        let inner = self.lock();
        ProcessorSeries {
            handled: inner.series(Counter::ProcessorHandled, name),
            failures: inner.series(Counter::ProcessorFailures, name),
            failure_history: match inner.failure_series.get(name) {
                Some(series) => series.history(),
                None => FailureSeries::default().history(),
            },
        }
    }

    /// The rates of counters since the page was rendered last; `None` the first time. `meter` names the counters.
    pub(super) fn rates(
        &self,
        meter: String,
        now: Duration,
        counters: Vec<u64>,
    ) -> Option<Vec<f64>> {
        let mut inner = self.lock();
        let meters = &mut inner.meters;
        if meters.len() >= METERS_MAX && !meters.contains_key(&meter) {
            let oldest = meters.iter().min_by_key(|(_, meter)| meter.read);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                meters.remove(&oldest);
            }
        }
        let meter = meters.entry(meter).or_default();
        meter.update(now, counters);
        meter.rates.clone()
    }
}

impl Inner {
    fn series(&self, counter: Counter, name: &str) -> Series {
        let series = self.series.get(&(counter, name.to_owned()));
        series.cloned().unwrap_or_default()
    }
}

/// Adds a sample to each series, and forgets the series of removed resources.
fn add_all<K: Ord>(series: &mut BTreeMap<K, Series>, samples: Vec<(K, u64)>, seconds: f64) {
    let mut before = std::mem::take(series);
    for (key, counter) in samples {
        let mut one = before.remove(&key).unwrap_or_default();
        one.add(counter, seconds);
        series.insert(key, one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_rates_of_the_last_minute_and_forgets_what_is_gone() {
        let mut all = BTreeMap::<&str, Series>::new();
        for second in 0..200_u64 {
            add_all(&mut all, vec![("a", second * 10)], 1.0);
        }
        assert_eq!(all["a"].rate(), 10.0);
        assert_eq!(all["a"].points().len(), POINTS_MAX);
        add_all(&mut all, vec![("a", 0), ("b", 5)], 1.0);
        assert_eq!(all["a"].points().last(), Some(&0.0));
        assert_eq!(all["b"].rate(), 0.0, "a first sample has no rate");
        add_all(&mut all, vec![("b", 7)], 1.0);
        assert!(!all.contains_key("a"));
    }

    #[test]
    fn a_meter_measures_between_renderings_and_the_meters_are_bounded() {
        let figures = Figures::default();
        let seconds = Duration::from_secs;
        let read = |now, counters: &[u64]| figures.rates("m".into(), now, counters.to_vec());
        assert_eq!(read(seconds(10), &[0, 5]), None);
        assert_eq!(read(seconds(12), &[10, 5]), Some(vec![5.0, 0.0]));
        let soon = seconds(12) + Duration::from_millis(100);
        assert_eq!(read(soon, &[99, 99]), Some(vec![5.0, 0.0]), "too soon");
        assert_eq!(read(seconds(14), &[1]), None, "other counters");
        for n in 0..2 * METERS_MAX {
            figures.rates(n.to_string(), seconds(20 + n as u64), vec![0]);
        }
        assert_eq!(figures.lock().meters.len(), METERS_MAX);
    }

    #[test]
    fn failures_are_counted_in_intervals_of_the_last_minutes() {
        let mut series = FailureSeries::default();
        for second in 0..FAILURE_TICKS * 100 {
            series.add(u64::from(second) * 2);
        }
        let history = series.history();
        assert_eq!(history.counts, vec![20; FAILURE_INTERVALS]);
        let mut fresh = FailureSeries::default();
        fresh.add(500);
        fresh.add(503);
        assert_eq!(fresh.history().counts.len(), FAILURE_INTERVALS);
        let newest = fresh.history().counts.pop();
        assert_eq!(
            newest,
            Some(3),
            "calls before the first sample have no time"
        );
    }
}
