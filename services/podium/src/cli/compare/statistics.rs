//! Intervals and tests for shares of right answers to the same questions.

/// The quantile of the normal distribution for two-sided intervals of 95 %.
const Z95: f64 = 1.959_963_984_540_054;

/// A 95 % interval of a share, 0 to 1: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927.
pub(super) fn wilson(right: usize, asked: usize) -> [f64; 2] {
    if asked == 0 {
        return [0.0, 1.0];
    }
    let (n, z2) = (real(asked), Z95 * Z95);
    let share = real(right) / n;
    let middle = share + z2 / (2.0 * n);
    let spread = Z95 * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    [((middle - spread) / scale).max(0.0), ((middle + spread) / scale).min(1.0)]
}

/// Two systems' answers to the same questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paired {
    /// The number of questions.
    pub(super) asked: usize,
    /// Questions that only this system answered right.
    pub(super) won: usize,
    /// Questions that only the other one answered right.
    pub(super) lost: usize,
}

impl Paired {
    /// Compares `(this, other)` of each question.
    pub(super) fn of(answers: impl Iterator<Item = [bool; 2]>) -> Self {
        answers.fold(Self { asked: 0, won: 0, lost: 0 }, |paired, [this, other]| Self {
            asked: paired.asked + 1,
            won: paired.won + usize::from(this && !other),
            lost: paired.lost + usize::from(!this && other),
        })
    }

    /// The difference of the shares, -1 to 1, and its 95 % interval by the normal approximation for paired shares.
    pub(super) fn difference(self) -> (f64, [f64; 2]) {
        let n = real(self.asked.max(1));
        let (won, lost) = (real(self.won), real(self.lost));
        let difference = (won - lost) / n;
        let variance = ((won + lost) / n - difference * difference) / n;
        let spread = Z95 * variance.max(0.0).sqrt();
        (difference, [difference - spread, difference + spread])
    }

    /// The probability of a difference of this size or more between equally good systems, by the exact, two-sided form of the
    /// test in `McNemar`, "Note on the sampling error of the difference between correlated proportions", 1947.
    pub(super) fn p_value(self) -> f64 {
        let discordant = self.won + self.lost;
        let fewer = self.won.min(self.lost);
        // The logarithm of the binomial coefficient, term by term.
        let mut log_term = real(discordant) * 0.5f64.ln();
        let mut sum = log_term.exp();
        for k in 1..=fewer {
            log_term += (real(discordant - k + 1) / real(k)).ln();
            sum += log_term.exp();
        }
        (2.0 * sum).min(1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of questions are far below 2^53")]
pub(super) fn real(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 5e-4, "{value}, not {expected}");
    }

    /// Computed with statsmodels 0.15.0: `proportion_confint(right, asked, method="wilson")`.
    #[test]
    fn intervals_are_those_of_statsmodels() {
        for (right, asked, expected) in
            [(62, 100, [0.5221, 0.7090]), (0, 20, [0.0, 0.1611]), (188, 188, [0.9800, 1.0])]
        {
            let [low, high] = wilson(right, asked);
            assert_near(low, expected[0]);
            assert_near(high, expected[1]);
        }
    }

    /// Computed with `scipy` 1.17.1: `binomtest(min(won, lost), won + lost).pvalue`.
    #[test]
    fn p_values_are_those_of_the_binomial_test() {
        for (won, lost, expected) in
            [(10, 2, 0.0386), (5, 5, 1.0), (0, 0, 1.0), (60, 30, 0.0021), (0, 9, 0.0039)]
        {
            assert_near(Paired { asked: 200, won, lost }.p_value(), expected);
        }
        let many = Paired { asked: 20_000, won: 6_000, lost: 4_000 };
        // 1.74e-89.
        assert!((1.7e-89..1.8e-89).contains(&many.p_value()), "{}", many.p_value());
    }

    #[test]
    fn a_difference_counts_questions_that_only_one_answered() {
        let answers = [[true, true], [true, false], [true, false], [false, true], [false, false]];
        let paired = Paired::of(answers.into_iter());
        assert_eq!(paired, Paired { asked: 5, won: 2, lost: 1 });
        let (difference, [low, high]) = paired.difference();
        assert_near(difference, 0.2);
        assert!(low < 0.0 && high > 0.2);
    }
}
