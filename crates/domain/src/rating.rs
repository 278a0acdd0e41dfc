//! A client's rating of an answer.

/// Most bytes of a comment.
pub const COMMENT_BYTES_MAX: usize = 4096;

/// A rating: a score from 0 (useless) to 1 (right), and an optional comment.
#[derive(Clone, Debug, PartialEq)]
pub struct Rating {
    score: f64,
    comment: Option<String>,
}

/// A rating is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidRating {
    /// The score is out of bounds or NaN.
    #[error("score is {score}, it must be 0 to 1")]
    Score {
        /// Its value.
        score: f64,
    },
    /// The comment is too long.
    #[error("comment has {bytes} bytes, the limit is {COMMENT_BYTES_MAX}")]
    CommentTooLong {
        /// Its size.
        bytes: usize,
    },
    /// The comment has a character that databases cannot store.
    #[error("comment has a NUL character")]
    CommentNul,
}

impl InvalidRating {
    /// The invalid field.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Score { .. } => "score",
            Self::CommentTooLong { .. } | Self::CommentNul => "comment",
        }
    }
}

impl Rating {
    /// Checks both. A blank comment counts as absent.
    pub fn new(score: f64, comment: Option<String>) -> Result<Self, InvalidRating> {
        if !(0.0..=1.0).contains(&score) {
            return Err(InvalidRating::Score { score });
        }
        let comment = comment.filter(|comment| !comment.trim().is_empty());
        match &comment {
            Some(comment) if comment.len() > COMMENT_BYTES_MAX => {
                Err(InvalidRating::CommentTooLong { bytes: comment.len() })
            }
            Some(comment) if comment.contains('\0') => Err(InvalidRating::CommentNul),
            // Without the sign of a negative zero.
            _ => Ok(Self { score: score.abs(), comment }),
        }
    }

    /// From 0 to 1.
    pub fn score(&self) -> f64 {
        self.score
    }

    /// The comment, if there is one.
    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_and_comments_have_bounds() {
        let rated = |score, comment: &str| Rating::new(score, Some(comment.to_owned()));
        for score in [0.0, 0.5, 1.0, -0.0] {
            assert_eq!(rated(score, "fine").unwrap().score().to_bits(), score.abs().to_bits());
        }
        for score in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(rated(score, "").unwrap_err().field(), "score", "{score}");
        }
        assert_eq!(rated(1.0, " ").unwrap().comment(), None);
        assert!(rated(1.0, &"x".repeat(COMMENT_BYTES_MAX)).is_ok());
        let long = rated(1.0, &"x".repeat(COMMENT_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(long.to_string(), "comment has 4097 bytes, the limit is 4096");
        assert_eq!(rated(1.0, "a\0b").unwrap_err().field(), "comment");
    }
}
