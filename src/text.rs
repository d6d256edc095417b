//! Texts for people: sizes, times, and names from data.

use bytesize::ByteSize;
use jiff::tz::TimeZone;

/// A text of at most so many characters. The middle is left out, because paths differ at both ends.
pub fn shortened(text: &str, chars_max: usize) -> String {
    let count = text.chars().count();
    if count <= chars_max {
        return text.into();
    }
    let start = chars_max.saturating_sub(1) / 3;
    let end = chars_max.saturating_sub(1 + start);
    text.chars().take(start).chain(['…']).chain(text.chars().skip(count - end)).collect()
}

/// Bytes with a binary unit, such as `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// Bytes per second with a binary unit.
pub fn rate(bytes: u64, seconds: f64) -> String {
    let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    format!("{}/s", size(rate as u64))
}

/// How many times smaller `to` is than `from`; `-` if `to` is 0.
pub fn ratio(from: u64, to: u64) -> String {
    if to == 0 { "-".into() } else { format!("{:.2}", from as f64 / to as f64) }
}

/// A number in few digits, such as `22.7M`.
pub fn count(number: u64) -> String {
    let scale = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")].into_iter().find(|scale| number as f64 >= scale.0);
    scale.map_or_else(|| number.to_string(), |(scale, unit)| format!("{:.1}{unit}", number as f64 / scale))
}

/// Seconds since 1970 and nanoseconds after them as RFC 3339 in UTC with nine decimals; `@seconds.nanoseconds` for
/// times no calendar holds.
pub fn time_utc(seconds: i64, nanoseconds: u32) -> String {
    match jiff::Timestamp::new(seconds, nanoseconds as i32) {
        Ok(time) => format!("{time:.9}"),
        Err(_) => format!("@{seconds}.{nanoseconds:09}"),
    }
}

/// The same in the local time zone, to the second.
pub fn time_local(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("@{seconds}"),
    }
}

/// Splits nanoseconds since 1970 into seconds, rounded down, and the rest.
pub fn split_ns(time_ns: i64) -> (i64, u32) {
    (time_ns.div_euclid(1_000_000_000), time_ns.rem_euclid(1_000_000_000) as u32)
}

/// Text from data, safe for a terminal: control characters, line ends and changes of direction become `?`.
pub fn printable(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds_before_1970_and_beyond_the_calendar() {
        assert_eq!(time_utc(0, 1), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(time_utc(-1, 999_999_999), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(time_utc(i64::MAX, 5), format!("@{}.000000005", i64::MAX));
        assert_eq!(split_ns(-1), (-1, 999_999_999));
    }

    #[test]
    fn counts_have_few_digits() {
        let shown = [0, 999, 1000, 22_713_216, 7_000_000_000].map(count);
        assert_eq!(shown, ["0", "999", "1.0K", "22.7M", "7.0B"]);
    }

    #[test]
    fn names_lose_what_steers_and_long_ones_their_middle() {
        assert_eq!(printable("a\x1b[31m\n\u{9b}\u{202e}\u{2066}b"), "a?[31m????b");
        assert_eq!((shortened("äbc", 3), shortened("äbcd", 3)), ("äbc".into(), "…cd".into()));
    }
}
