//! Fails a job with a JavaScript function that does not return, and abandons its thread.
//!
//! A function that runs too long is stopped by its interpreter, and only its event fails. Inside of a native function
//! the interpreter cannot stop it. Nothing can, so the job continues without the thread: it fails with the name of the
//! function, can be stopped, deleted and started again, and the thread runs on with the lowest priority.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use highwater_engine::Scripts;
use highwater_env::{Clock, ThreadNumber};

use super::StartError;

/// Completes with the reason why the job fails, when a call has not returned for `timeout`.
pub(super) async fn overdue_call(
    scripts: Arc<Scripts>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
) -> String {
    if scripts.is_empty() {
        return std::future::pending().await;
    }
    let pause = (timeout / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
    loop {
        tokio::time::sleep(pause).await;
        if let Some(name) = scripts.overdue_call(clock.elapsed(), timeout) {
            return format!(
                "function '{name}' has not returned for {timeout:?}, and its thread was given up; \
                 a native function of JavaScript cannot be stopped"
            );
        }
    }
}

/// A thread of a job. Its end is not awaited.
pub(super) struct JobThread {
    handle: thread::JoinHandle<()>,
    number: Arc<OnceLock<ThreadNumber>>,
}

impl JobThread {
    pub(super) fn spawn(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<JobThread, StartError> {
        let number = Arc::new(OnceLock::new());
        let own = number.clone();
        let run = move || {
            if let Some(current) = ThreadNumber::current() {
                own.get_or_init(|| current);
            }
            work();
        };
        let handle = thread::Builder::new().name(name.into()).spawn(run);
        let handle = handle.map_err(StartError::Thread)?;
        Ok(JobThread { handle, number })
    }

    /// Lets all other threads go first, if it still runs.
    pub(super) fn lower_priority(&self) {
        if let Some(number) = self.number.get().filter(|_| !self.handle.is_finished()) {
            number.lower_priority();
        }
    }
}
