//! Tagged payload: a payload with its derivation and phase, as containers store it.

use super::payload::{standalone, try_smaller};
use super::{Derivation, WHAT, apply, decode, encode};
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::wire::WireReader;

/// Most bytes before the first whole element.
const PHASE_MAX: usize = 7;
/// Quantised blocks that take more eighths than this of the chunk are also encoded without their base.
const QUANTISED_EIGHTHS: usize = 4;
/// In place of a derivation id: the id follows as a varint.
const LONG_ID: u8 = 15;

/// Appends a tag and the delta of `raw` to `base` to `out`. `phase` bytes (at most 7) precede the first whole element
/// of both.
///
/// The tag is one byte: the derivation id in its low four bits, the phase above. An id of 15 means that the id follows
/// as a varint, which only newer versions write. The first `phase` bytes of `raw`
/// follow unchanged, then the payload of [`encode`] for the rest.
///
/// # Errors
/// Errors of [`encode`].
pub fn encode_tagged(
    derivation: Derivation,
    phase: usize,
    raw: &[u8],
    base: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let phase = phase.min(PHASE_MAX).min(raw.len()).min(base.len());
    let start = out.len();
    out.push(derivation.id() | (phase as u8) << 4);
    out.extend_from_slice(&raw[..phase]);
    encode(derivation, &raw[phase..], &base[phase..], scratch, out)?;
    let is_quantised = matches!(derivation, Derivation::Quantised(_) | Derivation::Scaled(_));
    if is_quantised && (out.len() - start) * 8 > raw.len() * QUANTISED_EIGHTHS {
        try_smaller(start, out, &mut Vec::new(), |out| {
            out.push(Derivation::Bytes.id());
            standalone(ElementType::Unknown, raw, scratch, out)
        })?;
    }
    Ok(())
}

/// Inverse of [`encode_tagged`]: appends `raw_len` bytes to `out`.
///
/// # Errors
/// Errors of [`decode`], and [`crate::Error::Corrupt`] if the phase does not fit.
pub fn decode_tagged(
    tagged: &[u8],
    base: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let TaggedPayload { id, head, payload, reader } = TaggedPayload::read(tagged)?;
    let phase = head.len();
    let rest = raw_len.checked_sub(phase).zip(base.get(phase..));
    let Some((rest_len, base)) = rest else {
        return Err(reader.error("no more bytes before an element than chunk and base have", phase.to_string()));
    };
    out.extend_from_slice(head);
    decode(id, payload, base, rest_len, scratch, out)
}

/// Like [`decode_tagged`], in place: `content` is the base before, and the chunk, which is as long, afterwards. Returns
/// `false`, and changes nothing, where [`apply`] does.
///
/// # Errors
/// Errors of [`decode_tagged`]. `content` may then be neither base nor chunk.
pub fn apply_tagged(tagged: &[u8], content: &mut [u8], scratch: &mut Scratch) -> Result<bool> {
    let TaggedPayload { id, head, payload, .. } = TaggedPayload::read(tagged)?;
    // With more bytes before the first element than the chunk has, `decode_tagged` refuses it.
    let Some((before, rest)) = content.split_at_mut_checked(head.len()) else { return Ok(false) };
    let is_decoded = apply(id, payload, rest, scratch)?;
    if is_decoded {
        before.copy_from_slice(head);
    }
    Ok(is_decoded)
}

/// The parts of a tagged payload.
struct TaggedPayload<'a> {
    id: u64,
    /// The bytes before the first whole element.
    head: &'a [u8],
    payload: &'a [u8],
    /// What has read them, for errors.
    reader: WireReader<'a>,
}

impl<'a> TaggedPayload<'a> {
    fn read(tagged: &'a [u8]) -> Result<Self> {
        let mut reader = WireReader::new(WHAT, 0, tagged);
        let first = reader.u8()?;
        let phase = usize::from(first >> 4);
        if phase > PHASE_MAX {
            return Err(reader.unsupported(format!("phase {phase}")));
        }
        let id = if first & 15 == LONG_ID { reader.varint()? } else { u64::from(first & 15) };
        let (head, payload) = (reader.bytes(phase)?, reader.bytes(reader.remaining())?);
        Ok(TaggedPayload { id, head, payload, reader })
    }
}
