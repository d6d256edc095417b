//! Arguments of the verbs that decide what stays.

use super::key::EncryptionArguments;
use std::path::PathBuf;

use clap::Args;

use super::look::FilterArguments;
use crate::repo::snapshot_groups::GroupBy;

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArguments {
    /// The repository whose parameters are taken
    #[arg(long, value_name = "LOCATION", requires = "copy_chunker_params")]
    pub from_repo: Option<PathBuf>,
    /// Take the key of fingerprints and the chunker of --from-repo, so that `copy` between the two cuts nothing again
    #[arg(long, requires = "from_repo")]
    pub copy_chunker_params: bool,
    /// Pad containers with zeros, so that their lengths tell little about what a backup has stored. At most 12 % more
    #[arg(long, conflicts_with = "copy_chunker_params")]
    pub pad_containers: bool,
    /// Encryption.
    #[command(flatten)]
    pub encryption: EncryptionArguments,
}

const COPY_NOTES: &str = "\
A snapshot that was copied before is skipped. Data that the repository has is not stored again. If it was created with
`init --copy-chunker-params`, chunks are copied as they are; otherwise files are cut into chunks again. Models and their
families are found again.

If the other repository is encrypted, FHRD_FROM_PASSWORD or FHRD_FROM_KEY_FILE gives its password or key file.
If it is in a bucket of another server than the service's own, FHRD_FROM_ENDPOINT gives its endpoint.";

/// Arguments of `copy`.
#[derive(Debug, Args)]
#[command(after_help = COPY_NOTES)]
pub struct CopyArguments {
    /// Snapshots of the other repository: ids, unique prefixes, or `latest` [default: all that the filter passes]
    #[arg(value_name = "SNAPSHOT")]
    pub ids: Vec<String>,
    /// The repository to copy from; --repo is the one to copy to
    #[arg(long, value_name = "LOCATION", env = "FHRD_FROM_REPO")]
    pub from_repo: PathBuf,
    /// Only show what would be copied
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// The snapshots to copy.
    #[command(flatten)]
    pub filter: FilterArguments,
}

const REWRITE_NOTES: &str = "\
The new snapshot keeps the host, tags, run and step of the original, and its time but for a nanosecond. With --forget
the original is deleted afterwards; `prune` gives back the space of what only it had.";

/// Arguments of `rewrite`.
#[derive(Debug, Args)]
#[command(after_help = REWRITE_NOTES)]
pub struct RewriteArguments {
    /// Snapshots: ids, unique prefixes, or `latest` [default: all that the filter passes]
    #[arg(value_name = "SNAPSHOT")]
    pub ids: Vec<String>,
    /// Leave out entries that match this pattern; can be given several times. The root of the snapshot is /
    #[arg(short, long, value_name = "PATTERN")]
    #[arg(required_unless_present_any = ["iexclude", "exclude_file", "iexclude_file"])]
    pub exclude: Vec<String>,
    /// The same, whatever the case of letters
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<String>,
    /// The same with patterns from a file, one a line
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<PathBuf>,
    /// The same, whatever the case of letters
    #[arg(long, value_name = "FILE")]
    pub iexclude_file: Vec<PathBuf>,
    /// Delete the originals afterwards
    #[arg(long)]
    pub forget: bool,
    /// Only show what would be left out; -vv names it
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// The snapshots to rewrite.
    #[command(flatten)]
    pub filter: FilterArguments,
}

const FORGET_NOTES: &str = "\
A snapshot stays if any --keep rule keeps it; without a rule nothing is deleted. Rules count in groups. Without rules
and ids, those of the profile hold, for snapshots of its host.";

/// Arguments of `forget`.
#[derive(Debug, Args)]
#[command(after_help = FORGET_NOTES)]
pub struct ForgetArguments {
    /// Delete these snapshots: ids, unique prefixes, or `latest`
    #[arg(value_name = "SNAPSHOT", conflicts_with_all = ["rules", "host", "tags"])]
    pub ids: Vec<String>,
    /// The rules.
    #[command(flatten)]
    pub rules: ForgetRules,
    /// Decide about the snapshots of this host only
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Decide about snapshots with this tag only; can be given several times
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Compare snapshots that have these in common: host, paths, tags; '' for one group [default: host,paths]
    #[arg(long, value_name = "LIST", conflicts_with = "ids")]
    pub group_by: Option<GroupBy>,
    /// Only show what would be deleted, and why the others stay
    #[arg(long)]
    pub dry_run: bool,
    /// Give back the space afterwards, as `prune` does
    #[arg(long, conflicts_with = "dry_run")]
    pub prune: bool,
    /// Grace period of --prune [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<jiff::SignedDuration>,
}

/// The rules of `forget`.
#[derive(Debug, Args)]
#[group(id = "rules", multiple = true)]
pub struct ForgetRules {
    /// Keep the last N snapshots
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_last: u32,
    /// Keep the last snapshot of each of the last N hours that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_hourly: u32,
    /// The same for days
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_daily: u32,
    /// The same for weeks, from Monday on
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_weekly: u32,
    /// The same for months
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_monthly: u32,
    /// The same for years
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_yearly: u32,
    /// Keep what is at most this much older than the latest snapshot, like 30d or 1y2mo
    #[arg(long, value_name = "DURATION")]
    pub keep_within: Option<jiff::Span>,
    /// Keep snapshots with this tag; can be given several times
    #[arg(long, value_name = "TAG")]
    pub keep_tag: Vec<String>,
}

impl ForgetRules {
    /// Whether a rule is given.
    pub fn is_given(&self) -> bool {
        let counts = [self.keep_last, self.keep_hourly, self.keep_daily, self.keep_weekly];
        counts.into_iter().chain([self.keep_monthly, self.keep_yearly]).any(|count| count > 0)
            || self.keep_within.is_some()
            || !self.keep_tag.is_empty()
    }
}

/// Arguments of `tag`.
#[derive(Debug, Args)]
pub struct TagArguments {
    /// Snapshots: ids, unique prefixes, or `latest`
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub ids: Vec<String>,
    /// Add a tag; can be given several times
    #[arg(long, value_name = "TAG", required_unless_present_any = ["remove", "set"])]
    pub add: Vec<String>,
    /// Remove a tag; can be given several times
    #[arg(long, value_name = "TAG")]
    pub remove: Vec<String>,
    /// Replace all tags; can be given several times, and an empty one removes all
    #[arg(long, value_name = "TAG", conflicts_with_all = ["add", "remove"])]
    pub set: Vec<String>,
}

const PRUNE_NOTES: &str = "\
Backups may run meanwhile. A backup that relies on what is being deleted stores it again. The grace period only saves
such repeated work: give 0s where nobody else writes. On a file system with cached directory listings (NFS, SMB) keep a
grace period of at least a day.";

/// Arguments of `prune`.
#[derive(Debug, Clone, Args)]
#[command(after_help = PRUNE_NOTES)]
pub struct PruneArguments {
    /// Leave data alone that is younger than this, and take a writer for dead only after this time
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub grace: jiff::SignedDuration,
    /// Only report what would be deleted
    #[arg(long)]
    pub dry_run: bool,
    /// Move at most this much needed data out of containers that hold little [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub repack: Option<bytesize::ByteSize>,
    /// Lock what stays for this long (90d), if less than half of that is left; a bucket of S3 with Object Lock only
    #[arg(long, value_name = "DURATION")]
    pub extend_locks: Option<jiff::Span>,
}
