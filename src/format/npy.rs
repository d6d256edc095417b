//! npy: a magic, a version, the text of a Python dictionary (type, order, shape), the values.
//!
//! The text is parsed as a literal and never run. The stored tensor of a Fortran-ordered array has the reversed shape.
//! The listed array has its own shape, and strides.

use std::collections::BTreeMap;

use super::Format;
use super::array::{Array, ListedArray, column_major, is_contiguous};
use super::dtype::Dtype;
use super::read::{FormatError, Window};
use super::tensor::{DIMENSIONS_MAX, Recognised, Tensor, checked_model, value_count};
use super::value_type::{KnownType, ValueType};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest dictionary that is read.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// Name of the array of an npy file, which states no name.
const ONLY: &str = "array";
/// Longest name of a type that is copied to a written file.
const DESCR_BYTES_MAX: usize = 64;
/// Deepest nesting of literals.
const DEPTH_MAX: usize = 8;

/// Files of `numpy.save`.
pub struct Npy;

impl Format for Npy {
    fn name(&self) -> &'static str {
        "npy"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["npy"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        head.strip_prefix(MAGIC).and_then(|rest| rest.first()).is_some_and(|major| (1..=3).contains(major))
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        match array(window, ONLY.into())? {
            Some(tensor) => checked_model(self.name(), vec![tensor], BTreeMap::new(), window.len()),
            None => Ok(None),
        }
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        visit(listed(window, ONLY.into())?);
        Ok(Some(self.name()))
    }
}

/// The array of an npy file as it is stored. `None` for Python objects and values of unknown size.
pub(super) fn array(window: Window, name: String) -> Result<Option<Tensor>, FormatError> {
    let header = NpyHeader::read(window)?;
    let Some(NpyHeader { dtype, parts, offset, len, mut shape, is_fortran, .. }) = header else { return Ok(None) };
    if is_fortran {
        shape.reverse();
    }
    if parts > 1 {
        shape.push(parts);
    }
    Ok(Some(Tensor { name, dtype, shape, offset, len }))
}

/// The array of an npy file as numpy presents it.
pub(super) fn listed(window: Window, name: String) -> Result<ListedArray, FormatError> {
    let Some(header) = NpyHeader::read(window)? else {
        return Ok(ListedArray::Unreadable { name, reason: "it holds Python objects or records".into() });
    };
    let strides = column_major(&header.shape).filter(|_| header.is_fortran);
    let strides = strides.filter(|strides| !is_contiguous(&header.shape, strides) && header.len > 0);
    let value_type = value_type_of(&header.descr, header.dtype, header.width);
    let NpyHeader { shape, offset, len, .. } = header;
    Ok(ListedArray::Array(Array { name, value_type, shape, strides, offset, len }))
}

/// The type with this name in numpy.
fn value_type_of(descr: &str, dtype: Dtype, width: u64) -> ValueType {
    // A single byte has no byte order.
    let plain = if width == 1 { descr.replacen(['<', '>'], "|", 1) } else { descr.to_string() };
    if let Some(known) = KnownType::in_numpy(&plain) {
        return ValueType::from(known);
    }
    let is_plain = descr.len() <= DESCR_BYTES_MAX
        && descr.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '<' | '>' | '|' | '[' | ']' | '/'));
    let numpy = is_plain.then(|| descr.to_string().into());
    ValueType { numpy, ..ValueType::custom(descr.to_string(), dtype, Some(width)) }
}

/// The header: the part before the values.
struct NpyHeader {
    descr: String,
    is_fortran: bool,
    shape: Vec<u64>,
    dtype: Dtype,
    /// Bytes of a value.
    width: u64,
    /// Number of stored values in one value: 2 for complex values.
    parts: u64,
    /// Offset of the values, bytes.
    offset: u64,
    /// Size of the values, bytes.
    len: u64,
}

impl NpyHeader {
    fn read(window: Window) -> Result<Option<NpyHeader>, FormatError> {
        let head = window.read(0, 12.min(window.len()))?;
        let (start, len) = match *head.get(MAGIC.len()..).unwrap_or_default() {
            [1, _, low, high, ..] => (10, u64::from(u16::from_le_bytes([low, high]))),
            [2 | 3, _, a, b, c, d] => (12, u64::from(u32::from_le_bytes([a, b, c, d]))),
            _ => return FormatError::defective(format!("expected an npy header, found {} bytes", window.len())),
        };
        if len > TEXT_BYTES_MAX {
            return FormatError::defective(format!(
                "expected an npy header of at most {TEXT_BYTES_MAX} bytes, found {len}"
            ));
        }
        let text = String::from_utf8_lossy(&window.read(start, len)?).into_owned();
        let Some((descr, is_fortran, shape)) = fields(&text) else {
            return FormatError::defective(format!(
                "expected descr, fortran_order and shape in the npy header, found {text:?}"
            ));
        };
        let Some((dtype, width, parts)) = stored_type_of(&descr) else { return Ok(None) };
        let offset = start + len;
        let left = window.len() - offset;
        let expected = value_count(&shape).and_then(|count| count.checked_mul(width));
        let Some(len) = expected.filter(|len| *len <= left) else {
            return FormatError::defective(format!(
                "expected the bytes of {descr} {shape:?} after the npy header, found {left}"
            ));
        };
        Ok(Some(NpyHeader { descr, is_fortran, shape, dtype, width, parts, offset, len }))
    }
}

/// Stored type, bytes of a value, and stored values in one value. `None` for records, objects and unknown types.
fn stored_type_of(descr: &str) -> Option<(Dtype, u64, u64)> {
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

/// The three fields of the header: `descr`, `fortran_order`, `shape`.
fn fields(text: &str) -> Option<(String, bool, Vec<u64>)> {
    let mut reader = LiteralReader { rest: text };
    let PythonLiteral::Dictionary(entries) = reader.literal(DEPTH_MAX)? else { return None };
    let (mut descr, mut order, mut shape) = (None, None, None);
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("descr", PythonLiteral::Text(text)) => descr = Some(text),
            ("descr", PythonLiteral::Sequence(_)) => descr = Some("record".into()),
            ("fortran_order", PythonLiteral::Flag(is_fortran)) => order = Some(is_fortran),
            ("shape", PythonLiteral::Sequence(sizes)) if sizes.len() <= DIMENSIONS_MAX => {
                let size = |literal| if let PythonLiteral::Number(size) = literal { Some(size) } else { None };
                shape = Some(sizes.into_iter().map(size).collect::<Option<Vec<u64>>>()?);
            }
            _ => return None,
        }
    }
    Some((descr?, order?, shape?))
}

enum PythonLiteral {
    Text(String),
    Number(u64),
    Flag(bool),
    Sequence(Vec<PythonLiteral>),
    Dictionary(Vec<(String, PythonLiteral)>),
}

struct LiteralReader<'a> {
    rest: &'a str,
}

impl LiteralReader<'_> {
    fn literal(&mut self, depth: usize) -> Option<PythonLiteral> {
        let depth = depth.checked_sub(1)?;
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        match first {
            '\'' | '"' => self.text().map(PythonLiteral::Text),
            '(' => self.list(')', |reader| reader.literal(depth)).map(PythonLiteral::Sequence),
            '[' => self.list(']', |reader| reader.literal(depth)).map(PythonLiteral::Sequence),
            '{' => {
                let entry = |reader: &mut Self| {
                    let key = reader.text()?;
                    reader.take(":").then(|| reader.literal(depth)).flatten().map(|value| (key, value))
                };
                self.list('}', entry).map(PythonLiteral::Dictionary)
            }
            '0'..='9' => self.number(),
            _ if self.take("True") => Some(PythonLiteral::Flag(true)),
            _ if self.take("False") => Some(PythonLiteral::Flag(false)),
            _ => None,
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
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

    fn number(&mut self) -> Option<PythonLiteral> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        digits.parse().ok().map(PythonLiteral::Number)
    }

    /// Items after an opening bracket, up to `close`. A comma may follow the last item.
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
    fn dictionaries_of_python_2_and_3_are_parsed() {
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
    fn type_names_give_stored_types() {
        assert_eq!(stored_type_of("<f2"), Some((Dtype::Float16, 2, 1)));
        assert_eq!(stored_type_of("|b1"), Some((Dtype::Int8, 1, 1)));
        assert_eq!(stored_type_of("<V2"), Some((Dtype::Other, 2, 1)));
        assert_eq!(stored_type_of(">f4"), Some((Dtype::Other, 4, 1)));
        assert_eq!(stored_type_of("<c16"), Some((Dtype::Float64, 16, 2)));
        assert_eq!(stored_type_of("<U10"), Some((Dtype::Other, 40, 1)));
        assert_eq!(stored_type_of("<M8[ns]"), Some((Dtype::Int64, 8, 1)));
        assert_eq!((stored_type_of("|O"), stored_type_of("record"), stored_type_of("")), (None, None, None));
    }
}
