//! Building a chain of stages and running it: every thread of a run is spawned and joined in one function.
//!
//! 1. A [`Link`] is the output of a stage whose consumer is not known yet: it holds a function that makes the
//!    stage's actors once it is given the sending ends.
//! 2. Attaching a consumer fixes both worker counts, so the lanes are made and the producer's actors are complete.
//! 3. [`Pipeline::run`] attaches the sink, starts one named thread per actor, joins all, merges the workers'
//!    metrics per stage, and returns the first recorded error or the sink's value.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use crossbeam_channel::bounded;

use super::fault::{Fault, panicked};
use super::link::{Emit, Receiver, connect};
use super::stage::{run_map, run_sink, run_source, run_stage};
use super::{Map, Sink, Source, Stage};
use crate::error::{Error, Neighbour, Result};
use crate::metrics::StageMetrics;

/// The body of one thread.
type Actor<'env> = Box<dyn FnOnce() -> StageMetrics + Send + 'env>;

/// The actors of one stage.
struct Workers<'env> {
    name: &'static str,
    actors: Vec<Actor<'env>>,
}

/// The output of a stage, to be given to the next one.
#[must_use = "a stage whose link has no consumer does not run"]
pub struct Link<'env, T> {
    name: &'static str,
    workers: usize,
    start: Box<dyn FnOnce(Vec<Emit<T>>) -> Vec<Actor<'env>> + 'env>,
}

/// A chain of stages being built. Stages may borrow what lives for `'env`.
pub struct Pipeline<'env> {
    queue_depth: usize,
    fault: Arc<Fault>,
    worker_groups: Vec<Workers<'env>>,
}

impl<'env> Pipeline<'env> {
    /// An empty chain whose links hold `queue_depth` items each (at least one per lane). Setting `stop`, at any
    /// time and from any thread, ends the run with [`Error::Interrupted`] as soon as each stage has finished its
    /// current item.
    pub fn new(queue_depth: usize, stop: Arc<AtomicBool>) -> Self {
        Pipeline { queue_depth, fault: Arc::new(Fault::new(stop)), worker_groups: Vec::new() }
    }

    /// Links made from now on hold `queue_depth` items each: where items are small or differ much in the work they
    /// make, more of them keep the workers behind busy.
    pub fn set_queue_depth(&mut self, queue_depth: usize) {
        self.queue_depth = queue_depth;
    }

    /// Starts the chain.
    pub fn source<S: Source + 'env>(&mut self, source: S) -> Link<'env, S::Out> {
        let fault = Arc::clone(&self.fault);
        let name = source.name();
        let start = move |emits: Vec<Emit<S::Out>>| {
            let actor = |emit| -> Actor<'env> { Box::new(move || run_source(&fault, source, emit)) };
            emits.into_iter().next().map(actor).into_iter().collect()
        };
        Link { name, workers: 1, start: Box::new(start) }
    }

    /// Adds a stage with one owner.
    pub fn stage<S: Stage + 'env>(&mut self, link: Link<'env, S::In>, stage: S) -> Link<'env, S::Out> {
        let name = stage.name();
        let receivers = self.attach(link, name, 1);
        let fault = Arc::clone(&self.fault);
        self.workers(name, receivers, vec![stage], move |stage, receiver, emit| {
            run_stage(&fault, stage, receiver, emit)
        })
    }

    /// Adds a parallel stage: `make` is called now, once for each of the `workers` (0 counts as 1).
    pub fn parallel<M: Map + 'env>(
        &mut self,
        link: Link<'env, M::In>,
        workers: usize,
        make: impl FnMut() -> M,
    ) -> Link<'env, M::Out> {
        let maps: Vec<M> = std::iter::repeat_with(make).take(workers.max(1)).collect();
        let name = maps.first().map_or("", Map::name);
        let receivers = self.attach(link, name, maps.len());
        let fault = Arc::clone(&self.fault);
        self.workers(name, receivers, maps, move |map, receiver, emit| run_map(&fault, map, receiver, emit))
    }

    /// Ends the chain with `sink`, runs it, and returns the sink's value and the metrics of every stage in order.
    ///
    /// # Errors
    /// The first error that a stage recorded; [`Error::StagePanicked`]; [`Error::Interrupted`]. All threads have
    /// ended by then.
    pub fn run<S: Sink + 'env>(mut self, link: Link<'env, S::In>, sink: S) -> Result<(S::Output, Vec<StageMetrics>)> {
        let name = sink.name();
        let (output, result) = bounded(1);
        let receivers = self.attach(link, name, 1);
        for (receiver, sink) in receivers.into_iter().zip([sink]) {
            let (fault, output) = (Arc::clone(&self.fault), output.clone());
            let actor: Actor<'env> = Box::new(move || run_sink(&fault, sink, receiver, &output));
            self.worker_groups.push(Workers { name, actors: vec![actor] });
        }
        let metrics = run_threads(self.worker_groups, &self.fault);
        match self.fault.take() {
            Some(error) => Err(error),
            None => {
                let closed = |_| Error::LinkClosed { stage: name.into(), neighbour: Neighbour::Downstream };
                result.try_recv().map(|value| (value, metrics)).map_err(closed)
            }
        }
    }

    /// Makes the lanes between `link` and a stage; the producers of `link` are then complete.
    fn attach<T>(&mut self, link: Link<'env, T>, name: &'static str, workers: usize) -> Vec<Receiver<T>> {
        let (emits, receivers) = connect((link.name, link.workers), (name, workers), self.queue_depth, &self.fault);
        self.worker_groups.push(Workers { name: link.name, actors: (link.start)(emits) });
        receivers
    }

    /// The link out of a stage whose workers each own a state and an intake.
    fn workers<S: Send + 'env, T: Send + 'env, U: Send + 'env>(
        &self,
        name: &'static str,
        receivers: Vec<Receiver<T>>,
        states: Vec<S>,
        body: impl Fn(S, Receiver<T>, Emit<U>) -> StageMetrics + Clone + Send + 'env,
    ) -> Link<'env, U> {
        let workers = states.len();
        let start = move |emits: Vec<Emit<U>>| {
            let parts = states.into_iter().zip(receivers).zip(emits);
            let actor = |((state, receiver), emit)| -> Actor<'env> {
                let body = body.clone();
                Box::new(move || body(state, receiver, emit))
            };
            parts.map(actor).collect()
        };
        Link { name, workers, start: Box::new(start) }
    }
}

/// Spawns and joins every thread of a run; one set of metrics per stage, in the order of the chain.
fn run_threads(worker_groups: Vec<Workers<'_>>, fault: &Fault) -> Vec<StageMetrics> {
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(worker_groups.len());
        for workers in worker_groups {
            let single = workers.actors.len() == 1;
            let mut handles = Vec::with_capacity(workers.actors.len());
            for (worker, actor) in workers.actors.into_iter().enumerate() {
                let name = if single { workers.name.to_string() } else { format!("{}-{worker}", workers.name) };
                // A thread that does not start drops its actor, which closes the links and wakes the others.
                match thread::Builder::new().name(name).spawn_scoped(scope, actor) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => fault.record(Error::io("start a thread for stage", workers.name, error)),
                }
            }
            running.push((workers.name, handles));
        }
        let stages = running.into_iter().map(|(name, handles)| {
            let mut metrics = StageMetrics { workers: 0, ..StageMetrics::new(name) };
            for handle in handles {
                match handle.join() {
                    Ok(worker) => metrics.merge(&worker),
                    Err(payload) => fault.record(panicked(name, payload.as_ref())),
                }
            }
            metrics
        });
        stages.collect()
    })
}
