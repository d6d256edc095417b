//! Entropy of every bit of the elements of tensors (FHRD, figure 11).
//!
//! Bit 0 is the lowest. Each bit of a class has a line with the share of elements in which it is set, and its entropy.
//! A line with the method `fields` has the mean entropy of the bits of each field. *High exponent* leaves out the two
//! lowest bits of the exponent, as the paper does for BF16: bits 9 to 14.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytesize::ByteSize;
use fhrd::error::{Error, Result};
use fhrd::format::{Dtype, Window};
use fhrd::inspect::distance::{BitField, BitTally, OpenModel};
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim::Claim;
use super::codecs::CodecClass;
use super::comparison::corpus_directory;
use super::data::{expand, files_below, lack};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report, pictures};
use super::table::{flush, write_line};

/// Configuration of a measurement of bits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitBench {
    /// `"bits"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<std::path::PathBuf>,
    /// Most bytes read of a class.
    #[serde(default = "bytes_max")]
    pub bytes_max: ByteSize,
    /// Classes to measure; `base` is not used.
    pub class: Vec<CodecClass>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

fn title() -> String {
    "Entropies of bits".into()
}
fn bytes_max() -> ByteSize {
    ByteSize::mib(256)
}

/// Bytes read at a time: a multiple of every width.
const PART_BYTES: u64 = 1 << 20;
/// Lowest bits of the exponent that *high exponent* leaves out.
const LOW_EXPONENT_BITS: usize = 2;

impl BitBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and a dtype without bits.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: BitBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let has_bits = |class: &&CodecClass| Dtype::named(&class.dtype).is_none_or(|dtype| dtype.width().is_none());
        match config.class.iter().find(has_bits) {
            Some(class) => Err(wrong(format!("class `{}`: `{}` has no bits of its own", class.name, class.dtype))),
            None => Ok(config),
        }
    }

    /// Classes whose files are missing, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let of_class = |class: &CodecClass| {
            let fault = class.files.iter().find_map(|pattern| lack(&corpus, pattern));
            fault.map(|error| format!("class `{}`: {error}", class.name))
        };
        self.class.iter().filter_map(of_class).collect()
    }

    /// Counts the bits of a class.
    fn tally(&self, class: &CodecClass, stop: &AtomicBool) -> Result<BitTally> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let wrong = |what: &str| Error::Usage(format!("class `{}`: {what}", class.name));
        let dtype = Dtype::named(&class.dtype).ok_or_else(|| wrong("unknown dtype"))?;
        let pattern = glob::Pattern::new(&class.tensors).map_err(|error| wrong(&error.to_string()))?;
        let (mut tally, mut left) = (BitTally::new(dtype), self.bytes_max.0);
        let zeros = vec![0u8; PART_BYTES as usize];
        for files in &class.files {
            for path in expand(&corpus, files)? {
                for file in files_below(&path)? {
                    let model = OpenModel::open(&file)?;
                    let window = Window::new(model.source(), u64::MAX);
                    let is_one =
                        |tensor: &&fhrd::format::Tensor| tensor.dtype == dtype && pattern.matches(&tensor.name);
                    for tensor in model.model.tensors.iter().filter(is_one) {
                        for at in (0..tensor.len.min(left)).step_by(PART_BYTES as usize) {
                            if stop.load(Ordering::Relaxed) {
                                return Err(Error::Interrupted);
                            }
                            let len = PART_BYTES.min(tensor.len - at);
                            let failed = |_| wrong(&format!("{} cannot be read", file.display()));
                            let bytes: Vec<u8> = window.read(tensor.offset + at, len).map_err(failed)?;
                            // The XOR with zeros is the value itself.
                            tally.add(&bytes, zeros.get(..bytes.len()).unwrap_or_default());
                        }
                        left = left.saturating_sub(tensor.len);
                    }
                }
            }
        }
        if tally.values == 0 { Err(wrong("no tensor has this dtype and name")) } else { Ok(tally) }
    }
}

/// Entropy of a bit that is set with probability `ones`.
fn bit_entropy(ones: f64) -> f64 {
    let part = |share: f64| if share > 0.0 { -share * share.log2() } else { 0.0 };
    part(ones) + part(1.0 - ones)
}

/// One bit of a class.
struct BitShare {
    bit: usize,
    field: BitField,
    ones: f64,
}

/// The bits, the highest first.
fn shares(tally: &BitTally) -> Vec<BitShare> {
    let counts = tally.bits();
    let highest = counts.len().saturating_sub(1);
    let share = |(index, count): (usize, &u64)| BitShare {
        bit: highest - index,
        field: tally.field(index),
        ones: *count as f64 / tally.values.max(1) as f64,
    };
    counts.iter().enumerate().map(share).collect()
}

/// Mean entropy of the bits of a field; `None` without any.
fn mean<'a>(bits: impl Iterator<Item = &'a BitShare>) -> Option<f64> {
    let (sum, count) = bits.fold((0.0, 0), |(sum, count), bit| (sum + bit_entropy(bit.ones), count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

impl Measurement for BitBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("class", self.class.iter().map(|class| &class.name), self.missing())
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every class and prints a line for each bit.
///
/// # Errors
/// A class that cannot be read; [`Error::Interrupted`].
fn run(config: &BitBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let columns = ["field", "set %", "bits"];
    write_line(out, "class", "bit", &columns)?;
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for class in &config.class {
        let bits = shares(&config.tally(class, stop)?);
        for bit in &bits {
            let (field, entropy) = (bit.field.name(), bit_entropy(bit.ones));
            let cells = [field.to_string(), format!("{:.1}", 100.0 * bit.ones), format!("{entropy:.4}")];
            write_line(out, &class.name, &bit.bit.to_string(), &cells)?;
            rows.push([vec![class.name.clone(), bit.bit.to_string()], cells.to_vec()].concat());
            lines.push(json!({"set": class.name, "method": "bits", "parameters": {"bit": bit.bit},
                "field": field, "ones": bit.ones, "entropy": entropy}));
        }
        let of = |field: BitField| bits.iter().filter(move |bit| bit.field == field);
        let lowest = of(BitField::Exponent).map(|bit| bit.bit).min().unwrap_or(0);
        let high = of(BitField::Exponent).filter(|bit| bit.bit >= lowest + LOW_EXPONENT_BITS);
        let line = |name: &str, entropy: Option<f64>| -> Value {
            json!({"set": class.name, "method": "fields", "parameters": {"field": name}, "mean_entropy": entropy})
        };
        lines.push(line("sign", mean(of(BitField::Sign))));
        lines.push(line("exponent", mean(of(BitField::Exponent))));
        lines.push(line("high exponent", mean(high)));
        lines.push(line("mantissa", mean(of(BitField::Mantissa))));
        flush(out)?;
    }
    let of_bits: Vec<Value> = lines.iter().filter(|line| line["method"] == "bits").cloned().collect();
    let titles = ["class", "bit"].iter().chain(&columns).map(ToString::to_string).collect();
    Ok(Report {
        title: config.title.clone(),
        grids: vec![Grid { title: String::new(), columns: titles, rows }],
        plots: pictures(&of_bits, &[("entropy", "Entropy of each bit, bit 0 is the lowest", "bits")]),
        lines,
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponent_of_few_values_has_little_entropy() {
        let directory = tempfile::tempdir().unwrap();
        let values = (0..4096u32).map(|i| i.wrapping_mul(2_654_435_761) >> 13 & 0x807f | (0x78 + (i & 3)) << 7);
        let tensor: Vec<u8> = values.flat_map(|value| (value as u16).to_le_bytes()).collect();
        let header = br#"{"w":{"dtype":"BF16","shape":[4096],"data_offsets":[0,8192]}}   "#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header, &tensor].concat();
        std::fs::write(directory.path().join("m.safetensors"), file).unwrap();
        let text = |dtype: &str| {
            format!(
                "kind = \"bits\"\ncorpus = {:?}\n[[class]]\nname = \"w\"\nfiles = [\"m.safetensors\"]\n\
                dtype = \"{dtype}\"\n",
                directory.path()
            )
        };
        let report = run(&BitBench::parse(&text("BF16"), "x").unwrap(), &Arc::default(), &mut Vec::new()).unwrap();
        let entropy = |bit: usize| report.lines[15 - bit]["entropy"].as_f64().unwrap();
        assert_eq!(
            (report.lines[0]["field"].as_str(), report.lines[0]["parameters"]["bit"].as_u64()),
            (Some("sign"), Some(15))
        );
        assert!((7..9).all(|bit| entropy(bit) > 0.99) && (9..15).all(|bit| entropy(bit) == 0.0), "{:?}", report.lines);
        assert!((0..7).all(|bit| entropy(bit) > 0.9));
        let fields: Vec<f64> = report.lines[16..].iter().map(|line| line["mean_entropy"].as_f64().unwrap()).collect();
        assert!(fields[1] > 0.2 && fields[2] == 0.0 && fields[3] > 0.9, "{fields:?}");
        let error = BitBench::parse(&text("Q4_0"), "x.toml").unwrap_err().to_string();
        assert!(error.contains("class `w`") && error.contains("x.toml"), "{error}");
    }
}
