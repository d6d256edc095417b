//! Simulates backups of traces, one stream after another, with an index and a rewriting method.
//!
//! 1. Each chunk is looked for: among those of the stream that wait to be stored, then by the index.
//! 2. The rewriting method decides which duplicates are stored again. A chunk is stored again at most once in a
//!    stream: later duplicates that should be, too, refer to that copy.
//! 3. Chunks that were not found, and those to be stored again, go into the open container; the index learns of them.
//! 4. The container of every chunk is the stream's recipe, which is kept only where a restore is to be simulated.
//!
//! In memory, beside what [`SimulatedContainers`], [`SimulatedIndex`] and [`History`] keep: what the rewriting method holds back (36
//! bytes and a table entry a chunk), 8 bytes and a table entry for each chunk the stream stored again, 8 a chunk of
//! the recipe.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::containers::{ChunkNumber, SimulatedContainer, SimulatedContainers};
use super::index::{IndexCounts, SimulatedIndex};
use super::item::{Trace, TraceChunk, TraceItem, open};
use super::plan::TraceBench;
use super::restore::RecipeChunk;
use super::rewrite::{Decided, Found, History, Located, RewriteContext, Rewriter, Usage, rewriter};
use crate::error::{Error, Result};

/// Chunks between two looks whether to stop.
const CHUNKS_BETWEEN_STOPS: u64 = 1 << 12;

/// A repository that is simulated.
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

/// What storing a stream did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StoredStream {
    /// Files.
    pub files: u64,
    /// Chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of chunks that were not found, and therefore stored.
    pub new_bytes: u64,
    /// Bytes of duplicates that were stored again.
    pub rewritten_bytes: u64,
    /// Chunks that were stored because the index did not know that they were.
    pub missed_chunks: u64,
    /// Their bytes.
    pub missed_bytes: u64,
    /// Bytes of all containers after the stream.
    pub accumulated_bytes: u64,
    /// What the index was asked.
    pub index: IndexCounts,
    /// Bytes of the index's entries after the stream.
    pub index_bytes: u64,
    /// The containers it refers to.
    pub usage: Usage,
    /// Wall seconds of the simulation.
    pub seconds: f64,
}

impl<'a> Simulation<'a> {
    /// An empty repository; `index` and `rewrite` are names that the plan takes.
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

    /// Stores the trace at `path`; with `keep_recipe`, gives the recipe, too.
    ///
    /// # Errors
    /// Those of reading it, and [`Error::Interrupted`] once `stop` is set.
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
    /// As [`Self::store_file`].
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

    /// The container that the stream takes a chunk from, which is stored if it must be.
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
