//! Whole files as ZipLLM and its baselines encode them: zstd of the file, ZipNN's byte groups of every tensor, or
//! BitX's XOR with the tensor of a base.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fhrd::codec::delta::{self, Derivation};
use fhrd::codec::{BlockHint, Codec, Scratch, Zstandard};
use fhrd::config::FloatCodec;
use fhrd::error::{Error, Result};
use fhrd::format::{Recognised, Recognition, recognise};

/// How a file is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMethod {
    /// zstd of the whole file.
    Zstandard,
    /// Each tensor in byte groups with entropy coding; the bytes outside tensors with zstd.
    ZipNn,
    /// Each tensor XORed with the tensor of the same name and length in the base, then zstd. Others as in ZipNN.
    BitX,
}

/// A model file in memory.
pub struct ModelBytes {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its tensors; `None` if it is not a model.
    pub model: Option<Recognised>,
}

/// Maximum length of a file, bytes.
const FILE_BYTES_MAX: u64 = 8 << 30;

impl FileMethod {
    /// Every method.
    pub const ALL: [FileMethod; 3] = [FileMethod::Zstandard, FileMethod::ZipNn, FileMethod::BitX];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FileMethod::Zstandard => "zstd",
            FileMethod::ZipNn => "zipnn",
            FileMethod::BitX => "bitx",
        }
    }

    /// Encodes `file`, tensors in the order of the file. The result is what is stored, one encoding after another.
    ///
    /// # Errors
    /// Errors of the codecs.
    pub fn encode(
        self,
        file: &ModelBytes,
        base: Option<&ModelBytes>,
        level: i32,
        scratch: &mut Scratch,
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let Some(model) = file.model.as_ref().filter(|_| self != FileMethod::Zstandard) else {
            Zstandard.encode(&file.bytes, level, scratch, &mut out)?;
            return Ok(out);
        };
        let bases = base.filter(|_| self == FileMethod::BitX).map(ModelBytes::tensors).unwrap_or_default();
        let (mut end, mut payload) = (0, Vec::new());
        for tensor in &model.tensors {
            let (start, after) = (tensor.offset as usize, (tensor.offset + tensor.len) as usize);
            payload.clear();
            Zstandard.encode(file.bytes.get(end..start).unwrap_or_default(), level, scratch, &mut payload)?;
            out.extend_from_slice(&payload);
            let bytes = file.bytes.get(start..after).unwrap_or_default();
            payload.clear();
            match bases.get(tensor.name.as_str()).filter(|base| base.len() == bytes.len()) {
                Some(base) => delta::encode(Derivation::Xor, bytes, base, scratch, &mut payload)?,
                None => {
                    let hint = BlockHint::ElementType(tensor.dtype.element_type());
                    FloatCodec::ZipNn.encode(hint, bytes, level, scratch, &mut payload)?;
                }
            }
            // What does not become smaller is stored.
            out.extend_from_slice(if payload.len() < bytes.len() { &payload } else { bytes });
            end = after;
        }
        payload.clear();
        Zstandard.encode(file.bytes.get(end..).unwrap_or_default(), level, scratch, &mut payload)?;
        out.extend_from_slice(&payload);
        Ok(out)
    }
}

impl ModelBytes {
    /// Reads a file and finds its tensors.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Usage`] for a file of more than 8 GiB.
    pub fn read(path: &Path) -> Result<Self> {
        let len = path.metadata().map_err(|error| Error::io("read", path, error))?.len();
        if len > FILE_BYTES_MAX {
            return Err(Error::Usage(format!(
                "{} has {len} bytes, but a file is held in memory and has at most 8 GiB",
                path.display()
            )));
        }
        let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
        let model = match recognise(&bytes.as_slice(), len) {
            Ok(Recognition::Model(model)) => Some(model),
            _ => None,
        };
        Ok(ModelBytes { bytes, model })
    }

    /// The bytes of each tensor by name.
    fn tensors(&self) -> HashMap<&str, &[u8]> {
        let tensors = self.model.iter().flat_map(|model| &model.tensors);
        let bytes =
            |offset: u64, len: u64| self.bytes.get(offset as usize..(offset + len) as usize).unwrap_or_default();
        tensors.map(|tensor| (tensor.name.as_str(), bytes(tensor.offset, tensor.len))).collect()
    }
}

/// The file of `files` whose path ends with `base`.
///
/// # Errors
/// [`Error::Usage`] if there is none.
pub fn base_of<'a>(files: &'a [PathBuf], base: &Path) -> Result<&'a PathBuf> {
    let found = files.iter().find(|file| file.ends_with(base));
    found.ok_or_else(|| Error::Usage(format!("no file of the set has a path that ends with {}", base.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_makes_a_near_model_small_and_other_methods_ignore_it() {
        let directory = tempfile::tempdir().unwrap();
        let text =
            "seed = 5\nmodels = { layers = 1, hidden = 64, vocabulary = 256, fine_tunes = 1, sigma_delta = [0.0002] }";
        let generate: crate::data::Generate = toml::from_str(text).unwrap();
        generate.write(directory.path()).unwrap();
        let files = crate::data::files_below(directory.path()).unwrap();
        let base = ModelBytes::read(base_of(&files, Path::new("base/model.safetensors")).unwrap()).unwrap();
        let tuned = ModelBytes::read(base_of(&files, Path::new("fine-tune-00/model.safetensors")).unwrap()).unwrap();
        assert!(base_of(&files, Path::new("ase/model.safetensors")).is_err(), "names are whole");
        let len = |method: FileMethod, base| method.encode(&tuned, base, 3, &mut Scratch::default()).unwrap().len();
        let [zstd, zipnn, bitx] = FileMethod::ALL.map(|method| len(method, Some(&base)));
        assert!(
            bitx < zipnn * 4 / 5 && zipnn < zstd * 9 / 10 && zstd <= tuned.bytes.len() + 64,
            "{bitx} {zipnn} {zstd}"
        );
        assert_eq!([len(FileMethod::ZipNn, None), len(FileMethod::BitX, None)], [zipnn, zipnn]);
        let card = ModelBytes { bytes: b"a card ".repeat(90), model: None };
        assert!(FileMethod::BitX.encode(&card, Some(&base), 3, &mut Scratch::default()).unwrap().len() < 90);
    }
}
