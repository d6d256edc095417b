//! npy: a magic, a version, the text of a Python dictionary (type, order, shape), the values.
//!
//! The text is read as a literal, never run. A Fortran-ordered array is stored like a C-ordered one with its shape
//! reversed, and listed with its own shape and strides.

use std::collections::BTreeMap;

use super::Format;
use super::array::{Array, Listed, column_major, is_contiguous};
use super::dtype::Dtype;
use super::read::{Fault, Window};
use super::tensor::{DIMENSIONS_MAX, Recognised, Tensor, settle, values};
use super::value::{Value, ValueType};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest dictionary read.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// What the array of a file of its own is called, which has no name there.
const ONLY: &str = "array";
/// Longest name of a type that is written again.
const DESCR_BYTES_MAX: usize = 64;
/// Deepest literal within a literal.
const DEPTH_MAX: usize = 8;

/// Files of `numpy.save`.
pub struct Npy;

impl Format for Npy {
    fn name(&self) -> &'static str {
        "npy"
    }

    fn may_be(&self, head: &[u8], _: u64) -> bool {
        head.strip_prefix(MAGIC).and_then(|rest| rest.first()).is_some_and(|major| (1..=3).contains(major))
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, Fault> {
        match array(window, ONLY.into())? {
            Some(tensor) => settle(self.name(), vec![tensor], BTreeMap::new(), window.len()),
            None => Ok(None),
        }
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(Listed)) -> Result<Option<&'static str>, Fault> {
        visit(listed(window, ONLY.into())?);
        Ok(Some(self.name()))
    }
}

/// The array of an npy file as it is stored; none if its values are Python objects or not of one known size.
pub(super) fn array(window: Window, name: String) -> Result<Option<Tensor>, Fault> {
    let header = Header::read(window)?;
    let Some(Header { dtype, parts, offset, len, mut shape, is_fortran, .. }) = header else { return Ok(None) };
    if is_fortran {
        shape.reverse();
    }
    if parts > 1 {
        shape.push(parts);
    }
    Ok(Some(Tensor { name, dtype, shape, offset, len }))
}

/// The array of an npy file as numpy shows it.
pub(super) fn listed(window: Window, name: String) -> Result<Listed, Fault> {
    let Some(header) = Header::read(window)? else {
        return Ok(Listed::Hidden { name, reason: "it holds Python objects or records".into() });
    };
    let strides = column_major(&header.shape).filter(|_| header.is_fortran);
    let strides = strides.filter(|strides| !is_contiguous(&header.shape, strides) && header.len > 0);
    let value = value_of(&header.descr, header.dtype, header.width);
    let Header { shape, offset, len, .. } = header;
    Ok(Listed::Array(Array { name, value, shape, strides, offset, len }))
}

/// What numpy's own name for a type says of its values.
fn value_of(descr: &str, dtype: Dtype, width: u64) -> Value {
    // The order of one byte does not matter.
    let plain = if width == 1 { descr.replacen(['<', '>'], "|", 1) } else { descr.to_string() };
    if let Some(known) = ValueType::in_numpy(&plain) {
        return Value::from(known);
    }
    let is_plain = descr.len() <= DESCR_BYTES_MAX
        && descr.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '<' | '>' | '|' | '[' | ']' | '/'));
    let numpy = is_plain.then(|| descr.to_string().into());
    Value { numpy, ..Value::called(descr.to_string(), dtype, Some(width)) }
}

/// What stands in front of the values.
struct Header {
    descr: String,
    is_fortran: bool,
    shape: Vec<u64>,
    dtype: Dtype,
    /// Bytes of a value.
    width: u64,
    /// Floats in one value.
    parts: u64,
    /// Where the values lie.
    offset: u64,
    len: u64,
}

impl Header {
    fn read(window: Window) -> Result<Option<Header>, Fault> {
        let head = window.read(0, 12.min(window.len()))?;
        let (start, len) = match *head.get(MAGIC.len()..).unwrap_or_default() {
            [1, _, low, high, ..] => (10, u64::from(u16::from_le_bytes([low, high]))),
            [2 | 3, _, a, b, c, d] => (12, u64::from(u32::from_le_bytes([a, b, c, d]))),
            _ => return Fault::because(format!("expected an npy header, found {} bytes", window.len())),
        };
        if len > TEXT_BYTES_MAX {
            return Fault::because(format!("expected an npy header of at most {TEXT_BYTES_MAX} bytes, found {len}"));
        }
        let text = String::from_utf8_lossy(&window.read(start, len)?).into_owned();
        let Some((descr, is_fortran, shape)) = fields(&text) else {
            return Fault::because(format!(
                "expected descr, fortran_order and shape in the npy header, found {text:?}"
            ));
        };
        let Some((dtype, width, parts)) = values_of(&descr) else { return Ok(None) };
        let offset = start + len;
        let room = window.len() - offset;
        let expected = values(&shape).and_then(|count| count.checked_mul(width));
        let Some(len) = expected.filter(|len| *len <= room) else {
            return Fault::because(format!(
                "expected the bytes of {descr} {shape:?} behind the npy header, found {room}"
            ));
        };
        Ok(Some(Header { descr, is_fortran, shape, dtype, width, parts, offset, len }))
    }
}

/// Type, bytes of a value, and floats in one value; none for records, objects and what is not known.
fn values_of(descr: &str) -> Option<(Dtype, u64, u64)> {
    let mut chars = descr.chars();
    let (order, kind) = (chars.next()?, chars.next()?);
    let digits: String = chars.as_str().chars().take_while(char::is_ascii_digit).collect();
    let count: u64 = digits.parse().ok()?;
    let (dtype, width, parts) = match (kind, count) {
        ('f', 8) => (Dtype::Float64, 8, 1),
        ('f', 4) => (Dtype::Float32, 4, 1),
        ('f', 2) => (Dtype::Float16, 2, 1),
        ('c', 8) => (Dtype::Float32, 8, 2),
        ('c', 16) => (Dtype::Float64, 16, 2),
        ('i' | 'u' | 'm' | 'M', 8) => (Dtype::Int64, 8, 1),
        ('i' | 'u', 4) => (Dtype::Int32, 4, 1),
        ('i' | 'u', 2) => (Dtype::Int16, 2, 1),
        ('i' | 'u' | 'b', 1) => (Dtype::Int8, 1, 1),
        ('f' | 'c' | 'V' | 'S' | 'a', width) => (Dtype::Other, width, 1),
        ('U', count) => (Dtype::Other, count.checked_mul(4)?, 1),
        _ => return None,
    };
    match order {
        '<' | '|' => Some((dtype, width, parts)),
        '>' if dtype == Dtype::Int8 => Some((dtype, width, parts)),
        '>' => Some((Dtype::Other, width, 1)),
        _ => None,
    }
}

/// The three entries of the dictionary.
fn fields(text: &str) -> Option<(String, bool, Vec<u64>)> {
    let mut reader = LiteralReader { rest: text };
    let Literal::Dictionary(entries) = reader.literal(DEPTH_MAX)? else { return None };
    let (mut descr, mut order, mut shape) = (None, None, None);
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("descr", Literal::Text(text)) => descr = Some(text),
            ("descr", Literal::Sequence(_)) => descr = Some("record".into()),
            ("fortran_order", Literal::Flag(is_fortran)) => order = Some(is_fortran),
            ("shape", Literal::Sequence(sizes)) if sizes.len() <= DIMENSIONS_MAX => {
                let size = |literal| if let Literal::Number(size) = literal { Some(size) } else { None };
                shape = Some(sizes.into_iter().map(size).collect::<Option<Vec<u64>>>()?);
            }
            _ => return None,
        }
    }
    Some((descr?, order?, shape?))
}

enum Literal {
    Text(String),
    Number(u64),
    Flag(bool),
    Sequence(Vec<Literal>),
    Dictionary(Vec<(String, Literal)>),
}

struct LiteralReader<'a> {
    rest: &'a str,
}

impl LiteralReader<'_> {
    fn literal(&mut self, depth: usize) -> Option<Literal> {
        let depth = depth.checked_sub(1)?;
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        match first {
            '\'' | '"' => self.text().map(Literal::Text),
            '(' => self.list(')', |reader| reader.literal(depth)).map(Literal::Sequence),
            '[' => self.list(']', |reader| reader.literal(depth)).map(Literal::Sequence),
            '{' => {
                let entry = |reader: &mut Self| {
                    let key = reader.text()?;
                    reader.take(":").then(|| reader.literal(depth)).flatten().map(|value| (key, value))
                };
                self.list('}', entry).map(Literal::Dictionary)
            }
            '0'..='9' => self.number(),
            _ if self.take("True") => Some(Literal::Flag(true)),
            _ if self.take("False") => Some(Literal::Flag(false)),
            _ => None,
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn text(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        let quote = self.rest.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
        let (text, rest) = self.rest.get(1..)?.split_once(quote)?;
        self.rest = rest;
        (!text.contains('\\')).then(|| text.to_string())
    }

    fn number(&mut self) -> Option<Literal> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        digits.parse().ok().map(Literal::Number)
    }

    /// Items up to `close`, which follows an opening bracket; a comma may follow the last.
    fn list<T>(&mut self, close: char, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.rest = self.rest.get(1..)?;
        let close = close.to_string();
        let mut items = Vec::new();
        loop {
            if self.take(&close) {
                return Some(items);
            }
            items.push(item(self)?);
            if !self.take(",") {
                return self.take(&close).then_some(items);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_as_written_by_python_2_and_3() {
        let field = |text: &str| fields(text);
        let plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n";
        assert_eq!(field(plain), Some(("<f4".into(), false, vec![3, 4])));
        let long = "{\"shape\": (3L,), \"fortran_order\": True, \"descr\": \"|u1\"}";
        assert_eq!(field(long), Some(("|u1".into(), true, vec![3])));
        let record = "{'descr': [('x', '<f4'), ('y', '<i4', (2,))], 'fortran_order': False, 'shape': ()}";
        assert_eq!(field(record), Some(("record".into(), false, vec![])));
        for wrong in ["", "{", "{'descr': '<f4'}", "{'shape': (1 2)}", "((((((((((((", "{'a': 1}", "{'shape': (-1,)}"] {
            assert_eq!(field(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn types() {
        assert_eq!(values_of("<f2"), Some((Dtype::Float16, 2, 1)));
        assert_eq!(values_of("|b1"), Some((Dtype::Int8, 1, 1)));
        assert_eq!(values_of("<V2"), Some((Dtype::Other, 2, 1)));
        assert_eq!(values_of(">f4"), Some((Dtype::Other, 4, 1)));
        assert_eq!(values_of("<c16"), Some((Dtype::Float64, 16, 2)));
        assert_eq!(values_of("<U10"), Some((Dtype::Other, 40, 1)));
        assert_eq!(values_of("<M8[ns]"), Some((Dtype::Int64, 8, 1)));
        assert_eq!((values_of("|O"), values_of("record"), values_of("")), (None, None, None));
    }
}
