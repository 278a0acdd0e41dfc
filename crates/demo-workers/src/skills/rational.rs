//! Exact rational numbers over `i128` for all skills that compute. Only `Display` rounds, and nothing wraps: an overflow is
//! an error.

use std::fmt;

/// Why a computation has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// An intermediate value needs more than 127 bits.
    #[error("the numbers are too large to compute exactly (38 digits at most)")]
    TooLarge,
    /// The divisor is zero.
    #[error("a division by zero has no result")]
    DivisionByZero,
    /// The operation is defined for whole numbers only.
    #[error("this needs whole numbers")]
    NotWhole,
}

/// A fraction in lowest terms. Invariant: the denominator is positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    /// Zero.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };

    /// The whole number `value`.
    pub const fn whole(value: i128) -> Self {
        Self { numerator: value, denominator: 1 }
    }

    /// `numerator / denominator` in lowest terms.
    pub fn new(numerator: i128, denominator: i128) -> Result<Self, NumberError> {
        if denominator == 0 {
            return Err(NumberError::DivisionByZero);
        }
        // `i128::MIN` has no positive counterpart, so it is rejected.
        if numerator == i128::MIN || denominator == i128::MIN {
            return Err(NumberError::TooLarge);
        }
        let divisor = greatest_common_divisor(numerator.unsigned_abs(), denominator.unsigned_abs());
        let divisor = i128::try_from(divisor).map_err(|_| NumberError::TooLarge)?;
        let sign = denominator.signum();
        Ok(Self { numerator: sign * (numerator / divisor), denominator: sign * (denominator / divisor) })
    }

    /// Parses `-1,234.5`: an optional sign, digits with or without thousands separators, decimals.
    pub fn parse(text: &str) -> Result<Option<Self>, NumberError> {
        let text = text.trim();
        let (negative, digits) = match text.strip_prefix(['-', '\u{2212}']) {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let well_formed = !whole.is_empty()
            && (!digits.contains('.') || !decimals.is_empty())
            && decimals.bytes().all(|byte| byte.is_ascii_digit())
            && has_plain_or_grouped_digits(whole);
        if !well_formed {
            return Ok(None);
        }
        let mut numerator: i128 = 0;
        let mut denominator: i128 = 1;
        for byte in whole.bytes().filter(u8::is_ascii_digit) {
            numerator = push_digit(numerator, byte)?;
        }
        for byte in decimals.trim_end_matches('0').bytes() {
            numerator = push_digit(numerator, byte)?;
            denominator = denominator.checked_mul(10).ok_or(NumberError::TooLarge)?;
        }
        Self::new(if negative { -numerator } else { numerator }, denominator).map(Some)
    }

    /// The value, if it is a whole number.
    pub fn to_whole(self) -> Option<i128> {
        (self.denominator == 1).then_some(self.numerator)
    }

    /// `self + other`
    pub fn plus(self, other: Self) -> Result<Self, NumberError> {
        let left = self.numerator.checked_mul(other.denominator);
        let right = other.numerator.checked_mul(self.denominator);
        let sum = left.zip(right).and_then(|(left, right)| left.checked_add(right));
        let denominator = self.denominator.checked_mul(other.denominator);
        let (sum, denominator) = sum.zip(denominator).ok_or(NumberError::TooLarge)?;
        Self::new(sum, denominator)
    }

    /// `self - other`
    pub fn minus(self, other: Self) -> Result<Self, NumberError> {
        self.plus(Self { numerator: -other.numerator, denominator: other.denominator })
    }

    /// `self * other`
    pub fn times(self, other: Self) -> Result<Self, NumberError> {
        // Cancelling crosswise first keeps products of long fractions in range.
        let left = Self::new(self.numerator, other.denominator)?;
        let right = Self::new(other.numerator, self.denominator)?;
        let numerator = left.numerator.checked_mul(right.numerator);
        let denominator = left.denominator.checked_mul(right.denominator);
        let (numerator, denominator) = numerator.zip(denominator).ok_or(NumberError::TooLarge)?;
        Self::new(numerator, denominator)
    }

    /// `self / other`
    pub fn divided_by(self, other: Self) -> Result<Self, NumberError> {
        self.times(Self::new(other.denominator, other.numerator)?)
    }

    /// The remainder of whole numbers, with the sign of the divisor (as in `-7 mod 3 = 2`).
    pub fn remainder(self, other: Self) -> Result<Self, NumberError> {
        let (left, right) = self.to_whole().zip(other.to_whole()).ok_or(NumberError::NotWhole)?;
        if right == 0 {
            return Err(NumberError::DivisionByZero);
        }
        let remainder = left.checked_rem(right).ok_or(NumberError::TooLarge)?;
        let differs = remainder != 0 && (remainder < 0) != (right < 0);
        Ok(Self::whole(if differs { remainder + right } else { remainder }))
    }

    /// `self` to a whole, non-negative power.
    pub fn power(self, exponent: Self) -> Result<Self, NumberError> {
        let exponent = exponent.to_whole().ok_or(NumberError::NotWhole)?;
        // Beyond this, every base except -1, 0 and 1 is out of range anyway.
        let exponent = u32::try_from(exponent).ok().filter(|exponent| *exponent <= 1_000);
        let exponent = exponent.ok_or(NumberError::TooLarge)?;
        (0..exponent).try_fold(Self::whole(1), |product, _| product.times(self))
    }

    /// The value minus the next lower whole number.
    fn fractional_part(self) -> Self {
        Self { numerator: self.numerator.rem_euclid(self.denominator), ..self }
    }

    /// `1 / self`, for a positive value.
    const fn reciprocal(self) -> Self {
        Self { numerator: self.denominator, denominator: self.numerator }
    }

    /// The value as an integer and its decimal places, if it has at most `places_max`.
    fn scaled_exactly(self, places_max: u32) -> Option<(i128, usize)> {
        (0..=places_max).find_map(|places| {
            let scaled = self.numerator.checked_mul(10_i128.pow(places))?;
            (scaled % self.denominator == 0).then_some((scaled / self.denominator, places as usize))
        })
    }

    /// The value times `10^4`, rounded half away from zero.
    fn scaled_and_rounded(self) -> Option<i128> {
        let scaled =
            self.numerator.checked_mul(20_000)?.checked_add(self.numerator.signum() * self.denominator)?;
        Some(scaled / self.denominator.checked_mul(2)?)
    }
}

impl PartialOrd for Rational {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rational {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let whole = self.numerator.div_euclid(self.denominator);
        let other_whole = other.numerator.div_euclid(other.denominator);
        whole
            .cmp(&other_whole)
            .then_with(|| compare_proper_fractions(self.fractional_part(), other.fractional_part()))
    }
}

/// A whole number; else the exact decimal if it has at most 6 places; else 4 places, rounded half away from zero.
impl fmt::Display for Rational {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.scaled_exactly(6);
        let Some((scaled, places)) = exact.or_else(|| self.scaled_and_rounded().map(|scaled| (scaled, 4)))
        else {
            return write!(formatter, "{}/{}", self.numerator, self.denominator);
        };
        if places == 0 {
            return write!(formatter, "{scaled}");
        }
        let sign = if scaled < 0 { "-" } else { "" };
        let digits = format!("{:0>width$}", scaled.unsigned_abs(), width = places + 1);
        let (whole, decimals) = digits.split_at(digits.len() - places);
        match decimals.trim_end_matches('0') {
            "" if whole == "0" => write!(formatter, "0"),
            "" => write!(formatter, "{sign}{whole}"),
            decimals => write!(formatter, "{sign}{whole}.{decimals}"),
        }
    }
}

fn push_digit(number: i128, digit: u8) -> Result<i128, NumberError> {
    let shifted = number.checked_mul(10).ok_or(NumberError::TooLarge)?;
    shifted.checked_add(i128::from(digit - b'0')).ok_or(NumberError::TooLarge)
}

fn has_plain_or_grouped_digits(text: &str) -> bool {
    let mut groups = text.split(',');
    let first = groups.next().unwrap_or_default();
    let is_digits = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    let grouped = text.contains(',');
    is_digits(first)
        && (!grouped || first.len() <= 3)
        && groups.all(|group| group.len() == 3 && is_digits(group))
}

fn greatest_common_divisor(left: u128, right: u128) -> u128 {
    let (mut left, mut right) = (left, right);
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left.max(1)
}

/// Compares fractions in `[0, 1)` by continued fractions, which need no products.
fn compare_proper_fractions(left: Rational, right: Rational) -> std::cmp::Ordering {
    let (mut left, mut right) = (left, right);
    let mut reversed = false;
    loop {
        let ordering = match (left.numerator, right.numerator) {
            (0, 0) => return std::cmp::Ordering::Equal,
            (0, _) => Some(std::cmp::Ordering::Less),
            (_, 0) => Some(std::cmp::Ordering::Greater),
            _ => match (left.denominator / left.numerator).cmp(&(right.denominator / right.numerator)) {
                std::cmp::Ordering::Equal => None,
                // A larger reciprocal is a smaller fraction.
                unequal => Some(unequal.reverse()),
            },
        };
        if let Some(ordering) = ordering {
            return if reversed { ordering.reverse() } else { ordering };
        }
        (left, right) = (left.reciprocal().fractional_part(), right.reciprocal().fractional_part());
        reversed = !reversed;
    }
}

#[cfg(test)]
mod tests {
    use super::{NumberError, Rational};

    fn number(text: &str) -> Rational {
        Rational::parse(text).expect("in range").expect("a number")
    }

    #[test]
    fn decimals_that_end_within_six_places_are_exact() {
        assert_eq!(number("1").divided_by(number("64")).expect("defined").to_string(), "0.015625");
        assert_eq!(number("-7").divided_by(number("2")).expect("defined").to_string(), "-3.5");
        assert_eq!(number("2.50").to_string(), "2.5");
    }

    #[test]
    fn other_decimals_are_rounded_to_four_places_half_away_from_zero() {
        assert_eq!(number("2").divided_by(number("3")).expect("defined").to_string(), "0.6667");
        assert_eq!(number("-2").divided_by(number("3")).expect("defined").to_string(), "-0.6667");
        assert_eq!(number("-0.0000001").to_string(), "0");
        assert_eq!(number("0.00005000001").to_string(), "0.0001");
    }

    #[test]
    fn an_overflow_is_an_error_and_never_wraps() {
        let large = number("170141183460469231731687303715884105727");
        assert_eq!(large.plus(Rational::whole(1)), Err(NumberError::TooLarge));
        assert_eq!(large.times(large), Err(NumberError::TooLarge));
        assert_eq!(Rational::parse(&"9".repeat(40)), Err(NumberError::TooLarge));
        assert_eq!(Rational::whole(1).divided_by(Rational::ZERO), Err(NumberError::DivisionByZero));
    }

    #[test]
    fn thousands_separators_are_parsed_and_stray_commas_rejected() {
        assert_eq!(number("1,234,567").to_whole(), Some(1_234_567));
        assert_eq!(Rational::parse("12,34"), Ok(None));
        assert_eq!(Rational::parse("1."), Ok(None));
        assert_eq!(Rational::parse(""), Ok(None));
    }

    #[test]
    fn order_agrees_with_the_difference() {
        let values = ["-3.5", "-0.3333", "0", "0.1", "0.25", "0.3333", "7", "7.01"].map(number);
        for (index, left) in values.iter().enumerate() {
            for (other_index, right) in values.iter().enumerate() {
                assert_eq!(left.cmp(right), index.cmp(&other_index), "{left} against {right}");
            }
        }
    }

    #[test]
    fn remainders_take_the_sign_of_the_divisor() {
        assert_eq!(number("-7").remainder(number("3")), Ok(Rational::whole(2)));
        assert_eq!(number("7.5").remainder(number("3")), Err(NumberError::NotWhole));
    }
}
