//! The first stage of a run: it reads a source tree, or one stream.

use super::message::ReadBatch;
use super::read::ReadStage;
use super::stream::StreamStage;
use crate::error::Result;
use crate::pipeline::{Emit, Source};

/// The first stage.
pub enum InputStage<'a> {
    /// Reads the files of a source tree.
    Tree(Box<ReadStage<'a>>),
    /// Reads a stream as one file.
    Stream(Box<StreamStage<'a>>),
}

impl Source for InputStage<'_> {
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        match self {
            InputStage::Tree(stage) => stage.name(),
            InputStage::Stream(stage) => stage.name(),
        }
    }

    fn run(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        match self {
            InputStage::Tree(stage) => stage.run(emit),
            InputStage::Stream(stage) => stage.run(emit),
        }
    }
}
