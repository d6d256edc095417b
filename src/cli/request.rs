//! What a backup is asked to do, from the command line and the profile.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::args::{BackupArguments, CheckpointArguments, ChoiceArguments, ExcludeArguments, InputArguments, Options};
use super::process::stop;
use super::shares;
use crate::backup::{
    BackupRequest, BucketSource, NamedStream, ParentChoice, SnapshotLabels, StreamInput, StreamSource, TreeSource,
};
use crate::config::BackupProfile;
use crate::error::{Error, Result};
use crate::filesystem::{EntryChoice, PATTERN_BYTES_MAX, Patterns, PatternsBuilder, TagFile};
use crate::repo::checkpoint::Checkpoint;
use crate::repo::tags::merged_tags;
use crate::store::{self, SourceBucket};
use crate::wire::{input_failed, open_without_waiting, read_input};

/// Bytes of a list of paths, at most.
const PATHS_BYTES_MAX: u64 = 64 << 20;

/// The request of a command line with a profile. Lists of both are joined, the profile's first; a single value of the
/// command line replaces that of the profile. Paths on the command line replace all of the profile's.
///
/// # Errors
/// [`Error::Usage`] and [`Error::Config`], which name the option; [`Error::Io`] for files that they name.
pub fn request(arguments: &BackupArguments, profile: &BackupProfile, options: &Options) -> Result<BackupRequest> {
    let chosen = merged(&arguments.choice, profile);
    let labels = SnapshotLabels {
        tags: merged_tags(profile.tag.iter().chain(&arguments.tags))
            .map_err(|reason| Error::Usage(format!("--tag: {reason}")))?,
        host: arguments.host.clone().or_else(|| profile.host.clone()).unwrap_or_else(host_name),
        time_ns: arguments.time.as_deref().map(time_ns).transpose()?,
        checkpoint: checkpoint(&arguments.checkpoint)?,
        share: shares::label(&arguments.share, arguments.dry_run)?,
        ..SnapshotLabels::default()
    };
    check_input(arguments, profile)?;
    // A pattern that is wrong is an error beside a stream, too.
    let mut choice = choice(&chosen)?;
    let request = match streams(arguments, profile)? {
        Some(_) if labels.share.is_some() => {
            return Err(Error::Usage("--shard splits files; a stream is one".into()));
        }
        Some(streams) => BackupRequest::new(StreamSource { streams, labels }),
        None => {
            let (paths, as_path) = paths(&arguments.paths, &arguments.input, profile)?;
            if let (Some(stored), [path]) = (&as_path, paths.as_slice()) {
                choice.rename(path, stored);
            }
            let parents = ParentChoice::new(arguments.force, arguments.parent.clone());
            let excludes = excludes(&chosen);
            if paths.iter().any(|path| store::is_bucket(path.as_os_str())) {
                let url = only_url(&paths, as_path.as_deref(), &chosen)?;
                let options = options.source_options(arguments.input.source_endpoint.as_deref());
                let bucket = Arc::new(SourceBucket::open(url, &options)?);
                let (patterns, bytes_max) = (choice.patterns, choice.file_bytes_max);
                let list = arguments.share.share_list.clone();
                let source = BucketSource { bucket, patterns, bytes_max, excludes, parents, labels, list };
                return Ok(BackupRequest { dry_run: arguments.dry_run, ..BackupRequest::new(source) });
            }
            if arguments.share.share_list.is_some() {
                return Err(Error::Usage("--share-list is about objects of a bucket".into()));
            }
            BackupRequest::new(TreeSource {
                paths,
                as_path,
                choice,
                excludes,
                parents,
                labels,
                ..TreeSource::default()
            })
        }
    };
    Ok(BackupRequest { dry_run: arguments.dry_run, ..request })
}

/// The URL of the bucket, which is the only path. Options that are about files on a disk are refused.
fn only_url<'a>(paths: &'a [PathBuf], as_path: Option<&Path>, chosen: &ChoiceArguments) -> Result<&'a OsStr> {
    let [url] = paths else {
        return Err(Error::Usage("a snapshot has either one bucket or paths of this machine".into()));
    };
    let refused = [
        ("--as-path", as_path.is_some()),
        ("--exclude-if-present", !chosen.exclude_if_present.is_empty()),
        ("--exclude-caches", chosen.exclude_caches),
        ("--ignore-file", !chosen.ignore_file.is_empty()),
        ("--one-file-system", chosen.one_file_system),
        ("--with-atime", chosen.with_atime),
        ("--dereference", chosen.dereference),
        ("--read-special", chosen.read_special),
        ("--read-holes", chosen.read_holes),
    ];
    match refused.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Error::Usage(format!("{option} is about files on a disk, not about objects"))),
        None => Ok(url.as_os_str()),
    }
}

/// The checkpoint that the arguments describe, if any.
fn checkpoint(arguments: &CheckpointArguments) -> Result<Option<Checkpoint>> {
    let (Some(run), Some(step)) = (arguments.run.clone(), arguments.step) else { return Ok(None) };
    let checkpoint = Checkpoint { run, step, metrics: arguments.metrics.iter().cloned().collect() };
    match checkpoint.defect() {
        Some(defect) => Err(Error::Usage(defect.into())),
        None => Ok(Some(checkpoint)),
    }
}

/// Name of this machine.
pub fn host_name() -> String {
    hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Checks that the command line or the profile says what to store.
///
/// # Errors
/// [`Error::Usage`].
pub fn check_input(arguments: &BackupArguments, profile: &BackupProfile) -> Result<()> {
    let BackupArguments { input, paths, .. } = arguments;
    let is_typed = input.stdin || !paths.is_empty() || !input.stdin_from_command.is_empty();
    let has_lists = !input.files_from.is_empty() || !input.files_from0.is_empty();
    let BackupProfile { paths, files_from, files_from0, stdin_from_command, .. } = profile;
    let is_in_profile = [paths, files_from, files_from0].iter().any(|list| !list.is_empty());
    if is_typed || has_lists || is_in_profile || !stdin_from_command.is_empty() {
        return Ok(());
    }
    Err(Error::Usage("nothing to back up: neither the command line nor the profile has paths".into()))
}

/// The streams to store; `None` if paths are to be stored.
fn streams(arguments: &BackupArguments, profile: &BackupProfile) -> Result<Option<Vec<NamedStream>>> {
    let BackupArguments { input, paths, .. } = arguments;
    let one = |input: StreamInput| vec![NamedStream { name: arguments.input.stdin_filename.clone(), input }];
    if input.stdin {
        return Ok(Some(one(StreamInput::StandardInput)));
    }
    let is_given = !paths.is_empty() || !input.files_from.is_empty() || !input.files_from0.is_empty();
    let commands = match (input.stdin_from_command.as_slice(), is_given) {
        ([], false) => profile.stdin_from_command.iter().map(OsString::from).collect(),
        ([], true) => return Ok(None),
        ([first], _) if !first.as_encoded_bytes().contains(&b'=') => {
            let first = Some(first.clone()).filter(|first| !first.is_empty());
            let command = first.into_iter().chain(paths.iter().map(|path| path.clone().into_os_string()));
            return Ok(Some(one(StreamInput::Command(command.collect()))));
        }
        (commands, false) => commands.to_vec(),
        (_, true) => return Err(Error::Usage("--stdin-from-command NAME=COMMAND takes no paths".into())),
    };
    if commands.is_empty() {
        return Ok(None);
    }
    if input.stdin_from_command.is_empty() && !(profile.paths.is_empty() && profile.files_from.is_empty()) {
        return Err(Error::Usage("the profile has both paths and commands: a snapshot has either".into()));
    }
    let named = |command: &OsString| {
        let (name, command) = split_at_equals(command)?;
        Ok(NamedStream { name, input: StreamInput::Shell(command) })
    };
    commands.iter().map(named).collect::<Result<_>>().map(Some)
}

/// The parts of `NAME=COMMAND`.
fn split_at_equals(text: &OsString) -> Result<(OsString, OsString)> {
    let mut parts = text.as_encoded_bytes().splitn(2, |byte| *byte == b'=');
    match (parts.next(), parts.next()) {
        (Some(name), Some(command)) if !command.is_empty() => {
            Ok((OsString::from_vec(name.to_vec()), OsString::from_vec(command.to_vec())))
        }
        _ => Err(Error::Usage(format!("expected NAME=COMMAND, found `{}`", text.display()))),
    }
}

/// The choice of the profile with that of the command line.
fn merged(given: &ChoiceArguments, profile: &BackupProfile) -> ChoiceArguments {
    fn join<T: Clone>(one: impl Iterator<Item = T>, other: &[T]) -> Vec<T> {
        one.chain(other.iter().cloned()).collect()
    }
    ChoiceArguments {
        exclude: ExcludeArguments {
            exclude: join(profile.exclude.iter().cloned(), &given.exclude.exclude),
            iexclude: join(profile.iexclude.iter().cloned(), &given.exclude.iexclude),
            exclude_file: join(profile.exclude_file.iter().cloned(), &given.exclude.exclude_file),
            iexclude_file: join(profile.iexclude_file.iter().cloned(), &given.exclude.iexclude_file),
        },
        exclude_if_present: join(profile.exclude_if_present.iter().map(OsString::from), &given.exclude_if_present),
        exclude_caches: profile.exclude_caches || given.exclude_caches,
        exclude_larger_than: given.exclude_larger_than.or(profile.exclude_larger_than),
        ignore_file: join(profile.ignore_file.iter().map(OsString::from), &given.ignore_file),
        one_file_system: profile.one_file_system || given.one_file_system,
        with_atime: profile.with_atime || given.with_atime,
        dereference: profile.dereference || given.dereference,
        read_special: profile.read_special || given.read_special,
        read_holes: profile.read_holes || given.read_holes,
    }
}

/// Patterns as options and pattern files give them. Those that begin with `i` ignore the case of letters.
pub struct PatternLists<'a> {
    /// Name of the first option, without dashes.
    pub option: &'static str,
    /// Its values.
    pub patterns: &'a [String],
    /// Values of the option that ignores case.
    pub ipatterns: &'a [String],
    /// Pattern files.
    pub files: &'a [PathBuf],
    /// Pattern files, read without regard to case.
    pub ifiles: &'a [PathBuf],
}

impl<'a> PatternLists<'a> {
    /// The lists of what is left out.
    pub fn excluding(given: &'a ExcludeArguments) -> Self {
        PatternLists {
            option: "exclude",
            patterns: &given.exclude,
            ipatterns: &given.iexclude,
            files: &given.exclude_file,
            ifiles: &given.iexclude_file,
        }
    }

    /// The patterns as a snapshot records them: options with their values. Of a pattern file it has the name.
    pub fn recorded(&self) -> Vec<String> {
        let of = |letter: &str, end: &str, value: &str| format!("{letter}{}{end}={value}", self.option);
        let mut lines: Vec<String> = self.patterns.iter().map(|pattern| of("", "", pattern)).collect();
        lines.extend(self.ipatterns.iter().map(|pattern| of("i", "", pattern)));
        lines.extend(self.files.iter().map(|file| of("", "-file", &file.display().to_string())));
        lines.extend(self.ifiles.iter().map(|file| of("i", "-file", &file.display().to_string())));
        lines
    }

    /// Reads the files and compiles the patterns.
    ///
    /// # Errors
    /// [`Error::Config`] with the option or the line; [`Error::Io`] and [`Error::Malformed`] for files.
    pub fn build(&self) -> Result<Patterns> {
        let mut patterns = PatternsBuilder::default();
        for (letter, ignore_case, list) in [("", false, self.patterns), ("i", true, self.ipatterns)] {
            let option = format!("--{letter}{}", self.option);
            list.iter().try_for_each(|pattern| patterns.add(pattern, ignore_case, &option))?;
        }
        for (ignore_case, files) in [(false, self.files), (true, self.ifiles)] {
            for file in files {
                let bytes = read(file, PATTERN_BYTES_MAX as u64)?;
                let text = String::from_utf8(bytes).map_err(|error| Error::Malformed {
                    path: file.clone(),
                    location: format!("at byte {}", error.utf8_error().valid_up_to()),
                    expected: "patterns in UTF-8; `?` stands for any other byte".into(),
                    got: "other bytes".into(),
                })?;
                patterns.add_lines(&text, ignore_case, &file.display().to_string())?;
            }
        }
        patterns.build()
    }
}

/// The choice of these arguments.
///
/// # Errors
/// [`Error::Usage`] and [`Error::Config`], which name the option; [`Error::Io`] for files that they name.
pub fn choice(chosen: &ChoiceArguments) -> Result<EntryChoice> {
    let mut tags: Vec<TagFile> = Vec::new();
    for tag in &chosen.exclude_if_present {
        tags.push(TagFile::parse(tag)?);
    }
    if chosen.exclude_caches {
        tags.push(TagFile::of_caches());
    }
    for name in &chosen.ignore_file {
        if name.is_empty() || name.as_encoded_bytes().contains(&b'/') {
            let found = name.display();
            return Err(Error::Usage(format!("--ignore-file: expected a name without slashes, found `{found}`")));
        }
    }
    Ok(EntryChoice {
        patterns: PatternLists::excluding(&chosen.exclude).build()?,
        ignore_files: chosen.ignore_file.clone(),
        tags,
        file_bytes_max: chosen.exclude_larger_than.map(|size| size.0),
        one_file_system: chosen.one_file_system,
        with_atime: chosen.with_atime,
        dereference: chosen.dereference,
        read_special: chosen.read_special,
        read_holes: chosen.read_holes,
        ..EntryChoice::everything()?
    })
}

/// The choice as a snapshot records it: options with their values. Of a pattern file it has the name.
fn excludes(chosen: &ChoiceArguments) -> Vec<String> {
    let mut lines = PatternLists::excluding(&chosen.exclude).recorded();
    let mut option = |name: &str, values: &mut dyn Iterator<Item = String>| {
        lines.extend(values.map(|value| format!("{name}={value}")));
    };
    option("exclude-if-present", &mut chosen.exclude_if_present.iter().map(|tag| tag.display().to_string()));
    option("exclude-larger-than", &mut chosen.exclude_larger_than.iter().map(|size| size.0.to_string()));
    option("ignore-file", &mut chosen.ignore_file.iter().map(|name| name.display().to_string()));
    lines.extend(chosen.exclude_caches.then(|| "exclude-caches".into()));
    lines.extend(chosen.one_file_system.then(|| "one-file-system".into()));
    lines
}

/// The paths of the command line and of its lists; those of the profile if it has none of them. And the path that the
/// one path is stored as.
fn paths(
    given: &[PathBuf],
    input: &InputArguments,
    profile: &BackupProfile,
) -> Result<(Vec<PathBuf>, Option<PathBuf>)> {
    let is_given = !given.is_empty() || !input.files_from.is_empty() || !input.files_from0.is_empty();
    let (given, lines, ended) = match is_given {
        true => (given, &input.files_from, &input.files_from0),
        false => (profile.paths.as_slice(), &profile.files_from, &profile.files_from0),
    };
    let mut paths = given.to_vec();
    for (end, files) in [(b'\n', lines), (0, ended)] {
        for file in files {
            let list = read(file, PATHS_BYTES_MAX)?;
            let entries = list.split(|byte| *byte == end).filter(|path| !path.is_empty());
            for entry in entries {
                if entry.contains(&0) {
                    let path = String::from_utf8_lossy(entry).into_owned();
                    return Err(Error::Usage(format!(
                        "{}: a path has a NUL byte: `{path}`; --files-from0 reads lists with them",
                        file.display()
                    )));
                }
                paths.push(PathBuf::from(OsString::from_vec(entry.to_vec())));
            }
        }
    }
    if paths.is_empty() {
        return Err(Error::Usage("nothing to back up: the lists of paths are empty".into()));
    }
    let of_profile = profile.as_path.as_ref().filter(|_| !is_given);
    Ok((paths, input.as_path.as_ref().or(of_profile).cloned()))
}

/// Reads a file, or standard input if it is `-`.
fn read(file: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let opened = match file.as_os_str() == "-" {
        true => std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from),
        false => open_without_waiting(file),
    };
    opened.and_then(|input| read_input(&input, bytes_max, stop())).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => Error::Malformed {
            path: file.to_path_buf(),
            location: format!("at byte {bytes_max}"),
            expected: "the end of the file".into(),
            got: "more bytes than allowed".into(),
        },
        _ => input_failed("read", file, error),
    })
}

/// A time as nanoseconds since 1970. Without an offset it is in the time zone of this machine.
fn time_ns(text: &str) -> Result<i64> {
    let wrong = || {
        let examples = "2026-01-31, \"2026-01-31 12:00:00\" or 2026-01-31T12:00:00Z";
        Error::Usage(format!("--time: expected a time such as {examples}, found `{text}`"))
    };
    let parsed = text.parse::<jiff::Timestamp>().or_else(|error| {
        let local = text.parse::<DateTime>().ok().and_then(|local| local.to_zoned(TimeZone::system()).ok());
        local.map(|zoned| zoned.timestamp()).ok_or(error)
    });
    i64::try_from(parsed.map_err(|_| wrong())?.as_nanosecond()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_with_and_without_an_offset() {
        assert_eq!(time_ns("1970-01-01T00:00:01Z").unwrap(), 1_000_000_000);
        assert_eq!(time_ns("1970-01-01 01:00:00+01:00").unwrap(), 0);
        let local = DateTime::constant(2026, 1, 31, 12, 0, 0, 0).to_zoned(TimeZone::system()).unwrap();
        assert_eq!(i128::from(time_ns("2026-01-31 12:00:00").unwrap()), local.timestamp().as_nanosecond());
        assert!(time_ns("2026-01-31").is_ok());
        for wrong in ["", "yesterday", "2026-13-01", "12:00", "9999-12-31T00:00:00Z"] {
            assert!(matches!(time_ns(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
