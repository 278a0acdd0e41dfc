//! What prompts begin with alike, computed once and kept in sequences of its own.
//!
//! A sequence that begins with it shares its part of the context: nothing is copied. Which prefixes are kept follows from what
//! is asked; the least recently used goes first.

/// Most prefixes that are kept: requests differ in the workers and steps that they may have, and prompts name these.
pub(super) const PREFIXES_MAX: u16 = 4;
/// Shorter ones are not worth a sequence.
const TOKENS_MIN: usize = 16;
/// A prompt whose shared part is longer than what is kept by no more than this uses what is kept: the tokens where a question
/// begins depend on it.
const LONGER_MAX: usize = 8;

/// The first tokens of a prompt, as a kept prefix has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    /// The sequence of the prefix.
    pub(super) sequence: u16,
    /// How many tokens.
    pub(super) tokens: usize,
    /// Whether an earlier prompt had it.
    pub(super) is_known: bool,
}

/// What is kept, or being computed.
pub(super) struct Prefixes {
    kept: Vec<Prefix>,
    first_sequence: u16,
    tokens_max: usize,
    uses: u64,
}

struct Prefix {
    sequence: u16,
    tokens: Vec<u32>,
    decoded: usize,
    last_use: u64,
}

impl Prefixes {
    /// Nothing kept yet. The sequences from `first_sequence` on are theirs; all together hold at most `tokens_max` tokens.
    pub(super) fn new(first_sequence: u16, tokens_max: usize) -> Self {
        Self { kept: Vec::new(), first_sequence, tokens_max, uses: 0 }
    }

    /// Where a prompt that begins with `shared` has its first tokens from; none if it is to compute them by itself. Keeps
    /// the prefix from now on if it is new. Those that are dropped for it are given to `forget`; never one that is `awaited`.
    pub(super) fn find(
        &mut self,
        shared: &[u32],
        awaited: impl Fn(u16) -> bool,
        mut forget: impl FnMut(u16),
    ) -> Option<Beginning> {
        if shared.len() < TOKENS_MIN || shared.len() > self.tokens_max {
            return None;
        }
        self.uses += 1;
        let alike = |prefix: &Prefix| prefix.tokens.iter().zip(shared).take_while(|(a, b)| a == b).count();
        let best = self.kept.iter_mut().map(|prefix| (alike(prefix), prefix)).max_by_key(|(alike, _)| *alike);
        if let Some((tokens, prefix)) = best
            && tokens + LONGER_MAX >= shared.len()
        {
            prefix.last_use = self.uses;
            return Some(Beginning { sequence: prefix.sequence, tokens, is_known: true });
        }
        while self.kept.len() >= PREFIXES_MAX.into() || self.tokens() + shared.len() > self.tokens_max {
            let idle = (0..self.kept.len()).filter(|at| !awaited(self.kept[*at].sequence));
            let oldest = idle.min_by_key(|at| self.kept[*at].last_use)?;
            forget(self.kept.swap_remove(oldest).sequence);
        }
        let is_free = |sequence: &u16| self.kept.iter().all(|prefix| prefix.sequence != *sequence);
        let sequence = (self.first_sequence..).take(PREFIXES_MAX.into()).find(is_free)?;
        self.kept.push(Prefix { sequence, tokens: shared.to_vec(), decoded: 0, last_use: self.uses });
        Some(Beginning { sequence, tokens: shared.len(), is_known: false })
    }

    /// Whether the context has it.
    pub(super) fn is_decoded(&self, beginning: Beginning) -> bool {
        self.of(beginning.sequence).is_some_and(|prefix| prefix.decoded >= beginning.tokens)
    }

    /// The tokens of a prefix that the context lacks, and how many it has.
    pub(super) fn undecoded(&self, sequence: u16) -> (usize, &[u32]) {
        self.of(sequence).map_or((0, &[]), |prefix| (prefix.decoded, &prefix.tokens[prefix.decoded..]))
    }

    /// The context has so many tokens more of a sequence, if that is one of a prefix.
    pub(super) fn add_decoded(&mut self, sequence: u16, tokens: usize) {
        if let Some(prefix) = self.kept.iter_mut().find(|prefix| prefix.sequence == sequence) {
            prefix.decoded += tokens;
        }
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    fn of(&self, sequence: u16) -> Option<&Prefix> {
        self.kept.iter().find(|prefix| prefix.sequence == sequence)
    }

    fn tokens(&self) -> usize {
        self.kept.iter().map(|prefix| prefix.tokens.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u16 = 8;

    /// Finds the beginning of a prompt; which sequences were dropped for it.
    fn found(prefixes: &mut Prefixes, shared: &[u32], awaited: &[u16]) -> (Option<Beginning>, Vec<u16>) {
        let mut forgotten = Vec::new();
        let is_awaited = |sequence| awaited.contains(&sequence);
        let beginning = prefixes.find(shared, is_awaited, |sequence| forgotten.push(sequence));
        (beginning, forgotten)
    }

    fn prefix(kind: u32, tokens: usize) -> Vec<u32> {
        let mut prefix = vec![kind; tokens];
        prefix[0] = 1;
        prefix
    }

    #[test]
    fn the_second_prompt_finds_what_the_first_one_left() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        let beginning = Beginning { sequence: FIRST, tokens: 100, is_known: false };
        assert_eq!(found(&mut prefixes, &prefix(5, 100), &[]).0, Some(beginning));
        assert!(!prefixes.is_decoded(beginning));
        prefixes.add_decoded(FIRST, 60);
        assert_eq!(prefixes.undecoded(FIRST).0, 60);
        assert_eq!(prefixes.undecoded(FIRST).1.len(), 40);
        prefixes.add_decoded(FIRST, 40);
        let known = Beginning { is_known: true, ..beginning };
        assert_eq!(found(&mut prefixes, &prefix(5, 100), &[]).0, Some(known));
        assert!(prefixes.is_decoded(known));
    }

    #[test]
    fn a_prompt_that_differs_at_its_last_shared_tokens_shares_the_rest() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        found(&mut prefixes, &prefix(5, 100), &[]);
        let mut other = prefix(5, 103);
        other[98..].fill(6);
        let beginning = found(&mut prefixes, &other, &[]).0.unwrap();
        assert_eq!((beginning.sequence, beginning.tokens), (FIRST, 98));
        other[80..].fill(6);
        let beginning = found(&mut prefixes, &other, &[]).0.unwrap();
        assert_eq!((beginning.sequence, beginning.tokens), (FIRST + 1, 103));
    }

    #[test]
    fn a_short_beginning_and_one_beyond_the_bound_are_not_kept() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        assert_eq!(found(&mut prefixes, &prefix(5, TOKENS_MIN - 1), &[]).0, None);
        assert_eq!(found(&mut prefixes, &prefix(5, 1001), &[]).0, None);
        assert_eq!(prefixes.tokens(), 0);
    }

    #[test]
    fn the_least_recently_used_goes_when_there_are_too_many() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        for kind in 0..4 {
            found(&mut prefixes, &prefix(kind, 100), &[]);
        }
        found(&mut prefixes, &prefix(0, 100), &[]);
        let (beginning, forgotten) = found(&mut prefixes, &prefix(9, 100), &[]);
        assert_eq!((beginning.unwrap().sequence, forgotten), (FIRST + 1, vec![FIRST + 1]));
    }

    #[test]
    fn all_together_stay_within_their_tokens() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        found(&mut prefixes, &prefix(0, 400), &[]);
        found(&mut prefixes, &prefix(1, 400), &[]);
        assert_eq!(found(&mut prefixes, &prefix(2, 900), &[]).1, [FIRST, FIRST + 1]);
        assert_eq!(prefixes.tokens(), 900);
    }

    #[test]
    fn one_that_is_awaited_stays_and_the_prompt_is_computed_by_itself() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        found(&mut prefixes, &prefix(0, 900), &[]);
        assert_eq!(found(&mut prefixes, &prefix(1, 900), &[FIRST]), (None, vec![]));
        assert_eq!(found(&mut prefixes, &prefix(1, 900), &[]).1, [FIRST]);
    }
}
