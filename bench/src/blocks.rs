//! Blocks of real data for measurements, drawn at random byte positions of a class's files. A seed fixes the
//! positions.
//!
//! 1. The patterns of the class are expanded to files. If a dtype is given, only the tensors of that dtype in
//!    safetensors files count, and adjacent tensors form one extent.
//! 2. Every byte position of every extent has the same chance, also inside an element.
//! 3. A transform converts the data (UTF-16 of text, FP64 of FP32). The block then starts at a random byte of the
//!    result.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::data::rounding::{brain, half};
use super::data::{Random, expand, files_below};

/// Conversion of data to another representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transform {
    /// Text as UTF-16, little-endian.
    Utf16,
    /// FP32 elements as FP64.
    F64,
    /// FP32 elements as FP16, rounded to nearest.
    F16,
    /// FP32 elements as BF16, rounded to nearest.
    Bf16,
    /// BF16 elements as FP32: two zero bytes before each.
    F32,
}

impl Transform {
    /// Bytes of an element before and after. A character of UTF-16 has at least the bytes given here.
    fn widths(self) -> (usize, usize) {
        match self {
            Transform::Utf16 => (4, 2),
            Transform::F64 => (4, 8),
            Transform::F16 | Transform::Bf16 => (4, 2),
            Transform::F32 => (2, 4),
        }
    }

    fn apply(self, source: &[u8]) -> Vec<u8> {
        let singles = || source.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        match self {
            Transform::Utf16 => String::from_utf8_lossy(source).encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Transform::F64 => singles().flat_map(|value| f64::from(value).to_le_bytes()).collect(),
            Transform::F16 => singles().flat_map(|value| half(value).to_le_bytes()).collect(),
            Transform::Bf16 => singles().flat_map(|value| brain(value).to_le_bytes()).collect(),
            Transform::F32 => source.as_chunks::<2>().0.iter().flat_map(|bytes| [0, 0, bytes[0], bytes[1]]).collect(),
        }
    }
}

/// A block and the file that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnBlock {
    /// Path of the file.
    pub file: PathBuf,
    /// Bytes of the block, converted.
    pub bytes: Vec<u8>,
}

/// A range of bytes of a file.
struct FileExtent {
    path: PathBuf,
    start: u64,
    len: u64,
}

/// Draws blocks from the extents of one class.
pub struct Blocks {
    extents: Vec<FileExtent>,
    transform: Option<Transform>,
    block_bytes: usize,
    random: Random,
}

impl Blocks {
    /// Finds the extents of `patterns` below `corpus`. Patterns are paths with `*`; directories stand for all their
    /// files.
    ///
    /// # Errors
    /// [`Error::Io`] if reading fails; [`Error::Usage`] if no extent is long enough for a block.
    pub fn find(
        corpus: &Path,
        patterns: &[String],
        tensor_dtype: Option<&str>,
        transform: Option<Transform>,
        block_bytes: usize,
        seed: u64,
    ) -> Result<Blocks> {
        let mut extents = Vec::new();
        for pattern in patterns {
            for path in files_of(corpus, pattern)? {
                match tensor_dtype {
                    Some(dtype) => extents.extend(tensor_extents(&path, dtype)?),
                    None => {
                        let len = path.metadata().map_err(|error| Error::io("read", &path, error))?.len();
                        extents.push(FileExtent { path, start: 0, len });
                    }
                }
            }
        }
        let blocks = Blocks { extents, transform, block_bytes, random: Random::new(seed) };
        if blocks.positions().all(|count| count == 0) {
            let patterns = patterns.join(" ");
            let kind = tensor_dtype.map_or(String::new(), |dtype| format!(" of {dtype} tensors"));
            return Err(Error::Usage(format!("{} has no {block_bytes} bytes{kind} in {patterns}", corpus.display())));
        }
        Ok(blocks)
    }

    /// Bytes read for one block: its source and eight elements more.
    fn source_bytes(&self) -> u64 {
        let (from, to) = self.transform.map_or((1, 1), Transform::widths);
        ((self.block_bytes / to + 8) * from) as u64
    }

    /// Number of positions of each extent where a block can start.
    fn positions(&self) -> impl Iterator<Item = u64> {
        let need = self.source_bytes();
        self.extents.iter().map(move |extent| (extent.len + 1).saturating_sub(need))
    }

    /// Draws the next block.
    pub fn draw(&mut self) -> Result<DrawnBlock> {
        let mut position = self.random.below(self.positions().sum());
        let mut chosen = None;
        for (extent, count) in self.extents.iter().zip(self.positions()) {
            if position < count {
                chosen = Some(extent);
                break;
            }
            position -= count;
        }
        let extent = chosen.ok_or_else(|| Error::internal("no extent has a position for a block"))?;
        // A transform reads whole elements.
        position -= position % self.transform.map_or(1, |transform| transform.widths().0 as u64);
        let mut bytes = vec![0; self.source_bytes() as usize];
        File::open(&extent.path)
            .and_then(|mut file| {
                file.seek(SeekFrom::Start(extent.start + position))?;
                file.read_exact(&mut bytes)
            })
            .map_err(|error| Error::io("read", &extent.path, error))?;
        let bytes = self.transform.map_or(bytes.clone(), |transform| transform.apply(&bytes));
        let phase = self.random.below(8) as usize;
        let block = bytes.get(phase..phase + self.block_bytes).unwrap_or(&bytes);
        Ok(DrawnBlock { file: extent.path.clone(), bytes: block.to_vec() })
    }

    /// The first block of a file, or the whole of a shorter file, converted.
    pub fn first(&self, path: &Path) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(self.source_bytes()).read_to_end(&mut bytes))
            .map_err(|error| Error::io("read", path, error))?;
        let mut bytes = self.transform.map_or(bytes.clone(), |transform| transform.apply(&bytes));
        bytes.truncate(self.block_bytes);
        Ok(bytes)
    }
}

/// All files that `pattern` stands for.
fn files_of(corpus: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in expand(corpus, pattern)? {
        files.extend(files_below(&path)?);
    }
    Ok(files)
}

/// Longest safetensors header, bytes.
const HEADER_BYTES_MAX: u64 = 100 << 20;

/// Extents of the tensors of `dtype` in a safetensors file, adjacent ones merged.
fn tensor_extents(path: &Path, dtype: &str) -> Result<Vec<FileExtent>> {
    #[derive(Deserialize)]
    struct HeaderTensor {
        dtype: String,
        data_offsets: (u64, u64),
    }
    let wrong = |what: &str| Error::Usage(format!("{} is not a safetensors file: {what}", path.display()));
    let mut file = File::open(path).map_err(|error| Error::io("read", path, error))?;
    let mut len = [0u8; 8];
    file.read_exact(&mut len).map_err(|error| Error::io("read", path, error))?;
    let len = Some(u64::from_le_bytes(len)).filter(|len| *len <= HEADER_BYTES_MAX);
    let len = len.ok_or_else(|| wrong("the header is too long"))?;
    let mut header = vec![0; len as usize];
    file.read_exact(&mut header).map_err(|error| Error::io("read", path, error))?;
    let entries: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&header).map_err(|error| wrong(&error.to_string()))?;
    let mut spans = Vec::new();
    for (_, entry) in entries.into_iter().filter(|(name, _)| name != "__metadata__") {
        let tensor: HeaderTensor = serde_json::from_value(entry).map_err(|error| wrong(&error.to_string()))?;
        if tensor.dtype == dtype && tensor.data_offsets.0 < tensor.data_offsets.1 {
            spans.push(tensor.data_offsets);
        }
    }
    spans.sort_unstable();
    let mut extents: Vec<FileExtent> = Vec::new();
    for (from, to) in spans {
        let start = 8 + len + from;
        match extents.last_mut() {
            Some(last) if last.start + last.len == start => last.len += to - from,
            _ => extents.push(FileExtent { path: path.to_path_buf(), start, len: to - from }),
        }
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tensors_of_the_dtype_are_drawn_and_a_seed_fixes_them() {
        let directory = tempfile::tempdir().unwrap();
        let header = br#"{"__metadata__":{},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,100]},
            "b":{"dtype":"BF16","shape":[1],"data_offsets":[100,200]},
            "c":{"dtype":"BF16","shape":[1],"data_offsets":[200,400]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header);
        file.extend([b'x'; 100].iter().chain(&[b'y'; 300]).chain(&[b'z'; 50]));
        std::fs::create_dir(directory.path().join("one")).unwrap();
        std::fs::write(directory.path().join("one/m.safetensors"), &file).unwrap();
        let find = |dtype, seed| Blocks::find(directory.path(), &["o*/*.safetensors".into()], dtype, None, 256, seed);
        let mut blocks = find(Some("BF16"), 1).unwrap();
        assert!((0..50).all(|_| blocks.draw().unwrap().bytes == [b'y'; 256]));
        assert!(find(Some("F32"), 1).is_err());
        let (mut a, mut b) = (find(None, 5).unwrap(), find(None, 5).unwrap());
        assert!((0..50).all(|_| a.draw().unwrap() == b.draw().unwrap()));
        let path = a.draw().unwrap().file;
        assert_eq!(a.first(&path).unwrap(), file[..256]);
    }
}
