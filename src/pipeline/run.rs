//! Builds a chain of stages and runs it. One function spawns and joins all threads of a run.
//!
//! 1. A [`Link`] is the output of a stage whose consumer is not known yet. It holds a function that makes the stage's
//!    thread bodies from the sending ends of the lanes.
//! 2. Attaching a consumer fixes both worker counts. The lanes can then be made, which completes the producer.
//! 3. [`Pipeline::run`] attaches the sink, starts one named thread per worker and joins all threads. It merges the
//!    workers' metrics per stage and returns the first recorded error or the sink's value.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::time::{ClockId, clock_gettime};

use crossbeam_channel::bounded;

use super::link::{Emit, Receiver, connect};
use super::stage::{run_map, run_sink, run_source, run_stage};
use super::state::{RunState, panicked};
use super::{Map, Sink, Source, Stage};
use crate::error::{Error, Neighbour, Result};
use crate::metrics::StageMetrics;

/// The work of one thread. Returns the metrics of its worker.
type ThreadBody<'env> = Box<dyn FnOnce() -> StageMetrics + Send + 'env>;

/// The thread bodies of one stage.
struct Workers<'env> {
    name: &'static str,
    bodies: Vec<ThreadBody<'env>>,
}

/// The output of a stage. It becomes the input of the next stage.
#[must_use = "a stage whose link has no consumer does not run"]
pub struct Link<'env, T> {
    name: &'static str,
    workers: usize,
    start: Box<dyn FnOnce(Vec<Emit<T>>) -> Vec<ThreadBody<'env>> + 'env>,
}

/// A chain of stages under construction. Stages may borrow data that lives for `'env`.
pub struct Pipeline<'env> {
    queue_depth: usize,
    state: Arc<RunState>,
    worker_groups: Vec<Workers<'env>>,
}

impl<'env> Pipeline<'env> {
    /// An empty chain whose links hold `queue_depth` items each, and at least one per lane.
    ///
    /// Any thread may set `stop` at any time. The run then ends with [`Error::Interrupted`] when each stage has
    /// finished its current item.
    pub fn new(queue_depth: usize, stop: Arc<AtomicBool>) -> Self {
        Pipeline { queue_depth, state: Arc::new(RunState::new(stop)), worker_groups: Vec::new() }
    }

    /// Links made from now on hold `queue_depth` items each. If items are small, or differ much in their work, a
    /// deeper queue keeps the downstream workers busy.
    pub fn set_queue_depth(&mut self, queue_depth: usize) {
        self.queue_depth = queue_depth;
    }

    /// Starts the chain with its source.
    pub fn source<S: Source + 'env>(&mut self, source: S) -> Link<'env, S::Out> {
        let state = Arc::clone(&self.state);
        let name = source.name();
        let start = move |emits: Vec<Emit<S::Out>>| {
            let body = |emit| -> ThreadBody<'env> { Box::new(move || run_source(&state, source, emit)) };
            emits.into_iter().next().map(body).into_iter().collect()
        };
        Link { name, workers: 1, start: Box::new(start) }
    }

    /// Adds a stage with one owner.
    pub fn stage<S: Stage + 'env>(&mut self, link: Link<'env, S::In>, stage: S) -> Link<'env, S::Out> {
        let name = stage.name();
        let receivers = self.attach(link, name, 1);
        let state = Arc::clone(&self.state);
        self.workers(name, receivers, vec![stage], move |stage, receiver, emit| {
            run_stage(&state, stage, receiver, emit)
        })
    }

    /// Adds a parallel stage. Calls `make` now, once for each of the `workers` (0 counts as 1).
    pub fn parallel<M: Map + 'env>(
        &mut self,
        link: Link<'env, M::In>,
        workers: usize,
        make: impl FnMut() -> M,
    ) -> Link<'env, M::Out> {
        let maps: Vec<M> = std::iter::repeat_with(make).take(workers.max(1)).collect();
        let name = maps.first().map_or("", Map::name);
        let receivers = self.attach(link, name, maps.len());
        let state = Arc::clone(&self.state);
        self.workers(name, receivers, maps, move |map, receiver, emit| run_map(&state, map, receiver, emit))
    }

    /// Ends the chain with `sink`, runs it, and returns the sink's value and the metrics of every stage in order.
    ///
    /// # Errors
    /// The first error that a stage recorded, [`Error::StagePanicked`] or [`Error::Interrupted`]. All threads have
    /// ended when this returns.
    pub fn run<S: Sink + 'env>(mut self, link: Link<'env, S::In>, sink: S) -> Result<(S::Output, Vec<StageMetrics>)> {
        let name = sink.name();
        let (output, result) = bounded(1);
        let receivers = self.attach(link, name, 1);
        for (receiver, sink) in receivers.into_iter().zip([sink]) {
            let (state, output) = (Arc::clone(&self.state), output.clone());
            let body: ThreadBody<'env> = Box::new(move || run_sink(&state, sink, receiver, &output));
            self.worker_groups.push(Workers { name, bodies: vec![body] });
        }
        let metrics = run_threads(self.worker_groups, &self.state);
        match self.state.take() {
            Some(error) => Err(error),
            None => {
                let closed = |_| Error::LinkClosed { stage: name.into(), neighbour: Neighbour::Downstream };
                result.try_recv().map(|value| (value, metrics)).map_err(closed)
            }
        }
    }

    /// Makes the lanes between `link` and a stage, which completes the producers of `link`.
    fn attach<T>(&mut self, link: Link<'env, T>, name: &'static str, workers: usize) -> Vec<Receiver<T>> {
        let (emits, receivers) = connect((link.name, link.workers), (name, workers), self.queue_depth, &self.state);
        self.worker_groups.push(Workers { name: link.name, bodies: (link.start)(emits) });
        receivers
    }

    /// The output link of a stage. Each worker owns one of `stages` and one of `receivers`.
    fn workers<S: Send + 'env, T: Send + 'env, U: Send + 'env>(
        &self,
        name: &'static str,
        receivers: Vec<Receiver<T>>,
        stages: Vec<S>,
        body: impl Fn(S, Receiver<T>, Emit<U>) -> StageMetrics + Clone + Send + 'env,
    ) -> Link<'env, U> {
        let workers = stages.len();
        let start = move |emits: Vec<Emit<U>>| {
            let parts = stages.into_iter().zip(receivers).zip(emits);
            let boxed = |((stage, receiver), emit)| -> ThreadBody<'env> {
                let body = body.clone();
                Box::new(move || body(stage, receiver, emit))
            };
            parts.map(boxed).collect()
        };
        Link { name, workers, start: Box::new(start) }
    }
}

/// Spawns and joins all threads of a run. Returns the metrics of each stage, in the order of the chain.
fn run_threads(worker_groups: Vec<Workers<'_>>, state: &RunState) -> Vec<StageMetrics> {
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(worker_groups.len());
        for workers in worker_groups {
            let single = workers.bodies.len() == 1;
            let mut handles = Vec::with_capacity(workers.bodies.len());
            for (worker, body) in workers.bodies.into_iter().enumerate() {
                let name = if single { workers.name.to_string() } else { format!("{}-{worker}", workers.name) };
                // If a thread does not start, its body is dropped. That closes its links and wakes the other stages.
                let measured = move || {
                    let mut metrics = body();
                    metrics.cpu_us = cpu_microseconds();
                    metrics
                };
                match thread::Builder::new().name(name).spawn_scoped(scope, measured) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => state.record(Error::io("start a thread for stage", workers.name, error)),
                }
            }
            running.push((workers.name, handles));
        }
        let stages = running.into_iter().map(|(name, handles)| {
            let mut metrics = StageMetrics { workers: 0, ..StageMetrics::new(name) };
            for handle in handles {
                match handle.join() {
                    Ok(worker) => metrics.merge(&worker),
                    Err(payload) => state.record(panicked(name, payload.as_ref())),
                }
            }
            metrics
        });
        stages.collect()
    })
}

/// CPU time of this thread, microseconds.
fn cpu_microseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
