//! Rewriting: which duplicates a backup stores again, so that a restore has fewer containers to read.
//!
//! A rewriter sees the chunks of a stream in order, each with the container where the index found it, and gives them
//! back in the same order with a decision. It may hold back as many as its method looks ahead.

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
    /// Nowhere: it is stored in any case.
    Nowhere,
    /// Among the chunks of this stream that wait to be stored.
    InFlight,
    /// In this container.
    In(SimulatedContainer),
}

/// A chunk of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Its number.
    pub chunk: ChunkNumber,
    /// Its name.
    pub fingerprint: TraceFingerprint,
    /// Its length.
    pub bytes: u32,
    /// Where the index found it.
    pub found: Found,
}

/// A chunk and what to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// The chunk.
    pub chunk: Located,
    /// Store it again; of no meaning for chunks that were found nowhere.
    pub rewrite: bool,
}

/// What a rewriter may know.
pub struct RewriteContext<'a> {
    /// What is stored.
    pub containers: &'a SimulatedContainers,
    /// SimulatedContainers that were sparse in the stream before.
    pub inherited: &'a HashSet<SimulatedContainer>,
}

impl RewriteContext<'_> {
    /// The container of an earlier time that a chunk was found in. The one being filled is no fragment yet.
    fn old_home(&self, chunk: &Located) -> Option<SimulatedContainer> {
        match chunk.found {
            Found::In(container) if Some(container) != self.containers.open() => Some(container),
            _ => None,
        }
    }
}

/// Decides about one stream.
pub trait Rewriter {
    /// Takes the next chunk; appends what is decided to `decided`.
    fn push(&mut self, chunk: Located, context: &RewriteContext<'_>, decided: &mut Vec<Decided>);

    /// The stream has ended: decides about all that was held back.
    fn finish(&mut self, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let _ = (context, decided);
    }

    /// The container that the next decided chunk of the stream lies in, and its length.
    fn placed(&mut self, container: SimulatedContainer, bytes: u32) {
        let _ = (container, bytes);
    }
}

/// Names of the methods.
pub const REWRITERS: &[&str] = &["none", "capping", "cbr", "cfl", "har"];

/// The method of this name, one of [`REWRITERS`], for one stream.
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
