//! Sends an answer to a client that may not read it.
//!
//! An answer is sent in small pieces; the next piece is handed over once the client has read the previous one. If a client reads
//! nothing for too long, its answer is dropped and its memory is freed. The server's limit bounds the bytes of all unread answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::RequestGuard;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Longest piece of an answer.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// The unit in which held bytes are counted.
const UNIT_BYTES: usize = 1 << 10;

/// The remaining bytes that unread answers may hold.
#[derive(Clone, Debug)]
pub(crate) struct Unread(Arc<Semaphore>);

impl Unread {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes_max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Whether an answer of that length may be held now. Single pieces are always sent.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        bytes <= PIECE_BYTES_MAX || self.0.available_permits() >= bytes / UNIT_BYTES
    }

    /// Counts an answer as held until the guard is dropped. Single pieces are always sent and not counted.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Held, TooMuchUnread> {
        if bytes <= PIECE_BYTES_MAX {
            return Ok(Held(None));
        }
        let units = u32::try_from(bytes / UNIT_BYTES).map_err(|_| TooMuchUnread)?;
        let permit = Arc::clone(&self.0).try_acquire_many_owned(units).map_err(|_| TooMuchUnread)?;
        Ok(Held(Some(Arc::new(permit))))
    }
}

/// An answer that counts as held, until the guard and all its clones are dropped. A handler puts the guard into the extensions of
/// its response: its body is then not counted again.
#[derive(Clone)]
pub(crate) struct Held(
    #[expect(dead_code, reason = "it counts until it is dropped")] Option<Arc<OwnedSemaphorePermit>>,
);

/// Too many bytes are held for clients that do not read them.
#[derive(Debug, thiserror::Error)]
#[error("too many bytes of answers wait for clients that do not read them")]
pub(crate) struct TooMuchUnread;

/// The answer was dropped because its client did not read it.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
struct BrokenOff;

/// How a connection's answers are sent.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) stall: Duration,
    pub(super) unread: Unread,
    /// Ends the connection.
    pub(super) close: CancellationToken,
    /// The tasks that hand answers over.
    pub(super) relays: TaskTracker,
}

/// Sends a response; `request` ends with it. Over HTTP/1, an answer of one piece is left to the connection, which limits the time
/// to write. An HTTP/2 client can stop reading one answer while it reads others, so there all answers are relayed.
pub(super) fn send(
    response: http::Response<Body>,
    request: Arc<RequestGuard>,
    terms: &Terms,
    version: http::Version,
) -> http::Response<Body> {
    let (mut parts, body) = response.into_parts();
    let held = parts.extensions.remove::<Held>();
    let bytes = body.size_hint().exact();
    let is_piece = bytes.is_some_and(|bytes| bytes <= PIECE_BYTES_MAX as u64);
    if body.is_end_stream() || is_piece && version < http::Version::HTTP_2 {
        return http::Response::from_parts(parts, Body::new(Counted { body, _request: request }));
    }
    let (pieces, relayed) = mpsc::channel(1);
    terms.relays.spawn(relay(Answer { body, held }, pieces, terms.clone(), request));
    http::Response::from_parts(parts, Body::new(Relayed { pieces: relayed, left: bytes, is_complete: false }))
}

/// An answer to hand over.
struct Answer {
    body: Body,
    /// None: each long frame is counted when it is handed over.
    held: Option<Held>,
}

/// A body with its request.
struct Counted {
    body: Body,
    _request: Arc<RequestGuard>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

enum Piece {
    Frame(Result<Frame<Bytes>, BoxError>),
    /// The answer is complete.
    End,
}

/// A body whose frames another task provides.
struct Relayed {
    pieces: mpsc::Receiver<Piece>,
    /// The number of bytes left, if known.
    left: Option<u64>,
    is_complete: bool,
}

impl http_body::Body for Relayed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_complete {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some(Piece::Frame(frame)) => {
                if let (Some(left), Ok(frame)) = (&mut self.left, &frame) {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    *left = left.saturating_sub(bytes as u64);
                }
                Some(frame)
            }
            Some(Piece::End) => {
                self.is_complete = true;
                None
            }
            None => {
                self.is_complete = true;
                Some(Err(BrokenOff.into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_complete || self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Hands a body over piece by piece. Stops if the client disconnects. If the client only stops reading, the connection is closed
/// after twice the time limit.
async fn relay(answer: Answer, pieces: mpsc::Sender<Piece>, terms: Terms, request: Arc<RequestGuard>) {
    if hand_over(answer, &pieces, &terms).await.is_err() {
        tokio::select! {
            () = pieces.closed() => {}
            () = sleep_until(Instant::now() + terms.stall) => terms.close.cancel(),
        }
    }
    drop(request);
}

/// The client read nothing for too long, or has disconnected.
struct Unsent;

async fn hand_over(answer: Answer, pieces: &mpsc::Sender<Piece>, terms: &Terms) -> Result<(), Unsent> {
    let Answer { mut body, held } = answer;
    let send = async |piece| match timeout(terms.stall, pieces.send(piece)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Unsent),
    };
    // A gRPC stream encodes into the buffer of the message before, unless that is still in use: it would keep the memory of its
    // longest message until it ends. So a long message is kept, and counted, until the next one has a buffer of its own.
    let mut kept = None;
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = pieces.closed() => return Err(Unsent),
        };
        drop(kept.take());
        let Some(frame) = frame else { return send(Piece::End).await };
        let mut data = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => data,
            Ok(Err(trailers)) => {
                send(Piece::Frame(Ok(trailers))).await?;
                continue;
            }
            Err(error) => return send(Piece::Frame(Err(error.into()))).await,
        };
        if data.len() > PIECE_BYTES_MAX && held.is_none() {
            match terms.unread.hold(data.len()) {
                Ok(held) => kept = Some((data.clone(), held)),
                Err(error) => {
                    tracing::warn!("an answer was dropped: {error}");
                    return send(Piece::Frame(Err(error.into()))).await;
                }
            }
        }
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(PIECE_BYTES_MAX));
            // A copy: an HTTP/2 connection keeps its last frame, and a slice would keep the whole buffer alive.
            send(Piece::Frame(Ok(Frame::data(Bytes::copy_from_slice(&piece))))).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::BytesMut;
    use futures::StreamExt as _;

    use super::super::activity::Activity;
    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    fn terms(bytes_max: usize) -> Terms {
        let (close, relays) = (CancellationToken::new(), TaskTracker::new());
        Terms { stall: STALL, unread: Unread::new(bytes_max), close, relays }
    }

    fn request() -> Arc<RequestGuard> {
        Arc::new(Arc::new(Activity::new(Arc::default())).begin())
    }

    fn send_body(body: Body, request: Arc<RequestGuard>, terms: &Terms, version: http::Version) -> Body {
        send(http::Response::new(body), request, terms, version).into_body()
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_answer_is_sent_in_pieces_with_its_length() {
        let sent = Bytes::from(vec![7; 100_000]);
        let body = send_body(Body::from(sent.clone()), request(), &terms(1 << 20), http::Version::HTTP_11);
        assert_eq!(body.size_hint().exact(), Some(100_000));
        assert_eq!(body.collect().await.unwrap().to_bytes(), sent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_frame_does_not_keep_the_whole_answer() {
        let sent = Bytes::from(vec![7; 1 << 20]);
        let body = send_body(Body::from(sent.clone()), request(), &terms(1 << 20), http::Version::HTTP_2);
        let mut body = std::pin::pin!(body);
        let mut kept = None;
        while let Some(frame) = body.frame().await {
            kept = frame.unwrap().into_data().ok();
        }
        assert!(sent.is_unique() && kept.is_some_and(|frame| frame.len() <= PIECE_BYTES_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_does_not_keep_the_buffer_of_a_long_message() {
        let terms = terms(1 << 20);
        // All messages of a stream are encoded into one buffer.
        let buffer = Arc::new(Mutex::new(BytesMut::with_capacity(8 << 10)));
        let encoder = Arc::clone(&buffer);
        let messages = futures::stream::iter([1 << 20, 10]).map(move |bytes| {
            let mut buffer = encoder.lock().unwrap();
            buffer.resize(bytes, 7);
            Ok::<_, BoxError>(buffer.split().freeze())
        });
        let messages = messages.chain(futures::stream::pending());
        let body = send_body(Body::from_stream(messages), request(), &terms, http::Version::HTTP_2);
        let mut body = std::pin::pin!(body);
        let mut received = 0;
        while received < (1 << 20) + 10 {
            received += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        assert!(!buffer.lock().unwrap().try_reclaim(1 << 20));
        assert!(terms.unread.admits(1 << 20));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_answer_is_freed_and_its_connection_closed() {
        let terms = terms(1 << 20);
        let begun = Instant::now();
        let body = send_body(Body::from(vec![7; 1 << 20]), request(), &terms, http::Version::HTTP_2);
        // The answer takes all bytes that may be held.
        tokio::task::yield_now().await;
        assert!(!terms.unread.admits(1 << 20));
        terms.close.cancelled().await;
        assert_eq!(begun.elapsed(), 2 * STALL);
        assert!(terms.unread.admits(1 << 20));
        assert!(body.collect().await.is_err(), "a dropped answer must not look complete");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_beyond_the_unread_limit_is_dropped() {
        let terms = terms(1 << 20);
        let first = send_body(Body::from(vec![7; 1 << 20]), request(), &terms, http::Version::HTTP_2);
        tokio::task::yield_now().await;
        let second = send_body(Body::from(vec![7; 1 << 20]), request(), &terms, http::Version::HTTP_2);
        assert!(second.collect().await.is_err());
        assert_eq!(first.collect().await.unwrap().to_bytes().len(), 1 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_its_handler_holds_is_sent_whole_and_counted_once() {
        let terms = terms(1 << 20);
        let mut response = http::Response::new(Body::from(vec![7; 1 << 20]));
        response.extensions_mut().insert(terms.unread.hold(1 << 20).unwrap());
        assert!(terms.unread.hold(PIECE_BYTES_MAX + 1).is_err());
        let body = send(response, request(), &terms, http::Version::HTTP_11).into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 1 << 20);
        terms.relays.close();
        terms.relays.wait().await;
        assert!(terms.unread.admits(1 << 20));
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_of_a_disconnected_client_is_dropped_at_once() {
        let (dropped, is_dropped) = tokio::sync::oneshot::channel::<()>();
        let never = futures::stream::once(async move {
            let _dropped = dropped;
            std::future::pending::<Result<Bytes, BoxError>>().await
        });
        let begun = Instant::now();
        drop(send_body(Body::from_stream(never), request(), &terms(1 << 20), http::Version::HTTP_11));
        assert!(is_dropped.await.is_err());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
