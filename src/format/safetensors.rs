//! safetensors: the length of a JSON header (8 bytes), the header, the values.
//!
//! 1. The header names each tensor's type, shape and range behind the header. It is read in one piece of bounded
//!    size, entry by entry, so that a name given twice is seen and listing keeps none of them.
//! 2. A range must be as long as type and shape say. Gaps, bytes behind the last tensor, any order of the entries
//!    and types not known here are no harm: what no tensor covers is opaque, and the range gives the length.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::array::{Array, Listed};
use super::dtype::Dtype;
use super::read::{Fault, Window};
use super::tensor::{DIMENSIONS_MAX, Recognised, Spans, TENSORS_MAX, Tensor, note, settle, values};
use super::value::{Value, ValueType};
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
        let mut tensors = Vec::new();
        let metadata = read(window, &mut |name, entry, start| {
            let Placed { offset, len, known } = entry.place(&name, start)?;
            let mut shape = entry.shape.0;
            if let Some(parts) = known.map(|known| known.parts).filter(|parts| *parts > 1) {
                shape.push(parts);
            }
            tensors.push(Tensor { name, dtype: known.map_or(Dtype::Other, |known| known.dtype), shape, offset, len });
            Ok(())
        })?;
        settle(self.name(), tensors, metadata, window.len())
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(Listed)) -> Result<Option<&'static str>, Fault> {
        let mut spans = Spans::new(window.len());
        read(window, &mut |name, entry, start| {
            let Placed { offset, len, known } = entry.place(&name, start)?;
            spans.add(&name, offset, len)?;
            let named = || Value::called(entry.dtype.clone().into_owned(), Dtype::Other, None);
            let value = known.map_or_else(named, Value::from);
            visit(Listed::Array(Array { name, value, shape: entry.shape.0, strides: None, offset, len }));
            Ok(())
        })?;
        spans.settle()?;
        Ok(Some(self.name()))
    }
}

/// Hands out the entries of the header, each with where the values begin; what the file says of itself.
fn read(window: Window, visit: &mut Visit<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let prefix = window.read(0, PREFIX_BYTES)?;
    let header_len = u64::from_le_bytes(prefix.first_chunk().copied().unwrap_or_default());
    let room = window.len() - PREFIX_BYTES;
    if header_len > room {
        return Fault::because(format!("expected a header within {room} bytes, found one of {header_len}"));
    }
    if header_len > HEADER_BYTES_MAX {
        return Fault::because(format!("expected a header of at most {HEADER_BYTES_MAX} bytes, found {header_len}"));
    }
    let json = window.read(PREFIX_BYTES, header_len)?;
    let (mut metadata, mut fault) = (BTreeMap::new(), None);
    let entries =
        Entries { visit, start: PREFIX_BYTES + header_len, count: 0, metadata: &mut metadata, fault: &mut fault };
    let mut input = serde_json::Deserializer::from_slice(&json);
    let parsed = entries.deserialize(&mut input).and_then(|()| input.end());
    match (fault, parsed) {
        (Some(fault), _) => Err(fault),
        (None, Err(error)) => Fault::because(format!("expected a header of tensors, found: {error}")),
        (None, Ok(())) => Ok(metadata),
    }
}

/// Takes an entry: its name, what it says, and where the values begin.
type Visit<'a> = dyn FnMut(String, Entry<'_>, u64) -> Result<(), Fault> + 'a;

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// Where a tensor lies, and its type if that is known.
struct Placed {
    offset: u64,
    len: u64,
    known: Option<&'static ValueType>,
}

impl Entry<'_> {
    fn place(&self, name: &str, start: u64) -> Result<Placed, Fault> {
        let (from, until) = self.data_offsets;
        let Some((len, offset)) = until.checked_sub(from).zip(start.checked_add(from)) else {
            return Fault::because(format!("expected a range for tensor {name:?}, found {from} to {until}"));
        };
        let known = ValueType::in_safetensors(&self.dtype);
        if let Some(ValueType { name: label, bits, .. }) = known {
            let shape = &self.shape.0;
            let expected = values(shape).and_then(|count| count.checked_mul(*bits));
            if expected.is_none() || expected != len.checked_mul(8) {
                return Fault::because(format!(
                    "expected the bytes of {label} {shape:?} for tensor {name:?}, found {len}"
                ));
            }
        }
        Ok(Placed { offset, len, known })
    }
}

/// The header, whose entries are not kept.
struct Entries<'v, 'c> {
    visit: &'v mut Visit<'c>,
    start: u64,
    count: usize,
    metadata: &'v mut BTreeMap<String, String>,
    /// Why an entry was not taken.
    fault: &'v mut Option<Fault>,
}

impl<'de> DeserializeSeed<'de> for Entries<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object of tensors")
    }
    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                *self.metadata = map.next_value::<Notes>()?.0;
                continue;
            }
            if self.count == TENSORS_MAX {
                return Err(de::Error::custom(format!("more than {TENSORS_MAX} tensors")));
            }
            self.count += 1;
            let entry = map.next_value::<Entry>()?;
            if let Err(fault) = (self.visit)(name, entry, self.start) {
                *self.fault = Some(fault);
                return Err(de::Error::custom("an entry that is none"));
            }
        }
        Ok(())
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
