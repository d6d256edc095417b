//! Splits a bucket among processes: the listing is taken once, and gives the share of each object.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cards::ObjectCards;
use super::choice::ObjectChoice;
use super::list_file::{ListedUse, ShareListReader, ShareListWriter};
use super::listing::{PlacedObjects, TakenListing, take_listing};
use super::placed::PlacedObject;
use crate::backup::source::labels::ShareLabel;
use crate::config::WorkShare;
use crate::error::{Error, Result};
use crate::filesystem::suggests_model;
use crate::metrics::Progress;
use crate::model::{CANDIDATES_MAX, MODEL_BYTES_MIN, SplitBuilder, WorkSplit};
use crate::store::{ObjectPage, SourceBucket};

/// What of a bucket falls to a share.
#[derive(Debug, Clone)]
pub struct ObjectShare {
    /// How all is split.
    pub split: Arc<WorkSplit>,
    /// The share.
    pub share: WorkShare,
}

impl ObjectShare {
    /// Whether an object falls to it. `url` is that of the source.
    pub fn has(&self, url: &str, placed: &PlacedObject) -> bool {
        self.split.share_of(&Path::new(url).join(&placed.path)) == self.share.index()
    }
}

/// A bucket whose objects are split.
pub struct SplitBucket {
    bucket: Arc<SourceBucket>,
    objects: PlacedObjects,
    /// How they are split.
    pub split: WorkSplit,
}

/// Takes the listing of a bucket and splits what is chosen of it into `count` shares. Temporary files are put into
/// `directory`.
///
/// # Errors
/// Errors of listing the bucket; [`Error::Usage`] if it is empty.
pub(super) fn split_chosen(
    bucket: &Arc<SourceBucket>,
    choice: &ObjectChoice,
    count: u32,
    directory: &Path,
) -> Result<SplitBucket> {
    let first = bucket.page(None)?;
    if first.objects.is_empty() && first.next.is_none() {
        return Err(Error::Usage(format!("nothing to back up: there are no objects below {}", bucket.location())));
    }
    let (taken, split) = take_split(bucket, first, directory, (choice, &Progress::default()), count)?;
    Ok(SplitBucket { bucket: bucket.clone(), objects: taken.objects, split })
}

/// Takes the listing that begins with `first`, and splits it into `count` shares.
pub fn take_split(
    bucket: &Arc<SourceBucket>,
    first: ObjectPage,
    directory: &Path,
    taking: (&ObjectChoice, &Progress),
    count: u32,
) -> Result<(TakenListing, WorkSplit)> {
    let builder = Some(SplitBuilder::new(vec![PathBuf::from(bucket.url())]));
    let mut taken = take_listing(bucket, first, directory, taking, builder)?;
    let builder = taken.builder.take().unwrap_or_default();
    let split = builder.finish(count, &|card| taken.cards.read(card));
    Ok((taken, split))
}

/// Takes the listing that begins with `first`, for the share of `label`.
pub fn take_share(
    bucket: &Arc<SourceBucket>,
    first: ObjectPage,
    directory: &Path,
    (choice, progress): (&ObjectChoice, &Progress),
    label: &ShareLabel,
) -> Result<(TakenListing, ObjectShare)> {
    let (mut taken, split) = take_split(bucket, first, directory, (choice, progress), label.share.count())?;
    label.computed_from(split.origin());
    if let Some(own) = split.shares().get(label.share.index() as usize - 1) {
        progress.files_total.add(own.tally.files);
        progress.bytes_total.add(own.tally.bytes);
    }
    let share = ObjectShare { split: Arc::new(split), share: label.share };
    taken.candidates.retain(|placed| share.has(bucket.url(), placed));
    Ok((taken, share))
}

/// Takes what is in the list of a share at `path`. No page is asked for.
pub fn take_list(
    bucket: &Arc<SourceBucket>,
    path: &Path,
    (choice, progress): (&ObjectChoice, &Progress),
    label: &ShareLabel,
) -> Result<TakenListing> {
    let open = || ShareListReader::open(path, bucket.url(), &label.share.to_string());
    let (mut reader, origin) = open()?;
    label.computed_from(origin);
    let (mut cards, mut candidates) = (ObjectCards::new(bucket.clone()), Vec::new());
    while let Some((placed, usage)) = reader.entry()? {
        if matches!(usage, ListedUse::Stored | ListedUse::Card) {
            cards.note(&placed.path, &placed.object);
        }
        if usage != ListedUse::Stored || !choice.takes(&placed.path, &placed.object, placed.is_directory) {
            continue;
        }
        progress.files_total.add(1);
        progress.bytes_total.add(placed.object.size);
        let may_be_model = placed.object.size >= MODEL_BYTES_MIN && suggests_model(Path::new(&placed.path));
        if may_be_model && candidates.len() < CANDIDATES_MAX {
            candidates.push(placed);
        }
    }
    let (reader, _) = open()?;
    let objects = PlacedObjects::of_list(bucket.clone(), reader);
    Ok(TakenListing { objects, candidates, cards, builder: None })
}

/// Writes the list of one share.
struct ListInProgress {
    writer: ShareListWriter,
    /// Names of the directories that a reader has open, as far as they have other shares' objects.
    open: Vec<String>,
    /// How many of them the reader knew to have some when it read of the last one.
    marked: Option<usize>,
    /// The last object of another share that the list does not have: directories that are entered later may lack it.
    elsewhere: Option<Arc<PlacedObject>>,
}

impl SplitBucket {
    /// Writes the list of each share into `directory`, as `1`, `2` and so on. Creates the directory.
    ///
    /// # Errors
    /// Errors of writing them, and of the temporary file of the listing.
    pub fn write_lists(mut self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).map_err(|error| Error::io("create", directory, error))?;
        let origin = self.split.origin();
        let shares = WorkShare::new(1, self.split.count()).into_iter().flat_map(WorkShare::all);
        let mut lists = Vec::new();
        for share in shares {
            let path = directory.join(share.index().to_string());
            let writer = ShareListWriter::create(path, self.bucket.url(), &share.to_string(), origin)?;
            lists.push(ListInProgress { writer, open: Vec::new(), marked: None, elsewhere: None });
        }
        while let Some(placed) = self.objects.next()? {
            let path = Path::new(self.bucket.url()).join(&placed.path);
            let (own, is_card) = (self.split.share_of(&path), self.split.is_beside_others(&path));
            let mut names: Vec<&str> = placed.path.split('/').collect();
            let name = if placed.is_directory { None } else { names.pop() };
            let (names, is_card) = (&names[..], is_card && name.is_some_and(ObjectCards::is_card));
            let object = Arc::new(placed.clone());
            for (list, share) in lists.iter_mut().zip(1..) {
                list.take((&object, names), share == own, is_card)?;
            }
        }
        lists.into_iter().try_for_each(|list| list.writer.finish())
    }
}

impl ListInProgress {
    /// Takes an object in the directories that `names` lead to.
    fn take(&mut self, (placed, names): (&Arc<PlacedObject>, &[&str]), is_own: bool, is_card: bool) -> Result<()> {
        if is_own {
            if let Some(before) = self.elsewhere.take() {
                self.writer.add(&before, ListedUse::Elsewhere)?;
            }
            (self.open, self.marked) = (names.iter().map(ToString::to_string).collect(), None);
            let usage = if placed.defect.is_some() { ListedUse::Refused } else { ListedUse::Stored };
            return self.writer.add(placed, usage);
        }
        if is_card {
            self.writer.add(placed, ListedUse::Card)?;
        }
        let shared = self.open.iter().zip(names).take_while(|(open, name)| open == name).count();
        self.open.truncate(shared);
        if self.marked == Some(shared) {
            self.elsewhere = Some(placed.clone());
            return Ok(());
        }
        (self.marked, self.elsewhere) = (Some(shared), None);
        self.writer.add(placed, ListedUse::Elsewhere)
    }
}
