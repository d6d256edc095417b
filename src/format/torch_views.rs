//! Archives of `torch.save`, as people see them: views of the storages.
//!
//! 1. Every tensor of the pickle is listed under each of its names, with its own type, sizes and strides. That includes
//!    views of a whole storage and tensors without values.
//! 2. A tensor is unreadable if it reaches beyond its storage, or if its values differ from those in the storage.
//! 3. Storages without a tensor are listed by their keys, as bytes.

use std::collections::{HashMap, HashSet};

use super::array::{Array, ListedArray, is_contiguous};
use super::pickle::PickleTree;
use super::read::{FormatError, Window};
use super::tensor::{ListingChecks, value_count};
use super::torch::{PICKLE, TORCH, TorchArchive};
use super::torch_walk::{PickleWalk, StorageUse, StorageView};
use super::value_type::{KnownType, ValueType};
use super::zip_members::ZipMember;

/// Most bytes of a tensor whose values overlap. Such a tensor may be larger than its storage.
const OVERLAPPING_BYTES_MAX: u64 = 1 << 30;

/// Passes the tensors of the archive to `visit`. Returns the format's name, or `None` without tensors.
pub(super) fn list(
    window: Window,
    members: &[ZipMember],
    root: &[u8],
    visit: &mut dyn FnMut(ListedArray),
) -> Result<Option<&'static str>, FormatError> {
    let archive = TorchArchive::read(window, members, root)?;
    let is_packed = |member: &ZipMember| member.name.strip_prefix(root) == Some(PICKLE) && !member.is_stored;
    if members.iter().any(is_packed) {
        return FormatError::defective("expected data.pkl uncompressed, found it compressed");
    }
    let locations = members.iter().filter_map(|member| Some((archive.key(member)?, StorageLocation::Member(member))));
    let tree = PickleTree::read(&archive.pickle).ok();
    let count = list_storages(window, tree.as_ref(), locations.collect(), archive.is_big_endian, visit)?;
    Ok((count > 0).then_some(TORCH))
}

/// Passes the tensors in the storages of a file to `visit`, by the keys of the storages. Returns their number.
pub(super) fn list_storages(
    window: Window,
    tree: Option<&PickleTree>,
    locations: HashMap<String, StorageLocation<'_>>,
    is_big_endian: bool,
    visit: &mut dyn FnMut(ListedArray),
) -> Result<u64, FormatError> {
    let names = ListingChecks::new(window.len());
    let used = HashSet::new();
    let mut lister = TensorLister { window, is_big_endian, locations, used, names, count: 0, error: None, visit };
    if let Some(tree) = tree {
        PickleWalk::of_views(tree, &mut |found| lister.record(&found)).run();
    }
    lister.rest()?;
    Ok(lister.count)
}

/// Where the bytes of a storage are.
#[derive(Clone, Copy)]
pub(super) enum StorageLocation<'a> {
    /// A member of an archive.
    Member(&'a ZipMember),
    /// A range of the file.
    Range { offset: u64, len: u64 },
}

impl StorageLocation<'_> {
    fn is_stored(self) -> bool {
        if let StorageLocation::Member(member) = self { member.is_stored } else { true }
    }

    /// Offset and number of the bytes.
    fn range(self, window: Window) -> Result<(u64, u64), FormatError> {
        match self {
            StorageLocation::Member(member) => Ok((member.start(window)?, member.len)),
            StorageLocation::Range { offset, len } => Ok((offset, len)),
        }
    }

    fn is_empty(self) -> bool {
        matches!(self, StorageLocation::Member(ZipMember { len: 0, .. }) | StorageLocation::Range { len: 0, .. })
    }
}

/// Turns the tensors of the pickle into listed arrays.
struct TensorLister<'a> {
    window: Window<'a>,
    is_big_endian: bool,
    locations: HashMap<String, StorageLocation<'a>>,
    /// Keys of the storages that hold a tensor.
    used: HashSet<String>,
    names: ListingChecks,
    /// Arrays listed so far.
    count: u64,
    /// First error of reading the file.
    error: Option<FormatError>,
    visit: &'a mut dyn FnMut(ListedArray),
}

impl TensorLister<'_> {
    fn record(&mut self, found: &StorageUse) {
        if self.error.is_some() {
            return;
        }
        self.used.insert(found.key.to_string());
        let array = match self.array(found) {
            Ok(array) => ListedArray::Array(array),
            Err(FormatError::Defective(reason)) => ListedArray::Unreadable { name: String::new(), reason },
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        self.list(array, found.path, found.key);
    }

    /// Lists an array under a unique name.
    fn list(&mut self, array: ListedArray, path: &str, key: &str) {
        let mut name = if path.is_empty() { key } else { path }.to_string();
        self.count += 1;
        if !self.names.is_new(&name) {
            name = format!("{name} (storage {key})");
            if !self.names.is_new(&name) {
                name = format!("{name} ({})", self.count);
            }
        }
        (self.visit)(match array {
            ListedArray::Array(array) => ListedArray::Array(Array { name, ..array }),
            ListedArray::Unreadable { reason, .. } => ListedArray::Unreadable { name, reason },
        });
    }

    /// The array of a tensor, without its name. A defect is the reason why it is unreadable.
    fn array(&self, found: &StorageUse) -> Result<Array, FormatError> {
        if let Some(obstacle) = found.view.as_ref().and_then(|view| view.obstacle) {
            return FormatError::defective(obstacle);
        }
        let (value_type, count) = self.value_type(found)?;
        let width = value_type.width.unwrap_or(1);
        let (start, storage_len) = match self.locations.get(found.key) {
            Some(location) if !location.is_stored() => {
                return FormatError::defective("its storage is compressed in the archive");
            }
            Some(location) if found.count > 0 => location.range(self.window)?,
            None if found.count > 0 => {
                return FormatError::defective(format!("its storage {:?} is missing", found.key));
            }
            _ => (0, 0),
        };
        if count.checked_mul(width) != Some(storage_len) {
            let key = found.key;
            return FormatError::defective(format!(
                "expected {count} values of {width} bytes in storage {key}, found {storage_len} bytes"
            ));
        }
        let whole = StorageView { offset: 0, sizes: vec![count], strides: vec![1], obstacle: None };
        let StorageView { offset, sizes, strides, .. } = found.view.as_ref().unwrap_or(&whole);
        let (len, first) = view_range(*offset, sizes, strides, count, width)?;
        let is_plain = len == 0 || is_contiguous(sizes, strides);
        let strides = (!is_plain).then(|| strides.clone());
        Ok(Array { name: String::new(), value_type, shape: sizes.clone(), strides, offset: start + first, len })
    }

    /// The type of a tensor and the number of values of its storage.
    fn value_type(&self, found: &StorageUse) -> Result<(ValueType, u64), FormatError> {
        let (mut value_type, count) = if found.class == "UntypedStorage" {
            let Some(name) = found.dtype else {
                return Ok((ValueType::bytes(), found.count));
            };
            let Some(value_type) = value_type_by_name(name) else {
                return FormatError::defective(format!("the type torch.{name} is unknown"));
            };
            let width = value_type.width.unwrap_or(1);
            (value_type, found.count / width)
        } else {
            let Some(value_type) = value_type_of_class(found.class) else {
                return FormatError::defective(format!("the storage type torch.{} is unknown", found.class));
            };
            (value_type, found.count)
        };
        if self.is_big_endian {
            value_type = value_type.big_endian();
        }
        Ok((value_type, count))
    }

    /// Lists the storages without a tensor, as bytes.
    fn rest(&mut self) -> Result<(), FormatError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut rest: Vec<(String, StorageLocation)> =
            self.locations.drain().filter(|(key, _)| !self.used.contains(key)).collect();
        rest.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (key, location) in rest.into_iter().filter(|(_, location)| location.is_stored() && !location.is_empty()) {
            let (offset, len) = location.range(self.window)?;
            let value_type = ValueType::bytes();
            let array = Array { name: String::new(), value_type, shape: vec![len], strides: None, offset, len };
            self.list(ListedArray::Array(array), "", &key);
        }
        Ok(())
    }
}

/// Size of a view, bytes, and the offset of its first value in a storage of `count` values.
fn view_range(offset: i64, sizes: &[u64], strides: &[u64], count: u64, width: u64) -> Result<(u64, u64), FormatError> {
    let reach = |offset: u64| {
        let mut steps = sizes.iter().zip(strides);
        steps.try_fold(offset, |at, (size, stride)| at.checked_add((size - 1).checked_mul(*stride)?))
    };
    let (Ok(offset), Some(values)) = (u64::try_from(offset), value_count(sizes)) else {
        return FormatError::defective(format!("sizes {sizes:?} from value {offset} exceed all bounds"));
    };
    if values == 0 {
        return Ok((0, 0));
    }
    if sizes.len() != strides.len() || reach(offset).is_none_or(|last| last >= count) {
        return FormatError::defective(format!(
            "sizes {sizes:?} with strides {strides:?} from value {offset} reach beyond its storage of {count} values"
        ));
    }
    match values.checked_mul(width).filter(|len| *len <= (count * width).max(OVERLAPPING_BYTES_MAX)) {
        Some(len) => Ok((len, offset * width)),
        None => FormatError::defective(format!("its {values} values repeat {count} stored values: too many to write")),
    }
}

/// Type of the values of a storage class.
fn value_type_of_class(class: &str) -> Option<ValueType> {
    const QUANTISED: &str = "quantised values as they are stored, without scale and zero point";
    let quantised = |name: &'static str, stored: &str| {
        let stored = ValueType::from(KnownType::named(stored)?);
        Some(ValueType { name: name.into(), remark: Some(QUANTISED), ..stored })
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
    KnownType::named(name).map(ValueType::from)
}

/// Type of values by its name in torch.
fn value_type_by_name(name: &str) -> Option<ValueType> {
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
    KnownType::named(name).map(ValueType::from)
}
