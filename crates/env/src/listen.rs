use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// Time for which an address may stay in use.
const WAIT: Duration = Duration::from_millis(500);

/// Interval between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Binds a listener; waits for an address in use, because a process that was just killed closes its sockets a little
/// later than `kill` returns.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + WAIT;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(RETRY_INTERVAL).await;
            }
            bound => return bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_given_up_is_bound() {
        let predecessor = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = predecessor.local_addr().unwrap();
        let refused = listen(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);

        let successor = tokio::spawn(listen(address));
        sleep(WAIT / 2).await;
        drop(predecessor);
        assert_eq!(
            successor.await.unwrap().unwrap().local_addr().unwrap(),
            address
        );
    }
}
