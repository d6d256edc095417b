//! Files of `torch.save` from before the zip format: five pickles, then the storages.
//!
//! 1. The pickles are a magic number, a version, facts of the machine, the saved object, and the list of the storages'
//!    keys.
//! 2. A storage is the number of its values (8 bytes) and the values, both little-endian on every machine. The type is
//!    that of the storage's class in the saved object, so a storage that the object does not mention ends the search.
//! 3. Tensors are those of [`super::torch`], and people see those of [`super::torch_views`].

use std::collections::{BTreeMap, HashMap};

use super::Format;
use super::array::ListedArray;
use super::pickle::{PickleNode, PickleTree};
use super::read::{FormatError, Window, WindowReader};
use super::tensor::{Recognised, TENSORS_MAX, checked_model};
use super::torch::{PICKLE_BYTES_MAX, StorageTensors};
use super::torch_views::{StorageLocation, list_storages};

/// Name of the format.
const LEGACY_TORCH: &str = "torch-legacy";
/// The first pickle without its protocol: torch's magic number.
const MAGIC: &[u8] = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
/// The only version.
const VERSION: i64 = 1001;

/// Files of `torch.save` from before the zip format.
pub struct LegacyTorch;

impl Format for LegacyTorch {
    fn name(&self) -> &'static str {
        LEGACY_TORCH
    }

    fn extensions(&self) -> &'static [&'static str] {
        // Those of the zip format.
        &[]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        head.first() == Some(&0x80) && head.get(2..).is_some_and(|rest| rest.starts_with(MAGIC))
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        let head = window.head(PICKLE_BYTES_MAX as usize)?;
        let Some(file) = LegacyPickles::read(&head) else { return Ok(None) };
        let tensors = file.storages(window)?.tensors;
        if tensors.is_empty() {
            return Ok(None);
        }
        checked_model(LEGACY_TORCH, tensors, BTreeMap::new(), window.len())
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        let head = window.head(PICKLE_BYTES_MAX as usize)?;
        let Some(file) = LegacyPickles::read(&head) else { return Ok(None) };
        let mut locations = HashMap::new();
        file.each_storage(window, &StorageTensors::of(Some(&file.object)), &mut |key, offset, len| {
            locations.insert(key.to_string(), StorageLocation::Range { offset, len });
        })?;
        let count = list_storages(window, Some(&file.object), locations, false, visit)?;
        Ok((count > 0).then_some(LEGACY_TORCH))
    }
}

/// What the pickles of a file say.
struct LegacyPickles<'a> {
    /// The saved object.
    object: PickleTree<'a>,
    /// Keys of the storages in the order of the file.
    keys: PickleTree<'a>,
    /// Offset of the first storage.
    storages_start: u64,
}

impl<'a> LegacyPickles<'a> {
    /// Reads the pickles at the start of a file. `None` if they are no such pickles, have opcodes that are not read, or
    /// are longer than `head`.
    fn read(head: &'a [u8]) -> Option<LegacyPickles<'a>> {
        let (_, rest) = PickleTree::read_first(head).ok()?;
        let (version, rest) = PickleTree::read_first(rest).ok()?;
        if !matches!(version.node(version.top), PickleNode::Number(VERSION)) {
            return None;
        }
        let (_, rest) = PickleTree::read_first(rest).ok()?;
        let (object, rest) = PickleTree::read_first(rest).ok()?;
        let (keys, rest) = PickleTree::read_first(rest).ok()?;
        Some(LegacyPickles { object, keys, storages_start: (head.len() - rest.len()) as u64 })
    }

    fn storages(&self, window: Window) -> Result<StorageTensors, FormatError> {
        let described = StorageTensors::of(Some(&self.object));
        let mut found = Vec::new();
        self.each_storage(window, &described, &mut |key, offset, len| found.push((key, offset, len)))?;
        let mut storages = described;
        for (key, offset, len) in found.into_iter().filter(|(.., len)| *len > 0) {
            storages.push(key, offset, len)?;
        }
        Ok(storages)
    }

    /// Passes the key, the offset and the size of each storage to `visit`.
    fn each_storage<'k>(
        &'k self,
        window: Window,
        described: &StorageTensors,
        visit: &mut dyn FnMut(&'k str, u64, u64),
    ) -> Result<(), FormatError> {
        let PickleNode::Items(keys) = self.keys.node(self.keys.top) else {
            return FormatError::defective("expected a list of the storages' keys, found another value");
        };
        if keys.len() > TENSORS_MAX {
            return FormatError::defective(format!("expected at most {TENSORS_MAX} storages, found {}", keys.len()));
        }
        let mut reader = WindowReader::scattered(window);
        reader.seek(self.storages_start);
        for (number, key) in keys.iter().enumerate() {
            let PickleNode::Text(key) = *self.keys.node(key.value) else {
                return FormatError::defective(format!("expected the key of storage {number}, found another value"));
            };
            let Some(width) = described.width(key) else {
                return FormatError::defective(format!(
                    "expected a storage {key} of a known class in the saved object, found none"
                ));
            };
            let count = reader.u64()?;
            let (offset, len) = (reader.position(), count.saturating_mul(width));
            reader.skip(len)?;
            visit(key, offset, len);
        }
        Ok(())
    }
}
