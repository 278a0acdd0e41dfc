//! A vector of a question's words, which needs no model: words and pairs of neighbouring words, hashed into a fixed number of values.
//! It knows topics and forms of questions, and nothing of the meaning of words that training did not show.

use crate::identity::Source;

/// Values of a vector.
pub const VALUES: usize = 1_024;
/// Names the way from a question to its vector. It changes when that changes.
pub const READING: &str = "words-1";
/// Words of a question that count, from its beginning.
const WORDS_MAX: usize = 4_096;

/// The origin of these vectors. There are no weights.
pub fn source() -> Source {
    Source { weights_sha256: String::new(), adapter: None, reading: READING.to_owned() }
}

/// The vector of a question, of length 1; zeros for a question without words. A word is a run of letters and digits in any case, or
/// one other character. The value of a word or pair is the square root of its count, added with a sign from its hash.
pub fn vector(question: &str) -> Vec<f32> {
    let words = words(question);
    let pairs = words.windows(2).map(|pair| hash(&[&pair[0], &pair[1]]));
    let mut hashes: Vec<u64> = words.iter().map(|word| hash(&[word])).chain(pairs).collect();
    hashes.sort_unstable();
    let mut vector = vec![0.0f32; VALUES];
    for same in hashes.chunk_by(|a, b| a == b) {
        let sign = if same[0] >> 63 == 0 { 1.0 } else { -1.0 };
        let at = usize::try_from(same[0] % VALUES as u64).unwrap_or_default();
        vector[at] += sign * as_f32(same.len()).sqrt();
    }
    crate::vector::unit(&vector)
}

fn words(question: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for c in question.chars() {
        if words.len() >= WORDS_MAX {
            return words;
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if !c.is_whitespace() {
            words.push(c.to_string());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The 64-bit FNV-1a hash of the parts, each followed by a zero byte.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The low bits of FNV depend on the low bits of the bytes only.
    hash ^ (hash >> 29)
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn as_f32(count: usize) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likeness(a: &str, b: &str) -> f32 {
        vector(a).iter().zip(vector(b)).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn like_questions_have_like_vectors() {
        let sum = "What is 17 + 4?";
        assert!((likeness(sum, sum) - 1.0).abs() < 1e-6);
        assert!((likeness(sum, "what  IS 17 +4?") - 1.0).abs() < 1e-6, "case and blanks do not count");
        let near = likeness(sum, "What is 23 + 9?");
        let far = likeness(sum, "Name a river in France.");
        assert!(near > 0.3 && near > far + 0.2, "{near} and {far}");
        assert!(likeness("dog bites man", "man bites dog") < 0.9, "the order of words counts");
    }

    #[test]
    fn any_question_has_a_finite_vector() {
        for question in ["", " ", "?", "\u{1f600}\0", &"word ".repeat(100_000)] {
            let vector = vector(question);
            assert_eq!(vector.len(), VALUES);
            assert!(vector.iter().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn vectors_are_the_same_in_every_version() {
        let vector = vector("Why?");
        let values: Vec<_> = (0..).zip(&vector).filter(|(_, value)| **value != 0.0).collect();
        assert_eq!(values.len(), 3, "two words and a pair: {values:?}");
    }
}
