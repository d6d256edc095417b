//! The runner: stages are actors on bounded channels, and a run is a chain of them.
//!
//! 1. A [`Source`] emits items; a [`Stage`] (one owner) turns each into any number; a [`Map`] (several workers)
//!    turns each into exactly one, in input order; a [`Sink`] takes the last ones and returns a value.
//! 2. [`Pipeline`] joins them with links and runs them; it is the only place that spawns and joins threads.
//! 3. `emit` blocks while the next link is full: that is all the back-pressure there is.
//! 4. The end of the stream is a message. A channel that closes without it is an error, so a [`Sink`] never
//!    finishes a truncated stream.
//! 5. A stage that fails records its error and then closes its channels, which wakes its neighbours; the first
//!    recorded error is the result of the run.
//!
//! Nothing here knows what the items are.

mod fault;
mod link;
mod run;
mod stage;
#[cfg(test)]
mod tests;

pub use link::Emit;
pub use run::{Link, Pipeline};

use crate::error::Result;

/// Size of an item, for the metrics.
pub trait Weigh {
    /// Bytes this item stands for.
    fn bytes(&self) -> u64;
}

/// The first stage: makes items out of something that is not a link.
pub trait Source: Send {
    /// What it emits.
    type Out: Weigh + Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Emits the whole stream. Work that emits nothing for long calls [`Emit::check`] now and then.
    ///
    /// # Errors
    /// Its own, or what `emit` returned: pass that on.
    fn run(&mut self, emit: &mut Emit<Self::Out>) -> Result<()>;
}

/// A stage with one owner: sees the items in order, emits any number for each.
pub trait Stage: Send {
    /// What it takes.
    type In: Weigh + Send;
    /// What it emits.
    type Out: Weigh + Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Takes one item.
    ///
    /// # Errors
    /// Its own, or what `emit` returned: pass that on.
    fn process(&mut self, input: Self::In, emit: &mut Emit<Self::Out>) -> Result<()>;
    /// Emits what is left when the stream has ended; not called after an error.
    ///
    /// # Errors
    /// As for [`Stage::process`].
    fn finish(&mut self, emit: &mut Emit<Self::Out>) -> Result<()> {
        let _ = emit;
        Ok(())
    }
}

/// One worker of a parallel stage: one output for each input. What it returns must depend on the input alone, not
/// on the items this worker happened to see before, unless the stages behind it make the same of either.
pub trait Map: Send {
    /// What it takes.
    type In: Weigh + Send;
    /// What it returns.
    type Out: Weigh + Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Transforms one item.
    ///
    /// # Errors
    /// Its own; the run ends with the first one recorded.
    fn map(&mut self, input: Self::In) -> Result<Self::Out>;
}

/// The last stage: takes items and has a result.
pub trait Sink: Send {
    /// What it takes.
    type In: Weigh + Send;
    /// What the run returns.
    type Output: Send;
    /// Name in metrics, errors and thread lists.
    fn name(&self) -> &'static str;
    /// Takes one item.
    ///
    /// # Errors
    /// Its own; the run ends with the first one recorded.
    fn process(&mut self, input: Self::In) -> Result<()>;
    /// Commits, after the complete stream; not called after an error anywhere or an interruption.
    ///
    /// # Errors
    /// Its own.
    fn finish(self) -> Result<Self::Output>;
}
