//! Spans of time as users type them, on the command line and in profiles.
//!
//! 1. A span is what the ISO 8601 and "friendly" grammars of `jiff` accept: `36h`, `30d`, `2 weeks`, `6mo`, `1y2mo`.
//!    Days, months and years are those of the calendar.
//! 2. `m` means months for restic and borg, and minutes for nearly everything else. So it is refused, but for one form
//!    whose order leaves no doubt, which is restic's: two or more of years, months, days and hours, each at most once
//!    and in this order, such as `2y5m7d3h` or `1y6m`.
//! 3. A span has no minus sign, and ends in `ago` only where it is an age.

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Units of restic's form, in its order.
const RESTIC_UNITS: [char; 4] = ['y', 'm', 'd', 'h'];
/// What `m` can mean.
const UNITS_OF_M: [&str; 2] = ["mo", "min"];

/// A span that is not negative. Advice to write it otherwise only names what `accepts` takes.
///
/// # Errors
/// A message for the user.
fn parse_span(text: &str, accepts: &dyn Fn(&str) -> bool) -> Result<Span, String> {
    let is_iso = text.trim_start_matches(['+', '-']).starts_with(['P', 'p']);
    let months = match !is_iso && has_bare_m(text) {
        true => Some(with_months(text).ok_or_else(|| ambiguous(text, accepts))?),
        false => None,
    };
    let span: Span =
        months.as_deref().unwrap_or(text).parse().map_err(|_| {
            format!("expected a span of time, such as 36h, 30d or 2 weeks, that is not too long: `{text}`")
        })?;
    if span.is_negative() { Err(format!("`{text}` is negative")) } else { Ok(span) }
}

/// Words of letters that follow a number.
fn units(text: &str) -> impl Iterator<Item = &str> {
    let after_number = |unit: &&str| unit.chars().next().is_some_and(char::is_alphabetic);
    text.split(|character: char| !character.is_alphabetic()).filter(after_number)
}

fn has_bare_m(text: &str) -> bool {
    units(text).any(|unit| matches!(unit, "m" | "M"))
}

/// `text` with `mo` in place of `m`, if it has restic's form.
fn with_months(text: &str) -> Option<String> {
    let (mut rest, mut out, mut last) = (text.trim(), String::new(), None);
    let mut count = 0;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit()).filter(|len| *len > 0)?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let tail = tail.trim_start();
        let unit = tail.chars().next()?;
        let at = RESTIC_UNITS.iter().position(|known| *known == unit).filter(|at| last < Some(*at))?;
        rest = tail.get(1..)?;
        if rest.starts_with(char::is_alphabetic) {
            return None;
        }
        rest = rest.trim_start();
        out.push_str(number);
        out.push_str(if unit == 'm' { "mo" } else { tail.get(..1)? });
        (last, count) = (Some(at), count + 1);
    }
    (count >= 2).then_some(out)
}

/// Says how to write a span with an `m` that can be months or minutes.
fn ambiguous(text: &str, accepts: &dyn Fn(&str) -> bool) -> String {
    let trimmed = text.trim();
    let accepted = |number: &str| {
        let spans = UNITS_OF_M.iter().map(|unit| format!("{number}{unit}"));
        spans.filter(|span| accepts(span)).collect::<Vec<_>>().join(" or ")
    };
    let number = trimmed.strip_suffix(['m', 'M']).map(str::trim_end).filter(|number| !has_bare_m(number));
    let instead = number.map(accepted).unwrap_or_default();
    let units: Vec<&str> = UNITS_OF_M.into_iter().filter(|unit| accepts(&format!("1{unit}"))).collect();
    match instead.is_empty() {
        false => format!("`m` can be months or minutes: write {instead} in place of `{trimmed}`"),
        true => format!("`m` can be months or minutes: write {} in `{trimmed}`", units.join(" or ")),
    }
}

/// A span of the calendar that is longer than nothing, such as `30d`, `6mo` or `2y5m7d3h`.
///
/// # Errors
/// A message for the user.
pub fn parse_period(text: &str) -> Result<Span, String> {
    let span = parse_span(text, &|other| parse_period(other).is_ok())?;
    if span.is_zero() { Err(format!("`{text}` is no time at all")) } else { Ok(span) }
}

/// How long ago something was, such as `3d`, `2h30min` or `2 weeks ago`.
///
/// # Errors
/// A message for the user.
pub fn parse_age(text: &str) -> Result<Span, String> {
    parse_span(text.trim_end().strip_suffix("ago").unwrap_or(text), &|other| parse_age(other).is_ok())
}

/// A grace period, such as `36h`, `2d` or `0`. A day has 24 hours.
///
/// # Errors
/// A message for the user.
pub fn parse_grace(text: &str) -> Result<SignedDuration, String> {
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    let expected = |reason: String| match reason.starts_with("expected") {
        true => reason,
        false => format!("expected a time such as 36h, 2d or 0: {reason}"),
    };
    let span = parse_span(text, &|other| parse_grace(other).is_ok()).map_err(expected)?;
    span.to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| expected(format!("`{text}` has months or years, which differ in length")))
}

/// The minimum age of data containers, as in `containers=180d`.
///
/// # Errors
/// A message for the user.
pub fn parse_min_age(text: &str) -> Result<SignedDuration, String> {
    match text.split_once('=') {
        Some(("containers", age)) => parse_grace(age),
        _ => Err(format!("expected containers=DURATION, such as containers=180d, got `{text}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, other: &str) {
        let (one, other) = (parse_period(one).unwrap(), other.parse::<Span>().unwrap());
        assert_eq!(one.fieldwise(), other.fieldwise());
    }

    #[test]
    fn m_is_months_in_the_form_of_restic_and_refused_elsewhere() {
        for (text, iso) in [
            ("2y5m7d3h", "P2Y5M7DT3H"),
            ("1y6m", "P1Y6M"),
            ("6m1d", "P6M1D"),
            ("6m3h", "P6MT3H"),
            ("1y 6m 3h", "P1Y6MT3H"),
            (" 5m7d ", "P5M7D"),
            ("0y6m", "P6M"),
            ("1y3h", "P1YT3H"),
        ] {
            same(text, iso);
        }
        for text in [
            "6m",
            "6 m",
            "+6m",
            "6M",
            "1y6M",
            "3h6m",
            "2h30m",
            "1d6m",
            "7d5m",
            "6m1y",
            "1m1m",
            "1y6m2m",
            "1w6m",
            "6m1w",
            "6m30s",
            "1.5m",
            "1y1.5m",
            "1mo6m",
            "6m, 1d",
            "1year 6m",
            "6m1day",
            "-6m",
            "6m ago",
            "1y6m 01:00:00",
        ] {
            let error = parse_period(text).unwrap_err();
            assert!(
                error.contains("months or minutes") && error.contains("mo") && error.contains("min"),
                "{text}: {error}"
            );
            assert!(parse_age(text).is_err() && parse_grace(text).is_err(), "{text}");
        }
    }

    #[test]
    fn advice_names_only_what_is_accepted_there() {
        let advice = |error: String| {
            let advice = error.split_once("write ").unwrap_or_else(|| panic!("{error}")).1.to_string();
            advice.split_once(" in ").unwrap().0.to_string()
        };
        for (text, period, grace) in [
            ("6m", "6mo or 6min", "6min"),
            ("1 m", "1mo or 1min", "1min"),
            ("2h30m", "2h30min", "2h30min"),
            ("1y6M", "1y6mo or 1y6min", "min"),
            ("6m30s", "mo or min", "min"),
            ("-6m", "mo or min", "min"),
        ] {
            assert_eq!(advice(parse_period(text).unwrap_err()), period, "{text}");
            assert_eq!(advice(parse_age(text).unwrap_err()), period, "{text}");
            assert_eq!(advice(parse_grace(text).unwrap_err()), grace, "{text}");
        }
    }

    #[test]
    fn a_span_without_a_doubt_is_taken() {
        for (text, iso) in [
            ("30d", "P30D"),
            ("2 weeks", "P2W"),
            ("6mo", "P6M"),
            ("6 months", "P6M"),
            ("12h", "PT12H"),
            ("90min", "PT90M"),
            ("1y2mo", "P1Y2M"),
            ("2h30min", "PT2H30M"),
            ("1 year, 2 months", "P1Y2M"),
            ("P6M", "P6M"),
            ("PT6M", "PT6M"),
            ("+30d", "P30D"),
        ] {
            same(text, iso);
        }
    }

    #[test]
    fn what_is_negative_zero_out_of_range_or_no_span_is_refused() {
        for text in [
            "-30d",
            "-1y6mo",
            "-P1D",
            "30d ago",
            "1y6m ago",
            "",
            " ",
            "30",
            "d",
            "y6m",
            "soon",
            "1d1d",
            "1d2y",
            "1y1y6m",
            "99999999999d",
            "20000y",
            "99999999999999999999y6m",
            "1y-6m",
            "1y+6mo",
            "--1d",
            "m",
            "1y6",
            "1e3d",
            "०d",
        ] {
            assert!(parse_period(text).is_err(), "{text}");
        }
        for text in ["0d", "0y0m0d", "0s", "PT0S", "0y0mo"] {
            assert!(parse_period(text).unwrap_err().contains("no time"), "{text}");
        }
        assert!(parse_period("-30d").unwrap_err().contains("negative"));
        assert!(parse_age("-3d").is_err() && parse_age("-3d ago").is_err() && parse_age("ago").is_err());
        assert_eq!(parse_age("3 days ago").unwrap().fieldwise(), parse_age("3d").unwrap().fieldwise());
    }

    #[test]
    fn a_grace_period_may_have_days_and_no_unit_if_it_is_none() {
        let hours = |text: &str| parse_grace(text).map(|grace| grace.as_hours());
        assert_eq!([hours("36h"), hours("2d"), hours("1w"), hours("0"), hours("0s")], [36, 48, 168, 0, 0].map(Ok));
        assert_eq!(parse_grace("90min"), Ok(SignedDuration::from_mins(90)));
        for text in ["", "1", "soon", "-1h", "1mo", "30m", "2h30m", "1h ago", "1y6m", "9999999999999h"] {
            assert!(parse_grace(text).is_err_and(|message| message.contains("36h")), "{text}");
        }
    }
}
