//! The kind of source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minicbor::bytes::ByteVec;

use super::choice::ObjectChoice;
use super::examine::ModelSearch;
use super::fetch::ObjectFetcher;
use super::list::BucketListStage;
use super::listing::{TakenListing, take_listing};
use super::split::{ObjectShare, SplitBucket, split_chosen, take_list, take_share};
use crate::backup::scan::AnchorScanner;
use crate::backup::source::labels::{SnapshotLabels, encoded};
use crate::backup::source::open::{OpenSource, SourceKind, SourcePlan, SourceRun};
use crate::backup::source::parents::{FoundParents, ParentChoice};
use crate::error::{Error, Result};
use crate::filesystem::Patterns;
use crate::metrics::Progress;
use crate::pipeline::Pipeline;
use crate::repo::Repository;
use crate::repo::in_bucket::RepositoryPrefix;
use crate::repo::snapshot::{EXCLUDES_KEY, NamedSnapshot, SERVER_KEY, Snapshot};
use crate::store::{ObjectPage, SourceBucket};

/// Workers of Fetch. With more requests in flight, one connection of 1 Gbit/s gets no faster.
const WORKERS: usize = 8;
/// Batches that one request asks for, at most.
const BATCHES_OF_REQUEST: u64 = 4;

/// The objects of a bucket below a prefix, and what to store of them.
#[derive(Debug, Clone)]
pub struct BucketSource {
    /// Where the objects are.
    pub bucket: Arc<SourceBucket>,
    /// Entries to leave out, by pattern. The prefix is their root.
    pub patterns: Patterns,
    /// Objects longer than this are left out, bytes.
    pub bytes_max: Option<u64>,
    /// The choice as the snapshot records it, an option and its value each.
    pub excludes: Vec<String>,
    /// The snapshots whose unchanged objects are not read.
    pub parents: ParentChoice,
    /// What the snapshot says about itself.
    pub labels: SnapshotLabels,
    /// The list of the share that is stored, if a driver has written one.
    pub list: Option<PathBuf>,
}

impl BucketSource {
    /// What tells its server from others.
    fn server(&self) -> ByteVec {
        self.bucket.identity().to_vec().into()
    }

    /// What is stored at all. The keys of the `repository` are left out.
    fn choice(&self, repository: Option<&Repository>) -> Result<ObjectChoice> {
        let own = match repository {
            Some(repository) => own_keys(repository, &self.bucket)?,
            None => None,
        };
        Ok(ObjectChoice { patterns: self.patterns.clone(), bytes_max: self.bytes_max, own })
    }

    /// The objects, and what of them falls to the share that is stored.
    fn take(
        &self,
        first: ObjectPage,
        directory: &Path,
        (choice, progress): (&ObjectChoice, &Progress),
    ) -> Result<(TakenListing, Option<ObjectShare>)> {
        match (&self.labels.share, &self.list) {
            (Some(label), Some(list)) => Ok((take_list(&self.bucket, list, (choice, progress), label)?, None)),
            (Some(label), None) => {
                let (taken, share) = take_share(&self.bucket, first, directory, (choice, progress), label)?;
                Ok((taken, Some(share)))
            }
            (None, _) => Ok((take_listing(&self.bucket, first, directory, (choice, progress), None)?, None)),
        }
    }

    fn open<'a>(&self, first: ObjectPage, run: SourceRun<'a>) -> Result<OpenSource<'a>> {
        let SourceRun { repository, config, progress, counts, .. } = run;
        let choice = self.choice(Some(run.repository))?;
        if let Some(own) = &choice.own {
            tracing::info!("skipping {}: it is the repository", self.bucket.url_of(own));
        }
        let (TakenListing { objects, candidates, cards, .. }, share) =
            self.take(first, run.cache, (&choice, progress))?;
        let search = Arc::new(ModelSearch { bucket: self.bucket.clone(), cards, config: config.model.clone() });
        let data_bytes = config.pipeline.batch_bytes.0;
        let request_bytes = BATCHES_OF_REQUEST.saturating_mul(data_bytes);
        let list = BucketListStage::new(
            search.clone(),
            (objects, candidates),
            (choice, share),
            run.for_split(self.labels.share.as_ref()).parent_cursors_of_objects(),
            request_bytes,
            (progress, counts.clone()),
        );
        let first = move |pipeline: &mut Pipeline<'a>| {
            let link = pipeline.source(list);
            pipeline.parallel(link, WORKERS, || ObjectFetcher {
                search: search.clone(),
                request_bytes,
                data_bytes,
                progress,
                counts: counts.clone(),
                scanner: AnchorScanner::of(repository),
            })
        };
        Ok(OpenSource { first: Box::new(first), root_node: None, counts_changes: true })
    }
}

/// Takes the listing of a source and splits what a backup into the `repository` would store of it into `count` shares.
/// Temporary files are put into `directory`.
///
/// # Errors
/// Errors of listing the bucket; [`Error::Usage`] if it is empty, or in the repository.
pub fn split_bucket(
    source: &BucketSource,
    repository: Option<&Repository>,
    count: u32,
    directory: &Path,
) -> Result<SplitBucket> {
    split_chosen(&source.bucket, &source.choice(repository)?, count, directory)
}

/// What the keys of the repository begin with, if it is below the prefix of the source.
///
/// # Errors
/// [`Error::Usage`] if the source is in the repository. Errors of reading which repository is there.
fn own_keys(repository: &Repository, bucket: &SourceBucket) -> Result<Option<String>> {
    match RepositoryPrefix::find(repository, bucket)? {
        RepositoryPrefix::Apart => Ok(None),
        RepositoryPrefix::Below(prefix) => Ok(Some(prefix)),
        RepositoryPrefix::Around => {
            Err(Error::Usage(format!("there is nothing to back up: {} is in the repository", bucket.url())))
        }
    }
}

impl SourceKind for BucketSource {
    fn is_repeatable(&self) -> bool {
        true
    }

    fn labels(&self) -> Option<&SnapshotLabels> {
        Some(&self.labels)
    }

    fn plan(&self) -> Result<SourcePlan<'_>> {
        let paths = vec![self.bucket.url().as_bytes().to_vec()];
        if self.list.is_some() {
            let none = ObjectPage { objects: Vec::new(), next: None };
            return Ok(SourcePlan::new(paths, move |run| self.open(none, run)));
        }
        let first = self.bucket.page(None)?;
        if first.objects.is_empty() && first.next.is_none() {
            let location = self.bucket.location();
            return Err(Error::Usage(format!("nothing to back up: there are no objects below {location}")));
        }
        Ok(SourcePlan::new(paths, move |run| self.open(first, run)))
    }

    fn parents(&self, repository: &Repository, paths: &[Vec<u8>]) -> Result<FoundParents> {
        let mut found = self.parents.find(repository, self.labels.parents_of(), paths)?;
        // A bucket of the same name on another server has other objects, whatever their ETags.
        let is_same = |named: &NamedSnapshot| named.snapshot.extra.get(SERVER_KEY) == Some(&self.server());
        found.snapshots.retain(is_same);
        found.others.retain(is_same);
        Ok(found)
    }

    fn description(&self, started_ns: i64) -> Result<Snapshot> {
        let mut snapshot = self.labels.description(started_ns)?;
        snapshot.extra.insert(SERVER_KEY.into(), self.server());
        if !self.excludes.is_empty() {
            snapshot.extra.insert(EXCLUDES_KEY.into(), encoded(&self.excludes)?.into());
        }
        Ok(snapshot)
    }

    fn decide(&self, problems: u64) -> Result<u64> {
        Ok(problems)
    }
}
