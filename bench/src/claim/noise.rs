//! What noise allows a verdict about a time to say.
//!
//! 1. A line has the noise of each of its times: another run may measure the value times or divided by 1 + noise.
//! 2. A value of two lines has the greater noise of both.
//! 3. The claim is judged at both ends of what another run may measure, and at the number of the paper if that lies
//!    between them. If the verdicts differ, or if the noise is not known, the claim is *too noisy*.

use serde_json::Value;

use super::select::field;

/// Figures that are times, or made of them, each with the fields of its noise.
const TIMES: [(&str, &[&str]); 13] = [
    ("backup_mb_per_s", &["backup_noise"]),
    ("backup_parallel", &["backup_noise"]),
    ("block_us", &["noise"]),
    ("decode_mb_per_s", &["decode_noise"]),
    ("encode_mb_per_s", &["encode_noise"]),
    ("load_ms", &["load_noise"]),
    ("mark_ms", &["mark_noise"]),
    ("mb_per_s", &["noise"]),
    ("mean_us", &["noise"]),
    ("restore_mb_per_s", &["restore_noise"]),
    ("restore_over_backup", &["backup_noise", "restore_noise"]),
    ("save_ms", &["save_noise"]),
    ("sweep_ms", &["sweep_noise"]),
];

/// The fields of the noise of a figure; `None` if it is not a time.
pub(super) fn fields(figure: &str) -> Option<&'static [&'static str]> {
    TIMES.iter().find(|(name, _)| *name == figure).map(|(_, fields)| *fields)
}

/// The greatest of the `fields` of a line; `None` if one is missing, so that a value without noise is not taken for a
/// value without doubt.
pub(super) fn of_line(fields: &[&str], line: &Value) -> Option<f64> {
    let values: Option<Vec<f64>> = fields.iter().map(|name| field(line, name)?.as_f64()).collect();
    values?.into_iter().reduce(f64::max)
}

/// `value` without the digits that a difference of `error` makes meaningless, and the error with one digit.
pub(super) fn rounded(value: f64, error: f64) -> String {
    let power = error.max(1e-9).log10().floor();
    let (step, decimals) = (10f64.powf(power), (-power).clamp(0.0, 9.0) as usize);
    let whole = |value: f64| (value / step).round() * step;
    let (value, error) = (whole(value), (error / step).ceil() * step);
    // A rounded zero has no sign.
    format!("{:.decimals$} ± {error:.decimals$}", value + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_end_where_the_error_begins() {
        assert_eq!([rounded(83.04, 14.0), rounded(94.61, 2.3)], ["80 ± 20", "95 ± 3"]);
        assert_eq!([rounded(1.2345, 0.05), rounded(7355.0, 1200.0)], ["1.23 ± 0.05", "7000 ± 2000"]);
        assert_eq!([rounded(-0.3, 4.0), rounded(5.0, 0.0)], ["0 ± 4", "5.000000000 ± 0.000000000"]);
    }

    #[test]
    fn a_missing_noise_is_not_zero() {
        let line = serde_json::json!({"backup_noise": 0.1, "restore_noise": null});
        assert_eq!(of_line(&["backup_noise"], &line), Some(0.1));
        assert_eq!(of_line(&["backup_noise", "restore_noise"], &line), None);
        assert_eq!((fields("ratio"), fields("load_ms")), (None, Some(["load_noise"].as_slice())));
    }
}
