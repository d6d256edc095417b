//! Sparse: the gaps between changed elements, and these elements. Decoding takes a copy of the base, unless it is in
//! place, and a time by the number of changes.
//!
//! | bytes | meaning |
//! |---|---|
//! | varint | number of changed elements |
//! | a plane of [`crate::codec::floats`] | a token for each of them: how many unchanged elements precede it |
//! | | the low bits that these tokens leave out, packed, the lowest bit of a byte first |
//! | 1 | how the changed elements follow: 0 as in mode 3, 1 as differences, 2 as steps |
//! | the rest | the changed elements as in mode 3, or a plane of a difference each, or steps as the gaps above |
//!
//! A gap below 4 is its token. Of a greater one the token has the number of bits and the second highest bit: 4 is 4 and
//! 5, 5 is 6 and 7, 6 is 8 to 11. A difference is the signed one of the bits of chunk and base: 0 is 1, 1 is -1, 2 is
//! 2, and so on. A step is the same in the order of the values, where a sign inverts all other bits.

use super::context;
use super::payload::LEVEL;
use crate::codec::entropy::packed::BitWriter;
use crate::codec::floats::plane;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::elements as kernel;
use crate::wire::{WireReader, put_varint};

/// Gaps below this are tokens; two tokens stand for each power of two from here on.
const LITERAL_GAPS: u32 = 4;
/// Greatest number of low bits that a token leaves out.
const EXTRA_BITS_MAX: u32 = 16;
/// Tokens in use.
const TOKENS: usize = (LITERAL_GAPS + 2 * EXTRA_BITS_MAX) as usize;
/// Context must save at least one in this many bytes of the whole: its tables take longer than a plane.
const CONTEXT_SHARE: usize = 32;
/// Elements that are compared at once: most runs are equal.
const RUN: usize = 16;
/// How changed elements follow.
const AS_CONTEXT: u8 = 0;
const AS_DIFFERENCES: u8 = 1;
const AS_STEPS: u8 = 2;

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct SparseBuffers {
    positions: Vec<u32>,
    numbers: Vec<u32>,
    tokens: Vec<u8>,
    extra: Vec<u8>,
    raw: Vec<u8>,
    base: Vec<u8>,
    steps: Vec<u8>,
    step_bits: Vec<u8>,
    trials: [Vec<u8>; 2],
    context: context::ContextBuffers,
}

impl SparseBuffers {
    /// Whether the changes that were encoded last, in `len` bytes, seem to repeat: zstd makes less of their gaps and
    /// of the XOR of the elements. Other modes find such repeats.
    pub(super) fn repeat(&mut self, len: usize, scratch: &mut Scratch, trial: &mut Vec<u8>) -> Result<bool> {
        let SparseBuffers { tokens, extra, raw: changed, base, trials: [combined, _], .. } = self;
        combined.clear();
        combined.extend_from_slice(tokens);
        combined.extend_from_slice(extra);
        let start = combined.len();
        combined.extend_from_slice(changed);
        kernel::xor_assign(combined.get_mut(start..).unwrap_or_default(), base);
        trial.clear();
        scratch.compress(combined, LEVEL, trial)?;
        Ok(trial.len() < len)
    }
}

/// The token of a gap or a step and the number of low bits that it leaves out. `None` for one that has no token.
fn token(gap: u32) -> Option<(u8, u32)> {
    if gap < LITERAL_GAPS {
        return Some((gap as u8, 0));
    }
    let extra = gap.ilog2() - 1;
    let token = LITERAL_GAPS + 2 * (extra - 1) + (gap >> extra & 1);
    (extra <= EXTRA_BITS_MAX).then_some((token as u8, extra))
}

/// The number of low bits that a token leaves out: of each two from [`LITERAL_GAPS`] on, one more than of those before.
const fn extra_bits(token: u8) -> u8 {
    token.saturating_sub(LITERAL_GAPS as u8 / 2) / 2
}

/// Of each token the number of low bits that it leaves out, and the gap without them.
const GAPS: [(u32, u32); TOKENS] = {
    let mut gaps = [(0, 0); TOKENS];
    let mut token = 0;
    while token < TOKENS as u32 {
        let extra = extra_bits(token as u8) as u32;
        gaps[token as usize] = if extra == 0 { (0, token) } else { (extra, (2 + token % 2) << extra) };
        token += 1;
    }
    gaps
};

/// The bits of a little-endian element.
fn bits_of<const W: usize>(element: [u8; W]) -> u32 {
    element.into_iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(byte))
}

/// The element with these bits.
fn element_of<const W: usize>(bits: u32) -> [u8; W] {
    let mut element = [0; W];
    element.iter_mut().zip(bits.to_le_bytes()).for_each(|(byte, new)| *byte = new);
    element
}

/// Bits of an integer that an element leaves out.
const fn unused_bits<const W: usize>() -> u32 {
    32 - 8 * W as u32
}

/// The difference of two elements that differ as a byte, if it is from -128 to 128.
fn difference<const W: usize>(raw: [u8; W], base: [u8; W]) -> Option<u8> {
    let unused = unused_bits::<W>();
    let difference = (bits_of(raw).wrapping_sub(bits_of(base)) << unused).cast_signed() >> unused;
    u8::try_from((difference.unsigned_abs() - 1) * 2 + u32::from(difference < 0)).ok()
}

/// The element with this difference from a base.
fn add<const W: usize>(base: [u8; W], difference: u8) -> [u8; W] {
    let steps = u32::from(difference / 2) + 1;
    let difference = if difference.is_multiple_of(2) { steps } else { steps.wrapping_neg() };
    element_of(bits_of(base).wrapping_add(difference))
}

/// The bits of an element as an integer in the order of the values, and the other way round: with the sign set, all
/// other bits are inverted.
fn in_order<const W: usize>(bits: u32) -> u32 {
    let sign = 1 << (W * 8 - 1);
    if bits & sign == 0 { bits } else { bits ^ (sign - 1) }
}

/// The step from an element to another one, as a number from 0 on. They differ.
fn step<const W: usize>(raw: [u8; W], base: [u8; W]) -> u32 {
    let unused = unused_bits::<W>();
    let step = in_order::<W>(bits_of(raw)).wrapping_sub(in_order::<W>(bits_of(base)));
    // The sign of a narrow step, too.
    let step = (step << unused).cast_signed() >> unused;
    step.unsigned_abs().wrapping_sub(1).wrapping_mul(2) + u32::from(step < 0)
}

/// The element that is this step away from a base.
fn take_step<const W: usize>(base: [u8; W], step: u32) -> [u8; W] {
    let steps = step / 2 + 1;
    let step = if step.is_multiple_of(2) { steps } else { steps.wrapping_neg() };
    let mask = u32::MAX >> unused_bits::<W>();
    element_of(in_order::<W>(in_order::<W>(bits_of(base)).wrapping_add(step) & mask))
}

/// What [`gather`] found.
struct Gathered {
    /// Whether every change is a difference of a byte.
    has_differences: bool,
    /// Whether every change is a step that has a token.
    has_steps: bool,
}

/// Fills `buffers` with the gaps and the changes between `base` and `raw`. `None` if a gap is too long.
fn gather<const W: usize>(raw: &[u8], base: &[u8], buffers: &mut SparseBuffers) -> Option<Gathered> {
    let SparseBuffers { tokens, extra, raw: changed, base: changed_base, steps, step_bits, trials, .. } = buffers;
    let [differences, trial] = trials;
    [&mut *tokens, extra, changed, changed_base, steps, step_bits, differences, trial].into_iter().for_each(Vec::clear);
    let (mut bits, mut low, mut expected) = (BitWriter::new(extra), BitWriter::new(step_bits), 0);
    let mut found = Gathered { has_differences: true, has_steps: true };
    let runs = raw.as_chunks::<W>().0.chunks(RUN).zip(base.as_chunks::<W>().0.chunks(RUN));
    for (start, (raw, base)) in (0..).step_by(RUN).zip(runs) {
        if raw == base {
            continue;
        }
        for (at, (raw, base)) in (start..).zip(raw.iter().zip(base)).filter(|(_, (raw, base))| raw != base) {
            let gap = at - expected;
            let (short, count) = token(gap)?;
            tokens.push(short);
            bits.put(gap & ((1 << count) - 1), count);
            changed.extend_from_slice(raw);
            changed_base.extend_from_slice(base);
            match difference(*raw, *base) {
                Some(difference) => differences.push(difference),
                None => found.has_differences = false,
            }
            let step = step(*raw, *base);
            match token(step) {
                Some((short, count)) => {
                    steps.push(short);
                    low.put(step & ((1 << count) - 1), count);
                }
                None => found.has_steps = false,
            }
            expected = at + 1;
        }
    }
    bits.finish();
    low.finish();
    Some(found)
}

/// Appends the encoding of `raw`, which has as many elements as `base`. Whether it is possible: a gap may be too long.
pub(super) fn encode(
    element_type: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut SparseBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let gathered = match element_type.width() {
        2 => gather::<2>(raw, base, buffers),
        4 => gather::<4>(raw, base, buffers),
        _ => None,
    };
    let Some(Gathered { has_differences, has_steps }) = gathered else {
        return Ok(false);
    };
    let SparseBuffers {
        tokens,
        extra,
        raw: changed,
        base: changed_base,
        steps,
        step_bits,
        trials: [differences, trial],
        context,
        ..
    } = buffers;
    let whole = out.len();
    put_varint(out, tokens.len() as u64);
    plane::encode(tokens, scratch, out)?;
    out.extend_from_slice(extra);
    let found = context::analyse(element_type, changed, changed_base, context);
    let start = out.len();
    out.push(AS_CONTEXT);
    found.write(context, out);
    if has_steps {
        plane::encode(steps, scratch, trial)?;
        trial.extend_from_slice(step_bits);
        if start + 1 + trial.len() < out.len() {
            out.truncate(start);
            out.push(AS_STEPS);
            out.extend_from_slice(trial);
        }
    }
    if has_differences {
        trial.clear();
        plane::encode(differences, scratch, trial)?;
        if start + 1 + trial.len() <= out.len() + (out.len() - whole) / CONTEXT_SHARE {
            out.truncate(start);
            out.push(AS_DIFFERENCES);
            out.extend_from_slice(trial);
        }
    }
    Ok(true)
}

/// Appends as many elements as `base` has to `out`. Reads all of `reader`.
pub(super) fn decode(
    element_type: ElementType,
    reader: &mut WireReader<'_>,
    base: &[u8],
    buffers: &mut SparseBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(base);
    apply(element_type, reader, out.get_mut(start..).unwrap_or_default(), buffers, scratch)
}

/// Decodes in place: `elements` are those of the base before, and those of the chunk afterwards. Reads all of `reader`.
pub(super) fn apply(
    element_type: ElementType,
    reader: &mut WireReader<'_>,
    elements: &mut [u8],
    buffers: &mut SparseBuffers,
    scratch: &mut Scratch,
) -> Result<()> {
    match element_type.width() {
        2 => apply_elements::<2>(element_type, reader, elements, buffers, scratch),
        4 => apply_elements::<4>(element_type, reader, elements, buffers, scratch),
        width => Err(reader.unsupported(format!("sparse changes of elements of {width} bytes"))),
    }
}

fn apply_elements<const W: usize>(
    element_type: ElementType,
    reader: &mut WireReader<'_>,
    elements: &mut [u8],
    buffers: &mut SparseBuffers,
    scratch: &mut Scratch,
) -> Result<()> {
    let elements = elements.as_chunks_mut::<W>().0;
    positions(elements.len(), reader, buffers, scratch)?;
    match reader.u8()? {
        AS_CONTEXT => {
            let SparseBuffers { positions, raw: changed, context, .. } = buffers;
            changed.clear();
            let of_base = positions.iter().filter_map(|at| elements.get(*at as usize));
            of_base.for_each(|element| changed.extend_from_slice(element));
            context::decode(element_type, reader, changed, context)?;
            replace(elements, positions.iter().zip(changed.as_chunks::<W>().0), |_, own| *own);
            Ok(())
        }
        AS_DIFFERENCES => {
            let SparseBuffers { positions, raw: changed, .. } = buffers;
            changed.resize(positions.len(), 0);
            let differences = plane::decode(reader, scratch, changed)?.unwrap_or(changed.as_slice());
            replace(elements, positions.iter().zip(differences), |base, difference| add(base, *difference));
            reader.finish()
        }
        AS_STEPS => {
            let count = buffers.positions.len();
            numbers(count, reader, buffers, scratch)?;
            let steps = buffers.positions.iter().zip(&buffers.numbers);
            replace(elements, steps, |base, step| take_step(base, *step));
            reader.finish()
        }
        unknown => Err(reader.unsupported(format!("changed elements of kind {unknown}"))),
    }
}

/// Replaces the elements at these positions by what `new` makes of each and its change.
fn replace<'a, const W: usize, T: 'a>(
    elements: &mut [[u8; W]],
    changes: impl Iterator<Item = (&'a u32, &'a T)>,
    new: impl Fn([u8; W], &T) -> [u8; W],
) {
    for (at, change) in changes {
        if let Some(element) = elements.get_mut(*at as usize) {
            *element = new(*element, change);
        }
    }
}

/// Reads the positions of the changed ones of `elements` elements.
fn positions(
    elements: usize,
    reader: &mut WireReader<'_>,
    buffers: &mut SparseBuffers,
    scratch: &mut Scratch,
) -> Result<()> {
    let count = reader.varint()?;
    if count > elements as u64 {
        return Err(reader.error(format!("at most {elements} changed elements"), count.to_string()));
    }
    numbers(count as usize, reader, buffers, scratch)?;
    let SparseBuffers { positions, numbers: gaps, .. } = buffers;
    positions.clear();
    let mut next = 0u64;
    positions.extend(gaps.iter().map(|gap| {
        let at = next + u64::from(*gap);
        next = at + 1;
        at as u32
    }));
    // They ascend: the last one is the greatest.
    if next > elements as u64 {
        return Err(reader.error(format!("positions below {elements}"), (next - 1).to_string()));
    }
    Ok(())
}

/// Reads `count` numbers that are stored as gaps are: a plane of tokens, then the bits that these leave out.
fn numbers(
    count: usize,
    reader: &mut WireReader<'_>,
    buffers: &mut SparseBuffers,
    scratch: &mut Scratch,
) -> Result<()> {
    let SparseBuffers { numbers, tokens, extra, .. } = buffers;
    tokens.resize(count, 0);
    let tokens = plane::decode(reader, scratch, tokens)?.unwrap_or(tokens.as_slice());
    let greatest = tokens.iter().copied().max().unwrap_or_default();
    if usize::from(greatest) >= TOKENS {
        return Err(reader.error(format!("a token below {TOKENS}"), greatest.to_string()));
    }
    let bits: usize = tokens.iter().map(|token| usize::from(extra_bits(*token))).sum();
    extra.clear();
    extra.extend_from_slice(reader.bytes(bits.div_ceil(8))?);
    extra.extend_from_slice(&[0; 8]);
    numbers.clear();
    let mut bit = 0;
    numbers.extend(tokens.iter().map(|token| {
        let (count, high) = GAPS.get(usize::from(*token)).copied().unwrap_or_default();
        let window = extra.get(bit / 8..).and_then(|left| left.first_chunk()).copied().unwrap_or_default();
        let low = (u64::from_le_bytes(window) >> (bit % 8)) as u32 & ((1 << count) - 1);
        bit += count as usize;
        high + low
    }));
    Ok(())
}
