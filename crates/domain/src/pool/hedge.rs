//! When a worker's calls may be hedged: a second call of the same step is made while the first is still silent.

use serde::Deserialize;

/// When and how often silent calls of a worker are hedged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeRule {
    /// A call is hedged once it is silent for longer than so many of a hundred calls were of late, from
    /// [`Self::PERCENTILE_MIN`] to [`Self::PERCENTILE_MAX`].
    pub percentile: f64,
    /// But not before so many milliseconds, from 1 to [`Self::AFTER_MS_MAX`].
    pub after_ms_min: u64,
    /// Before the silences of so many calls are known none is hedged, from 1 to [`Self::SAMPLES_MAX`].
    pub samples_min: u32,
    /// Most hedges for each call, above 0 and at most [`Self::SHARE_MAX`]. Each process keeps to it by itself.
    pub share_max: f64,
}

impl HedgeRule {
    /// Below the median, most calls would be made twice.
    pub const PERCENTILE_MIN: f64 = 50.0;
    /// Above that, [`Self::SAMPLES_MAX`] calls say nothing.
    pub const PERCENTILE_MAX: f64 = 99.5;
    /// Ten minutes: the usual deadline of a run.
    pub const AFTER_MS_MAX: u64 = 600_000;
    /// Calls that are remembered.
    pub const SAMPLES_MAX: u32 = 512;
    /// Every call.
    pub const SHARE_MAX: f64 = 1.0;
}

/// `hedge` of a worker.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HedgeEntry {
    percentile: f64,
    after_ms_min: u64,
    samples_min: u32,
    share_max: f64,
}

/// What Dean and Barroso hedge by in "The Tail at Scale" (2013): the 95th percentile, so that a twentieth more is asked for. A
/// quarter of a second is about what a reader takes for at once.
impl Default for HedgeEntry {
    fn default() -> Self {
        Self { percentile: 95.0, after_ms_min: 250, samples_min: 50, share_max: 0.05 }
    }
}

impl HedgeEntry {
    /// Problems are added to `problems`.
    pub(super) fn check(&self, at: &str, problems: &mut Vec<String>) -> HedgeRule {
        let Self { percentile, after_ms_min, samples_min, share_max } = *self;
        let (least, most) = (HedgeRule::PERCENTILE_MIN, HedgeRule::PERCENTILE_MAX);
        if !(least..=most).contains(&percentile) {
            problems.push(format!("{at}: hedge.percentile is {percentile}, it must be {least} to {most}"));
        }
        for (field, value, max) in [
            ("after_ms_min", after_ms_min, HedgeRule::AFTER_MS_MAX),
            ("samples_min", samples_min.into(), HedgeRule::SAMPLES_MAX.into()),
        ] {
            if !(1..=max).contains(&value) {
                problems.push(format!("{at}: hedge.{field} is {value}, it must be 1 to {max}"));
            }
        }
        let most = HedgeRule::SHARE_MAX;
        if !(share_max > 0.0 && share_max <= most) {
            problems
                .push(format!("{at}: hedge.share_max is {share_max}, it must be above 0 and at most {most}"));
        }
        HedgeRule { percentile, after_ms_min, samples_min, share_max }
    }
}
