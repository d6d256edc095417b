//! Speeds that are comparable between two runs of a comparison.
//!
//! The speed of a machine varies: other processes use it, and its clock depends on heat and load. Therefore:
//!
//! 1. A *fixed task* on one thread is timed before and after every measurement. The time of a round is the median over
//!    all its cases.
//! 2. A *normalised second* is the time of [`REPETITIONS`] runs of the fixed task in the same round. A speed is bytes
//!    per normalised second, and the speed of a case is the median over the rounds.
//! 3. The logarithms of the speeds scatter around the mean of their case. This scatter, over all cases of a set, gives
//!    the standard error of a median and of the difference of two medians. *Noise* is [`DEVIATIONS`] of these errors.
//!    A greater difference between two runs of the same file on the same machine is not random.

use std::hint::black_box;
use std::time::Instant;

use fhrd::codec::Scratch;

use super::data::Random;
use super::workbench::median;

/// Runs of the fixed task in a normalised second: about one second on one thread of a server CPU of 2021.
pub const REPETITIONS: f64 = 500.0;
/// Standard errors that noise allows for. With this many, tens of values agree at once, and differences between
/// processes, such as memory layout, are covered.
const DEVIATIONS: f64 = 5.0;
/// Standard error of a median relative to that of the mean, for almost Gaussian values.
const MEDIAN_ERROR: f64 = 1.2533;
/// Bytes that the fixed task hashes.
const HASHED_BYTES: usize = 4 << 20;
/// Bytes of those that it compresses, too.
const COMPRESSED_BYTES: usize = 512 << 10;
/// Runs of the task per measurement. The median counts.
const TRIES: usize = 3;

/// The fixed task: BLAKE3 of 4 MiB and zstd of 512 KiB.
pub struct FixedTask {
    data: Vec<u8>,
}

impl FixedTask {
    /// Prepares the data.
    pub fn new() -> Self {
        let mut random = Random::new(1);
        // 22 random bits in 32: slightly compressible.
        let values = (0..HASHED_BYTES / 4).map(|_| (random.bits() >> 42) as u32);
        FixedTask { data: values.flat_map(u32::to_le_bytes).collect() }
    }

    /// Seconds of one run now.
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
    /// Processed bytes.
    pub bytes: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Duration of the fixed task around the measurement, seconds.
    pub fixed_task_seconds: f64,
}

/// Speeds of cases that were measured in the same rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Speeds {
    /// MB per normalised second of each case; `None` for a case without measurements.
    pub medians: Vec<Option<f64>>,
    /// Medians of another run differ by at most the factor 1 + this value; `None` for a single round.
    pub noise: Option<f64>,
}

impl Speeds {
    /// The speeds of `cases`, each with its rounds in order.
    pub fn of(cases: &[Vec<Timing>]) -> Self {
        let rounds = cases.iter().map(Vec::len).max().unwrap_or(0);
        let in_round =
            |round: usize| cases.iter().filter_map(move |case| case.get(round)).map(|timing| timing.fixed_task_seconds);
        let task_seconds: Vec<f64> = (0..rounds).map(|round| median(in_round(round))).collect();
        let speed = |(timing, seconds): (&Timing, &f64)| {
            timing.bytes as f64 / 1e6 / (timing.seconds / (seconds * REPETITIONS).max(1e-12)).max(1e-12)
        };
        let speeds: Vec<Vec<f64>> =
            cases.iter().map(|case| case.iter().zip(&task_seconds).map(speed).collect()).collect();
        let medians = speeds.iter().map(|case| (!case.is_empty()).then(|| median(case.iter().copied()))).collect();
        Speeds { medians, noise: noise(&speeds) }
    }
}

/// Noise of the fastest of several rounds: the share by which the median round takes longer. `None` for one round.
pub fn noise_of_fastest(seconds: &[f64]) -> Option<f64> {
    let fastest = seconds.iter().copied().reduce(f64::min)?;
    (seconds.len() > 1).then(|| median(seconds.iter().copied()) / fastest.max(1e-12) - 1.0)
}

/// Noise, step 3 of the module documentation, of speeds or of times.
pub fn noise(speeds: &[Vec<f64>]) -> Option<f64> {
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

    /// Rounds of one case: its seconds and those of the fixed task.
    fn case(rounds: &[(f64, f64)]) -> Vec<Timing> {
        let timing = |(seconds, fixed_task_seconds): &(f64, f64)| Timing {
            bytes: 1_000_000,
            seconds: *seconds,
            fixed_task_seconds: *fixed_task_seconds,
        };
        rounds.iter().map(timing).collect()
    }

    #[test]
    fn a_machine_of_half_the_speed_has_the_same_normalised_speeds() {
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
    fn a_machine_that_slows_down_and_one_outlier_add_no_noise() {
        let drifting = |factor: f64| case(&[(factor, 0.002), (2.0 * factor, 0.004), (3.0 * factor, 0.006)]);
        let mut cases = [drifting(1.0), drifting(0.5), drifting(2.0)];
        cases[0][1].fixed_task_seconds = 1.0;
        let speeds = Speeds::of(&cases);
        assert!(speeds.noise.unwrap() < 1e-9, "{speeds:?}");
        assert!((speeds.medians[1].unwrap() - 2.0).abs() < 1e-9, "{speeds:?}");
        assert_eq!(Speeds::of(&[case(&[(1.0, 0.002)])]).noise, None, "one round has no noise");
    }

    #[test]
    fn random_differences_are_within_the_noise_and_more_rounds_reduce_it() {
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
        // Scatter of 10 %: five times 1.77 · 0.1 / √9.
        assert!((0.28..0.42).contains(&(few / 200.0)), "{few}");
        assert!((1.9..2.7).contains(&(few / many)), "{few} {many}");
    }

    #[test]
    fn a_fastest_round_has_the_noise_of_the_median_round() {
        let noise = noise_of_fastest(&[1.5, 1.0, 1.2]).unwrap();
        assert!((noise - 0.2).abs() < 1e-9, "{noise}");
        assert_eq!([noise_of_fastest(&[1.0]), noise_of_fastest(&[])], [None, None], "one round has no noise");
    }

    #[test]
    fn the_fixed_task_has_a_stable_duration() {
        let task = FixedTask::new();
        let (first, second) = (task.seconds(), task.seconds());
        assert!(first > 1e-5 && second > 1e-5 && first < 100.0 * second, "{first} {second}");
    }
}
