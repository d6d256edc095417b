//! Archives of `torch.save`: `<root>/data.pkl` says what the storages `<root>/data/<key>` hold.
//!
//! 1. One tensor per storage, located by the archive. Several tensors may share a storage.
//! 2. The pickle is read without running it. What it says of a storage (type, number of values) must agree with the
//!    member's length; name and shape are those of the first tensor on it.
//! 3. With a pickle that cannot be read, storages go by their keys and hold bytes of no known type.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::dtype::Dtype;
use super::pickle::{Id, Item, Node, Tree};
use super::read::{Fault, Window};
use super::tensor::{DIMENSIONS_MAX, Recognised, Tensor, settle, values};
use super::zip::Member;

const PICKLE: &[u8] = b"data.pkl";
/// Longest pickle read.
const PICKLE_BYTES_MAX: u64 = 16 << 20;
/// Deepest container that is searched for tensors.
const DEPTH_MAX: usize = 64;
/// Arguments looked at in a call.
const ARGUMENTS_MAX: usize = 16;
/// Longest name, and most bytes of all names; beyond these storages go by their keys.
const NAME_BYTES_MAX: usize = 1024;
const NAMES_BYTES_MAX: usize = 64 << 20;

/// Folder of the shallowest pickle, with its slash; none if this is not such an archive.
pub(super) fn root(members: &[Member]) -> Option<Vec<u8>> {
    let folders = members.iter().filter_map(|member| member.name.strip_suffix(PICKLE));
    let folder = folders.filter(|folder| folder.is_empty() || folder.ends_with(b"/")).min_by_key(|folder| folder.len());
    folder.map(<[u8]>::to_vec)
}

/// The storages of the archive.
pub(super) fn find(window: Window, members: &[Member], root: &[u8]) -> Result<Option<Recognised>, Fault> {
    let content = |name: &[u8], most: u64| -> Result<Option<Vec<u8>>, Fault> {
        let inside = |member: &&Member| member.name.strip_prefix(root) == Some(name);
        match members.iter().find(inside).filter(|member| member.is_stored && member.len <= most) {
            Some(member) => window.read(member.start(window)?, member.len).map(Some),
            None => Ok(None),
        }
    };
    let pickle = content(PICKLE, PICKLE_BYTES_MAX)?.unwrap_or_default();
    let is_big_endian = content(b"byteorder", 16)?.is_some_and(|order| order.starts_with(b"big"));
    let mut storages = match Tree::read(&pickle) {
        Ok(tree) => Search::new(&tree).run(),
        Err(_) => HashMap::new(),
    };
    let folder = [root, b"data/"].concat();
    let (mut tensors, mut names) = (Vec::new(), HashSet::new());
    for member in members.iter().filter(|member| member.is_stored && member.len > 0) {
        let Some(key) = member.name.strip_prefix(folder.as_slice()).filter(|key| !key.contains(&b'/')) else {
            continue;
        };
        let key = String::from_utf8_lossy(key).into_owned();
        let storage = storages.remove(key.as_str()).unwrap_or_default();
        let mut tensor = storage.tensor(&key, member.len)?;
        tensor.offset = member.start(window)?;
        if is_big_endian {
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
    settle("torch", tensors, BTreeMap::new(), window.len())
}

/// Values: their type, bytes of one as stored, floats in one.
type Kind = (Dtype, u64, u64);

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

/// A walk over the pickled object that notes each storage where it is first met.
struct Search<'t, 'a> {
    tree: &'t Tree<'a>,
    seen: Vec<bool>,
    storages: HashMap<&'a str, Storage>,
    names_bytes: usize,
}

impl<'t, 'a> Search<'t, 'a> {
    fn new(tree: &'t Tree<'a>) -> Self {
        Search { tree, seen: vec![false; tree.len()], storages: HashMap::new(), names_bytes: 0 }
    }

    fn run(mut self) -> HashMap<&'a str, Storage> {
        self.visit(self.tree.top, "", DEPTH_MAX);
        self.storages
    }

    fn visit(&mut self, id: Id, path: &str, depth: usize) {
        let Some(seen) = self.seen.get_mut(id) else { return };
        if std::mem::replace(seen, true) || depth == 0 {
            return;
        }
        match self.tree.node(id) {
            Node::Items(items) => self.visit_items(items, path, true, depth - 1),
            Node::Persistent(identity) => self.storage(*identity, None, None, path),
            Node::Call { callee, arguments, items } => {
                let is_rebuilt =
                    matches!(self.tree.node(*callee), Node::Global { name, .. } if name.starts_with("_rebuild_"));
                // Calls may share their arguments: those too are searched once.
                let is_first = self.seen.get_mut(*arguments).is_some_and(|seen| !std::mem::replace(seen, true));
                if let Node::Items(given) = self.tree.node(*arguments)
                    && !(is_rebuilt && self.tensor(given, path).is_some())
                    && is_first
                {
                    self.visit_items(given, path, false, depth - 1);
                }
                self.visit_items(items, path, false, depth - 1);
            }
            _ => {}
        }
    }

    fn visit_items(&mut self, items: &[Item], path: &str, is_numbered: bool, depth: usize) {
        for (index, item) in items.iter().enumerate() {
            let step = match item.key.map(|key| self.tree.node(key)) {
                Some(Node::Text(text)) => (*text).to_string(),
                Some(Node::Number(number)) => number.to_string(),
                None if is_numbered => index.to_string(),
                _ => String::new(),
            };
            match (path.is_empty(), step.is_empty()) {
                (true, _) => self.visit(item.value, &step, depth),
                (false, true) => self.visit(item.value, path, depth),
                // Deeper names would only be longer.
                _ if path.len() + step.len() > NAME_BYTES_MAX => self.visit(item.value, path, depth),
                _ => self.visit(item.value, &format!("{path}.{step}"), depth),
            }
        }
    }

    /// Notes the storage of a tensor if these are the arguments one is rebuilt from: storage, offset, sizes, strides
    /// and more.
    fn tensor(&mut self, given: &[Item], path: &str) -> Option<()> {
        let tree = self.tree;
        let given = given.get(..ARGUMENTS_MAX).unwrap_or(given);
        let node = |index: usize| given.get(index).map(|item| tree.node(item.value));
        let (Some(Node::Persistent(identity)), Some(Node::Number(offset))) = (node(0), node(1)) else { return None };
        let sizes = self.numbers(node(2)?)?;
        let strides = node(3).and_then(|strides| self.numbers(strides));
        let is_whole = *offset == 0 && strides.is_some_and(|strides| is_contiguous(&sizes, &strides));
        let kind = given.iter().find_map(|item| match tree.node(item.value) {
            Node::Global { module: "torch", name } => kind_of_type(name),
            _ => None,
        });
        self.storage(*identity, is_whole.then_some(sizes), kind, path);
        Some(())
    }

    fn numbers(&self, node: &Node) -> Option<Vec<u64>> {
        let Node::Items(items) = node else { return None };
        let number = |item: &Item| match self.tree.node(item.value) {
            Node::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        (items.len() <= DIMENSIONS_MAX).then(|| items.iter().map(number).collect()).flatten()
    }

    /// Notes a storage: the word "storage", its class, its key, a device, how many values it has.
    fn storage(&mut self, identity: Id, shape: Option<Vec<u64>>, kind: Option<Kind>, path: &str) {
        let tree = self.tree;
        let Node::Items(parts) = tree.node(identity) else { return };
        let mut nodes = parts.iter().map(|part| tree.node(part.value));
        let (Some(Node::Text("storage")), Some(Node::Global { name: class, .. }), Some(Node::Text(key))) =
            (nodes.next(), nodes.next(), nodes.next())
        else {
            return;
        };
        let Some(Node::Number(count)) = nodes.nth(1) else { return };
        if self.storages.contains_key(key) {
            return;
        }
        let mut count = u64::try_from(*count).unwrap_or(u64::MAX);
        let mut kind_known = kind_of_class(class);
        if *class == "UntypedStorage" {
            kind_known = kind.filter(|(_, width, _)| count.is_multiple_of(*width));
            count /= kind_known.map_or(1, |(_, width, _)| width);
        }
        let shape = shape.filter(|shape| values(shape) == Some(count));
        let is_named = !path.is_empty() && path.len() <= NAME_BYTES_MAX && self.names_bytes <= NAMES_BYTES_MAX;
        self.names_bytes += path.len();
        let name = is_named.then(|| path.to_string());
        self.storages.insert(key, Storage { name, kind: kind_known, count, shape });
    }
}

/// Whether values lie in the order of their indices, without gaps.
fn is_contiguous(sizes: &[u64], strides: &[u64]) -> bool {
    let mut expected = 1u64;
    let fits = sizes.iter().zip(strides).rev().all(|(size, stride)| {
        let is_next = *size == 1 || *stride == expected;
        expected = expected.saturating_mul(*size);
        is_next
    });
    fits && sizes.len() == strides.len()
}
