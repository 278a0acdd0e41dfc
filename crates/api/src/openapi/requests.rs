//! The schemas of request parameters that have members: messages, items, content parts, tools and options.
//!
//! The parsers of the three APIs are the authority. Tests parse instances of each schema, valid and invalid ones, and compare the
//! members that a schema names with those that its parser accepts.

mod chat;
mod forms;
mod messages;
mod podium;
mod responses;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(super) use chat::of_chat;
pub(super) use messages::of_messages;
pub(super) use responses::of_responses;

/// The schemas by their names.
pub(super) fn schemas() -> Map<String, Value> {
    let all = [
        chat::schemas(),
        responses::schemas(),
        messages::schemas(),
        vec![("PodiumOptions", podium::schema())],
    ];
    all.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema)).collect()
}
