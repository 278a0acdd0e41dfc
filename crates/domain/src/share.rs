//! A share of all runs, and the gradual rollout of a new version to such a share.

use crate::ids::RunId;

/// A share of runs, from none to all. Membership depends only on the run's id, so all processes agree. A run in a share is also in
/// every larger share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    millionths: u32,
}

/// The share is below 0 or above 1.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("a share is {share}, it must be 0 to 1")]
pub struct ShareError {
    /// Its value.
    pub share: f64,
}

const WHOLE: u32 = 1_000_000;

/// The versions of something that is replaced gradually: the current one, or also the next one with its share of the runs. In
/// addition there may be one for the runs that ask for it, which takes no part in the replacement.
#[derive(Clone, Debug)]
pub struct Rollout<T> {
    current: T,
    next: Option<(T, Share)>,
    on_request: Option<T>,
}

impl<T> Rollout<T> {
    /// Two versions; the next one gets `share` of the runs.
    pub const fn with_next(current: T, next: T, share: Share) -> Self {
        Self { current, next: Some((next, share)), on_request: None }
    }

    /// The same versions, and one for the runs that ask for it.
    #[must_use]
    pub fn with_on_request(self, on_request: Option<T>) -> Self {
        Self { on_request, ..self }
    }

    /// The one that only runs get that ask for it.
    pub const fn on_request(&self) -> Option<&T> {
        self.on_request.as_ref()
    }

    /// The version that may replace the current one.
    pub fn next(&self) -> Option<&T> {
        self.next.as_ref().map(|(next, _)| next)
    }

    /// The version that the next one will replace, or the only one.
    pub const fn current(&self) -> &T {
        &self.current
    }

    /// The versions that take part in the replacement, the current one first.
    pub fn versions(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.current).chain(self.next())
    }

    /// All of them: the versions, the current one first, and the one on request.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.versions().chain(&self.on_request)
    }

    /// The same versions, each converted.
    pub fn map<U>(self, convert: impl Fn(T) -> U) -> Rollout<U> {
        let next = self.next.map(|(next, share)| (convert(next), share));
        let on_request = self.on_request.map(&convert);
        Rollout { current: convert(self.current), next, on_request }
    }

    /// The version for a new run; the same run and share always give the same one.
    pub fn for_run(&self, run: RunId) -> &T {
        match &self.next {
            Some((next, share)) if share.includes(run) => next,
            _ => &self.current,
        }
    }
}

impl<T> From<T> for Rollout<T> {
    fn from(current: T) -> Self {
        Self { current, next: None, on_request: None }
    }
}

impl Share {
    /// A share from 0 to 1, rounded to a millionth.
    pub fn new(share: f64) -> Result<Self, ShareError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(ShareError { share });
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 1000000")]
        let millionths = (share * f64::from(WHOLE)).round() as u32;
        Ok(Self { millionths })
    }

    /// Whether the run is in the share.
    pub fn includes(self, run: RunId) -> bool {
        let (high, low) = run.as_uuid().as_u64_pair();
        spread(high ^ spread(low)) % u64::from(WHOLE) < u64::from(self.millionths)
    }
}

/// Spreads neighbouring numbers: the finalizer of `SplitMix64` (Steele, Lea and Flood, 2014) with Stafford's constants.
const fn spread(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn included(share: f64) -> Vec<u128> {
        let share = Share::new(share).unwrap();
        // Ids that differ in their first half only, like those of runs accepted in one moment.
        (0..10_000).filter(|id| share.includes(RunId::new(Uuid::from_u128(*id << 64)))).collect()
    }

    #[test]
    fn a_share_has_its_part_of_runs_and_is_in_larger_ones() {
        let (tenth, quarter) = (included(0.1), included(0.25));
        assert!((900..1_100).contains(&tenth.len()), "{}", tenth.len());
        assert!((2_350..2_650).contains(&quarter.len()), "{}", quarter.len());
        assert!(tenth.iter().all(|run| quarter.contains(run)));
        assert_eq!((included(0.0).len(), included(1.0).len()), (0, 10_000));
    }

    #[test]
    fn the_next_version_gets_the_runs_of_its_share() {
        let share = Share::new(0.3).unwrap();
        let (only, two) = (Rollout::from("current"), Rollout::with_next("current", "next", share));
        assert_eq!(two.all().collect::<Vec<_>>(), [&"current", &"next"]);
        for run in (0..100).map(|id| RunId::new(Uuid::from_u128(id << 64))) {
            assert_eq!(*two.for_run(run) == "next", share.includes(run));
            assert_eq!(*only.for_run(run), "current");
        }
    }

    #[test]
    fn no_run_gets_the_one_on_request_without_asking() {
        let share = Share::new(0.3).unwrap();
        let all = Rollout::with_next("current", "next", share).with_on_request(Some("other")).map(str::len);
        assert_eq!((all.on_request(), all.versions().count(), all.all().count()), (Some(&5), 2, 3));
        let runs = (0..100).map(|id| RunId::new(Uuid::from_u128(id << 64)));
        assert!(runs.into_iter().all(|run| *all.for_run(run) != 5));
    }

    #[test]
    fn a_share_out_of_bounds_is_refused() {
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(Share::new(wrong).is_err(), "{wrong}");
        }
    }
}
