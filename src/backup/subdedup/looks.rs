//! How often blocks are compared with what is like them, beside a delta of known length.
//!
//! In a run in which everything trains, each block is like those of many steps, and the delta to the step before is the
//! best of them. To find that costs the decoding of several deltas a block. So after a few comparisons of a file that
//! found nothing better, few of its next blocks are compared, until one of them finds something.

/// Decides for the blocks of a file in their order.
#[derive(Default)]
pub(super) struct NearLooks {
    /// Blocks in a row for which that found nothing better.
    vain: u32,
    /// Blocks that were not compared since the last one that was.
    skipped: u32,
}

impl NearLooks {
    /// Blocks in vain after which blocks are left out, and how many of these before the next one that is compared.
    const VAIN_MAX: u32 = 4;
    const SKIPPED: u32 = 7;

    /// Whether the next block is compared.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.vain < Self::VAIN_MAX || self.skipped >= Self::SKIPPED;
        self.skipped = if is_due { 0 } else { self.skipped + 1 };
        is_due
    }

    /// Notes whether the comparison of a block found something better.
    pub(super) fn compared(&mut self, is_better: bool) {
        self.vain = if is_better { 0 } else { self.vain.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `count` blocks are compared, if those of `better` find something better.
    fn compared(count: u32, better: &[u32]) -> Vec<u32> {
        let mut looks = NearLooks::default();
        let mut due = Vec::new();
        for block in 0..count {
            if looks.is_due() {
                looks.compared(better.contains(&block));
                due.push(block);
            }
        }
        due
    }

    #[test]
    fn comparisons_in_vain_become_rare_and_one_that_is_not_ends_that() {
        assert_eq!(compared(24, &[]), [0, 1, 2, 3, 11, 19]);
        assert_eq!(compared(24, &[2]), [0, 1, 2, 3, 4, 5, 6, 14, 22]);
        assert_eq!(compared(18, &[11]), [0, 1, 2, 3, 11, 12, 13, 14, 15]);
        let all: Vec<u32> = (0..20).collect();
        assert_eq!(compared(20, &all), all);
    }
}
