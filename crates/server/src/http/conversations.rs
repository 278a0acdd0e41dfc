//! `/v1/conversations`: conversations that clients store, and that responses continue.

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use podium_api::openai::ClientConversation;
use podium_api::{ApiError, ErrorCode};

use super::reply::{Refusal, json};
use super::request_checks::shown;
use super::responses::item_page;
use super::{ServerState, whole};
use crate::auth::Caller;
use crate::conversations::Stored;

/// The path of an item.
type ItemPath = Result<Path<(String, String)>, PathRejection>;

pub(super) async fn create(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, Refusal> {
    let body = whole(body).await?;
    let make = |id: &str, now: u64| ClientConversation::create(&body, id, now);
    let (id, conversation) = state.conversations().create(&caller.tenant, make).await?;
    Ok(json(conversation.body(&id)))
}

pub(super) async fn one(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = super::segment(path)?;
    let Stored { conversation, .. } =
        state.conversations().find(&caller.tenant, "conversation_id", &id).await?;
    Ok(json(conversation.body(&id)))
}

pub(super) async fn change(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    body: Body,
) -> Result<Response, Refusal> {
    let (id, body) = (super::segment(path)?, whole(body).await?);
    let change = |conversation: &mut ClientConversation| conversation.change(&body);
    let ((), conversation) = state.conversations().changed(&caller.tenant, &id, change).await?;
    Ok(json(conversation.body(&id)))
}

pub(super) async fn remove(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = super::segment(path)?;
    state.conversations().remove(&caller.tenant, &id).await?;
    Ok(json(ClientConversation::removed(&id)))
}

pub(super) async fn items(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let page = item_page(query.as_deref())?;
    let id = super::segment(path)?;
    let Stored { conversation, .. } =
        state.conversations().find(&caller.tenant, "conversation_id", &id).await?;
    let items = state.conversations().items_of(&caller.tenant, &conversation).await?;
    let page = items.page(&page).ok_or_else(|| {
        ApiError::on_field(
            ErrorCode::InvalidValue,
            "after",
            "after must be the id of an item of this conversation",
        )
    })?;
    Ok(json(page))
}

pub(super) async fn add_items(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    body: Body,
) -> Result<Response, Refusal> {
    let (id, body) = (super::segment(path)?, whole(body).await?);
    let add = |conversation: &mut ClientConversation| conversation.add_items(&id, &body);
    let (added, conversation) = state.conversations().changed(&caller.tenant, &id, add).await?;
    let items = conversation.items_at(added, &[]);
    Ok(json(items.page(&item_page(Some("order=asc&limit=100"))?).unwrap_or_default()))
}

pub(super) async fn item(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: ItemPath,
) -> Result<Response, Refusal> {
    let (id, item) = segments(path)?;
    let Stored { conversation, .. } =
        state.conversations().find(&caller.tenant, "conversation_id", &id).await?;
    let items = state.conversations().items_of(&caller.tenant, &conversation).await?;
    Ok(json(items.one(&item).ok_or_else(|| unknown_item(&item))?))
}

pub(super) async fn remove_item(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: ItemPath,
) -> Result<Response, Refusal> {
    let (id, item) = segments(path)?;
    let Stored { conversation, .. } =
        state.conversations().find(&caller.tenant, "conversation_id", &id).await?;
    // The items of a response do not change once it is complete.
    let runs = state.conversations().runs_of(&caller.tenant, &conversation).await?;
    let remove = |conversation: &mut ClientConversation| {
        let items = conversation.items(&runs);
        if conversation.remove_item(&item, &items) { Ok(()) } else { Err(unknown_item(&item)) }
    };
    let ((), conversation) = state.conversations().changed(&caller.tenant, &id, remove).await?;
    Ok(json(conversation.body(&id)))
}

fn unknown_item(id: &str) -> ApiError {
    let message = format!("item `{}` does not exist in this conversation", shown(id));
    ApiError::on_field(ErrorCode::ConversationNotFound, "item_id", message)
}

fn segments(path: ItemPath) -> Result<(String, String), ApiError> {
    let invalid = |_| ApiError::new(ErrorCode::RouteNotFound, "the path is not valid UTF-8");
    path.map(|Path(segments)| segments).map_err(invalid)
}
