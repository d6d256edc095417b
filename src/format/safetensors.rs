//! safetensors: the length of a JSON header (8 bytes), the header, the values.
//!
//! 1. The header gives the type, shape and range of each tensor. Ranges count from the end of the header. The header
//!    is read at once, within a bound, and parsed entry by entry, so listing retains no entries.
//! 2. A range must have the length that type and shape require. Gaps, trailing bytes, entries in any order and unknown
//!    types are accepted: bytes without a tensor are opaque, and an unknown type has the length of its range.
//!
//! The crate `safetensors` defines the types and makes the headers of exported files, but does not parse here:
//! - `SafeTensors::read_metadata` needs the whole file as one slice. Here, files are read at offsets.
//! - `Metadata` parses a header alone, but holds its entries several times: 460,000 tensors (29 MiB of JSON) took
//!   about 400 MiB. Restoring one of 300,000 tensors must not take 200 MB in all (`tests/it/cli/tensor.rs`).
//! - It silently drops the first of two tensors with the same name. Here, such a file is defective.
//! - It refuses gaps and unknown types, so those headers would be parsed twice.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::array::{Array, ListedArray};
use super::dtype::Dtype;
use super::read::{FormatError, Window};
use super::tensor::{
    DIMENSIONS_MAX, ListingChecks, Recognised, TENSORS_MAX, Tensor, checked_model, insert_short, value_count,
};
use super::value_type::{KnownType, ValueType};
use super::{Format, HEAD_BYTES};

/// Longest header that is read, as in the reference implementation.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// A larger first number is not the length of a header.
const HEADER_BYTES_CREDIBLE: u64 = 1 << 40;
/// Bytes of the length of the header.
const PREFIX_BYTES: u64 = 8;

/// Files of Hugging Face's safetensors library.
pub struct Safetensors;

impl Format for Safetensors {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["safetensors"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        let Some((prefix, json)) = head.split_first_chunk::<8>() else { return false };
        let [b'{', rest @ ..] = json else { return false };
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        let is_object = next.map_or(head.len() >= HEAD_BYTES, |byte| matches!(byte, b'"' | b'}'));
        (2..HEADER_BYTES_CREDIBLE).contains(&u64::from_le_bytes(*prefix)) && is_object
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        let mut tensors = Vec::new();
        let metadata = read_header(window, &mut |name, entry, start| {
            let EntryRange { offset, len, known } = entry.range(&name, start)?;
            let mut shape = entry.shape.0;
            if let Some(parts) = known.map(|known| known.parts).filter(|parts| *parts > 1) {
                shape.push(parts);
            }
            tensors.push(Tensor { name, dtype: known.map_or(Dtype::Other, |known| known.dtype), shape, offset, len });
            Ok(())
        })?;
        checked_model(self.name(), tensors, metadata, window.len())
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        let mut checks = ListingChecks::new(window.len());
        read_header(window, &mut |name, entry, start| {
            let EntryRange { offset, len, known } = entry.range(&name, start)?;
            checks.add(&name, offset, len)?;
            let custom = || ValueType::custom(entry.dtype.clone().into_owned(), Dtype::Other, None);
            let value_type = known.map_or_else(custom, ValueType::from);
            visit(ListedArray::Array(Array { name, value_type, shape: entry.shape.0, strides: None, offset, len }));
            Ok(())
        })?;
        checks.finish()?;
        Ok(Some(self.name()))
    }
}

/// Passes the entries of the header and the offset of the values to `visit`. Returns the metadata.
fn read_header(window: Window, visit: &mut EntrySink<'_>) -> Result<BTreeMap<String, String>, FormatError> {
    let prefix = window.read(0, PREFIX_BYTES)?;
    let header_len = u64::from_le_bytes(prefix.first_chunk().copied().unwrap_or_default());
    let len_max = window.len() - PREFIX_BYTES;
    if header_len > len_max {
        return FormatError::defective(format!("expected a header within {len_max} bytes, found one of {header_len}"));
    }
    if header_len > HEADER_BYTES_MAX {
        return FormatError::defective(format!(
            "expected a header of at most {HEADER_BYTES_MAX} bytes, found {header_len}"
        ));
    }
    let json = window.read(PREFIX_BYTES, header_len)?;
    let (mut metadata, mut entry_error) = (BTreeMap::new(), None);
    let entries = HeaderVisitor {
        visit,
        start: PREFIX_BYTES + header_len,
        count: 0,
        metadata: &mut metadata,
        error: &mut entry_error,
    };
    let mut input = serde_json::Deserializer::from_slice(&json);
    let parsed = entries.deserialize(&mut input).and_then(|()| input.end());
    match (entry_error, parsed) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => FormatError::defective(format!("expected a header of tensors, found: {error}")),
        (None, Ok(())) => Ok(metadata),
    }
}

/// Receives the name of an entry, the entry, and the offset of the values.
type EntrySink<'a> = dyn FnMut(String, HeaderEntry<'_>, u64) -> Result<(), FormatError> + 'a;

#[derive(Deserialize)]
struct HeaderEntry<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// Location of a tensor in the file, and its type if it is known.
struct EntryRange {
    offset: u64,
    len: u64,
    known: Option<&'static KnownType>,
}

impl HeaderEntry<'_> {
    fn range(&self, name: &str, start: u64) -> Result<EntryRange, FormatError> {
        let (from, until) = self.data_offsets;
        let Some((len, offset)) = until.checked_sub(from).zip(start.checked_add(from)) else {
            return FormatError::defective(format!("expected a range for tensor {name:?}, found {from} to {until}"));
        };
        let known = KnownType::in_safetensors(&self.dtype);
        if let Some(KnownType { name: label, bits, .. }) = known {
            let shape = &self.shape.0;
            let expected = value_count(shape).and_then(|count| count.checked_mul(*bits));
            if expected.is_none() || expected != len.checked_mul(8) {
                return FormatError::defective(format!(
                    "expected the bytes of {label} {shape:?} for tensor {name:?}, found {len}"
                ));
            }
        }
        Ok(EntryRange { offset, len, known })
    }
}

/// Parser of the header. It retains no entries.
struct HeaderVisitor<'v, 'c> {
    visit: &'v mut EntrySink<'c>,
    start: u64,
    count: usize,
    metadata: &'v mut BTreeMap<String, String>,
    /// Error of the entry that ended parsing.
    error: &'v mut Option<FormatError>,
}

impl<'de> DeserializeSeed<'de> for HeaderVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object of tensors")
    }
    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                *self.metadata = map.next_value::<ShortStrings>()?.0;
                continue;
            }
            if self.count == TENSORS_MAX {
                return Err(de::Error::custom(format!("more than {TENSORS_MAX} tensors")));
            }
            self.count += 1;
            let entry = map.next_value::<HeaderEntry>()?;
            if let Err(error) = (self.visit)(name, entry, self.start) {
                *self.error = Some(error);
                return Err(de::Error::custom("a defective entry"));
            }
        }
        Ok(())
    }
}

/// Metadata: the entries that are short enough to retain.
struct ShortStrings(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for ShortStrings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ShortStringsVisitor)
    }
}

struct ShortStringsVisitor;

impl<'de> Visitor<'de> for ShortStringsVisitor {
    type Value = ShortStrings;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object of strings")
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ShortStrings, M::Error> {
        let mut strings = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            insert_short(&mut strings, key, value);
        }
        Ok(ShortStrings(strings))
    }
}

struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "a list of at most {DIMENSIONS_MAX} sizes")
    }
    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Shape, S::Error> {
        let mut shape = Vec::new();
        while let Some(size) = list.next_element()? {
            if shape.len() == DIMENSIONS_MAX {
                return Err(de::Error::invalid_length(shape.len() + 1, &self));
            }
            shape.push(size);
        }
        Ok(Shape(shape))
    }
}
