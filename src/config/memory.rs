//! One setting for memory: the sizes of caches and queues that follow from it.
//!
//! Each of them is a share of the memory. Those of a backup add up to seven eighths of it once the filter is
//! full, with ten million chunks for each 48 MiB. The rest is for data between stages, for the container that is
//! filled, and for what no cache bounds: a frame, the metadata of a directory.

use bytesize::ByteSize;

use super::Config;

/// Memory that the defaults are made for, on two processors.
pub const MEMORY_DEFAULT: ByteSize = ByteSize::mib(256);
/// Least and most memory that can be asked for, bytes.
const MEMORY_BYTES: (u64, u64) = (64 << 20, 1 << 40);

/// Memory that each worker of the parallel stages adds, about. Bytes.
const WORKER_BYTES: u64 = 32 << 20;

/// Sets one key of a configuration for this many bytes of memory.
type SetSize = fn(&mut Config, u64);

/// The keys that follow from the memory, each with its table.
const SIZES: [(&str, &str, SetSize); 9] = [
    ("pipeline", "batch_bytes", |config, memory| {
        config.pipeline.batch_bytes = within(memory / 512, 128 << 10, 1 << 20)
    }),
    ("pipeline", "queue_depth", |config, memory| config.pipeline.queue_depth = count(memory >> 27, 4)),
    ("pipeline", "workers_max", |config, memory| config.pipeline.workers_max = count(memory / WORKER_BYTES, 8)),
    ("index", "filter_bytes", |config, memory| config.index.filter_bytes = ByteSize(memory / 4)),
    ("index", "similarity_bytes", |config, memory| config.index.similarity_bytes = ByteSize(memory / 16)),
    ("index", "container_index_bytes", |config, memory| config.index.container_index_bytes = ByteSize(memory / 8)),
    ("model", "outline_bytes", |config, memory| config.model.outline_bytes = ByteSize(memory / 16)),
    ("subdedup", "base_cache_bytes", |config, memory| config.subdedup.base_cache_bytes = ByteSize(memory / 16 * 3)),
    ("restore", "cache_bytes", |config, memory| config.restore.cache_bytes = ByteSize(memory / 8 * 3)),
];

/// A size between two bounds, in steps of 64 KiB.
fn within(bytes: u64, least: u64, most: u64) -> ByteSize {
    ByteSize((bytes >> 16 << 16).clamp(least, most))
}

/// A number from one to `most`.
fn count(number: u64, most: u64) -> usize {
    number.clamp(1, most) as usize
}

/// Checks the range of an amount of memory.
///
/// # Errors
/// A message with the range.
pub(super) fn check_memory(memory: ByteSize) -> Result<(), String> {
    let (least, most) = MEMORY_BYTES;
    if (least..=most).contains(&memory.0) {
        return Ok(());
    }
    Err(format!("`memory` must be between {} and {}, found {memory}", ByteSize(least), ByteSize(most)))
}

/// An amount of memory, such as `256MiB`.
///
/// # Errors
/// A message with what was expected.
pub fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let memory = text.parse::<ByteSize>().map_err(|_| format!("expected a size such as 256MiB: `{text}`"))?;
    check_memory(memory).map(|()| memory)
}

impl Config {
    /// The defaults for a process of about this many bytes on two processors. More workers take more, by default up to
    /// eight. [`Config::default`] has 256 MiB.
    pub fn within(memory: ByteSize) -> Self {
        let mut config = Config::default();
        config.set_memory(memory, |_, _| false);
        config
    }

    /// Sets the memory, and each size that follows from it unless `is_given` says that its table and key are given.
    pub(super) fn set_memory(&mut self, memory: ByteSize, is_given: impl Fn(&str, &str) -> bool) {
        self.memory = memory;
        for (table, key, set) in SIZES {
            if !is_given(table, key) {
                set(self, memory.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_default_memory() {
        assert_eq!(Config::within(MEMORY_DEFAULT), Config::default());
    }

    #[test]
    fn sizes_follow_the_memory_and_stay_in_range() {
        let mut before = Config::within(ByteSize(MEMORY_BYTES.0));
        for shift in 26..=40 {
            let config = Config::within(ByteSize(1 << shift));
            config.validate().unwrap_or_else(|message| panic!("{shift}: {message}"));
            let sizes = |config: &Config| {
                let Config { pipeline, index, model, subdedup, restore, .. } = config.clone();
                let (batches, caches) = (pipeline.batch_bytes.0 * pipeline.queue_depth as u64, restore.cache_bytes.0);
                let index = index.filter_bytes.0 + index.similarity_bytes.0 + index.container_index_bytes.0;
                [
                    batches,
                    caches,
                    index,
                    model.outline_bytes.0,
                    subdedup.base_cache_bytes.0,
                    pipeline.workers_max as u64,
                ]
            };
            let (less, more) = (sizes(&before), sizes(&config));
            assert!(less.iter().zip(&more).all(|(less, more)| less <= more), "{shift}: {less:?} {more:?}");
            let [batches, _, index, outlines, bases, _] = more;
            assert!(batches * 8 + index + outlines * 2 + bases <= 1 << shift, "{shift}: {more:?}");
            before = config;
        }
    }

    #[test]
    fn what_is_given_stays_and_the_rest_follows() {
        let text = "memory = '1 GiB'\n[restore]\ncache_bytes = '5 MiB'\n";
        let config = Config::parse(text, "x").unwrap();
        assert_eq!((config.memory, config.restore.cache_bytes), (ByteSize::gib(1), ByteSize::mib(5)));
        let rest = Config { restore: Config::within(ByteSize::gib(1)).restore, ..config };
        assert_eq!(rest, Config::within(ByteSize::gib(1)));
        // The command line wins over the file.
        let less = Config::parse_within(text, "x", Some(ByteSize::mib(128))).unwrap();
        assert_eq!((less.memory, less.restore.cache_bytes), (ByteSize::mib(128), ByteSize::mib(5)));
        assert_eq!(less.index, Config::within(ByteSize::mib(128)).index);
        let written = toml::to_string(&less).unwrap();
        assert_eq!(Config::parse(&written, "x").unwrap(), less, "{written}");
    }

    #[test]
    fn too_little_and_too_much_are_refused() {
        for memory in ["63 MiB", "2 TiB", "0"] {
            let error = Config::parse(&format!("memory = '{memory}'"), "x").unwrap_err().to_string();
            assert!(error.contains("`memory` must be between"), "{error}");
        }
    }
}
