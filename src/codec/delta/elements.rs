//! Words: the forms for floats of 2 and 4 bytes, and the choice among them.
//!
//! 1. The differences are counted, which tells the size of form 3 but for a few bytes.
//! 2. Where nearly all words are unchanged, form 4 is tried, and form 2 for its matches.
//! 3. Otherwise form 1 is tried where its estimated size is near or below, and forms 1 and 2 where windows of what
//!    they compress come again: of stretches for form 1, of the whole for form 2.
//! 4. Where form 3 saves little, form 2 is tried whatever samples say: such a base is none, and what XOR leaves of it
//!    may be anything.

use super::{CONTEXT, DeltaBuffers, MASKED, SHORT_BYTES, context, is_front, masked, standalone, try_smaller, xor};
use crate::codec::floats;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::elements as kernel;
use crate::kernel::windows::share_seen_before;
use crate::wire::{WireReader, put_varint};

/// Of so many words one may be changed where form 4 is tried.
const FEW: usize = 20;
/// Form 2 is tried where form 3 takes this share of the block: in quarters.
const LITTLE_QUARTERS: usize = 3;
/// Form 1 is tried if its estimate is at most this much above the size of form 3.
const NEAR: f64 = 1.06;

/// Appends the smallest form to `out`.
pub(super) fn encode(
    word: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    if is_front(raw, base) {
        out.push(super::SAME);
        return Ok(());
    }
    let start = out.len();
    let is_short = raw.len() <= SHORT_BYTES;
    let width = word.width();
    let both = raw.len().min(base.len()) / width * width;
    let ((raw_words, rest), base_words) = (raw.split_at(both), base.get(..both).unwrap_or_default());
    let (mut is_few, mut is_near, mut least) = (false, both == 0, raw.len());
    let DeltaBuffers { context, masked, combined, trial, windows, .. } = buffers;
    if both > 0 {
        let found = context::analyse(word, raw_words, base_words, context);
        is_few = (both / width - found.unchanged) * FEW <= both / width;
        least = found.bytes;
        is_near = floats::estimate(word, raw_words) as f64 <= found.bytes as f64 * NEAR;
        let encoded = with_rest(word, CONTEXT, rest, scratch, out, |out, _| {
            found.write(context, out);
            Ok(())
        });
        encoded?;
    }
    if both > 0 && (is_few || is_short) {
        try_smaller(start, out, trial, |out| {
            with_rest(word, MASKED, rest, scratch, out, |out, scratch| {
                masked::encode(word, raw_words, base_words, masked, scratch, out)
            })
        })?;
    }
    let saves_little = least / LITTLE_QUARTERS >= raw.len() / 4;
    let may_repeat = is_few || is_short || saves_little;
    let new_share = if may_repeat { 0.0 } else { 1.0 - share_seen_before(raw, base, windows) };
    if may_repeat || xor_seems(raw, base, new_share, least, [combined, trial], scratch)? {
        try_smaller(start, out, trial, |out| xor(raw, base, combined, scratch, out))?;
    }
    if is_near || is_short || floats::repeats(raw) {
        try_smaller(start, out, trial, |out| standalone(word, raw, scratch, out))?;
    }
    Ok(())
}

/// Stretches that form 2 is tried on, and their bytes.
const STRETCHES: usize = 4;
const STRETCH_BYTES: usize = 2 << 10;
/// Form 2 of stretches may be larger than its share by this much: long runs compress better.
const SHORTER: f64 = 1.25;

/// Whether form 2 seems to have less than `least` bytes: by what it has of stretches, where `new_share` of the whole
/// did not come before.
fn xor_seems(
    raw: &[u8],
    base: &[u8],
    new_share: f64,
    least: usize,
    [combined, trial]: [&mut Vec<u8>; 2],
    scratch: &mut Scratch,
) -> Result<bool> {
    combined.clear();
    for number in 0..STRETCHES {
        let start = raw.len().saturating_sub(STRETCH_BYTES) * number / (STRETCHES - 1);
        let (from, base) = (combined.len(), base.get(start..).unwrap_or_default());
        combined.extend_from_slice(raw.get(start..raw.len().min(start + STRETCH_BYTES)).unwrap_or_default());
        kernel::xor_in_place(combined.get_mut(from..).unwrap_or_default(), base);
    }
    // Where nothing comes again, the context form has less.
    if new_share == 1.0 && !floats::repeats(combined) {
        return Ok(false);
    }
    trial.clear();
    scratch.compress(combined, super::LEVEL, trial)?;
    let whole = trial.len() as f64 / combined.len().max(1) as f64 * raw.len() as f64 * new_share;
    Ok(whole < least as f64 * SHORTER)
}

/// Appends `form`, what `write` appends, and the encoding of `rest`.
fn with_rest(
    word: ElementType,
    form: u8,
    rest: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>, &mut Scratch) -> Result<()>,
) -> Result<()> {
    out.push(form);
    if rest.len() < word.width() {
        write(out, scratch)?;
        out.extend_from_slice(rest);
        return Ok(());
    }
    let mut own = Vec::new();
    write(&mut own, scratch)?;
    put_varint(out, own.len() as u64);
    out.extend_from_slice(&own);
    floats::encode(word, 0, rest, scratch, out)
}

/// Appends the `raw_len` bytes that forms 3 and 4 tell.
#[expect(clippy::too_many_arguments, reason = "what was read already, what is to be read, and work space")]
pub(super) fn decode(
    word: ElementType,
    form: u8,
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let width = word.width();
    let both = raw_len.min(base.len()) / width * width;
    let rest_len = raw_len - both;
    let own_len = match rest_len < width {
        true => reader.remaining().checked_sub(rest_len),
        false => usize::try_from(reader.varint()?).ok(),
    };
    let own_len = own_len.ok_or_else(|| reader.error(format!("{rest_len} more bytes"), "fewer"))?;
    let mut own = WireReader::new(super::WHAT, reader.offset(), reader.bytes(own_len)?);
    let start = out.len();
    let base = base.get(..both).unwrap_or_default();
    if form == CONTEXT {
        out.resize(start + both, 0);
        let space = out.get_mut(start..).unwrap_or_default();
        context::decode(word, &mut own, base, &mut buffers.context, space)?;
    } else {
        masked::decode(word, &mut own, base, buffers, scratch, out)?;
    }
    let rest = reader.bytes(reader.remaining())?;
    if rest_len < width {
        out.extend_from_slice(rest);
        return Ok(());
    }
    floats::decode(rest, rest_len, scratch, out)
}
