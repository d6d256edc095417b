//! A safetensors file shortened to a length: its first tensors, the last of them with fewer rows.
//!
//! A file that simply ends early is no model for a scheme that reads headers. So the header is written again, padded
//! with spaces so that the file has exactly the wanted length.

use std::io::{self, Read, Write};

use serde_json::{Map, Value, json};

/// Longest header, bytes.
const HEADER_BYTES_MAX: u64 = 16 << 20;
/// The entry that is no tensor.
const METADATA: &str = "__metadata__";

/// Copies the first `len` bytes of a safetensors file as a valid file. Returns `false`, with `from` read in part and
/// nothing written, if it is none or too short for a row of its first tensor.
///
/// # Errors
/// Errors of reading and writing.
pub(super) fn copy(from: &mut impl Read, len: u64, to: &mut impl Write) -> io::Result<bool> {
    let mut start = [0u8; 8];
    from.read_exact(&mut start)?;
    let header_len = u64::from_le_bytes(start);
    if header_len > HEADER_BYTES_MAX || header_len + 8 >= len {
        return Ok(false);
    }
    let mut header = vec![0; header_len as usize];
    from.read_exact(&mut header)?;
    let Some((header, data_len)) = shortened(&header, len - 8) else { return Ok(false) };
    to.write_all(&(header.len() as u64).to_le_bytes())?;
    to.write_all(&header)?;
    let copied = io::copy(&mut from.take(data_len), to)?;
    if copied == data_len { Ok(true) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The header of a file whose header and data have `len` bytes together, and the length of the data.
fn shortened(header: &[u8], len: u64) -> Option<(Vec<u8>, u64)> {
    let old: Map<String, Value> = serde_json::from_slice(header).ok()?;
    // A shorter list of smaller numbers is not longer.
    let budget = len.checked_sub(header.len() as u64)?;
    let offsets = |tensor: &Value| {
        let both = tensor.get("data_offsets")?.as_array()?;
        Some((both.first()?.as_u64()?, both.get(1)?.as_u64()?))
    };
    let tensors = old.iter().filter(|(name, _)| *name != METADATA);
    let mut tensors =
        tensors.map(|(name, tensor)| Some((offsets(tensor)?, name, tensor))).collect::<Option<Vec<_>>>()?;
    tensors.sort_by_key(|(offsets, ..)| *offsets);
    let (mut new, mut data_len) = (Map::new(), 0);
    for ((start, end), name, tensor) in tensors {
        if start != data_len || end < start {
            return None;
        }
        let mut tensor = tensor.clone();
        let mut taken = end - start;
        if end > budget {
            let shape = tensor.get("shape")?.as_array()?.clone();
            let rows = shape.first()?.as_u64().filter(|rows| *rows > 0)?;
            let fit = (budget - start) / (taken / rows).max(1);
            taken = taken / rows * fit.min(rows);
            if taken > 0 {
                let rest = shape.into_iter().skip(1);
                tensor["shape"] = std::iter::once(json!(fit)).chain(rest).collect();
                tensor["data_offsets"] = json!([start, start + taken]);
            }
        }
        if taken > 0 {
            new.insert(name.clone(), tensor);
        }
        data_len += taken;
        if end > budget {
            break;
        }
    }
    if new.is_empty() {
        return None;
    }
    if let Some(metadata) = old.get(METADATA) {
        new.insert(METADATA.into(), metadata.clone());
    }
    let mut header = serde_json::to_vec(&new).ok()?;
    let wanted = usize::try_from(len.checked_sub(data_len)?).ok()?;
    if header.len() > wanted {
        return None;
    }
    header.resize(wanted, b' ');
    Some((header, data_len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fhrd::format::{Recognition, recognise};

    /// Two tensors of 4 × 8 bytes, then one of 100 × 16 bytes.
    fn file() -> Vec<u8> {
        let header = json!({
            "__metadata__": {"format": "pt"},
            "b": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]},
            "a": {"dtype": "F32", "shape": [4, 2], "data_offsets": [32, 64]},
            "w": {"dtype": "F32", "shape": [100, 4], "data_offsets": [64, 1664]},
        });
        let header = serde_json::to_vec(&header).unwrap();
        let data = (0..1664u32).map(|at| at as u8);
        (header.len() as u64).to_le_bytes().into_iter().chain(header).chain(data).collect()
    }

    #[test]
    fn a_shortened_file_is_a_model_of_exactly_that_length() {
        let whole = file();
        let header_len = whole.len() - 1664;
        for len in [header_len + 64, header_len + 300, header_len + 777, whole.len() - 1] {
            let mut out = Vec::new();
            assert!(copy(&mut whole.as_slice(), len as u64, &mut out).unwrap(), "{len}");
            assert_eq!(out.len(), len);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("m");
            std::fs::write(&path, &out).unwrap();
            let Ok(Recognition::Model(model)) = recognise(&std::fs::File::open(&path).unwrap(), len as u64) else {
                panic!("{len}: no model")
            };
            let bytes: u64 = model.tensors.iter().map(|tensor| tensor.len).sum();
            assert!(bytes as usize + header_len + 16 + 64 >= len, "{len}: {bytes} bytes of tensors");
            assert!(whole.ends_with(&[127]) && out.ends_with(&whole[header_len..][..bytes as usize]), "{len}");
        }
    }

    #[test]
    fn other_files_and_too_short_ones_are_refused() {
        let whole = file();
        for (bytes, len) in [(&whole[..], 40), (b"not a model at all, but text, text and text", 30)] {
            let mut out = Vec::new();
            assert!(!copy(&mut &*bytes, len, &mut out).unwrap() && out.is_empty());
        }
    }
}
