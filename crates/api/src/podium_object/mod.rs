//! The object `podium`, by which Podium extends the vendors' APIs.

mod request;
mod response;

pub(crate) use request::bound;
pub(crate) use response::{FailureBody, RunBody};

/// Parses the object alone. Tests compare that with the document.
#[cfg(test)]
pub(crate) fn reading(field: &crate::field::Field<'_>) -> Result<(), crate::ApiError> {
    use podium_domain::policy::{Effort, Policy, Tier};
    request::bound(field, &mut Policy::new(Tier::Ultra, Effort::Medium))
}
