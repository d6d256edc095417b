//! Restores of simulated streams: how many containers are read through a cache. A recipe tells the container and the
//! length of each chunk, in the stream's order; 8 bytes of memory for each.

mod assembly;
mod belady;
mod lru;
#[cfg(test)]
mod tests;

use super::containers::SimulatedContainer;

/// A chunk to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeChunk {
    /// The container it is taken from.
    pub container: SimulatedContainer,
    /// Its length.
    pub bytes: u32,
}

/// Memory of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// In containers, at least one.
    pub containers: usize,
    /// What a full container holds, bytes.
    pub container_bytes: u64,
}

/// Counts the containers that restoring a recipe reads.
pub type ContainersRead = fn(&[RecipeChunk], CacheSize) -> u64;

/// Name of the cache that takes two containers at least.
pub const FORWARD_ASSEMBLY: &str = "forward-assembly";

/// Every cache by its name.
pub const RESTORE_CACHES: &[(&str, ContainersRead)] = &[
    ("lru", lru::containers_read),
    (FORWARD_ASSEMBLY, assembly::containers_read),
    ("belady", belady::containers_read),
];

/// What the cache of this name reads; nothing for a name that is none of [`RESTORE_CACHES`].
pub fn containers_read(name: &str, recipe: &[RecipeChunk], size: CacheSize) -> u64 {
    RESTORE_CACHES.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count(recipe, size))
}
