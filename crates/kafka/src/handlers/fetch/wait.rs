//! Waits on several partitions at once. A partition is asked again only after it has woken us, and
//! nobody polls.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use highwater_log::{BoxFuture, Isolation};

use super::{Reading, Wanted};

pub(super) struct Waits(FuturesUnordered<BoxFuture<usize>>);

impl Waits {
    pub fn new(reading: &Reading) -> Waits {
        let mut waits = Waits(FuturesUnordered::new());
        for (index, wanted) in reading.partitions.iter().enumerate() {
            waits.again(index, wanted, reading.isolation);
        }
        waits
    }

    /// Waits for a partition to grow past what was seen of it.
    pub fn again(&mut self, index: usize, wanted: &Wanted, isolation: Isolation) {
        let (Ok(partition), Some(seen)) = (&wanted.partition, wanted.visible(isolation)) else {
            return;
        };
        let grown = partition.wait_past(seen, isolation);
        self.0.push(Box::pin(async move {
            grown.await;
            index
        }));
    }

    /// The next partition to look at again; `None` if there is none to wait for.
    pub async fn next(&mut self) -> Option<usize> {
        self.0.next().await
    }
}
