//! Days of the Gregorian calendar, years 1 to 9999, computed from a count of days.

use std::fmt;

/// The English month names, January first.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The English weekday names, Monday first.
pub const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A valid day. Its fields are private because not every triple is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    /// The day, if it exists in the calendar.
    pub fn new(year: i64, month: i64, day: i64) -> Option<Self> {
        let exists = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day);
        exists.then_some(Self { year, month, day })
    }

    /// The year.
    pub fn year(self) -> i64 {
        self.year
    }

    /// The month's English name.
    pub fn month_name(self) -> &'static str {
        MONTHS[usize::try_from(self.month - 1).unwrap_or_default() % 12]
    }

    /// The day of the month.
    pub fn day(self) -> i64 {
        self.day
    }

    /// Days since 1 January of year 1.
    pub fn days_since_first(self) -> i64 {
        days_before_year(self.year) + self.day_of_year() - 1
    }

    /// The day that many days later (earlier if negative), if it is within the years 1 to 9999.
    pub fn plus_days(self, days: i64) -> Option<Self> {
        let count = self.days_since_first().checked_add(days)?;
        if !(0..days_before_year(10_000)).contains(&count) {
            return None;
        }
        let mut year = count / 366 + 1;
        while days_before_year(year + 1) <= count {
            year += 1;
        }
        let mut day = count - days_before_year(year) + 1;
        let mut month = 1;
        while day > days_in_month(year, month) {
            day -= days_in_month(year, month);
            month += 1;
        }
        Self::new(year, month, day)
    }

    /// The weekday's English name.
    pub fn weekday(self) -> &'static str {
        // 1 January of year 1 of the Gregorian calendar is a Monday.
        WEEKDAYS[usize::try_from(self.days_since_first().rem_euclid(7)).unwrap_or_default()]
    }

    /// 1 for 1 January, 365 or 366 for 31 December.
    pub fn day_of_year(self) -> i64 {
        (1..self.month).map(|month| days_in_month(self.year, month)).sum::<i64>() + self.day
    }
}

/// `17 May 2025`
impl fmt::Display for Date {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.day, self.month_name(), self.year)
    }
}

/// 1 to 12 for a month's English name or its usual abbreviation.
pub fn month_number(word: &str) -> Option<i64> {
    let word = word.trim_end_matches('.').to_ascii_lowercase();
    let found = MONTHS.iter().position(|month| {
        let month = month.to_ascii_lowercase();
        word == month
            || (word.len() == 3 && month.starts_with(&word))
            || (word == "sept" && month == "september")
    })?;
    i64::try_from(found + 1).ok()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_before_year(year: i64) -> i64 {
    let past = year - 1;
    past * 365 + past / 4 - past / 100 + past / 400
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Date, days_before_year, month_number};

    fn date(year: i64, month: i64, day: i64) -> Date {
        Date::new(year, month, day).expect("exists")
    }

    #[test]
    fn known_days_have_their_weekdays() {
        assert_eq!(date(2000, 1, 1).weekday(), "Saturday");
        assert_eq!(date(1969, 7, 20).weekday(), "Sunday");
        assert_eq!(date(2024, 2, 29).weekday(), "Thursday");
    }

    #[test]
    fn invalid_days_are_rejected() {
        for (year, month, day) in
            [(2023, 2, 29), (1900, 2, 29), (2024, 4, 31), (2024, 13, 1), (0, 1, 1), (10_000, 1, 1)]
        {
            assert_eq!(Date::new(year, month, day), None);
        }
    }

    #[test]
    fn differences_and_days_of_the_year_are_exact() {
        let days = date(2025, 5, 17).days_since_first() - date(2024, 3, 3).days_since_first();
        assert_eq!(days, 440);
        assert_eq!(date(2024, 12, 31).day_of_year(), 366);
        assert_eq!(date(2025, 3, 1).day_of_year(), 60);
    }

    #[test]
    fn month_names_may_be_shortened() {
        assert_eq!(month_number("sept."), Some(9));
        assert_eq!(month_number("MAR"), Some(3));
        assert_eq!(month_number("mars"), None);
    }

    proptest! {
        #[test]
        fn adding_days_and_counting_them_back_agree(count in 0..days_before_year(10_000), step in -400_000_i64..400_000) {
            let start = date(1, 1, 1).plus_days(count).expect("in range");
            prop_assert_eq!(start.days_since_first(), count);
            if let Some(end) = start.plus_days(step) {
                prop_assert_eq!(end.days_since_first() - count, step);
            }
        }
    }
}
