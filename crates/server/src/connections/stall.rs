//! A connection that fails if its client reads nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A connection whose writes fail with `TimedOut` after waiting for `limit`.
pub(super) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    /// The timer; runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, waiting: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // A flush that is ready does not mean that a waiting write made progress.
        if flushed.is_ready() { flushed } else { self.watch(context, flushed) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_fails_the_write() {
        let (ours, _theirs) = duplex(16);
        let begun = Instant::now();
        let error = StallGuard::new(ours, LIMIT).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_gets_everything() {
        let (ours, mut theirs) = duplex(16);
        let mut ours = StallGuard::new(ours, LIMIT);
        let read_slowly = async {
            let mut read = 0;
            while read < 160 {
                sleep_until(Instant::now() + LIMIT / 2).await;
                read += theirs.read(&mut [0; 16]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[7; 160]), read_slowly);
        written.unwrap();
    }
}
