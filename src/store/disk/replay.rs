//! What a power cut may leave of a journal: a model of a file system that keeps no more than it must.
//!
//! 1. A name that was given or taken away since its directory was synced may be there or not, whatever becomes of the
//!    others. Several changes of one name happen in order.
//! 2. A file whose content was not synced may be whole, empty, half or zeros.
//! 3. What is in a directory that is not there is not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal::Entry;
use crate::store::name::TEMPORARY_PREFIX;
use crate::store::{MemoryStore, Store, named};

/// What has a name.
#[derive(Debug, Clone)]
enum Named {
    Directory,
    /// With its content, and whether that is durable.
    File(Arc<Vec<u8>>, bool),
}

/// Blobs by name.
pub type Blobs = BTreeMap<String, Arc<Vec<u8>>>;

/// A store with these blobs.
pub fn store_with(blobs: &Blobs) -> Arc<dyn Store> {
    let store = MemoryStore::new();
    blobs.iter().for_each(|(name, bytes)| store.replace(&named(name), bytes));
    Arc::new(store)
}

/// Numbers for [`Replay::states`], the same in each run.
pub fn numbers() -> impl FnMut() -> u64 {
    let mut number = 0u64;
    move || {
        number += 1;
        let hash = blake3::hash(&number.to_le_bytes());
        hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// See the module.
pub struct Replay {
    root: PathBuf,
    durable: BTreeMap<PathBuf, Named>,
    /// What happened to names since their directory was synced.
    pending: BTreeMap<PathBuf, Vec<Option<Named>>>,
}

impl Replay {
    /// An empty directory `root`.
    pub fn new(root: &Path) -> Self {
        Replay { root: root.into(), durable: BTreeMap::new(), pending: BTreeMap::new() }
    }

    /// Goes on by one change.
    pub fn apply(&mut self, entry: &Entry) {
        let (path, named) = match entry {
            Entry::Named(path, content, is_durable) => (path, Some(Named::File(content.clone(), *is_durable))),
            Entry::Removed(path) => (path, None),
            Entry::Created(path) => (path, Some(Named::Directory)),
            Entry::Synced(directory) => return self.sync(directory),
        };
        // Temporary files are nothing to readers.
        if !path.starts_with(self.root.join(TEMPORARY_PREFIX)) {
            self.pending.entry(path.clone()).or_default().push(named);
        }
    }

    fn sync(&mut self, directory: &Path) {
        for (path, changes) in self.pending.extract_if(.., |path, _| path.parent() == Some(directory)) {
            match changes.into_iter().next_back().flatten() {
                Some(named) => self.durable.insert(path, named),
                None => self.durable.remove(&path),
            };
        }
    }

    /// The states that a cut now may leave, at most `states_max`: beside the first and the last ones, those that
    /// `random` gives.
    pub fn states(&self, states_max: usize, mut random: impl FnMut() -> u64) -> Vec<Blobs> {
        let mut choices: Vec<(&PathBuf, Vec<Option<Named>>)> = Vec::new();
        for (path, named) in &self.durable {
            if !self.pending.contains_key(path) && matches!(named, Named::File(_, false)) {
                choices.push((path, variants(Some(named))));
            }
        }
        for (path, changes) in &self.pending {
            let before = variants(self.durable.get(path));
            let after = changes.iter().flat_map(|change| variants(change.as_ref()));
            choices.push((path, before.into_iter().chain(after).collect()));
        }
        let count = choices.iter().map(|(_, options)| options.len()).fold(1usize, usize::saturating_mul);
        let state = |mut number: usize| {
            let mut names = self.durable.clone();
            for (path, options) in &choices {
                match options[number % options.len()].clone() {
                    Some(named) => names.insert((*path).clone(), named),
                    None => names.remove(*path),
                };
                number /= options.len();
            }
            self.blobs(&names)
        };
        if count <= states_max {
            return (0..count).map(state).collect();
        }
        let sampled = (2..states_max).map(|_| state(random() as usize % count)).collect::<Vec<_>>();
        [state(0), state(count - 1)].into_iter().chain(sampled).collect()
    }

    fn blobs(&self, names: &BTreeMap<PathBuf, Named>) -> Blobs {
        let is_reachable = |path: &Path| {
            let parents = path.ancestors().skip(1).take_while(|parent| *parent != self.root);
            parents.into_iter().all(|parent| matches!(names.get(parent), Some(Named::Directory)))
        };
        let files = names.iter().filter_map(|(path, named)| match named {
            Named::File(content, _) if is_reachable(path) => {
                let name = path.strip_prefix(&self.root).ok()?.to_str()?;
                Some((name.to_string(), content.clone()))
            }
            _ => None,
        });
        files.collect()
    }
}

/// What may be found under a name.
fn variants(named: Option<&Named>) -> Vec<Option<Named>> {
    let Some(Named::File(content, false)) = named else { return vec![named.cloned()] };
    let torn = [content.to_vec(), Vec::new(), content[..content.len() / 2].to_vec(), vec![0; content.len()]];
    torn.into_iter().map(|content| Some(Named::File(Arc::new(content), true))).collect()
}
