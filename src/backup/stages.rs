//! The list: which stage comes after which.

use super::message::ChunkBatch;
use super::saved::Saved;
use super::source::FirstStages;
use super::wiring::Wiring;
use crate::error::Result;
use crate::metrics::StageMetrics;
use crate::pipeline::Link;

/// Links the stages in this order and runs them to the end of the stream.
///
/// # Errors
/// The first error of any stage.
pub fn run_stages<'a>(mut wiring: Wiring<'a>, first: FirstStages<'a>) -> Result<(Saved, Vec<StageMetrics>)> {
    let link = find_new_chunks(&mut wiring, first);
    let link = wiring.identify(link);
    let link = wiring.subdedup(link);
    let link = wiring.model_encode(link);
    let link = wiring.compress(link);
    wiring.save(link)
}

/// Links the stages of a dry run in this order and runs them to the end of the stream.
///
/// # Errors
/// The first error of any stage.
pub fn run_dry_stages<'a>(mut wiring: Wiring<'a>, first: FirstStages<'a>) -> Result<(Saved, Vec<StageMetrics>)> {
    let link = find_new_chunks(&mut wiring, first);
    wiring.estimate(link)
}

/// The stages up to Dedup.
fn find_new_chunks<'a>(wiring: &mut Wiring<'a>, first: FirstStages<'a>) -> Link<'a, ChunkBatch> {
    let link = wiring.read(first);
    let link = wiring.chunk(link);
    let link = wiring.hash(link);
    wiring.dedup(link)
}
