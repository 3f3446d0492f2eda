//! Ends the process when a JavaScript function does not return.
//!
//! A function that runs too long is stopped by its interpreter, and only its event fails. Inside of a native function
//! nothing can stop it; a job on a node then fails and abandons its thread, and a command ends here. Files of outputs
//! appear only when they are complete, so none is left half written.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use highwater_env::{Clock, RealClock};
use highwater_job::{Job, live};

/// Watches the functions of a job until it is dropped.
pub(crate) struct FunctionWatchdog {
    _stop: Sender<()>,
}

impl FunctionWatchdog {
    pub(crate) fn start(job: &Job) -> io::Result<FunctionWatchdog> {
        let (stop, stopped) = channel();
        let watchdog = FunctionWatchdog { _stop: stop };
        if job.scripts.is_empty() {
            return Ok(watchdog);
        }
        let timeout = live::Options::of(job, 1).function_timeout;
        let pause = (timeout / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let (scripts, clock) = (job.scripts.clone(), RealClock::new());
        let watch = move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if let Some(name) = scripts.overdue_call(clock.elapsed(), timeout) {
                    eprintln!(
                        "error: function '{name}' has not returned for {timeout:?}; a native function of JavaScript \
                         cannot be stopped"
                    );
                    std::process::exit(1);
                }
            }
        };
        let thread = thread::Builder::new().name("highwater-watchdog".into());
        thread.spawn(watch)?;
        Ok(watchdog)
    }
}
