//! A WebSocket whose tenant belongs to another cell: its messages are relayed to a gateway there.

use std::borrow::Cow;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{StatusCode, request};
use axum::response::Response;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use podium_api::ApiError;
use podium_api::openai::error_event;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::socket::{Gone, PING_EVERY, SILENCE_MAX, read};
use crate::cells::OtherCell;
use crate::connections::Occupied;
use crate::error_mapping;
use crate::http::{BODY_BYTES_MAX, ServerState};

/// Opens a WebSocket at a gateway of another cell and relays the client's messages to it. If that gateway refuses the WebSocket, its
/// response is the client's.
pub(in crate::http) async fn relay(
    state: &ServerState,
    other: &OtherCell,
    occupied: Occupied,
    head: request::Parts,
    upgrade: WebSocketUpgrade,
) -> Result<Response, ApiError> {
    let slot = state.sockets.begin()?;
    let mut response = tokio::select! {
        response = other.open_socket(head) => response?,
        () = state.cut.cancelled() => return Err(error_mapping::stopping()),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let opened = hyper::upgrade::on(&mut response);
    let (state, broke_off) = (state.clone(), other.broke_off());
    let left = state.left.clone();
    let upgrade = upgrade.max_message_size(BODY_BYTES_MAX).max_frame_size(BODY_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |client| {
        left.track_future(async move {
            let Ok(opened) = opened.await else { return };
            let gateway = WebSocketStream::from_raw_socket(TokioIo::new(opened), Role::Client, None).await;
            Relay { state, occupied, client, gateway, broke_off }.serve().await;
            drop(slot);
        })
    }))
}

struct Relay {
    state: ServerState,
    occupied: Occupied,
    client: WebSocket,
    gateway: WebSocketStream<TokioIo<Upgraded>>,
    /// The error for a connection to the other gateway that breaks off.
    broke_off: ApiError,
}

impl Relay {
    /// The connection to the other gateway is dropped at the end, which cancels what the client can read no more.
    async fn serve(mut self) {
        if let Err(error) = self.relay().await {
            let event = Message::Text(error_event(&error).data.into());
            // The client may be gone already.
            let _ = self.client.send(event).await;
        }
        let _ = self.client.send(Message::Close(None)).await;
    }

    /// Relays messages until one side ends. An error is one that the client must be told.
    async fn relay(&mut self) -> Result<(), ApiError> {
        // The requests whose last event has not come.
        let mut open = 0_usize;
        let mut busy = None;
        let mut heard = Instant::now();
        let mut ping_at = heard + PING_EVERY;
        loop {
            tokio::select! {
                message = self.client.recv() => {
                    heard = Instant::now();
                    match read(message) {
                        Ok(Some(text)) => {
                            open += 1;
                            busy.get_or_insert_with(|| self.occupied.busy());
                            let message = tungstenite::Message::text(text);
                            self.gateway.send(message).await.map_err(|_| self.broke_off.clone())?;
                        }
                        Ok(None) => {}
                        Err(Gone) => return Ok(()),
                    }
                }
                message = self.gateway.next() => match message {
                    Some(Ok(tungstenite::Message::Text(text))) => {
                        if ends_a_request(&text) {
                            open = open.saturating_sub(1);
                        }
                        if open == 0 {
                            busy = None;
                        }
                        let event = Message::Text(text.as_str().into());
                        if self.client.send(event).await.is_err() {
                            return Ok(());
                        }
                    }
                    Some(Ok(tungstenite::Message::Close(_))) | None => return Ok(()),
                    // Pings are answered when the next message is read.
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return Err(self.broke_off.clone()),
                },
                () = self.occupied.must_close() => return Ok(()),
                () = self.state.stopping.cancelled(), if open == 0 => return Ok(()),
                () = self.state.cut.cancelled() => return Err(error_mapping::stopping()),
                () = sleep_until(ping_at) => {
                    let is_gone = heard.elapsed() > SILENCE_MAX;
                    if is_gone || self.client.send(Message::Ping(Bytes::new())).await.is_err() {
                        return Ok(());
                    }
                    ping_at = Instant::now() + PING_EVERY;
                }
            }
        }
    }
}

/// Whether an event is the last one of its request.
fn ends_a_request(event: &str) -> bool {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    let last = ["response.completed", "response.incomplete", "response.failed", "error"];
    serde_json::from_str(event).is_ok_and(|Event { r#type }| last.contains(&&*r#type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_last_event() {
        for (event, ends) in [
            (
                r#"{"type":"response.completed","sequence_number":9,"response":{"type":"response.created"}}"#,
                true,
            ),
            (r#"{"sequence_number":9,"type":"response.incomplete"}"#, true),
            (r#"{"type":"response.failed"}"#, true),
            (r#"{"type":"error","error":{"code":"invalid_value"}}"#, true),
            (r#"{"type":"response.created"}"#, false),
            (r#"{"type":"response.output_text.delta","delta":"\"type\":\"error\""}"#, false),
            ("[]", false),
        ] {
            assert_eq!(ends_a_request(event), ends, "{event}");
        }
    }
}
