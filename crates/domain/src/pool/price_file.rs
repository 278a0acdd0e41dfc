//! Prices in the pool file: one table, or several with the day from which each is valid.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use toml::value::Datetime;

use crate::money::{Price, Prices};
use crate::prices::{LongPrompt, PriceList, PriceLists};
use crate::time::Timestamp;

/// The price of writing to a vendor's cache, as a multiple of the price of a prompt.
const CACHE_WRITE: f64 = 1.25;

/// US dollars per million tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PriceEntry {
    /// The UTC day from whose beginning these prices are valid; `None` for prices without a beginning.
    from: Option<Datetime>,
    input: f64,
    /// Default: `input`.
    cached_input: Option<f64>,
    /// Default: a quarter more than `input` if `cached_input` is set, as OpenAI and Anthropic bill it; otherwise `input`.
    cache_write: Option<f64>,
    output: f64,
    /// Default: `output`.
    reasoning: Option<f64>,
    long_prompt: Option<LongPromptEntry>,
}

/// The prices of calls whose prompt is longer than `above_tokens`, with the same defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongPromptEntry {
    above_tokens: u64,
    input: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    output: f64,
    reasoning: Option<f64>,
}

/// The prices of a table, before defaults.
#[derive(Clone, Copy)]
struct Written {
    input: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    output: f64,
    reasoning: Option<f64>,
}

/// One price list or several.
pub(super) struct PriceEntries(Vec<PriceEntry>);

impl<'de> Deserialize<'de> for PriceEntries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral;

        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = PriceEntries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of prices, or an array of such tables with `from`")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PriceEntries, A::Error> {
                PriceEntry::deserialize(MapAccessDeserializer::new(map)).map(|one| PriceEntries(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<PriceEntries, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(PriceEntries)
            }
        }

        deserializer.deserialize_any(OneOrSeveral)
    }
}

/// The worker's price lists. Adds problems to `problems`.
pub(super) fn prices(entries: &PriceEntries, at: &str, problems: &mut Vec<String>) -> Option<PriceLists> {
    let lists = entries.0.iter().map(|entry| list(entry, at, problems)).collect::<Vec<_>>();
    let lists = lists.into_iter().collect::<Option<Vec<_>>>()?;
    PriceLists::new(lists).map_err(|e| problems.push(format!("{at}: usd_per_million_tokens: {e}"))).ok()
}

fn list(entry: &PriceEntry, at: &str, problems: &mut Vec<String>) -> Option<PriceList> {
    let from = entry.from.map_or(Some(Timestamp::from_unix_ms(0)), |from| {
        let day = day(from);
        if day.is_none() {
            problems.push(format!(
                "{at}: usd_per_million_tokens.from is {from}, it must be a day of 1970 or later, such as 2026-01-01"
            ));
        }
        day
    });
    let PriceEntry { input, cached_input, cache_write, output, reasoning, .. } = *entry;
    let written = Written { input, cached_input, cache_write, output, reasoning };
    let prices = written.check(at, "", problems);
    let long_prompt = entry.long_prompt.as_ref().map(|long| long.check(at, problems));
    let long_prompt = match long_prompt {
        None => None,
        Some(long) => Some(long?),
    };
    Some(PriceList { from: from?, prices: prices?, long_prompt })
}

impl LongPromptEntry {
    fn check(&self, at: &str, problems: &mut Vec<String>) -> Option<LongPrompt> {
        let &Self { above_tokens, input, cached_input, cache_write, output, reasoning } = self;
        let written = Written { input, cached_input, cache_write, output, reasoning };
        let prices = written.check(at, "long_prompt.", problems);
        if above_tokens == 0 {
            problems.push(format!(
                "{at}: usd_per_million_tokens.long_prompt.above_tokens is 0, it must be at least 1"
            ));
            return None;
        }
        Some(LongPrompt { above_tokens, prices: prices? })
    }
}

impl Written {
    fn check(self, at: &str, within: &str, problems: &mut Vec<String>) -> Option<Prices> {
        let mut price = |field: &str, usd: f64| {
            let price = Price::from_usd_per_million_tokens(usd);
            if price.is_none() {
                problems.push(format!(
                    "{at}: usd_per_million_tokens.{within}{field} is {usd}, it must be 0 to 1e9"
                ));
            }
            price
        };
        let usual_write = if self.cached_input.is_some() { self.input * CACHE_WRITE } else { self.input };
        let input = price("input", self.input);
        let cached_input = price("cached_input", self.cached_input.unwrap_or(self.input));
        let cache_write = price("cache_write", self.cache_write.unwrap_or(usual_write));
        let output = price("output", self.output);
        let reasoning = price("reasoning", self.reasoning.unwrap_or(self.output));
        Some(Prices {
            input: input?,
            cached_input: cached_input?,
            cache_write: cache_write?,
            output: output?,
            reasoning: reasoning?,
        })
    }
}

/// The beginning of a day; `None` if `from` has a time of day.
fn day(from: Datetime) -> Option<Timestamp> {
    let (Some(date), None, None) = (from.date, from.time, from.offset) else { return None };
    let month = time::Month::try_from(date.month).ok()?;
    let day = time::Date::from_calendar_date(date.year.into(), month, date.day).ok()?;
    let seconds = u64::try_from(day.midnight().assume_utc().unix_timestamp()).ok()?;
    Some(Timestamp::from_unix_ms(seconds.checked_mul(1000)?))
}
