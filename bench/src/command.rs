//! The command: what runs, what it prints and writes, and how it ends.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use fhrd::cli::output::{Align, failed, note, print, print_json, write_table};
use fhrd::cli::outputs::check_path;
use fhrd::cli::{Exit, Session, check_cpu_features, parsed};
use fhrd::error::{Error, ErrorKind, Result};
use fhrd::wire::{input_failed, read_text_file};

use super::agreement::Agreement;
use super::arguments::{BenchArguments, BenchVerb, CommandLine, command};
use super::claim::Verdict;
use super::data::{DataFile, DataHashes};
use super::measurement::{Measurement, Outline};
use super::page::{Paper, PaperPicture, PlannedExperiment, papers, planned};
use super::pins::{DataFaults, Pins, some_of};
use super::report::{Plot, Report, ReportDocument, claims_page, claims_table, pictures, write};

/// Bytes of a configuration or of an earlier result, at most.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Parses the arguments of this process and runs the measurements.
pub fn main() -> ExitCode {
    let CommandLine { verb: BenchVerb::Bench(arguments), options } = parsed(command);
    fhrd::cli::run(options, |session| {
        check_cpu_features()?;
        arguments.out.iter().try_for_each(|out| check_path(session, "--out", out, None))?;
        run(session, &arguments)
    })
    .into()
}

/// Runs the measurements one after another. Ends with [`Exit::Failed`] if a line failed or `--against` differs.
///
/// # Errors
/// [`Error::Config`] for an invalid file, before anything runs; errors of the measurements.
pub fn run(session: &Session, arguments: &BenchArguments) -> Result<Exit> {
    let experiments = arguments.files.iter().map(|path| planned(path)).collect::<Result<Vec<_>>>()?;
    let experiments: Vec<PlannedExperiment> = experiments.into_iter().flatten().collect();
    let papers = arguments.files.iter().map(|path| papers(path)).collect::<Result<Vec<_>>>()?.concat();
    if arguments.dry_run {
        let outlines = experiments.iter().map(|planned| (planned.path.as_path(), planned.experiment.outline()));
        return outline(session, &outlines.collect::<Vec<_>>());
    }
    if arguments.against.is_some() && experiments.len() > 1 {
        return Err(Error::Usage("`--against` needs exactly one measurement".into()));
    }
    let previous = arguments.against.as_ref().map(|path| read(path, &session.stop)).transpose()?;
    let directories = directories(arguments, &experiments)?;
    let parts = parts(session, arguments, &experiments, directories)?;
    let (mut documents, mut failures) = (Vec::new(), 0);
    for part in parts {
        let planned = part.planned;
        if let Some(old) = part.old {
            documents.push(judged_again(old, planned, part.note.as_deref()));
            continue;
        }
        if planned.is_empty {
            documents.push(unmeasured(planned, &missing_text(&planned.missing)));
            note(&format!("skipped   {}: {}", planned.path.display(), planned.missing.join("; ")));
            continue;
        }
        match measured(session, &part, experiments.len() > 1) {
            Ok((document, failed)) => {
                failures += failed;
                documents.push(document);
            }
            // One measurement that fails does not cost the rows of the others.
            Err(error) if experiments.len() > 1 && error.kind() != ErrorKind::Interrupted => {
                note(&format!("error: {}: {error}", planned.path.display()));
                failures += 1;
                documents.push(unmeasured(planned, &format!("the measurement failed: {error}")));
            }
            Err(error) => return Err(error),
        }
    }
    let verdicts: Vec<Verdict> = documents.iter().flat_map(|document| document.claims.clone()).collect();
    if let Some(directory) = arguments.out.as_ref().filter(|_| !verdicts.is_empty()) {
        write_claims(directory, &papers, &documents, &command_line(arguments))?;
    }
    match (session.options.json, documents.as_slice()) {
        (true, [document]) => print_json(document)?,
        (true, documents) => print_json(&documents)?,
        (false, _) => print_claims(&verdicts)?,
    }
    if failures > 0 {
        note(&format!("error: {failures} lines failed"));
    }
    let agrees = match (previous, &arguments.against, documents.first()) {
        (Some(text), Some(path), Some(document)) => agrees(&document.lines, &text, path)?,
        _ => true,
    };
    Ok(if failures == 0 && agrees { Exit::Fine } else { Exit::Failed })
}

/// A measurement that runs, or has run before.
struct PreparedPart<'a> {
    planned: &'a PlannedExperiment,
    /// Directory of its report.
    directory: Option<PathBuf>,
    /// The result of a previous run, if it counts.
    old: Option<ReportDocument>,
    /// The files that it reads, or has read.
    data: Vec<DataFile>,
    /// What a row says of them, if the manifests do not pin them all.
    note: Option<String>,
}

/// Prepares the measurements. Refuses those whose data are not what the manifests of their page pin.
fn parts<'a>(
    session: &Session,
    arguments: &BenchArguments,
    experiments: &'a [PlannedExperiment],
    directories: Vec<Option<PathBuf>>,
) -> Result<Vec<PreparedPart<'a>>> {
    let (mut hashes, mut parts, mut refused) = (DataHashes::default(), Vec::new(), BTreeSet::new());
    for (planned, directory) in experiments.iter().zip(directories) {
        let old = match &directory {
            Some(directory) if arguments.keep => ReportDocument::load(&directory.join("result.json"))?,
            _ => None,
        };
        let data = match &old {
            Some(old) => old.data.clone(),
            None if planned.is_empty => Vec::new(),
            None => planned.data(&mut hashes, &session.stop)?,
        };
        let faults = match &planned.manifests {
            Some(manifests) => Pins::load(manifests, &session.stop)?.faults(&data),
            None => DataFaults::default(),
        };
        refused.extend(faults.other.iter().cloned());
        parts.push(PreparedPart { planned, directory, old, data, note: faults.note() });
    }
    if refused.is_empty() || arguments.other_data {
        return Ok(parts);
    }
    let files: Vec<String> = refused.into_iter().collect();
    let why = "the page is refused, because these data are not those that its manifests pin";
    Err(Error::Usage(format!("{why}: {} (--other-data writes it, and its rows name them)", some_of(&files))))
}

/// The verdicts, each with what its data are.
fn with_note(mut verdicts: Vec<Verdict>, note: Option<&str>) -> Vec<Verdict> {
    verdicts.iter_mut().for_each(|verdict| verdict.data = note.map(str::to_string));
    verdicts
}

/// Writes the verdicts in words, and the table of every claim.
fn write_claims(directory: &Path, papers: &[Paper], documents: &[ReportDocument], command: &str) -> Result<()> {
    let (mut papers, mut pages) = (papers.to_vec(), Vec::new());
    for paper in &mut papers {
        let drawn = paper.picture.as_ref().map_or(Ok(None), |picture| drawn(picture, documents))?;
        match drawn {
            Some(svg) => pages.push((paper.picture_name(), svg)),
            None => paper.picture = None,
        }
    }
    pages.push(("claims.md".into(), claims_page(&papers, documents, command)));
    pages.push(("claims-table.md".into(), claims_table(documents, command)));
    for (name, page) in pages {
        let path = directory.join(name);
        std::fs::write(&path, page).map_err(|error| Error::io("write", &path, error))?;
    }
    Ok(())
}

/// The picture of a paper; `None` if its measurement has no values.
fn drawn(picture: &PaperPicture, documents: &[ReportDocument]) -> Result<Option<String>> {
    let PaperPicture { file, figure, title, unit } = picture;
    let Some(document) = documents.iter().find(|document| Path::new(&document.config.path).ends_with(file)) else {
        return Ok(None);
    };
    pictures(&document.lines, &[(figure, title, unit)]).first().map(Plot::svg).transpose()
}

/// The command as a user repeats it.
fn command_line(arguments: &BenchArguments) -> String {
    let files: Vec<String> = arguments.files.iter().map(|path| path.display().to_string()).collect();
    format!("fhrd bench {} --out DIR", files.join(" "))
}

/// Runs a measurement and writes its report. Returns the number of lines that failed, too.
fn measured(session: &Session, part: &PreparedPart, is_one_of_several: bool) -> Result<(ReportDocument, usize)> {
    let (started, clock) = (jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(), Instant::now());
    let PlannedExperiment { path, text, experiment, missing, .. } = part.planned;
    let report = measure(session, experiment.as_ref(), path, is_one_of_several)?;
    let origin = (path.as_path(), text.as_str());
    let judged = with_note(with_missing(experiment.judge(&report.lines), missing), part.note.as_deref());
    let document = ReportDocument::new(&report, judged, origin, (started, clock.elapsed().as_secs_f64()));
    let document = ReportDocument { data: part.data.clone(), ..document };
    if let Some(directory) = &part.directory {
        write(directory, &report, &document)?;
        note(&format!("report    {}", directory.join("report.html").display()));
    }
    Ok((document, report.failures))
}

/// The verdicts, of which those without a value name the data that is missing.
fn with_missing(mut verdicts: Vec<Verdict>, missing: &[String]) -> Vec<Verdict> {
    for verdict in verdicts.iter_mut().filter(|verdict| verdict.measured.is_none() && !missing.is_empty()) {
        verdict.remark = missing_text(missing);
    }
    verdicts
}

fn missing_text(missing: &[String]) -> String {
    format!("this data is missing here: {}", missing.join("; "))
}

/// The document of a measurement without lines: none of its claims is tested, for this reason.
fn unmeasured(planned: &PlannedExperiment, reason: &str) -> ReportDocument {
    let nothing = Report::default();
    let mut claims = planned.experiment.judge(&nothing.lines);
    claims.iter_mut().for_each(|verdict| verdict.remark = reason.to_string());
    let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
    ReportDocument::new(&nothing, claims, (&planned.path, &planned.text), (now, 0.0))
}

/// The document of an earlier run with the claims of today's configuration.
fn judged_again(old: ReportDocument, planned: &PlannedExperiment, note: Option<&str>) -> ReportDocument {
    let age = old.age(&planned.text);
    let mut claims = with_note(with_missing(planned.experiment.judge(&old.lines), &planned.missing), note);
    claims.iter_mut().for_each(|verdict| verdict.age.clone_from(&age));
    ReportDocument { claims, ..old }
}

fn read(path: &Path, stop: &AtomicBool) -> Result<String> {
    read_text_file(path, FILE_BYTES_MAX, stop).map_err(|error| input_failed("read", path, error))
}

/// Prints how `lines` compare with the previous run of the file `path`. Returns whether the ratios are equal.
fn agrees(lines: &[serde_json::Value], previous: &str, path: &Path) -> Result<bool> {
    let agreement = Agreement::of(lines, previous, &path.display().to_string())?;
    agreement.to_string().lines().for_each(note);
    Ok(agreement.has_same_ratios())
}

fn measure(session: &Session, experiment: &dyn Measurement, path: &Path, is_one_of_several: bool) -> Result<Report> {
    if session.options.json {
        return experiment.run(&session.stop, &mut io::sink());
    }
    let mut report = None;
    print(|out| {
        if is_one_of_several {
            writeln!(out, "\n{}", path.display()).map_err(failed)?;
        }
        report = Some(experiment.run(&session.stop, out)?);
        Ok(())
    })?;
    report.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))
}

/// Directory of each report: `--out` itself, or a subdirectory for each of several files.
fn directories(arguments: &BenchArguments, experiments: &[PlannedExperiment]) -> Result<Vec<Option<PathBuf>>> {
    let several = experiments.len() > 1;
    let mut directories: Vec<Option<PathBuf>> = Vec::new();
    for PlannedExperiment { path, .. } in experiments {
        let directory = arguments.out.as_ref().map(|out| match path.file_stem() {
            Some(name) if several => out.join(name),
            _ => out.clone(),
        });
        if directory.is_some() && directories.contains(&directory) {
            return Err(Error::Usage(format!(
                "two files have the name of {}, so their reports would overwrite each other",
                path.display()
            )));
        }
        directories.push(directory);
    }
    Ok(directories)
}

/// Prints the plan of the measurements.
fn outline(session: &Session, outlines: &[(&Path, Outline)]) -> Result<Exit> {
    if session.options.json {
        let object = |(path, Outline { runs, missing }): &(&Path, Outline)| serde_json::json!({"file": path.display().to_string(), "runs": runs, "missing": missing});
        print_json(&outlines.iter().map(object).collect::<Vec<_>>())?;
        return Ok(Exit::Fine);
    }
    print(|out| {
        for (path, Outline { runs, missing }) in outlines {
            writeln!(out, "{}", path.display()).map_err(failed)?;
            runs.iter().try_for_each(|run| writeln!(out, "  {run}").map_err(failed))?;
            missing.iter().try_for_each(|reason| writeln!(out, "  missing: {reason}").map_err(failed))?;
        }
        Ok(())
    })?;
    Ok(Exit::Fine)
}

fn print_claims(verdicts: &[Verdict]) -> Result<()> {
    if verdicts.is_empty() {
        return Ok(());
    }
    let columns =
        ["source", "claim", "in the paper", "here", "verdict", "measured on"].map(|title| (title, Align::Left));
    let row = |verdict: &Verdict| {
        let Verdict { source, section, text, expected, .. } = verdict;
        let (source, decision) = (format!("{source} {section}"), verdict.verdict.name().to_string());
        vec![source, text.clone(), expected.clone(), verdict.measured_text(), decision, verdict.measured_on()]
    };
    print(|out| {
        writeln!(out).map_err(failed)?;
        write_table(out, &columns, &verdicts.iter().map(row).collect::<Vec<_>>())
    })
}
