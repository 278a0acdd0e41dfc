//! The queries of requests for stored responses.

use podium_api::openai::{ItemOrder, ItemPage};
use podium_api::{ApiError, ErrorCode};

use crate::http::request_checks::shown;

const PAGE_SIZE_DEFAULT: usize = 20;
const PAGE_SIZE_MAX: usize = 100;

/// The query of a request for one response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseQuery {
    /// Whether the response is streamed again.
    pub(super) stream: bool,
    /// The number of the last event that the client has.
    pub(super) starting_after: Option<u64>,
}

impl ResponseQuery {
    pub(super) fn of(query: &str) -> Result<Self, ApiError> {
        let mut read = Self::default();
        for pair in Pair::all(query) {
            match pair.name {
                "stream" => read.stream = pair.flag()?,
                "starting_after" => {
                    let number = pair.value.parse().map_err(|_| pair.must_be("the number of an event"))?;
                    read.starting_after = Some(number);
                }
                "include_obfuscation" => drop(pair.flag()?),
                _ if pair.is_include() => {}
                _ => return Err(pair.unknown("`stream` and `starting_after`")),
            }
        }
        if read.starting_after.is_some() && !read.stream {
            let message = "`starting_after` is allowed only when `stream` is true";
            return Err(ApiError::on_field(ErrorCode::InvalidValue, "starting_after", message));
        }
        Ok(read)
    }
}

/// The page of items that a query names.
pub(super) fn item_page_of(query: &str) -> Result<ItemPage, ApiError> {
    let mut read = ItemPage { order: ItemOrder::Descending, after: None, limit: PAGE_SIZE_DEFAULT };
    for pair in Pair::all(query) {
        match pair.name {
            "order" => {
                read.order = match pair.value {
                    "asc" => ItemOrder::Ascending,
                    "desc" => ItemOrder::Descending,
                    _ => return Err(pair.must_be("`asc` or `desc`")),
                }
            }
            "after" => read.after = Some(pair.value.to_owned()),
            "limit" => {
                let limit = pair.value.parse().ok().filter(|limit| (1..=PAGE_SIZE_MAX).contains(limit));
                read.limit = limit.ok_or_else(|| pair.must_be("a number from 1 to 100"))?;
            }
            _ if pair.is_include() => {}
            _ => return Err(pair.unknown("`order`, `after` and `limit`")),
        }
    }
    Ok(read)
}

/// A name and its value.
#[derive(Clone, Copy)]
struct Pair<'q> {
    name: &'q str,
    value: &'q str,
}

impl<'q> Pair<'q> {
    fn all(query: &'q str) -> impl Iterator<Item = Self> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Self { name, value }
        })
    }

    /// Additional output, which no response here has. SDKs write the brackets of a list encoded or not.
    fn is_include(self) -> bool {
        matches!(self.name, "include" | "include[]" | "include%5B%5D")
    }

    fn flag(self) -> Result<bool, ApiError> {
        self.value.parse().map_err(|_| self.must_be("true or false"))
    }

    fn must_be(self, expected: &str) -> ApiError {
        let message = format!("{} must be {expected} (got `{}`)", self.name, shown(self.value));
        ApiError::on_field(ErrorCode::InvalidValue, self.name, message)
    }

    fn unknown(self, known: &str) -> ApiError {
        let message = format!("unknown parameter `{}`; use {known}", shown(self.name));
        ApiError::on_field(ErrorCode::UnknownParameter, self.name, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_to_stream() {
        let read = |query: &str| ResponseQuery::of(query);
        assert_eq!(read("").unwrap(), ResponseQuery::default());
        let after = ResponseQuery { stream: true, starting_after: Some(7) };
        assert_eq!(read("stream=true&starting_after=7&include%5B%5D=x").unwrap(), after);
        for (query, param) in [
            ("stream=yes", "stream"),
            ("stream=true&starting_after=-1", "starting_after"),
            ("starting_after=1", "starting_after"),
            ("page=1", "page"),
        ] {
            assert_eq!(read(query).unwrap_err().param(), Some(param), "{query}");
        }
    }

    #[test]
    fn a_query_names_a_page_of_items() {
        let read = |query: &str| item_page_of(query);
        let default = ItemPage { order: ItemOrder::Descending, after: None, limit: 20 };
        assert_eq!(read("").unwrap(), default);
        let page = ItemPage { order: ItemOrder::Ascending, after: Some("msg_1".into()), limit: 100 };
        assert_eq!(read("order=asc&after=msg_1&limit=100").unwrap(), page);
        for (query, param) in
            [("order=up", "order"), ("limit=0", "limit"), ("limit=101", "limit"), ("page=1", "page")]
        {
            assert_eq!(read(query).unwrap_err().param(), Some(param), "{query}");
        }
    }
}
