//! The body of a rating. OpenAI's API has no ratings; this body is parsed as strictly as a completion's.

use crate::ApiError;
use crate::field::{Field, missing, unknown};
use crate::json;

/// A client's rating of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RatingRequest {
    /// From 0 (useless) to 1 (right). Thumb up is 1, thumb down is 0.
    pub score: f64,
    /// The comment, if the client wrote one.
    pub comment: Option<String>,
}

impl RatingRequest {
    /// Parses a body: either `score` or `thumb` (`up` or `down`), and optionally `comment`.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let object = json::parse_object(body)?;
        if let Some(name) = object.keys().find(|name| !["score", "thumb", "comment"].contains(&name.as_str()))
        {
            return Err(unknown(name));
        }
        let member = |name: &str| {
            let value = object.get(name).filter(|value| !value.is_null())?;
            Some(Field::new(name, value))
        };
        let score = match (member("score"), member("thumb")) {
            (Some(score), None) => score.number(0.0, 1.0)?,
            (None, Some(thumb)) if thumb.one_of(&["up", "down"])? == "up" => 1.0,
            (None, Some(_)) => 0.0,
            (None, None) => return Err(missing("score")),
            (Some(_), Some(thumb)) => return Err(thumb.unsupported("send either `score` or `thumb`")),
        };
        let comment = member("comment").map(|comment| comment.string().map(ToOwned::to_owned)).transpose()?;
        Ok(Self { score, comment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str) -> Result<(f64, Option<String>), String> {
        let parsed = RatingRequest::parse(body.as_bytes());
        parsed.map(|RatingRequest { score, comment }| (score, comment)).map_err(|error| error.message)
    }

    #[test]
    fn a_rating_is_a_score_or_a_thumb() {
        assert_eq!(parsed(r#"{"score": 0.5, "comment": "so so"}"#), Ok((0.5, Some("so so".to_owned()))));
        assert_eq!(parsed(r#"{"thumb": "up"}"#), Ok((1.0, None)));
        assert_eq!(parsed(r#"{"thumb": "down", "comment": null}"#), Ok((0.0, None)));
        for (body, said) in [
            ("no", "is not valid JSON"),
            ("[]", "must be a JSON object"),
            ("{}", "`score` is missing"),
            (r#"{"score": 2}"#, "from 0 to 1"),
            (r#"{"score": "1"}"#, "from 0 to 1"),
            (r#"{"thumb": "sideways"}"#, "one of `up`, `down`"),
            (r#"{"score": 1, "thumb": "up"}"#, "send either `score` or `thumb`"),
            (r#"{"score": 1, "comment": 7}"#, "a string"),
            (r#"{"score": 1, "stars": 5}"#, "unknown parameter `stars`"),
        ] {
            let problem = parsed(body).unwrap_err();
            assert!(problem.contains(said), "{body}: {problem}");
        }
    }
}
