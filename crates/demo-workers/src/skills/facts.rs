//! A small table of general knowledge: capitals, currencies, elements, counts of parts, years of events.

use super::{Refusal, Wordings, facts_table};
use crate::language::{
    reader::{Binding, Operands},
    token::Token,
};

/// Most words of a subject.
const SUBJECT_WORDS_MAX: usize = 8;

pub(crate) const FRAGMENTS: &[(&str, &str)] = &[
    ("name", "(name|recall|state|say|give|tell me|look up|find) [only] [which|what]"),
    ("which", "(which|what) [is]"),
    (
        "count",
        "[name|recall|state|say|give|tell me|look up|count] [the] [total|full|exact] [number of|count of|amount of|how many]",
    ),
    ("many", "(with|on|by|of|in) how many"),
    (
        "has",
        "[has|have|uses|consist of|consist|walk on|walk|bounded|played|among the chemical elements|in all|in total]",
    ),
    ("happened", "[happened|happen|took place|take place|occurred|occur|was|began|begin]"),
];

pub(crate) const WORDINGS: &[Wordings] = &[
    Wordings {
        nouns: &[
            "[the] [name of] [the] (capital|capital city|city) (that|which) [the element] {x:f} (has)",
            "[the] [name of] [the] (capital|capital city|city) ... {x:f}",
            "{x:f} 's capital [city]",
        ],
        verbs: &[
            "$name [the] [name of] [the] (capital|capital city|city) ... {x:f} [has|have] [as its capital]",
            "$which [the] [name of] [the] (capital|capital city|city) ... {x:f} [has|have] [as its capital]",
        ],
        binding: Binding::Other,
        compute: |operands| fact(operands, "capital"),
    },
    Wordings {
        nouns: &[
            "[the] [name of] [the] (currency|money) (that|which) [the element] {x:f} (uses|use)",
            "[the] [name of] [the] (currency|money) ... {x:f}",
            "{x:f} 's currency",
        ],
        verbs: &[
            "$name [the] [name of] [the] (currency|money) ... {x:f} [uses|use]",
            "$which [the] [name of] [the] (currency|money) ... {x:f} [uses|use]",
        ],
        binding: Binding::Other,
        compute: |operands| fact(operands, "currency"),
    },
    Wordings {
        nouns: &[
            "[the] atomic number (that|which) [the element] {x:f} (has)",
            "[the] atomic number ... {x:f}",
            "{x:f} 's atomic number",
            "[the] [number of] (protons|proton count) (that|which) [the element] {x:f} (has)",
            "[the] [number of] (protons|proton count) ... {x:f}",
        ],
        verbs: &[
            "$name [the] atomic number ... {x:f} [has|have]",
            "$which [the] atomic number ... {x:f} [has|have]",
            "$count (protons|proton) ... {x:f} [has|have]",
            "$name number does [the] [element] {x:f} have among the chemical elements",
            "$which number does [the] [element] {x:f} have among the chemical elements",
        ],
        binding: Binding::Other,
        compute: |operands| fact(operands, "atomic number"),
    },
    Wordings {
        nouns: &[
            "[the] [chemical] symbol (that|which) [the element] {x:f} (has)",
            "[the] [chemical] symbol ... {x:f}",
            "{x:f} 's [chemical] symbol",
        ],
        verbs: &[
            "$name [the] [chemical] symbol ... {x:f} [has|have]",
            "$which [the] [chemical] symbol ... {x:f} [has|have]",
        ],
        binding: Binding::Other,
        compute: |operands| fact(operands, "symbol"),
    },
    Wordings {
        nouns: &[
            "$count (legs|leg count|leg) (that|which) {x:f} has",
            "$count (legs|leg count|leg) ... {x:f} [in all|in total]",
        ],
        verbs: &["$count (legs|leg count|leg) ... {x:f} $has", "$many legs ... {x:f} $has"],
        binding: Binding::Other,
        compute: |operands| fact(operands, "legs"),
    },
    Wordings {
        nouns: &[
            "$count (sides|side count|side) (that|which) {x:f} has",
            "$count (sides|side count|side) ... {x:f} [in all|in total]",
        ],
        verbs: &["$count (sides|side count|side) ... {x:f} $has", "$many sides ... {x:f} $has"],
        binding: Binding::Other,
        compute: |operands| fact(operands, "sides"),
    },
    Wordings {
        nouns: &[
            "$count (strings|string count|string) (that|which) {x:f} has",
            "$count (strings|string count|string) ... {x:f} [in all|in total]",
        ],
        verbs: &["$count (strings|string count|string) ... {x:f} $has", "$many strings ... {x:f} $has"],
        binding: Binding::Other,
        compute: |operands| fact(operands, "strings"),
    },
    Wordings {
        nouns: &[
            "$count (players|player count|player) (that|which) {x:f} has",
            "$count (players|player count|player) ... {x:f} [in all|in total]",
        ],
        verbs: &["$count (players|player count|player) ... {x:f} $has", "$many players ... {x:f} $has"],
        binding: Binding::Other,
        compute: |operands| fact(operands, "players"),
    },
    Wordings {
        nouns: &["[the] [total|full|exact] (number|count|amount) of [the] {x:f} [in all|in total]"],
        verbs: &[
            "$count {x:f} [are there|there are|exist|do we count] [in all|in total]",
            "how many {x:f} [are there|there are|exist|do we count] [in all|in total]",
        ],
        binding: Binding::Other,
        compute: |operands| fact(operands, "quantity"),
    },
    Wordings {
        nouns: &["[the] (year|date in years) ... {x:f} $happened"],
        verbs: &[
            "$name [in] [which|what] [the] (year|date in years) ... {x:f} $happened",
            "[in] $which [in] [which|what] [the] (year|date in years) ... {x:f} $happened",
            "in (which|what) year ... {x:f} $happened",
        ],
        binding: Binding::Other,
        compute: |operands| fact(operands, "year"),
    },
];

/// The subjects that the words from `tokens[at]` on may name: the index after each and its key in the table. Longest first.
pub(crate) fn subjects_at(tokens: &[Token], at: usize) -> Vec<(usize, String)> {
    let start = at + usize::from(tokens.get(at).and_then(Token::word).is_some_and(is_article));
    let words: Vec<&str> = tokens.iter().skip(start).take(SUBJECT_WORDS_MAX).map_while(Token::word).collect();
    (1..=words.len())
        .rev()
        .filter_map(|length| {
            let key = words[..length].join(" ");
            facts_table::is_subject(&key).then_some((start + length, key))
        })
        .collect()
}

fn is_article(word: &str) -> bool {
    matches!(word, "a" | "an" | "the")
}

fn fact(operands: &Operands, attribute: &str) -> Result<String, Refusal> {
    let subject = operands.text('x');
    facts_table::value(attribute, subject)
        .map(str::to_owned)
        .ok_or_else(|| Refusal::UnknownFact { subject: subject.to_owned() })
}

/// All values of the attribute that has `value`, for plausible errors.
pub(crate) fn values_like(value: &str) -> Vec<&'static str> {
    facts_table::TABLE
        .iter()
        .find(|(_, entries)| entries.iter().any(|(_, found)| *found == value))
        .map(|(_, entries)| entries.iter().map(|(_, found)| *found).filter(|found| *found != value).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{facts_table, subjects_at};
    use crate::language::token::tokenise;

    #[test]
    fn every_subject_is_found_by_its_own_words() {
        for (_, entries) in facts_table::TABLE {
            for (subject, _) in *entries {
                let tokens = tokenise(&format!("the {subject}"));
                assert_eq!(subjects_at(&tokens, 0).first(), Some(&(tokens.len(), (*subject).to_owned())));
            }
        }
    }
}
