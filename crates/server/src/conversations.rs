//! The conversations of clients, for both APIs: finds, changes and continues them.

use std::sync::Arc;

use podium_api::openai::{
    ClientConversation, ConversationItems, ResponseId, ResponseWriter, conversation_id, is_conversation_id,
    unknown_conversation,
};
use podium_api::{ApiError, ErrorCode};
use podium_domain::ids::{RequestId, RunId, TenantId};
use podium_domain::run::Run;
use podium_engine::{Engine, Submitted};
use podium_ports::causes::with_causes;
use podium_ports::objects::Objects;

use crate::auth::Authenticator;
use crate::error_mapping;
use crate::http::random_id;
use crate::use_cases;

/// Most tries of a change that others forestall.
const TRIES_MAX: usize = 5;
/// Longest id that an error repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// The stored conversations of all tenants. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Conversations {
    engine: Engine,
    objects: Arc<dyn Objects>,
    auth: Authenticator,
}

/// A conversation and its stored version.
pub(crate) struct Stored {
    version: u64,
    pub(crate) conversation: ClientConversation,
}

/// A conversation that a new run joins.
pub(crate) struct Joined {
    id: String,
    stored: Stored,
}

impl Conversations {
    pub(crate) const fn new(engine: Engine, objects: Arc<dyn Objects>, auth: Authenticator) -> Self {
        Self { engine, objects, auth }
    }

    /// Stores the conversation that `make` makes of its id and the time in seconds since the Unix epoch. Returns both.
    pub(crate) async fn create(
        &self,
        tenant: &TenantId,
        make: impl FnOnce(&str, u64) -> Result<ClientConversation, ApiError>,
    ) -> Result<(String, ClientConversation), ApiError> {
        let id = conversation_id(&random_id().replace('-', ""));
        let conversation = make(&id, self.auth.now().unix_ms() / 1000)?;
        if !self.put(tenant, &id, 0, &conversation).await? {
            // Its id is random, so it exists only if the store repeated the call.
            self.find(tenant, "conversation_id", &id).await?;
        }
        Ok((id, conversation))
    }

    /// The conversation that `param` of a request names.
    pub(crate) async fn find(&self, tenant: &TenantId, param: &str, id: &str) -> Result<Stored, ApiError> {
        if !is_conversation_id(id) {
            return Err(unknown_conversation(param, id));
        }
        let found = self.objects.find_object(tenant, id).await.map_err(|e| error_mapping::store_error(&e))?;
        let found = found.ok_or_else(|| unknown_conversation(param, id))?;
        let conversation = ClientConversation::from_json(&found.body).ok_or_else(|| {
            let message =
                format!("conversation `{id}` cannot be decoded; a newer version may have stored it");
            ApiError::new(ErrorCode::Internal, message)
        })?;
        Ok(Stored { version: found.version, conversation })
    }

    /// Removes a conversation; its runs stay.
    pub(crate) async fn remove(&self, tenant: &TenantId, id: &str) -> Result<(), ApiError> {
        let unknown = || unknown_conversation("conversation_id", id);
        // Other objects are not the client's to remove.
        if !is_conversation_id(id) {
            return Err(unknown());
        }
        let removed = self.objects.remove_object(tenant, id).await;
        if removed.map_err(|e| error_mapping::store_error(&e))? { Ok(()) } else { Err(unknown()) }
    }

    /// Reads a conversation, changes it and stores it, again if another request changed it meanwhile. Returns what `change` returned,
    /// and the stored conversation.
    pub(crate) async fn changed<T>(
        &self,
        tenant: &TenantId,
        id: &str,
        change: impl Fn(&mut ClientConversation) -> Result<T, ApiError>,
    ) -> Result<(T, ClientConversation), ApiError> {
        for _ in 0..TRIES_MAX {
            let Stored { version, mut conversation } = self.find(tenant, "conversation_id", id).await?;
            let done = change(&mut conversation)?;
            if self.put(tenant, id, version, &conversation).await? {
                return Ok((done, conversation));
            }
        }
        Err(busy(id))
    }

    /// The items of a conversation. Runs that were removed are left out.
    pub(crate) async fn items_of(
        &self,
        tenant: &TenantId,
        conversation: &ClientConversation,
    ) -> Result<ConversationItems, ApiError> {
        Ok(conversation.items(&self.runs_of(tenant, conversation).await?))
    }

    /// The runs of a conversation that exist.
    pub(crate) async fn runs_of(
        &self,
        tenant: &TenantId,
        conversation: &ClientConversation,
    ) -> Result<Vec<Run>, ApiError> {
        let mut runs = Vec::new();
        for run in conversation.runs() {
            runs.extend(self.stored_run(tenant, run).await?);
        }
        Ok(runs)
    }

    /// The conversation `id` of a request for a run, and its items. If a run of the conversation has the same `request_id`, the request
    /// is a repeated one: the items are those before that run.
    pub(crate) async fn joined(
        &self,
        tenant: &TenantId,
        id: &str,
        request_id: Option<&RequestId>,
    ) -> Result<(Joined, ConversationItems), ApiError> {
        let stored = self.find(tenant, "conversation", id).await?;
        let runs = self.runs_of(tenant, &stored.conversation).await?;
        let is_same = |run: &&Run| request_id.is_some() && run.spec().request_id.as_ref() == request_id;
        let items = if let Some(earlier) = runs.iter().find(is_same) {
            stored.conversation.items_before(earlier.id(), &runs)
        } else {
            stored.conversation.is_free(&runs)?;
            stored.conversation.items(&runs)
        };
        Ok((Joined { id: id.to_owned(), stored }, items))
    }

    /// Adds a run to its conversation: a new one, or one whose process stopped before it was added, found by its request id. If the
    /// conversation was changed since it was read, a new run is cancelled.
    pub(crate) async fn join(
        &self,
        tenant: &TenantId,
        joined: Option<Joined>,
        submitted: &Submitted,
    ) -> Result<(), ApiError> {
        let Some(Joined { id, stored }) = joined else { return Ok(()) };
        let (run, is_new) = match submitted {
            Submitted::New(run) => (run.id(), true),
            Submitted::Existing(run) => (*run, false),
            Submitted::Continued { .. } => return Ok(()),
        };
        let mut conversation = stored.conversation;
        if conversation.runs().any(|known| known == run) {
            return Ok(());
        }
        let added = match conversation.add_response(run) {
            Ok(()) => self.put(tenant, &id, stored.version, &conversation).await,
            Err(error) => Err(error),
        };
        let error = match added {
            Ok(true) => return Ok(()),
            Ok(false) => busy(&id),
            Err(error) => error,
        };
        if is_new && let Err(error) = self.engine.cancel(run).await {
            tracing::debug!(%run, error = with_causes(&error), "a run whose conversation changed could not be cancelled");
        }
        Err(error)
    }

    /// The run of stored responses as it is now; none if the tenant has no such run, or one of its responses was removed.
    pub(crate) async fn stored_run(&self, tenant: &TenantId, id: RunId) -> Result<Option<Run>, ApiError> {
        let run = known(use_cases::load(&self.engine, tenant, id).await)?;
        let Some(run) = run.filter(|run| ResponseWriter::of(run).is_stored()) else { return Ok(None) };
        for reply in 0..=run.reply() {
            if self.is_removed(tenant, ResponseId::new(id, reply)).await? {
                return Ok(None);
            }
        }
        Ok(Some(run))
    }

    /// Whether a response was removed.
    pub(crate) async fn is_removed(&self, tenant: &TenantId, id: ResponseId) -> Result<bool, ApiError> {
        let mark = self.objects.find_object(tenant, &id.to_string()).await;
        mark.map(|mark| mark.is_some()).map_err(|e| error_mapping::store_error(&e))
    }

    async fn put(
        &self,
        tenant: &TenantId,
        id: &str,
        after: u64,
        conversation: &ClientConversation,
    ) -> Result<bool, ApiError> {
        let put = self.objects.put_object(tenant, id, after, &conversation.to_json(), self.auth.now()).await;
        put.map_err(|e| error_mapping::store_error(&e))
    }
}

/// The run that was loaded; none if it does not exist.
pub(crate) fn known(loaded: Result<Run, ApiError>) -> Result<Option<Run>, ApiError> {
    match loaded {
        Ok(run) => Ok(Some(run)),
        Err(error) if error.code == ErrorCode::RunNotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn busy(id: &str) -> ApiError {
    let shown: String = id.chars().take(SHOWN_CHARS_MAX).collect();
    let message =
        format!("conversation `{shown}` was changed by another request meanwhile; send the request again");
    ApiError::on_field(ErrorCode::ConversationLocked, "conversation", message)
}
