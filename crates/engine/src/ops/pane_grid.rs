//! The pane grid of tumbling, hopping and snapshot windows.
//!
//! Time is divided into panes, and a window consists of whole panes, so a row is aggregated once, into its pane,
//! regardless of how many windows contain it.

use highwater_query::plan::Window;
use highwater_time::{Duration, Instant};

/// The bounds of panes and windows. Intervals are (start, end].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaneGrid {
    pane: Duration,
    size: Duration,
    hop: Duration,
    offset: Duration,
}

impl PaneGrid {
    /// `None` for sliding and session windows.
    pub(crate) fn of(window: &Window) -> Option<PaneGrid> {
        let tick = Duration::from_ticks(1);
        let (size, hop, offset) = match *window {
            Window::Tumbling { size, offset } => (size, size, offset),
            Window::Hopping { size, hop, offset } => (size, hop, offset),
            Window::Snapshot => (tick, tick, Duration::ZERO),
            Window::Sliding { .. } | Window::Session { .. } => return None,
        };
        let pane = Duration::from_ticks(gcd(size.ticks(), hop.ticks()));
        Some(PaneGrid {
            pane,
            size,
            hop,
            offset,
        })
    }

    pub(crate) fn pane_end(&self, time: i64) -> i64 {
        Instant::from_ticks(time)
            .ceil_to(self.pane, self.offset)
            .ticks()
    }

    /// The end of the first window that ends at or after `time`.
    pub(crate) fn window_end(&self, time: i64) -> i64 {
        Instant::from_ticks(time)
            .ceil_to(self.hop, self.offset)
            .ticks()
    }

    pub(crate) fn window_start(&self, end: i64) -> i64 {
        end.saturating_sub(self.size.ticks())
    }

    /// The end of the window after the one that ends at `end`.
    pub(crate) fn next_window(&self, end: i64) -> i64 {
        end.saturating_add(self.hop.ticks())
    }

    /// Whether windows do not overlap: every pane is a window.
    pub(crate) fn is_tumbling(&self) -> bool {
        self.hop == self.size
    }

    /// Size and hop, if windows overlap.
    pub(crate) fn overlap(&self) -> Option<(i64, i64)> {
        (self.hop < self.size).then(|| (self.size.ticks(), self.hop.ticks()))
    }

    /// The ends of the windows that contain the pane ending at `pane_end`.
    pub(crate) fn windows(&self, pane_end: i64) -> impl Iterator<Item = i64> {
        let (first, hop, size) = (
            self.window_end(pane_end),
            self.hop.ticks(),
            self.size.ticks(),
        );
        let last = pane_end.saturating_add(size);
        std::iter::successors(Some(first), move |end| end.checked_add(hop))
            .take_while(move |&end| end < last)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
