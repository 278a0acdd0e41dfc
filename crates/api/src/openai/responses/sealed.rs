//! Reasoning items. They carry the worker's own ids and seals, which it expects back with the results of its calls.
//!
//! The client keeps the item and sends it back. So a turn continues with the same worker although the run that made the calls was
//! removed. The content is encrypted and belongs to one tenant: it shows nothing of the worker, and cannot be made or changed
//! outside. The same turn always has the same content, because a stream that is repeated must repeat its events.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use podium_domain::content::{Part, Reasoning, ToolCall};
use podium_domain::conversation::{Message, Role};
use podium_domain::ids::TenantId;
use podium_domain::run::{Run, RunState};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use serde::{Deserialize, Serialize};

/// Begins the content, and tells it from that of other systems.
const PREFIX: &str = "podium1.";
/// Separates the keys of this use from those of others.
const PURPOSE: &[u8] = b"podium reasoning items 1";

/// The calls of an answer as the worker made them, and the reasoning before them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    calls: Vec<ToolCall>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reasoning: Vec<Reasoning>,
}

/// Seals and opens the content of reasoning items.
pub struct TurnKey {
    sealing: LessSafeKey,
    nonces: hmac::Key,
}

impl std::fmt::Debug for TurnKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TurnKey")
    }
}

/// A key could not be derived, or a text could not be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reasoning item cannot be sealed")]
pub struct SealError;

impl TurnKey {
    /// The key of a deployment with this secret.
    pub fn new(secret: &[u8; 32]) -> Result<Self, SealError> {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, PURPOSE).extract(secret);
        let sealing = root.expand(&[b"seal"], &CHACHA20_POLY1305).map_err(|_| SealError)?;
        let nonces = root.expand(&[b"nonce"], hmac::HMAC_SHA256).map_err(|_| SealError)?;
        Ok(Self { sealing: LessSafeKey::new(UnboundKey::from(sealing)), nonces: hmac::Key::from(nonces) })
    }

    /// The content for a turn. Its nonce follows from the turn, so no nonce is used for two texts.
    pub(super) fn seal(&self, tenant: &TenantId, turn: &Turn) -> Result<String, SealError> {
        let mut text = serde_json::to_vec(turn).map_err(|_| SealError)?;
        let mut context = hmac::Context::with_key(&self.nonces);
        context.update(tenant.as_str().as_bytes());
        context.update(&[0]);
        context.update(&text);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&context.sign().as_ref()[..NONCE_LEN]);
        let (unique, tenant) = (Nonce::assume_unique_for_key(nonce), Aad::from(tenant.as_str().as_bytes()));
        self.sealing.seal_in_place_append_tag(unique, tenant, &mut text).map_err(|_| SealError)?;
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([&nonce[..], &text[..]].concat())))
    }

    /// The turn in a content. None if another system, another deployment or another tenant made it, or somebody changed it: then
    /// its calls are history, as those of a run that was removed.
    pub(super) fn open(&self, tenant: &TenantId, content: &str) -> Option<Turn> {
        let mut sealed = URL_SAFE_NO_PAD.decode(content.strip_prefix(PREFIX)?).ok()?;
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.sealing.open_in_place(nonce, Aad::from(tenant.as_str().as_bytes()), text).ok()?;
        serde_json::from_slice(text).ok()
    }
}

/// Whether a content looks like one of ours.
pub(super) fn is_ours(content: &str) -> bool {
    content.starts_with(PREFIX)
}

impl Turn {
    /// The last turn of a run's current reply; none if it has no calls. If several steps called, it has the reasoning of all.
    pub(super) fn of(run: &Run) -> Option<Self> {
        let calls = run.tool_calls();
        let steps = run.rounds().iter().flat_map(|round| &round.steps);
        let reasoning = match *run.state() {
            RunState::Succeeded { round, step } => {
                run.rounds().get(usize::from(round))?.steps.get(step.as_usize())?.reasoning.clone()
            }
            RunState::Suspended => {
                let turns = steps.flat_map(|step| &step.turns).filter(|turn| turn.reply == run.reply());
                turns.flat_map(|turn| turn.reasoning.iter().cloned()).collect()
            }
            RunState::Active | RunState::Failed { .. } | RunState::Cancelled => return None,
        };
        (!calls.is_empty()).then_some(Self { calls, reasoning })
    }

    fn begins(&self, message: &Message) -> bool {
        let first = message.calls().next().map(|call| &call.id);
        message.role == Role::Assistant && first.is_some() && first == self.calls.first().map(|call| &call.id)
    }

    /// The message as its worker wrote it. Calls that the client changed stay changed.
    fn restored(&self, message: &Message) -> Message {
        let known = |sent: &ToolCall| {
            let same = |known: &&ToolCall| {
                known.id == sent.id && known.name == sent.name && known.has_same_arguments(sent)
            };
            self.calls.iter().find(same).unwrap_or(sent).clone()
        };
        let parts = message.parts.iter().map(|part| match part {
            Part::ToolCall(sent) => Part::ToolCall(known(sent)),
            part => part.clone(),
        });
        let parts = self.reasoning.iter().cloned().map(Part::Reasoning).chain(parts);
        Message::new(message.role, &*message.text).with(parts)
    }
}

/// The messages with what their workers expect back.
pub(super) fn restored(messages: Vec<Message>, turns: &[Turn]) -> Vec<Message> {
    let restored =
        messages.into_iter().map(|message| match turns.iter().find(|turn| turn.begins(&message)) {
            Some(turn) => turn.restored(&message),
            None => message,
        });
    restored.collect()
}

#[cfg(test)]
mod tests {
    use podium_domain::content::Seal;
    use podium_domain::ids::WorkerId;

    use super::*;

    fn seal(mark: &str) -> Seal {
        Seal { worker: WorkerId::new("checker").unwrap(), mark: mark.to_owned() }
    }

    fn turn() -> Turn {
        let call = ToolCall {
            seal: Some(seal("s")),
            own_id: Some(seal("own")),
            ..ToolCall::new("call_1", "look", r#"{"a":1}"#)
        };
        let reasoning = Reasoning { text: "I look.".to_owned(), seal: Some(seal("r")) };
        Turn { calls: vec![call], reasoning: vec![reasoning] }
    }

    #[test]
    fn a_content_opens_for_its_tenant_and_deployment_only() {
        let (acme, other) = (TenantId::new("acme").unwrap(), TenantId::new("other").unwrap());
        let key = TurnKey::new(&[7; 32]).unwrap();
        let content = key.seal(&acme, &turn()).unwrap();
        assert!(is_ours(&content) && !content.contains("checker"));
        assert_eq!(key.seal(&acme, &turn()).unwrap(), content, "it is repeatable");
        assert_eq!(TurnKey::new(&[7; 32]).unwrap().open(&acme, &content), Some(turn()));
        assert_eq!(key.open(&other, &content), None);
        assert_eq!(TurnKey::new(&[8; 32]).unwrap().open(&acme, &content), None);
        let sealed = URL_SAFE_NO_PAD.decode(content.strip_prefix(PREFIX).unwrap()).unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let changed = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(changed));
            assert_eq!(key.open(&acme, &changed), None, "byte {at}");
        }
        for foreign in ["", "gAAAAABo", PREFIX, "podium1.AAAA", "podium1.!"] {
            assert_eq!(key.open(&acme, foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_turn_is_restored_unless_the_client_changed_it() {
        let said = |arguments: &str| {
            Message::new(Role::Assistant, "")
                .with([Part::ToolCall(ToolCall::new("call_1", "look", arguments))])
        };
        let whole = restored(vec![Message::new(Role::User, "why?"), said(r#"{ "a": 1 }"#)], &[turn()]);
        let expected =
            [Part::Reasoning(turn().reasoning[0].clone()), Part::ToolCall(turn().calls[0].clone())];
        assert_eq!(whole[1].parts, expected);
        let changed = restored(vec![said(r#"{"a":2}"#)], &[turn()]);
        assert_eq!(changed[0].calls().next().unwrap().own_id, None);
    }
}
