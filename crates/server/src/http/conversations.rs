//! `/v1/conversations`: conversations that clients store, and that responses continue.

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use podium_api::openai::{
    ClientConversation, ConversationItems, conversation_id, is_conversation_id, unknown_conversation,
};
use podium_api::{ApiError, ErrorCode};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::run::Run;
use podium_engine::Submitted;
use podium_ports::causes::with_causes;

use super::reply::{Refusal, json};
use super::request_checks::shown;
use super::responses::{item_page, stored_run};
use super::{ServerState, layers, whole};
use crate::auth::Caller;
use crate::error_mapping;

/// Most tries of a change that others forestall.
const TRIES_MAX: usize = 5;

/// A conversation and its stored version.
pub(super) struct Stored {
    pub(super) version: u64,
    pub(super) conversation: ClientConversation,
}

/// The path of an item.
type ItemPath = Result<Path<(String, String)>, PathRejection>;

pub(super) async fn create(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, Refusal> {
    let body = whole(body).await?;
    let id = conversation_id(&layers::random_id().replace('-', ""));
    let made = ClientConversation::create(&body, &id, state.auth.now().unix_ms() / 1000)?;
    let is_stored = put(&state, &caller.tenant, &id, 0, &made).await?;
    if !is_stored {
        // Its id is random, so it exists only if the store repeated the call.
        find(&state, &caller.tenant, "conversation_id", &id).await?;
    }
    Ok(json(made.body(&id)))
}

pub(super) async fn one(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = super::segment(path)?;
    let Stored { conversation, .. } = find(&state, &caller.tenant, "conversation_id", &id).await?;
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
    let ((), conversation) = changed(&state, &caller.tenant, &id, change).await?;
    Ok(json(conversation.body(&id)))
}

pub(super) async fn remove(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = super::segment(path)?;
    let unknown = || unknown_conversation("conversation_id", &id);
    // Other objects are not the client's to remove.
    if !is_conversation_id(&id) {
        return Err(unknown().into());
    }
    let removed = state.objects.remove_object(&caller.tenant, &id).await;
    if !removed.map_err(|e| error_mapping::store_error(&e))? {
        return Err(unknown().into());
    }
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
    let Stored { conversation, .. } = find(&state, &caller.tenant, "conversation_id", &id).await?;
    let items = items_of(&state, &caller.tenant, &conversation).await?;
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
    let (added, conversation) = changed(&state, &caller.tenant, &id, add).await?;
    let items = conversation.items_at(added, &[]);
    Ok(json(items.page(&item_page(Some("order=asc&limit=100"))?).unwrap_or_default()))
}

pub(super) async fn item(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: ItemPath,
) -> Result<Response, Refusal> {
    let (id, item) = segments(path)?;
    let Stored { conversation, .. } = find(&state, &caller.tenant, "conversation_id", &id).await?;
    let items = items_of(&state, &caller.tenant, &conversation).await?;
    Ok(json(items.one(&item).ok_or_else(|| unknown_item(&item))?))
}

pub(super) async fn remove_item(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: ItemPath,
) -> Result<Response, Refusal> {
    let (id, item) = segments(path)?;
    let Stored { conversation, .. } = find(&state, &caller.tenant, "conversation_id", &id).await?;
    // The items of a response do not change once it is complete.
    let runs = runs_of(&state, &caller.tenant, &conversation).await?;
    let remove = |conversation: &mut ClientConversation| {
        let items = conversation.items(&runs);
        if conversation.remove_item(&item, &items) { Ok(()) } else { Err(unknown_item(&item)) }
    };
    let ((), conversation) = changed(&state, &caller.tenant, &id, remove).await?;
    Ok(json(conversation.body(&id)))
}

/// Reads a conversation, changes it and stores it, again if another request changed it meanwhile. Returns what `change` returned, and the
/// stored conversation.
async fn changed<T>(
    state: &ServerState,
    tenant: &TenantId,
    id: &str,
    change: impl Fn(&mut ClientConversation) -> Result<T, ApiError>,
) -> Result<(T, ClientConversation), ApiError> {
    for _ in 0..TRIES_MAX {
        let Stored { version, mut conversation } = find(state, tenant, "conversation_id", id).await?;
        let done = change(&mut conversation)?;
        if put(state, tenant, id, version, &conversation).await? {
            return Ok((done, conversation));
        }
    }
    Err(busy(id))
}

/// The conversation that `param` of a request names.
pub(super) async fn find(
    state: &ServerState,
    tenant: &TenantId,
    param: &str,
    id: &str,
) -> Result<Stored, ApiError> {
    if !is_conversation_id(id) {
        return Err(unknown_conversation(param, id));
    }
    let found = state.objects.find_object(tenant, id).await.map_err(|e| error_mapping::store_error(&e))?;
    let found = found.ok_or_else(|| unknown_conversation(param, id))?;
    let conversation = ClientConversation::from_json(&found.body).ok_or_else(|| {
        let message = format!("conversation `{id}` cannot be decoded; a newer version may have stored it");
        ApiError::new(ErrorCode::Internal, message)
    })?;
    Ok(Stored { version: found.version, conversation })
}

/// The items of a conversation. Responses that were removed with their runs are left out.
pub(super) async fn items_of(
    state: &ServerState,
    tenant: &TenantId,
    conversation: &ClientConversation,
) -> Result<ConversationItems, ApiError> {
    Ok(conversation.items(&runs_of(state, tenant, conversation).await?))
}

async fn runs_of(
    state: &ServerState,
    tenant: &TenantId,
    conversation: &ClientConversation,
) -> Result<Vec<Run>, ApiError> {
    let mut runs = Vec::new();
    for run in conversation.runs() {
        runs.extend(stored_run(state, tenant, run).await?);
    }
    Ok(runs)
}

/// A conversation that a new response joins.
pub(super) struct Joined {
    id: String,
    stored: Stored,
}

/// The conversation of a request, and its items.
pub(super) async fn joined(
    state: &ServerState,
    tenant: &TenantId,
    id: &str,
) -> Result<(Joined, ConversationItems), ApiError> {
    let stored = find(state, tenant, "conversation", id).await?;
    let runs = runs_of(state, tenant, &stored.conversation).await?;
    stored.conversation.is_free(&runs)?;
    let items = stored.conversation.items(&runs);
    Ok((Joined { id: id.to_owned(), stored }, items))
}

/// Adds a new response to its conversation. If the conversation was changed since it was read, the response is cancelled.
pub(super) async fn join(
    state: &ServerState,
    tenant: &TenantId,
    joined: Option<Joined>,
    submitted: &Submitted,
) -> Result<(), ApiError> {
    let (Some(Joined { id, stored }), Submitted::New(run)) = (joined, submitted) else { return Ok(()) };
    let (mut conversation, run) = (stored.conversation, run.id());
    let added = match conversation.add_response(run) {
        Ok(()) => put(state, tenant, &id, stored.version, &conversation).await,
        Err(error) => Err(error),
    };
    let error = match added {
        Ok(true) => return Ok(()),
        Ok(false) => busy(&id),
        Err(error) => error,
    };
    cancel(state, run).await;
    Err(error)
}

async fn cancel(state: &ServerState, run: RunId) {
    if let Err(error) = state.engine.cancel(run).await {
        tracing::debug!(%run, error = with_causes(&error), "a response whose conversation changed could not be cancelled");
    }
}

async fn put(
    state: &ServerState,
    tenant: &TenantId,
    id: &str,
    after: u64,
    conversation: &ClientConversation,
) -> Result<bool, ApiError> {
    let put = state.objects.put_object(tenant, id, after, &conversation.to_json(), state.auth.now()).await;
    put.map_err(|e| error_mapping::store_error(&e))
}

fn busy(id: &str) -> ApiError {
    let message = format!(
        "conversation `{}` was changed by another request meanwhile; send the request again",
        shown(id)
    );
    ApiError::on_field(ErrorCode::ConversationLocked, "conversation", message)
}

fn unknown_item(id: &str) -> ApiError {
    let message = format!("item `{}` does not exist in this conversation", shown(id));
    ApiError::on_field(ErrorCode::ConversationNotFound, "item_id", message)
}

fn segments(path: ItemPath) -> Result<(String, String), ApiError> {
    let invalid = |_| ApiError::new(ErrorCode::RouteNotFound, "the path is not valid UTF-8");
    path.map(|Path(segments)| segments).map_err(invalid)
}
