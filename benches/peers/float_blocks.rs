//! Encodes and decodes blocks of floats when told to, on one thread: fhrd's part in `zipnn_blocks.py`.
//!
//! Lines of standard input are commands, and each is answered by one line:
//!
//! | command | what it does | answer |
//! |---|---|---|
//! | `load TYPE BLOCK_BYTES FILE [BASE]` | reads floats (bf16, fp16, fp32), and those they follow from | `loaded` |
//! | `encode` | encodes all blocks, each for itself | CPU seconds, bytes of all encodings |
//! | `decode` | decodes them again | CPU seconds, 1 if all is as it was, else 0 |
//!
//! All encodings lie in one buffer and all decoded blocks in another; both are kept from one command to the next.

use std::fs;
use std::io::{self, BufRead, Write};
use std::ops::Range;

use fhrd::codec::delta::{self, Derivation};
use fhrd::codec::{Codec, ElementType, Floats, Scratch, floats};

type Failure = Box<dyn std::error::Error>;

/// Blocks, encoded and decoded.
struct Blocks {
    word: ElementType,
    block_bytes: usize,
    raw: Vec<u8>,
    base: Option<Vec<u8>>,
    encoded: Vec<u8>,
    /// Where in `encoded` each block is.
    places: Vec<Range<usize>>,
    decoded: Vec<u8>,
    scratch: Scratch,
}

impl Blocks {
    fn load(arguments: &[&str]) -> Result<Blocks, Failure> {
        let [word, block_bytes, path, base @ ..] = arguments else { return Err("load what?".into()) };
        let word = match *word {
            "bf16" => ElementType::Bf16,
            "fp16" => ElementType::Fp16,
            "fp32" => ElementType::Fp32,
            other => return Err(format!("no type `{other}`").into()),
        };
        let raw = fs::read(path)?;
        let base = base.first().map(fs::read).transpose()?;
        Ok(Blocks {
            word,
            block_bytes: block_bytes.parse()?,
            encoded: Vec::with_capacity(raw.len() + raw.len() / 8),
            places: Vec::new(),
            decoded: Vec::with_capacity(raw.len()),
            scratch: Scratch::default(),
            raw,
            base,
        })
    }

    fn encode(&mut self) -> Result<usize, Failure> {
        self.encoded.clear();
        self.places.clear();
        for (number, block) in self.raw.chunks(self.block_bytes).enumerate() {
            let from = self.encoded.len();
            match &self.base {
                None => floats::encode(self.word, 0, block, &mut self.scratch, &mut self.encoded)?,
                Some(base) => {
                    let base = base.chunks(self.block_bytes).nth(number).unwrap_or_default();
                    let derivation = Derivation::Context(self.word);
                    delta::encode(derivation, block, base, &mut self.scratch, &mut self.encoded)?;
                }
            }
            self.places.push(from..self.encoded.len());
        }
        Ok(self.encoded.len())
    }

    fn decode(&mut self) -> Result<(), Failure> {
        self.decoded.clear();
        for (number, (place, block)) in self.places.iter().zip(self.raw.chunks(self.block_bytes)).enumerate() {
            let payload = &self.encoded[place.clone()];
            match &self.base {
                None => Floats.decode(payload, block.len(), &mut self.scratch, &mut self.decoded)?,
                Some(base) => {
                    let base = base.chunks(self.block_bytes).nth(number).unwrap_or_default();
                    let id = Derivation::Context(self.word).id();
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
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.first().copied(), &mut blocks) {
            (Some("load"), blocks) => {
                *blocks = Some(Blocks::load(&words[1..])?);
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
            _ => return Err(format!("no such command: {line}").into()),
        }
        io::stdout().flush()?;
    }
    Ok(())
}
