//! A share of many things, and drawing it at random.

use std::str::FromStr;

use crate::config::WorkShare;
use crate::error::{Error, Result};

/// A share of the files, above 0 and at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleShare(f64);

impl FromStr for SampleShare {
    type Err = String;

    /// Parses a percentage such as `2%`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match percent.filter(|percent| *percent > 0.0 && *percent <= 100.0) {
            Some(percent) => Ok(SampleShare(percent / 100.0)),
            None => Err(format!("expected a share of the files such as 2%, found `{text}`")),
        }
    }
}

/// Gives each thing a random number, by its name.
pub(super) struct SampleDraw {
    seed: [u8; 32],
    /// What has a number up to this one is in the sample.
    threshold: u64,
    /// Only what falls to this share of the work is in the sample.
    share: Option<WorkShare>,
}

impl SampleDraw {
    /// Draws this share of the files, of those that fall to a share of the work.
    pub(super) fn new(sample: SampleShare, share: Option<WorkShare>) -> Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| Error::Usage(format!("no random numbers: {error}")))?;
        Ok(SampleDraw { seed, threshold: (sample.0 * u64::MAX as f64) as u64, share })
    }

    /// The number of what is called `name`.
    pub(super) fn number(&self, name: &[u8; 32]) -> u64 {
        let hash = blake3::keyed_hash(&self.seed, name);
        hash.as_bytes().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Whether what is called `name` falls to the share of the work.
    pub(super) fn may_have(&self, name: &[u8; 32]) -> bool {
        self.share.is_none_or(|share| share.has(name))
    }

    /// Whether what has this number is in the sample.
    pub(super) fn has(&self, number: u64) -> bool {
        number <= self.threshold
    }
}
