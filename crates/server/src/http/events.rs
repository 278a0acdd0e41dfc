//! `GET /v1/runs/{id}/events`: the events of a run as server-sent events, from its first event or after one that the client has.

use std::convert::Infallible;
use std::future::ready;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use podium_api::openai::ErrorBody;
use podium_api::v1::WatchRunResponse;
use podium_api::{ApiError, ErrorCode, watch_event};

use super::answer::SIGN_OF_LIFE_EVERY;
use super::reply::{Refusal, name_run, name_trace};
use super::request_checks::shown;
use super::{ServerState, run_id, segment};
use crate::auth::Caller;
use crate::connections::Unread;

/// The header by which a browser says which event it received last.
const LAST_EVENT_ID: &str = "last-event-id";

pub(super) async fn watch(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let id = run_id(&segment(path)?)?;
    let after = after(query.as_deref().unwrap_or_default(), &headers)?;
    let open = Some(state.streams.begin(&caller.tenant)?);
    // The stream ends as soon as the server begins to stop, so that its client watches elsewhere.
    let stop = state.stopping.clone();
    let unread = Some(unread);
    let watched = crate::watch::watch(&state.engine, &caller.tenant, id, after, stop, unread, open).await?;
    let events = watched.updates.filter_map(|update| ready(sent(update).map(Ok::<_, Infallible>)));
    let keep_alive = KeepAlive::new().interval(SIGN_OF_LIFE_EVERY).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    name_run(&mut response, id);
    name_trace(&mut response, watched.trace);
    Ok(response)
}

/// The sequence number of the last event that the client has: the query's, or that of a browser that reconnects.
fn after(query: &str, headers: &HeaderMap) -> Result<u64, ApiError> {
    let invalid = |name: &str, value: &str| {
        let message = format!("{name} must be the sequence number of an event (got `{}`)", shown(value));
        ApiError::on_field(ErrorCode::InvalidValue, name, message)
    };
    let header = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or_default());
    let mut after = header.map_or(Ok(0), |id| id.parse().map_err(|_| invalid(LAST_EVENT_ID, id)))?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        if let Some(("after", value)) = pair.split_once('=') {
            after = value.parse().map_err(|_| invalid("after", value))?;
        } else {
            let name = pair.split('=').next().unwrap_or(pair);
            let message = format!("unknown parameter `{}`; use `after`", shown(name));
            return Err(ApiError::on_field(ErrorCode::UnknownParameter, shown(name), message));
        }
    }
    Ok(after)
}

/// The event for an update; none for a heartbeat, in whose place comments are sent.
fn sent(update: Result<WatchRunResponse, ApiError>) -> Option<Event> {
    match update {
        Ok(update) => {
            let (sequence, event) = watch_event(&update)?;
            let sent = Event::default().event(event.name.unwrap_or_default()).data(event.data);
            Some(match sequence {
                Some(sequence) => sent.id(sequence.to_string()),
                None => sent,
            })
        }
        Err(error) => Some(Event::default().event("error").data(ErrorBody::new(&error).to_json())),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_watch_begins_after_the_last_event_of_its_client() {
        let browser = HeaderMap::from_iter([(LAST_EVENT_ID.parse().unwrap(), HeaderValue::from_static("7"))]);
        assert_eq!(after("", &HeaderMap::new()), Ok(0));
        assert_eq!(after("", &browser), Ok(7));
        assert_eq!(after("after=3", &browser), Ok(3));
        for query in ["after=x", "after", "after=-1", "before=3"] {
            let error = after(query, &HeaderMap::new()).unwrap_err();
            assert!(["after", "before"].contains(&error.param().unwrap()), "{query}: {error:?}");
        }
    }
}
