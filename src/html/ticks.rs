//! Ticks: the values at which an axis has a label. They are round, and there are few.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// A label of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The value.
    pub at: f64,
    /// What is written there.
    pub label: String,
}

/// More than any axis has.
const TICKS_MAX: usize = 32;
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/// Seconds between ticks within a day.
const SECONDS: [i64; 10] = [60, 300, 600, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400];
/// Days between ticks.
const DAYS: [i32; 4] = [1, 2, 7, 14];
/// Months between ticks.
const MONTHS: [i32; 11] = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1_200];

/// Ticks from 0 to `high` bytes: at most `count` beside that of 0, all in one unit.
pub fn byte_ticks(high: f64, count: usize) -> Vec<Tick> {
    let exponent = (0..64).find(|exponent| high / 2f64.powi(*exponent) <= count.max(1) as f64).unwrap_or(63);
    let step = 2f64.powi(exponent);
    let unit = (high.max(1.0).log2() / 10.0).floor().clamp(0.0, 6.0) as usize;
    let label = |value: f64| {
        let text = format!("{:.3}", value / 1024f64.powi(unit as i32));
        let number = text.trim_end_matches('0').trim_end_matches('.');
        format!("{number} {}", UNITS.get(unit).copied().unwrap_or_default())
    };
    let values = (0..TICKS_MAX).map(|at| at as f64 * step).take_while(|value| *value <= high);
    values.map(|at| Tick { at, label: if at == 0.0 { "0".into() } else { label(at) } }).collect()
}

/// At most `count` ticks from `low` to `high`, or one more.
pub fn number_ticks(low: f64, high: f64, count: usize) -> Vec<Tick> {
    let rough = (high - low) / count.max(1) as f64;
    if !rough.is_finite() || rough <= 0.0 || rough < f64::MIN_POSITIVE * 1e6 {
        return Vec::new();
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough * 0.999_999);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    let values = (0..TICKS_MAX).map(|at| (first + at as f64) * step).take_while(|value| *value <= high + step * 1e-6);
    let largest = low.abs().max(high.abs());
    values.map(|at| Tick { at, label: number(at, step, largest) }).collect()
}

/// A value with four significant digits.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value != 0.0 && !(1e-4..1e6).contains(&size) {
        return format!("{value:.3e}");
    }
    let decimals = (3.0 - size.max(1e-4).log10().floor()).clamp(0.0, 8.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A value on an axis with such a step, whose largest value is `largest`.
fn number(value: f64, step: f64, largest: f64) -> String {
    let scale = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")].into_iter().find(|scale| largest >= scale.0);
    let (divisor, unit) = scale.map_or((1.0, ""), |(scale, unit)| (if unit == "k" { 1e3 } else { scale }, unit));
    if largest >= 1e15 || step < 1e-6 {
        return format!("{value:.2e}");
    }
    let decimals = (-(step / divisor).log10().floor()).clamp(0.0, 8.0) as usize;
    format!("{:.decimals$}{unit}", if value == 0.0 { 0.0 } else { value / divisor })
}

/// At most `count` ticks between two times, seconds since 1970, or one more: at round times of day, days, months or
/// years of the zone.
pub fn time_ticks(low: f64, high: f64, count: usize, zone: &TimeZone) -> Vec<Tick> {
    let (rough, first) = ((high - low) / count.max(1) as f64, Timestamp::from_second(low as i64));
    let Ok(first) = first.map(|time| time.to_zoned(zone.clone())) else { return Vec::new() };
    let is_inside = |tick: &Tick| (low..=high).contains(&tick.at);
    if let Some(step) = SECONDS.into_iter().find(|step| *step as f64 >= rough) {
        let Ok(midnight) = first.start_of_day() else { return Vec::new() };
        let start = midnight.timestamp().as_second();
        let start = start + (low as i64 - start).div_euclid(step) * step;
        let tick =
            |at: usize| Timestamp::from_second(start + at as i64 * step).ok().map(|time| time.to_zoned(zone.clone()));
        let format = if step == 86_400 { "%Y-%m-%d" } else { "%m-%d %H:%M" };
        let ticks = (0..TICKS_MAX).filter_map(tick).map(|time| tick_at(&time, format));
        return ticks.filter(is_inside).collect();
    }
    if let Some(days) = DAYS.into_iter().find(|days| f64::from(*days) * 86_400.0 >= rough) {
        let date = |at: usize| first.date().checked_add((days * at as i32).days()).ok();
        return dates((0..TICKS_MAX).filter_map(date), zone, "%Y-%m-%d").filter(is_inside).collect();
    }
    let is_enough = |months: &i32| f64::from(*months) * 30.0 * 86_400.0 >= rough;
    let months = MONTHS.into_iter().find(is_enough).unwrap_or(1_200);
    let number = i32::from(first.year()) * 12 + i32::from(first.month()) - 1;
    let date = |at: usize| {
        let number = number.div_euclid(months) * months + months * at as i32;
        let (year, month) = (i16::try_from(number.div_euclid(12)).ok()?, number.rem_euclid(12) as i8 + 1);
        Date::new(year, month, 1).ok()
    };
    let format = if months % 12 == 0 { "%Y" } else { "%Y-%m" };
    dates((0..TICKS_MAX).filter_map(date), zone, format).filter(is_inside).collect()
}

fn dates<'a>(
    dates: impl Iterator<Item = Date> + 'a,
    zone: &'a TimeZone,
    format: &'a str,
) -> impl Iterator<Item = Tick> {
    dates.filter_map(|date| date.to_zoned(zone.clone()).ok()).map(move |time| tick_at(&time, format))
}

fn tick_at(time: &Zoned, format: &str) -> Tick {
    Tick { at: time.timestamp().as_second() as f64, label: time.strftime(format).to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    fn at(text: &str) -> f64 {
        text.parse::<Timestamp>().unwrap().as_second() as f64
    }

    #[test]
    fn bytes_have_one_unit_and_exact_labels() {
        assert_eq!(labels(&byte_ticks(3e9, 4)), ["0", "1 GiB", "2 GiB"]);
        assert_eq!(labels(&byte_ticks(1.3 * 1024f64.powi(3), 5)), ["0", "0.5 GiB", "1 GiB"]);
        assert_eq!(labels(&byte_ticks(700.0 * 1024.0, 4)), ["0", "256 KiB", "512 KiB"]);
        assert_eq!((labels(&byte_ticks(0.0, 4)), labels(&byte_ticks(1.0, 4))), (vec!["0"], vec!["0", "1 B"]));
    }

    #[test]
    fn numbers_are_round() {
        assert_eq!(labels(&number_ticks(0.13, 0.92, 4)), ["0.2", "0.4", "0.6", "0.8"]);
        assert_eq!(labels(&number_ticks(-1.0, 1.0, 4)), ["-1.0", "-0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(labels(&number_ticks(0.0, 40_000.0, 4)), ["0k", "10k", "20k", "30k", "40k"]);
        for (low, high) in [(1.0, 1.0), (f64::MIN, f64::MAX), (2.0, 1.0), (0.0, f64::from_bits(1))] {
            assert!(number_ticks(low, high, 4).len() <= 5, "{low} {high}");
        }
    }

    #[test]
    fn values_have_four_digits() {
        let shown = [0.0, 0.25, 1.0 / 3.0, -12.34567, 98_765.4, 1e-4, 1.5e-7, 4e9].map(short);
        assert_eq!(shown, ["0", "0.25", "0.3333", "-12.35", "98765", "0.0001", "1.500e-7", "4.000e9"]);
    }

    #[test]
    fn times_are_round_in_their_zone() {
        let utc = TimeZone::UTC;
        let shown = |low: &str, high: &str| {
            time_ticks(at(low), at(high), 4, &utc).into_iter().map(|tick| tick.label).collect::<Vec<_>>()
        };
        let day = shown("2026-03-01T01:30:00Z", "2026-03-01T20:00:00Z");
        assert_eq!(day, ["03-01 06:00", "03-01 12:00", "03-01 18:00"]);
        assert_eq!(
            shown("2026-02-26T12:00:00Z", "2026-03-02T00:00:00Z"),
            ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
        );
        assert_eq!(shown("2025-11-20T00:00:00Z", "2026-10-01T00:00:00Z"), ["2026-01", "2026-04", "2026-07", "2026-10"]);
        assert_eq!(shown("1999-06-01T00:00:00Z", "2030-01-01T00:00:00Z"), ["2000", "2010", "2020", "2030"]);
        let east = TimeZone::fixed(jiff::tz::offset(5));
        let ticks = time_ticks(at("2026-03-01T00:00:00Z"), at("2026-03-03T00:00:00Z"), 2, &east);
        assert_eq!(ticks[0].at, at("2026-03-01T19:00:00Z"), "midnight of the zone");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn ticks_are_few_ascending_and_inside(low in -4e9..8e9f64, span in 60.0..9e9f64, count in 1usize..8) {
            let all = [
                time_ticks(low, low + span, count, &TimeZone::UTC),
                number_ticks(low, low + span, count),
                byte_ticks(span, count),
            ];
            for ticks in all {
                prop_assert!(ticks.len() <= count + 2, "{ticks:?}");
                prop_assert!(ticks.windows(2).all(|pair| pair[0].at < pair[1].at), "{ticks:?}");
                let range = (low.min(0.0) - 1.0)..=(low + span).max(span) + 1.0;
                prop_assert!(ticks.iter().all(|tick| range.contains(&tick.at)), "{ticks:?}");
            }
        }
    }
}
