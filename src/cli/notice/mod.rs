//! Tells others how a command has ended: a file of metrics, and what `[notify]` of the profile names.
//!
//! Nothing here makes a command fail or wait for long: each notice is retried, is bounded in time, and ends with a
//! warning if it cannot be given. No URL is ever shown, because it may have a token.

mod facts;
mod metrics_file;
mod send;
mod watch;

pub use facts::{RunFact, RunFacts};
pub use watch::watched;
