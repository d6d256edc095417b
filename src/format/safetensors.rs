//! safetensors: the length of a JSON header (8 bytes), the header, the values.
//!
//! 1. The header names each tensor's type, shape and range behind the header. It is read in one piece of bounded
//!    size, entry by entry, so that a name given twice is seen.
//! 2. A range must be as long as type and shape say. Gaps, bytes behind the last tensor, any order of the entries
//!    and types not known here are no harm: what no tensor covers is opaque, and the range gives the length.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::dtype::Dtype;
use super::read::{Fault, Window};
use super::tensor::{DIMENSIONS_MAX, Recognised, TENSORS_MAX, Tensor, note, settle, values};
use super::{Format, HEAD_BYTES};

/// Longest header read.
const HEADER_BYTES_MAX: u64 = 32 << 20;
/// A first number beyond this is no header's length.
const HEADER_BYTES_CREDIBLE: u64 = 1 << 40;
/// Bytes of the header's length.
const PREFIX_BYTES: u64 = 8;

/// Files of Hugging Face's safetensors.
pub struct Safetensors;

impl Format for Safetensors {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn may_be(&self, head: &[u8], _: u64) -> bool {
        let Some((prefix, json)) = head.split_first_chunk::<8>() else { return false };
        let [b'{', rest @ ..] = json else { return false };
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        let is_object = next.map_or(head.len() >= HEAD_BYTES, |byte| matches!(byte, b'"' | b'}'));
        (2..HEADER_BYTES_CREDIBLE).contains(&u64::from_le_bytes(*prefix)) && is_object
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, Fault> {
        let prefix = window.read(0, PREFIX_BYTES)?;
        let header_len = u64::from_le_bytes(prefix.first_chunk().copied().unwrap_or_default());
        let room = window.len() - PREFIX_BYTES;
        if header_len > room {
            return Fault::because(format!("expected a header within {room} bytes, found one of {header_len}"));
        }
        if header_len > HEADER_BYTES_MAX {
            return Fault::because(format!(
                "expected a header of at most {HEADER_BYTES_MAX} bytes, found {header_len}"
            ));
        }
        let json = window.read(PREFIX_BYTES, header_len)?;
        let header: Header = match serde_json::from_slice(&json) {
            Ok(header) => header,
            Err(error) => return Fault::because(format!("expected a header of tensors, found: {error}")),
        };
        let start = PREFIX_BYTES + header_len;
        let tensors = header.entries.into_iter().map(|(name, entry)| entry.tensor(name, start));
        let tensors = tensors.collect::<Result<Vec<Tensor>, Fault>>()?;
        settle(self.name(), tensors, header.metadata, window.len())
    }
}

/// Types by their names in headers, with their bits. Complex values are pairs of floats.
const TYPES: &[(&str, Dtype, u64)] = &[
    ("F64", Dtype::Float64, 64),
    ("F32", Dtype::Float32, 32),
    ("F16", Dtype::Float16, 16),
    ("BF16", Dtype::Bfloat16, 16),
    ("F8_E4M3", Dtype::Float8, 8),
    ("F8_E5M2", Dtype::Float8, 8),
    ("F8_E8M0", Dtype::Float8, 8),
    ("F8_E4M3FNUZ", Dtype::Float8, 8),
    ("F8_E5M2FNUZ", Dtype::Float8, 8),
    ("F6_E2M3", Dtype::Other, 6),
    ("F6_E3M2", Dtype::Other, 6),
    ("F4", Dtype::Other, 4),
    ("I64", Dtype::Int64, 64),
    ("U64", Dtype::Int64, 64),
    ("I32", Dtype::Int32, 32),
    ("U32", Dtype::Int32, 32),
    ("I16", Dtype::Int16, 16),
    ("U16", Dtype::Int16, 16),
    ("I8", Dtype::Int8, 8),
    ("U8", Dtype::Int8, 8),
    ("BOOL", Dtype::Int8, 8),
    ("C64", Dtype::Float32, 64),
];

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

impl Entry {
    fn tensor(self, name: String, start: u64) -> Result<Tensor, Fault> {
        let (from, until) = self.data_offsets;
        let Some((len, offset)) = until.checked_sub(from).zip(start.checked_add(from)) else {
            return Fault::because(format!("expected a range for tensor {name:?}, found {from} to {until}"));
        };
        let (mut shape, mut dtype) = (self.shape.0, Dtype::Other);
        if let Some((label, known, bits)) = TYPES.iter().find(|row| row.0 == self.dtype) {
            let expected = values(&shape).and_then(|count| count.checked_mul(*bits));
            if expected.is_none() || expected != len.checked_mul(8) {
                return Fault::because(format!(
                    "expected the bytes of {label} {shape:?} for tensor {name:?}, found {len}"
                ));
            }
            dtype = *known;
            if *label == "C64" {
                shape.push(2);
            }
        }
        Ok(Tensor { name, dtype, shape, offset, len })
    }
}

#[derive(Default)]
struct Header {
    entries: Vec<(String, Entry)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object of tensors")
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Header, M::Error> {
        let mut header = Header::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                header.metadata = map.next_value::<Notes>()?.0;
            } else if header.entries.len() < TENSORS_MAX {
                header.entries.push((name, map.next_value()?));
            } else {
                return Err(de::Error::custom(format!("more than {TENSORS_MAX} tensors")));
            }
        }
        Ok(header)
    }
}

/// Strings by name, as many as are worth keeping.
struct Notes(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Notes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NotesVisitor)
    }
}

struct NotesVisitor;

impl<'de> Visitor<'de> for NotesVisitor {
    type Value = Notes;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object of strings")
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Notes, M::Error> {
        let mut notes = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            note(&mut notes, key, value);
        }
        Ok(Notes(notes))
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
