//! The last use of a queue, for queues that are deleted when idle.
//!
//! A client request counts as use from start to end, so a waiting receiver keeps its queue alive. Requests of the node
//! itself do not: a topic forwards to unread subscriptions, too.

use std::time::Duration;

use highwater_env::Clock;
use parking_lot::Mutex;

use super::error::Error;
use super::handle::Queue;
use crate::settings::Settings;

/// Times are on the clock's `elapsed`. The start of the node counts as use, since earlier uses are not stored.
pub(super) struct Usage {
    state: Mutex<UsageState>,
}

struct UsageState {
    /// Open requests.
    requests: usize,
    last_used: Duration,
    /// The time without use after which the queue is deleted.
    auto_delete: Option<Duration>,
    /// The queue is being deleted: it takes no further requests, so that none is confirmed and lost.
    is_retired: bool,
}

/// An open request.
pub(super) struct UseGuard<'a> {
    usage: &'a Usage,
    clock: &'a dyn Clock,
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.usage.state.lock();
        state.requests -= 1;
        state.last_used = self.clock.elapsed();
    }
}

impl Usage {
    pub(super) fn new(settings: &Settings, now: Duration) -> Usage {
        Usage {
            state: Mutex::new(UsageState {
                requests: 0,
                last_used: now,
                auto_delete: auto_delete(settings),
                is_retired: false,
            }),
        }
    }

    pub(super) fn configure(&self, settings: &Settings) {
        self.state.lock().auto_delete = auto_delete(settings);
    }

    pub(super) fn begin<'a>(&'a self, clock: &'a dyn Clock) -> Result<UseGuard<'a>, Error> {
        let mut state = self.state.lock();
        if state.is_retired {
            let reason = "it was idle for too long and is being deleted";
            return Err(Error::Stopped(reason.into()));
        }
        state.requests += 1;
        Ok(UseGuard { usage: self, clock })
    }
}

/// Forwarding is use.
fn auto_delete(settings: &Settings) -> Option<Duration> {
    let forwards = settings.forward_to.is_some();
    settings.auto_delete_on_idle.filter(|_| !forwards)
}

impl Queue {
    /// Refuses all further requests if the queue must be deleted now.
    pub(super) fn retire_if_idle(&self) -> bool {
        self.idle_limit().is_some_and(|limit| self.retire(limit))
    }

    /// The queue must be deleted if its last use was before this time. `None` if it is kept however long it is idle.
    pub(super) fn idle_limit(&self) -> Option<Duration> {
        let after = self.status().usage.state.lock().auto_delete?;
        let (counts, _) = self.counters();
        let limit = self.clock().elapsed().checked_sub(after);
        limit.filter(|_| counts.scheduled == 0)
    }

    /// Refuses all further requests, unless there was one after `limit`.
    pub(super) fn retire(&self, limit: Duration) -> bool {
        let mut state = self.status().usage.state.lock();
        let is_idle = state.requests == 0 && state.last_used <= limit;
        state.is_retired |= is_idle;
        is_idle
    }

    /// Accepts requests again.
    pub(super) fn revive(&self) {
        self.status().usage.state.lock().is_retired = false;
    }
}
