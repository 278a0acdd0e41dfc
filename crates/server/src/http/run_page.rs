//! The query of `GET /v1/runs`: a page of the list, and the runs that it shows.

use podium_api::openapi::CREATED_SECONDS_MAX;
use podium_api::{ApiError, ErrorCode, ModelName};
use podium_domain::ids::RunId;
use podium_domain::policy::Tier;
use podium_domain::run::StateKind;
use podium_domain::time::Timestamp;
use podium_ports::store::RunFilter;

use super::request_checks::shown;

const PAGE_SIZE_DEFAULT: u32 = 20;
const PAGE_SIZE_MAX: u32 = 200;
/// The form of a time, for errors.
const SECONDS: &str = "a time in whole seconds since the Unix epoch";

/// The requested page of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunPage {
    /// The last run of the previous page.
    pub(super) after: Option<RunId>,
    /// Most runs of the page.
    pub(super) limit: u32,
    /// The runs that the list shows.
    pub(super) filter: RunFilter,
}

impl RunPage {
    /// Reads the names and values of a query, decoded.
    pub(super) fn of(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut page = Self { after: None, limit: PAGE_SIZE_DEFAULT, filter: RunFilter::default() };
        for (name, value) in query {
            page.read(name, value)?;
        }
        Ok(page)
    }

    fn read(&mut self, name: &str, value: &str) -> Result<(), ApiError> {
        let must_be = |expected: &str| {
            let message = format!("{name} must be {expected} (got `{}`)", shown(value));
            ApiError::on_field(ErrorCode::InvalidValue, name, message)
        };
        match name {
            "after" => {
                let id = value.parse().map_err(|_| must_be("the last_id of an earlier page"))?;
                self.after = Some(id);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE_SIZE_MAX).contains(limit));
                self.limit = limit.ok_or_else(|| must_be("a number from 1 to 200"))?;
            }
            "state" => {
                let state = StateKind::named(value).ok_or_else(|| {
                    must_be(
                        "`active`, `suspended`, `succeeded`, `failed` or `cancelled`; repeat it for several",
                    )
                })?;
                if !self.filter.states.contains(&state) {
                    self.filter.states.push(state);
                }
            }
            "tier" => {
                let tier = [Tier::Mini, Tier::Ultra].into_iter().find(|tier| tier.as_str() == value);
                self.filter.tier = Some(tier.ok_or_else(|| must_be("`mini` or `ultra`"))?);
            }
            "model" => {
                let model =
                    value.parse::<ModelName>().map_err(|e| must_be(&format!("a model's name: {e}")))?;
                self.filter.model = Some(model.to_string());
            }
            "created_after" => {
                self.filter.created_after = Some(time(value).ok_or_else(|| must_be(SECONDS))?);
            }
            "created_before" => {
                self.filter.created_before = Some(time(value).ok_or_else(|| must_be(SECONDS))?);
            }
            _ => {
                let message = format!(
                    "unknown parameter `{}`; use `after`, `limit`, `state`, `tier`, `model`, `created_after` and \
                     `created_before`",
                    shown(name)
                );
                return Err(ApiError::on_field(ErrorCode::UnknownParameter, shown(name), message));
            }
        }
        Ok(())
    }
}

fn time(value: &str) -> Option<Timestamp> {
    let seconds: u64 = value.parse().ok().filter(|seconds| *seconds <= CREATED_SECONDS_MAX)?;
    Some(Timestamp::from_unix_ms(seconds * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &[(&str, &str)]) -> Result<RunPage, ApiError> {
        let pairs: Vec<_> =
            query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RunPage::of(&pairs)
    }

    #[test]
    fn a_query_names_the_runs_of_the_list() {
        let page = read(&[
            ("state", "failed"),
            ("state", "cancelled"),
            ("state", "failed"),
            ("tier", "ultra"),
            ("model", "podium-ultra@nano-1"),
            ("created_after", "1700000000"),
            ("created_before", "1700000001"),
        ]);
        let expected = RunFilter {
            states: vec![StateKind::Failed, StateKind::Cancelled],
            tier: Some(Tier::Ultra),
            model: Some("podium-ultra@nano-1".to_owned()),
            created_after: Some(Timestamp::from_unix_ms(1_700_000_000_000)),
            created_before: Some(Timestamp::from_unix_ms(1_700_000_001_000)),
        };
        assert_eq!(page.unwrap().filter, expected);
        assert_eq!(read(&[]).unwrap(), RunPage { after: None, limit: 20, filter: RunFilter::default() });
    }

    #[test]
    fn an_error_names_the_invalid_parameter_of_a_list() {
        for (query, param, says) in [
            ([("state", "done"), ("limit", "1")], "state", "`active`, `suspended`"),
            ([("state", ""), ("limit", "1")], "state", "(got ``)"),
            ([("tier", "medium"), ("limit", "1")], "tier", "`mini` or `ultra`"),
            ([("model", "gpt-5"), ("limit", "1")], "model", "unknown model `gpt-5`"),
            ([("created_after", "-1"), ("limit", "1")], "created_after", "whole seconds"),
            ([("created_after", "2026-01-01"), ("limit", "1")], "created_after", "whole seconds"),
            ([("created_before", "99999999999999999"), ("limit", "1")], "created_before", "whole seconds"),
            ([("limit", "201"), ("limit", "1")], "limit", "1 to 200"),
            ([("metadata", "x"), ("limit", "1")], "metadata", "use `after`"),
        ] {
            let error = read(&query).unwrap_err();
            assert_eq!(error.param(), Some(param), "{error}");
            assert!(error.message.contains(says), "{error}");
        }
    }
}
