//! The tensors of a `torch.save` archive as people see them.
//!
//! 1. Every tensor of the pickle is listed by every name it has, with its own type, sizes and strides: views of a
//!    storage, whole ones among them, and tensors without values.
//! 2. One that reaches beyond its storage, or whose values are not those of the storage, is named with the reason.
//! 3. Storages that no tensor lies in go by their keys and are bytes.

use std::collections::{HashMap, HashSet};

use super::array::{Array, Listed, is_contiguous};
use super::dtype::Dtype;
use super::pickle::Tree;
use super::read::{Fault, Window};
use super::tensor::{Spans, values};
use super::torch::{PICKLE, Parts, TORCH};
use super::torch_walk::{Met, View, Walk};
use super::value::{Value, ValueType};
use super::zip::Member;

/// Most bytes of a tensor whose values overlap: written out, it may take more than its storage.
const OVERLAPPING_BYTES_MAX: u64 = 1 << 30;

/// The tensors of the archive.
pub(super) fn list(
    window: Window,
    members: &[Member],
    root: &[u8],
    visit: &mut dyn FnMut(Listed),
) -> Result<Option<&'static str>, Fault> {
    let parts = Parts::read(window, members, root)?;
    let is_packed = |member: &Member| member.name.strip_prefix(root) == Some(PICKLE) && !member.is_stored;
    if members.iter().any(is_packed) {
        return Fault::because("expected data.pkl stored plain, found it compressed");
    }
    let by_key = members.iter().filter_map(|member| Some((parts.key(member)?, member))).collect();
    let mut views = Views {
        window,
        is_big_endian: parts.is_big_endian,
        members: by_key,
        met: HashSet::new(),
        names: Spans::new(window.len()),
        count: 0,
        fault: None,
        visit,
    };
    if let Ok(tree) = Tree::read(&parts.pickle) {
        Walk::of_views(&tree, &mut |met| views.note(&met)).run();
    }
    views.rest()?;
    Ok((views.count > 0).then_some(TORCH))
}

/// The tensors that a walk comes upon, made into what is listed.
struct Views<'a> {
    window: Window<'a>,
    is_big_endian: bool,
    members: HashMap<String, &'a Member>,
    /// Keys of the storages that something lies in.
    met: HashSet<String>,
    names: Spans,
    count: u64,
    fault: Option<Fault>,
    visit: &'a mut dyn FnMut(Listed),
}

impl Views<'_> {
    fn note(&mut self, met: &Met) {
        if self.fault.is_some() {
            return;
        }
        self.met.insert(met.key.to_string());
        let listed = match self.array(met) {
            Ok(array) => Listed::Array(array),
            Err(Fault::Defective(reason)) => Listed::Hidden { name: String::new(), reason },
            Err(io) => {
                self.fault = Some(io);
                return;
            }
        };
        self.give(listed, met.path, met.key);
    }

    /// Hands out under a name that none had before.
    fn give(&mut self, listed: Listed, path: &str, key: &str) {
        let mut name = if path.is_empty() { key } else { path }.to_string();
        self.count += 1;
        if !self.names.is_new(&name) {
            name = format!("{name} (storage {key})");
            if !self.names.is_new(&name) {
                name = format!("{name} ({})", self.count);
            }
        }
        (self.visit)(match listed {
            Listed::Array(array) => Listed::Array(Array { name, ..array }),
            Listed::Hidden { reason, .. } => Listed::Hidden { name, reason },
        });
    }

    /// The tensor, without its name, or why it cannot be read.
    fn array(&self, met: &Met) -> Result<Array, Fault> {
        if let Some(obstacle) = met.view.as_ref().and_then(|view| view.obstacle) {
            return Fault::because(obstacle);
        }
        let (value, count) = self.value(met)?;
        let width = value.width.unwrap_or(1);
        let (start, storage_len) = match self.members.get(met.key) {
            Some(member) if !member.is_stored => return Fault::because("its storage is compressed in the archive"),
            Some(member) if met.count > 0 => (member.start(self.window)?, member.len),
            None if met.count > 0 => return Fault::because(format!("its storage {:?} is missing", met.key)),
            _ => (0, 0),
        };
        if count.checked_mul(width) != Some(storage_len) {
            let key = met.key;
            return Fault::because(format!(
                "expected {count} values of {width} bytes in storage {key}, found {storage_len} bytes"
            ));
        }
        let whole = View { offset: 0, sizes: vec![count], strides: vec![1], obstacle: None };
        let View { offset, sizes, strides, .. } = met.view.as_ref().unwrap_or(&whole);
        let (len, first) = place(*offset, sizes, strides, count, width)?;
        let is_plain = len == 0 || is_contiguous(sizes, strides);
        let strides = (!is_plain).then(|| strides.clone());
        Ok(Array { name: String::new(), value, shape: sizes.clone(), strides, offset: start + first, len })
    }

    /// The type of a tensor, and how many values its storage has.
    fn value(&self, met: &Met) -> Result<(Value, u64), Fault> {
        let (mut value, count) = if met.class == "UntypedStorage" {
            let Some(name) = met.dtype else {
                let bytes = Value::called(Dtype::Other.name(), Dtype::Other, Some(1));
                return Ok((bytes, met.count));
            };
            let Some(value) = value_of_type(name) else {
                return Fault::because(format!("values of torch.{name} are not known here"));
            };
            let width = value.width.unwrap_or(1);
            (value, met.count / width)
        } else {
            let Some(value) = value_of_class(met.class) else {
                return Fault::because(format!("values of a torch.{} are not known here", met.class));
            };
            (value, met.count)
        };
        if self.is_big_endian {
            value = value.big_endian();
        }
        Ok((value, count))
    }

    /// The storages that no tensor lies in, as bytes.
    fn rest(&mut self) -> Result<(), Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let mut rest: Vec<(String, &Member)> =
            self.members.drain().filter(|(key, _)| !self.met.contains(key)).collect();
        rest.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (key, member) in rest.into_iter().filter(|(_, member)| member.is_stored && member.len > 0) {
            let (offset, len) = (member.start(self.window)?, member.len);
            let value = Value::called(Dtype::Other.name(), Dtype::Other, Some(1));
            let array = Array { name: String::new(), value, shape: vec![len], strides: None, offset, len };
            self.give(Listed::Array(array), "", &key);
        }
        Ok(())
    }
}

/// Bytes of a view's values, and where the first one lies in a storage of `count` values.
fn place(offset: i64, sizes: &[u64], strides: &[u64], count: u64, width: u64) -> Result<(u64, u64), Fault> {
    let reach = |offset: u64| {
        let mut steps = sizes.iter().zip(strides);
        steps.try_fold(offset, |at, (size, stride)| at.checked_add((size - 1).checked_mul(*stride)?))
    };
    let (Ok(offset), Some(values)) = (u64::try_from(offset), values(sizes)) else {
        return Fault::because(format!("sizes {sizes:?} from value {offset} are beyond all bounds"));
    };
    if values == 0 {
        return Ok((0, 0));
    }
    if sizes.len() != strides.len() || reach(offset).is_none_or(|last| last >= count) {
        return Fault::because(format!(
            "sizes {sizes:?} with strides {strides:?} from value {offset} reach beyond its storage of {count} values"
        ));
    }
    match values.checked_mul(width).filter(|len| *len <= (count * width).max(OVERLAPPING_BYTES_MAX)) {
        Some(len) => Ok((len, offset * width)),
        None => Fault::because(format!("its {values} values are {count} values repeated: too many to write out")),
    }
}

/// Values of a storage class, as people see them.
fn value_of_class(class: &str) -> Option<Value> {
    const QUANTISED: &str = "quantised values as they are stored, without their scale and zero point";
    let quantised = |name: &'static str, stored: &str| {
        let stored = Value::from(ValueType::named(stored)?);
        Some(Value { name: name.into(), remark: Some(QUANTISED), ..stored })
    };
    let name = match class.strip_suffix("Storage")? {
        "QInt8" => return quantised("QINT8", "I8"),
        "QUInt8" => return quantised("QUINT8", "U8"),
        "QInt32" => return quantised("QINT32", "I32"),
        "Double" => "F64",
        "Float" => "F32",
        "Half" => "F16",
        "BFloat16" => "BF16",
        "ComplexFloat" => "C64",
        "ComplexDouble" => "C128",
        "Long" => "I64",
        "Int" => "I32",
        "Short" => "I16",
        "Char" => "I8",
        "Byte" => "U8",
        "Bool" => "BOOL",
        _ => return None,
    };
    ValueType::named(name).map(Value::from)
}

/// Values of one of torch's types, as people see them.
fn value_of_type(name: &str) -> Option<Value> {
    let name = match name {
        "float64" => "F64",
        "float32" => "F32",
        "float16" => "F16",
        "bfloat16" => "BF16",
        "complex64" => "C64",
        "complex128" => "C128",
        "int64" => "I64",
        "int32" => "I32",
        "int16" => "I16",
        "int8" => "I8",
        "uint64" => "U64",
        "uint32" => "U32",
        "uint16" => "U16",
        "uint8" => "U8",
        "bool" => "BOOL",
        "float8_e4m3fn" => "F8_E4M3",
        "float8_e5m2" => "F8_E5M2",
        "float8_e8m0fnu" => "F8_E8M0",
        "float8_e4m3fnuz" => "F8_E4M3FNUZ",
        "float8_e5m2fnuz" => "F8_E5M2FNUZ",
        _ => return None,
    };
    ValueType::named(name).map(Value::from)
}
