//! Lays out arrays as a safetensors file, as the safetensors library does it: by descending alignment of the dtype, then
//! by name. The order of `__metadata__` is that of its keys, so equal arrays give equal bytes.

use std::collections::BTreeMap;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

/// Longest header that readers accept, bytes.
const HEADER_BYTES_MAX: usize = 100_000_000;

/// An array of a file.
#[derive(Debug, Clone)]
pub struct ArraySpec {
    /// Its name.
    pub name: String,
    /// Its type.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub len: usize,
}

/// The type that safetensors calls `name`.
pub fn dtype(name: &str) -> Option<Dtype> {
    serde_json::from_value(serde_json::Value::String(name.into())).ok()
}

/// Sorts the arrays into the order of the file. Returns the file's first bytes, up to the first array.
///
/// # Errors
/// A sentence about the array or the metadata that cannot be in a file.
pub fn lay_out<T>(arrays: &mut [(ArraySpec, T)], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, String> {
    arrays.sort_by(|(one, _), (other, _)| other.dtype.cmp(&one.dtype).then_with(|| one.name.cmp(&other.name)));
    let (mut infos, mut offset) = (Vec::with_capacity(arrays.len()), 0usize);
    for (array, _) in arrays.iter() {
        if array.name == "__metadata__" {
            return Err("an array cannot be called `__metadata__`".into());
        }
        let too_large = || format!("array `{}` is too large", array.name);
        let count = array.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        let bits = count.and_then(|count| count.checked_mul(array.dtype.bitsize())).ok_or_else(too_large)?;
        if bits != array.len * 8 {
            let (found, shape) = (array.len, &array.shape);
            return Err(format!("array `{}` has {found} bytes, not those of {shape:?} {:?}", array.name, array.dtype));
        }
        let end = offset.checked_add(array.len).ok_or_else(too_large)?;
        let info = TensorInfo { dtype: array.dtype, shape: array.shape.clone(), data_offsets: (offset, end) };
        infos.push((array.name.clone(), info));
        offset = end;
    }
    let header = Metadata::new(None, infos).map_err(|error| error.to_string())?;
    let header = serde_json::to_string(&header).map_err(|error| error.to_string())?;
    let mut text = with_metadata(&header, metadata)?.into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    if text.len() > HEADER_BYTES_MAX {
        return Err(format!(
            "the names and shapes of the arrays need {} bytes, more than {HEADER_BYTES_MAX}",
            text.len()
        ));
    }
    let mut head = (text.len() as u64).to_le_bytes().to_vec();
    head.extend_from_slice(&text);
    Ok(head)
}

fn with_metadata(header: &str, metadata: &BTreeMap<String, String>) -> Result<String, String> {
    if metadata.is_empty() {
        return Ok(header.into());
    }
    let metadata = serde_json::to_string(metadata).map_err(|error| error.to_string())?;
    let rest = header.strip_prefix('{').unwrap_or(header);
    let comma = if rest.starts_with('}') { "" } else { "," };
    Ok(format!("{{\"__metadata__\":{metadata}{comma}{rest}"))
}
