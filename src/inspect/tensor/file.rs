//! Writes one tensor as an npy or safetensors file.
//!
//! 1. npy supports the types of numpy, with rows or columns first. safetensors supports every tensor: values without a
//!    safetensors type are written as bytes, and the metadata give their type and shape.
//! 2. The values are copied in their stored order if the header can describe it. Otherwise they are gathered
//!    ([`super::gather`]).
//! 3. The file is written under a temporary name in the directory of the output, and then linked to its name. So
//!    nothing is overwritten, and an incomplete file never has that name.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ::safetensors::Dtype as SafetensorsDtype;
use ::safetensors::tensor::{Metadata, TensorInfo};

use super::gather::{copy, gather};
use crate::error::{Error, Result};
use crate::format::Array;
use crate::read_at::{ReadAt, unwrapped};
use crate::store::sync_name;
use crate::types::hex;

/// The values of an npy file start at a multiple of this, bytes.
const NPY_ALIGNMENT: usize = 64;
/// The values of a safetensors file start at a multiple of this, bytes.
const SAFETENSORS_ALIGNMENT: usize = 8;
/// Key of the metadata in safetensors. No tensor can have this name.
const METADATA: &str = "__metadata__";

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// An array file of numpy.
    Npy,
    /// A safetensors file with one tensor.
    Safetensors,
}

/// The bytes before the values, and the order of the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorHeader {
    /// The bytes before the values.
    pub bytes: Vec<u8>,
    /// Type of the values in the file.
    pub written_as: String,
    /// Whether the values are written in their stored order.
    pub in_stored_order: bool,
}

impl FileFormat {
    /// The format of the file's extension.
    ///
    /// # Errors
    /// Fails with [`Error::Usage`] for an unknown extension.
    pub fn of(output: &Path) -> Result<Self> {
        match output.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(FileFormat::Npy),
            Some("safetensors") => Ok(FileFormat::Safetensors),
            _ => {
                let output = output.display();
                Err(Error::Usage(format!(
                    "no format for {output}: expected a name that ends with .npy or .safetensors"
                )))
            }
        }
    }
}

/// The header of a file that has only `array`.
///
/// # Errors
/// Fails with [`Error::Usage`] if the format does not support the array.
pub fn header(format: FileFormat, array: &Array) -> Result<TensorHeader> {
    match format {
        FileFormat::Npy => npy(array),
        FileFormat::Safetensors => safetensors(array),
    }
}

fn npy(array: &Array) -> Result<TensorHeader> {
    let Some(descr) = &array.value_type.numpy else {
        return Err(Error::Usage(format!(
            "numpy has no type for the {} values of `{}`: write a .safetensors file instead",
            array.value_type.name, array.name
        )));
    };
    let sizes: String = array.shape.iter().map(|size| format!("{size}, ")).collect();
    let shape = if array.shape.len() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let (in_stored_order, order) = match array.is_column_major() {
        true => (true, "True"),
        false => (array.strides.is_none(), "False"),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    let prefix = b"\x93NUMPY\x01\x00";
    let unpadded = prefix.len() + 2 + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(NPY_ALIGNMENT) - unpadded));
    text.push('\n');
    let len = (text.len() as u16).to_le_bytes();
    Ok(TensorHeader {
        bytes: [prefix, &len[..], text.as_bytes()].concat(),
        written_as: descr.to_string(),
        in_stored_order,
    })
}

fn safetensors(array: &Array) -> Result<TensorHeader> {
    if array.name == METADATA {
        return Err(Error::Usage(format!(
            "safetensors does not support a tensor named `{METADATA}`: write a .npy file instead"
        )));
    }
    let refused =
        |reason: String| Error::Usage(format!("safetensors does not support the tensor `{}`: {reason}", array.name));
    let size = |size: &u64| usize::try_from(*size).map_err(|error| refused(error.to_string()));
    let (dtype, shape) = match array.value_type.safetensors {
        Some(dtype) => (dtype, array.shape.iter().map(size).collect::<Result<Vec<usize>>>()?),
        None => (SafetensorsDtype::U8, vec![size(&array.len)?]),
    };
    let description = array.value_type.safetensors.is_none().then(|| {
        let shape = serde_json::Value::from(array.shape.clone()).to_string();
        [("dtype".into(), array.value_type.name.to_string()), ("shape".into(), shape)].into_iter().collect()
    });
    // The crate writes a file from whole tensors in memory, and replaces an existing file. So it makes and checks the
    // header alone, and the values are streamed after it.
    let info = TensorInfo { dtype, shape, data_offsets: (0, size(&array.len)?) };
    let header =
        Metadata::new(description, vec![(array.name.clone(), info)]).map_err(|error| refused(error.to_string()))?;
    // A `Value` sorts the keys. The crate's own map has a random order.
    let header = serde_json::to_value(&header).map_err(|error| refused(error.to_string()))?;
    let mut text = header.to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(SAFETENSORS_ALIGNMENT) - text.len()));
    let len = (text.len() as u64).to_le_bytes();
    Ok(TensorHeader {
        bytes: [&len[..], text.as_bytes()].concat(),
        written_as: dtype.to_string(),
        in_stored_order: array.strides.is_none(),
    })
}

/// Checks that `output` does not exist.
///
/// # Errors
/// Fails with [`Error::AlreadyExists`] if it does.
pub fn check_free(output: &Path) -> Result<()> {
    match output.symlink_metadata() {
        Ok(_) => Err(already_exists(output)),
        Err(_) => Ok(()),
    }
}

fn already_exists(output: &Path) -> Error {
    Error::AlreadyExists { path: output.into(), what: "something" }
}

/// An array and the file to read it from.
pub struct TensorSource<'a> {
    /// Model file.
    pub file: &'a dyn ReadAt,
    /// Path of the model file in the snapshot, for errors.
    pub path: &'a Path,
    /// Largest permissions of the output.
    pub mode: u32,
    /// The array in that file.
    pub array: &'a Array,
}

/// Writes `header` and the values of `source` to the new file `output`.
///
/// # Errors
/// Fails if the source cannot be read or the output cannot be written, and with [`Error::Interrupted`] once `stop` is
/// set. No file is left then.
pub fn write(output: &Path, header: &TensorHeader, source: &TensorSource<'_>, stop: &AtomicBool) -> Result<()> {
    let failed = |error: io::Error| Error::io("write", output, error);
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error)))?;
    let temporary = TemporaryFile(output.with_file_name(format!(".fhrd-{}", hex(&random))));
    let file = OpenOptions::new().write(true).create_new(true).mode(source.mode).open(&temporary.0).map_err(failed)?;
    let mut writer = BufWriter::new(&file);
    writer.write_all(&header.bytes).map_err(failed)?;
    let read = if header.in_stored_order { copy } else { gather };
    let result = read(source.file, source.array, &mut |bytes| {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other(Error::Interrupted));
        }
        writer.write_all(bytes).map_err(|error| io::Error::other(failed(error)))
    });
    result.map_err(|error| unwrapped(error, source.path))?;
    writer.flush().map_err(failed)?;
    drop(writer);
    file.sync_all().map_err(failed)?;
    publish(&temporary.0, output)?;
    sync_name(output).map_err(failed)
}

/// Links the temporary file to its name, unless that exists.
fn publish(temporary: &Path, output: &Path) -> Result<()> {
    let published = match fs::hard_link(temporary, output) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(already_exists(output)),
        // The file system may not support hard links.
        Err(_) => check_free(output).map(|()| fs::rename(temporary, output))?,
        linked => linked,
    };
    published.map_err(|error| Error::io("write", output, error))
}

/// A file that is removed when the value is dropped.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Dtype, ValueType};
    use safetensors::SafeTensors;
    use serde_json::json;

    fn array(name: &str, dtype: Dtype, shape: &[u64], len: u64) -> Array {
        Array {
            name: name.into(),
            value_type: ValueType::of(dtype),
            shape: shape.into(),
            strides: None,
            offset: 0,
            len,
        }
    }

    #[test]
    fn npy_headers_are_aligned_and_give_type_order_and_shape() {
        for (shape, text) in [(&[][..], "()"), (&[3][..], "(3,)"), (&[3, 4][..], "(3, 4)")] {
            let header = header(FileFormat::Npy, &array("w", Dtype::Float32, shape, 48)).unwrap();
            assert!(header.bytes.len().is_multiple_of(64) && header.bytes.ends_with(b"\n") && header.in_stored_order);
            let header_text = String::from_utf8_lossy(&header.bytes).into_owned();
            assert!(
                header_text.contains(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {text}, }}")),
                "{header_text}"
            );
        }
        let with = |strides: &[u64]| {
            let strides = Some(strides.to_vec());
            header(FileFormat::Npy, &Array { strides, ..array("w", Dtype::Float32, &[3, 4], 48) }).unwrap()
        };
        let (columns, gaps) = (with(&[1, 3]), with(&[8, 2]));
        assert!(String::from_utf8_lossy(&columns.bytes).contains("'fortran_order': True, 'shape': (3, 4)"));
        assert!(String::from_utf8_lossy(&gaps.bytes).contains("'fortran_order': False, 'shape': (3, 4)"));
        assert!(columns.in_stored_order && !gaps.in_stored_order);
        let error = header(FileFormat::Npy, &array("w", Dtype::Bfloat16, &[3], 6)).unwrap_err();
        assert!(error.to_string().contains(".safetensors"), "{error}");
        assert!(header(FileFormat::Npy, &array("w", Dtype::Quantised(8), &[32], 34)).is_err());
    }

    #[test]
    fn values_without_a_safetensors_type_are_bytes() {
        let parsed =
            |header: TensorHeader| -> serde_json::Value { serde_json::from_slice(&header.bytes[8..]).unwrap() };
        let quantised = array("a\"b", Dtype::Quantised(8), &[2, 32], 68);
        let parsed_header = parsed(header(FileFormat::Safetensors, &quantised).unwrap());
        assert_eq!(parsed_header["a\"b"], json!({"dtype": "U8", "shape": [68], "data_offsets": [0, 68]}));
        assert_eq!(parsed_header[METADATA], json!({"dtype": "Q8_0", "shape": "[2,32]"}));
        let text = concat!(
            r#"{"__metadata__":{"dtype":"Q8_0","shape":"[2,32]"},"#,
            r#""a\"b":{"data_offsets":[0,68],"dtype":"U8","shape":[68]}}"#
        );
        let exported = header(FileFormat::Safetensors, &quantised).unwrap().bytes;
        assert_eq!(String::from_utf8_lossy(&exported[8..]).trim_end(), text);
        let file = [&exported[..], &[7; 68]].concat();
        assert_eq!(SafeTensors::deserialize(&file).unwrap().tensor("a\"b").unwrap().data(), [7; 68]);
        let plain = header(FileFormat::Safetensors, &array("w", Dtype::Bfloat16, &[3], 6)).unwrap();
        assert!((plain.bytes.len() - 8).is_multiple_of(8));
        assert_eq!(parsed(plain), json!({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}));
        let wrong_len = header(FileFormat::Safetensors, &array("w", Dtype::Bfloat16, &[3], 7)).unwrap_err();
        assert!(wrong_len.to_string().contains("does not support the tensor `w`"), "{wrong_len}");
        let odd = array(METADATA, Dtype::Float32, &[1], 4);
        assert!(header(FileFormat::Safetensors, &odd).is_err());
    }
}
