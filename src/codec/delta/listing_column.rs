//! Columns of listings: numbers that differ from suggested ones, in runs.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | what is suggested: 0 the base's number, 1 the one before, 2 that plus what the base grew by, 3 the time |
//! | varint | twice the number of differences that follow, minus 2, or that plus 1 if they are all equal |
//! | varints | the differences, zigzag mod 2^64; one if they are all equal |
//! | | and so on |
//!
//! A column without bytes has the numbers of the base.

use crate::error::Result;
use crate::wire::{WireReader, put_varint, unzigzag, zigzag};

/// What is suggested, on disk.
const OF_BASE: u8 = 0;
const BEFORE: u8 = 1;
const GROWN: u8 = 2;
const OF_TIME: u8 = 3;
/// Equal differences that are worth a run.
const RUN_MIN: usize = 3;

/// A number of a column with what it may be like.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ColumnNumber {
    /// The number; of no use while it is decoded.
    pub(super) number: u64,
    /// That of the base's node.
    pub(super) base: u64,
    /// The node's own time of the last change.
    pub(super) time: u64,
}

impl ColumnNumber {
    /// The suggested number; `None` for a suggestion that no version has.
    fn suggested(&self, suggestion: u8, before: &ColumnNumber) -> Option<u64> {
        match suggestion {
            OF_BASE => Some(self.base),
            BEFORE => Some(before.number),
            GROWN => Some(before.number.wrapping_add(self.base).wrapping_sub(before.base)),
            OF_TIME => Some(self.time),
            _ => None,
        }
    }
}

/// Appends a column, with its length before it, with the suggestion that takes least.
pub(super) fn put_column(numbers: &[ColumnNumber], out: &mut Vec<u8>) {
    let mut least: Option<Vec<u8>> = numbers.iter().all(|number| number.number == number.base).then(Vec::new);
    for suggestion in [OF_BASE, BEFORE, GROWN, OF_TIME] {
        if least.as_ref().is_some_and(Vec::is_empty) {
            break;
        }
        let (mut column, mut before) = (vec![suggestion], ColumnNumber::default());
        let differences = numbers.iter().map(|number| {
            let suggested = number.suggested(suggestion, &before).unwrap_or_default();
            before = *number;
            zigzag(number.number.wrapping_sub(suggested) as i64)
        });
        put_runs(&differences.collect::<Vec<_>>(), &mut column);
        if least.as_ref().is_none_or(|least| column.len() < least.len()) {
            least = Some(column);
        }
    }
    let column = least.unwrap_or_default();
    put_varint(out, column.len() as u64);
    out.extend_from_slice(&column);
}

fn put_runs(differences: &[u64], out: &mut Vec<u8>) {
    let mut rest = differences;
    // Differences before `rest` that are in no run.
    let mut single = differences.get(..0).unwrap_or_default();
    let put_single = |single: &[u64], out: &mut Vec<u8>| {
        if !single.is_empty() {
            put_varint(out, 2 * (single.len() as u64 - 1));
            single.iter().for_each(|difference| put_varint(out, *difference));
        }
    };
    while let Some(first) = rest.first() {
        let run = rest.iter().take_while(|next| *next == first).count();
        let (equal, behind) = rest.split_at(run);
        rest = behind;
        if run < RUN_MIN {
            let start = differences.len() - rest.len() - equal.len() - single.len();
            single = differences.get(start..differences.len() - rest.len()).unwrap_or_default();
            continue;
        }
        put_single(single, out);
        single = &[];
        put_varint(out, 2 * (run as u64 - 1) + 1);
        put_varint(out, *first);
    }
    put_single(single, out);
}

/// Reads a column.
pub(super) struct ColumnReader<'a> {
    /// `None` if the numbers are those of the base.
    reader: Option<WireReader<'a>>,
    suggestion: u8,
    /// Differences left of the current group, and their value if they are equal.
    left: u64,
    equal: Option<u64>,
    before: ColumnNumber,
}

impl<'a> ColumnReader<'a> {
    /// Takes a column with its length before it.
    pub(super) fn take(reader: &mut WireReader<'a>) -> Result<Self> {
        let limit = reader.remaining() as u64;
        let len = reader.bounded("bytes of a column", limit)? as usize;
        let (offset, bytes) = (reader.offset(), reader.bytes(len)?);
        let mut own = (len > 0).then(|| WireReader::new(super::WHAT, offset, bytes));
        let suggestion = own.as_mut().map_or(Ok(OF_BASE), WireReader::u8)?;
        if suggestion > OF_TIME {
            return Err(reader.unsupported(format!("suggestion {suggestion} of a column")));
        }
        Ok(ColumnReader { reader: own, suggestion, left: 0, equal: None, before: ColumnNumber::default() })
    }

    /// The next number, of which base and time are known.
    pub(super) fn next(&mut self, known: ColumnNumber) -> Result<u64> {
        let Some(reader) = &mut self.reader else { return Ok(known.base) };
        if self.left == 0 {
            let group = reader.varint()?;
            self.left = group / 2 + 1;
            self.equal = if group % 2 == 1 { Some(reader.varint()?) } else { None };
        }
        self.left -= 1;
        let difference = match self.equal {
            Some(difference) => difference,
            None => reader.varint()?,
        };
        let suggested = known.suggested(self.suggestion, &self.before).unwrap_or_default();
        let number = suggested.wrapping_add(unzigzag(difference) as u64);
        self.before = ColumnNumber { number, ..known };
        Ok(number)
    }

    /// Checks that all numbers were read.
    pub(super) fn finish(&self) -> Result<()> {
        match &self.reader {
            Some(reader) if self.left > 0 => Err(reader.error("all numbers of a column", "fewer")),
            Some(reader) => reader.finish(),
            None => Ok(()),
        }
    }
}
