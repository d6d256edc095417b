//! Tagged payload: a payload with its derivation and phase, as containers store it.

use super::{Derivation, WHAT, decode, encode};
use crate::codec::Scratch;
use crate::error::Result;
use crate::wire::WireReader;

/// Most bytes before the first whole element.
const PHASE_MAX: usize = 7;

/// Appends a tag and the delta of `raw` to `base` to `out`. `phase` bytes (at most 7) precede the first whole element
/// of both.
///
/// The tag is one byte: the derivation id in its low four bits, the phase above. The first `phase` bytes of `raw`
/// follow unchanged, then the payload of [`encode`] for the rest.
///
/// # Errors
/// Those of [`encode`].
pub fn encode_tagged(
    derivation: Derivation,
    phase: usize,
    raw: &[u8],
    base: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let phase = phase.min(PHASE_MAX).min(raw.len()).min(base.len());
    out.push(derivation.id() | (phase as u8) << 4);
    out.extend_from_slice(&raw[..phase]);
    encode(derivation, &raw[phase..], &base[phase..], scratch, out)
}

/// Inverse of [`encode_tagged`]: appends `raw_len` bytes to `out`.
///
/// # Errors
/// Those of [`decode`], and [`crate::Error::Corrupt`] if the phase does not fit.
pub fn decode_tagged(
    tagged: &[u8],
    base: &[u8],
    raw_len: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut reader = WireReader::new(WHAT, 0, tagged);
    let first = reader.u8()?;
    let phase = usize::from(first >> 4);
    let (head, payload) = (reader.bytes(phase)?, reader.bytes(reader.remaining())?);
    let rest = raw_len.checked_sub(phase).zip(base.get(phase..)).filter(|_| phase <= PHASE_MAX);
    let Some((rest_len, base)) = rest else {
        return Err(
            reader.error(format!("at most {PHASE_MAX} bytes before an element, in chunk and base"), phase.to_string())
        );
    };
    out.extend_from_slice(head);
    decode(first & 15, payload, base, rest_len, scratch, out)
}
