//! Restores of simulated streams: the number of containers read through a cache.
//!
//! A recipe has the container and length of each chunk in the order of the stream, 8 bytes each.

mod assembly;
mod belady;
mod lru;
#[cfg(test)]
mod tests;

use super::containers::SimulatedContainer;

/// A chunk to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeChunk {
    /// Container of the chunk.
    pub container: SimulatedContainer,
    /// Length of the chunk.
    pub bytes: u32,
}

/// Memory of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// Number of containers, at least one.
    pub containers: usize,
    /// Length of a full container.
    pub container_bytes: u64,
}

/// Counts the containers that the restore of a recipe reads.
pub type ContainersRead = fn(&[RecipeChunk], CacheSize) -> u64;

/// Name of the cache that needs at least two containers.
pub const FORWARD_ASSEMBLY: &str = "forward-assembly";

/// All caches with their names.
pub const RESTORE_CACHES: &[(&str, ContainersRead)] = &[
    ("lru", lru::containers_read),
    (FORWARD_ASSEMBLY, assembly::containers_read),
    ("belady", belady::containers_read),
];

/// Containers that the cache `name` reads; 0 if the name is not in [`RESTORE_CACHES`].
pub fn containers_read(name: &str, recipe: &[RecipeChunk], size: CacheSize) -> u64 {
    RESTORE_CACHES.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count(recipe, size))
}
