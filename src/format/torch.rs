//! Archives of `torch.save`, as they are stored: `<root>/data.pkl` describes the storages `<root>/data/<key>`.
//!
//! 1. Each storage becomes one tensor. Tensors in the sense of torch may share a storage.
//! 2. The pickle is read without running it. Its type and number of values must agree with the size of the member. Name
//!    and shape are those of the first tensor in the storage.
//! 3. If the pickle cannot be read, storages are named by their keys and hold bytes of an unknown type.
//!
//! [`super::torch_views`] lists the tensors that people see.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::array::is_contiguous;
use super::dtype::Dtype;
use super::pickle::PickleTree;
use super::read::{FormatError, Window};
use super::tensor::{Recognised, Tensor, checked_model, value_count};
use super::torch_walk::{PickleWalk, StorageUse, StorageView};
use super::zip_members::ZipMember;

/// Name of the format.
pub(super) const TORCH: &str = "torch";
pub(super) const PICKLE: &[u8] = b"data.pkl";
/// Longest pickle that is read.
pub(super) const PICKLE_BYTES_MAX: u64 = 16 << 20;
/// Longest name of a tensor. Storages with longer names are named by their keys.
pub(super) const NAME_BYTES_MAX: usize = 1024;
/// Most bytes of all names. Further storages are named by their keys.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// Directory of the shallowest `data.pkl`, with its slash. `None` if the archive has none.
pub(super) fn root(members: &[ZipMember]) -> Option<Vec<u8>> {
    let directories = members.iter().filter_map(|member| member.name.strip_suffix(PICKLE));
    let directory = directories
        .filter(|directory| directory.is_empty() || directory.ends_with(b"/"))
        .min_by_key(|directory| directory.len());
    directory.map(<[u8]>::to_vec)
}

/// The descriptive members of an archive.
pub(super) struct TorchArchive {
    /// Empty if it is missing, compressed or too long.
    pub(super) pickle: Vec<u8>,
    pub(super) is_big_endian: bool,
    /// Prefix of the names of storages.
    directory: Vec<u8>,
}

impl TorchArchive {
    pub(super) fn read(window: Window, members: &[ZipMember], root: &[u8]) -> Result<TorchArchive, FormatError> {
        let content = |name: &[u8], bytes_max: u64| -> Result<Option<Vec<u8>>, FormatError> {
            let inside = |member: &&ZipMember| member.name.strip_prefix(root) == Some(name);
            match members.iter().find(inside).filter(|member| member.is_stored && member.len <= bytes_max) {
                Some(member) => window.read(member.start(window)?, member.len).map(Some),
                None => Ok(None),
            }
        };
        let pickle = content(PICKLE, PICKLE_BYTES_MAX)?.unwrap_or_default();
        let is_big_endian = content(b"byteorder", 16)?.is_some_and(|order| order.starts_with(b"big"));
        Ok(TorchArchive { pickle, is_big_endian, directory: [root, b"data/"].concat() })
    }

    /// The key of a storage, if the member is one.
    pub(super) fn key(&self, member: &ZipMember) -> Option<String> {
        let key = member.name.strip_prefix(self.directory.as_slice()).filter(|key| !key.contains(&b'/'))?;
        Some(String::from_utf8_lossy(key).into_owned())
    }
}

/// The storages of an archive as tensors.
pub(super) fn find(window: Window, members: &[ZipMember], root: &[u8]) -> Result<Option<Recognised>, FormatError> {
    let archive = TorchArchive::read(window, members, root)?;
    let tree = PickleTree::read(&archive.pickle).ok();
    let mut storages = StorageTensors::of(tree.as_ref());
    for member in members.iter().filter(|member| member.is_stored && member.len > 0) {
        let Some(key) = archive.key(member) else { continue };
        storages.push(&key, member.start(window)?, member.len)?;
    }
    let mut tensors = storages.tensors;
    if tensors.is_empty() {
        return Ok(None);
    }
    if archive.is_big_endian {
        tensors.iter_mut().for_each(|tensor| tensor.dtype = Dtype::Other);
    }
    checked_model(TORCH, tensors, BTreeMap::new(), window.len())
}

/// The storages of a file as tensors, in the order of the file.
pub(super) struct StorageTensors {
    table: StorageTable,
    names: HashSet<String>,
    pub(super) tensors: Vec<Tensor>,
}

impl StorageTensors {
    /// No tensors yet. `tree` describes the storages, if the pickle can be read.
    pub(super) fn of(tree: Option<&PickleTree>) -> Self {
        let mut table = StorageTable::default();
        if let Some(tree) = tree {
            PickleWalk::of_storages(tree, &mut |found| table.record(found)).run();
        }
        StorageTensors { table, names: HashSet::new(), tensors: Vec::new() }
    }

    /// Bytes of a counted value of a storage. `None` if the pickle does not describe the storage, or its class is
    /// unknown.
    pub(super) fn width(&self, key: &str) -> Option<u64> {
        self.table.by_key.get(key)?.width
    }

    /// Adds the storage of `len` bytes at byte `offset`.
    pub(super) fn push(&mut self, key: &str, offset: u64, len: u64) -> Result<(), FormatError> {
        let storage = self.table.by_key.remove(key).unwrap_or_default();
        let mut tensor = storage.tensor(key, len)?;
        tensor.offset = offset;
        if !self.names.insert(tensor.name.clone()) {
            tensor.name = format!("{} (storage {key})", tensor.name);
        }
        self.tensors.push(tensor);
        Ok(())
    }
}

/// Type of the values of a storage: stored type, bytes of a value, stored values in one value.
type StoredType = (Dtype, u64, u64);

/// The storages that the pickle describes.
#[derive(Default)]
struct StorageTable {
    by_key: HashMap<String, StorageInfo>,
    names_bytes: usize,
}

impl StorageTable {
    /// Records a storage at its first use.
    fn record(&mut self, found: StorageUse) {
        if self.by_key.contains_key(found.key) {
            return;
        }
        let mut count = found.count;
        let mut stored_type = type_of_class(found.class);
        let mut width = stored_type.map(|(_, width, _)| width);
        if found.class == "UntypedStorage" {
            width = Some(1);
            stored_type = found.dtype.and_then(type_by_name).filter(|(_, width, _)| count.is_multiple_of(*width));
            count /= stored_type.map_or(1, |(_, width, _)| width);
        }
        let is_whole = |view: &StorageView| view.offset == 0 && is_contiguous(&view.sizes, &view.strides);
        let shape =
            found.view.filter(is_whole).map(|view| view.sizes).filter(|shape| value_count(shape) == Some(count));
        let path = found.path;
        let is_named = !path.is_empty() && path.len() <= NAME_BYTES_MAX && self.names_bytes <= NAMES_BYTES_MAX;
        self.names_bytes += path.len();
        let name = is_named.then(|| path.to_string());
        self.by_key.insert(found.key.to_string(), StorageInfo { name, stored_type, width, count, shape });
    }
}

/// Description of a storage by the pickle.
#[derive(Default)]
struct StorageInfo {
    name: Option<String>,
    stored_type: Option<StoredType>,
    /// Bytes of a value as the pickle counts them.
    width: Option<u64>,
    count: u64,
    shape: Option<Vec<u64>>,
}

impl StorageInfo {
    fn tensor(self, key: &str, len: u64) -> Result<Tensor, FormatError> {
        let name = self.name.unwrap_or_else(|| key.to_string());
        let Some((dtype, width, parts)) = self.stored_type else {
            return Ok(Tensor { name, dtype: Dtype::Other, shape: vec![len], offset: 0, len });
        };
        let expected = self.count.checked_mul(width);
        if expected != Some(len) {
            let count = self.count;
            return FormatError::defective(format!(
                "expected {count} values of {width} bytes in storage {key}, found {len} bytes"
            ));
        }
        let mut shape = self.shape.unwrap_or_else(|| vec![self.count]);
        if parts > 1 {
            shape.push(parts);
        }
        Ok(Tensor { name, dtype, shape, offset: 0, len })
    }
}

/// Type of the values of a storage class.
fn type_of_class(class: &str) -> Option<StoredType> {
    Some(match class.strip_suffix("Storage")? {
        "Double" => (Dtype::Float64, 8, 1),
        "Float" => (Dtype::Float32, 4, 1),
        "Half" => (Dtype::Float16, 2, 1),
        "BFloat16" => (Dtype::Bfloat16, 2, 1),
        "ComplexFloat" => (Dtype::Float32, 8, 2),
        "ComplexDouble" => (Dtype::Float64, 16, 2),
        "Long" => (Dtype::Int64, 8, 1),
        "Int" | "QInt32" => (Dtype::Int32, 4, 1),
        "Short" => (Dtype::Int16, 2, 1),
        "Char" | "Byte" | "Bool" | "QInt8" | "QUInt8" => (Dtype::Int8, 1, 1),
        _ => return None,
    })
}

/// Type of values that have no storage class of their own.
fn type_by_name(name: &str) -> Option<StoredType> {
    Some(match name {
        "uint16" => (Dtype::Int16, 2, 1),
        "uint32" => (Dtype::Int32, 4, 1),
        "uint64" => (Dtype::Int64, 8, 1),
        _ if name.starts_with("float8_") => (Dtype::Float8, 1, 1),
        _ => return None,
    })
}
