//! Generated versions of a disk image.
//!
//! Blocks are empty, text, tables or noise. Each version copies runs of blocks to other positions and replaces others,
//! as a file system does.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use bytesize::ByteSize;
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::random::Random;

/// Parameters of images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedImage {
    /// Length of an image.
    pub bytes: ByteSize,
    /// Number of versions, a file each.
    pub versions: usize,
    /// Length of a block.
    #[serde(default = "default_block_bytes")]
    pub block_bytes: ByteSize,
    /// Fraction of the blocks that a version copies to another position, 0 to 1.
    #[serde(default = "default_moved")]
    pub moved: f64,
    /// Fraction of the blocks that a version replaces, 0 to 1.
    #[serde(default = "default_changed")]
    pub changed: f64,
}

fn default_block_bytes() -> ByteSize {
    ByteSize::kib(4)
}
fn default_moved() -> f64 {
    0.02
}
fn default_changed() -> f64 {
    0.02
}

/// Longest run of blocks that is moved or replaced at once.
const RUN_BLOCKS: u64 = 64;
/// Upper limits of the kinds empty, text and tables among ten blocks. The rest is noise.
const KINDS: [u64; 3] = [3, 6, 8];

/// Appends the block of `seed`.
fn append_block(seed: u64, len: usize, out: &mut Vec<u8>) {
    let mut random = Random::new(seed);
    let kind = random.below(10);
    let end = out.len() + len;
    match KINDS.iter().position(|limit| kind < *limit) {
        Some(0) => {}
        Some(1) => {
            while out.len() < end {
                let number = random.below(1 + random.clone().below(512));
                out.extend_from_slice(format!("{number:x} ").as_bytes());
            }
        }
        Some(_) => {
            let (mut value, step) = (random.bits() >> 40, random.below(64));
            while out.len() < end {
                value = value.wrapping_add(step + random.below(4));
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
        None => {
            while out.len() < end {
                out.extend_from_slice(&random.bits().to_le_bytes());
            }
        }
    }
    out.resize(end, 0);
}

impl GeneratedImage {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        match () {
            () if !share(self.moved) || !share(self.changed) => Some("`moved` and `changed` must be from 0 to 1"),
            () if !(512..=1 << 20).contains(&self.block_bytes.0) => Some("`block_bytes` must be from 512 B to 1 MiB"),
            () if self.versions == 0 || self.bytes.0 < self.block_bytes.0 => {
                Some("an image needs at least one block and one version")
            }
            () if self.bytes.0 / self.block_bytes.0 > 1 << 27 => Some("an image has at most 2^27 blocks"),
            () => None,
        }
    }

    /// Writes the versions below `directory` as `image-NN.img`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, seed: u64, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|error| Error::io("create", directory, error))?;
        let mut random = Random::of_part(seed, "image");
        let mut blocks: Vec<u64> = (0..self.bytes.0 / self.block_bytes.0).map(|_| random.bits()).collect();
        for version in 0..self.versions {
            if version > 0 {
                self.change(&mut random, &mut blocks);
            }
            let path = directory.join(format!("image-{version:02}.img"));
            self.write_blocks(&blocks, &path).map_err(|error| Error::io("write", &path, error))?;
        }
        Ok(())
    }

    fn change(&self, random: &mut Random, blocks: &mut [u64]) {
        let count = blocks.len() as u64;
        let mut left = (count as f64 * self.moved) as u64;
        while left > 0 {
            let run = (1 + random.below(RUN_BLOCKS)).min(left).min(count);
            let (from, to) = (random.below(count + 1 - run) as usize, random.below(count + 1 - run) as usize);
            blocks.copy_within(from..from + run as usize, to);
            left -= run;
        }
        let mut left = (count as f64 * self.changed) as u64;
        while left > 0 {
            let run = (1 + random.below(RUN_BLOCKS)).min(left).min(count);
            let at = random.below(count + 1 - run) as usize;
            blocks.iter_mut().skip(at).take(run as usize).for_each(|block| *block = random.bits());
            left -= run;
        }
    }

    fn write_blocks(&self, blocks: &[u64], path: &Path) -> std::io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut bytes = Vec::with_capacity(self.block_bytes.0 as usize + 8);
        for block in blocks {
            bytes.clear();
            append_block(*block, self.block_bytes.0 as usize, &mut bytes);
            out.write_all(&bytes)?;
        }
        out.flush()
    }
}
