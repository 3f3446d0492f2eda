//! The runtime of commands over HTTP: they do one thing at a time, so one thread is enough.

use std::io;

use tokio::runtime::{Builder, Runtime};

pub(crate) fn single_threaded() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    single_threaded()?.block_on(work)
}
