//! A walk over the pickled object of `torch.save` to its tensors and storages.
//!
//! 1. Containers are entered by their keys, which make the names; calls that rebuild a tensor are told from others by
//!    their callee and their arguments: storage, offset, sizes, strides and more.
//! 2. For storages each value is entered once, under the name met first. For views it is entered under every name, as
//!    long as a budget lasts that pickles of many names for the same values would exceed; then once as well.

use super::pickle::{Id, Item, Node, Tree};
use super::tensor::DIMENSIONS_MAX;
use super::torch::NAME_BYTES_MAX;

/// Deepest container that is searched for tensors.
const DEPTH_MAX: usize = 64;
/// Arguments looked at in a call.
const ARGUMENTS_MAX: usize = 16;
/// Values entered again.
const AGAIN_MAX: usize = 1 << 18;

/// A storage that the walk comes upon, and the tensor in it.
pub(super) struct Met<'a, 'p> {
    /// Names of the keys that lead to it.
    pub(super) path: &'p str,
    /// What the pickle calls the storage's class.
    pub(super) class: &'a str,
    pub(super) key: &'a str,
    /// Values of the storage; bytes of one without a type.
    pub(super) count: u64,
    /// Name of the type in module `torch` among the arguments.
    pub(super) dtype: Option<&'a str>,
    /// None for a storage on its own.
    pub(super) view: Option<View>,
}

/// Which values of a storage a tensor has.
pub(super) struct View {
    /// The first one.
    pub(super) offset: i64,
    pub(super) sizes: Vec<u64>,
    pub(super) strides: Vec<u64>,
    /// Why these are not the tensor's values.
    pub(super) obstacle: Option<&'static str>,
}

/// See the module.
pub(super) struct Walk<'t, 'a, 's> {
    tree: &'t Tree<'a>,
    seen: Vec<bool>,
    /// Values on the way to the current one.
    active: Vec<bool>,
    /// How many values may be entered again.
    budget: usize,
    /// Whether what cannot be read as a tensor is met, too.
    for_views: bool,
    sink: &'s mut dyn FnMut(Met<'a, '_>),
}

impl<'t, 'a, 's> Walk<'t, 'a, 's> {
    /// Hands `sink` what lies in each storage, the first of each storage first.
    pub(super) fn of_storages(tree: &'t Tree<'a>, sink: &'s mut dyn FnMut(Met<'a, '_>)) -> Self {
        let len = tree.len();
        Walk { tree, seen: vec![false; len], active: vec![false; len], budget: 0, for_views: false, sink }
    }

    /// Hands `sink` every tensor under every name.
    pub(super) fn of_views(tree: &'t Tree<'a>, sink: &'s mut dyn FnMut(Met<'a, '_>)) -> Self {
        Walk { budget: AGAIN_MAX, for_views: true, ..Self::of_storages(tree, sink) }
    }

    pub(super) fn run(mut self) {
        self.visit(self.tree.top, "", DEPTH_MAX);
    }

    /// Whether a value may be entered, of `cost` values in it.
    fn may_enter(&mut self, id: Id, cost: usize) -> bool {
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

    fn visit(&mut self, id: Id, path: &str, depth: usize) {
        let tree = self.tree;
        let cost = match tree.node(id) {
            Node::Items(items) | Node::Call { items, .. } => 1 + items.len(),
            Node::Persistent(_) => 1,
            _ => return,
        };
        if depth == 0 || !self.may_enter(id, cost) {
            return;
        }
        self.set_active(id, true);
        match tree.node(id) {
            Node::Items(items) => self.visit_items(items, path, true, depth - 1),
            Node::Persistent(identity) => self.storage(*identity, None, None, path),
            Node::Call { callee, arguments, items } => {
                self.call(*callee, *arguments, path, depth);
                self.visit_items(items, path, false, depth - 1);
            }
            _ => {}
        }
        self.set_active(id, false);
    }

    fn set_active(&mut self, id: Id, is_active: bool) {
        if let Some(active) = self.active.get_mut(id) {
            *active = is_active;
        }
    }

    fn call(&mut self, callee: Id, arguments: Id, path: &str, depth: usize) {
        let tree = self.tree;
        let Node::Items(given) = tree.node(arguments) else { return };
        let name = |id: Id| if let Node::Global { name, .. } = tree.node(id) { *name } else { "" };
        let is_rebuilt = name(callee).starts_with("_rebuild_");
        // Calls may share their arguments: those too are searched once.
        let may_enter = self.may_enter(arguments, 1 + given.len());
        if is_rebuilt && self.for_views {
            if name(callee).contains("sparse") {
                self.hidden(path);
            }
            // A subclass: what rebuilds it, its type, and the arguments.
            if let [first, _, inner, ..] = given.as_slice()
                && name(first.value).starts_with("_rebuild_")
                && let Node::Items(given) = tree.node(inner.value)
                && self.tensor(given, path).is_some()
            {
                return;
            }
        }
        if !(is_rebuilt && self.tensor(given, path).is_some()) && may_enter {
            self.visit_items(given, path, false, depth - 1);
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

    /// Hands out a tensor if these are the arguments one is rebuilt from: storage, offset, sizes, strides and more.
    fn tensor(&mut self, given: &'t [Item], path: &str) -> Option<()> {
        let tree = self.tree;
        let given = given.get(..ARGUMENTS_MAX).unwrap_or(given);
        let node = |index: usize| given.get(index).map(|item| tree.node(item.value));
        let Some(Node::Persistent(identity)) = node(0) else { return None };
        let offset = if let Some(Node::Number(offset)) = node(1) { Some(*offset) } else { None };
        let sizes = node(2).and_then(|sizes| self.numbers(sizes));
        let strides = node(3).and_then(|strides| self.numbers(strides));
        let dtype = given.iter().find_map(|item| match tree.node(item.value) {
            Node::Global { module: "torch", name } => Some(*name),
            _ => None,
        });
        let obstacle = match (offset, &sizes, &strides) {
            (Some(_), Some(_), Some(_)) => given.iter().find_map(|item| obstacle(tree, item)),
            (None, ..) | (_, None, _) if !self.for_views => return None,
            _ => Some("its offset, sizes or strides are no numbers"),
        };
        let (offset, sizes, strides) = (offset.unwrap_or(0), sizes.unwrap_or_default(), strides.unwrap_or_default());
        self.storage(*identity, Some(View { offset, sizes, strides, obstacle }), dtype, path);
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

    /// Hands out the name of what is no plain tensor.
    fn hidden(&mut self, path: &str) {
        let obstacle = Some("it is sparse: its indices and values are tensors of their own");
        let view = Some(View { offset: 0, sizes: Vec::new(), strides: Vec::new(), obstacle });
        (self.sink)(Met { path, class: "", key: "", count: 0, dtype: None, view });
    }

    /// Hands out a storage: the word "storage", its class, its key, a device, how many values it has.
    fn storage(&mut self, identity: Id, view: Option<View>, dtype: Option<&'a str>, path: &str) {
        let tree = self.tree;
        let Node::Items(parts) = tree.node(identity) else { return };
        let mut nodes = parts.iter().map(|part| tree.node(part.value));
        let (Some(Node::Text("storage")), Some(Node::Global { name: class, .. }), Some(Node::Text(key))) =
            (nodes.next(), nodes.next(), nodes.next())
        else {
            return;
        };
        let Some(Node::Number(count)) = nodes.nth(1) else { return };
        let count = u64::try_from(*count).unwrap_or(u64::MAX);
        (self.sink)(Met { path, class, key, count, dtype, view });
    }
}

/// Why a tensor's values are not those in its storage: a note among its arguments says that they are still to be
/// conjugated or negated.
fn obstacle(tree: &Tree, given: &Item) -> Option<&'static str> {
    let Node::Items(notes) = tree.node(given.value) else { return None };
    notes.iter().take(ARGUMENTS_MAX).find_map(|note| match (tree.node(note.key?), tree.node(note.value)) {
        (Node::Text("conj"), Node::Number(1)) => Some("its values are stored before conjugation"),
        (Node::Text("neg"), Node::Number(1)) => Some("its values are stored before negation"),
        _ => None,
    })
}
