//! Listing: a chunk of a directory listing as what became of the nodes of another one.
//!
//! | bytes | meaning |
//! |---|---|
//! | varint, then as many | steps: varints, eight times the number of nodes minus 1, plus the kind of the step |
//! | varint, then as many | a column each for the fields 7, 8, 9, 11 and 12, see [`super::listing_column`] |
//! | the rest | literals |
//!
//! | step | nodes |
//! |---|---|
//! | 0 | of the base, left out |
//! | 1 | of the base, as they are |
//! | 2 | new ones, from the literals |
//! | 3 | of the base, renewed: the fields that have a column have its numbers |
//! | 4 | of the base, renewed and with other fields: the literals have their number, then key, length, value of each |
//!
//! A directory that was unpacked again has the old names and contents, but other inodes and times.

use super::listing_column::{ColumnNumber, ColumnReader, put_column};
use super::listing_node::{
    COLUMNS, FIELDS_MAX, Field, column_of, name_of, next_record, number_of, put_key, put_map, put_number, split,
};
use super::{Derivation, WHAT, payload};
use crate::error::Result;
use crate::wire::{WireReader, put_varint};

/// Kinds of steps, on disk.
const LEFT_OUT: u64 = 0;
const SAME: u64 = 1;
const LITERAL: u64 = 2;
const RENEWED: u64 = 3;
const CHANGED: u64 = 4;
/// Kinds that a step can tell apart.
const KINDS: u64 = 8;

/// The tagged payload of `raw` against `base`, both nodes of a listing; `None` if `raw` is no such listing.
pub fn encode_listing(raw: &[u8], base: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![Derivation::Bytes.id(), payload::LISTING];
    let mut encoder = ListingEncoder::default();
    encoder.encode(raw, base)?;
    encoder.write(&mut out);
    // What cannot be rebuilt is never stored.
    let mut decoded = Vec::with_capacity(raw.len());
    let rebuilt = decode(&mut WireReader::new(WHAT, 0, out.get(2..)?), base, raw.len(), &mut decoded);
    (rebuilt.is_ok() && decoded == raw).then_some(out)
}

/// Appends `raw_len` bytes to `out`. Reads all of `reader`.
pub(super) fn decode(reader: &mut WireReader<'_>, base: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<()> {
    let limit = reader.remaining() as u64;
    let steps_len = reader.bounded("bytes of steps", limit)? as usize;
    let offset = reader.offset();
    let mut steps = WireReader::new(WHAT, offset, reader.bytes(steps_len)?);
    let mut columns = Vec::with_capacity(COLUMNS);
    for _ in 0..COLUMNS {
        columns.push(ColumnReader::take(reader)?);
    }
    let (literals, start) = (reader.clone(), out.len());
    let mut decoder = ListingDecoder { base, literals, columns, fields: Vec::new(), body: Vec::new() };
    while steps.remaining() > 0 {
        let step = steps.varint()?;
        if step % KINDS > CHANGED {
            return Err(steps.unsupported(format!("step {} of a listing", step % KINDS)));
        }
        for _ in 0..=step / KINDS {
            decoder.node(step % KINDS, out)?;
            let len = out.len() - start;
            if len > raw_len {
                return Err(steps.error(format!("a listing of {raw_len} bytes"), len.to_string()));
            }
        }
    }
    decoder.columns.iter().try_for_each(ColumnReader::finish)?;
    decoder.literals.finish()?;
    match out.len() - start {
        len if len == raw_len => Ok(()),
        len => Err(steps.error(format!("a listing of {raw_len} bytes"), len.to_string())),
    }
}

/// What is left of a payload and its base.
struct ListingDecoder<'a> {
    base: &'a [u8],
    literals: WireReader<'a>,
    columns: Vec<ColumnReader<'a>>,
    fields: Vec<Field<'a>>,
    body: Vec<u8>,
}

impl<'a> ListingDecoder<'a> {
    /// One node of a step.
    fn node(&mut self, kind: u64, out: &mut Vec<u8>) -> Result<()> {
        if kind == LITERAL {
            let before = self.literals.clone();
            let len = self.literals.varint()?;
            self.literals.bytes(usize::try_from(len).unwrap_or(usize::MAX))?;
            let len = before.remaining() - self.literals.remaining();
            out.extend_from_slice(before.clone().bytes(len)?);
            return Ok(());
        }
        let Some((record, map)) = next_record(&mut self.base) else {
            return Err(self.literals.error("a node of the base", "its end"));
        };
        match kind {
            LEFT_OUT => {}
            SAME => out.extend_from_slice(record),
            _ => {
                if split(map, &mut self.fields).is_none() {
                    return Err(self.literals.error("a map of fields in the base", "another node"));
                }
                self.renew(kind == CHANGED, out)?;
            }
        }
        Ok(())
    }

    /// Appends the node whose old fields are known.
    fn renew(&mut self, is_changed: bool, out: &mut Vec<u8>) -> Result<()> {
        let mut numbers = [0; COLUMNS];
        for (key, value) in &self.fields {
            let Some(column) = column_of(*key) else { continue };
            let base = number_of(column, value);
            let base = base.ok_or_else(|| self.literals.error(format!("a number in field {key}"), "another value"))?;
            let known = ColumnNumber { number: 0, base, time: numbers.first().copied().unwrap_or_default() };
            if let (Some(reader), Some(number)) = (self.columns.get_mut(column), numbers.get_mut(column)) {
                *number = reader.next(known)?;
            }
        }
        let others = if is_changed { self.others()? } else { Vec::new() };
        put_record(&self.fields, &numbers, &others, &mut self.body, out);
        Ok(())
    }

    /// The other fields of a node. One without a value is not there.
    fn others(&mut self) -> Result<Vec<Field<'a>>> {
        let count = self.literals.bounded("changed fields of a node", FIELDS_MAX as u64)?;
        let mut others: Vec<Field<'a>> = Vec::new();
        for _ in 0..count {
            let key = self.literals.varint()?;
            if others.last().is_some_and(|last| last.0 >= key) {
                return Err(self.literals.error("keys in ascending order", key.to_string()));
            }
            let len = self.literals.varint()?;
            others.push((key, self.literals.bytes(usize::try_from(len).unwrap_or(usize::MAX))?));
        }
        Ok(others)
    }
}

/// Appends a node with its length: `fields`, of which those with a column have its number, and `others` in place of
/// those of the same key.
fn put_record(
    fields: &[Field<'_>],
    numbers: &[u64; COLUMNS],
    others: &[Field<'_>],
    body: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    body.clear();
    let (mut fields, mut others) = (fields.iter().peekable(), others.iter().peekable());
    let mut count = 0;
    loop {
        let is_other = match (fields.peek(), others.peek()) {
            (None, None) => break,
            (Some(field), Some(other)) => other.0 <= field.0,
            (field, _) => field.is_none(),
        };
        let next = if is_other { others.next() } else { fields.next() };
        let Some((key, value)) = next else { break };
        if is_other {
            fields.next_if(|field| field.0 == *key);
        }
        let column = column_of(*key).filter(|_| !is_other);
        if value.is_empty() {
            continue;
        }
        count += 1;
        put_key(*key, body);
        match column.and_then(|column| Some((column, numbers.get(column)?))) {
            Some((column, number)) => put_number(column, *number, body),
            None => body.extend_from_slice(value),
        }
    }
    let mut head = Vec::new();
    put_map(count, &mut head);
    put_varint(out, (head.len() + body.len()) as u64);
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
}

/// A node that is compared.
struct ListedNode<'a> {
    record: &'a [u8],
    /// Empty if it is no map of fields.
    fields: Vec<Field<'a>>,
}

impl<'a> ListedNode<'a> {
    /// Takes the next node.
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let (record, map) = next_record(rest)?;
        let mut fields = Vec::with_capacity(16);
        if split(map, &mut fields).is_none() {
            fields.clear();
        }
        Some(ListedNode { record, fields })
    }

    fn name(&self) -> Option<&'a [u8]> {
        name_of(&self.fields)
    }

    /// The number of each column, if there is one; `None` if a field is none.
    fn numbers(&self) -> Option<[Option<u64>; COLUMNS]> {
        let mut numbers = [None; COLUMNS];
        for (key, value) in &self.fields {
            if let Some(column) = column_of(*key) {
                *numbers.get_mut(column)? = Some(number_of(column, value)?);
            }
        }
        Some(numbers)
    }
}

/// What became of the nodes of a base.
#[derive(Default)]
struct ListingEncoder {
    /// Kinds and numbers of nodes.
    steps: Vec<(u64, u64)>,
    columns: [Vec<ColumnNumber>; COLUMNS],
    literals: Vec<u8>,
    body: Vec<u8>,
}

impl ListingEncoder {
    fn encode(&mut self, raw: &[u8], base: &[u8]) -> Option<()> {
        let (mut raw, mut base) = (raw, base);
        let mut old = ListedNode::take(&mut base);
        while !raw.is_empty() {
            let new = ListedNode::take(&mut raw)?;
            let name = new.name();
            while name.is_some() && old.as_ref().is_some_and(|old| old.name() < name) {
                self.step(LEFT_OUT);
                old = ListedNode::take(&mut base);
            }
            match old.take_if(|old| name.is_some() && old.name() == name) {
                None => self.literal(&new),
                Some(known) => {
                    if known.record == new.record {
                        self.step(SAME);
                    } else if let Some(kind) = self.renewed(&known, &new) {
                        self.step(kind);
                    } else {
                        self.step(LEFT_OUT);
                        self.literal(&new);
                    }
                    old = ListedNode::take(&mut base);
                }
            }
        }
        Some(())
    }

    fn step(&mut self, kind: u64) {
        match self.steps.last_mut() {
            Some(last) if last.0 == kind => last.1 += 1,
            _ => self.steps.push((kind, 1)),
        }
    }

    fn literal(&mut self, new: &ListedNode<'_>) {
        self.step(LITERAL);
        self.literals.extend_from_slice(new.record);
    }

    /// The kind of step that makes `new` of a node of its name; `None` if none does, or if it would save little.
    fn renewed(&mut self, known: &ListedNode<'_>, new: &ListedNode<'_>) -> Option<u64> {
        let (old_numbers, new_numbers) = (known.numbers()?, new.numbers()?);
        let mut rebuilt = Vec::with_capacity(new.record.len());
        put_record(&new.fields, &new_numbers.map(Option::unwrap_or_default), &[], &mut self.body, &mut rebuilt);
        if rebuilt != new.record {
            return None;
        }
        let mut others: Vec<Field<'_>> = Vec::new();
        let value_in = |node: &ListedNode<'_>, key| node.fields.iter().any(|field| field.0 == key);
        let gone = known.fields.iter().filter(|field| !value_in(new, field.0)).map(|field| (field.0, &[][..]));
        let differ = new.fields.iter().filter(|field| column_of(field.0).is_none() && !known.fields.contains(field));
        others.extend(gone.chain(differ.copied()));
        others.sort_unstable_by_key(|field| field.0);
        let taken: usize = others.iter().map(|field| field.1.len() + 2).sum();
        let has_columns = old_numbers.iter().zip(&new_numbers).all(|(old, new)| old.is_some() == new.is_some());
        if !has_columns || taken * 2 > new.record.len() + new.record.len() / 2 {
            return None;
        }
        let time = new_numbers.first().copied().flatten().unwrap_or_default();
        for (at, (column, (old, new))) in
            self.columns.iter_mut().zip(old_numbers.into_iter().zip(new_numbers)).enumerate()
        {
            if let (Some(base), Some(number)) = (old, new) {
                column.push(ColumnNumber { number, base, time: if at == 0 { 0 } else { time } });
            }
        }
        if others.is_empty() {
            return Some(RENEWED);
        }
        put_varint(&mut self.literals, others.len() as u64);
        for (key, value) in others {
            put_varint(&mut self.literals, key);
            put_varint(&mut self.literals, value.len() as u64);
            self.literals.extend_from_slice(value);
        }
        Some(CHANGED)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut steps = Vec::new();
        self.steps.iter().for_each(|(kind, count)| put_varint(&mut steps, (count - 1) * KINDS + kind));
        put_varint(out, steps.len() as u64);
        out.extend_from_slice(&steps);
        self.columns.iter().for_each(|column| put_column(column, out));
        out.extend_from_slice(&self.literals);
    }
}
