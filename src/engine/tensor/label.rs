//! Labels: the exact type of a tensor's values, as its file names it.
//!
//! Recognition tells widths and floats apart; whether integers have a sign, and which 8-bit float it is, stands in the
//! file: in the header of safetensors, and in front of the values of npy. Elsewhere nothing more is known.

use std::io;

use serde_json::Value;

use crate::engine::content::{StoredFile, fill};
use crate::format::{Dtype, Tensor};

/// Longest header of safetensors read.
const HEADER_BYTES_MAX: u64 = 32 << 20;
/// Bytes in front of an array in which its header begins.
const NPY_HEADER_BYTES_MAX: u64 = 4 << 10;
const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// A type as safetensors names it.
pub type Label = &'static str;

/// Types as safetensors and as numpy name them.
pub const LABELS: &[(Label, Option<&str>, Dtype)] = &[
    ("F64", Some("<f8"), Dtype::Float64),
    ("F32", Some("<f4"), Dtype::Float32),
    ("F16", Some("<f2"), Dtype::Float16),
    ("BF16", None, Dtype::Bfloat16),
    ("F8_E4M3", None, Dtype::Float8),
    ("F8_E5M2", None, Dtype::Float8),
    ("F8_E8M0", None, Dtype::Float8),
    ("F8_E4M3FNUZ", None, Dtype::Float8),
    ("F8_E5M2FNUZ", None, Dtype::Float8),
    ("I64", Some("<i8"), Dtype::Int64),
    ("U64", Some("<u8"), Dtype::Int64),
    ("I32", Some("<i4"), Dtype::Int32),
    ("U32", Some("<u4"), Dtype::Int32),
    ("I16", Some("<i2"), Dtype::Int16),
    ("U16", Some("<u2"), Dtype::Int16),
    ("I8", Some("|i1"), Dtype::Int8),
    ("U8", Some("|u1"), Dtype::Int8),
    ("BOOL", Some("|b1"), Dtype::Int8),
];

/// The type of `tensor` as the file names it, where that is one of [`LABELS`] and goes with the type recognised.
///
/// Without a better source it is the type recognised; integers are then taken to have a sign.
///
/// # Errors
/// Those of reading.
pub fn label(file: &StoredFile, format: &str, tensor: &Tensor) -> io::Result<Option<Label>> {
    let named = match format {
        "safetensors" => in_safetensors(file, &tensor.name)?,
        "npy" | "npz" => in_npy(file, tensor.offset)?,
        _ => None,
    };
    let fits = |row: &&(Label, Option<&str>, Dtype)| row.2 == tensor.dtype;
    let exact = named.and_then(|named| {
        let is_named = |row: &&(Label, Option<&str>, Dtype)| row.0 == named || row.1.is_some_and(|name| name == named);
        LABELS.iter().filter(fits).find(is_named)
    });
    let plain = || LABELS.iter().filter(|row| row.2 != Dtype::Float8).find(fits);
    Ok(exact.or_else(plain).map(|row| row.0))
}

fn in_safetensors(file: &StoredFile, name: &str) -> io::Result<Option<String>> {
    let mut prefix = [0; 8];
    fill(file, 0, &mut prefix)?;
    let len = u64::from_le_bytes(prefix);
    if len > HEADER_BYTES_MAX || len > file.len() {
        return Ok(None);
    }
    let mut header = vec![0; len as usize];
    fill(file, 8, &mut header)?;
    let header: Value = serde_json::from_slice(&header).unwrap_or_default();
    Ok(header.get(name).and_then(|entry| entry.get("dtype")?.as_str()).map(str::to_string))
}

/// What the header says that ends where an array begins.
fn in_npy(file: &StoredFile, offset: u64) -> io::Result<Option<String>> {
    let start = offset.saturating_sub(NPY_HEADER_BYTES_MAX);
    let mut before = vec![0; (offset - start) as usize];
    fill(file, start, &mut before)?;
    let begin = before.windows(NPY_MAGIC.len()).rposition(|window| window == NPY_MAGIC);
    let header = String::from_utf8_lossy(begin.and_then(|at| before.get(at..)).unwrap_or_default()).into_owned();
    let value = header.split("descr").nth(1).and_then(|rest| rest.split(['\'', '"']).nth(2));
    Ok(value.map(str::to_string))
}
