//! The thread bodies of the four kinds of stage: a loop that receives, works and emits until the input ends.
//!
//! Each body owns its stage and its ends of the links. It runs under [`RunState::guard`]: an error is recorded first,
//! then the ends are dropped, which closes the channels, then the stage is dropped.

use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::link::{Emit, Receiver};
use super::state::RunState;
use super::{Map, Sink, Source, Stage, Weigh};
use crate::error::{Error, Neighbour, Result};
use crate::metrics::StageMetrics;

/// Runs a source on its own thread.
pub(super) fn run_source<S: Source>(state: &RunState, mut source: S, mut emit: Emit<S::Out>) -> StageMetrics {
    emit.time_emissions();
    state.guard(source.name(), || {
        source.run(&mut emit)?;
        emit.end()
    });
    emit.metrics
}

/// Runs a single-owner stage on its own thread.
pub(super) fn run_stage<S: Stage>(
    state: &RunState,
    mut stage: S,
    mut receiver: Receiver<S::In>,
    mut emit: Emit<S::Out>,
) -> StageMetrics {
    let mut metrics = StageMetrics { workers: 0, ..StageMetrics::new(stage.name()) };
    state.guard(stage.name(), || {
        while let Some(input) = receiver.receive()? {
            timed(&mut metrics, &mut emit, |emit| stage.process(input, emit))?;
        }
        timed(&mut metrics, &mut emit, |emit| stage.finish(emit))?;
        emit.end()
    });
    merged(metrics, receiver, Some(emit))
}

/// Runs one worker of a parallel stage on its own thread.
pub(super) fn run_map<M: Map>(
    state: &RunState,
    mut map: M,
    mut receiver: Receiver<M::In>,
    mut emit: Emit<M::Out>,
) -> StageMetrics {
    let mut metrics = StageMetrics { workers: 0, ..StageMetrics::new(map.name()) };
    state.guard(map.name(), || {
        while let Some(input) = receiver.receive()? {
            timed(&mut metrics, &mut emit, |emit| emit.emit(map.map(input)?))?;
        }
        emit.end()
    });
    merged(metrics, receiver, Some(emit))
}

/// Runs the sink on its own thread and sends its value to `output`.
pub(super) fn run_sink<S: Sink>(
    state: &RunState,
    mut sink: S,
    mut receiver: Receiver<S::In>,
    output: &Sender<S::Output>,
) -> StageMetrics {
    let name = sink.name();
    let mut metrics = StageMetrics { workers: 0, ..StageMetrics::new(name) };
    state.guard(name, || {
        while let Some(input) = receiver.receive()? {
            let start = Instant::now();
            sink.process(input)?;
            metrics.service_us.record_duration(start.elapsed());
        }
        let start = Instant::now();
        let value = sink.finish()?;
        metrics.service_us.record_duration(start.elapsed());
        output.send(value).map_err(|_| Error::LinkClosed { stage: name.into(), neighbour: Neighbour::Downstream })
    });
    merged::<_, S::In>(metrics, receiver, None)
}

/// Runs `work` and records its service time, without the time that `emit` was blocked.
fn timed<T>(
    metrics: &mut StageMetrics,
    emit: &mut Emit<T>,
    work: impl FnOnce(&mut Emit<T>) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let done = work(emit);
    let waited: Duration = emit.take_waited();
    metrics.service_us.record_duration(start.elapsed().saturating_sub(waited));
    done
}

/// The metrics of one worker, merged from its stage and its links. Closes its links.
fn merged<T: Weigh, U>(mut metrics: StageMetrics, receiver: Receiver<T>, emit: Option<Emit<U>>) -> StageMetrics {
    metrics.merge(&receiver.metrics);
    if let Some(mut emit) = emit {
        emit.metrics.workers = 0;
        metrics.merge(&emit.metrics);
    }
    metrics
}
