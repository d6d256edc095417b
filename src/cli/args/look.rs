//! Arguments of the verbs that look into snapshots.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{GroupByParser, parse_grace, parse_range, parse_size, parse_time};
use crate::repo::snapshot_groups::GroupBy;
use crate::repo::tags::checked_tag_list;
use crate::repo::tree::{NodeKind, Timestamp};

/// Chooses among snapshots.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which snapshots (or which one is `latest`)")]
pub struct FilterArguments {
    /// Only snapshots of this host; can be given several times
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// Only snapshots of this path; if given several times, of all these paths
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Only snapshots with this tag, or with all of TAG,TAG; if given several times, any; '' for those without tags
    #[arg(long = "tag", value_name = "TAG[,TAG]", value_parser = checked_tag_list)]
    pub tags: Vec<String>,
}

impl FilterArguments {
    /// Whether every snapshot passes.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.paths.is_empty() && self.tags.is_empty()
    }
}

/// Arguments of `snapshots`.
#[derive(Debug, Args)]
pub struct SnapshotsArguments {
    /// The snapshots to list.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Print a table for each group with the same host, paths or tags, such as host,tags
    #[arg(long, value_name = "LIST", value_parser = GroupByParser, hide_possible_values = true)]
    pub group_by: Option<GroupBy>,
    /// Only the snapshots of the job that was backed up with --group NAME, one of each share. A share that is not
    /// there, or that was computed differently, is named, and the exit code is 3
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group_by", "latest"])]
    pub group: Option<String>,
    /// Only the last N snapshots of each group; without --group-by, of each host with the same paths
    #[arg(long, value_name = "N")]
    pub latest: Option<usize>,
}

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub struct LsArguments {
    /// Snapshot: id, unique prefix, or `latest`; ID:PATH lists this entry
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub id: OsString,
    /// List only this entry; if it is a directory, with its entries
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// With a path, list everything below it. Without a path, everything is always listed
    #[arg(short, long)]
    pub recursive: bool,
    /// Show type, permissions, owner, size and time
    #[arg(short, long)]
    pub long: bool,
    /// Narrows `latest`.
    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Kinds of entries, as `find --type` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindValue {
    /// A regular file
    #[value(alias = "f")]
    File,
    /// A directory
    #[value(alias = "d")]
    Directory,
    /// A symbolic link
    #[value(alias = "l")]
    Symlink,
    /// A named pipe, socket or device
    Special,
}

impl KindValue {
    /// The kinds that it stands for.
    pub fn kinds(self) -> &'static [NodeKind] {
        match self {
            KindValue::File => &[NodeKind::File],
            KindValue::Directory => &[NodeKind::Directory],
            KindValue::Symlink => &[NodeKind::Symlink],
            KindValue::Special => &[NodeKind::Fifo, NodeKind::Socket, NodeKind::CharacterDevice, NodeKind::BlockDevice],
        }
    }
}

/// Arguments of `find`.
#[derive(Debug, Args)]
pub struct FindArguments {
    /// Glob patterns. `*` does not match a slash, `**` matches any number of directories. Without a leading slash, a
    /// pattern matches the last components of a path: `*.rs`, `src/*.rs`
    #[arg(value_name = "PATTERN", required = true)]
    pub patterns: Vec<String>,
    /// Ignore case
    #[arg(short, long)]
    pub ignore_case: bool,
    /// Only entries of this type; can be given several times
    #[arg(long = "type", value_name = "TYPE")]
    pub kinds: Vec<KindValue>,
    /// Only files of at least this size, such as 10MiB
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size)]
    pub size_min: Option<u64>,
    /// Only files of at most this size
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size)]
    pub size_max: Option<u64>,
    /// Only entries modified at this time or later: 2026-01-31, 2026-01-31T12:00, or an age such as 3d
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time)]
    pub newer: Option<Timestamp>,
    /// Only entries modified before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time)]
    pub older: Option<Timestamp>,
    /// Search only this snapshot; can be given several times
    #[arg(long = "snapshot", value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,
    /// The snapshots to search.
    #[command(flatten)]
    pub filter: FilterArguments,
}

const CHANGES: &str = "\
Changes:
  +  added
  -  removed
  M  other content
  U  other metadata only, such as permissions or times (with --metadata)
  T  another type

Bytes are those of added and removed files, and of the chunks that only one version of a changed file has.";

/// Arguments of `diff`.
#[derive(Debug, Args)]
#[command(after_help = CHANGES)]
pub struct DiffArguments {
    /// First snapshot; ID:PATH for an entry of it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub first: OsString,
    /// Second snapshot, or an entry of it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub second: OsString,
    /// Also list entries of which only the metadata changed
    #[arg(long)]
    pub metadata: bool,
    /// Narrows `latest`.
    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
pub struct CatArguments {
    /// A file of a snapshot
    #[arg(value_name = "SNAPSHOT:PATH")]
    pub file: OsString,
    /// Only the bytes from A up to but not including B, such as 0-512, 1MiB-2MiB or 4096-
    #[arg(long, value_name = "A-B", value_parser = parse_range)]
    pub range: Option<(u64, u64)>,
    /// Narrows `latest`.
    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Arguments of `dump`.
#[derive(Debug, Args)]
pub struct DumpArguments {
    /// Snapshot, or an entry of it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub entry: OsString,
    /// New file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Narrows `latest`.
    #[command(flatten)]
    pub filter: FilterArguments,
}

const STATUS_NOTES: &str = "\
Each row is the last snapshot of a host with the same paths. Damage and what is proven come from what `verify` and
`check --read-data` have recorded in the repository, on any machine.

Exit codes: 4 if a row is older than --expect or there is none, 20 if damage is recorded.";

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_NOTES)]
pub struct StatusArguments {
    /// Exit with 4 if the last snapshot of a host and its paths is older than this, such as 26h or 2d
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_grace)]
    pub expect: Option<jiff::SignedDuration>,
    /// The snapshots to look at.
    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// Snapshot, or an entry of it [default: the whole repository]
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub id: Option<OsString>,
    /// Show what only this snapshot needs, for each one: about what forgetting it would free
    #[arg(long, conflicts_with = "id")]
    pub by_snapshot: bool,
    /// Show the counters of the repository: chunks, frames by codec, lengths of chains
    #[arg(long, conflicts_with_all = ["id", "by_snapshot"])]
    pub debug: bool,
    /// Narrows `latest`, or the snapshots shown.
    #[command(flatten)]
    pub filter: FilterArguments,
}

const REPORT_NOTES: &str = "\
The page needs no network and runs no scripts. It names hosts, directories and models, so only its owner may read the
file. A snapshot that cannot be read is named in it.";

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = REPORT_NOTES)]
pub struct ReportArguments {
    /// File to write, replaced at once; `-` is standard output. Needed without --json
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `mount`.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the verb is for Linux"))]
#[derive(Debug, Args)]
pub struct MountArguments {
    /// Empty directory to mount at. While mounted, it has ids/, snapshots/, hosts/, tags/ and latest
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Let other users read files, as far as the permissions of the files allow
    #[arg(long)]
    pub allow_other: bool,
    /// The snapshots to show.
    #[command(flatten)]
    pub filter: FilterArguments,
}
