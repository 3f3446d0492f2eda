use tokio::sync::watch;

/// Completes when the sender says true or is dropped.
pub async fn shutdown_signal(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
