//! Reads of bases that a backup may take: so many per MiB of new bytes (ours).

/// What one read costs. With this unit, a new byte adds `reads_per_mib`.
const READ_COST: u64 = 1 << 20;
/// New bytes whose reads are allowed from the start, as a power of two.
const FIRST_BYTES_POWER: u32 = 23;
/// New bytes whose reads may accumulate, as a power of two.
const ACCUMULATED_BYTES_POWER: u32 = 26;

/// See the module.
pub struct ReadBudget {
    reads_per_mib: u64,
    /// Reads left, in units of 1 / [`READ_COST`].
    left: u64,
}

impl ReadBudget {
    /// Allows the reads of 8 MiB of new bytes from the start.
    pub fn new(reads_per_mib: u32) -> Self {
        let reads_per_mib = u64::from(reads_per_mib);
        ReadBudget { reads_per_mib, left: reads_per_mib << FIRST_BYTES_POWER }
    }

    /// Allows any number of reads.
    pub const fn unlimited() -> Self {
        ReadBudget { reads_per_mib: 0, left: u64::MAX }
    }

    /// Allows more reads after `bytes` new bytes. At most those of 64 MiB accumulate.
    pub fn grant(&mut self, bytes: u64) {
        let granted = self.left.saturating_add(bytes.saturating_mul(self.reads_per_mib));
        self.left = granted.min(self.reads_per_mib << ACCUMULATED_BYTES_POWER).max(self.left);
    }

    /// Takes one read. Returns whether it is allowed.
    pub fn take(&mut self) -> bool {
        self.take_all(1)
    }

    /// Takes so many reads, or none. Returns whether they are allowed.
    pub fn take_all(&mut self, reads: usize) -> bool {
        let left = self.left.checked_sub((reads as u64).saturating_mul(READ_COST));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(budget: &mut ReadBudget) -> u32 {
        std::iter::from_fn(|| budget.take().then_some(())).count() as u32
    }

    #[test]
    fn reads_follow_the_new_bytes_up_to_a_limit() {
        let mut budget = ReadBudget::new(3);
        assert_eq!(reads(&mut budget), 3 * 8, "those of the first 8 MiB");
        budget.grant(1 << 19);
        assert_eq!(reads(&mut budget), 1);
        budget.grant(1 << 19);
        assert_eq!(reads(&mut budget), 2, "half a read was left");
        budget.grant(1 << 40);
        assert_eq!(reads(&mut budget), 3 * 64);
        assert!(!budget.take_all(1) && !ReadBudget::new(0).take());
        budget.grant(1 << 20);
        assert!(!budget.take_all(4) && budget.take_all(3) && !budget.take());
    }

    #[test]
    fn an_unlimited_budget_stays_so() {
        let mut budget = ReadBudget::unlimited();
        budget.grant(u64::MAX);
        assert!((0..1000).all(|_| budget.take()));
    }
}
