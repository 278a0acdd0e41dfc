//! Caches the common beginnings of prompts: each is computed once and kept in a separate sequence.
//!
//! A prompt with this beginning shares its cells of the context; nothing is copied. Prefixes are kept as they are used, and
//! the least recently used one is evicted first.

/// Most cached prefixes. Prompts name the allowed workers and steps, so requests differ in these.
pub(super) const PREFIXES_MAX: u16 = 4;
/// Shorter prefixes are not worth a sequence.
const TOKENS_MIN: usize = 16;
/// A prompt whose shared part exceeds a cached prefix by at most this many tokens uses that prefix: the tokens at its end
/// depend on how the question begins.
const LONGER_MAX: usize = 8;

/// The first tokens of a prompt, available in a cached prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    /// The sequence of the prefix.
    pub(super) sequence: u16,
    /// Number of tokens.
    pub(super) tokens: usize,
    /// Whether an earlier prompt had the same beginning.
    pub(super) is_known: bool,
}

/// The cached prefixes, complete or in progress.
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
    /// Creates an empty cache that uses the sequences from `first_sequence` on and at most `tokens_max` tokens.
    pub(super) fn new(first_sequence: u16, tokens_max: usize) -> Self {
        Self { kept: Vec::new(), first_sequence, tokens_max, uses: 0 }
    }

    /// Finds or creates the cached prefix for a prompt that begins with `shared`; `None` if the prompt must compute it
    /// itself. Evicted prefixes are passed to `forget`. A prefix that a request awaits (`awaited`) is never evicted.
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

    /// Whether these tokens are in the context.
    pub(super) fn is_decoded(&self, beginning: Beginning) -> bool {
        self.of(beginning.sequence).is_some_and(|prefix| prefix.decoded >= beginning.tokens)
    }

    /// Tokens of a prefix that are in the context, and the missing ones.
    pub(super) fn undecoded(&self, sequence: u16) -> (usize, &[u32]) {
        self.of(sequence).map_or((0, &[]), |prefix| (prefix.decoded, &prefix.tokens[prefix.decoded..]))
    }

    /// Records that the context has more tokens of a sequence; ignored unless it is a prefix.
    pub(super) fn add_decoded(&mut self, sequence: u16, tokens: usize) {
        if let Some(prefix) = self.kept.iter_mut().find(|prefix| prefix.sequence == sequence) {
            prefix.decoded += tokens;
        }
    }

    /// Removes all prefixes.
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

    /// Looks up the beginning of a prompt. Also returns the evicted sequences.
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
    fn the_second_prompt_uses_the_first_ones_prefix() {
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
    fn a_prompt_shares_the_tokens_before_a_difference() {
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
    fn too_short_and_too_long_prefixes_are_not_cached() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        assert_eq!(found(&mut prefixes, &prefix(5, TOKENS_MIN - 1), &[]).0, None);
        assert_eq!(found(&mut prefixes, &prefix(5, 1001), &[]).0, None);
        assert_eq!(prefixes.tokens(), 0);
    }

    #[test]
    fn the_least_recently_used_prefix_is_evicted() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        for kind in 0..4 {
            found(&mut prefixes, &prefix(kind, 100), &[]);
        }
        found(&mut prefixes, &prefix(0, 100), &[]);
        let (beginning, forgotten) = found(&mut prefixes, &prefix(9, 100), &[]);
        assert_eq!((beginning.unwrap().sequence, forgotten), (FIRST + 1, vec![FIRST + 1]));
    }

    #[test]
    fn cached_prefixes_respect_the_token_limit() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        found(&mut prefixes, &prefix(0, 400), &[]);
        found(&mut prefixes, &prefix(1, 400), &[]);
        assert_eq!(found(&mut prefixes, &prefix(2, 900), &[]).1, [FIRST, FIRST + 1]);
        assert_eq!(prefixes.tokens(), 900);
    }

    #[test]
    fn an_awaited_prefix_is_not_evicted() {
        let mut prefixes = Prefixes::new(FIRST, 1000);
        found(&mut prefixes, &prefix(0, 900), &[]);
        assert_eq!(found(&mut prefixes, &prefix(1, 900), &[FIRST]), (None, vec![]));
        assert_eq!(found(&mut prefixes, &prefix(1, 900), &[]).1, [FIRST]);
    }
}
