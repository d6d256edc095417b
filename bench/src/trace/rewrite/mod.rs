//! Rewriting: which duplicates a backup stores again so that a restore reads fewer containers.
//!
//! A rewriter receives the chunks of a stream in order, each with the container where the index found it. It returns
//! them in the same order with a decision. It can hold back as many chunks as its method needs.

mod capping;
mod cbr;
mod cfl;
mod har;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::containers::{ChunkNumber, SimulatedContainer, SimulatedContainers};
use super::item::TraceFingerprint;
use super::plan::TraceBench;

pub use har::{History, Usage};

/// Where the index found a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Not found. The chunk is stored in any case.
    Nowhere,
    /// Among the chunks of this stream that are not stored yet.
    InFlight,
    /// In this container.
    In(SimulatedContainer),
}

/// A chunk of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Number of the chunk.
    pub chunk: ChunkNumber,
    /// Fingerprint of the chunk.
    pub fingerprint: TraceFingerprint,
    /// Length of the chunk.
    pub bytes: u32,
    /// Where the index found it.
    pub found: Found,
}

/// A chunk with its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// The chunk.
    pub chunk: Located,
    /// Whether to store it again. Without meaning for chunks that were not found.
    pub rewrite: bool,
}

/// State of the repository that a rewriter can use.
pub struct RewriteContext<'a> {
    /// The stored containers.
    pub containers: &'a SimulatedContainers,
    /// Containers that were sparse in the previous stream.
    pub inherited: &'a HashSet<SimulatedContainer>,
}

impl RewriteContext<'_> {
    /// The container in which a chunk was found, unless it is the open one, which is no fragment yet.
    fn old_container(&self, chunk: &Located) -> Option<SimulatedContainer> {
        match chunk.found {
            Found::In(container) if Some(container) != self.containers.open() => Some(container),
            _ => None,
        }
    }
}

/// Decides which chunks of one stream are rewritten.
pub trait Rewriter {
    /// Takes the next chunk. Appends decided chunks to `decided`.
    fn push(&mut self, chunk: Located, context: &RewriteContext<'_>, decided: &mut Vec<Decided>);

    /// Ends the stream and decides on all chunks that were held back.
    fn finish(&mut self, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let _ = (context, decided);
    }

    /// The container and length of the next decided chunk.
    fn placed(&mut self, container: SimulatedContainer, bytes: u32) {
        let _ = (container, bytes);
    }
}

/// Names of the methods.
pub const REWRITERS: &[&str] = &["none", "capping", "cbr", "cfl", "har"];

/// The method `name`, one of [`REWRITERS`], for one stream.
pub fn rewriter(name: &str, plan: &TraceBench) -> Box<dyn Rewriter> {
    match name {
        "capping" => Box::new(capping::Capping::new(&plan.capping)),
        "cbr" => Box::new(cbr::Cbr::new(&plan.cbr)),
        "cfl" => Box::new(cfl::Cfl::new(&plan.cfl, plan.container_bytes.0)),
        "har" => Box::new(har::Har),
        _ => Box::new(NoRewriting),
    }
}

/// Rewrites nothing.
struct NoRewriting;

impl Rewriter for NoRewriting {
    fn push(&mut self, chunk: Located, _: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        decided.push(Decided { chunk, rewrite: false });
    }
}
