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

/// Text from data, safe for a terminal and without what nobody sees: control characters, line ends, changes of
/// direction and characters without width become `?`. Joiners stay where they join letters that are not ASCII, as in
/// Persian and in emoji.
pub fn printable(text: &str) -> String {
    let mut last = ' ';
    let shown = |c: char| {
        let is_joiner = matches!(c, '\u{200c}' | '\u{200d}');
        let shown = if steers(c) || (is_joiner && last.is_ascii()) { '?' } else { c };
        last = shown;
        shown
    };
    text.chars().map(shown).collect()
}

/// Whether a character steers what others look like, or cannot be seen.
fn steers(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}'
    );
    is_invisible || c.is_control()
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
        let unseen = "a\u{200b}\u{200e}\u{200f}\u{61c}\u{feff}\u{2060}\u{e0041}\u{200d}\u{ad}b";
        assert_eq!(printable(unseen), "a?????????b");
        let persian = "\u{645}\u{6cc}\u{200c}\u{62e} \u{1f469}\u{200d}\u{1f4bb}";
        assert_eq!(printable(persian), persian, "joiners of letters and of emoji stay");
        assert_eq!((shortened("äbc", 3), shortened("äbcd", 3)), ("äbc".into(), "…cd".into()));
    }
}
