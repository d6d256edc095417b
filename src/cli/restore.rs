//! `fhrd restore` of a whole tree. [`tensor`] restores one tensor.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::Session;
use super::args::RestoreArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json, printable, rate, size, write_pairs};
use super::progress::shown;
use super::request::PatternLists;
use super::requests::{self, WithRequests};
use super::tensor;
use super::thaw;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::naming::SnapshotFilter;
use crate::repo::snapshot::NamedSnapshot;
use crate::restore::{RestoreReport, RestoreRequest, Selection, restore, restore_into_bucket};
use crate::store::{self, SourceBucket};
use crate::types::hex;

/// Writes a snapshot's tree into a directory.
///
/// # Errors
/// Errors of the repository, the configuration, the snapshot and [`restore`].
pub fn run(session: &Session, arguments: &RestoreArguments) -> Result<Exit> {
    if let Some(name) = &arguments.tensor {
        return tensor::run(session, arguments, name);
    }
    let options = &session.options;
    let mut config = location::config(options)?;
    config.restore.keep_damaged &= !arguments.no_damaged;
    let repository = location::open(session)?;
    let (named, base) = choice::find_entry(&repository, &arguments.entry, &filter(arguments))?;
    let request = RestoreRequest {
        target: arguments.target.clone().unwrap_or_else(|| new_directory(&named)),
        base,
        selection: selection(arguments)?,
        delete: arguments.delete,
        overwrite: arguments.overwrite.unwrap_or_default(),
        dry_run: arguments.dry_run,
        verify: arguments.verify,
        sync: arguments.sync,
    };
    if store::is_bucket(request.target.as_os_str()) {
        return into_bucket(session, arguments, &config, &repository, &named, request);
    }
    if arguments.list_containers {
        return thaw::list(session, &repository, &named, &request, arguments.price_per_gib);
    }
    if arguments.thaw {
        thaw::thaw(session, &repository, &named, &request, arguments)?;
    }
    let progress = Progress::default();
    if request.selection.is_everything() && request.base.is_none() {
        let expected = |name: &str| named.snapshot.statistics.get(name).copied().unwrap_or(0);
        progress.bytes_total.add(expected("bytes"));
        progress.files_total.add(expected("files"));
    }
    let created = missing_directories(&request.target);
    let restored = || restore(&repository, &config, &named, request, &progress, &session.stop);
    let report = shown(options, &progress, None, restored);
    let is_something = |report: &RestoreReport| {
        report.files + report.directories + report.others > 0 || report.problems + report.damaged == 0
    };
    if !report.as_ref().is_ok_and(is_something) {
        // What has entries stays, and what is above it.
        let _ = created.iter().try_for_each(std::fs::remove_dir);
    }
    // Also of what a failed restore met. Its own error comes first.
    let asked = thaw::parity(session, &repository, arguments);
    let report = report?;
    asked?;
    if options.json {
        print_json(&WithRequests::new(&report, &repository))?;
    } else if !options.quiet {
        print(|out| {
            let mut entries = report.deleted_entries.iter().filter(|_| report.dry_run);
            entries.try_for_each(|path| writeln!(out, "would delete {}", printable(path)).map_err(failed))?;
            let mut pairs = summary(&report);
            pairs.extend(requests::summary(&repository));
            write_pairs(out, &pairs)
        })?;
    }
    Ok(match &report {
        report if report.damaged > 0 => Exit::Damaged,
        report if report.problems > 0 => Exit::Failed,
        // Who does not say that existing entries are to stay may not expect it.
        report if report.left_alone > 0 && arguments.overwrite.is_none() => Exit::Failed,
        _ => Exit::Fine,
    })
}

/// The directories from `target` upwards that do not exist. What cannot be looked at is none of them.
fn missing_directories(target: &Path) -> Vec<PathBuf> {
    let is_missing = |path: &&Path| path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let own = target.ancestors().filter(|path| !path.as_os_str().is_empty());
    own.take_while(is_missing).map(Path::to_path_buf).collect()
}

/// Writes a snapshot's files into a bucket.
fn into_bucket(
    session: &Session,
    arguments: &RestoreArguments,
    config: &Config,
    repository: &Repository,
    named: &NamedSnapshot,
    request: RestoreRequest,
) -> Result<Exit> {
    if arguments.list_containers || arguments.thaw || arguments.sync {
        return Err(Error::Usage("--list-containers, --thaw and --sync are not for a target in a bucket".into()));
    }
    let options = session.options.source_options(arguments.target_endpoint.as_deref());
    let bucket = SourceBucket::open(request.target.as_os_str(), &options)?;
    let progress = Progress::default();
    let report = shown(&session.options, &progress, None, || {
        restore_into_bucket(repository, config, named, &bucket, request, &progress, &session.stop)
    })?;
    if session.options.json {
        print_json(&WithRequests::new(&report, repository))?;
    } else if !session.options.quiet {
        let would = if report.dry_run { "would be " } else { "" };
        let pairs = [
            ("target", printable(&report.target)),
            ("files", format!("{}, {} were there already", report.files, report.unchanged)),
            ("content", size(report.bytes)),
            ("written", format!("{would}{}", size(report.bytes_written))),
            ("left alone", report.left_alone.to_string()),
            ("left out", format!("{} links and special files", report.left_out)),
            ("damaged", report.damaged.to_string()),
            ("problems", report.problems.to_string()),
        ];
        print(|out| write_pairs(out, &pairs))?;
    }
    Ok(match &report {
        report if report.damaged > 0 => Exit::Damaged,
        report if report.problems > 0 => Exit::Failed,
        report if report.left_alone > 0 && arguments.overwrite.is_none() => Exit::Failed,
        _ => Exit::Fine,
    })
}

/// What narrows `latest`.
pub fn filter(arguments: &RestoreArguments) -> SnapshotFilter {
    SnapshotFilter { hosts: arguments.hosts.clone(), tags: arguments.tags.clone(), ..SnapshotFilter::default() }
}

/// The entries that the paths and patterns choose. The root is everything.
fn selection(arguments: &RestoreArguments) -> Result<Selection> {
    let paths = arguments.paths.iter().map(|path| stored_path(path)).collect::<Result<Vec<_>>>()?;
    let is_all = paths.iter().any(|path| path.as_os_str().is_empty());
    let given = &arguments.include;
    let include = PatternLists {
        option: "include",
        patterns: &given.include,
        ipatterns: &given.iinclude,
        files: &given.include_file,
        ifiles: &given.iinclude_file,
    };
    let exclude = PatternLists::excluding(&arguments.exclude);
    let paths = if is_all { Vec::new() } else { paths };
    Ok(Selection { paths, include: include.build()?, exclude: exclude.build()? })
}

/// A path in a snapshot, without a slash at the start.
fn stored_path(path: &Path) -> Result<PathBuf> {
    let mut stored = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => stored.push(name),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(Error::Usage(format!("{}: a path in a snapshot has no `..`", path.display()))),
        }
    }
    Ok(stored)
}

/// An unused name in the current directory.
fn new_directory(named: &NamedSnapshot) -> PathBuf {
    let name = format!("fhrd-restore-{}", hex(&named.id.0[..4]));
    let numbered = (2u64..).map(|number| format!("{name}-{number}"));
    let is_free = |name: &String| Path::new(name).symlink_metadata().is_err();
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name).into()
}

fn summary(report: &RestoreReport) -> Vec<(&'static str, String)> {
    let reused = match report.bytes_reused {
        0 => String::new(),
        bytes => format!(", and {} that the target had", size(bytes)),
    };
    let mut pairs = vec![
        ("snapshot", report.snapshot.get(..8).unwrap_or_default().to_string()),
        ("target", if report.dry_run { format!("{} (nothing changed)", report.target) } else { report.target.clone() }),
        ("files", report.files.to_string()),
        ("directories", format!("{} and {} other entries", report.directories, report.others)),
        ("content", format!("{}{reused}", size(report.bytes))),
        ("time", format!("{:.1} s ({})", report.seconds, rate(report.bytes, report.seconds))),
    ];
    let existing = [
        ("unchanged", report.unchanged, ""),
        ("replaced", report.replaced, ""),
        ("left alone", report.left_alone, " existing entries that differ (--overwrite says which are replaced)"),
        ("verified", report.verified, ""),
        ("copies", report.copied_links, " hard links that the target refused"),
        ("warnings", report.warnings, ""),
        ("deleted", report.deleted, ""),
    ];
    let existing = existing.iter().filter(|(_, count, _)| *count > 0);
    pairs.extend(existing.map(|(name, count, what)| (*name, format!("{count}{what}"))));
    pairs.extend([("problems", report.problems.to_string()), ("damaged", report.damaged.to_string())]);
    pairs
}
