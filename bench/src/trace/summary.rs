//! The report of a simulation: tables of backups and restores, and plots of stored bytes and of restore speed.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::Result;

use super::plan::TraceBench;
use super::report::{BACKUP_TITLES, RESTORE_TITLES, SimulatedBackup, run};
use crate::claim::Claim;
use crate::measurement::{Measurement, Outline};
use crate::report::{Grid, Plot, Report, Scale, Scales, objects};

impl Measurement for TraceBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        let of_index = |index: &String| -> Vec<String> {
            self.rewrite.iter().map(|rewrite| format!("{index} {rewrite}")).collect()
        };
        let missing = self.traces().err().map(|error| error.to_string());
        Outline { runs: self.index.iter().flat_map(of_index).collect(), missing: missing.into_iter().collect() }
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        summary(self, &run(self, stop, out)?)
    }
}

/// The report of the simulated backups.
///
/// # Errors
/// [`fhrd::error::Error::Internal`] if a line cannot be serialised.
fn summary(plan: &TraceBench, jobs: &[SimulatedBackup]) -> Result<Report> {
    let titles = |kind: &str, titles: &[&str]| -> Vec<String> {
        let head = ["index", "rewrite", "job", kind];
        head.iter().chain(titles).map(|title| title.trim().to_string()).collect()
    };
    let row = |job: &SimulatedBackup, cells: Vec<String>| -> Vec<String> {
        job.head().into_iter().chain(cells).map(|cell| cell.trim().to_string()).collect()
    };
    let backups = jobs.iter().map(|job| row(job, job.cells())).collect();
    let restored = jobs.iter().flat_map(|job| job.restores.iter().map(move |restore| row(job, restore.cells())));
    Ok(Report {
        title: plan.title.clone(),
        lines: objects(jobs)?,
        grids: vec![
            Grid { title: "Backups".into(), columns: titles("stream", &BACKUP_TITLES), rows: backups },
            Grid { title: "Restores".into(), columns: titles("restored", &RESTORE_TITLES), rows: restored.collect() },
        ],
        plots: std::iter::once(stored(jobs)).chain(speeds(jobs)).collect(),
        ..Report::default()
    })
}

/// Plot of the bytes of all containers after each backup, for every index and rewriting method.
fn stored(jobs: &[SimulatedBackup]) -> Plot {
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for job in jobs {
        let name = format!("{} {}", job.index, job.rewrite);
        if series.last().is_none_or(|(last, _)| *last != name) {
            series.push((name, Vec::new()));
        }
        if let Some((_, points)) = series.last_mut() {
            points.push((job.job as f64, job.stored_bytes as f64 / 1e6));
        }
    }
    let (title, across) = ("Bytes of all containers after each backup".into(), "backup".into());
    Plot::Lines { title, across, unit: "MB".into(), scales: Scales::default(), series }
}

/// Plot of the MiB restored per container read, for the last backup.
fn speeds(jobs: &[SimulatedBackup]) -> Option<Plot> {
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let last = |job: &&SimulatedBackup| !job.restores.is_empty() && jobs.iter().all(|other| other.job <= job.job);
    for job in jobs.iter().filter(last) {
        for restore in &job.restores {
            let name = format!("{} {} {}", job.index, job.rewrite, restore.cache);
            let point = (restore.cache_containers as f64, restore.speed_factor);
            match series.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => series.push((name, vec![point])),
            }
        }
    }
    let (title, across) = ("Restore of the last backup: MiB per container read".into(), "containers in memory".into());
    let scales = Scales { across: Scale::Logarithmic, logarithmic: false };
    (!series.is_empty()).then(|| Plot::Lines { title, across, unit: "MiB".into(), scales, series })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::report::SimulatedRestore;

    #[test]
    fn every_backup_and_restore_is_a_row_and_a_point() {
        let restore = |cache_containers, speed_factor| SimulatedRestore {
            cache: "lru".into(),
            cache_containers,
            bytes: 1,
            containers_read: 1,
            speed_factor,
        };
        let job = |rewrite: &str, job, restores| SimulatedBackup {
            index: "exact".into(),
            rewrite: rewrite.into(),
            job,
            stored_bytes: 2_000_000,
            restores,
            ..SimulatedBackup::default()
        };
        let jobs =
            [job("none", 0, vec![]), job("none", 1, vec![restore(4, 1.0), restore(16, 2.0)]), job("har", 0, vec![])];
        let plan = TraceBench::parse("kind = \"trace\"\nstreams = [\"x\"]", "x").unwrap();
        let report = summary(&plan, &jobs).unwrap();
        assert_eq!((report.lines.len(), report.grids[0].rows.len(), report.grids[1].rows.len()), (3, 3, 2));
        let [Plot::Lines { series: stored, .. }, Plot::Lines { series: speeds, .. }] = &report.plots[..] else {
            panic!("{:?}", report.plots)
        };
        let expected =
            [("exact none".to_string(), vec![(0.0, 2.0), (1.0, 2.0)]), ("exact har".into(), vec![(0.0, 2.0)])];
        assert_eq!(*stored, expected);
        assert_eq!(*speeds, [("exact none lru".to_string(), vec![(4.0, 1.0), (16.0, 2.0)])]);
    }
}
