//! Waiting for what may not be there.

use std::time::Duration;

use highwater_log::Pending;

/// Never ready while there is no work.
pub async fn finished<T>(work: &mut Option<Pending<T>>) -> T {
    match work {
        Some(work) => work.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Never ready while nothing is due.
pub async fn sleep(timer: Option<Duration>) {
    match timer {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}
