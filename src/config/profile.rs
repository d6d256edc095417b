//! Profiles: what a user backs up, and where to, in TOML. The keys are the names of the command line's options.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bytesize::ByteSize;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::memory::check_memory;
use crate::error::{Error, Result};
use crate::wire::{input_failed, read_text_file};

/// Bytes of a profile, at most.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A profile.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserProfile {
    /// `--repo`.
    pub repo: Option<PathBuf>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--memory`.
    #[serde(deserialize_with = "memory")]
    pub memory: Option<ByteSize>,
    /// `--endpoint`.
    pub endpoint: Option<String>,
    /// `--storage-class`.
    pub storage_class: Vec<String>,
    /// `--data-tag`.
    pub data_tag: Option<String>,
    /// `--limit-upload`.
    pub limit_upload: Option<ByteSize>,
    /// `--limit-download`.
    pub limit_download: Option<ByteSize>,
    /// What `backup` stores.
    pub backup: BackupProfile,
    /// What `forget` keeps.
    pub forget: RetentionProfile,
    /// Commands around `backup`.
    pub hooks: Hooks,
    /// Whom to tell how a command has ended.
    pub notify: NotifyProfile,
}

/// The value of `memory`, in its range.
fn memory<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<ByteSize>, D::Error> {
    let memory = ByteSize::deserialize(value)?;
    check_memory(memory).map_err(D::Error::custom)?;
    Ok(Some(memory))
}

/// `[backup]`: options of `backup`. What the command line gives is added to lists and replaces single values.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackupProfile {
    /// Paths to store. Relative ones are in the home directory.
    pub paths: Vec<PathBuf>,
    /// `--files-from`.
    pub files_from: Vec<PathBuf>,
    /// `--files-from0`.
    pub files_from0: Vec<PathBuf>,
    /// `--stdin-from-command`, with names.
    pub stdin_from_command: Vec<String>,
    /// `--as-path`.
    pub as_path: Option<PathBuf>,
    /// `--tag`.
    pub tag: Vec<String>,
    /// `--host`.
    pub host: Option<String>,
    /// `--exclude`.
    pub exclude: Vec<String>,
    /// `--iexclude`.
    pub iexclude: Vec<String>,
    /// `--exclude-file`.
    pub exclude_file: Vec<PathBuf>,
    /// `--iexclude-file`.
    pub iexclude_file: Vec<PathBuf>,
    /// `--exclude-if-present`.
    pub exclude_if_present: Vec<String>,
    /// `--exclude-caches`.
    pub exclude_caches: bool,
    /// `--exclude-larger-than`.
    pub exclude_larger_than: Option<ByteSize>,
    /// `--ignore-file`.
    pub ignore_file: Vec<String>,
    /// `--one-file-system`.
    pub one_file_system: bool,
    /// `--with-atime`.
    pub with_atime: bool,
    /// `--dereference`.
    pub dereference: bool,
    /// `--read-special`.
    pub read_special: bool,
    /// `--read-holes`.
    pub read_holes: bool,
    /// Bytes that a prune after the backup may move, at most. It merges the small containers of small backups.
    pub compact: Option<ByteSize>,
}

/// `[forget]`: rules of `forget`. Rules on the command line replace all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionProfile {
    /// `--keep-last`.
    pub keep_last: u32,
    /// `--keep-hourly`.
    pub keep_hourly: u32,
    /// `--keep-daily`.
    pub keep_daily: u32,
    /// `--keep-weekly`.
    pub keep_weekly: u32,
    /// `--keep-monthly`.
    pub keep_monthly: u32,
    /// `--keep-yearly`.
    pub keep_yearly: u32,
    /// `--keep-within`.
    pub keep_within: Option<String>,
    /// `--keep-tag`.
    pub keep_tag: Vec<String>,
    /// `--keep-best`.
    pub keep_best: Vec<String>,
    /// `--runs`; `*` for all.
    pub runs: Option<String>,
    /// `--allow-empty-group`.
    pub allow_empty_group: bool,
    /// `--group-by`.
    pub group_by: Option<String>,
    /// `--prune`.
    pub prune: bool,
    /// `--grace` of that prune.
    pub grace: Option<String>,
    /// `--extend-locks` of that prune, and of `prune`.
    pub extend_locks: Option<String>,
    /// `--min-age` of every prune.
    pub min_age: Option<String>,
}

/// `[hooks]`: commands for the shell. They run one after another until one fails.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Run before the backup. If one fails, there is no backup.
    pub before: Vec<String>,
    /// Run after a snapshot was written.
    pub after: Vec<String>,
    /// Run after a backup, or a command before it, has failed.
    pub after_failure: Vec<String>,
}

/// `[notify]`: whom to tell how `backup`, `check`, `verify`, `prune` and `copy` have ended.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyProfile {
    /// URL in the form of healthchecks: it is posted to, with `/start` and `/fail` behind its path.
    pub ping: Option<SecretUrl>,
    /// File whose first line is this URL.
    pub ping_file: Option<PathBuf>,
    /// URL to which a JSON document is posted at the end.
    pub webhook: Option<SecretUrl>,
    /// File whose first line is this URL.
    pub webhook_file: Option<PathBuf>,
    /// Command for the shell at the end.
    pub command: Option<String>,
    /// The verbs that tell; all if there are none.
    pub verbs: Vec<String>,
    /// Whether exit code 3, a snapshot without what could not be read, is a failure.
    pub incomplete_fails: bool,
}

impl NotifyProfile {
    /// Whether nobody is told.
    pub fn is_empty(&self) -> bool {
        let NotifyProfile { ping, ping_file, webhook, webhook_file, command, .. } = self;
        ping.is_none() && ping_file.is_none() && webhook.is_none() && webhook_file.is_none() && command.is_none()
    }
}

/// A URL with a token. It is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(pub String);

impl fmt::Debug for SecretUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a URL")
    }
}

/// `text` without what follows the hosts of URLs of the web: that may be a token.
fn without_tokens(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let host = after.find(['/', '?', '\'', '"', ' ', '\n', '@']).unwrap_or(after.len());
        let (host, after) = after.split_at(host);
        let end = after.find(['\'', '"', ' ', '\n']).unwrap_or(after.len());
        let (hidden, after) = after.split_at(end);
        out.push_str(if hidden.starts_with('@') { "..." } else { host });
        out.push_str(if hidden.is_empty() { "" } else { "/..." });
        rest = after;
    }
    out + rest
}

impl UserProfile {
    /// Reads and parses a file. Relative paths of `backup`, `repo` and `config` become paths in `home`.
    ///
    /// # Errors
    /// [`Error::Io`]. [`Error::Interrupted`] once `stop` is set.
    /// [`Error::Config`], which names the key, for bad syntax and unknown keys.
    pub fn load(path: &Path, home: &Path, stop: &AtomicBool) -> Result<Self> {
        let failed = |error| input_failed("read profile", path, error);
        // The parser shows the line, which may have a URL with a token.
        let invalid =
            |message: String| Error::Config { origin: path.display().to_string(), message: without_tokens(&message) };
        let text = read_text_file(path, FILE_BYTES_MAX, stop).map_err(failed)?;
        let mut profile: UserProfile =
            toml::from_str(&text).map_err(|error| invalid(error.to_string().trim_end().to_string()))?;
        let backup = &mut profile.backup;
        let lists = [
            &mut backup.paths,
            &mut backup.files_from,
            &mut backup.files_from0,
            &mut backup.exclude_file,
            &mut backup.iexclude_file,
        ];
        let notify = &mut profile.notify;
        let files = notify.ping_file.iter_mut().chain(&mut notify.webhook_file);
        let single = backup.as_path.iter_mut().chain(&mut profile.config).chain(&mut profile.repo);
        let paths = lists.into_iter().flatten().chain(single).chain(files);
        paths.for_each(|path| *path = in_home(home, path));
        Ok(profile)
    }
}

/// `path`, in the home directory unless it is absolute or a URL. A leading `~/` means the same.
fn in_home(home: &Path, path: &Path) -> PathBuf {
    if path.to_string_lossy().contains("://") {
        return path.into();
    }
    home.join(path.strip_prefix("~").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<UserProfile> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.toml");
        std::fs::write(&path, text).unwrap();
        UserProfile::load(&path, Path::new("/home/u"), &AtomicBool::new(false))
    }

    #[test]
    fn paths_are_in_the_home_directory() {
        let profile = parsed(
            "repo = 'store'\n[backup]\npaths = ['~/a', 'b', '/c', '~', 's3://d/e']\nexclude_larger_than = '1 MiB'\n[hooks]\nbefore = ['x']",
        );
        let profile = profile.unwrap();
        let expected: Vec<PathBuf> =
            ["/home/u/a", "/home/u/b", "/c", "/home/u", "s3://d/e"].map(PathBuf::from).to_vec();
        assert_eq!((profile.repo, profile.backup.paths), (Some("/home/u/store".into()), expected));
        assert_eq!(profile.backup.exclude_larger_than, Some(ByteSize::mib(1)));
        assert_eq!(parsed("repo = 'file:///x'").unwrap().repo, Some("file:///x".into()));
        assert_eq!(parsed("").unwrap(), UserProfile::default());
    }

    #[test]
    fn no_error_shows_a_token() {
        let line = "[notify]\nping = 'https://hc.example/ping/s3cret'\npings = \"https://user:s3cret@hc.example/s3cret?a=s3cret\"";
        let error = parsed(line).unwrap_err().to_string();
        assert!(error.contains("pings") && !error.contains("s3cret"), "{error}");
        let wrong = parsed("[notify]\nping = https://hc.example/s3cret").unwrap_err().to_string();
        assert!(!wrong.contains("s3cret"), "{wrong}");
        let debug = format!("{:?}", parsed("[notify]\nping = 'https://hc.example/s3cret'").unwrap());
        assert!(!debug.contains("s3cret"), "{debug}");
    }

    #[test]
    fn an_unknown_key_is_named() {
        for (text, key) in [("repos = 'x'", "repos"), ("[backup]\nexcludes = []", "excludes"), ("[hooks]\nx = 1", "x")]
        {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("p.toml"), "{error}");
        }
    }
}
