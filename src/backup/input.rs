//! The first stage of a run: it reads a source tree, a snapshot of another repository, or one stream.

use super::message::ReadBatch;
use super::read::ReadStage;
use super::stored::StoredStage;
use super::stream::StreamStage;
use crate::error::Result;
use crate::pipeline::{Emit, Source};

/// The first stage.
pub enum InputStage<'a> {
    /// Reads the files of a source tree.
    Tree(Box<ReadStage<'a>>),
    /// Reads a snapshot of another repository.
    Stored(Box<StoredStage<'a>>),
    /// Reads a stream as one file.
    Stream(Box<StreamStage<'a>>),
}

impl Source for InputStage<'_> {
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        match self {
            InputStage::Tree(stage) => stage.name(),
            InputStage::Stored(stage) => stage.name(),
            InputStage::Stream(stage) => stage.name(),
        }
    }

    fn run(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        match self {
            InputStage::Tree(stage) => stage.run(emit),
            InputStage::Stored(stage) => stage.run(emit),
            InputStage::Stream(stage) => stage.run(emit),
        }
    }
}
