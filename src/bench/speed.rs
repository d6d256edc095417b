//! Speeds that two runs of a comparison agree on.
//!
//! A machine is not equally fast all the time: others work on it, and its clock follows heat and load. So
//!
//! 1. a fixed work on one thread, the *reference*, is timed before and after everything that is measured; the reference
//!    of a round is the median of those of all its cases;
//! 2. a speed is bytes per *reference second*, the time of [`REPETITIONS`] reference works in the same round, and a
//!    case's speed is the median over the rounds;
//! 3. how far the logarithms of the speeds scatter around their case's mean, over all cases of a set together, gives
//!    the standard error of a median of so many rounds and of the difference of two such; *noise* is
//!    [`DEVIATIONS`] of these. What is between two runs of the same file on the same machine, and more than that, is
//!    no chance.

use std::hint::black_box;
use std::time::Instant;

use super::data::Random;
use super::workbench::median;
use crate::codec::Scratch;

/// FixedTask works in a reference second: about a second of one thread of a server's processor of 2021.
pub const REPETITIONS: f64 = 500.0;
/// Standard errors that noise allows for: so many that tens of figures agree at once, and that something is left for
/// what differs between processes, such as where their memory lies.
const DEVIATIONS: f64 = 5.0;
/// Standard error of a median, relative to that of the mean, for values that are nearly normal.
const MEDIAN_ERROR: f64 = 1.2533;
/// Bytes hashed by a reference work, and how many of them are compressed, too.
const HASHED_BYTES: usize = 4 << 20;
const COMPRESSED_BYTES: usize = 512 << 10;
/// Works of which the median counts.
const TRIES: usize = 3;

/// The fixed work: BLAKE3 of some megabytes and zstd of half of one.
pub struct FixedTask {
    data: Vec<u8>,
}

impl FixedTask {
    /// Prepares its data.
    pub fn new() -> Self {
        let mut random = Random::new(1);
        // Words of 22 random bits: compressible, but not by much.
        let values = (0..HASHED_BYTES / 4).map(|_| (random.bits() >> 42) as u32);
        FixedTask { data: values.flat_map(u32::to_le_bytes).collect() }
    }

    /// Seconds that the work takes now.
    pub fn seconds(&self) -> f64 {
        median((0..TRIES).map(|_| {
            let (start, mut packed) = (Instant::now(), Vec::new());
            black_box(blake3::hash(&self.data));
            let part = self.data.get(..COMPRESSED_BYTES).unwrap_or_default();
            black_box(Scratch::default().compress(part, 1, &mut packed).is_ok());
            start.elapsed().as_secs_f64()
        }))
    }
}

/// One measurement of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// What was done, bytes.
    pub bytes: u64,
    /// In how many seconds.
    pub seconds: f64,
    /// Seconds of a reference work about that time.
    pub fixed_task_seconds: f64,
}

/// The speeds of some cases that were measured in the same rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Speeds {
    /// Of each case: millions of bytes per reference second; none of a case without measurements.
    pub medians: Vec<Option<f64>>,
    /// By which factor, less one, a median of another run may be more or less; none of a single round.
    pub noise: Option<f64>,
}

impl Speeds {
    /// Of `cases`, each with its rounds in order.
    pub fn of(cases: &[Vec<Timing>]) -> Self {
        let rounds = cases.iter().map(Vec::len).max().unwrap_or(0);
        let in_round =
            |round: usize| cases.iter().filter_map(move |case| case.get(round)).map(|timing| timing.fixed_task_seconds);
        let references: Vec<f64> = (0..rounds).map(|round| median(in_round(round))).collect();
        let speed = |(timing, reference): (&Timing, &f64)| {
            timing.bytes as f64 / 1e6 / (timing.seconds / (reference * REPETITIONS).max(1e-12)).max(1e-12)
        };
        let speeds: Vec<Vec<f64>> =
            cases.iter().map(|case| case.iter().zip(&references).map(speed).collect()).collect();
        let medians = speeds.iter().map(|case| (!case.is_empty()).then(|| median(case.iter().copied()))).collect();
        Speeds { medians, noise: noise(&speeds) }
    }
}

/// See the head of this file.
fn noise(speeds: &[Vec<f64>]) -> Option<f64> {
    let (mut squares, mut freedom, mut rounds) = (0.0, 0, usize::MAX);
    for case in speeds.iter().filter(|case| case.len() > 1) {
        let logarithms: Vec<f64> = case.iter().map(|speed| speed.max(1e-12).ln()).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        squares += logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        freedom += case.len() - 1;
        rounds = rounds.min(case.len());
    }
    let scatter = (squares / freedom as f64).sqrt();
    let error = MEDIAN_ERROR * std::f64::consts::SQRT_2 * scatter / (rounds as f64).sqrt();
    (freedom > 0).then(|| (DEVIATIONS * error).exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of one case: seconds and the reference's seconds.
    fn case(rounds: &[(f64, f64)]) -> Vec<Timing> {
        let timing = |(seconds, fixed_task_seconds): &(f64, f64)| Timing {
            bytes: 1_000_000,
            seconds: *seconds,
            fixed_task_seconds: *fixed_task_seconds,
        };
        rounds.iter().map(timing).collect()
    }

    #[test]
    fn a_machine_of_half_the_speed_gives_the_same_figures() {
        let fast = [case(&[(1.0, 0.002), (1.1, 0.002), (0.9, 0.002)]), case(&[(2.0, 0.002); 3]), Vec::new()];
        let slow: Vec<Vec<Timing>> = fast
            .iter()
            .map(|case| {
                let half = |timing: &Timing| Timing {
                    seconds: 2.0 * timing.seconds,
                    fixed_task_seconds: 2.0 * timing.fixed_task_seconds,
                    ..*timing
                };
                case.iter().map(half).collect()
            })
            .collect();
        let (fast, slow) = (Speeds::of(&fast), Speeds::of(&slow));
        assert_eq!(fast.medians, [Some(1.0), Some(0.5), None]);
        assert_eq!(fast.medians, slow.medians);
        assert!(fast.noise.is_some_and(|noise| (noise - slow.noise.unwrap()).abs() < 1e-9), "{fast:?} {slow:?}");
    }

    #[test]
    fn a_machine_that_slows_down_on_the_way_adds_no_noise_and_one_odd_reference_does_no_harm() {
        let drifting = |factor: f64| case(&[(factor, 0.002), (2.0 * factor, 0.004), (3.0 * factor, 0.006)]);
        let mut cases = [drifting(1.0), drifting(0.5), drifting(2.0)];
        cases[0][1].fixed_task_seconds = 1.0;
        let speeds = Speeds::of(&cases);
        assert!(speeds.noise.unwrap() < 1e-9, "{speeds:?}");
        assert!((speeds.medians[1].unwrap() - 2.0).abs() < 1e-9, "{speeds:?}");
        assert_eq!(Speeds::of(&[case(&[(1.0, 0.002)])]).noise, None, "one round tells nothing of noise");
    }

    #[test]
    fn runs_that_differ_by_chance_alone_agree_within_the_noise_and_more_rounds_make_it_less() {
        let mut random = Random::new(3);
        let mut run = |rounds: usize| {
            let mut case = |seconds: f64| -> Vec<Timing> {
                let timing = |_| Timing {
                    bytes: 1_000_000,
                    seconds: seconds * (0.1 * random.normal()).exp(),
                    fixed_task_seconds: 0.002 * (0.02 * random.normal()).exp(),
                };
                (0..rounds).map(timing).collect()
            };
            Speeds::of(&(1..7).map(|number| case(f64::from(number))).collect::<Vec<_>>())
        };
        let (mut few, mut many) = (0.0, 0.0);
        for _ in 0..200 {
            let (first, second) = (run(9), run(9));
            few += first.noise.unwrap();
            many += run(36).noise.unwrap();
            for (first_speed, second_speed) in first.medians.iter().zip(&second.medians) {
                let ratio = first_speed.unwrap() / second_speed.unwrap();
                assert!(ratio.max(1.0 / ratio) < 1.0 + first.noise.unwrap(), "{first:?} {second:?}");
            }
        }
        // Ten percent of scatter: five times 1.77 · 0.1 / √9.
        assert!((0.28..0.42).contains(&(few / 200.0)), "{few}");
        assert!((1.9..2.7).contains(&(few / many)), "{few} {many}");
    }

    #[test]
    fn the_reference_takes_some_time() {
        let reference = FixedTask::new();
        let (first, second) = (reference.seconds(), reference.seconds());
        assert!(first > 1e-5 && second > 1e-5 && first < 100.0 * second, "{first} {second}");
    }
}
