//! The runtimes of commands: one thread for those over HTTP, which do one thing at a time, all cores for a node.
//!
//! The future of a command is boxed: Tokio's scheduler is compiled once for each type of result, not for each command.

use std::io;
use std::pin::Pin;

use tokio::runtime::{Builder, Runtime};

pub(crate) fn single_threaded() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs a command over HTTP.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    run_on(&single_threaded()?, Box::pin(work))
}

/// Runs a node. Tasks that are still running when it has stopped are dropped.
pub(crate) fn block_on_node<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = Runtime::new()?;
    let result = run_on(&runtime, Box::pin(work));
    runtime.shutdown_background();
    result
}

pub(crate) fn run_on<T>(
    runtime: &Runtime,
    work: Pin<Box<dyn Future<Output = anyhow::Result<T>> + '_>>,
) -> anyhow::Result<T> {
    runtime.block_on(work)
}
