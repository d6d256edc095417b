//! Palette: the values of a block that has few, and for each element the number of its value.

use super::super::plane;
use super::payload::PALETTE;
use super::rounding::Rounding;
use crate::codec::Scratch;
use crate::error::Result;
use crate::wire::WireReader;

/// Values of a palette, at most.
const VALUES_MAX: usize = 256;
/// Elements looked at first, and the different values that they may have.
const SAMPLE_ELEMENTS: usize = 256;
const SAMPLE_VALUES: usize = 176;

/// Slots of a table of values: a power of two.
const SLOTS: usize = 1 << 12;

/// The number of each value, by hash.
struct ValueTable {
    slots: Vec<(u32, u16)>,
    values: Vec<u32>,
}

impl ValueTable {
    fn new() -> Self {
        ValueTable { slots: vec![(0, u16::MAX); SLOTS], values: Vec::new() }
    }

    /// The number of a value, in order of appearance; a new value gets the next one.
    fn number(&mut self, value: u32) -> u16 {
        let mut at = (value.wrapping_mul(0x9e37_79b1) >> 20) as usize;
        loop {
            let Some(slot) = self.slots.get_mut(at % SLOTS) else { return 0 };
            if slot.1 == u16::MAX {
                *slot = (value, self.values.len() as u16);
                self.values.push(value);
                return slot.1;
            }
            if slot.0 == value {
                return slot.1;
            }
            at += 1;
        }
    }
}

fn element(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |element, byte| element << 8 | u32::from(*byte))
}

/// Whether the block may have few values, by a sample.
fn may_have_few(width: usize, whole: &[u8]) -> bool {
    let elements = whole.len() / width;
    let taken = elements.min(SAMPLE_ELEMENTS);
    let mut seen = Vec::with_capacity(SAMPLE_ELEMENTS);
    for number in 0..taken {
        let at = elements * number / taken * width;
        seen.push(element(whole.get(at..at + width).unwrap_or_default()));
    }
    seen.sort_unstable();
    seen.dedup();
    taken > 0 && seen.len() <= SAMPLE_VALUES
}

/// Appends the encoding of the whole elements with a palette; `false` if they have too many values.
pub(super) fn encode(rounding: Rounding, whole: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<bool> {
    let width = rounding.width();
    if !may_have_few(width, whole) {
        return Ok(false);
    }
    let mut table = ValueTable::new();
    let mut numbers = Vec::with_capacity(whole.len() / width);
    for bytes in whole.chunks_exact(width) {
        numbers.push(table.number(element(bytes)) as u8);
        if table.values.len() > VALUES_MAX {
            return Ok(false);
        }
    }
    let mut sorted = table.values.clone();
    sorted.sort_unstable();
    let rank = |value: &u32| sorted.binary_search(value).unwrap_or_default() as u8;
    let ranks: Vec<u8> = table.values.iter().map(rank).collect();
    let renumber = |number: &mut u8| *number = ranks.get(usize::from(*number)).copied().unwrap_or_default();
    numbers.iter_mut().for_each(renumber);
    out.extend_from_slice(&[rounding.id() | PALETTE, (sorted.len() - 1) as u8]);
    for value in &sorted {
        out.extend_from_slice(value.to_le_bytes().get(..width).unwrap_or_default());
    }
    plane::encode(&numbers, scratch, out)?;
    Ok(true)
}

/// Appends so many elements, read from what follows the first byte.
pub(super) fn decode(
    rounding: Rounding,
    elements: usize,
    reader: &mut WireReader<'_>,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let width = rounding.width();
    let count = usize::from(reader.u8()?) + 1;
    let values = reader.bytes(count * width)?;
    let mut space = std::mem::take(&mut scratch.planes);
    space.resize(elements, 0);
    let stored = plane::decode(reader, scratch, &mut space)?;
    let numbers = stored.unwrap_or(space.as_slice());
    if let Some(other) = numbers.iter().find(|number| usize::from(**number) >= count) {
        return Err(reader.error(format!("one of {count} values"), other.to_string()));
    }
    out.reserve(elements * width);
    match width {
        2 => append::<2>(values, numbers, out),
        _ => append::<4>(values, numbers, out),
    }
    scratch.planes = space;
    Ok(())
}

fn append<const WIDTH: usize>(values: &[u8], numbers: &[u8], out: &mut Vec<u8>) {
    let mut table = [[0; WIDTH]; VALUES_MAX];
    table.iter_mut().zip(values.as_chunks::<WIDTH>().0).for_each(|(slot, value)| *slot = *value);
    out.extend(numbers.iter().flat_map(|number| table.get(usize::from(*number)).copied().unwrap_or([0; WIDTH])));
}
