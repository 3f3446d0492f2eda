//! The signal that tells tasks to stop.

use tokio::sync::watch;

/// Completes when the sender sends true or is dropped.
pub(crate) fn shutdown_signal(
    stop: &watch::Sender<bool>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut stop = stop.subscribe();
    async move {
        let _ = stop.wait_for(|stop| *stop).await;
    }
}
