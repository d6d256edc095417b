//! Encodes and decodes blocks of floats on command, on one thread. `zipnn_blocks.py` runs it to measure fhrd.
//!
//! Each line of standard input is a command, and each is answered by one line:
//!
//! | command | effect | answer |
//! |---|---|---|
//! | `load TYPE BLOCK_BYTES FILE [BASE]` | reads floats (bf16, fp16, fp32) and their base | `loaded` |
//! | `encode` | encodes all blocks separately | CPU seconds, bytes of all encodings |
//! | `decode` | decodes them | CPU seconds, 1 if all blocks are equal to their source, else 0 |
//!
//! All encodings are in one buffer and all decoded blocks in another. Both buffers are reused by the next command.

use std::fs;
use std::io::{self, BufRead, Write};
use std::ops::Range;

use fhrd::codec::delta::{self, Derivation};
use fhrd::codec::{Codec, ElementType, Floats, Scratch, floats};

type Failure = Box<dyn std::error::Error>;

/// Blocks, their encodings and the decoded blocks.
struct Blocks {
    element_type: ElementType,
    block_bytes: usize,
    raw: Vec<u8>,
    base: Option<Vec<u8>>,
    encoded: Vec<u8>,
    /// Range of each block in `encoded`.
    ranges: Vec<Range<usize>>,
    decoded: Vec<u8>,
    scratch: Scratch,
}

impl Blocks {
    fn load(arguments: &[&str]) -> Result<Blocks, Failure> {
        let [name, block_bytes, path, base @ ..] = arguments else {
            return Err("`load` needs a type, a block length and a file".into());
        };
        let element_type = match *name {
            "bf16" => ElementType::Bf16,
            "fp16" => ElementType::Fp16,
            "fp32" => ElementType::Fp32,
            other => return Err(format!("unknown type `{other}`").into()),
        };
        let raw = fs::read(path)?;
        let base = base.first().map(fs::read).transpose()?;
        Ok(Blocks {
            element_type,
            block_bytes: block_bytes.parse()?,
            encoded: Vec::with_capacity(raw.len() + raw.len() / 8),
            ranges: Vec::new(),
            decoded: Vec::with_capacity(raw.len()),
            scratch: Scratch::default(),
            raw,
            base,
        })
    }

    fn encode(&mut self) -> Result<usize, Failure> {
        self.encoded.clear();
        self.ranges.clear();
        for (number, block) in self.raw.chunks(self.block_bytes).enumerate() {
            let from = self.encoded.len();
            match &self.base {
                None => floats::encode(self.element_type, 0, block, &mut self.scratch, &mut self.encoded)?,
                Some(base) => {
                    let base = base.chunks(self.block_bytes).nth(number).unwrap_or_default();
                    let derivation = Derivation::Context(self.element_type);
                    delta::encode(derivation, block, base, &mut self.scratch, &mut self.encoded)?;
                }
            }
            self.ranges.push(from..self.encoded.len());
        }
        Ok(self.encoded.len())
    }

    fn decode(&mut self) -> Result<(), Failure> {
        self.decoded.clear();
        for (number, (range, block)) in self.ranges.iter().zip(self.raw.chunks(self.block_bytes)).enumerate() {
            let payload = &self.encoded[range.clone()];
            match &self.base {
                None => Floats.decode(payload, block.len(), &mut self.scratch, &mut self.decoded)?,
                Some(base) => {
                    let base = base.chunks(self.block_bytes).nth(number).unwrap_or_default();
                    let id = Derivation::Context(self.element_type).id();
                    delta::decode(id, payload, base, block.len(), &mut self.scratch, &mut self.decoded)?;
                }
            }
        }
        Ok(())
    }
}

/// CPU seconds of this process.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Failure> {
    let mut blocks = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let arguments: Vec<&str> = line.split_whitespace().collect();
        match (arguments.first().copied(), &mut blocks) {
            (Some("load"), blocks) => {
                *blocks = Some(Blocks::load(&arguments[1..])?);
                println!("loaded");
            }
            (Some("encode"), Some(blocks)) => {
                let start = cpu_s();
                let bytes = blocks.encode()?;
                println!("{} {bytes}", cpu_s() - start);
            }
            (Some("decode"), Some(blocks)) => {
                let start = cpu_s();
                blocks.decode()?;
                println!("{} {}", cpu_s() - start, u8::from(blocks.decoded == blocks.raw));
            }
            _ => return Err(format!("unknown command: {line}").into()),
        }
        io::stdout().flush()?;
    }
    Ok(())
}
