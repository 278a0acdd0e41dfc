//! Valid and invalid plans: by example, by property and at the bounds.

mod bounds;
mod check;
mod examples;
mod exercise;
mod head;
mod properties;

use super::*;
use crate::policy::{Effort, Policy, Tier};
use crate::pool::Pool;

/// A pool of three workers: `small`, `large` and `Coder`.
fn pool() -> Pool {
    let worker = |id: &str| {
        format!(
            "[[workers]]\nid = \"{id}\"\nvendor = \"local\"\nmodel = \"{id}-model\"\ndescription = \"a model\"\n\
             context_tokens = 8192\nusd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n",
        )
    };
    let head = "schema = 1\nname = \"test\"\nversion = \"1\"\n\
                [[vendors]]\nid = \"local\"\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    let toml = [head.to_owned(), worker("small"), worker("large"), worker("Coder")].concat();
    Pool::parse(&toml).unwrap()
}

fn policy() -> Policy {
    Policy::new(Tier::Ultra, Effort::Medium)
}

/// The lists on one line: `0 name | "text" | [] all none [0,1]`.
fn shown(draft: &PlanDraft) -> String {
    let id = |id: &RawId| match id {
        RawId::Index(index) => index.to_string(),
        RawId::Name(name) => format!("{name:?}"),
    };
    let access = |access: &RawAccess| match access {
        RawAccess::None => "none".to_owned(),
        RawAccess::All => "all".to_owned(),
        RawAccess::Indices(indices) => format!("{indices:?}").replace(' ', ""),
    };
    let ids: Vec<_> = draft.model_id.iter().map(id).collect();
    let subtasks: Vec<_> = draft.subtasks.iter().map(|text| format!("{text:?}")).collect();
    let accesses: Vec<_> = draft.access_list.iter().map(access).collect();
    format!("{} | {} | {}", ids.join(" "), subtasks.join(" "), accesses.join(" "))
}

/// The draft that the pieces build.
fn folded(pieces: impl IntoIterator<Item = PlanPiece>) -> PlanDraft {
    let mut draft = PlanDraft::default();
    pieces.into_iter().for_each(|piece| draft.apply(piece));
    draft
}
