//! Files of one tensor: numpy's and safetensors'.
//!
//! npy holds what numpy has a type for, in either order of the dimensions. safetensors holds the rest, too: values that
//! it has no type for are bytes, and its metadata say what they are. Values are written as they lie where the file can
//! say so, and else gathered ([`super::gather`]). The file is written under a temporary name in the directory it goes to,
//! and linked to its own, so nothing that exists is overwritten and no half of a file bears the name.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::gather::{copy, gather};
use crate::error::{Error, Result};
use crate::format::{Array, ReadAt};
use crate::repo::stored_file::unwrapped;
use crate::types::hex;

/// Values begin at a multiple of this in npy, and of 8 in safetensors.
const NPY_ALIGNMENT: usize = 64;
const SAFETENSORS_ALIGNMENT: usize = 8;
/// What safetensors has no tensor by the name of.
const METADATA: &str = "__metadata__";

/// How a tensor is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// numpy's array file.
    Npy,
    /// safetensors with one tensor.
    Safetensors,
}

/// What goes in front of the values, and how they follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorHeader {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Type of the values in the file.
    pub written_as: String,
    /// Whether the values are written in the order in which they lie.
    pub as_they_lie: bool,
}

impl FileFormat {
    /// The format that goes with a file's extension.
    ///
    /// # Errors
    /// [`Error::Usage`] for any other.
    pub fn of(output: &Path) -> Result<Self> {
        match output.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(FileFormat::Npy),
            Some("safetensors") => Ok(FileFormat::Safetensors),
            _ => {
                let output = output.display();
                Err(Error::Usage(format!("cannot tell how to write {output}: expected a name in .npy or .safetensors")))
            }
        }
    }
}

/// The header of `array` in a file of its own.
///
/// # Errors
/// [`Error::Usage`] where the format has no way to hold it.
pub fn header(format: FileFormat, array: &Array) -> Result<TensorHeader> {
    match format {
        FileFormat::Npy => npy(array),
        FileFormat::Safetensors => safetensors(array),
    }
}

fn npy(array: &Array) -> Result<TensorHeader> {
    let Some(descr) = &array.value.numpy else {
        return Err(Error::Usage(format!(
            "numpy has no type for the {} values of `{}`: write a .safetensors file instead",
            array.value.name, array.name
        )));
    };
    let sizes: String = array.shape.iter().map(|size| format!("{size}, ")).collect();
    let shape = if array.shape.len() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let (as_they_lie, order) = match array.is_column_major() {
        true => (true, "True"),
        false => (array.strides.is_none(), "False"),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    let prefix = b"\x93NUMPY\x01\x00";
    let unpadded = prefix.len() + 2 + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(NPY_ALIGNMENT) - unpadded));
    text.push('\n');
    let len = (text.len() as u16).to_le_bytes();
    Ok(TensorHeader { bytes: [prefix, &len[..], text.as_bytes()].concat(), written_as: descr.to_string(), as_they_lie })
}

fn safetensors(array: &Array) -> Result<TensorHeader> {
    if array.name == METADATA {
        return Err(Error::Usage(format!("safetensors cannot hold a tensor called `{METADATA}`: write a .npy file")));
    }
    let shape = json!(array.shape);
    let range = json!([0, array.len]);
    let label = array.value.safetensors;
    let document = match label {
        Some(label) => json!({ &*array.name: { "dtype": label, "shape": shape, "data_offsets": range } }),
        None => json!({
            METADATA: { "dtype": array.value.name, "shape": shape.to_string() },
            &*array.name: { "dtype": "U8", "shape": [array.len], "data_offsets": range },
        }),
    };
    let mut text = document.to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(SAFETENSORS_ALIGNMENT) - text.len()));
    let len = (text.len() as u64).to_le_bytes();
    let written_as = label.unwrap_or("U8").to_string();
    Ok(TensorHeader { bytes: [&len[..], text.as_bytes()].concat(), written_as, as_they_lie: array.strides.is_none() })
}

/// Fails where there is anything in place of `output`.
///
/// # Errors
/// [`Error::AlreadyExists`].
pub fn check_free(output: &Path) -> Result<()> {
    match output.symlink_metadata() {
        Ok(_) => Err(taken(output)),
        Err(_) => Ok(()),
    }
}

fn taken(output: &Path) -> Error {
    Error::AlreadyExists { path: output.into(), what: "something" }
}

/// Writes `header` and the values of `array`, which is in the file `source` of the snapshot's `path`.
///
/// # Errors
/// Those of reading and writing; [`Error::Interrupted`] once `stop` is set. Nothing is left then.
pub fn write(
    output: &Path,
    header: &TensorHeader,
    source: &dyn ReadAt,
    array: &Array,
    path: &Path,
    stop: &AtomicBool,
) -> Result<()> {
    let failed = |error: io::Error| Error::io("write", output, error);
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error)))?;
    let aside = Aside(output.with_file_name(format!(".fhrd-{}", hex(&random))));
    let file = OpenOptions::new().write(true).create_new(true).open(&aside.0).map_err(failed)?;
    let mut writer = BufWriter::new(&file);
    writer.write_all(&header.bytes).map_err(failed)?;
    let give = if header.as_they_lie { copy } else { gather };
    let given = give(source, array, &mut |bytes| {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other(Error::Interrupted));
        }
        writer.write_all(bytes).map_err(|error| io::Error::other(failed(error)))
    });
    given.map_err(|error| unwrapped(error, path))?;
    writer.flush().map_err(failed)?;
    drop(writer);
    file.sync_all().map_err(failed)?;
    publish(&aside.0, output)
}

/// Gives the file its name, unless that is taken.
fn publish(aside: &Path, output: &Path) -> Result<()> {
    let published = match fs::hard_link(aside, output) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(taken(output)),
        // A file system without links.
        Err(_) => check_free(output).map(|()| fs::rename(aside, output))?,
        linked => linked,
    };
    published.map_err(|error| Error::io("write", output, error))
}

/// A file that is gone when it is dropped.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        // Renamed, it is not there any more.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Dtype, Value};

    fn array(name: &str, dtype: Dtype, shape: &[u64], len: u64) -> Array {
        Array { name: name.into(), value: Value::of(dtype), shape: shape.into(), strides: None, offset: 0, len }
    }

    #[test]
    fn headers_of_numpy_are_aligned_and_say_type_order_and_shape() {
        for (shape, text) in [(&[][..], "()"), (&[3][..], "(3,)"), (&[3, 4][..], "(3, 4)")] {
            let header = header(FileFormat::Npy, &array("w", Dtype::Float32, shape, 48)).unwrap();
            assert!(header.bytes.len().is_multiple_of(64) && header.bytes.ends_with(b"\n") && header.as_they_lie);
            let said = String::from_utf8_lossy(&header.bytes).into_owned();
            assert!(said.contains(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {text}, }}")), "{said}");
        }
        let with = |strides: &[u64]| {
            let strides = Some(strides.to_vec());
            header(FileFormat::Npy, &Array { strides, ..array("w", Dtype::Float32, &[3, 4], 48) }).unwrap()
        };
        let (columns, gaps) = (with(&[1, 3]), with(&[8, 2]));
        assert!(String::from_utf8_lossy(&columns.bytes).contains("'fortran_order': True, 'shape': (3, 4)"));
        assert!(String::from_utf8_lossy(&gaps.bytes).contains("'fortran_order': False, 'shape': (3, 4)"));
        assert!(columns.as_they_lie && !gaps.as_they_lie);
        let error = header(FileFormat::Npy, &array("w", Dtype::Bfloat16, &[3], 6)).unwrap_err();
        assert!(error.to_string().contains(".safetensors"), "{error}");
        assert!(header(FileFormat::Npy, &array("w", Dtype::Quantised(8), &[32], 34)).is_err());
    }

    #[test]
    fn what_safetensors_has_no_type_for_is_bytes() {
        let parsed =
            |header: TensorHeader| -> serde_json::Value { serde_json::from_slice(&header.bytes[8..]).unwrap() };
        let quantised = array("a\"b", Dtype::Quantised(8), &[2, 32], 68);
        let said = parsed(header(FileFormat::Safetensors, &quantised).unwrap());
        assert_eq!(said["a\"b"], json!({"dtype": "U8", "shape": [68], "data_offsets": [0, 68]}));
        assert_eq!(said[METADATA], json!({"dtype": "Q8_0", "shape": "[2,32]"}));
        let plain = header(FileFormat::Safetensors, &array("w", Dtype::Bfloat16, &[3], 6)).unwrap();
        assert!((plain.bytes.len() - 8).is_multiple_of(8));
        assert_eq!(parsed(plain), json!({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}));
        let odd = array(METADATA, Dtype::Float32, &[1], 4);
        assert!(header(FileFormat::Safetensors, &odd).is_err());
    }
}
