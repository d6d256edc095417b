//! Weight files of Core ML's `.mlpackage`: a header, then for each blob its metadata (64 bytes) and its values.
//!
//! 1. Header, metadata and values begin at multiples of 64 bytes. The next metadata follow the values.
//! 2. The file names no tensors and has no shapes: a blob is called by the offset of its metadata, as the model beside
//!    the file does, and has one dimension.

use super::Format;
use super::array::ListedArray;
use super::read::{FormatError, Window, WindowReader};
use super::tensor::Recognised;
use super::typed::{TYPED_MAX, TypedTensor, TypedTensors, named_type};
use super::value_type::KnownType;

/// Name of the format.
const COREML: &str = "coreml";
/// The only version of this layout.
const VERSION: u32 = 2;
/// Bytes of the header and of metadata, and what everything is aligned to.
const RECORD_BYTES: u64 = 64;
/// First bytes of metadata.
const SENTINEL: u32 = 0xdead_beef;
/// Names of the types by their numbers. Values of the others are not whole bytes.
const TYPES: &[(u32, &str)] = &[
    (1, "F16"),
    (2, "F32"),
    (3, "U8"),
    (4, "I8"),
    (5, "BF16"),
    (6, "I16"),
    (7, "U16"),
    (14, "I32"),
    (15, "U32"),
    (16, "F8_E4M3"),
    (17, "F8_E5M2"),
];

/// Weight files of Core ML.
pub struct CoreMl;

impl Format for CoreMl {
    fn name(&self) -> &'static str {
        COREML
    }

    fn extensions(&self) -> &'static [&'static str] {
        // The files are called weight.bin, and torch's formats name the extension.
        &[]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        let number =
            |at: usize| head.get(at..).and_then(|rest| rest.first_chunk()).map(|number| u32::from_le_bytes(*number));
        let reserved = head.get(8..RECORD_BYTES as usize);
        number(4) == Some(VERSION)
            && number(RECORD_BYTES as usize) == Some(SENTINEL)
            && reserved.is_some_and(|reserved| reserved.iter().all(|byte| *byte == 0))
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        tensors(window)?.found(COREML, window)
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        tensors(window)?.list(COREML, window, visit)
    }
}

fn tensors(window: Window) -> Result<TypedTensors, FormatError> {
    let mut reader = WindowReader::scattered(window);
    let count = reader.u32()?;
    if count as usize > TYPED_MAX {
        return FormatError::defective(format!("expected at most {TYPED_MAX} blobs, found {count}"));
    }
    let (mut tensors, mut next) = (TypedTensors::default(), RECORD_BYTES);
    for _ in 0..count {
        let (tensor, end) = blob(&mut reader, next)?;
        tensors.push(tensor)?;
        next = end.next_multiple_of(RECORD_BYTES);
    }
    Ok(tensors)
}

/// The blob whose metadata begin at byte `at`, and where its values end.
fn blob(reader: &mut WindowReader, at: u64) -> Result<(TypedTensor, u64), FormatError> {
    reader.seek(at);
    let (sentinel, number) = (reader.u32()?, reader.u32()?);
    let (len, offset) = (reader.u64()?, reader.u64()?);
    if sentinel != SENTINEL || offset < at + RECORD_BYTES || !offset.is_multiple_of(RECORD_BYTES) {
        return FormatError::defective(format!(
            "expected the metadata of a blob at byte {at} and its values at a multiple of {RECORD_BYTES} after it, \
             found {sentinel:#010x} and values at byte {offset}"
        ));
    }
    reader.seek(offset);
    reader.skip(len)?;
    let name = at.to_string();
    let label = TYPES.iter().find(|row| row.0 == number).map(|row| row.1);
    let tensor = match label.and_then(KnownType::named) {
        Some(known) => TypedTensor::known(name, known, vec![len / (known.bits / 8)], offset, len)?,
        None => TypedTensor { name, value_type: named_type("other"), shape: vec![len], offset, len },
    };
    Ok((tensor, offset + len))
}
