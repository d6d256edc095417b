//! Archives of `torch.save`: `<root>/data.pkl` says what the storages `<root>/data/<key>` hold.
//!
//! 1. One tensor per storage, located by the archive. Several tensors may share a storage.
//! 2. The pickle is read without running it. What it says of a storage (type, number of values) must agree with the
//!    member's length; name and shape are those of the first tensor on it.
//! 3. With a pickle that cannot be read, storages go by their keys and hold bytes of no known type.
//!
//! That is what is stored; what people see is [`super::torch_views`]'s.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::array::is_contiguous;
use super::dtype::Dtype;
use super::pickle::Tree;
use super::read::{Fault, Window};
use super::tensor::{Recognised, Tensor, settle, values};
use super::torch_walk::{Met, View, Walk};
use super::zip::Member;

/// Name of the format.
pub(super) const TORCH: &str = "torch";
pub(super) const PICKLE: &[u8] = b"data.pkl";
/// Longest pickle read.
const PICKLE_BYTES_MAX: u64 = 16 << 20;
/// Longest name, and most bytes of all names; beyond these storages go by their keys.
pub(super) const NAME_BYTES_MAX: usize = 1024;
const NAMES_BYTES_MAX: usize = 64 << 20;

/// Folder of the shallowest pickle, with its slash; none if this is not such an archive.
pub(super) fn root(members: &[Member]) -> Option<Vec<u8>> {
    let directories = members.iter().filter_map(|member| member.name.strip_suffix(PICKLE));
    let directory = directories
        .filter(|directory| directory.is_empty() || directory.ends_with(b"/"))
        .min_by_key(|directory| directory.len());
    directory.map(<[u8]>::to_vec)
}

/// What an archive says apart from its tensors.
pub(super) struct Parts {
    /// Empty where it is missing, compressed or too long.
    pub(super) pickle: Vec<u8>,
    pub(super) is_big_endian: bool,
    /// What names of storages begin with.
    directory: Vec<u8>,
}

impl Parts {
    pub(super) fn read(window: Window, members: &[Member], root: &[u8]) -> Result<Parts, Fault> {
        let content = |name: &[u8], most: u64| -> Result<Option<Vec<u8>>, Fault> {
            let inside = |member: &&Member| member.name.strip_prefix(root) == Some(name);
            match members.iter().find(inside).filter(|member| member.is_stored && member.len <= most) {
                Some(member) => window.read(member.start(window)?, member.len).map(Some),
                None => Ok(None),
            }
        };
        let pickle = content(PICKLE, PICKLE_BYTES_MAX)?.unwrap_or_default();
        let is_big_endian = content(b"byteorder", 16)?.is_some_and(|order| order.starts_with(b"big"));
        Ok(Parts { pickle, is_big_endian, directory: [root, b"data/"].concat() })
    }

    /// The key of a storage's member.
    pub(super) fn key(&self, member: &Member) -> Option<String> {
        let key = member.name.strip_prefix(self.directory.as_slice()).filter(|key| !key.contains(&b'/'))?;
        Some(String::from_utf8_lossy(key).into_owned())
    }
}

/// The storages of the archive.
pub(super) fn find(window: Window, members: &[Member], root: &[u8]) -> Result<Option<Recognised>, Fault> {
    let parts = Parts::read(window, members, root)?;
    let mut storages = Storages::default();
    if let Ok(tree) = Tree::read(&parts.pickle) {
        Walk::of_storages(&tree, &mut |met| storages.note(met)).run();
    }
    let (mut tensors, mut names) = (Vec::new(), HashSet::new());
    for member in members.iter().filter(|member| member.is_stored && member.len > 0) {
        let Some(key) = parts.key(member) else { continue };
        let storage = storages.by_key.remove(&key).unwrap_or_default();
        let mut tensor = storage.tensor(&key, member.len)?;
        tensor.offset = member.start(window)?;
        if parts.is_big_endian {
            tensor.dtype = Dtype::Other;
        }
        if !names.insert(tensor.name.clone()) {
            tensor.name = format!("{} (storage {key})", tensor.name);
        }
        tensors.push(tensor);
    }
    if tensors.is_empty() {
        return Ok(None);
    }
    settle(TORCH, tensors, BTreeMap::new(), window.len())
}

/// Values: their type, bytes of one as stored, floats in one.
type Kind = (Dtype, u64, u64);

/// The storages that a walk comes upon.
#[derive(Default)]
struct Storages {
    by_key: HashMap<String, Storage>,
    names_bytes: usize,
}

impl Storages {
    /// Notes a storage where it is first met.
    fn note(&mut self, met: Met) {
        if self.by_key.contains_key(met.key) {
            return;
        }
        let mut count = met.count;
        let mut kind_known = kind_of_class(met.class);
        if met.class == "UntypedStorage" {
            kind_known = met.dtype.and_then(kind_of_type).filter(|(_, width, _)| count.is_multiple_of(*width));
            count /= kind_known.map_or(1, |(_, width, _)| width);
        }
        let is_whole = |view: &View| view.offset == 0 && is_contiguous(&view.sizes, &view.strides);
        let shape = met.view.filter(is_whole).map(|view| view.sizes).filter(|shape| values(shape) == Some(count));
        let path = met.path;
        let is_named = !path.is_empty() && path.len() <= NAME_BYTES_MAX && self.names_bytes <= NAMES_BYTES_MAX;
        self.names_bytes += path.len();
        let name = is_named.then(|| path.to_string());
        self.by_key.insert(met.key.to_string(), Storage { name, kind: kind_known, count, shape });
    }
}

/// What the pickle says of a storage.
#[derive(Default)]
struct Storage {
    name: Option<String>,
    kind: Option<Kind>,
    count: u64,
    shape: Option<Vec<u64>>,
}

impl Storage {
    fn tensor(self, key: &str, len: u64) -> Result<Tensor, Fault> {
        let name = self.name.unwrap_or_else(|| key.to_string());
        let Some((dtype, width, parts)) = self.kind else {
            return Ok(Tensor { name, dtype: Dtype::Other, shape: vec![len], offset: 0, len });
        };
        let expected = self.count.checked_mul(width);
        if expected != Some(len) {
            let count = self.count;
            return Fault::because(format!(
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

/// Values of a storage class.
fn kind_of_class(class: &str) -> Option<Kind> {
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

/// Values of a type that has no storage class of its own.
fn kind_of_type(name: &str) -> Option<Kind> {
    Some(match name {
        "uint16" => (Dtype::Int16, 2, 1),
        "uint32" => (Dtype::Int32, 4, 1),
        "uint64" => (Dtype::Int64, 8, 1),
        _ if name.starts_with("float8_") => (Dtype::Float8, 1, 1),
        _ => return None,
    })
}
