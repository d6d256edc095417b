//! `fhrd backup`.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bytesize::ByteSize;
use serde::Serialize;

use super::Session;
use super::args::{BackupArguments, BackupLevel, MetricsArguments, PruneArguments};
use super::exit::Exit;
use super::forget::{grace_of_profile, locks_of_profile, min_age_of_profile};
use super::hooks::run_hooks;
use super::location::{self, ChooseCache};
use super::no_snapshots;
use super::notice::RunFact;
use super::output::{
    failed, note, print, print_json, rate, ratio, size, unread, unread_marks, unread_note, warn_if_quiet, write_pairs,
};
use super::progress::shown;
use super::prune::prune_now;
use super::request::request;
use super::requests::{self, WithRequests};
use super::scan::Scan;
use super::shares;
use super::stages::write_stages;
use crate::backup::{BackupReport, BackupRequest, BackupSource, FileChanges, backup};
use crate::error::Result;
use crate::metrics::Progress;
use crate::repo::index::{Hits, SimilarHits};
use crate::repo::paths::{NO_CACHE, cache_directory, own_directories};
use crate::repo::snapshot_listing;
use crate::repo::{BlobCache, Rehearsal, Repository};
use crate::store::StoreExt;

/// The report as JSON, with the location of the repository.
#[derive(Serialize)]
struct BackupDocument<'a> {
    repository: String,
    #[serde(flatten)]
    report: WithRequests<'a, BackupReport>,
}

/// Stores the paths as a new snapshot, between the hooks of the profile.
///
/// # Errors
/// Errors of the repository, the configuration, the hooks and [`backup`].
pub fn run(session: &Session, arguments: &BackupArguments) -> Result<Exit> {
    let hooks = &session.profile.hooks;
    if arguments.dry_run {
        return store(session, arguments).map(|(exit, _)| exit);
    }
    let stored = run_hooks("before", &hooks.before, &[], &session.stop).and_then(|()| store(session, arguments));
    let stored = stored.and_then(|(exit, snapshot)| {
        let code = exit.code().to_string();
        let variables = [("FHRD_SNAPSHOT", snapshot.as_str()), ("FHRD_EXIT_CODE", code.as_str())];
        run_hooks("after", &hooks.after, &variables, &session.stop).map(|()| exit)
    });
    stored.inspect_err(|error| {
        let (code, message) = (Exit::from(error).code().to_string(), error.to_string());
        let variables = [("FHRD_EXIT_CODE", code.as_str()), ("FHRD_ERROR", message.as_str())];
        // The user may have stopped the backup, but not what cleans up after it.
        let failed = run_hooks("after_failure", &hooks.after_failure, &variables, &AtomicBool::new(false));
        if let Err(error) = failed {
            tracing::warn!("{error}");
        }
    })
}

/// Stores the paths. Also returns the id of the snapshot.
fn store(session: &Session, arguments: &BackupArguments) -> Result<(Exit, String)> {
    let options = &session.options;
    let mut config = location::config(options)?;
    if arguments.level == BackupLevel::Archive {
        config.compress = config.compress.archive();
    }
    config.read.open = arguments.open.unwrap_or(config.read.open);
    let mut request = request(arguments, &session.profile.backup, options)?;
    if arguments.share.shard.is_some() && request.dry_run {
        return Ok((shares::show(session, &arguments.share, &request.source)?, String::new()));
    }
    let cache: ChooseCache = if arguments.no_cache { |_| BlobCache::None } else { BlobCache::Lasting };
    let (mut repository, is_new) = location::open_for_backup(options, &config, !request.dry_run, cache)?;
    if is_new && !options.quiet && !options.json {
        note(&format!("created the repository {}", location::of_repository(&repository)));
    }
    let skip = own_directories(&repository, &cache_directory(&repository)?);
    if arguments.no_cache {
        // The caches of other runs are left out all the same.
        if let BackupSource::Tree(tree) = &mut request.source {
            tree.skip.clone_from(&skip);
        }
        repository.cache_directory = Some(Path::new(NO_CACHE).into());
    }
    shares::choose(&mut request.source, &skip, &session.stop);
    let rehearsal = if request.dry_run { Some(Rehearsal::of(&repository)?) } else { None };
    let target = rehearsal.as_ref().map_or(&repository, |rehearsal| &rehearsal.repository);
    let progress = Progress::default();
    let tree = match &request.source {
        BackupSource::Tree(tree) => Some(tree),
        _ => None,
    };
    let scan = tree.map(|tree| Scan { paths: &tree.paths, skip, choice: &tree.choice });
    if tree.is_none() || arguments.force {
        // Others look at all snapshots anyway.
        snapshot_listing::look_for_vanished(&repository)?;
    }
    // A dry run is a whole backup into nothing, so what it says is true.
    let whole = BackupRequest { dry_run: false, ..request.clone() };
    let mut report = shown(options, &progress, scan, || backup(target, &config, &whole, &progress, &session.stop))?;
    if request.dry_run {
        (report.dry_run, report.snapshot) = (true, String::new());
    }
    if report.files == 0 && report.others > 0 && tree.is_some_and(|tree| !tree.choice.dereference) {
        tracing::warn!("no file is stored, only links and special files: --dereference stores what links lead to");
    }
    if report.files + report.others == 0 && report.excluded > 0 {
        tracing::warn!("no file is stored: all that is there is excluded");
    }
    tell_facts(session, &report);
    warn_if_quiet(options, &unread_note(report.containers_unread, report.marks_unread));
    let left_out = tree.and_then(|tree| repository_below(&repository, &tree.paths));
    let left_out = left_out.map(|path| ("left out", format!("the repository itself, {}", path.display())));
    if options.json {
        let with_requests = WithRequests::new(&report, &repository);
        print_json(&BackupDocument { repository: location::of_repository(&repository), report: with_requests })?;
    } else if !options.quiet || arguments.stats {
        let recheck_seconds = config.read.recheck_seconds;
        let more = left_out.into_iter().chain(requests::summary(&repository)).collect();
        print(|out| write_summary(out, &report, recheck_seconds, more, arguments.stats))?;
    }
    if let Some(bytes) = session.profile.backup.compact.filter(|_| !report.dry_run) {
        compact(session, &repository, bytes);
    }
    let are_gone = no_snapshots::are_gone(&repository);
    let exit = if report.is_complete() { no_snapshots::outcome(are_gone, Exit::Fine) } else { Exit::Incomplete };
    Ok((exit, report.snapshot))
}

/// The directory of the repository, if it is below one of `paths`: no backup stores it.
fn repository_below(repository: &Repository, paths: &[PathBuf]) -> Option<PathBuf> {
    let identity = |path: &Path| path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let store = repository.store.local_path()?.canonicalize().ok()?;
    let above: HashSet<_> = store.ancestors().skip(1).filter_map(identity).collect();
    paths.iter().any(|path| identity(path).is_some_and(|it| above.contains(&it))).then_some(store)
}

fn tell_facts(session: &Session, report: &BackupReport) {
    let FileChanges { files_new, files_changed, .. } = report.changes;
    let facts = [
        (RunFact::Files, report.files),
        (RunFact::ChangedFiles, files_new + files_changed),
        (RunFact::ContentBytes, report.bytes),
        (RunFact::ReadBytes, report.bytes_read),
        (RunFact::NewBytes, report.bytes_new),
        (RunFact::StoredBytes, report.bytes_stored),
        (RunFact::Problems, report.problems),
    ];
    facts.into_iter().for_each(|(fact, value)| session.facts.add(fact, value));
}

/// Prunes after a backup, and moves at most `repack` bytes. The snapshot is stored already, so a failure is a warning.
fn compact(session: &Session, repository: &Repository, repack: ByteSize) {
    let compacted = grace_of_profile(session).and_then(|grace| {
        let extend_locks = locks_of_profile(session)?;
        let arguments = PruneArguments {
            grace,
            dry_run: false,
            repack: Some(repack),
            extend_locks,
            min_age: min_age_of_profile(session)?,
            allow_no_snapshots: false,
            allow_no_containers: false,
            metrics: MetricsArguments::default(),
        };
        prune_now(session, repository, &arguments, &[])
    });
    match compacted {
        Ok(report) => {
            let (deleted, written) = (report.containers_deleted, report.containers_written);
            tracing::info!("compacted: {deleted} containers became {written}");
        }
        Err(error) => tracing::warn!("the snapshot is stored, but containers could not be compacted: {error}"),
    }
}

/// The number of files, and what became of them since the parent snapshot.
fn files(report: &BackupReport) -> String {
    let FileChanges { files_new, files_changed, files_removed, .. } = report.changes;
    let (files, unchanged) = (report.files, report.files_unchanged);
    match &report.parent {
        None => format!("{files} ({files_new} new, {unchanged} unchanged)"),
        Some(_) => format!(
            "{files} ({files_new} new, {files_changed} changed, {unchanged} unchanged), {files_removed} removed"
        ),
    }
}

/// Why files were read that look unchanged.
fn read_again(report: &BackupReport, recheck_seconds: u64) -> Vec<(&'static str, String)> {
    let FileChanges { files_rechecked, files_healed, .. } = report.changes;
    let recent = format!(
        "{files_rechecked} files look unchanged, but changed less than {recheck_seconds} s before the last backup \
         began, or are on a mounted image, where times prove nothing"
    );
    let lost = format!("{files_healed} files look unchanged, but the repository lacked some of their content");
    let reasons = [(files_rechecked, recent), (files_healed, lost)];
    reasons.into_iter().filter(|(files, _)| *files > 0).map(|(_, reason)| ("read again", reason)).collect()
}

/// The same of the look-ups of sub-blocks; nothing without any.
fn similar_levels(hits: &SimilarHits) -> Vec<(&'static str, String)> {
    if *hits == SimilarHits::default() {
        return Vec::new();
    }
    let titles = ["similar: recent", "similar: pages"];
    let levels = titles.into_iter().zip(hits.levels());
    let mut pairs: Vec<_> =
        levels.map(|(title, (_, lookups, hits))| (title, format!("{hits} of {lookups} look-ups"))).collect();
    pairs.push(("similar: none", hits.misses.to_string()));
    pairs
}

/// How many look-ups came to each level of the chunk index, and how many of these it answered. The database is a level
/// only if it was asked.
fn index_levels(hits: &Hits) -> Vec<(&'static str, String)> {
    let titles = ["index: directories", "index: in flight", "index: recent", "index: database", "index: segments"];
    let levels =
        titles.into_iter().zip(hits.levels()).filter(|(_, (name, lookups, _))| *name != "database" || *lookups > 0);
    let mut pairs: Vec<_> =
        levels.map(|(title, (_, lookups, hits))| (title, format!("{hits} of {lookups} look-ups"))).collect();
    pairs.push(("index: not stored", hits.misses.to_string()));
    pairs.push(("of those: known from the filter", hits.absent.to_string()));
    pairs.push(("of those: let through by it", hits.filter_wrong.to_string()));
    pairs
}

fn write_summary(
    out: &mut dyn Write,
    report: &BackupReport,
    recheck_seconds: u64,
    more: Vec<(&'static str, String)>,
    with_stages: bool,
) -> Result<()> {
    let parent = report.parent.as_deref().and_then(|id| id.get(..8));
    let parent = parent.map_or(String::new(), |id| format!(" (parent {id})"));
    let snapshot =
        if report.dry_run { "none: nothing is stored" } else { report.snapshot.get(..8).unwrap_or_default() };
    let would = if report.dry_run { "nothing; a backup would store " } else { "" };
    let stored = format!("{would}{} (ratio {})", size(report.bytes_stored), ratio(report.bytes, report.bytes_stored));
    let mut pairs = vec![
        ("snapshot", format!("{snapshot}{parent}")),
        ("files", files(report)),
        ("directories", format!("{} and {} other entries", report.directories, report.others)),
        ("excluded", report.excluded.to_string()),
        ("content", size(report.bytes)),
        ("new", format!("{} in {} of {} chunks", size(report.bytes_new), report.chunks_new, report.chunks)),
        ("stored", stored),
        ("time", format!("{:.1} s ({})", report.seconds, rate(report.bytes, report.seconds))),
        ("problems", report.problems.to_string()),
    ];
    pairs.splice(2..2, read_again(report, recheck_seconds));
    if report.containers_unread > 0 {
        pairs.push(("unreadable", unread(report.containers_unread)));
    }
    if report.marks_unread > 0 {
        pairs.push(("unreadable", unread_marks(report.marks_unread)));
    }
    pairs.extend(more);
    write_pairs(out, &pairs)?;
    if with_stages {
        let hits = &report.index_hits;
        writeln!(out).map_err(failed)?;
        write_stages(out, &report.stages)?;
        writeln!(out).map_err(failed)?;
        write_pairs(out, &index_levels(hits))?;
        write_pairs(out, &similar_levels(&report.similar_hits))?;
    }
    Ok(())
}
