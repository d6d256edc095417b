//! Quantised tensors that a stored tensor of floats gives again, byte for byte (ZipLLM, section 6).
//!
//! GGML's types Q8_0 and Q4_0 are blocks of 32 values: a scale in FP16 and 32 integers of 8 or 4 bits. They are made
//! from FP32 values without other input, so a store that has those values could keep the name of the type instead of
//! the blocks. This measures for how many blocks and tensors the result is exact.
//!
//! Two computations are tried. *separate* rounds after every operation, as GGML's source says. *fused* multiplies and
//! adds in one step, which compilers may do for Q4_0 on processors that can.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fhrd::error::{Error, Result};
use fhrd::format::{Dtype, Tensor};
use fhrd::inspect::distance::OpenModel;
use fhrd::kernel::quantise::{BlockType, ScaleSource, quantise};
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::Set;
use super::measurement::{Measurement, Outline};
use super::pair_source::{PairSource, bytes_of, singles};
use super::report::{Grid, Report, pictures};
use super::table::{flush, mb, two, write_line};

/// Configuration of a measurement of quantised models.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantisedBench {
    /// `"quantised"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Directory for generated sets.
    pub work: PathBuf,
    /// Pairs: the quantised model, and the model that it may come from.
    pub pair: Vec<PairSource>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

fn title() -> String {
    "Quantised models from stored ones".into()
}

/// The types that are tried.
const TYPES: [BlockType; 2] = [BlockType::Q4_0, BlockType::Q8_0];
const METHODS: [(&str, ScaleSource); 2] = [("separate", ScaleSource::Computed), ("fused", ScaleSource::Fused)];
const TITLES: [&str; 6] = ["MB", "blocks", "exact %", "tensors", "exact", "saved %"];

impl QuantisedBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax and unknown keys.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| Error::Config { origin: origin.into(), message: error.to_string() })
    }

    /// Pairs with missing files, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        self.pair.iter().filter_map(|pair| pair.missing(&corpus)).collect()
    }
}

/// The values as blocks of `dtype`; `None` if the type is another one or the last block is not whole.
fn blocks_of(dtype: Dtype, values: &[f32], source: ScaleSource) -> Option<Vec<u8>> {
    let block_type = TYPES.into_iter().find(|block_type| dtype == Dtype::Quantised(block_type.number()))?;
    if !values.len().is_multiple_of(block_type.values()) {
        return None;
    }
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut blocks = vec![0; values.len() / 4 / block_type.values() * block_type.bytes()];
    quantise(block_type, source, &values, &mut blocks);
    Some(blocks)
}

/// What one computation gives again.
#[derive(Debug, Clone, Copy, Default)]
struct Exactness {
    blocks: u64,
    exact_blocks: u64,
    tensors: u64,
    exact_tensors: u64,
    /// Bytes of tensors that are exact, also of those that are equal in both files.
    exact_bytes: u64,
}

impl Exactness {
    fn add(&mut self, dtype: Dtype, made: &[u8], stored: &[u8]) {
        let len = dtype.block().map_or(1, |(_, bytes)| bytes as usize);
        let exact = made.chunks(len).zip(stored.chunks(len)).filter(|(made, stored)| made == stored).count() as u64;
        self.blocks += (stored.len() / len) as u64;
        self.exact_blocks += exact;
        self.tensors += 1;
        if made == stored {
            self.exact_tensors += 1;
            self.exact_bytes += stored.len() as u64;
        }
    }

    fn line(&self, (set, relation): (&Set, &str), method: &str, bytes: u64) -> Value {
        let share = |part: u64, whole: u64| part as f64 / (whole as f64).max(1.0);
        json!({
            "set": set.name, "relation": relation, "method": method, "bytes": bytes,
            "blocks": self.blocks, "exact_blocks": share(self.exact_blocks, self.blocks),
            "tensors": self.tensors, "exact_tensors": share(self.exact_tensors, self.tensors),
            "saved": share(self.exact_bytes, bytes),
        })
    }

    fn cells(&self, bytes: u64) -> Vec<String> {
        let percent = |part: u64, whole: u64| two(100.0 * part as f64 / (whole as f64).max(1.0));
        vec![
            mb(bytes),
            self.blocks.to_string(),
            percent(self.exact_blocks, self.blocks),
            self.tensors.to_string(),
            self.exact_tensors.to_string(),
            percent(self.exact_bytes, bytes),
        ]
    }
}

/// Compares the tensors of a quantised model with what the source gives, in both computations.
fn measure(quantised: &OpenModel, source: &OpenModel, stop: &AtomicBool) -> Result<[Exactness; 2]> {
    let mut found = [Exactness::default(); 2];
    for tensor in &quantised.model.tensors {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let Some(origin) = source.model.tensors.iter().find(|origin| origin.name == tensor.name) else { continue };
        let stored = bytes_of(quantised, tensor)?;
        if tensor.dtype.is_float() {
            same_values(tensor, &stored, source, origin, &mut found)?;
            continue;
        }
        let Some(values) = singles(origin.dtype, &bytes_of(source, origin)?) else { continue };
        for (exactness, (_, source)) in found.iter_mut().zip(METHODS) {
            if let Some(made) = blocks_of(tensor.dtype, &values, source).filter(|made| made.len() == stored.len()) {
                exactness.add(tensor.dtype, &made, &stored);
            }
        }
    }
    Ok(found)
}

/// Counts a tensor of floats, such as a norm, whose values are those of the source.
fn same_values(
    tensor: &Tensor,
    stored: &[u8],
    source: &OpenModel,
    origin: &Tensor,
    found: &mut [Exactness; 2],
) -> Result<()> {
    let is_same = singles(tensor.dtype, stored) == singles(origin.dtype, &bytes_of(source, origin)?);
    if is_same {
        found.iter_mut().for_each(|exactness| exactness.exact_bytes += tensor.len);
    }
    Ok(())
}

impl Measurement for QuantisedBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("pair", self.pair.iter().map(|pair| &pair.data.name), self.missing())
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every pair and prints a line for each computation.
///
/// # Errors
/// A model that cannot be read; [`Error::Interrupted`].
fn run(config: &QuantisedBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let corpus = corpus_directory(config.corpus.as_deref());
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    write_line(out, "quantised", "computation", &TITLES)?;
    for pair in &config.pair {
        let [quantised, source] = pair.open(&corpus, &config.work.join("sets"))?;
        let bytes = quantised.model.tensors.iter().map(|tensor| tensor.len).sum();
        for (exactness, (method, _)) in measure(&quantised, &source, stop)?.iter().zip(METHODS) {
            lines.push(exactness.line((&pair.data, &pair.relation), method, bytes));
            let cells = exactness.cells(bytes);
            write_line(out, &pair.data.name, method, &cells)?;
            rows.push([pair.data.name.clone(), method.into()].into_iter().chain(cells).collect());
        }
        flush(out)?;
    }
    let columns = ["quantised", "computation"].into_iter().chain(TITLES).map(str::to_string).collect();
    Ok(Report {
        title: config.title.clone(),
        plots: pictures(&lines, &[("saved", "Bytes that need not be stored", "fraction")]),
        grids: vec![Grid { title: String::new(), columns, rows }],
        lines,
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q4_0: Dtype = Dtype::Quantised(2);
    const Q8_0: Dtype = Dtype::Quantised(8);

    fn values() -> [f32; 32] {
        std::array::from_fn(|at| (at as f32 - 20.0) * 0.37)
    }

    #[test]
    fn blocks_have_the_scale_of_the_largest_value() {
        let block = blocks_of(Q8_0, &values(), ScaleSource::Computed).unwrap();
        assert_eq!(block.len(), 34);
        // -20 * 0.37 = -7.4 is the largest: scale 7.4 / 127 = 0.058268, in FP16 0x2b75; its level is -127.
        assert_eq!((block[..2].to_vec(), block[2] as i8), (vec![0x75, 0x2b], -127));
        assert_eq!((block[22] as i8, block[33] as i8), (0, 70), "11 / 20 of 127 is 69.85");
        let block = blocks_of(Q4_0, &values(), ScaleSource::Computed).unwrap();
        assert_eq!(block.len(), 18);
        // The scale is -7.4 / -8 = 0.925, in FP16 0x3b66. -7.4 has level 0; 4 places later, -5.92 / 0.925 + 8.5 = 2.1.
        assert_eq!((block[..2].to_vec(), block[2] & 15, block[6] & 15), (vec![0x66, 0x3b], 0, 2));
        // The high half of a byte has the value 16 places later: -1.48 / 0.925 + 8.5 = 6.9.
        assert_eq!((block[2] >> 4, block[17] >> 4), (6, 12));
        let blocks = |dtype, values: &[f32]| blocks_of(dtype, values, ScaleSource::Computed);
        assert_eq!(blocks(Q8_0, &[0.0; 32]), Some(vec![0; 34]), "a block of zeros has no scale");
        assert_eq!((blocks(Q8_0, &[0.0; 31]), blocks(Dtype::Int8, &[0.0; 32])), (None, None));
    }

    #[test]
    fn only_blocks_that_are_equal_count() {
        let made = blocks_of(Q4_0, &[values(), values()].concat(), ScaleSource::Computed).unwrap();
        let mut stored = made.clone();
        stored[20] ^= 1;
        let mut exactness = Exactness::default();
        exactness.add(Q4_0, &made, &stored);
        exactness.add(Q4_0, &made, &made);
        assert_eq!((exactness.blocks, exactness.exact_blocks, exactness.exact_tensors), (4, 3, 1));
        assert_eq!(exactness.exact_bytes, 36);
    }
}
