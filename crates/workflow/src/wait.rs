//! Waiting on optional futures and timers.

use std::time::Duration;

use highwater_log::BoxFuture;

/// Pending while `work` is `None`.
pub(crate) async fn finished<T>(work: &mut Option<BoxFuture<T>>) -> T {
    match work {
        Some(work) => work.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Pending while `timer` is `None`.
pub(crate) async fn sleep(timer: Option<Duration>) {
    match timer {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}
