//! A stream that fails when its peer does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The least progress within the timeout: without it, a peer that reads a byte now and then would keep an answer for
/// ever.
const PROGRESS_BYTES_MIN: usize = 16 << 10;

/// Fails a write during which the peer takes less than [`PROGRESS_BYTES_MIN`] within the timeout.
pub(super) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// Runs while a write waits for the peer.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes written since the timer started.
    progress: usize,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> WriteTimeout<S> {
        WriteTimeout {
            stream,
            timeout,
            timer: None,
            progress: 0,
        }
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(bytes)) => {
                self.progress = self.progress.saturating_add(*bytes);
                if self.progress >= PROGRESS_BYTES_MIN {
                    self.timer = None;
                }
                polled
            }
            Poll::Ready(Err(_)) => polled,
            Poll::Pending => self.waits(context).map(Err),
        }
    }

    fn waits(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let timer = self.timer.get_or_insert_with(|| {
            self.progress = 0;
            Box::pin(tokio::time::sleep(self.timeout))
        });
        let timed_out = |()| io::Error::new(io::ErrorKind::TimedOut, "the client does not read");
        timer.as_mut().poll(context).map(timed_out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.waits(context).map(Err),
            flushed => {
                self.timer = None;
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.waits(context).map(Err),
            closed => closed,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_when_the_peer_does_not_read() {
        let (near, _far) = tokio::io::duplex(10);
        let mut stream = WriteTimeout::new(near, Duration::from_secs(30));
        let error = stream.write_all(&[0; 11]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_too_slowly_does_not_read() {
        let (near, mut far) = tokio::io::duplex(10);
        let mut stream = WriteTimeout::new(near, Duration::from_secs(30));
        let drip = tokio::spawn(async move {
            while far.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let error = stream.write_all(&[0; 1 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drip.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_pauses_between_answers_is_served() {
        let (near, mut far) = tokio::io::duplex(10);
        let mut stream = WriteTimeout::new(near, Duration::from_secs(30));
        let reader = tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut [0; 15]).await.unwrap();
            }
        });
        for _ in 0..4 {
            stream.write_all(&[0; 15]).await.unwrap();
            stream.flush().await.unwrap();
        }
        reader.await.unwrap();
    }
}
