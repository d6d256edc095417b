//! `--shard`: shares of the work.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::Session;
use super::args::ShareArguments;
use super::exit::Exit;
use super::location;
use super::output::{Align, note, print, print_json, printable, size, write_table};
use super::scan::Scan;
use crate::backup::{BackupSource, ShareLabel, TreeSource, split_bucket};
use crate::config::{WorkShare, share_of};
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::ShareFilter;
use crate::model::{CARD_BYTES_MAX, ShareTally, SplitBuilder, UnitTally, WorkSplit, shown_unit};
use crate::repo::Repository;
use crate::repo::container::parse_name;
use crate::repo::paths::{cache_directory, create_private, estimate_directory, own_directories};
use crate::store::{BlobKind, Store};
use crate::wire::open_regular;

/// Units that a split names, at most.
const UNITS_SHOWN: usize = 100;

/// A split as JSON.
#[derive(Serialize)]
pub struct SplitDocument {
    files: u64,
    bytes: u64,
    shares: Vec<ShareDocument>,
    /// The units with the most bytes.
    largest_units: Vec<UnitDocument>,
}

/// A share as JSON.
#[derive(Serialize)]
struct ShareDocument {
    share: String,
    units: u64,
    files: u64,
    bytes: u64,
    largest: Option<String>,
}

/// A unit as JSON.
#[derive(Serialize)]
struct UnitDocument {
    unit: String,
    files: u64,
    bytes: u64,
}

impl SplitDocument {
    fn new(split: &WorkSplit) -> Self {
        let shares = WorkShare::new(1, split.count()).into_iter().flat_map(WorkShare::all).zip(split.shares());
        let shares = shares.map(|(share, found)| {
            let ShareTally { units, tally: UnitTally { files, bytes }, largest } = found;
            ShareDocument { share: share.to_string(), units, files, bytes, largest }
        });
        let mut units: Vec<_> = split.units.iter().collect();
        units.sort_by_key(|(unit, tally)| (std::cmp::Reverse(tally.bytes), *unit));
        let unit = |(unit, tally): (&String, &UnitTally)| UnitDocument {
            unit: shown_unit(unit),
            files: tally.files,
            bytes: tally.bytes,
        };
        SplitDocument {
            files: split.total.files,
            bytes: split.total.bytes,
            shares: shares.collect(),
            largest_units: units.into_iter().take(UNITS_SHOWN).map(unit).collect(),
        }
    }
}

/// What the snapshot of a share is labelled with.
///
/// # Errors
/// [`Error::Usage`] if the group has no name.
pub fn label(arguments: &ShareArguments, is_shown_only: bool) -> Result<Option<ShareLabel>> {
    let Some(share) = arguments.shard else { return Ok(None) };
    match &arguments.group {
        None if is_shown_only => Ok(Some(ShareLabel::new(share, ""))),
        None => Err(Error::Usage("--shard needs --group, which says which shares are one backup".into())),
        Some(group) => ShareLabel::named(share, group).map(Some),
    }
}

/// Limits a source of files to its share. A bucket does that while it is listed.
pub fn choose(source: &mut BackupSource, skip: &[PathBuf], stop: &AtomicBool) {
    let BackupSource::Tree(tree) = source else { return };
    let Some(label) = tree.labels.share.clone() else { return };
    let split = split_of_tree(tree, skip, label.share.count(), stop);
    label.computed_from(split.origin());
    let index = label.share.index();
    tree.choice.share = Some(ShareFilter::new(move |path| split.share_of(path) == index));
}

/// Walks paths of a file system, and splits what is there.
fn split_of_tree(tree: &TreeSource, skip: &[PathBuf], count: u32, stop: &AtomicBool) -> WorkSplit {
    let choice = &tree.choice;
    // Names of units are paths, so each share must spell them alike.
    let paths: Vec<PathBuf> = tree.paths.iter().map(|path| choice.spelled(path)).collect();
    let mut builder = SplitBuilder::new(paths.iter().map(|path| choice.seen(path)).collect());
    let scan = Scan { paths: &paths, skip: skip.to_vec(), choice };
    scan.visit(stop, &mut |path, scanned| {
        // What cannot be looked at is reported by the share that it falls to.
        let Ok(metadata) = scanned else { return };
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let state = modified.map_or(0, |time| time.as_nanos()).to_le_bytes();
        builder.add(&choice.seen(path), if metadata.is_file() { metadata.len() } else { 0 }, &state);
    });
    builder.finish(count, &|card| card_at(&choice.on_disk(card)))
}

fn card_at(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(CARD_BYTES_MAX).read_to_end(&mut text));
    match read {
        Ok(_) => Some(text),
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                let path = printable(&path.to_string_lossy());
                tracing::warn!("cannot read the card {path}, so what it says counts for nothing: {error}");
            }
            None
        }
    }
}

/// Shows how the source is split, and writes lists of it if they are asked for.
///
/// # Errors
/// Errors of listing the source.
pub fn show(session: &Session, arguments: &ShareArguments, source: &BackupSource) -> Result<Exit> {
    let Some(share) = arguments.shard else { return Err(Error::internal("there is no share to show")) };
    let directory = estimate_directory()?;
    create_private(&directory)?;
    // What belongs to a repository is no part of the source. One that is yet to be made has nothing there.
    let repository = match location::open(session) {
        Ok(repository) => Some(repository),
        Err(error) if error.kind() == ErrorKind::NoRepository => None,
        Err(error) => return Err(error),
    };
    let split = match source {
        BackupSource::Bucket(bucket) => {
            let mut split = split_bucket(bucket, repository.as_ref(), share.count(), &directory)?;
            if let Some(lists) = &arguments.write_share_lists {
                split.split.assign_by_bytes();
                let shown = split.split.clone();
                split.write_lists(lists)?;
                shown
            } else {
                split.split
            }
        }
        BackupSource::Tree(_) if arguments.write_share_lists.is_some() => {
            return Err(Error::Usage("--write-share-lists is about objects of a bucket".into()));
        }
        BackupSource::Tree(tree) => {
            let mut skip = vec![directory];
            if let Some(repository) = &repository {
                skip.extend(own_directories(repository, &cache_directory(repository)?));
            }
            split_of_tree(tree, &skip, share.count(), &session.stop)
        }
        _ => return Err(Error::Usage("--shard splits files".into())),
    };
    show_split(session, share, &SplitDocument::new(&split))
}

fn show_split(session: &Session, own: WorkShare, document: &SplitDocument) -> Result<Exit> {
    if session.options.json {
        print_json(document)?;
        return Ok(Exit::Fine);
    }
    let rows: Vec<Vec<String>> = document.shares.iter().map(|share| row(share, own, document.bytes)).collect();
    print(|out| write_split(out, &rows))?;
    let even = document.bytes / u64::from(own.count());
    if let Some(unit) = document.largest_units.first().filter(|unit| unit.bytes > 2 * even) {
        let (name, bytes, even) = (printable(&unit.unit), size(unit.bytes), size(even));
        note(&format!("note: {name} has {bytes}, and an even share {even}: the job takes as long as it does"));
    }
    Ok(Exit::Fine)
}

fn row(share: &ShareDocument, own: WorkShare, all: u64) -> Vec<String> {
    let mark = if share.share == own.to_string() { "*" } else { "" };
    let percent = 100.0 * share.bytes as f64 / all.max(1) as f64;
    vec![
        format!("{}{mark}", share.share),
        share.units.to_string(),
        share.files.to_string(),
        size(share.bytes),
        format!("{percent:.1} %"),
        printable(share.largest.as_deref().unwrap_or_default()),
    ]
}

fn write_split(out: &mut dyn Write, rows: &[Vec<String>]) -> Result<()> {
    use Align::{Left, Right};
    let columns =
        [("share", Left), ("units", Right), ("files", Right), ("size", Right), ("of all", Right), ("largest", Left)];
    write_table(out, &columns, rows)
}

/// Shows how the containers of a repository are split.
///
/// # Errors
/// Errors of listing the store.
pub fn show_containers(session: &Session, share: WorkShare, repository: &Repository) -> Result<Exit> {
    let listed = repository.store.list(BlobKind::Container.into())?;
    let named = listed.iter().filter_map(|blob| Some((parse_name(&blob.name)?.0.to_vec(), blob.len)));
    show_named(session, share, &named.collect::<Vec<_>>())
}

/// Shows how the things with these names and bytes are split.
///
/// # Errors
/// Errors of printing.
pub fn show_named(session: &Session, share: WorkShare, things: &[(Vec<u8>, u64)]) -> Result<Exit> {
    let mut shares: Vec<ShareDocument> = share
        .all()
        .map(|share| ShareDocument { share: share.to_string(), units: 0, files: 0, bytes: 0, largest: None })
        .collect();
    for (name, bytes) in things {
        let at = share_of(name, share.count()) as usize;
        if let Some(found) = shares.get_mut(at.saturating_sub(1)) {
            (found.units, found.files, found.bytes) = (found.units + 1, found.files + 1, found.bytes + bytes);
        }
    }
    let bytes = things.iter().map(|(_, bytes)| bytes).sum();
    let document = SplitDocument { files: things.len() as u64, bytes, shares, largest_units: Vec::new() };
    show_split(session, share, &document)
}
