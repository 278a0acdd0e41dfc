//! Responses over a WebSocket: each message `response.create` asks for one, and its events are messages.

use std::borrow::Cow;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use podium_api::openai::{RegisteredInput, ResponseId, SocketRequest, error_event, with_response_names};
use podium_api::{ApiError, ErrorCode, StreamEvent};
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_engine::Submitted;
use tokio::time::{Instant, sleep_until};

use super::{ResponseFormat, asked, key_for};
use crate::auth::Caller;
use crate::connections::{Occupied, Unread};
use crate::error_mapping;
use crate::http::answer::{Sent, Streaming, run_of, streaming, submitted};
use crate::http::disconnect::accept;
use crate::http::layers::random_id;
use crate::http::reply::Refusal;
use crate::http::request_checks::authorization;
use crate::http::{BODY_BYTES_MAX, ServerState};
use crate::slots::Slot;
use crate::use_cases;

/// A silent client is pinged this often.
pub(super) const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that sends nothing for this time, not even an answer to a ping, is gone.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(75);

/// Opens a WebSocket.
pub(in crate::http) async fn connect(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    Extension(occupied): Extension<Occupied>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade.map_err(|problem| {
        let message = format!("GET /v1/responses opens a WebSocket, and this request does not: {problem}");
        ApiError::new(ErrorCode::MethodNotAllowed, message)
    })?;
    if state.stopping.is_cancelled() {
        return Err(error_mapping::stopping().into());
    }
    let slot = state.sockets.begin()?;
    let left = state.left.clone();
    let authorization = authorization(&headers).map(Cow::into_owned);
    let upgrade = upgrade.max_message_size(BODY_BYTES_MAX).max_frame_size(BODY_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| {
        let session = Session {
            state,
            caller,
            authorization,
            unread,
            occupied,
            socket,
            last: None,
            registered: None,
            _slot: slot,
        };
        left.track_future(session.serve())
    }))
}

struct Session {
    state: ServerState,
    caller: Caller,
    /// The credential of the caller. It is checked again and again, because its key may be revoked.
    authorization: Option<String>,
    unread: Unread,
    occupied: Occupied,
    socket: WebSocket,
    /// The last response of this connection. It may be continued here although it was not stored.
    last: Option<ResponseId>,
    /// The input of the last request, if it was only registered.
    registered: Option<Box<RegisteredInput>>,
    _slot: Slot,
}

/// The outcome of a valid request.
enum Begun {
    Response(Box<Streaming<ResponseFormat>>),
    /// Its input is kept for the next request.
    Registered(Box<RegisteredInput>),
}

/// The client is gone, or the connection must end.
pub(super) struct Gone;

impl Session {
    async fn serve(mut self) {
        while let Ok(text) = self.request().await {
            if self.respond(&text).await.is_err() {
                break;
            }
        }
        // The client may be gone already.
        let _ = self.socket.send(Message::Close(None)).await;
    }

    /// The next request.
    async fn request(&mut self) -> Result<String, Gone> {
        let mut heard = Instant::now();
        loop {
            let ping_at = Instant::now() + PING_EVERY;
            tokio::select! {
                message = self.socket.recv() => {
                    heard = Instant::now();
                    if let Some(text) = read(message)? {
                        return Ok(text);
                    }
                }
                () = self.occupied.must_close() => return Err(Gone),
                () = self.state.stopping.cancelled() => return Err(Gone),
                () = sleep_until(ping_at) => {
                    if heard.elapsed() > SILENCE_MAX {
                        return Err(Gone);
                    }
                    self.check_caller().await?;
                    self.ping().await?;
                }
            }
        }
    }

    async fn respond(&mut self, text: &str) -> Result<(), Gone> {
        let _busy = self.occupied.busy();
        self.check_caller().await?;
        let Self { state, caller, unread, last, registered, .. } = self;
        match begin(state, caller, unread, *last, registered.as_deref(), text).await {
            Ok(Begun::Response(streaming)) => {
                self.registered = None;
                self.send_all(*streaming).await
            }
            // The response before it may still be continued: the registered input may continue it.
            Ok(Begun::Registered(input)) => {
                let events = input.events();
                self.registered = Some(input);
                for event in events {
                    self.send(event).await?;
                }
                Ok(())
            }
            Err(error) => {
                // The next request must not continue a response by accident.
                (self.last, self.registered) = (None, None);
                self.send(error_event(&with_response_names(error))).await
            }
        }
    }

    /// Sends the events of a response.
    async fn send_all(&mut self, mut streaming: Streaming<ResponseFormat>) -> Result<(), Gone> {
        self.last = None;
        let mut ping_at = Instant::now() + PING_EVERY;
        loop {
            tokio::select! {
                sent = streaming.next() => match sent {
                    // The mark at the end of server-sent events has no name. It is not sent here, and neither are comments.
                    Some(Sent::Event(StreamEvent { name: None, .. }) | Sent::Comment(_)) => {}
                    Some(Sent::Event(event)) => {
                        if matches!(event.name, Some("response.completed" | "response.incomplete")) {
                            self.last = Some(streaming.format().id());
                        }
                        self.send(event).await?;
                    }
                    None => return Ok(()),
                },
                message = self.socket.recv() => {
                    if read(message)?.is_some() {
                        let busy = "a response is under way on this connection; send the next request after its end";
                        self.send(error_event(&ApiError::new(ErrorCode::InvalidValue, busy))).await?;
                    }
                }
                () = self.occupied.must_close() => return Err(Gone),
                () = sleep_until(ping_at) => {
                    ping_at = Instant::now() + PING_EVERY;
                    self.check_caller().await?;
                    self.ping().await?;
                }
            }
        }
    }

    /// Ends the connection if its key was revoked. If the store cannot say, the connection goes on.
    async fn check_caller(&mut self) -> Result<(), Gone> {
        match self.state.auth.caller(self.authorization.as_deref()).await {
            Ok(caller) => {
                // Its budgets may have changed.
                self.caller = caller;
                Ok(())
            }
            Err(error) if error.code == ErrorCode::InvalidApiKey => {
                self.send(error_event(&error)).await?;
                Err(Gone)
            }
            Err(_) => Ok(()),
        }
    }

    async fn send(&mut self, event: StreamEvent) -> Result<(), Gone> {
        self.socket.send(Message::Text(event.data.into())).await.map_err(|_| Gone)
    }

    async fn ping(&mut self) -> Result<(), Gone> {
        self.socket.send(Message::Ping(Bytes::new())).await.map_err(|_| Gone)
    }
}

/// Makes the run of a request, or registers its input. `last` may be continued although it was not stored, and so may `registered`.
async fn begin(
    state: &ServerState,
    caller: &Caller,
    unread: &Unread,
    last: Option<ResponseId>,
    registered: Option<&RegisteredInput>,
    text: &str,
) -> Result<Begun, ApiError> {
    let now_seconds = state.auth.now().unix_ms() / 1000;
    let request = match SocketRequest::parse(text.as_bytes(), registered, random_run_id()?, now_seconds)? {
        SocketRequest::Create(request) => *request,
        SocketRequest::Register(input) => {
            use_cases::check_model(&state.engine, input.model())?;
            return Ok(Begun::Registered(input));
        }
    };
    let is_background = request.is_background();
    let open = state.streams.begin(&caller.tenant)?;
    let key = key_for(state, request.needs_key()).await?;
    let asked = asked(state, &caller.tenant, request, last, None).await?;
    let accepting = submitted(state.clone(), caller.clone(), asked);
    let (submitted, guard) = accept(state, is_background, accepting, Submitted::run_id).await?;
    let run = run_of(state, &caller.tenant, submitted).await?;
    let format = |run: &Run| ResponseFormat::of(run, key, None);
    streaming(state, run, guard, open, unread, format).await.map(Box::new).map(Begun::Response)
}

/// The id of a response without a run. It is random, so no run has it.
fn random_run_id() -> Result<RunId, ApiError> {
    random_id().parse::<RunId>().map_err(|e| error_mapping::defect(&e))
}

/// The text of a message; none for a ping or its answer.
pub(super) fn read(message: Option<Result<Message, axum::Error>>) -> Result<Option<String>, Gone> {
    match message {
        Some(Ok(Message::Text(text))) => Ok(Some(text.as_str().to_owned())),
        Some(Ok(Message::Binary(bytes))) => String::from_utf8(bytes.into()).map(Some).map_err(|_| Gone),
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Gone),
    }
}
