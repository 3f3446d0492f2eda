//! Waits on several partitions at once, without polling: a partition is read again only after it woke the waiter.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use highwater_log::{BoxFuture, Isolation};

use super::{PartitionRead, PendingFetch};

pub(super) struct Waits(FuturesUnordered<BoxFuture<usize>>);

impl Waits {
    pub(super) fn new(fetch: &PendingFetch) -> Waits {
        let mut waits = Waits(FuturesUnordered::new());
        for (index, read) in fetch.partitions.iter().enumerate() {
            waits.again(index, read, fetch.isolation);
        }
        waits
    }

    /// Waits for a partition to grow past its last known end.
    pub(super) fn again(&mut self, index: usize, read: &PartitionRead, isolation: Isolation) {
        let (Ok(partition), Some(seen)) = (&read.partition, read.visible(isolation)) else {
            return;
        };
        let grown = partition.wait_past(seen, isolation);
        self.0.push(Box::pin(async move {
            grown.await;
            index
        }));
    }

    /// The next partition to read again. `None` if there is none to wait for.
    pub(super) async fn next(&mut self) -> Option<usize> {
        self.0.next().await
    }
}
