//! Commands that talk to a node do one thing after another: one thread is enough.

use std::io;

use tokio::runtime::{Builder, Runtime};

pub fn one_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    one_thread()?.block_on(work)
}
