//! Conversations over gRPC.

use std::collections::BTreeMap;

use podium_api::openai::{ClientConversation, ConversationItem};
use podium_api::{ApiError, ErrorCode, stored_messages, timestamp, v1};
use podium_domain::ids::TenantId;
use podium_domain::time::Timestamp;

use super::service::page_size;
use crate::conversations::Conversations;

const CONVERSATION_ID: &str = "conversation_id";

pub(super) async fn create(
    conversations: &Conversations,
    tenant: &TenantId,
    v1::CreateConversationRequest { messages, metadata }: v1::CreateConversationRequest,
) -> Result<v1::CreateConversationResponse, ApiError> {
    let (messages, metadata) = (stored_messages(messages)?, BTreeMap::from_iter(metadata));
    let make = |id: &str, now: u64| ClientConversation::of_messages(&messages, &metadata, id, now);
    let (id, stored) = conversations.create(tenant, make).await?;
    Ok(v1::CreateConversationResponse { conversation: Some(message_of(id, &stored)) })
}

pub(super) async fn one(
    conversations: &Conversations,
    tenant: &TenantId,
    v1::GetConversationRequest { conversation_id: id }: v1::GetConversationRequest,
) -> Result<v1::GetConversationResponse, ApiError> {
    let found = conversations.find(tenant, CONVERSATION_ID, &id).await?;
    Ok(v1::GetConversationResponse { conversation: Some(message_of(id, &found.conversation)) })
}

pub(super) async fn items(
    conversations: &Conversations,
    tenant: &TenantId,
    request: v1::ListConversationItemsRequest,
) -> Result<v1::ListConversationItemsResponse, ApiError> {
    let found = conversations.find(tenant, CONVERSATION_ID, &request.conversation_id).await?;
    let mut items = conversations.items_of(tenant, &found.conversation).await?.into_messages();
    if !request.page_token.is_empty() {
        let last = items.iter().position(|item| item.id == request.page_token);
        items.drain(..=last.ok_or_else(unknown_page)?);
    }
    let size = page_size(request.page_size) as usize;
    let has_more = items.len() > size;
    items.truncate(size);
    let next_page_token = items.last().filter(|_| has_more).map(|item| item.id.clone()).unwrap_or_default();
    let items = items.into_iter().map(|ConversationItem { id, message }| v1::ConversationItem {
        item_id: id,
        message: Some((&message).into()),
    });
    Ok(v1::ListConversationItemsResponse { items: items.collect(), next_page_token })
}

pub(super) async fn remove(
    conversations: &Conversations,
    tenant: &TenantId,
    v1::DeleteConversationRequest { conversation_id: id }: v1::DeleteConversationRequest,
) -> Result<v1::DeleteConversationResponse, ApiError> {
    conversations.remove(tenant, &id).await?;
    Ok(v1::DeleteConversationResponse {})
}

fn message_of(id: String, conversation: &ClientConversation) -> v1::Conversation {
    let created_at = Timestamp::from_unix_ms(conversation.created_at().saturating_mul(1000));
    v1::Conversation {
        conversation_id: id,
        create_time: Some(timestamp(created_at)),
        metadata: conversation.metadata().clone().into_iter().collect(),
    }
}

fn unknown_page() -> ApiError {
    let message =
        "page_token must be empty or the next_page_token of an earlier response for this conversation";
    ApiError::on_field(ErrorCode::InvalidValue, "page_token", message)
}
