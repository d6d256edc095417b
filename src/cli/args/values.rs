//! Values of arguments: sizes, ranges and times.

mod spans;

use std::ffi::OsStr;
use std::str::FromStr;

use bytesize::ByteSize;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use jiff::tz::TimeZone;
use jiff::{Zoned, civil};

use crate::repo::snapshot_groups::GroupBy;
use crate::repo::tree::Timestamp;
use crate::restore::Overwrite;
use spans::parse_age;
pub use spans::{parse_grace, parse_min_age, parse_period};

/// A price, in any currency.
///
/// # Errors
/// A message for the user.
pub fn parse_price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price| (0.0..=1e9).contains(price));
    price.ok_or_else(|| format!("expected a price from 0 to 1e9, such as 0.01, got `{text}`"))
}

/// The names of [`Overwrite`], which completions and help list.
pub fn overwrite_names() -> impl TypedValueParser<Value = Overwrite> {
    PossibleValuesParser::new(["never", "if-changed", "if-newer", "always"]).try_map(|name| name.parse::<Overwrite>())
}

/// Lists of what groups snapshots. Completions offer some.
#[derive(Debug, Clone)]
pub struct GroupByParser;

impl TypedValueParser for GroupByParser {
    type Value = GroupBy;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<GroupBy, clap::Error> {
        StringValueParser::new().try_map(|list| list.parse::<GroupBy>()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let lists = ["host", "paths", "tags", "host,paths", "host,tags", "host,paths,tags"];
        Some(Box::new(lists.into_iter().map(PossibleValue::new)))
    }
}

/// Bytes, with or without a unit.
///
/// # Errors
/// A message for the user.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map(|size| size.0)
}

/// Like [`parse_size`].
///
/// # Errors
/// A message for the user.
pub fn parse_bytes(text: &str) -> Result<ByteSize, String> {
    ByteSize::from_str(text).map_err(|_| format!("expected a size such as 512 or 10MiB: `{text}`"))
}

/// A range of bytes, the end exclusive: `A-B` or `A-`.
///
/// # Errors
/// A message for the user.
pub fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let Some((from, to)) = text.split_once('-') else {
        return Err(format!("expected A-B or A-, such as 0-512 or 1MiB-: `{text}`"));
    };
    let range = (parse_size(from)?, if to.is_empty() { u64::MAX } else { parse_size(to)? });
    if range.0 > range.1 { Err(format!("the range ends before it begins: `{text}`")) } else { Ok(range) }
}

/// A point in time: a date, a date with a time (both local, unless an offset follows), or an age such as `3d`.
///
/// # Errors
/// A message for the user.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let invalid = || format!("expected 2026-01-31, 2026-01-31T12:00, or an age such as 3d or 2h30min: `{text}`");
    let local = |time: civil::DateTime| time.to_zoned(TimeZone::system()).ok();
    let zoned = if let Ok(time) = text.parse::<jiff::Timestamp>() {
        Some(time.to_zoned(TimeZone::UTC))
    } else if let Ok(time) = text.parse::<civil::DateTime>() {
        local(time)
    } else {
        let age = parse_age(text).map_err(|reason| format!("{}: {reason}", invalid()))?;
        Zoned::now().checked_sub(age).ok()
    };
    let time = zoned.ok_or_else(invalid)?.timestamp().as_nanosecond();
    let seconds = i64::try_from(time.div_euclid(1_000_000_000)).map_err(|_| invalid())?;
    Ok(Timestamp { seconds, nanoseconds: time.rem_euclid(1_000_000_000) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_a_start_and_may_have_an_end() {
        assert_eq!(parse_range("0-512"), Ok((0, 512)));
        assert_eq!(parse_range("1MiB-2MiB"), Ok((1 << 20, 2 << 20)));
        assert_eq!(parse_range("7-"), Ok((7, u64::MAX)));
        for text in ["", "7", "-7", "8-7", "a-b", "1-2-3"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_dates_or_ages() {
        let seconds = |text: &str| parse_time(text).map(|time| time.seconds);
        assert_eq!(seconds("2009-02-13T23:31:30Z"), Ok(1_234_567_890));
        assert!(seconds("2009-02-13").is_ok_and(|time| time.abs_diff(1_234_483_200) <= 86_400));
        let (now, before) = (jiff::Timestamp::now().as_second(), seconds("3d").unwrap());
        assert!((now - before).abs_diff(3 * 86_400) <= 3_700, "{now} {before}");
        assert!(seconds("3 days ago").is_ok());
        for text in ["", "yesterday", "2009-13-01", "3", "6m", "2h30m", "-3d", "19000y"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
