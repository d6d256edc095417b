//! Identify: classifies new chunks as float, incompressible or ordinary by the entropy of their byte groups.
//!
//! It also computes the anchors of new chunks that the chunker did not give, and their features. It copies their bytes
//! out of the buffer that they were read into, because they may stay in memory as bases. A block of a tensor is
//! ordinary if it is plain ([`crate::chunk::plain`]); any other one has no class. Both have features of their peaks. A
//! chunk that shares features with stored chunks is left unclassified: most of it will be copied, and then the class
//! does not matter. Where it does, Match or SubDedup computes the same one, because the class depends on the chunk's
//! bytes only. Chunks that may be floats are always classified, because floats have features of peaks, too, as have
//! ordinary chunks of unknown formats that may be quantised weights.

use bytes::Bytes;

use crate::backup::message::{Chunk, ChunkBatch, ChunkItem, CopySearch, SliceCandidates};
use crate::chunk::classify::{ChunkClass, ChunkClassifier};
use crate::chunk::floats_like::may_be_floats;
use crate::chunk::plain::PlainTrial;
use crate::codec::ElementType;
use crate::error::Result;
use crate::kernel::sieve::Sieve;
use crate::pipeline::Map;
use crate::similar::{Candidates, Counterparts, Elements, PeakFinder, SharedBases, features};

/// A worker of Identify.
pub struct IdentifyWorker {
    /// Classifies chunks.
    pub classifier: ChunkClassifier,
    /// Finds plain blocks of tensors.
    pub plain: PlainTrial,
    /// Finds anchors that the chunker did not give; `None` if the strategy needs no anchors.
    pub sieve: Option<Sieve>,
    /// Finds features of weights; `None` if weights take no part in the search.
    pub peaks: Option<PeakFinder>,
    /// Features of the chunks that SubDedup has processed so far.
    pub candidates: Candidates,
}

impl IdentifyWorker {
    fn identify(&mut self, chunk: &mut Chunk) {
        if let Some(block) = chunk.block.filter(|block| !block.is_opaque) {
            let is_plain = self.plain.is_plain(block.element_type, block.rows, &chunk.bytes);
            // Weights that repeat are plain together, and a slice of them alone is not.
            self.find_peaks(chunk, Elements { width: block.width, phase: 0 });
            if !is_plain {
                return;
            }
            chunk.class = Some(ChunkClass::Ordinary);
        }
        let is_likely = match &self.sieve {
            Some(sieve) => {
                let anchors = chunk.anchors.get_or_insert_with(|| sieve.anchors(&chunk.bytes));
                let features = features(anchors);
                let is_likely = self.candidates.are_likely(&features);
                chunk.bytes = Bytes::copy_from_slice(&chunk.bytes);
                chunk.search = CopySearch::Features(features);
                is_likely
            }
            None => {
                chunk.anchors = None;
                false
            }
        };
        // What is likely depends on how far SubDedup is, so it must not decide what has peaks.
        let seeks_peaks = self.peaks.is_some() && chunk.block.is_none();
        let may_be_floats = seeks_peaks && may_be_floats(&chunk.bytes);
        let may_be_quantised = seeks_peaks && self.plain.may_be_quantised(&chunk.bytes);
        if (!is_likely || may_be_floats || may_be_quantised) && chunk.class.is_none() {
            chunk.class = Some(self.classifier.classify(&chunk.bytes));
        }
        match chunk.class {
            Some(ChunkClass::Float(layout)) if may_be_floats => {
                self.find_peaks(chunk, Elements { width: layout.width(), phase: layout.phase() });
            }
            Some(ChunkClass::Ordinary) if may_be_quantised => self.find_peaks(chunk, Elements::BYTES),
            _ => {}
        }
    }

    fn find_peaks(&mut self, chunk: &mut Chunk, layout: Elements) {
        if let Some(peaks) = self.peaks.as_mut().filter(|_| SharedBases::may_hold(chunk.len)) {
            let (mut layout, mut features) = (layout, peaks.features(&chunk.bytes, layout));
            // The highest bytes of small integers say nothing. All their bytes may.
            let is_integer = chunk.block.is_some_and(|block| block.element_type == ElementType::Unknown);
            if features.sought.is_empty() && is_integer {
                (layout, features) = (Elements::BYTES, peaks.features(&chunk.bytes, Elements::BYTES));
            }
            chunk.slices = Some(Box::new(SliceCandidates { layout, features, counterparts: Counterparts::default() }));
        }
    }
}

impl Map for IdentifyWorker {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "identify"
    }

    fn map(&mut self, mut batch: ChunkBatch) -> Result<ChunkBatch> {
        for item in &mut batch.items {
            if let ChunkItem::Chunk(chunk) = item
                && chunk.is_new
            {
                self.identify(chunk);
            }
        }
        Ok(batch)
    }
}
