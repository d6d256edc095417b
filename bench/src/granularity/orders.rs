//! Orders of compression and deduplication.

use fhrd::codec::{Codec, Scratch, Zstandard};
use fhrd::error::Result;
use fhrd::format::Recognised;

use super::{GranularityBench, Units, each_chunk, parts_of};
use crate::whole_model::{FileMethod, ModelBytes};

/// Stored bytes of each order.
pub(super) struct Orders<'a> {
    config: &'a GranularityBench,
    base: Option<ModelBytes>,
    chunks: Units,
    /// Bytes of distinct chunks, each compressed alone.
    after: Units,
    tensors: Units,
    /// Bytes of distinct tensors, each encoded by BitX.
    zipllm: Units,
    /// Chunks of encoded files.
    before: [Units; 3],
    scratch: Scratch,
}

const BEFORE: [&str; 3] = ["zstd, dedup", "zipnn, dedup", "bitx, dedup"];

impl<'a> Orders<'a> {
    pub(super) fn new(config: &'a GranularityBench, base: Option<ModelBytes>) -> Self {
        let units = Units::default;
        let before = std::array::from_fn(|_| Units::default());
        let (chunks, after, tensors, zipllm) = (units(), units(), units(), units());
        Orders { config, base, chunks, after, tensors, zipllm, before, scratch: Scratch::default() }
    }

    /// Adds a file to every order.
    pub(super) fn add(&mut self, file: &ModelBytes) -> Result<()> {
        let Orders { config, base, chunks, after, before, scratch, .. } = self;
        each_chunk(&config.repository, &file.bytes, |chunk| {
            if chunks.add(std::iter::once(chunk)) {
                let mut out = Vec::new();
                Zstandard.encode(chunk, config.level, scratch, &mut out)?;
                after.add(std::iter::once(out.as_slice()));
            }
            Ok(())
        })?;
        let is_base = base.as_ref().is_some_and(|base| base.bytes == file.bytes);
        let against = base.as_ref().filter(|_| !is_base);
        for (method, units) in FileMethod::ALL.into_iter().zip(before) {
            let encoded = method.encode(file, against, config.level, scratch)?;
            each_chunk(&config.repository, &encoded, |chunk| {
                units.add(std::iter::once(chunk));
                Ok(())
            })?;
        }
        self.add_tensors(file, is_base)
    }

    /// Stores each distinct tensor with BitX, and the bytes outside tensors with zstd.
    fn add_tensors(&mut self, file: &ModelBytes, is_base: bool) -> Result<()> {
        let parts = parts_of(file);
        let against = self.base.as_ref().filter(|_| !is_base);
        for (at, (_, bytes)) in parts.tensors.iter().enumerate() {
            if !self.tensors.add(std::iter::once(*bytes)) {
                continue;
            }
            let tensor = file.model.as_ref().and_then(|model| model.tensors.get(at)).cloned();
            let tensors = tensor.map(|tensor| fhrd::format::Tensor { offset: 0, ..tensor }).into_iter().collect();
            let model = file.model.as_ref().map(|model| Recognised { tensors, ..model.clone() });
            let alone = ModelBytes { bytes: bytes.to_vec(), model };
            let encoded = FileMethod::BitX.encode(&alone, against, self.config.level, &mut self.scratch)?;
            self.zipllm.add(std::iter::once(encoded.as_slice()));
        }
        for bytes in parts.outside {
            let mut out = Vec::new();
            Zstandard.encode(bytes, self.config.level, &mut self.scratch, &mut out)?;
            self.zipllm.add(std::iter::once(out.as_slice()));
        }
        Ok(())
    }

    /// The units of each order, with its name. Those with BitX only if the set has a base.
    pub(super) fn units(&self) -> impl Iterator<Item = (&Units, &'static str)> {
        let all = self.before.iter().zip(BEFORE);
        let all = std::iter::once((&self.after, "dedup, zstd")).chain(all).chain([(&self.zipllm, "tensor, bitx")]);
        all.filter(|(_, name)| self.base.is_some() || !name.contains("bitx"))
    }
}
