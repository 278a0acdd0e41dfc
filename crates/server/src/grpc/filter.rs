//! The filter of a list of runs: restrictions with AND between them, as AIP-160 writes them.

use podium_api::{ApiError, ErrorCode};
use podium_domain::policy::Tier;
use podium_domain::run::StateKind;
use podium_domain::time::Timestamp;
use podium_ports::store::RunFilter;

/// Longest filter.
const BYTES_MAX: usize = 1024;
/// Most characters of a client's text that an error repeats.
const SHOWN_CHARS_MAX: usize = 60;
/// The prefix of states in the protocol, which may be left out.
const STATE_PREFIX: &str = "RUN_STATE_";
const FORM: &str = "filter must be restrictions with AND between them, such as \
                    state = SUCCEEDED AND tier = ultra AND create_time >= \"2026-11-01T00:00:00Z\"";

/// A piece of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Quoted(String),
    Operator(&'static str),
}

/// Reads a filter; an empty one restricts nothing. An error names the restriction.
pub(super) fn filter(text: &str) -> Result<RunFilter, ApiError> {
    if text.len() > BYTES_MAX {
        return Err(invalid(format!("filter has {} bytes, the limit is {BYTES_MAX}", text.len())));
    }
    let mut filter = RunFilter::default();
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(filter);
    }
    for restriction in tokens.split(|token| *token == Token::Word("AND")) {
        let [Token::Word(field), Token::Operator(operator), value] = restriction else {
            return Err(invalid(FORM));
        };
        let value = match value {
            Token::Word(word) => (*word).to_owned(),
            Token::Quoted(text) => text.clone(),
            Token::Operator(_) => return Err(invalid(FORM)),
        };
        restrict(&mut filter, field, operator, &value)?;
    }
    Ok(filter)
}

fn restrict(filter: &mut RunFilter, field: &str, operator: &str, value: &str) -> Result<(), ApiError> {
    let is_new = match field {
        "state" => {
            let state = state(equal(field, operator, value)?)?;
            filter.states.push(state);
            filter.states.len() == 1
        }
        "tier" => filter.tier.replace(tier(equal(field, operator, value)?)?).is_none(),
        "model" => filter.model.replace(equal(field, operator, value)?.to_owned()).is_none(),
        "create_time" => {
            let at = time(value)?;
            // The stored times are whole milliseconds.
            let next = Timestamp::from_unix_ms(at.unix_ms().saturating_add(1));
            match operator {
                ">=" => filter.created_after.replace(at).is_none(),
                ">" => filter.created_after.replace(next).is_none(),
                "<" => filter.created_before.replace(at).is_none(),
                "<=" => filter.created_before.replace(next).is_none(),
                _ => {
                    return Err(invalid(format!(
                        "filter compares create_time by `{operator}`, use >=, >, < or <="
                    )));
                }
            }
        }
        other => {
            return Err(invalid(format!(
                "filter has the unknown field `{}`; use state, tier, model and create_time",
                shown(other)
            )));
        }
    };
    if is_new { Ok(()) } else { Err(invalid(format!("filter restricts {field} twice in one direction"))) }
}

fn equal<'a>(field: &str, operator: &str, value: &'a str) -> Result<&'a str, ApiError> {
    if operator == "=" {
        return Ok(value);
    }
    Err(invalid(format!("filter compares {field} by `{operator}`, use =")))
}

fn state(value: &str) -> Result<StateKind, ApiError> {
    let name = value.strip_prefix(STATE_PREFIX).unwrap_or(value).to_ascii_lowercase();
    StateKind::named(&name).ok_or_else(|| {
        let names = StateKind::ALL.map(|kind| kind.as_str().to_ascii_uppercase()).join(", ");
        invalid(format!("filter has the unknown state `{}`; use one of {names}", shown(value)))
    })
}

fn tier(value: &str) -> Result<Tier, ApiError> {
    let found = [Tier::Mini, Tier::Ultra].into_iter().find(|tier| tier.as_str() == value);
    found.ok_or_else(|| invalid(format!("filter has the unknown tier `{}`; use mini or ultra", shown(value))))
}

fn time(value: &str) -> Result<Timestamp, ApiError> {
    let wrong = || {
        let value = shown(value);
        invalid(format!("filter has the time `{value}`; use RFC 3339, such as \"2026-11-01T00:00:00Z\""))
    };
    let at: prost_types::Timestamp = value.parse().map_err(|_| wrong())?;
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(at.seconds), u64::try_from(at.nanos)) else {
        return Err(wrong());
    };
    Ok(Timestamp::from_unix_ms(seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)))
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, ApiError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '"' || first == '\'' {
            let (quoted, after) = quoted(&rest[1..], first)?;
            tokens.push(Token::Quoted(quoted));
            rest = after;
        } else if let Some(operator) =
            [">=", "<=", "!=", ">", "<", "=", ":"].into_iter().find(|operator| rest.starts_with(operator))
        {
            tokens.push(Token::Operator(operator));
            rest = &rest[operator.len()..];
        } else {
            let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.@/+".contains(c);
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(invalid(format!("{FORM}; `{}` is not allowed", shown(&first.to_string()))));
            }
            tokens.push(Token::Word(&rest[..end]));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// The text up to the closing quote, and the rest after it.
fn quoted(text: &str, quote: char) -> Result<(String, &str), ApiError> {
    let mut read = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => read.extend(chars.next().map(|(_, escaped)| escaped)),
            c if c == quote => return Ok((read, &text[at + c.len_utf8()..])),
            c => read.push(c),
        }
    }
    Err(invalid("filter has a text without a closing quote"))
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::on_field(ErrorCode::InvalidValue, "filter", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restrictions_are_combined() {
        assert_eq!(filter(" "), Ok(RunFilter::default()));
        let all = "state = RUN_STATE_FAILED AND tier=mini AND model = \"podium-mini@nano-1\" \
                   AND create_time >= '2024-03-01T00:00:00Z' AND create_time<\"2024-03-02T00:00:00.5Z\"";
        let expected = RunFilter {
            states: vec![StateKind::Failed],
            tier: Some(Tier::Mini),
            model: Some("podium-mini@nano-1".to_owned()),
            created_after: Some(Timestamp::from_unix_ms(1_709_251_200_000)),
            created_before: Some(Timestamp::from_unix_ms(1_709_337_600_500)),
        };
        assert_eq!(filter(all), Ok(expected));
        let edges =
            filter("create_time > \"2024-03-01T00:00:00Z\" AND create_time <= \"2024-03-01T00:00:00Z\"");
        let edges = edges.unwrap();
        let next = Some(Timestamp::from_unix_ms(1_709_251_200_001));
        assert_eq!((edges.created_after, edges.created_before), (next, next));
        assert_eq!(filter("state = suspended").unwrap().states, [StateKind::Suspended]);
    }

    #[test]
    fn an_invalid_filter_names_its_problem() {
        for (text, words) in [
            ("state", "restrictions with AND"),
            ("state = FAILED OR state = SUCCEEDED", "restrictions with AND"),
            ("state = FAILED AND", "restrictions with AND"),
            ("NOT state = FAILED", "restrictions with AND"),
            ("state = = FAILED", "restrictions with AND"),
            ("(state = FAILED)", "`(` is not allowed"),
            ("state = DONE", "unknown state `DONE`; use one of ACTIVE, SUSPENDED"),
            ("state != FAILED", "compares state by `!=`"),
            ("state = FAILED AND state = ACTIVE", "restricts state twice"),
            ("tier = max", "unknown tier `max`"),
            ("colour = red", "unknown field `colour`"),
            ("create_time = \"2024-03-01T00:00:00Z\"", "compares create_time by `=`"),
            ("create_time > yesterday", "the time `yesterday`; use RFC 3339"),
            ("create_time > \"1969-01-01T00:00:00Z\"", "use RFC 3339"),
            ("model = \"podium", "closing quote"),
        ] {
            let error = filter(text).unwrap_err();
            assert_eq!(error.param(), Some("filter"));
            assert!(error.message.contains(words), "{text}: {error}");
        }
        assert!(filter(&"a".repeat(1025)).unwrap_err().message.contains("the limit is 1024"));
    }
}
