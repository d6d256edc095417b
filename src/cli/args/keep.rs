//! Arguments of the verbs that decide what stays.

use super::MetricsArguments;
use super::exclude::ExcludeArguments;
use super::key::EncryptionArguments;
use std::path::PathBuf;

use clap::Args;

use super::look::FilterArguments;
use super::values::{GroupByParser, parse_bytes, parse_grace, parse_min_age, parse_period};
use crate::config::WorkShare;
use crate::keep::{BestRule, RunPattern};
use crate::repo::snapshot_groups::GroupBy;
use crate::repo::tags::{checked_new_tags, checked_tag_list};
use crate::store::ParityShare;

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArguments {
    /// Repository to take the parameters from; requires --copy-chunker-params
    #[arg(long, value_name = "LOCATION", requires = "copy_chunker_params")]
    pub from_repo: Option<PathBuf>,
    /// Take the chunker and the key of fingerprints from --from-repo, so that `copy` between the two copies chunks as
    /// they are
    #[arg(long, requires = "from_repo")]
    pub copy_chunker_params: bool,
    /// Pad containers with zeros, so that their lengths reveal little about the data. This costs at most 12 % of space
    #[arg(long, conflicts_with = "copy_chunker_params")]
    pub pad_containers: bool,
    /// Store parity of so many percent, from which damaged data heals without the source: see `parity set`
    #[arg(long, value_name = "SHARE")]
    pub parity: Option<ParityShare>,
    /// Keep what backups need of data hot, so that the data itself can be in cold storage: see `cold set`
    #[arg(long)]
    pub cold: bool,
    /// Encryption.
    #[command(flatten)]
    pub encryption: EncryptionArguments,
}

const COPY_NOTES: &str = "\
A snapshot that was copied before is skipped, unless the copy lacks what could not be read then: it is copied again,
and the incomplete copy is deleted once a copy is complete. Data that this repository already has is not stored again.
If this repository was created with `init --copy-chunker-params`, chunks are copied as they are; otherwise files are
chunked again. Models and their families are found again.

If the other repository is encrypted, FHRD_FROM_PASSWORD or FHRD_FROM_KEY_FILE gives its password or key file.
If it is in a bucket on a server other than the service's own, FHRD_FROM_ENDPOINT gives the endpoint.";

/// Arguments of `copy`.
#[derive(Debug, Args)]
#[command(after_help = COPY_NOTES)]
pub struct CopyArguments {
    /// Snapshots of the other repository: ids, unique prefixes, `latest`, or steps such as run:NAME@STEP [default: all
    /// that the filters choose]
    #[arg(value_name = "SNAPSHOT")]
    pub ids: Vec<String>,
    /// Repository to copy from; --repo is the one to copy to
    #[arg(long, value_name = "LOCATION", env = "FHRD_FROM_REPO")]
    pub from_repo: PathBuf,
    /// Copy only the snapshots that fall to share I of N: those of one host with the same paths fall together. N
    /// processes with the shares 1/N to N/N copy all. With --dry-run, show how the snapshots are split
    #[arg(long, value_name = "I/N")]
    pub shard: Option<WorkShare>,
    /// Only show what would be copied
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// The snapshots to copy.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Where metrics go.
    #[command(flatten)]
    pub metrics: MetricsArguments,
}

const REWRITE_NOTES: &str = "\
A leading / of a pattern is the root of the snapshot.

The new snapshot has the host, tags, run and step of the original. Its time is one nanosecond later. Without --forget
the original stays. With --forget it is deleted, and `prune` then frees the space of what only it had. If something of
the original cannot be read, no new snapshot is written, because `forget` could keep it in place of the original.";

/// Arguments of `rewrite`.
#[derive(Debug, Args)]
#[command(after_help = REWRITE_NOTES, mut_group("exclusions", |group| group.required(true)))]
pub struct RewriteArguments {
    /// Snapshots: ids, unique prefixes, `latest`, or steps such as run:NAME@STEP [default: all that the filters choose]
    #[arg(value_name = "SNAPSHOT")]
    pub ids: Vec<String>,
    /// What to leave out.
    #[command(flatten)]
    pub exclude: ExcludeArguments,
    /// Delete the originals afterwards
    #[arg(long)]
    pub forget: bool,
    /// Write a new snapshot even if something cannot be read, without that. The original then stays despite --forget
    #[arg(long)]
    pub allow_problems: bool,
    /// Only show how much would be left out; -vv names each entry
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// The snapshots to rewrite.
    #[command(flatten)]
    pub filter: FilterArguments,
}

const FORGET_NOTES: &str = "\
A snapshot stays if any --keep rule keeps it. It is an error to give neither a rule nor a snapshot. A rule with 0 is as
if it were not given. Rules apply to each group of snapshots (--group-by). Hours, days and so on
are those of the local time zone. Without rules and ids, the rules of the profile apply, to snapshots of its host.

Snapshots of training runs are left alone unless --runs or --keep-best is given. Then each run is a group of its own,
and --keep-last keeps its highest steps. --keep-best alone deletes steps of runs only. It counts the steps that have a
number for the metric, the first of equal ones first; a run in which no step has one stays whole.

If the rules would keep nothing of a group, nothing at all is deleted and the exit code is 1: see --allow-empty-group.
Snapshots whose time is more than five minutes later than now are never deleted by a rule, and count for none. If there
is more than one of them, the clock of this machine may be wrong, so the exit code is 1: see --trust-clock.

A DURATION is 30d, `2 weeks`, 12h, 6mo, 1y2mo, or has years, months, days and hours in this order, such as 2y5m7d3h.
Elsewhere `m` is refused: write mo or min. A month back from a day that the month lacks is its last day.";

/// Arguments of `forget`.
#[derive(Debug, Args)]
#[command(after_help = FORGET_NOTES)]
pub struct ForgetArguments {
    /// Delete these snapshots: ids, unique prefixes, `latest`, or steps such as run:NAME@STEP
    #[arg(value_name = "SNAPSHOT", conflicts_with_all = ["rules", "host", "tags"])]
    pub ids: Vec<String>,
    /// The rules.
    #[command(flatten)]
    pub rules: ForgetRules,
    /// Consider only snapshots of this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Consider only snapshots with this tag, or with all of TAG,TAG; if given several times, any; '' for those without
    /// tags
    #[arg(long = "tag", value_name = "TAG[,TAG]", value_parser = checked_tag_list)]
    pub tags: Vec<String>,
    /// Decide about the snapshots of training runs, and about no others: of all runs, or of those whose names match
    /// this pattern
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*", conflicts_with = "ids")]
    pub runs: Option<RunPattern>,
    /// Apply the rules to each group with the same host, paths or tags; '' for one group [default: host,paths]
    #[arg(long, value_name = "LIST", conflicts_with = "ids", value_parser = GroupByParser, hide_possible_values = true)]
    pub group_by: Option<GroupBy>,
    /// Let rules delete all snapshots of a group
    #[arg(long, conflicts_with = "ids")]
    pub allow_empty_group: bool,
    /// Apply the rules although several snapshots are from the future: the clock of this machine is right. These
    /// snapshots stay
    #[arg(long, conflicts_with = "ids")]
    pub trust_clock: bool,
    /// Only show what would be deleted, and why the others stay
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Free the space afterwards, as `prune` does
    #[arg(long)]
    pub prune: bool,
    /// Grace period of --prune, such as 36h, 2d or 0 [default: 24h]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_grace)]
    pub grace: Option<jiff::SignedDuration>,
}

/// The rules of `forget`.
#[derive(Debug, Args)]
#[group(id = "rules", multiple = true)]
pub struct ForgetRules {
    /// Keep the last N snapshots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_last: Option<u32>,
    /// Keep the last snapshot of each of the last N hours that have one
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_hourly: Option<u32>,
    /// Likewise for days
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_daily: Option<u32>,
    /// Likewise for weeks, from Monday on
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_weekly: Option<u32>,
    /// Likewise for months
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_monthly: Option<u32>,
    /// Likewise for years
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_yearly: Option<u32>,
    /// Keep snapshots at most this much older than the latest one, such as 30d, 6mo or 2y5m7d3h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_period)]
    pub keep_within: Option<jiff::Span>,
    /// Keep snapshots with this tag, or with all of TAG,TAG; if given several times, any; '' for those without tags
    #[arg(long, value_name = "TAG[,TAG]", value_parser = checked_tag_list)]
    pub keep_tag: Vec<String>,
    /// Keep the N best steps of each training run by a metric, such as val_loss:min:3 [default: N is 1]; can be given
    /// several times. MODE is min or max
    #[arg(long, value_name = "METRIC:MODE[:N]")]
    pub keep_best: Vec<BestRule>,
}

impl ForgetRules {
    /// Whether a rule is given that can keep something.
    pub fn is_given(&self) -> bool {
        self.counts().any(|count| count > 0)
            || self.keep_within.is_some()
            || !self.keep_tag.is_empty()
            || !self.keep_best.is_empty()
    }

    /// Whether only rules with 0 are given, which keep nothing.
    pub fn are_all_zero(&self) -> bool {
        self.counts().next().is_some() && !self.is_given()
    }

    /// The numbers that are given.
    fn counts(&self) -> impl Iterator<Item = u32> {
        let counts = [self.keep_last, self.keep_hourly, self.keep_daily, self.keep_weekly];
        counts.into_iter().chain([self.keep_monthly, self.keep_yearly]).flatten()
    }
}

/// Arguments of `tag`.
#[derive(Debug, Args)]
pub struct TagArguments {
    /// Snapshots: ids, unique prefixes, `latest`, or steps such as run:NAME@STEP
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub ids: Vec<String>,
    /// Add a tag, or several; can be given several times
    #[arg(long, value_name = "TAG[,TAG]", value_parser = checked_new_tags, required_unless_present_any = ["remove", "set"])]
    pub add: Vec<String>,
    /// Remove a tag, or several; can be given several times
    #[arg(long, value_name = "TAG[,TAG]", value_parser = checked_new_tags)]
    pub remove: Vec<String>,
    /// Replace all tags; can be given several times. An empty tag ('') removes all tags
    #[arg(long, value_name = "TAG[,TAG]", value_parser = checked_tag_list, conflicts_with_all = ["add", "remove"])]
    pub set: Vec<String>,
}

const PRUNE_NOTES: &str = "\
Backups may run at the same time: a backup that relies on what a prune deletes waits a little, for longer each time, and
stores it again, for about two minutes at most. The grace period only avoids that repeated work, so use 0 if nothing
else writes to the repository. On file systems that cache directory listings (NFS, SMB), use a grace period of at least
24h.";

const RECOMPRESS_NOTES: &str = "\
It compresses what is stored with zstd's level 19, and many small files together, 4 MiB at a time. Data that other
codecs have compressed, such as weights, stays as it is. Every version of fhrd reads the result. Reading one small file
takes a few milliseconds more.

It works in rounds, each of which is a prune: what no snapshot needs is freed, too. It can be stopped at any time, and
goes on there the next time; --repack bounds a run, such as one each night. Each thread needs about 60 MiB of memory.
Backups may run at the same time, but may store again what a round moves. `backup --level archive` writes like this.";

/// Arguments of `recompress`.
#[derive(Debug, Clone, Args)]
#[command(after_help = RECOMPRESS_NOTES)]
pub struct RecompressArguments {
    /// How much to compress
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "archive")]
    pub level: RecompressLevel,
    /// Leave containers younger than this alone, and do not take a writer for dead before this time
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_grace, default_value = "24h")]
    pub grace: jiff::SignedDuration,
    /// Move at most this much stored data [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub repack: Option<bytesize::ByteSize>,
    /// Only show how much could be compressed more
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// How much `recompress` compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RecompressLevel {
    /// Level 19 of zstd, in long frames
    Archive,
}

/// Arguments of `prune`.
#[derive(Debug, Clone, Args)]
#[command(after_help = PRUNE_NOTES)]
pub struct PruneArguments {
    /// Do not delete data younger than this, and do not take a writer for dead before this time, such as 36h, 2d or 0
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_grace, default_value = "24h")]
    pub grace: jiff::SignedDuration,
    /// Only show what would be deleted
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Prune even if there is no snapshot: everything goes
    #[arg(long)]
    pub allow_no_snapshots: bool,
    /// Prune even if more containers are missing than are there: no index names them any more
    #[arg(long)]
    pub allow_no_containers: bool,
    /// When compacting containers, move at most this much data [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub repack: Option<bytesize::ByteSize>,
    /// Keep data containers younger than this, such as containers=180d: services bill a class of storage for so long
    #[arg(long, value_name = "containers=DURATION", value_parser = parse_min_age)]
    pub min_age: Option<jiff::SignedDuration>,
    /// Lock what stays for this long, such as 90d, if less than half of that is left; only for S3 with Object Lock
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_period)]
    pub extend_locks: Option<jiff::Span>,
    /// Where metrics go.
    #[command(flatten)]
    pub metrics: MetricsArguments,
}
