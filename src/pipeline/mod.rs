//! The runner: a run is a chain of stages, connected by bounded channels.
//!
//! 1. A [`Source`] emits items. A [`Stage`] has one owner and emits any number of items for each input. A [`Map`] has
//!    several workers and returns exactly one item for each input, in input order. A [`Sink`] takes the last items and
//!    returns a value.
//! 2. [`Pipeline`] connects the stages with links and runs them. Only it spawns and joins threads.
//! 3. `emit` blocks while the next link is full. There is no other back-pressure.
//! 4. The end of the stream is a message. A channel that closes without it is an error, so a [`Sink`] never
//!    finishes a truncated stream.
//! 5. A stage that fails records its error, then closes its channels, which wakes its neighbours. The first recorded
//!    error is the result of the run.
//!
//! The runner knows nothing about the items.

mod link;
mod run;
mod stage;
mod state;
#[cfg(test)]
mod tests;

pub use link::Emit;
pub use run::{Link, Pipeline};

use crate::error::Result;

/// Size of an item, for the metrics.
pub trait Weigh {
    /// Size in bytes that the metrics count for this item.
    fn bytes(&self) -> u64;
}

/// The first stage: it has no input link.
pub trait Source: Send {
    /// Type of the items it emits.
    type Out: Weigh + Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Emits the whole stream. Long work without an emission calls [`Emit::check`] from time to time.
    ///
    /// # Errors
    /// Its own errors, and those that `emit` returns.
    fn run(&mut self, emit: &mut Emit<Self::Out>) -> Result<()>;
}

/// A stage with one owner: receives the items in order and emits any number of items for each.
pub trait Stage: Send {
    /// Type of the items it receives.
    type In: Weigh + Send;
    /// Type of the items it emits.
    type Out: Weigh + Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Processes one item.
    ///
    /// # Errors
    /// Its own errors, and those that `emit` returns.
    fn process(&mut self, input: Self::In, emit: &mut Emit<Self::Out>) -> Result<()>;
    /// Emits the remaining items after the end of the stream. Not called after an error.
    ///
    /// # Errors
    /// As for [`Stage::process`].
    fn finish(&mut self, emit: &mut Emit<Self::Out>) -> Result<()> {
        let _ = emit;
        Ok(())
    }
}

/// One worker of a parallel stage: one output for each input. The output must depend on the input alone, not on the
/// items that this worker received before. Otherwise, downstream stages must not depend on the difference.
pub trait Map: Send {
    /// Type of the items it receives.
    type In: Weigh + Send;
    /// Type of the items it returns.
    type Out: Weigh + Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Transforms one item.
    ///
    /// # Errors
    /// Its own errors. The run ends with the first recorded one.
    fn map(&mut self, input: Self::In) -> Result<Self::Out>;
}

/// The last stage: receives the items and returns the result of the run.
pub trait Sink: Send {
    /// Type of the items it receives.
    type In: Weigh + Send;
    /// Value that the run returns.
    type Output: Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Processes one item.
    ///
    /// # Errors
    /// Its own errors. The run ends with the first recorded one.
    fn process(&mut self, input: Self::In) -> Result<()>;
    /// Commits after the complete stream. Not called after an error of any stage or an interruption.
    ///
    /// # Errors
    /// Its own errors.
    fn finish(self) -> Result<Self::Output>;
}
