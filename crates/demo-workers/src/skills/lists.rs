//! Lists of numbers or words: order, sums, extremes, counts, items, reversal, duplicates, averages.

use std::collections::HashSet;

use super::{Refusal, Wordings, rational::Rational};
use crate::language::{
    reader::{Binding, Operands},
    reference::small_ordinal,
    token::Token,
};

pub(crate) const FRAGMENTS: &[(&str, &str)] = &[
    (
        "up",
        "(in (ascending|increasing) order|from (smallest|least|lowest|low) to (largest|greatest|highest|biggest|high)|with the smallest first)",
    ),
    (
        "down",
        "(in (descending|decreasing) order|from (largest|greatest|highest|biggest|high) to (smallest|least|lowest|low)|with the largest first)",
    ),
    ("alpha", "(alphabetically|from a to z|in (alphabetical|alphabetic) order)"),
    ("sort", "(sort|order|arrange|put|line up|rearrange|write|list)"),
    ("sorted", "[sorted|ordered|arranged|placed|listed|put]"),
    ("the", "[the] [list|numbers|words|items|list of numbers|list of words]"),
    ("pick", "(pick|pick out|choose|select|take|keep|find|give|name) [only|just]"),
    ("large", "(largest|biggest|greatest|highest|top)"),
    ("small", "(smallest|least|lowest|bottom)"),
    ("item", "(number|item|entry|value|one|element)"),
    ("items", "(items|entries|elements|numbers|values|words)"),
    ("in", "(of|in|from|among)"),
    ("list", "[the] [list|numbers|words|items|list of]"),
    (
        "dups",
        "[the|all|any] [the] (duplicates|repeats|repeated items|repeated entries|duplicate items|duplicate entries)",
    ),
    ("drop", "(remove|delete|drop|strike out|discard)"),
];

pub(crate) const WORDINGS: &[Wordings] = &[
    Wordings {
        nouns: &["$the {x:l} $sorted $up", "[the] (ascending|increasing) order of $list {x:l}"],
        verbs: &["$sort $the {x:l} $up", "(sort|order|arrange) $up {x:l?}"],
        binding: Binding::Other,
        compute: ascending,
    },
    Wordings {
        nouns: &["$the {x:l} $sorted $down", "[the] (descending|decreasing) order of $list {x:l}"],
        verbs: &["$sort $the {x:l} $down", "(sort|order|arrange) $down {x:l?}"],
        binding: Binding::Other,
        compute: descending,
    },
    Wordings {
        nouns: &[
            "$the {x:l} $sorted $alpha",
            "[the] alphabetical order of $list {x:l}",
            "[the] alphabetical order of the $items (in|of) $list {x:l}",
        ],
        verbs: &[
            "$sort $the {x:l} $alpha",
            "(alphabetise|alphabetize) $list {x:l}",
            "(sort|order|arrange) $alpha {x:l?}",
            "sort $the {x:l}",
        ],
        binding: Binding::Other,
        compute: sorted,
    },
    Wordings {
        nouns: &[
            "[the] [grand] (sum|total) (of|over) [all|every] [the] ($items|$item|list) [in] $list {x:l}",
            "what $the {x:l} (adds|add) up to",
        ],
        verbs: &[
            "(add|sum|total) [up|together] [all|every] [the] ($items|$item|list) [in] $list {x:l} [up|together]",
            "find what $list {x:l} (adds|add) up to",
        ],
        binding: Binding::Other,
        compute: sum,
    },
    Wordings {
        nouns: &["[the] [grand] (sum|total) (of|over) {x:l}"],
        verbs: &["(add|sum|total) [up|together] {x:l} [up|together]"],
        // Without a word for "list", only several items are a list.
        binding: Binding::Other,
        compute: |operands| {
            if operands.items('x')?.len() > 1 { sum(operands) } else { Err(Refusal::NothingFound) }
        },
    },
    Wordings { nouns: &[], verbs: &["(add|sum) up {x:l?}"], binding: Binding::Other, compute: sum },
    Wordings {
        nouns: &["[the] $large [$item] $in $list {x:l}", "[the] maximum $in $list {x:l}"],
        verbs: &[
            "$pick the ($large|maximum) [$item] $in $list {x:l}",
            "which [$item] (in|of|among) $list {x:l} is [the] $large",
            "which of $list {x:l} is [the] $large",
        ],
        binding: Binding::Other,
        compute: largest,
    },
    Wordings {
        nouns: &["[the] $small [$item] $in $list {x:l}", "[the] minimum $in $list {x:l}"],
        verbs: &[
            "$pick the ($small|minimum) [$item] $in $list {x:l}",
            "which [$item] (in|of|among) $list {x:l} is [the] $small",
            "which of $list {x:l} is [the] $small",
        ],
        binding: Binding::Other,
        compute: smallest,
    },
    Wordings {
        nouns: &[
            "[the] [total] (number|count|amount) of $items (in|of) $list {x:l}",
            "[the] (length|size) of the list {x:l}",
            "[the] (number|count|amount) of $items that $list {x:l} (has|contains)",
        ],
        verbs: &[
            "count [all] [the|each|every] ($items|item|entry|element) (in|of) $list {x:l}",
            "[count] how many $items [does|do] $list {x:l} (has|have|contains|contain)",
            "how many $items [are|are there] (in|of) $list {x:l}",
            "how many $items is $list {x:l} made (of|up of)",
        ],
        binding: Binding::Other,
        compute: count,
    },
    Wordings {
        nouns: &[
            "[the] {k:o} $item $in $list {x:l}",
            "[the] $item (in|at) [the] {k:o} (place|position) (of|in) $list {x:l}",
        ],
        verbs: &[
            "$pick the {k:o} $item $in $list {x:l}",
            "$pick the $item (in|at) [the] {k:o} (place|position) (of|in) $list {x:l}",
            "(which|what) $item (is|comes|stands) {k:o} in $list {x:l}",
            "(which|what) is the {k:o} $item $in $list {x:l}",
        ],
        binding: Binding::Other,
        compute: item,
    },
    Wordings {
        nouns: &[
            "$the {x:l} in (reverse|reversed|the opposite) order",
            "[the] reversed list {x:l}",
            "[the] list {x:l} [read] (from back to front|from last to first|from the end to the start|backwards)",
            "[the] reverse order of $list {x:l}",
            "[the] $items of $list {x:l} (in (reverse|reversed|the opposite) order|from back to front|from last to first|from the end to the start|backwards)",
        ],
        verbs: &[
            "reverse [the] order of [the] [$items] [in|of] $list {x:l}",
            "reverse the (list|items|numbers|words|entries) {x:l}",
            "(put|list|write|arrange) [the] [$items of] $the {x:l} (in (reverse|reversed|the opposite) order|from back to front)",
            "turn the list {x:l} (round|around)",
            "reverse the list {x:l?}",
        ],
        binding: Binding::Other,
        compute: reversed,
    },
    Wordings {
        nouns: &[
            "[the] list {x:l} without (duplicates|repeats|repeated items|repetitions)",
            "[the] (unique|distinct|different) $items (of|in|from|among) $list {x:l}",
            "[the] list {x:l} with [all] (duplicates|repeats|duplicate items|repeated items) removed",
            "[the] [list|$items of] $list {x:l} with each [$item] kept only once",
        ],
        verbs: &[
            "$drop $dups (from|in|of) $list {x:l}",
            "(deduplicate|dedupe) $list {x:l}",
            "keep each $item (of|in) $list {x:l} only once",
            "remove $dups {x:l?}",
        ],
        binding: Binding::Other,
        compute: distinct,
    },
    Wordings {
        nouns: &["[the] [arithmetic] (average|mean) [value|number] (of|over) [all] $list {x:l}"],
        verbs: &[
            "average $list {x:l}",
            "(take|form|find|compute|calculate) the [arithmetic] (average|mean) [value] (of|over) $list {x:l}",
        ],
        binding: Binding::Other,
        compute: average,
    },
];

/// "third", "3rd", "last" at `tokens[at]`, as a number or the word "last".
pub(crate) fn ordinal_at(tokens: &[Token], at: usize) -> Option<(usize, String)> {
    let token = tokens.get(at)?;
    if matches!(token.word(), Some("last" | "final")) {
        return Some((at + 1, "last".to_owned()));
    }
    small_ordinal(token).map(|ordinal| (at + 1, ordinal.to_string()))
}

fn ascending(operands: &Operands) -> Result<String, Refusal> {
    let mut numbers = operands.numbers('x')?;
    numbers.sort_by_key(|(number, _)| *number);
    Ok(joined(numbers.into_iter().map(|(_, written)| written)))
}

fn descending(operands: &Operands) -> Result<String, Refusal> {
    let mut numbers = operands.numbers('x')?;
    numbers.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok(joined(numbers.into_iter().map(|(_, written)| written)))
}

fn sorted(operands: &Operands) -> Result<String, Refusal> {
    let mut items = operands.items('x')?;
    items.sort_by_key(|item| item.to_lowercase());
    Ok(joined(items.into_iter()))
}

fn sum(operands: &Operands) -> Result<String, Refusal> {
    Ok(total(&operands.numbers('x')?)?.to_string())
}

fn largest(operands: &Operands) -> Result<String, Refusal> {
    extreme(&operands.numbers('x')?, |numbers| numbers.max())
}

fn smallest(operands: &Operands) -> Result<String, Refusal> {
    extreme(&operands.numbers('x')?, |numbers| numbers.min())
}

fn count(operands: &Operands) -> Result<String, Refusal> {
    Ok(operands.items('x')?.len().to_string())
}

fn item(operands: &Operands) -> Result<String, Refusal> {
    let items = operands.items('x')?;
    let index = match operands.text('k') {
        "last" => items.len(),
        ordinal => ordinal.parse().unwrap_or_default(),
    };
    let found = index.checked_sub(1).and_then(|index| items.get(index));
    found.cloned().ok_or(Refusal::NoSuchItem { count: items.len() })
}

fn reversed(operands: &Operands) -> Result<String, Refusal> {
    Ok(joined(operands.items('x')?.into_iter().rev()))
}

fn distinct(operands: &Operands) -> Result<String, Refusal> {
    let mut seen = HashSet::new();
    Ok(joined(operands.items('x')?.into_iter().filter(|item| seen.insert(item.clone()))))
}

fn average(operands: &Operands) -> Result<String, Refusal> {
    let numbers = operands.numbers('x')?;
    let count = Rational::whole(i128::try_from(numbers.len()).unwrap_or(i128::MAX));
    Ok(total(&numbers)?.divided_by(count)?.to_string())
}

fn total(numbers: &[(Rational, String)]) -> Result<Rational, Refusal> {
    Ok(numbers.iter().try_fold(Rational::ZERO, |sum, (number, _)| sum.plus(*number))?)
}

fn extreme(
    numbers: &[(Rational, String)],
    pick: fn(&mut dyn Iterator<Item = Rational>) -> Option<Rational>,
) -> Result<String, Refusal> {
    let found = pick(&mut numbers.iter().map(|(number, _)| *number));
    found.map(|number| number.to_string()).ok_or(Refusal::NoSuchItem { count: 0 })
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::ordinal_at;
    use crate::language::token::tokenise;

    #[test]
    fn ordinals_are_read_as_words_and_digits() {
        for (text, expected) in [("third", "3"), ("3rd", "3"), ("last", "last")] {
            assert_eq!(ordinal_at(&tokenise(text), 0).map(|(_, ordinal)| ordinal).as_deref(), Some(expected));
        }
        assert_eq!(ordinal_at(&tokenise("pear"), 0), None);
    }
}
