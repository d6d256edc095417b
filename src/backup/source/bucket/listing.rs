//! The listing of the bucket, by stored paths.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use minicbor::{Decode, Encode};

use super::cards::ObjectCards;
use super::choice::ObjectChoice;
use super::list_file::ShareListReader;
use super::placed::PlacedObject;
use super::sort::{RecordSorter, SortedRecords};
use crate::error::{Error, Result};
use crate::filesystem::suggests_model;
use crate::metrics::Progress;
use crate::model::{CANDIDATES_MAX, MODEL_BYTES_MIN, SplitBuilder};
use crate::repo::tree::{BESIDE, ObjectPath, in_tree_order, path_of_key};
use crate::store::{ListedObject, ObjectPage, PageTokens, SourceBucket};

/// Bytes of the listing that are sorted in memory.
const SORT_BYTES: usize = 16 << 20;
/// Objects that wait for their other name, at most.
const WAITING_MAX: usize = 10_000;
/// Bytes of a key, at most: 1024 characters.
const KEY_BYTES_MAX: usize = 4096;
/// Names of a path, at most. Each is a directory that a restore opens.
const DEPTH_MAX: usize = 257;

/// An object of the listing, as it is sorted.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
struct ListedRecord {
    #[n(0)]
    key: String,
    #[n(1)]
    size: u64,
    #[n(2)]
    etag: Option<String>,
    /// Nanoseconds since 1970.
    #[n(3)]
    modified_ns: Option<i64>,
    #[n(4)]
    is_directory: bool,
}

/// The whole listing, and what matters of it before it is walked.
pub struct TakenListing {
    /// All objects.
    pub objects: PlacedObjects,
    /// New models may be among these, which are in the order of their paths.
    pub candidates: Vec<PlacedObject>,
    /// The cards beside them.
    pub cards: ObjectCards,
    /// All files, if they are to be split.
    pub builder: Option<SplitBuilder>,
}

/// Objects in the order of a tree, each at a path of its own.
pub struct PlacedObjects {
    /// Objects that were placed before.
    listed: Option<ShareListReader>,
    bucket: Arc<SourceBucket>,
    sorted: SortedRecords,
    /// The next of `sorted`.
    next: Option<(Vec<u8>, ListedRecord)>,
    /// Objects that have got another name, by it.
    waiting: BTreeMap<Vec<u8>, ListedRecord>,
    refused: VecDeque<PlacedObject>,
}

/// Takes the listing that begins with `first`, and adds what is chosen of it to the `builder` of a split. Temporary
/// files are put into `directory`.
///
/// # Errors
/// Errors of [`SourceBucket::page`]; [`Error::Io`] of a temporary file.
pub fn take_listing(
    bucket: &Arc<SourceBucket>,
    first: ObjectPage,
    directory: &Path,
    (choice, progress): (&ObjectChoice, &Progress),
    mut builder: Option<SplitBuilder>,
) -> Result<TakenListing> {
    let mut sorter = RecordSorter::new(directory, SORT_BYTES);
    let mut candidates = BTreeMap::new();
    let mut cards = ObjectCards::new(bucket.clone());
    let mut tokens = PageTokens::default();
    let mut page = first;
    loop {
        for object in page.objects {
            let rest = object.key.strip_prefix(bucket.prefix()).unwrap_or_default();
            let (path, is_directory) = match path_of_key(rest, object.size) {
                ObjectPath::File(path) => (path, false),
                ObjectPath::Directory(path) => (path, true),
                ObjectPath::Root => continue,
            };
            let is_chosen = choice.takes(&path, &object, is_directory);
            match &mut builder {
                _ if !is_chosen => {}
                Some(builder) => {
                    let state = object.etag.as_deref().unwrap_or_default();
                    builder.add(&Path::new(bucket.url()).join(&path), object.size, state.as_bytes());
                }
                None => {
                    progress.files_total.add(1);
                    progress.bytes_total.add(object.size);
                }
            }
            cards.note(&path, &object);
            let sort_key = in_tree_order(&path);
            if is_chosen && object.size >= MODEL_BYTES_MIN && suggests_model(Path::new(&path)) {
                let placed = PlacedObject { path, object: object.clone(), is_directory, defect: None };
                candidates.insert(sort_key.clone(), placed);
                if candidates.len() > CANDIDATES_MAX {
                    candidates.pop_last();
                }
            }
            let record = ListedRecord {
                modified_ns: object.modified.and_then(|time| i64::try_from(time.as_nanosecond()).ok()),
                key: object.key,
                size: object.size,
                etag: object.etag,
                is_directory,
            };
            let encoded = minicbor::to_vec(&record).map_err(|error| Error::internal(error.to_string()))?;
            sorter.push((sort_key, encoded))?;
        }
        let Some(token) = page.next else { break };
        tokens.note(bucket, &token)?;
        page = bucket.page(Some(&token))?;
    }
    let mut objects = PlacedObjects {
        listed: None,
        bucket: bucket.clone(),
        sorted: sorter.finish()?,
        next: None,
        waiting: BTreeMap::new(),
        refused: VecDeque::new(),
    };
    objects.advance()?;
    let candidates = candidates.into_values().filter(|placed| bucket.has_address(&placed.object.key)).collect();
    Ok(TakenListing { objects, candidates, cards, builder })
}

impl PlacedObjects {
    /// Objects that were placed before.
    pub fn of_list(bucket: Arc<SourceBucket>, listed: ShareListReader) -> Self {
        PlacedObjects {
            listed: Some(listed),
            bucket,
            sorted: SortedRecords::Memory(Vec::new().into_iter()),
            next: None,
            waiting: BTreeMap::new(),
            refused: VecDeque::new(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        self.next = match self.sorted.next()? {
            None => None,
            Some((path, encoded)) => {
                let record = minicbor::decode(&encoded).map_err(|error| Error::internal(error.to_string()))?;
                Some((path, record))
            }
        };
        Ok(())
    }

    /// Takes the first object.
    fn take(&mut self) -> Result<Option<(Vec<u8>, ListedRecord)>> {
        let is_waiting = match (self.waiting.first_key_value(), &self.next) {
            (Some((waiting, _)), Some((next, _))) => waiting < next,
            (waiting, _) => waiting.is_some(),
        };
        if is_waiting {
            return Ok(self.waiting.pop_first());
        }
        let taken = self.next.take();
        self.advance()?;
        Ok(taken)
    }

    /// The path of the first object.
    fn peek(&self) -> Option<&Vec<u8>> {
        let paths = [self.waiting.first_key_value().map(|(path, _)| path), self.next.as_ref().map(|(path, _)| path)];
        paths.into_iter().flatten().min()
    }

    /// The next object.
    ///
    /// # Errors
    /// [`Error::Io`] of a temporary file.
    pub fn next(&mut self) -> Result<Option<PlacedObject>> {
        if let Some(listed) = &mut self.listed {
            return listed.next();
        }
        loop {
            if let Some(refused) = self.refused.pop_front() {
                return Ok(Some(refused));
            }
            let Some((path, mut record)) = self.take()? else { return Ok(None) };
            while self.peek() == Some(&path) {
                let Some((_, other)) = self.take()? else { break };
                // A listing may name an object twice. If it says two things of it, the object is read to know.
                if other.key == record.key && other != record {
                    record.etag = None;
                }
                // A marked directory is the one that others are in.
                if other.key != record.key && !(record.is_directory && other.is_directory) {
                    let defect = "another object is stored under its path";
                    let refused = self.placed(&path, other, Some(defect));
                    self.refused.push_back(refused);
                }
            }
            if record.is_directory {
                return Ok(Some(self.placed(&path, record, None)));
            }
            let below = [path.as_slice(), &[0]].concat();
            if !self.peek().is_some_and(|next| next.starts_with(&below)) {
                return Ok(Some(self.placed(&path, record, None)));
            }
            let renamed = [path.as_slice(), BESIDE.as_bytes()].concat();
            if self.waiting.len() >= WAITING_MAX || self.waiting.contains_key(&renamed) {
                return Ok(Some(self.placed(&path, record, Some("other objects are below its key"))));
            }
            self.waiting.insert(renamed, record);
        }
    }

    fn placed(&self, path: &[u8], record: ListedRecord, defect: Option<&'static str>) -> PlacedObject {
        let path: Vec<u8> = path.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }).collect();
        let ListedRecord { key, size, etag, modified_ns, is_directory } = record;
        let own = match key.len() > KEY_BYTES_MAX || key.split('/').count() > DEPTH_MAX {
            true => Some("its key is longer than any service allows, or has more than 256 slashes"),
            false if self.bucket.has_address(&key) || is_directory => None,
            false => Some("no URL can have its key, which has the name `.` or `..`"),
        };
        let modified = modified_ns.and_then(|time| Timestamp::from_nanosecond(i128::from(time)).ok());
        PlacedObject {
            path: String::from_utf8_lossy(&path).into_owned(),
            object: ListedObject { key, size, etag, modified },
            is_directory,
            defect: defect.or(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::store::{AccessKey, StoreOptions};

    /// The listing of these keys. No request is sent.
    fn listing_of(keys: &[&str]) -> TakenListing {
        let options = StoreOptions {
            endpoint: Some("http://127.0.0.1:9".into()),
            access_key: Some(AccessKey { id: "i".into(), secret: "s".into() }),
            ..StoreOptions::default()
        };
        let bucket = Arc::new(SourceBucket::open(OsStr::new("s3://bucket/data"), &options).unwrap());
        let object = |key: &&str| ListedObject { key: format!("data/{key}"), size: 1, etag: None, modified: None };
        let page = ObjectPage { objects: keys.iter().map(object).collect(), next: None };
        let directory = tempfile::tempdir().unwrap();
        take_listing(&bucket, page, directory.path(), (&ObjectChoice::default(), &Progress::default()), None).unwrap()
    }

    /// The paths and defects of objects, in order.
    fn placed(keys: &[&str]) -> Vec<(String, bool)> {
        let mut listing = listing_of(keys);
        let all = std::iter::from_fn(|| listing.objects.next().unwrap());
        all.map(|placed| (placed.path, placed.defect.is_some())).collect()
    }

    #[test]
    fn objects_come_in_the_order_of_a_tree_each_at_a_path_of_its_own() {
        let stored = |paths: &[&str]| paths.iter().map(|path| (path.to_string(), false)).collect::<Vec<_>>();
        assert_eq!(placed(&["a-b", "a/b", "a", "a0", "a-b"]), stored(&["a/b", "a%2F", "a-b", "a0"]));
        assert_eq!(placed(&["p", "p/q", "p/q/r", "p!"]), stored(&["p/q/r", "p/q%2F", "p!", "p%2F"]));
    }

    #[test]
    fn an_object_that_is_listed_twice_with_two_etags_is_read() {
        let record = |etag: &str| ListedRecord {
            key: "data/a".into(),
            size: 1,
            etag: Some(etag.into()),
            modified_ns: None,
            is_directory: false,
        };
        for (one, other, expected) in [("e", "e", Some("e")), ("e", "f", None)] {
            let mut listing = listing_of(&[]);
            let entry = |record| (b"a".to_vec(), record);
            (listing.objects.next, listing.objects.waiting) = (Some(entry(record(one))), [entry(record(other))].into());
            let taken = listing.objects.next().unwrap().unwrap();
            assert_eq!(taken.object.etag.as_deref(), expected);
            assert_eq!(listing.objects.next().unwrap(), None);
        }
    }

    #[test]
    fn what_cannot_be_stored_costs_no_other_object() {
        let found = placed(&["a//b", "a/%2F/b", "c"]);
        assert_eq!(found.iter().filter(|(path, is_bad)| path == "a/%2F/b" && *is_bad).count(), 1);
        assert_eq!(found.iter().filter(|(_, is_bad)| !is_bad).count(), 2, "{found:?}");
        let (long, deep, fine) = ("l".repeat(5000), "d/".repeat(300) + "x", "f/".repeat(200) + "x");
        let found = placed(&[&long, &deep, &fine]);
        assert_eq!(found.iter().filter(|(_, is_bad)| *is_bad).count(), 2);
        assert!(found.contains(&(fine, false)));
    }
}
