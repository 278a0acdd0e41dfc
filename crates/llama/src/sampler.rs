//! Chooses the next token from the model's logits, greedily or by seeded sampling. It does not use llama.cpp, so the same
//! logits and seed give the same token on every machine.
//!
//! A token is chosen from the whole vocabulary first and then checked; only if it is not allowed is the mask computed. The result
//! has the same distribution as sampling under the mask, and no mask is computed while the model obeys the grammar by itself.

use std::borrow::Borrow;
use std::convert::Infallible;

use podium_domain::split_mix::split_mix;
use toktrie::SimpleVob;

/// Sampling parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token; 1 samples with the model's own probabilities. Negative values count as 0.
    pub temperature: f32,
    /// Samples only from the likeliest tokens with this total probability. 1 samples from all.
    pub top_p: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The tokens that may be chosen.
pub(crate) trait Choice {
    /// The error of a failed check.
    type Error;

    /// Whether this token may be chosen.
    fn is_allowed(&mut self, token: u32) -> Result<bool, Self::Error>;

    /// All tokens that may be chosen.
    fn mask(&mut self) -> Result<impl Borrow<SimpleVob>, Self::Error>;
}

impl Choice for &SimpleVob {
    type Error = Infallible;

    fn is_allowed(&mut self, token: u32) -> Result<bool, Infallible> {
        // A vocabulary may have fewer tokens than logits.
        Ok((token as usize) < self.len() && SimpleVob::is_allowed(self, token))
    }

    fn mask(&mut self) -> Result<impl Borrow<SimpleVob>, Infallible> {
        Ok(*self)
    }
}

/// Tokens this far below the likeliest (in units of the temperature) are not sampled: all of a vocabulary's together would
/// be drawn less than once in a hundred million times.
const DRAWN_WITHIN: f32 = 32.0;

/// Samples tokens of one request.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    die: Die,
    /// Kept to reuse its allocation.
    weights: Vec<(u32, f64)>,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self { sampling, die: Die { seed: sampling.seed, drawn: 0 }, weights: Vec::new() }
    }

    /// Chooses an allowed token; `None` if none of them has a finite logit.
    pub(crate) fn choose<C: Choice>(
        &mut self,
        logits: &[f32],
        choice: &mut C,
    ) -> Result<Option<u32>, C::Error> {
        let Some(free) = self.draw(&All(logits)) else { return Ok(None) };
        if choice.is_allowed(free)? {
            return Ok(Some(free));
        }
        let mask = choice.mask()?;
        Ok(self.draw(&Masked { logits, mask: mask.borrow() }))
    }

    fn draw(&mut self, candidates: &impl Candidates) -> Option<u32> {
        let (likeliest, highest) = candidates.likeliest()?;
        if self.sampling.temperature <= 0.0 {
            return Some(likeliest);
        }
        let temperature = self.sampling.temperature;
        let lowest = highest - DRAWN_WITHIN * temperature;
        self.weights.clear();
        let weights = &mut self.weights;
        candidates.for_each(|token, logit| {
            // False for NaN.
            if logit >= lowest {
                weights.push((token, f64::from((logit - highest) / temperature).exp()));
            }
        });
        self.keep_nucleus();
        let total: f64 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut left = self.die.fraction() * total;
        let drawn = self.weights.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        drawn.or(self.weights.last()).map(|(token, _)| *token)
    }

    fn keep_nucleus(&mut self) {
        if self.sampling.top_p >= 1.0 {
            return;
        }
        let weights = &mut self.weights;
        weights.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut before = 0.0;
        let kept = weights.iter().take_while(|(_, weight)| {
            let keep = before < f64::from(self.sampling.top_p) * total;
            before += weight;
            keep
        });
        let kept = kept.count().max(1);
        weights.truncate(kept);
    }
}

/// Tokens with their logits, in ascending order of tokens.
trait Candidates {
    fn for_each(&self, visit: impl FnMut(u32, f32));

    /// The first token with the highest logit, and that logit; `None` if no logit is above minus infinity.
    fn likeliest(&self) -> Option<(u32, f32)>;
}

/// The whole vocabulary.
struct All<'a>(&'a [f32]);

impl Candidates for All<'_> {
    fn for_each(&self, mut visit: impl FnMut(u32, f32)) {
        for (token, &logit) in (0u32..).zip(self.0) {
            visit(token, logit);
        }
    }

    fn likeliest(&self) -> Option<(u32, f32)> {
        // One maximum for each lane of a vector register: four times as fast as a single one.
        const LANES: usize = 16;
        let higher = |a: f32, b: f32| if b > a { b } else { a };
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (wide, rest) = self.0.as_chunks::<LANES>();
        for logits in wide {
            for (lane, &logit) in lanes.iter_mut().zip(logits) {
                *lane = higher(*lane, logit);
            }
        }
        let highest = lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, higher);
        let first = |highest| (0u32..).zip(self.0).find(|(_, logit)| **logit >= highest);
        (highest > f32::NEG_INFINITY).then(|| first(highest)).flatten().map(|(token, &logit)| (token, logit))
    }
}

/// A part of the vocabulary. The mask may be longer or shorter than the logits.
struct Masked<'a> {
    logits: &'a [f32],
    mask: &'a SimpleVob,
}

impl Candidates for Masked<'_> {
    fn for_each(&self, mut visit: impl FnMut(u32, f32)) {
        for token in self.mask.iter() {
            if let Some(&logit) = self.logits.get(token as usize) {
                visit(token, logit);
            }
        }
    }

    fn likeliest(&self) -> Option<(u32, f32)> {
        let mut best: Option<(u32, f32)> = None;
        self.for_each(|token, logit| {
            if logit > best.map_or(f32::NEG_INFINITY, |(_, highest)| highest) {
                best = Some((token, logit));
            }
        });
        best
    }
}

/// Random numbers of a seed, which are the same on every machine.
#[derive(Debug)]
struct Die {
    seed: u64,
    drawn: u64,
}

impl Die {
    fn next_u64(&mut self) -> u64 {
        self.drawn += 1;
        split_mix(self.seed, self.drawn)
    }

    /// A number from 0 up to, but not including, 1, with 32 bits of precision.
    fn fraction(&mut self) -> f64 {
        let [high, ..] = self.next_u64().to_be_bytes().map(u32::from);
        let rest = self.next_u64().to_be_bytes();
        let low = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]);
        f64::from((high << 24) | low) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mask that counts its uses.
    struct Counted {
        mask: SimpleVob,
        asked: usize,
    }

    impl Choice for Counted {
        type Error = Infallible;

        fn is_allowed(&mut self, token: u32) -> Result<bool, Infallible> {
            Ok(self.mask.is_allowed(token))
        }

        fn mask(&mut self) -> Result<impl Borrow<SimpleVob>, Infallible> {
            self.asked += 1;
            Ok(&self.mask)
        }
    }

    fn mask(allowed: &[bool]) -> Counted {
        Counted { mask: SimpleVob::from_slice(allowed), asked: 0 }
    }

    fn choose(sampler: &mut Sampler, logits: &[f32], allowed: &[bool]) -> Option<u32> {
        sampler.choose(logits, &mut mask(allowed)).unwrap()
    }

    fn sampler(temperature: f32, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Sampling { temperature, top_p, seed })
    }

    #[test]
    fn without_temperature_the_likeliest_allowed_token_is_chosen() {
        let logits = [1.0, 9.0, 3.0, 3.0];
        assert_eq!(choose(&mut sampler(0.0, 1.0, 1), &logits, &[true; 4]), Some(1));
        assert_eq!(choose(&mut sampler(0.0, 1.0, 1), &logits, &[true, false, true, true]), Some(2));
    }

    #[test]
    fn the_first_of_the_likeliest_is_chosen_wherever_it_is() {
        for size in [1, 15, 16, 17, 100] {
            for best in 0..size {
                let mut logits = vec![-1.0; size];
                logits[best..].fill(2.5);
                let chosen = choose(&mut sampler(0.0, 1.0, 1), &logits, &vec![true; size]);
                assert_eq!(chosen, u32::try_from(best).ok());
            }
        }
    }

    #[test]
    fn a_nan_logit_is_never_chosen() {
        let logits = [f32::NAN, f32::NEG_INFINITY, 0.5];
        assert_eq!(choose(&mut sampler(0.0, 1.0, 1), &logits, &[true; 3]), Some(2));
        assert_eq!(choose(&mut sampler(1.0, 1.0, 1), &logits, &[true; 3]), Some(2));
        assert_eq!(choose(&mut sampler(1.0, 1.0, 1), &logits, &[true, true, false]), None);
        assert_eq!(choose(&mut sampler(1.0, 1.0, 1), &logits, &[false; 3]), None);
        assert_eq!(choose(&mut sampler(0.0, 1.0, 1), &[f32::NAN; 40], &[true; 40]), None);
    }

    #[test]
    fn drawn_tokens_follow_the_probabilities() {
        let logits = [0.0, 3.0f32.ln(), f32::NEG_INFINITY];
        let mut sampler = sampler(1.0, 1.0, 42);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[choose(&mut sampler, &logits, &[true; 3]).unwrap() as usize] += 1;
        }
        assert!((7_300..7_700).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts[2], 0);
    }

    #[test]
    fn forbidden_tokens_do_not_change_the_other_probabilities() {
        // Without the first token the ratio is 1 : 3.
        let logits = [2.0, 0.0, 3.0f32.ln()];
        let mut sampler = sampler(1.0, 1.0, 42);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[choose(&mut sampler, &logits, &[false, true, true]).unwrap() as usize] += 1;
        }
        assert!(counts[0] == 0 && (7_300..7_700).contains(&counts[2]), "{counts:?}");
    }

    #[test]
    fn no_mask_is_computed_while_the_model_obeys_the_grammar() {
        let mut allowed = mask(&[false, true, true]);
        let mut greedy = sampler(0.0, 1.0, 1);
        assert_eq!(greedy.choose(&[0.0, 1.0, 0.5], &mut allowed).unwrap(), Some(1));
        assert_eq!(allowed.asked, 0);
        assert_eq!(greedy.choose(&[2.0, 1.0, 0.5], &mut allowed).unwrap(), Some(1));
        assert_eq!(allowed.asked, 1);
    }

    #[test]
    fn a_seed_determines_the_tokens() {
        let draw = |seed| {
            let mut sampler = sampler(1.0, 1.0, seed);
            (0..32).map(|_| choose(&mut sampler, &[0.0; 64], &[true; 64]).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn top_p_leaves_the_unlikely_out() {
        let logits = [2.0, 1.9, -1.0, -1.1];
        let mut narrow = sampler(1.0, 0.9, 3);
        assert!((0..1_000).all(|_| choose(&mut narrow, &logits, &[true; 4]).unwrap() < 2));
        let mut narrowest = sampler(1.0, 0.0, 3);
        assert!((0..100).all(|_| choose(&mut narrowest, &logits, &[true; 4]) == Some(0)));
    }
}
