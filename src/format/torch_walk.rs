//! Walks the pickled object of `torch.save` to its tensors and storages.
//!
//! 1. The keys of nested containers make the names. Callee and arguments (storage, offset, sizes, strides and more)
//!    tell whether a call rebuilds a tensor.
//! 2. For storages, each value is entered once, under its first name. For views, it is entered under every name until a
//!    budget is used up, and then once. The budget bounds pickles with many names for the same values.

use super::pickle::{NodeNumber, PickleItem, PickleNode, PickleTree};
use super::tensor::DIMENSIONS_MAX;
use super::torch::NAME_BYTES_MAX;

/// Deepest nesting of containers that is searched.
const DEPTH_MAX: usize = 64;
/// Most arguments of a call that are read.
const ARGUMENTS_MAX: usize = 16;
/// Most repeated entries of values, and of these for each node of the pickle. So the work of a file with many small
/// pickles is bounded by its length.
const AGAIN_MAX: usize = 1 << 18;
const AGAIN_PER_NODE_MAX: usize = 64;

/// A use of a storage in the pickle, usually by a tensor.
pub(super) struct StorageUse<'a, 'p> {
    /// Keys that lead to it, joined by dots.
    pub(super) path: &'p str,
    /// Class of the storage.
    pub(super) class: &'a str,
    /// Key of the storage in the archive.
    pub(super) key: &'a str,
    /// Number of values of the storage; number of bytes if it has no type.
    pub(super) count: u64,
    /// Name of a type of module `torch` among the arguments.
    pub(super) dtype: Option<&'a str>,
    /// The tensor's view. `None` for a storage without a tensor.
    pub(super) view: Option<StorageView>,
}

/// The values of a storage that a tensor has.
pub(super) struct StorageView {
    /// Index of the first value.
    pub(super) offset: i64,
    pub(super) sizes: Vec<u64>,
    pub(super) strides: Vec<u64>,
    /// Why the stored values are not the values of the tensor.
    pub(super) obstacle: Option<&'static str>,
}

/// A walk over a tree. See the module.
pub(super) struct PickleWalk<'t, 'a, 's> {
    tree: &'t PickleTree<'a>,
    seen: Vec<bool>,
    /// Whether a value contains the current one.
    active: Vec<bool>,
    /// Remaining repeated entries of values.
    budget: usize,
    /// Whether unreadable tensors are reported too.
    for_views: bool,
    sink: &'s mut dyn FnMut(StorageUse<'a, '_>),
}

impl<'t, 'a, 's> PickleWalk<'t, 'a, 's> {
    /// A walk that passes each use of a storage to `sink`, the first use of a storage first.
    pub(super) fn of_storages(tree: &'t PickleTree<'a>, sink: &'s mut dyn FnMut(StorageUse<'a, '_>)) -> Self {
        let len = tree.len();
        PickleWalk { tree, seen: vec![false; len], active: vec![false; len], budget: 0, for_views: false, sink }
    }

    /// A walk that passes every tensor under every name to `sink`.
    pub(super) fn of_views(tree: &'t PickleTree<'a>, sink: &'s mut dyn FnMut(StorageUse<'a, '_>)) -> Self {
        let budget = tree.len().saturating_mul(AGAIN_PER_NODE_MAX).min(AGAIN_MAX);
        PickleWalk { budget, for_views: true, ..Self::of_storages(tree, sink) }
    }

    pub(super) fn run(mut self) {
        self.visit(self.tree.top, "", DEPTH_MAX);
    }

    /// Whether a value that holds `cost` values may be entered. Charges the budget for a repeated entry.
    fn may_enter(&mut self, id: NodeNumber, cost: usize) -> bool {
        let Some(seen) = self.seen.get_mut(id) else { return false };
        if !std::mem::replace(seen, true) {
            return true;
        }
        match self.budget.checked_sub(cost) {
            Some(rest) if self.active.get(id) == Some(&false) => {
                self.budget = rest;
                true
            }
            _ => false,
        }
    }

    fn visit(&mut self, id: NodeNumber, path: &str, depth: usize) {
        let tree = self.tree;
        let cost = match tree.node(id) {
            PickleNode::Items(items) | PickleNode::Call { items, .. } => 1 + items.len(),
            PickleNode::Persistent(_) => 1,
            _ => return,
        };
        if depth == 0 || !self.may_enter(id, cost) {
            return;
        }
        self.set_active(id, true);
        match tree.node(id) {
            PickleNode::Items(items) => self.visit_items(items, path, true, depth - 1),
            PickleNode::Persistent(identity) => self.storage(*identity, None, None, path),
            PickleNode::Call { callee, arguments, items } => {
                self.call(*callee, *arguments, path, depth);
                self.visit_items(items, path, false, depth - 1);
            }
            _ => {}
        }
        self.set_active(id, false);
    }

    fn set_active(&mut self, id: NodeNumber, is_active: bool) {
        if let Some(active) = self.active.get_mut(id) {
            *active = is_active;
        }
    }

    fn call(&mut self, callee: NodeNumber, arguments: NodeNumber, path: &str, depth: usize) {
        let tree = self.tree;
        let PickleNode::Items(given) = tree.node(arguments) else { return };
        let name = |id: NodeNumber| if let PickleNode::Global { name, .. } = tree.node(id) { *name } else { "" };
        let is_rebuilt = name(callee).starts_with("_rebuild_");
        // Calls may share arguments, which are then searched once.
        let may_enter = self.may_enter(arguments, 1 + given.len());
        if is_rebuilt && self.for_views {
            if name(callee).contains("sparse") {
                self.sparse(path);
            }
            // A subclass of tensor: callee, type and arguments of the actual call.
            if let [first, _, inner, ..] = given.as_slice()
                && name(first.value).starts_with("_rebuild_")
                && let PickleNode::Items(given) = tree.node(inner.value)
                && self.tensor(given, path).is_some()
            {
                return;
            }
        }
        if !(is_rebuilt && self.tensor(given, path).is_some()) && may_enter {
            self.visit_items(given, path, false, depth - 1);
        }
    }

    fn visit_items(&mut self, items: &[PickleItem], path: &str, is_numbered: bool, depth: usize) {
        for (index, item) in items.iter().enumerate() {
            let step = match item.key.map(|key| self.tree.node(key)) {
                Some(PickleNode::Text(text)) => (*text).to_string(),
                Some(PickleNode::Number(number)) => number.to_string(),
                None if is_numbered => index.to_string(),
                _ => String::new(),
            };
            match (path.is_empty(), step.is_empty()) {
                (true, _) => self.visit(item.value, &step, depth),
                (false, true) => self.visit(item.value, path, depth),
                // Names within would be even longer.
                _ if path.len() + step.len() > NAME_BYTES_MAX => self.visit(item.value, path, depth),
                _ => self.visit(item.value, &format!("{path}.{step}"), depth),
            }
        }
    }

    /// Reports a tensor if these are the arguments of a rebuilding call: storage, offset, sizes, strides and more.
    fn tensor(&mut self, given: &'t [PickleItem], path: &str) -> Option<()> {
        let tree = self.tree;
        let given = given.get(..ARGUMENTS_MAX).unwrap_or(given);
        let node = |index: usize| given.get(index).map(|item| tree.node(item.value));
        let Some(PickleNode::Persistent(identity)) = node(0) else { return None };
        let offset = if let Some(PickleNode::Number(offset)) = node(1) { Some(*offset) } else { None };
        let sizes = node(2).and_then(|sizes| self.numbers(sizes));
        let strides = node(3).and_then(|strides| self.numbers(strides));
        let dtype = given.iter().find_map(|item| match tree.node(item.value) {
            PickleNode::Global { module: "torch", name } => Some(*name),
            _ => None,
        });
        let obstacle = match (offset, &sizes, &strides) {
            (Some(_), Some(_), Some(_)) => given.iter().find_map(|item| obstacle(tree, item)),
            (None, ..) | (_, None, _) if !self.for_views => return None,
            _ => Some("its offset, sizes or strides are not numbers"),
        };
        let (offset, sizes, strides) = (offset.unwrap_or(0), sizes.unwrap_or_default(), strides.unwrap_or_default());
        self.storage(*identity, Some(StorageView { offset, sizes, strides, obstacle }), dtype, path);
        Some(())
    }

    fn numbers(&self, node: &PickleNode) -> Option<Vec<u64>> {
        let PickleNode::Items(items) = node else { return None };
        let number = |item: &PickleItem| match self.tree.node(item.value) {
            PickleNode::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        (items.len() <= DIMENSIONS_MAX).then(|| items.iter().map(number).collect()).flatten()
    }

    /// Reports the name of a sparse tensor.
    fn sparse(&mut self, path: &str) {
        let obstacle = Some("it is sparse: its indices and values are tensors of their own");
        let view = Some(StorageView { offset: 0, sizes: Vec::new(), strides: Vec::new(), obstacle });
        (self.sink)(StorageUse { path, class: "", key: "", count: 0, dtype: None, view });
    }

    /// Reports the use of a storage. Its identity is `"storage"`, class, key, device, number of values.
    fn storage(&mut self, identity: NodeNumber, view: Option<StorageView>, dtype: Option<&'a str>, path: &str) {
        let tree = self.tree;
        let PickleNode::Items(parts) = tree.node(identity) else { return };
        let mut nodes = parts.iter().map(|part| tree.node(part.value));
        let (
            Some(PickleNode::Text("storage")),
            Some(PickleNode::Global { name: class, .. }),
            Some(PickleNode::Text(key)),
        ) = (nodes.next(), nodes.next(), nodes.next())
        else {
            return;
        };
        let Some(PickleNode::Number(count)) = nodes.nth(1) else { return };
        let count = u64::try_from(*count).unwrap_or(u64::MAX);
        (self.sink)(StorageUse { path, class, key, count, dtype, view });
    }
}

/// Why the stored values are not the values of the tensor: a dictionary among its arguments marks them as not yet
/// conjugated or negated.
fn obstacle(tree: &PickleTree, given: &PickleItem) -> Option<&'static str> {
    let PickleNode::Items(marks) = tree.node(given.value) else { return None };
    marks.iter().take(ARGUMENTS_MAX).find_map(|mark| match (tree.node(mark.key?), tree.node(mark.value)) {
        (PickleNode::Text("conj"), PickleNode::Number(1)) => Some("its values are stored before conjugation"),
        (PickleNode::Text("neg"), PickleNode::Number(1)) => Some("its values are stored before negation"),
        _ => None,
    })
}
