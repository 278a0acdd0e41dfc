//! Days between dates, weekdays, dates before and after, years, days of the year, minutes between clock times.

use super::{Refusal, Wordings};
use crate::language::reader::{Binding, Operands};

pub(crate) const FRAGMENTS: &[(&str, &str)] = &[
    (
        "lead",
        "[count [up]|the|find|give|say|total] [the] [total|exact|every|each|all] [(number|count|amount|gap|distance|difference|interval|span|length|period|time) (of|in)] [how many] [whole|full|calendar|the]",
    ),
    ("say", "(name|say|give|tell me|extract|pick out|read off|find) [only] [which|what]"),
    (
        "falls",
        "[falls on|falls in|falls|fall on|fall in|fall|lands on|land on|belongs to|belong to|lies in|lie in|lie|is in|is|was|has]",
    ),
    ("after", "(after|later than|past|on from|following|from)"),
    ("before", "(before|earlier than|ahead of|preceding|prior to)"),
    ("which", "[that|which] [is|was|comes|falls|came]"),
];

pub(crate) const WORDINGS: &[Wordings] = &[
    Wordings {
        nouns: &["$lead (days|day) ... [between|from] {a:d} (and|to|until|till) {b:d} [apart]"],
        verbs: &[
            "how many [whole|full|calendar] days ... [between|from|separate] {a:d} (and|to|until|till) {b:d} [apart]",
            "how many [whole|full] days is it from {a:d} (to|until|till) {b:d}",
            "how many [whole|full] days after {a:d} (is|comes) {b:d}",
        ],
        binding: Binding::Other,
        compute: days_between,
    },
    Wordings {
        nouns: &["$lead (minutes|minute) ... [between|from] {a:c} (and|to|until|till) {b:c} [apart]"],
        verbs: &[
            "how many [whole|full] minutes is it from {a:c} (to|until|till) {b:c}",
            "how many [whole|full] minutes ... [between|from|separate] {a:c} (and|to|until|till) {b:c} [apart]",
        ],
        binding: Binding::Other,
        compute: minutes_between,
    },
    Wordings {
        nouns: &["[the] [name of] [the] (weekday|day of the week) ... {x:d} $falls"],
        verbs: &[
            "$say [the] [name of] [the] (weekday|day of the week) ... {x:d} $falls",
            "[on] (which|what) (weekday|day of the week) ... {x:d} $falls",
            "(what|which) day [of the week] (is|was|will be) {x:d}",
            "on (what|which) day [of the week] (does|did|will) {x:d} fall",
        ],
        binding: Binding::Other,
        compute: weekday,
    },
    Wordings {
        nouns: &[
            "[the] [calendar] (date|day) $which {n:n} {p:p} [later] $after {x:d}",
            "{x:d} (plus|+) {n:n} {p:p}",
            "{n:n} {p:p} (after|following|later than) {x:d}",
        ],
        verbs: &[
            "add {n:n} {p:p} to {x:d}",
            "add {n:n} {p:p} {x:d?}",
            "(move|go|step|count|jump) [forward|forwards|on|ahead] {n:n} {p:p} [forward|forwards|on|ahead] [in time] from {x:d}",
            "(move|go|step|count|jump) (forward|forwards|on|ahead) [by] {n:n} {p:p} {x:d?}",
            "(move|go|step|count|jump) {n:n} {p:p} (forward|forwards|on|ahead) {x:d?}",
            "(move|shift|push|postpone) {x:d} (forward|forwards|on|later|ahead) [by] {n:n} {p:p}",
            "postpone {x:d} by {n:n} {p:p}",
            "let {n:n} {p:p} (pass|go by) (after|from) {x:d}",
            "(what|which) [calendar] (date|day) (is|comes|falls|was) [it] {n:n} {p:p} [later] $after {x:d}",
            "(what|which) [calendar] (date|day) (will|would) (it|that) be {n:n} {p:p} [later] $after {x:d}",
        ],
        binding: Binding::Other,
        compute: days_after,
    },
    Wordings {
        nouns: &[
            "[the] [calendar] (date|day) $which {n:n} {p:p} $before {x:d}",
            "{x:d} (minus|-|less) {n:n} {p:p}",
            "{n:n} {p:p} (before|preceding|earlier than) {x:d}",
        ],
        verbs: &[
            "(subtract|take|take away|remove|deduct) {n:n} {p:p} [away|off] from {x:d}",
            "(subtract|take away|remove|deduct) {n:n} {p:p} {x:d?}",
            "(move|go|step|count|jump) [back|backwards|backward] {n:n} {p:p} [back|backwards|backward] [in time] from {x:d}",
            "(move|go|step|count|jump) (back|backwards|backward) [by] {n:n} {p:p} {x:d?}",
            "(move|go|step|count|jump) {n:n} {p:p} (back|backwards|backward) [in time] {x:d?}",
            "(move|shift|push|bring) {x:d} (back|backwards|backward|earlier|forward) [by] {n:n} {p:p}",
            "(what|which) [calendar] (date|day) (is|comes|falls|was) [it] {n:n} {p:p} $before {x:d}",
            "(what|which) [calendar] (date|day) (had|would) (it|that) (been|be|have been) {n:n} {p:p} $before {x:d}",
        ],
        binding: Binding::Other,
        compute: days_before,
    },
    Wordings {
        nouns: &[
            "[the] (day of the year|day number|day count|ordinal day|position|place|rank) (of|for|on) {x:d} [within|in] (its|the|that) year",
            "[the] [number of the] day of the year ... {x:d} $falls",
        ],
        verbs: &[
            "(count|say|number|name|find|tell me) [the] [which|what] [number] day of the year ... {x:d} [is|was|comes to|come to|falls on]",
            "(which|what) [number] day of the year ... {x:d} [is|was|comes to|come to|falls on]",
            "(number|count) {x:d} as a day of the year",
        ],
        binding: Binding::Other,
        compute: day_of_year,
    },
    Wordings {
        nouns: &["[the] [calendar] year [part|number] ... {x:d} $falls"],
        verbs: &[
            "$say [the] [calendar] year ... {x:d} $falls",
            "[in] (which|what) [calendar] year ... {x:d} $falls",
        ],
        binding: Binding::Other,
        compute: year,
    },
];

fn days_between(operands: &Operands) -> Result<String, Refusal> {
    let days = operands.date('b')?.days_since_first() - operands.date('a')?.days_since_first();
    Ok(days.abs().to_string())
}

fn minutes_between(operands: &Operands) -> Result<String, Refusal> {
    Ok((operands.minutes('b')? - operands.minutes('a')?).abs().to_string())
}

fn weekday(operands: &Operands) -> Result<String, Refusal> {
    Ok(operands.date('x')?.weekday().to_owned())
}

fn year(operands: &Operands) -> Result<String, Refusal> {
    Ok(operands.date('x')?.year().to_string())
}

fn day_of_year(operands: &Operands) -> Result<String, Refusal> {
    Ok(operands.date('x')?.day_of_year().to_string())
}

fn days_after(operands: &Operands) -> Result<String, Refusal> {
    shifted(operands, 1)
}

fn days_before(operands: &Operands) -> Result<String, Refusal> {
    shifted(operands, -1)
}

fn shifted(operands: &Operands, direction: i64) -> Result<String, Refusal> {
    let date = operands.date('x')?;
    let days = if operands.text('p') == "week" { 7 } else { 1 };
    let count = i64::try_from(operands.whole('n')?).map_err(|_| Refusal::OutsideCalendar)?;
    let shift = count.checked_mul(days * direction).ok_or(Refusal::OutsideCalendar)?;
    Ok(date.plus_days(shift).ok_or(Refusal::OutsideCalendar)?.to_string())
}
