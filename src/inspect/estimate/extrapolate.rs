//! What the rest would take, by what the groups took.

use super::EstimatedBytes;

/// Groups from which a rate can be seen to fall.
const TREND_MIN: usize = 4;
/// Standard errors that the mean of two groups, three and so on is off by, at most, in 95 of 100 samples: Student's.
const SPREADS: [f64; 10] = [12.7, 4.3, 3.2, 2.8, 2.6, 2.4, 2.4, 2.3, 2.3, 2.2];
/// The same for more groups.
const SPREAD: f64 = 2.0;

/// What a group has read and stored, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupSizes {
    pub(super) bytes: u64,
    pub(super) stored: u64,
    pub(super) exact: u64,
}

/// What the groups stored, and what `rest` more bytes take. Of these, `unknown` bytes are like nothing that was read.
///
/// The more is stored, the more of what follows is there already, so the rate of what groups add falls with some power
/// of the bytes read. The estimate is what follows from that power less its standard error: a fall that may be chance
/// is none. The error covers both the steady rate and the whole fall, what the rate may be off by, and all that the
/// unknown bytes may take. It is at most what makes the rest take nothing or all of its bytes.
pub(super) fn extrapolated(
    groups: &[GroupSizes],
    rest: u64,
    unknown: u64,
    of: fn(&GroupSizes) -> u64,
) -> EstimatedBytes {
    let sum = groups.iter().map(of).sum::<u64>();
    if rest == 0 {
        return EstimatedBytes { bytes: sum, error: 0 };
    }
    let read: u64 = groups.iter().map(|group| group.bytes).sum();
    let (read, rest, count) = (read.max(1) as f64, rest as f64, groups.len() as f64);
    let rate = sum as f64 / read;
    // The variance of a ratio: of what each group stores more or less than its bytes let expect.
    let squares: f64 = groups.iter().map(|group| (of(group) as f64 - rate * group.bytes as f64).powi(2)).sum();
    let standard_error = if groups.len() < 2 { rate } else { (squares * count / (count - 1.0)).sqrt() / read };
    let (power, power_error) = power(groups, of);
    let growth = 1.0 + rest / read;
    let steady = rate * rest;
    let after = |power: f64| (sum as f64 * (growth.powf(1.0 + power.clamp(-0.5, 0.0)) - 1.0)).min(steady);
    let (added, falling) = (after(power + power_error), after(power));
    let unknown_error = unknown as f64 * rate.max(1.0 - rate);
    let spread = groups.len().checked_sub(2).and_then(|at| SPREADS.get(at)).copied().unwrap_or(SPREAD);
    let error = spread * standard_error * rest + (steady - added).max(added - falling) + unknown_error;
    let error = error.min(added.max(rest - added));
    EstimatedBytes { bytes: sum + added.round() as u64, error: error.round() as u64 }
}

/// The power of the bytes read before with which the rate falls or grows, and its standard error.
fn power(groups: &[GroupSizes], of: fn(&GroupSizes) -> u64) -> (f64, f64) {
    let (mut before, mut points) = (0.0, Vec::new());
    for group in groups {
        let bytes = group.bytes as f64;
        if group.bytes > 0 && of(group) > 0 {
            points.push(((before + bytes / 2.0).ln(), (of(group) as f64 / bytes).ln(), bytes));
        }
        before += bytes;
    }
    let weight: f64 = points.iter().map(|(.., weight)| weight).sum();
    let mean =
        |of: &dyn Fn(&(f64, f64, f64)) -> f64| points.iter().map(|point| of(point) * point.2).sum::<f64>() / weight;
    if points.len() < TREND_MIN {
        return (0.0, 0.0);
    }
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let variance = mean(&|point| (point.0 - x).powi(2));
    if variance <= 0.0 {
        return (0.0, 0.0);
    }
    let power = mean(&|point| (point.0 - x) * (point.1 - y)) / variance;
    let rest = mean(&|point| (point.1 - y - power * (point.0 - x)).powi(2));
    (power, (rest / variance / (points.len() - 2) as f64).sqrt())
}
