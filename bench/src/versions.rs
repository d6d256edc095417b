//! Compares configurations on series of versions: the bytes that each version adds, and restores of the oldest and the
//! newest.
//!
//! 1. The files of a set, sorted by name, are backed up one after another into one repository, each as its own
//!    snapshot. The growth of the repository is what the version *added*.
//! 2. The snapshots of the first and the last version are restored from the page cache and compared with their source.
//!    With `cold`, they are restored again without the page cache.
//!
//! A restore of the last version reads all bases of its chunks. *Decoded*, the decoded bytes of frames per restored
//! byte, measures that cost. All values are medians of the rounds.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::backup::BackupReport;
use fhrd::error::{Error, Result};
use fhrd::repo::Repository;
use fhrd::repo::index::{Hits, SimilarHits};
use fhrd::store::BlobPrefix;
use serde::Serialize;

use super::comparison::{Case, Comparison, Versions};
use super::data::{SetSource, files_below};
use super::index_levels::{LevelShares, shares, similar_shares};
use super::report::{Grid, Plot, Report, Scales, objects, pictures};
use super::table::{ComparisonLine, flush, mb, or_dash, two, write_line};
use super::workbench::{Cost, PageCache, Restored, Workbench, median, median_u64, rounds, warm};

/// Titles of the columns. The last six are of the restores of the first and the last version.
const TITLES: [&str; 15] = [
    "chunk KiB",
    "versions",
    "MB",
    "MB stored",
    "ratio",
    "backup s",
    "CPU s",
    "MB first",
    "KB/next",
    "1st MB/s",
    "cold MB/s",
    "decoded",
    "last MB/s",
    "cold MB/s",
    "decoded",
];

/// Fields to plot.
const PICTURES: [(&str, &str, &str); 3] = [
    ("ratio", "Ratio of the content of all versions to stored bytes", "times"),
    ("first.mb_per_s", "Restore of the first version", "MB/s"),
    ("last.mb_per_s", "Restore of the last version", "MB/s"),
];

/// Measurements of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VersionMeasurements {
    /// Bytes of all versions.
    pub bytes: u64,
    /// Bytes of the repository's blobs after the last version.
    pub stored: u64,
    /// Bytes of content per stored byte.
    pub ratio: f64,
    /// Percent of the content that is not stored.
    pub reduction: f64,
    /// Bytes that a version adds after the first, on average, in percent of its content.
    pub added_share: Option<f64>,
    /// Bytes of blobs that each version added.
    pub added: Vec<u64>,
    /// Bytes of content of each version.
    pub content_bytes: Vec<u64>,
    /// Wall seconds of all backups.
    pub backup_seconds: f64,
    /// CPU seconds of all backups.
    pub backup_cpu_seconds: f64,
    /// Look-ups in the levels of the chunk index, of all backups.
    pub index: BTreeMap<&'static str, LevelShares>,
    /// Look-ups of similar blocks, of all backups, if the scheme counts them.
    pub similar: BTreeMap<&'static str, LevelShares>,
    /// Restores of the first version.
    pub first: Option<Restores>,
    /// Restores of the last version.
    pub last: Option<Restores>,
}

/// Measurements of the restores of a version.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Restores {
    /// MB per second, from the page cache.
    pub mb_per_s: f64,
    /// CPU seconds, from the page cache.
    pub cpu_seconds: f64,
    /// MB per second, without the page cache.
    pub cold_mb_per_s: Option<f64>,
    /// Decoded bytes of frames per restored byte.
    pub amplification: f64,
}

/// Restores of one version in one round: with and without the page cache.
type WarmAndCold = (Restored, Option<Restored>);

/// Measurements of one round.
#[derive(Default)]
struct VersionSample {
    content_bytes: Vec<u64>,
    added: Vec<u64>,
    /// Bytes of all blobs after the last version.
    stored: u64,
    backup: Cost,
    /// Look-ups of each backup.
    index: Vec<Hits>,
    similar: Vec<SimilarHits>,
    ends: Option<[WarmAndCold; 2]>,
}

fn stored_bytes(repository: &Repository) -> Result<u64> {
    Ok(repository.store.list(BlobPrefix::All)?.iter().map(|blob| blob.len).sum())
}

fn measure(bench: &Workbench, comparison: &Comparison, case: &Case, versions: &[PathBuf]) -> Result<VersionSample> {
    tracing::info!("measuring {}", case.scheme);
    let repository = bench.repository(&case.config)?;
    let mut sample = VersionSample::default();
    let mut reports = Vec::new();
    for version in versions {
        let (report, cost) = bench.backup(&repository, &case.config, std::slice::from_ref(version))?;
        let now = stored_bytes(&repository)?;
        // A backup that merges index segments can leave fewer bytes than there were.
        sample.added.push(now.saturating_sub(sample.stored));
        sample.stored = now;
        sample.content_bytes.push(report.bytes);
        sample.index.push(report.index_hits);
        sample.similar.push(report.similar_hits);
        sample.backup.wall_seconds += cost.wall_seconds;
        sample.backup.cpu_seconds += cost.cpu_seconds;
        reports.push((report, version));
    }
    if let (true, Some(first), Some(last)) = (comparison.restore, reports.first(), reports.last()) {
        let restore = |(report, version): &(BackupReport, &PathBuf), page_cache| {
            bench.restore(&repository, &case.config, report, std::slice::from_ref(*version), page_cache)
        };
        let warm = [restore(first, PageCache::Warm)?, restore(last, PageCache::Warm)?];
        let cold = match comparison.cold {
            true => [Some(restore(first, PageCache::Cold)?), Some(restore(last, PageCache::Cold)?)],
            false => [None, None],
        };
        let ([warm_first, warm_last], [cold_first, cold_last]) = (warm, cold);
        sample.ends = Some([(warm_first, cold_first), (warm_last, cold_last)]);
    }
    bench.discard(&repository)?;
    Ok(sample)
}

impl Restores {
    fn of(pairs: &[&WarmAndCold]) -> Option<Self> {
        let cold: Vec<f64> = pairs.iter().filter_map(|(_, cold)| cold.as_ref()).map(Restored::mb_per_second).collect();
        (!pairs.is_empty()).then(|| Restores {
            mb_per_s: median(pairs.iter().map(|(warm, _)| warm.mb_per_second())),
            cpu_seconds: median(pairs.iter().map(|(warm, _)| warm.cost.cpu_seconds)),
            cold_mb_per_s: (!cold.is_empty()).then(|| median(cold)),
            amplification: median(pairs.iter().map(|(warm, _)| warm.amplification())),
        })
    }
}

impl VersionMeasurements {
    fn of(samples: &[VersionSample]) -> Self {
        let versions = samples.first().map_or(0, |sample| sample.added.len());
        let added = |number: usize| median_u64(samples.iter().filter_map(|sample| sample.added.get(number)).copied());
        let pairs = |end: fn(&[WarmAndCold; 2]) -> &WarmAndCold| -> Vec<&WarmAndCold> {
            samples.iter().filter_map(|sample| sample.ends.as_ref()).map(end).collect()
        };
        let content_bytes = samples.first().map_or_else(Vec::new, |sample| sample.content_bytes.clone());
        let bytes = content_bytes.iter().sum();
        let stored = median_u64(samples.iter().map(|sample| sample.stored));
        let later: u64 = (1..versions).map(added).sum();
        let of_later: u64 = content_bytes.iter().skip(1).sum();
        VersionMeasurements {
            reduction: 100.0 * (1.0 - stored as f64 / (bytes as f64).max(1.0)),
            added_share: (of_later > 0).then(|| 100.0 * later as f64 / of_later as f64),
            bytes,
            content_bytes,
            stored,
            ratio: bytes as f64 / (stored as f64).max(1.0),
            added: (0..versions).map(added).collect(),
            backup_seconds: median(samples.iter().map(|sample| sample.backup.wall_seconds)),
            backup_cpu_seconds: median(samples.iter().map(|sample| sample.backup.cpu_seconds)),
            // Timing decides which level answers, so a round stands for itself.
            index: samples.first().map_or_else(BTreeMap::new, |sample| shares(&sample.index)),
            similar: samples.first().map_or_else(BTreeMap::new, |sample| similar_shares(&sample.similar)),
            first: Restores::of(&pairs(|[first, _]| first)),
            last: Restores::of(&pairs(|[_, last]| last)),
        }
    }

    fn cells(&self) -> Vec<String> {
        let next = self.added.get(1..).filter(|next| !next.is_empty()).map(|next| median_u64(next.iter().copied()));
        let mut cells = vec![
            self.added.len().to_string(),
            mb(self.bytes),
            mb(self.stored),
            two(self.ratio),
            two(self.backup_seconds),
            two(self.backup_cpu_seconds),
            mb(self.added.first().copied().unwrap_or(0)),
            or_dash(next.map(|bytes| bytes as f64 / 1e3), |kb| format!("{kb:.1}")),
        ];
        let whole = |value: f64| format!("{value:.0}");
        for end in [self.first, self.last] {
            cells.push(or_dash(end.map(|end| end.mb_per_s), whole));
            cells.push(or_dash(end.and_then(|end| end.cold_mb_per_s), whole));
            cells.push(or_dash(end.map(|end| end.amplification), two));
        }
        cells
    }
}

/// The versions of a set: its files, with those of directories sorted by name, or its paths.
///
/// # Errors
/// [`Error::Io`] for a directory that cannot be read; [`Error::Usage`] if there is no file.
pub fn versions_of(paths: &[PathBuf], kind: Versions) -> Result<Vec<PathBuf>> {
    let mut versions = Vec::new();
    if kind == Versions::Paths {
        return Ok(paths.to_vec());
    }
    for path in paths {
        versions.extend(files_below(path)?);
    }
    match versions.is_empty() {
        false => Ok(versions),
        true => Err(Error::Usage("a series of versions needs at least one file".into())),
    }
}

/// Runs the comparison. Prints the table of each set and the bytes that each version added.
///
/// # Errors
/// A missing set; [`Error::Interrupted`]. Cases that fail are lines.
pub fn run(comparison: &Comparison, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let sources = comparison.sources()?;
    let bench = Workbench::new(&comparison.work, stop)?;
    let mut report = Report { title: comparison.title.clone(), ..Report::default() };
    for source in &sources {
        let versions = versions_of(&source.paths, comparison.versions)?;
        versions.iter().try_for_each(|path| warm(path).map(drop))?;
        let outcomes = rounds(&comparison.cases, (comparison.warm_up, comparison.repeats), |case| {
            measure(&bench, comparison, case, &versions)
        })?;
        let line = |(case, outcome)| ComparisonLine::new(source, case, outcome, VersionMeasurements::of);
        let lines: Vec<ComparisonLine<VersionMeasurements>> = comparison.cases.iter().zip(outcomes).map(line).collect();
        write_set(&lines, &versions, out)?;
        add_set(&mut report, source, &lines, &versions)?;
    }
    report.plots.extend(pictures(&report.lines, &PICTURES));
    bench.clear()?;
    Ok(report)
}

/// Adds a set's lines and tables, and a plot of the ratio over the versions.
fn add_set(
    report: &mut Report,
    source: &SetSource,
    lines: &[ComparisonLine<VersionMeasurements>],
    versions: &[PathBuf],
) -> Result<()> {
    let titles = |titles: &[&str]| ["set", "scheme"].iter().chain(titles).map(|title| title.to_string()).collect();
    let rows = lines.iter().map(|line| line.row(VersionMeasurements::cells)).collect();
    report.grids.push(Grid { title: source.name.clone(), columns: titles(&TITLES), rows });
    let mut columns: Vec<String> = titles(&["chunk KiB"]);
    columns.extend(versions.iter().map(|path| name_of(path)));
    let rows = lines.iter().map(|line| line.row(added)).collect();
    report.grids.push(Grid { title: format!("{}: KB added by each version", source.name), columns, rows });
    let ratios = |measurements: &VersionMeasurements| -> Vec<(f64, f64)> {
        let (mut content, mut stored) = (0.0, 0.0);
        let sum = |(number, (bytes, added)): (u32, (&u64, &u64))| {
            content += *bytes as f64;
            stored += *added as f64;
            (f64::from(number), content / stored.max(1.0))
        };
        (1..).zip(measurements.content_bytes.iter().zip(&measurements.added)).map(sum).collect()
    };
    let series = lines.iter().filter_map(|line| Some((line.label(), ratios(line.measurements.as_ref()?)))).collect();
    report.plots.push(Plot::Lines {
        title: format!("{}: ratio of all content to all stored bytes, as versions are added", source.name),
        across: "versions".into(),
        unit: "times".into(),
        scales: Scales::default(),
        series,
    });
    report.failures += lines.iter().filter(|line| line.failure.is_some()).count();
    report.lines.extend(objects(lines)?);
    Ok(())
}

fn name_of(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn added(measurements: &VersionMeasurements) -> Vec<String> {
    measurements.added.iter().map(|bytes| format!("{:.1}", *bytes as f64 / 1e3)).collect()
}

fn write_set(lines: &[ComparisonLine<VersionMeasurements>], versions: &[PathBuf], out: &mut dyn Write) -> Result<()> {
    write_line(out, "set", "scheme", &TITLES)?;
    lines.iter().try_for_each(|line| line.write(out, VersionMeasurements::cells))?;
    // The column has nine characters, and the ends of names distinguish versions.
    let short = |name: String| name.chars().skip(name.chars().count().saturating_sub(9)).collect::<String>();
    let names = versions.iter().map(|path| short(name_of(path)));
    let titles: Vec<String> = std::iter::once("chunk KiB".into()).chain(names).collect();
    write_line(out, "KB added by version", "scheme", &titles)?;
    lines.iter().filter(|line| line.measurements.is_some()).try_for_each(|line| line.write(out, added))?;
    flush(out)
}

#[cfg(test)]
#[path = "versions_tests.rs"]
mod tests;
