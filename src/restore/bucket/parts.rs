//! The parts in which large objects are put, and the memory for them.

use bytesize::ByteSize;
use parking_lot::{Condvar, Mutex};

use crate::config::Config;
use crate::error::{Error, Result};

/// Bytes of a part, at least. It decides the ETags of large objects.
pub const PART_BYTES: u64 = 16 << 20;
/// Parts of an object, at most.
const PARTS_MAX: u64 = 10_000;
/// Bytes of an object, at most.
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Bytes of each part but the last one, of an object of `size` bytes.
fn part_bytes(size: u64) -> u64 {
    PART_BYTES.max(size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20))
}

/// The ranges of the parts of an object of `size` bytes.
pub fn parts_of(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let part = part_bytes(size);
    (0..size.div_ceil(part)).map(move |number| (number * part, ((number + 1) * part).min(size)))
}

/// The memory for parts. Files wait for it, so that fewer are put at once if their parts are long.
pub struct PartMemory {
    bytes: u64,
    free: Mutex<u64>,
    freed: Condvar,
}

/// Memory for one part. It is free again once this is dropped.
pub struct PartHold<'a> {
    memory: &'a PartMemory,
    bytes: u64,
}

impl PartMemory {
    /// The memory that frames have in a restore to a disk, and at least that of one short part.
    pub fn of(config: &Config) -> Self {
        let bytes = config.restore.cache_bytes.0.max(PART_BYTES);
        PartMemory { bytes, free: Mutex::new(bytes), freed: Condvar::new() }
    }

    /// Fails unless a file of `size` bytes can be put.
    ///
    /// # Errors
    /// [`Error::Usage`] if no object is so long, or if its parts are longer than the memory.
    pub fn check(&self, size: u64) -> Result<()> {
        let (size_max, part) = (ByteSize(OBJECT_BYTES_MAX), part_bytes(size));
        if size > OBJECT_BYTES_MAX {
            return Err(Error::Usage(format!("it has {}, and no object has more than {size_max}", ByteSize(size))));
        }
        if part > self.bytes {
            // The share of the memory that `restore.cache_bytes` is.
            let needed = (part.div_ceil(3) * 8).div_ceil(1 << 20);
            let (part, own) = (ByteSize(part), ByteSize(self.bytes));
            let text =
                format!("its parts have {part}, and the memory for them {own}: `--memory {needed}MiB` is enough");
            return Err(Error::Usage(text));
        }
        Ok(())
    }

    /// Waits for the memory that a part of a file of `size` bytes takes. The file has passed [`Self::check`].
    pub fn take(&self, size: u64) -> PartHold<'_> {
        let bytes = part_bytes(size).min(size).min(self.bytes);
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free < bytes);
        *free -= bytes;
        PartHold { memory: self, bytes }
    }
}

impl Drop for PartHold<'_> {
    fn drop(&mut self) {
        *self.memory.free.lock() += self.bytes;
        self.memory.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::map_parallel;

    #[test]
    fn parts_are_few_enough_and_cover_an_object_once() {
        for size in [PART_BYTES + 1, 3 * PART_BYTES, 10_000 * PART_BYTES + 1, OBJECT_BYTES_MAX] {
            let parts: Vec<_> = parts_of(size).collect();
            assert!(parts.len() as u64 <= PARTS_MAX, "{size}");
            assert_eq!((parts[0].0, parts[parts.len() - 1].1), (0, size));
            assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert!(parts[..parts.len() - 1].iter().all(|(from, to)| to - from >= PART_BYTES && to - from <= 5 << 30));
        }
    }

    #[test]
    fn objects_are_as_long_as_the_memory_allows() {
        let check = |memory, size| PartMemory::of(&Config::within(ByteSize::mib(memory))).check(size);
        for (memory, size) in [(64, 0), (64, 200 << 30), (256, 900 << 30), (2048, OBJECT_BYTES_MAX)] {
            check(memory, size).unwrap();
        }
        let said = check(64, 400 << 30).unwrap_err().to_string();
        assert!(said.contains("`--memory 110MiB`"), "{said}");
        check(110, 400 << 30).unwrap();
        for memory in [256, 1 << 20] {
            assert!(check(memory, OBJECT_BYTES_MAX + 1).unwrap_err().to_string().contains("no object has more than"));
        }
        assert!(check(256, OBJECT_BYTES_MAX).is_err());
    }

    #[test]
    fn parts_that_are_held_at_once_fit_into_the_memory() {
        let memory = PartMemory::of(&Config::within(ByteSize::mib(256)));
        let (held, most) = (Mutex::new(0), Mutex::new(0));
        let sizes: Vec<u64> = (0..60).map(|number| [5 << 20, 40 << 20, 500 << 30, 900 << 30][number % 4]).collect();
        map_parallel(8, &sizes, |size| {
            let hold = memory.take(*size);
            let now = {
                let mut held = held.lock();
                *held += hold.bytes;
                *held
            };
            let mut most = most.lock();
            *most = now.max(*most);
            drop(most);
            std::thread::yield_now();
            *held.lock() -= hold.bytes;
        });
        assert!((91 << 20..=96 << 20).contains(&*most.lock()), "{}", most.lock());
        assert_eq!(*memory.free.lock(), memory.bytes);
    }
}
