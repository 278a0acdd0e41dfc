//! Chooses the next token from the model's logits: likeliest, or drawn from a seeded die. No llama.cpp here, so the same
//! logits and seed give the same token on every machine.

use toktrie::SimpleVob;

/// How a token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token; 1 draws by the model's own probabilities. A negative one counts as 0.
    pub temperature: f32,
    /// Draws only from the likeliest tokens that together have this probability. 1 draws from all.
    pub top_p: f32,
    /// Where the die starts.
    pub seed: u64,
}

/// Draws tokens for one request.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    die: Die,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self { sampling, die: Die(sampling.seed) }
    }

    /// A token of `allowed`; none if no allowed token has a number for a logit.
    pub(crate) fn choose(&mut self, logits: &[f32], allowed: &SimpleVob) -> Option<u32> {
        let candidates =
            (0u32..).zip(logits).filter(|(token, logit)| is_set(allowed, *token) && !logit.is_nan());
        // The first of equals wins, so that the choice does not depend on how an iterator breaks ties.
        let likeliest = candidates.clone().reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        if *likeliest.1 == f32::NEG_INFINITY {
            return None;
        }
        if self.sampling.temperature <= 0.0 {
            return Some(likeliest.0);
        }
        let weight = |logit: f32| f64::from((logit - likeliest.1) / self.sampling.temperature).exp();
        let mut weighed: Vec<(u32, f64)> = candidates.map(|(token, &logit)| (token, weight(logit))).collect();
        self.keep_nucleus(&mut weighed);
        let total: f64 = weighed.iter().map(|(_, weight)| weight).sum();
        let mut left = self.die.fraction() * total;
        let drawn = weighed.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        drawn.or(weighed.last()).map(|(token, _)| *token)
    }

    fn keep_nucleus(&self, weighed: &mut Vec<(u32, f64)>) {
        if self.sampling.top_p >= 1.0 {
            return;
        }
        weighed.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let total: f64 = weighed.iter().map(|(_, weight)| weight).sum();
        let mut before = 0.0;
        let kept = weighed.iter().take_while(|(_, weight)| {
            let keep = before < f64::from(self.sampling.top_p) * total;
            before += weight;
            keep
        });
        let kept = kept.count().max(1);
        weighed.truncate(kept);
    }
}

/// Whether a mask has a token. Masks may be longer or shorter than the logits.
fn is_set(mask: &SimpleVob, token: u32) -> bool {
    (token as usize) < mask.len() && mask.is_allowed(token)
}

/// The `SplitMix64` generator: small, and pinned here so that a seed means the same for ever.
#[derive(Debug)]
struct Die(u64);

impl Die {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1, in steps that a 32-bit number counts.
    fn fraction(&mut self) -> f64 {
        let [high, ..] = self.roll().to_be_bytes().map(u32::from);
        let rest = self.roll().to_be_bytes();
        let low = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]);
        f64::from((high << 24) | low) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(allowed: &[bool]) -> SimpleVob {
        SimpleVob::from_slice(allowed)
    }

    fn sampler(temperature: f32, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Sampling { temperature, top_p, seed })
    }

    #[test]
    fn without_temperature_the_likeliest_allowed_token_is_chosen() {
        let logits = [1.0, 9.0, 3.0, 3.0];
        assert_eq!(sampler(0.0, 1.0, 1).choose(&logits, &mask(&[true; 4])), Some(1));
        assert_eq!(sampler(0.0, 1.0, 1).choose(&logits, &mask(&[true, false, true, true])), Some(2));
    }

    #[test]
    fn a_logit_that_is_no_number_is_never_chosen() {
        let logits = [f32::NAN, f32::NEG_INFINITY, 0.5];
        assert_eq!(sampler(0.0, 1.0, 1).choose(&logits, &mask(&[true; 3])), Some(2));
        assert_eq!(sampler(1.0, 1.0, 1).choose(&logits, &mask(&[true, true, false])), None);
        assert_eq!(sampler(1.0, 1.0, 1).choose(&logits, &mask(&[false; 3])), None);
    }

    #[test]
    fn drawn_tokens_follow_the_probabilities() {
        let (logits, all) = ([0.0, 3.0f32.ln(), f32::NEG_INFINITY], mask(&[true; 3]));
        let mut sampler = sampler(1.0, 1.0, 42);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[sampler.choose(&logits, &all).unwrap() as usize] += 1;
        }
        assert!((7_300..7_700).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts[2], 0);
    }

    #[test]
    fn a_seed_gives_the_same_tokens_again_and_another_seed_others() {
        let (logits, all) = ([0.0; 64], mask(&[true; 64]));
        let draw = |seed| {
            let mut sampler = sampler(1.0, 1.0, seed);
            (0..32).map(|_| sampler.choose(&logits, &all).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn top_p_leaves_the_unlikely_out() {
        let (logits, all) = ([2.0, 1.9, -1.0, -1.1], mask(&[true; 4]));
        let mut narrow = sampler(1.0, 0.9, 3);
        assert!((0..1_000).all(|_| narrow.choose(&logits, &all).unwrap() < 2));
        let mut narrowest = sampler(1.0, 0.0, 3);
        assert!((0..100).all(|_| narrowest.choose(&logits, &all) == Some(0)));
    }
}
