//! Arguments of the verbs that decide what stays.

use clap::Args;

const FORGET_NOTES: &str = "\
A snapshot stays if any --keep rule keeps it; without a rule nothing is deleted. Rules count in groups.";

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
    /// Compare snapshots that have these in common: host, paths, tags; nothing for one group
    #[arg(long, value_name = "LIST", default_value = "host,paths", conflicts_with = "ids")]
    pub group_by: String,
    /// Only show what would be deleted, and why the others stay
    #[arg(long)]
    pub dry_run: bool,
    /// Give back the space afterwards, as `prune` does
    #[arg(long, conflicts_with = "dry_run", hide = true)]
    pub prune: bool,
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
#[derive(Debug, Args)]
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
}
