//! How much parity there is: a share of the bytes of a container.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Parts of a whole in which a share counts: hundredths of a percent.
const WHOLE: u32 = 10_000;

/// Recovery shards per shard of a container, in hundredths of a percent: from 0.01 % to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParityShare(u32);

impl ParityShare {
    /// As many recovery shards as shards.
    pub(super) const WHOLE: ParityShare = ParityShare(WHOLE);

    /// A share of `parts` hundredths of a percent. `None` unless it is one from 1 to 10,000.
    pub fn new(parts: u32) -> Option<Self> {
        (1..=WHOLE).contains(&parts).then_some(ParityShare(parts))
    }

    /// The share in hundredths of a percent.
    pub fn parts(self) -> u32 {
        self.0
    }

    /// The share of `count`, rounded up.
    pub fn of(self, count: u64) -> u64 {
        count.saturating_mul(u64::from(self.0)).div_ceil(u64::from(WHOLE))
    }
}

impl fmt::Display for ParityShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, rest) = (self.0 / 100, self.0 % 100);
        match (rest, rest % 10) {
            (0, _) => write!(formatter, "{percent}%"),
            (_, 0) => write!(formatter, "{percent}.{}%", rest / 10),
            _ => write!(formatter, "{percent}.{rest:02}%"),
        }
    }
}

impl FromStr for ParityShare {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (percent, rest) = text.strip_suffix('%')?.split_once('.').unwrap_or((text.strip_suffix('%')?, ""));
            let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            if percent.is_empty() || !is_number(percent) || rest.len() > 2 || !is_number(rest) {
                return None;
            }
            let parts = percent.parse::<u32>().ok()?.checked_mul(100)?;
            ParityShare::new(parts.checked_add(format!("{rest:0<2}").parse().ok()?)?)
        };
        parse().ok_or_else(|| Error::Usage(format!("`{text}` is not a share from 0.01% to 100%")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for (text, parts) in [("3%", 300), ("0.5%", 50), ("0.05%", 5), ("12.34%", 1234), ("100%", 10_000)] {
            let share: ParityShare = text.parse().unwrap();
            assert_eq!((share.parts(), share.to_string()), (parts, text.to_string()));
        }
        for text in ["3", "", "%", "0%", "100.01%", "-1%", "1.234%", "a%", "1..2%", "3 %", "99999999999%", ".5%"] {
            assert!(text.parse::<ParityShare>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_of_something_is_rounded_up() {
        let share = ParityShare::new(300).unwrap();
        assert_eq!([0, 1, 33, 34, 8192].map(|count| share.of(count)), [0, 1, 1, 2, 246]);
    }
}
