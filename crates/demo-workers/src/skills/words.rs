//! Letters and words: spelling of numbers, case, reversal, counting, first and last letters, alphabetical order.

use super::{Refusal, Wordings, number_words, rational::Rational};
use crate::language::{
    reader::{Binding, Operands},
    token::{Token, tokenise},
};

pub(crate) const FRAGMENTS: &[(&str, &str)] = &[
    ("write", "(write|put|express|state|say|render|give|print|set|show|read)"),
    ("turn", "(turn|convert|change|translate|transform)"),
    ("words", "[plain|English] words"),
    ("digits", "(digits|figures|numerals|numbers)"),
    ("upper", "(capitals|capital letters|upper case|uppercase|upper case letters|uppercase letters)"),
    ("lower", "(lower case|lowercase|small letters|lower case letters|lowercase letters)"),
    ("alpha", "(alphabetically|from a to z|in [alphabetical|alphabetic|alphabet] order)"),
    ("amount", "[total|exact|full] (number|count|amount)"),
    ("count", "count [up] [all|each|every|the] [of] [the]"),
    ("pick", "(name|pick out|pick|extract|state|give|take|keep|find|say|show) [only|just]"),
    ("has", "(has|have|contains|contain)"),
];

pub(crate) const WORDINGS: &[Wordings] = &[
    Wordings {
        nouns: &[
            "[the] [English] (words|name|number name|wording) (for|of) {x:n} [in $words|as an English number]",
            "{x:n} [written|spelled|spelt|expressed|put] [out] (in|using|as) $words",
            "{x:n} (spelled|spelt|written) out",
        ],
        verbs: &[
            "$write [out] {x:n} [out] (in|using|as|with) $words",
            "$write [out] (in|using|as) $words {x:n}",
            "spell [out] {x:n} [out] (in|as|using) ($words|letters)",
            "write (out {x:n}|{x:n} out) (in|as|using) ($words|letters)",
            "$turn {x:n} [into|to] $words",
            "$write [it] [out] (in|as) $words {x:n?}",
        ],
        binding: Binding::Other,
        compute: spell,
    },
    Wordings {
        nouns: &[
            "[the] number [that is] [written|spelled|spelt] [out] as {x:s}",
            "[the] (digits|numeral|numerals|figures) (of|for) {x:s}",
            "{x:s} [written|expressed] (in|using|as) $digits",
            "{x:s} as a (numeral|number)",
        ],
        verbs: &[
            "$write {x:s} [as a number] (in|using|as|with) $digits",
            "$write (in|using) $digits {x:s}",
            "$turn {x:s} (into|to) ($digits|a number|a numeral)",
            "(read|write) {x:s} as a (number|numeral)",
        ],
        binding: Binding::Other,
        compute: unspell,
    },
    Wordings {
        nouns: &[
            "[the] letters of {x:w} (in reverse|in reverse order|in reversed order|from last to first|backwards|reversed)",
            "{x:w} [written|spelled|spelt] backwards",
            "[the] (reverse|reversal|reversed form|reversed letters|backward spelling|reverse spelling) of {x:w}",
            "{x:w} with its letters reversed",
        ],
        verbs: &[
            "reverse [the] (letters|characters|spelling) (of|in) {x:w}",
            "(write|spell) [out] {x:w} (backwards|in reverse)",
            "(write|spell) (backwards|in reverse) {x:w}",
            "reverse [the word|the text] {x:w}",
            "turn the letters of {x:w} (round|around)",
            "(write|put|arrange) the letters of {x:w} (from last to first|in reverse order|in reverse|backwards)",
            "reverse {x:w?}",
        ],
        binding: Binding::Other,
        compute: reverse,
    },
    Wordings {
        nouns: &[
            "{x:w} [written|set|put] in $upper",
            "[the] (upper case|uppercase|capitalised) (form|version) of {x:w}",
            "{x:w} with every letter [a] capital",
            "[the] version of {x:w} in $upper",
        ],
        verbs: &[
            "$write {x:w} (in|with|as) $upper [only]",
            "$write (in|with) $upper {x:w}",
            "$turn {x:w} (to|into) $upper",
            "make {x:w} (upper case|uppercase)",
            "make every letter of {x:w} [a] capital",
            "(uppercase|capitalise) {x:w}",
            "uppercase {x:w?}",
        ],
        binding: Binding::Other,
        compute: upper,
    },
    Wordings {
        nouns: &[
            "{x:w} [written|set|put] in $lower",
            "[the] (lower case|lowercase) (form|version) of {x:w}",
            "{x:w} with every letter small",
            "[the] version of {x:w} in $lower",
        ],
        verbs: &[
            "$write {x:w} (in|with|as) $lower [only]",
            "$write (in|with) $lower {x:w}",
            "$turn {x:w} (to|into) $lower",
            "make {x:w} (lower case|lowercase)",
            "make every letter of {x:w} small",
            "lowercase {x:w}",
            "lowercase {x:w?}",
        ],
        binding: Binding::Other,
        compute: lower,
    },
    Wordings {
        nouns: &[
            "[the] $amount of letters (in|of) {x:w}",
            "[the] letter count of {x:w}",
            "[the] [full|total] length of {x:w} in letters",
            "how long {x:w} is in letters",
            "[the] $amount of letters that {x:w} $has",
        ],
        verbs: &[
            "$count letters (in|of) {x:w}",
            "$count letter (in|of) {x:w}",
            "[count] how many letters [are|are there] (in|of) {x:w}",
            "[count] how many letters [does|do] {x:w} $has",
            "how many letters is {x:w} made (of|up of)",
            "count letters {x:w?}",
        ],
        binding: Binding::Other,
        compute: letters,
    },
    Wordings {
        nouns: &[
            "[the] $amount of vowels (in|of) {x:w}",
            "[the] vowel count of {x:w}",
            "[the] $amount of letters in {x:w} that are vowels",
            "[the] $amount of vowels that {x:w} $has",
        ],
        verbs: &[
            "$count (vowels|vowel) (in|of) {x:w}",
            "[count] how many vowels [are|are there] (in|of) {x:w}",
            "[count] how many vowels [does|do] {x:w} $has",
            "how many of the letters (in|of) {x:w} are vowels",
        ],
        binding: Binding::Other,
        compute: vowels,
    },
    Wordings {
        nouns: &[
            "[the] [very] (first|opening|initial|leading) letter (of|in) {x:w}",
            "[the] letter (that|which) {x:w} (starts|begins) with",
            "[the] letter at the (start|beginning) of {x:w}",
            "[the] initial of {x:w}",
        ],
        verbs: &[
            "$pick the [very] (first|opening|initial|leading) letter (of|in|from) {x:w}",
            "$pick the letter at the (start|beginning) of {x:w}",
            "$pick (which|what) letter {x:w} (starts|begins) with",
            "(which|what) letter does {x:w} (start|begin) with",
            "with (which|what) letter does {x:w} (start|begin)",
            "(which|what) is the [very] first letter (of|in) {x:w}",
            "(which|what) letter (comes|is|stands) first in {x:w}",
        ],
        binding: Binding::Other,
        compute: first_letter,
    },
    Wordings {
        nouns: &[
            "[the] [very] (last|final|closing) letter (of|in) {x:w}",
            "[the] letter (that|which) {x:w} ends (with|in|on)",
            "[the] letter at the end of {x:w}",
        ],
        verbs: &[
            "$pick the [very] (last|final|closing) letter (of|in|from) {x:w}",
            "$pick the letter at the end of {x:w}",
            "$pick (which|what) letter {x:w} ends (with|in|on)",
            "(which|what) letter does {x:w} end (with|in|on)",
            "(with|in|on) (which|what) letter does {x:w} end",
            "(which|what) is the [very] last letter (of|in) {x:w}",
            "(which|what) letter (comes|is|stands) last in {x:w}",
        ],
        binding: Binding::Other,
        compute: last_letter,
    },
    Wordings {
        nouns: &[
            "[the] $amount of words (in|of) {x:w}",
            "[the] word count of {x:w}",
            "[the] [full|total] length of {x:w} in words",
            "[the] $amount of words that {x:w} $has",
        ],
        verbs: &[
            "$count (words|word) (in|of) {x:w}",
            "[count] how many words [are|are there] (in|of) {x:w}",
            "[count] how many words [does|do] {x:w} $has",
            "how many words is {x:w} made (of|up of)",
        ],
        binding: Binding::Other,
        compute: word_count,
    },
    Wordings {
        nouns: &[
            "[the] letters of {x:w} [sorted|ordered|arranged|placed|listed|put] $alpha",
            "[the] alphabetical order of the letters (of|in) {x:w}",
            "[the] sorted letters of {x:w}",
        ],
        verbs: &[
            "(sort|order|arrange|rearrange|put|write|list) the letters (of|in) {x:w} $alpha",
            "(sort|order|alphabetise|alphabetize|rearrange) the letters (of|in) {x:w}",
        ],
        binding: Binding::Other,
        compute: sorted_letters,
    },
];

fn spell(operands: &Operands) -> Result<String, Refusal> {
    Ok(number_words::to_words(operands.whole('x')?))
}

fn unspell(operands: &Operands) -> Result<String, Refusal> {
    let text = operands.text('x').trim();
    if Rational::parse(text)?.is_some() {
        return Ok(text.to_owned());
    }
    let tokens = tokenise(text);
    let words: Vec<&str> = tokens.iter().map_while(Token::word).collect();
    match number_words::from_words(&words) {
        Some((number, taken)) if taken == tokens.len() => Ok(number.to_string()),
        _ => Err(Refusal::WrongOperand { needed: "a number in words", given: text.to_owned() }),
    }
}

fn reverse(operands: &Operands) -> Result<String, Refusal> {
    text(operands).map(|text| text.chars().rev().collect())
}

fn upper(operands: &Operands) -> Result<String, Refusal> {
    text(operands).map(str::to_uppercase)
}

fn lower(operands: &Operands) -> Result<String, Refusal> {
    text(operands).map(str::to_lowercase)
}

fn letters(operands: &Operands) -> Result<String, Refusal> {
    text(operands).map(|text| text.chars().filter(|letter| letter.is_alphabetic()).count().to_string())
}

fn vowels(operands: &Operands) -> Result<String, Refusal> {
    let is_vowel = |letter: &char| matches!(letter.to_ascii_lowercase(), 'a' | 'e' | 'i' | 'o' | 'u');
    text(operands).map(|text| text.chars().filter(is_vowel).count().to_string())
}

fn first_letter(operands: &Operands) -> Result<String, Refusal> {
    one_letter(text(operands)?, |letters| letters.first().copied())
}

fn last_letter(operands: &Operands) -> Result<String, Refusal> {
    one_letter(text(operands)?, |letters| letters.last().copied())
}

fn one_letter(text: &str, pick: fn(&[char]) -> Option<char>) -> Result<String, Refusal> {
    let letters: Vec<char> = text.chars().filter(|letter| letter.is_alphabetic()).collect();
    let letter = pick(&letters)
        .ok_or_else(|| Refusal::WrongOperand { needed: "a text with letters", given: text.to_owned() })?;
    Ok(letter.to_string())
}

fn word_count(operands: &Operands) -> Result<String, Refusal> {
    text(operands).map(|text| text.split_whitespace().count().to_string())
}

fn sorted_letters(operands: &Operands) -> Result<String, Refusal> {
    let mut letters: Vec<char> =
        text(operands)?.to_lowercase().chars().filter(|letter| letter.is_alphabetic()).collect();
    letters.sort_unstable();
    Ok(letters.into_iter().collect())
}

fn text(operands: &Operands) -> Result<&str, Refusal> {
    let text = operands.text('x').trim();
    if text.is_empty() {
        return Err(Refusal::WrongOperand { needed: "a text", given: String::new() });
    }
    Ok(text)
}
