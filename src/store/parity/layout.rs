//! How the bytes of a container are cut into shards, and where the parts of its parity blob are.

use super::share::ParityShare;

/// Bytes of a shard, unless the container is very short or very long. It is the sector of today's disks.
const SHARD_BYTES: u64 = 4096;
/// Lengths of shards are multiples of this: the code works on such pieces.
pub(super) const SHARD_UNIT: usize = 64;
/// Shards of a container, at most: the code has as many again for recovery.
const DATA_SHARDS_MAX: u64 = 1 << 15;
/// Containers of at most this many shards have as many recovery shards: the bytes of a copy, but any half of all these
/// shards serves. A small share of few shards would be less than a sector or two.
const COPIED_SHARDS_MAX: u64 = 40;
/// Recovery shards, at least. A short range of bad bytes can touch two.
const RECOVERY_SHARDS_MIN: u64 = 2;
/// Longest container that is protected, bytes. Healing one takes the memory of it and of its parity.
pub(super) const CONTAINER_BYTES_MAX: u64 = 256 << 20;
/// Bytes of the header of a parity blob.
pub(super) const HEADER_BYTES: usize = 80;
/// Bytes of a checksum in the table.
pub(super) const SUM_BYTES: usize = 4;

/// The shards of a container and of its parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParityLayout {
    /// Bytes of the container as it is stored.
    pub len: u64,
    /// Bytes of a shard. The last one of a container is padded with zeros.
    pub shard_bytes: usize,
    /// Shards of the container.
    pub data_shards: usize,
    /// Recovery shards.
    pub recovery_shards: usize,
}

impl ParityLayout {
    /// The layout of a container of `len` bytes. `None` if it is empty or too long.
    pub fn new(len: u64, share: ParityShare) -> Option<Self> {
        let (shard_bytes, data_shards) = cut(len)?;
        let recovery_shards = match data_shards {
            0..=COPIED_SHARDS_MAX => data_shards,
            _ => share.of(data_shards).min(data_shards),
        };
        Self::with(len, shard_bytes, data_shards, recovery_shards.max(RECOVERY_SHARDS_MIN))
    }

    /// The layout that a header describes. `None` if no writer makes such a one.
    pub fn described(len: u64, shard_bytes: u32, recovery_shards: u32) -> Option<Self> {
        let (expected, data_shards) = cut(len)?;
        let recovery_shards = u64::from(recovery_shards);
        let is_possible = u64::from(shard_bytes) == expected
            && (RECOVERY_SHARDS_MIN..=data_shards.max(RECOVERY_SHARDS_MIN)).contains(&recovery_shards);
        if is_possible { Self::with(len, expected, data_shards, recovery_shards) } else { None }
    }

    fn with(len: u64, shard_bytes: u64, data_shards: u64, recovery_shards: u64) -> Option<Self> {
        let (shard_bytes, data_shards) = (shard_bytes.try_into().ok()?, data_shards.try_into().ok()?);
        Some(ParityLayout { len, shard_bytes, data_shards, recovery_shards: recovery_shards.try_into().ok()? })
    }

    /// Bytes of the table: a checksum of each shard of the container, then of each recovery shard.
    pub fn table_bytes(&self) -> usize {
        (self.data_shards + self.recovery_shards) * SUM_BYTES
    }

    /// Where the recovery shards begin in the parity blob: at a multiple of their length, so that a bad sector costs
    /// one.
    pub fn shards_start(&self) -> usize {
        (HEADER_BYTES + self.table_bytes()).next_multiple_of(self.shard_bytes)
    }

    /// Where the second table begins. The second header follows it.
    pub fn second_table_start(&self) -> usize {
        self.shards_start() + self.recovery_shards * self.shard_bytes
    }

    /// Bytes of the parity blob.
    pub fn blob_bytes(&self) -> usize {
        self.second_table_start() + self.table_bytes() + HEADER_BYTES
    }

    /// Shards that the code works on to restore some, at most.
    pub fn work_shards(&self) -> usize {
        (self.data_shards.next_power_of_two() + self.recovery_shards.next_power_of_two()).next_power_of_two()
    }

    /// Whether a container of which `len` bytes are there can be restored as far as lengths tell.
    pub fn restores_from(&self, len: u64) -> bool {
        self.len.abs_diff(len) <= (self.recovery_shards * self.shard_bytes) as u64
    }

    /// Bytes of the container with its padding.
    pub fn padded_bytes(&self) -> usize {
        self.data_shards * self.shard_bytes
    }
}

/// Length and number of the shards of a container of `len` bytes.
fn cut(len: u64) -> Option<(u64, u64)> {
    if !(1..=CONTAINER_BYTES_MAX).contains(&len) {
        return None;
    }
    let mut shard_bytes = SHARD_BYTES.min(len.next_multiple_of(SHARD_UNIT as u64));
    while len.div_ceil(shard_bytes) > DATA_SHARDS_MAX {
        shard_bytes *= 2;
    }
    Some((shard_bytes, len.div_ceil(shard_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(len: u64, parts: u32) -> ParityLayout {
        ParityLayout::new(len, ParityShare::new(parts).unwrap()).unwrap()
    }

    #[test]
    fn shards_are_sectors_unless_a_container_is_very_short_or_very_long() {
        let shards = |len| {
            let ParityLayout { shard_bytes, data_shards, recovery_shards, .. } = layout(len, 300);
            (shard_bytes, data_shards, recovery_shards)
        };
        assert_eq!(shards(1), (64, 1, 2));
        assert_eq!(shards(4096), (4096, 1, 2));
        assert_eq!(shards(4097), (4096, 2, 2));
        assert_eq!(shards(160 << 10), (4096, 40, 40), "a copy");
        assert_eq!(shards((160 << 10) + 1), (4096, 41, 2));
        assert_eq!(shards(32 << 20), (4096, 8192, 246));
        assert_eq!(shards(128 << 20), (4096, 32_768, 984));
        assert_eq!(shards((128 << 20) + 1), (8192, 16_385, 492));
        assert_eq!(shards(256 << 20), (8192, 32_768, 984));
        let share = ParityShare::new(300).unwrap();
        assert!(ParityLayout::new(0, share).is_none() && ParityLayout::new((256 << 20) + 1, share).is_none());
    }

    #[test]
    fn a_full_container_has_its_share_and_little_more() {
        for (len, parts) in [(32u64 << 20, 300), (32 << 20, 500), (128 << 20, 300), (256 << 20, 10_000)] {
            let extra = layout(len, parts).blob_bytes() as f64 / len as f64 - f64::from(parts) / 10_000.0;
            assert!(extra < 0.004, "{len}, {parts}: {extra}");
        }
    }

    #[test]
    fn a_header_describes_what_a_writer_makes_and_nothing_else() {
        for len in [1, 5000, 200_000, 32 << 20, (128 << 20) + 1] {
            let layout = layout(len, 300);
            let described = |shard_bytes, recovery| ParityLayout::described(len, shard_bytes, recovery);
            let (shard_bytes, recovery) = (layout.shard_bytes as u32, layout.recovery_shards as u32);
            assert_eq!(described(shard_bytes, recovery), Some(layout));
            assert_eq!(described(shard_bytes * 2, recovery), None);
            assert_eq!(described(shard_bytes, 1), None);
            assert_eq!(described(shard_bytes, u32::MAX), None);
        }
        assert_eq!(ParityLayout::described(u64::MAX, 4096, 2), None);
    }
}
