//! Simulates backups of traces, one stream after another, with an index and a rewriting method.
//!
//! 1. Each chunk is searched among the chunks of the stream that are not stored yet, then in the index.
//! 2. The rewriting method decides which duplicates are stored again. A chunk is stored again at most once per stream;
//!    later duplicates refer to that copy.
//! 3. Chunks that were not found and rewritten chunks are stored in the open container and added to the index.
//! 4. The containers of all chunks are the recipe of the stream. It is recorded only if a restore is simulated.
//!
//! Memory besides [`SimulatedContainers`], [`SimulatedIndex`] and [`History`]: chunks held back by the rewriting
//! method (36 bytes and a table entry each), rewritten chunks (8 bytes and a table entry each), and the recipe (8
//! bytes a chunk).

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fhrd::error::{Error, Result};

use super::containers::{ChunkNumber, SimulatedContainer, SimulatedContainers};
use super::index::{IndexCounts, SimulatedIndex};
use super::item::{Trace, TraceChunk, TraceItem, open};
use super::plan::TraceBench;
use super::restore::RecipeChunk;
use super::rewrite::{Decided, Found, History, Located, RewriteContext, Rewriter, Usage, rewriter};

/// Chunks between two checks of the stop flag.
const CHUNKS_BETWEEN_STOPS: u64 = 1 << 12;

/// A simulated repository.
pub struct Simulation<'a> {
    plan: &'a TraceBench,
    rewrite: &'a str,
    containers: SimulatedContainers,
    index: SimulatedIndex,
    history: History,
    in_flight: HashSet<ChunkNumber>,
    rewritten: HashMap<ChunkNumber, SimulatedContainer>,
    recipe: Option<Vec<RecipeChunk>>,
    counts: StoredStream,
}

/// Result of storing a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StoredStream {
    /// Number of files.
    pub files: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// Bytes of chunks that were not found and therefore stored.
    pub new_bytes: u64,
    /// Bytes of rewritten duplicates.
    pub rewritten_bytes: u64,
    /// Duplicates stored because the index did not find them.
    pub missed_chunks: u64,
    /// Bytes of those duplicates.
    pub missed_bytes: u64,
    /// Bytes of all containers after the stream.
    pub accumulated_bytes: u64,
    /// Counters of the index.
    pub index: IndexCounts,
    /// Bytes of the index's entries after the stream.
    pub index_bytes: u64,
    /// Containers that the stream refers to.
    pub usage: Usage,
    /// Wall seconds of the simulation.
    pub seconds: f64,
}

impl<'a> Simulation<'a> {
    /// An empty repository. `index` and `rewrite` are valid names of the plan.
    pub fn new(plan: &'a TraceBench, index: &str, rewrite: &'a str) -> Self {
        let cache = NonZeroUsize::new(plan.fingerprint_cache_containers).unwrap_or(NonZeroUsize::MIN);
        Simulation {
            plan,
            rewrite,
            containers: SimulatedContainers::new(plan.container_bytes.0),
            index: SimulatedIndex::new(if index == "sampled" { plan.sample_rate } else { 1 }, cache),
            history: History::new(&plan.har),
            in_flight: HashSet::new(),
            rewritten: HashMap::new(),
            recipe: None,
            counts: StoredStream::default(),
        }
    }

    /// Stores the trace at `path`. Returns its recipe if `keep_recipe` is set.
    ///
    /// # Errors
    /// Errors of reading the trace; [`Error::Interrupted`] once `stop` is set.
    pub fn store_file(
        &mut self,
        path: &Path,
        keep_recipe: bool,
        stop: &AtomicBool,
    ) -> Result<(StoredStream, Vec<RecipeChunk>)> {
        self.store(open(path)?, keep_recipe, stop)
    }

    /// Stores a trace.
    ///
    /// # Errors
    /// Like [`Self::store_file`].
    pub fn store(
        &mut self,
        trace: Trace,
        keep_recipe: bool,
        stop: &AtomicBool,
    ) -> Result<(StoredStream, Vec<RecipeChunk>)> {
        let started = Instant::now();
        self.recipe = keep_recipe.then(Vec::new);
        let mut rewriter = rewriter(self.rewrite, self.plan);
        let mut decided = Vec::new();
        for item in trace {
            let chunk = match item? {
                TraceItem::Chunk(chunk) => chunk,
                TraceItem::FileEnd => {
                    self.counts.files += 1;
                    continue;
                }
                TraceItem::FileStart { .. } | TraceItem::StreamEnd => continue,
            };
            if self.counts.chunks.is_multiple_of(CHUNKS_BETWEEN_STOPS) && stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let located = self.locate(chunk)?;
            rewriter.push(located, &self.context(), &mut decided);
            self.store_decided(&mut decided, rewriter.as_mut())?;
        }
        rewriter.finish(&self.context(), &mut decided);
        self.store_decided(&mut decided, rewriter.as_mut())?;
        Ok((self.end_stream(started), self.recipe.take().unwrap_or_default()))
    }

    fn context(&self) -> RewriteContext<'_> {
        RewriteContext { containers: &self.containers, inherited: self.history.inherited() }
    }

    fn locate(&mut self, chunk: TraceChunk) -> Result<Located> {
        let TraceChunk { fingerprint, bytes } = chunk;
        let number = self.containers.number(&fingerprint)?;
        self.counts.chunks += 1;
        self.counts.bytes += u64::from(bytes);
        let found = match self.in_flight.contains(&number) {
            true => Found::InFlight,
            false => self.index.find(number, &fingerprint, &self.containers).map_or(Found::Nowhere, Found::In),
        };
        if found == Found::Nowhere {
            self.in_flight.insert(number);
        }
        Ok(Located { chunk: number, fingerprint, bytes, found })
    }

    fn store_decided(&mut self, decided: &mut Vec<Decided>, rewriter: &mut dyn Rewriter) -> Result<()> {
        for Decided { chunk, rewrite } in decided.drain(..) {
            let container = self.container_for(&chunk, rewrite)?;
            self.history.refer(container, chunk.chunk, chunk.bytes);
            if let Some(recipe) = &mut self.recipe {
                recipe.push(RecipeChunk { container, bytes: chunk.bytes });
            }
            rewriter.placed(container, chunk.bytes);
        }
        Ok(())
    }

    /// The container of a chunk. Stores the chunk if necessary.
    fn container_for(&mut self, located: &Located, rewrite: bool) -> Result<SimulatedContainer> {
        let bytes = u64::from(located.bytes);
        let newest = self.containers.newest(located.chunk);
        match (located.found, newest) {
            (Found::InFlight, Some(container)) => Ok(container),
            (Found::In(container), _) if !rewrite => Ok(container),
            (Found::In(_), _) => {
                if let Some(container) = self.rewritten.get(&located.chunk) {
                    return Ok(*container);
                }
                self.counts.rewritten_bytes += bytes;
                let container = self.put(located)?;
                self.rewritten.insert(located.chunk, container);
                Ok(container)
            }
            (Found::Nowhere | Found::InFlight, _) => {
                self.in_flight.remove(&located.chunk);
                self.counts.new_bytes += bytes;
                if newest.is_some() {
                    self.counts.missed_chunks += 1;
                    self.counts.missed_bytes += bytes;
                }
                self.put(located)
            }
        }
    }

    fn put(&mut self, located: &Located) -> Result<SimulatedContainer> {
        let is_first = self.containers.newest(located.chunk).is_none();
        self.index.update(&located.fingerprint, is_first);
        self.containers.store(located.chunk, located.bytes)
    }

    fn end_stream(&mut self, started: Instant) -> StoredStream {
        self.containers.close();
        self.in_flight.clear();
        self.rewritten.clear();
        let counts = std::mem::take(&mut self.counts);
        StoredStream {
            accumulated_bytes: self.containers.stored_bytes(),
            index: self.index.end_stream(),
            index_bytes: self.index.bytes(),
            usage: self.history.end_stream(self.containers.bytes_target()),
            seconds: started.elapsed().as_secs_f64(),
            ..counts
        }
    }
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
