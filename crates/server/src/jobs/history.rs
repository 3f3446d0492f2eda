//! The last minutes of each job, one point a second, for charts.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use highwater_job::live::JobFigures;
use highwater_time::Instant;

use super::Inner;

pub(crate) const HISTORY_INTERVAL: Duration = Duration::from_secs(1);

/// Five minutes.
const POINTS_MAX: usize = 300;

/// The figures of a job in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HistoryPoint {
    pub(crate) time: Instant,
    pub(crate) events_per_second: f64,
    pub(crate) rows_per_second: f64,
    pub(crate) watermark_delay: Option<Duration>,
    pub(crate) backlog: u64,
    /// Of the events of this second, those that a policy adjusted or dropped.
    pub(crate) moved_share: f64,
    pub(crate) state_bytes: u64,
}

/// The points of one job.
#[derive(Debug, Default)]
pub(super) struct JobHistory(Mutex<Points>);

#[derive(Debug, Default)]
struct Points {
    points: VecDeque<HistoryPoint>,
    /// The figures that the next point is compared with.
    before: Option<(Duration, JobFigures)>,
}

impl JobHistory {
    /// Adds a point; the first figures of a start only begin the comparison.
    pub(super) fn add(&self, time: Instant, elapsed: Duration, now: JobFigures) {
        let mut history = self.lock();
        let before = history.before.replace((elapsed, now));
        let Some((since, before)) = before else {
            return;
        };
        let seconds = (elapsed - since).as_secs_f64();
        // A job that was started again counts from 0.
        if seconds <= 0.0 || now.events < before.events || now.rows < before.rows {
            return;
        }
        let (events, rows) = (now.events - before.events, now.rows - before.rows);
        let moved = now.moved.saturating_sub(before.moved);
        if history.points.len() == POINTS_MAX {
            history.points.pop_front();
        }
        history.points.push_back(HistoryPoint {
            time,
            events_per_second: events as f64 / seconds,
            rows_per_second: rows as f64 / seconds,
            watermark_delay: now.watermark_delay,
            backlog: now.backlog,
            moved_share: match events {
                0 => 0.0,
                events => (moved as f64 / events as f64).min(1.0),
            },
            state_bytes: now.state_bytes,
        });
    }

    /// The job does not run.
    pub(super) fn pause(&self) {
        self.lock().before = None;
    }

    /// The oldest first.
    pub(super) fn points(&self) -> Vec<HistoryPoint> {
        self.lock().points.iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Points> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a point for each running job every second, as long as there are jobs to look at.
pub(super) async fn record_histories(jobs: Weak<Inner>) {
    let mut ticks = tokio::time::interval(HISTORY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(jobs) = jobs.upgrade() else { return };
        let clock = &jobs.resources.clock;
        let time = Instant::from_unix_nanos(clock.unix_nanos());
        let entries: Vec<_> = {
            let known = jobs.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            known.values().cloned().collect()
        };
        for entry in entries {
            let handle = entry.lock().handle.clone();
            match handle.filter(|handle| !handle.is_over()) {
                Some(handle) => entry.history.add(time, clock.elapsed(), handle.figures()),
                None => entry.history.pause(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_rates_and_a_restart_makes_no_negative_one() {
        let history = JobHistory::default();
        let add = |second: u64, events, moved| {
            let figures = JobFigures {
                events,
                moved,
                ..JobFigures::default()
            };
            let time = Instant::from_unix_millis(second as i64 * 1000);
            history.add(time, Duration::from_secs(second), figures);
        };
        add(1, 100, 0);
        add(3, 300, 50);
        add(4, 10, 0);
        add(5, 20, 10);
        let points = history.points();
        let seen: Vec<(f64, f64)> = points
            .iter()
            .map(|point| (point.events_per_second, point.moved_share))
            .collect();
        assert_eq!(seen, [(100.0, 0.25), (10.0, 1.0)]);
        for second in 6..1_000 {
            add(second, second * 10, 0);
        }
        assert_eq!(history.points().len(), POINTS_MAX);
    }
}
