//! `fhrd forget`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;

use super::Session;
use super::args::{
    FilterArguments, ForgetArguments, MetricsArguments, PruneArguments, parse_grace, parse_min_age, parse_period,
};
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json, printable};
use super::prune::{DEFAULT_GRACE, prune_now, write_report};
use super::request::host_name;
use super::runs::metric_number;
use super::snapshots::{SnapshotDocument, wide_row};
use crate::config::RetentionProfile;
use crate::error::{Error, Result};
use crate::keep::{ForgetGroup, ForgetPlan, ForgetPolicy, PruneReport, RetainedSnapshot, forget, plan_forget};
use crate::repo::Repository;
use crate::repo::bundle;
use crate::repo::checkpoint::Checkpoint;
use crate::repo::clock::{check_clock, describe_future};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_groups::{GroupBy, GroupField, GroupValues};
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::repo::tags::{checked_tag_list, has_tags};
use crate::types::SnapshotId;

/// The result as JSON.
#[derive(Serialize)]
struct ForgetDocument<'a> {
    dry_run: bool,
    groups: Vec<GroupDocument<'a>>,
    /// Ids of the deleted snapshots, or of those that would be deleted.
    deleted: Vec<String>,
    /// Snapshots that were left alone because they belong to a run.
    runs_left: usize,
    /// Snapshots that were left alone because they are published.
    published_left: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    prune: Option<&'a PruneReport>,
}

#[derive(Serialize)]
struct GroupDocument<'a> {
    /// The run whose steps these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    snapshots: Vec<DecisionDocument<'a>>,
}

#[derive(Serialize)]
struct DecisionDocument<'a> {
    keep: bool,
    reasons: &'a [&'static str],
    #[serde(flatten)]
    snapshot: SnapshotDocument<'a>,
    /// What step of a training run it is.
    #[serde(flatten)]
    checkpoint: Option<CheckpointDocument>,
}

impl<'a> DecisionDocument<'a> {
    fn new(decided: &'a RetainedSnapshot) -> Self {
        let snapshot = SnapshotDocument::new(&decided.snapshot);
        let checkpoint = Checkpoint::of(&decided.snapshot.snapshot).map(CheckpointDocument::from);
        DecisionDocument { keep: !decided.reasons.is_empty(), reasons: &decided.reasons, snapshot, checkpoint }
    }
}

/// A step of a training run.
#[derive(Serialize)]
struct CheckpointDocument {
    run: String,
    step: u64,
    metrics: BTreeMap<String, Value>,
}

impl From<Checkpoint> for CheckpointDocument {
    fn from(checkpoint: Checkpoint) -> Self {
        let Checkpoint { run, step, metrics } = checkpoint;
        let metrics = metrics.into_iter().map(|(name, value)| (name, metric_number(value))).collect();
        CheckpointDocument { run, step, metrics }
    }
}

impl<'a> GroupDocument<'a> {
    fn new(group: &'a ForgetGroup) -> Self {
        let snapshots = group.snapshots.iter().map(DecisionDocument::new).collect();
        GroupDocument { run: group.run.as_deref(), snapshots }
    }
}

/// Deletes snapshots by id or by rules.
///
/// # Errors
/// Errors of the repository and of [`plan_forget`].
pub fn run(session: &Session, arguments: &ForgetArguments) -> Result<Exit> {
    if arguments.rules.are_all_zero() {
        let what = "a rule with 0 keeps nothing: give another one too. To delete snapshots, name them";
        return Err(Error::Usage(what.into()));
    }
    let repository = location::open(session)?;
    let plan = plan(session, &repository, arguments)?;
    let deleted: Vec<SnapshotId> = plan.groups.iter().flat_map(ForgetGroup::deleted).collect();
    let profile = &session.profile.forget;
    // Who names snapshots or gives rules also says whether to prune.
    let is_by_profile = profile.prune && arguments.ids.is_empty() && !arguments.rules.is_given();
    // What cannot be used of the profile is said before anything is deleted.
    let prune = match arguments.prune || is_by_profile {
        true => {
            let grace = arguments.grace.map_or_else(|| grace_of_profile(session), Ok)?;
            let extend_locks = locks_of_profile(session)?;
            Some(PruneArguments {
                grace,
                dry_run: arguments.dry_run,
                repack: None,
                extend_locks,
                min_age: min_age_of_profile(session)?,
                allow_no_snapshots: false,
                allow_no_containers: false,
                metrics: MetricsArguments::default(),
            })
        }
        false => None,
    };
    if !arguments.dry_run {
        forget(&repository, &deleted)?;
        if let Err(error) = snapshot_listing::maintain_bundles(&repository, bundle::LOOSE_MIN) {
            tracing::warn!("snapshots are not bundled: {error}; a later backup does it");
        }
    }
    let pruned = prune.map(|prune| prune_now(session, &repository, &prune, &deleted)).transpose()?;
    if session.options.json {
        print_json(&ForgetDocument {
            dry_run: arguments.dry_run,
            groups: plan.groups.iter().map(GroupDocument::new).collect(),
            deleted: deleted.iter().map(ToString::to_string).collect(),
            runs_left: plan.runs_left,
            published_left: plan.published_left,
            prune: pruned.as_ref(),
        })?;
    } else if !session.options.quiet {
        print(|out| write_plan(out, &plan, deleted.len(), arguments.dry_run))?;
        if let Some(report) = &pruned {
            print(|out| write_report(out, report))?;
        }
    }
    Ok(if pruned.is_some_and(|report| report.withdrawn) { Exit::Failed } else { Exit::Fine })
}

/// What is to be deleted.
fn plan(session: &Session, repository: &Repository, arguments: &ForgetArguments) -> Result<ForgetPlan> {
    if !arguments.ids.is_empty() {
        let snapshots = choice::named(repository, &arguments.ids, &FilterArguments::default())?.into_iter();
        let snapshots = snapshots.map(|snapshot| RetainedSnapshot { snapshot, reasons: Vec::new() }).collect();
        let group = ForgetGroup { values: GroupValues::default(), run: None, snapshots };
        return Ok(ForgetPlan { groups: vec![group], ..ForgetPlan::default() });
    }
    let SnapshotListing { snapshots, damaged, .. } = snapshot_listing::list(repository)?;
    for (name, error) in damaged {
        tracing::warn!("leaving {name} alone: {error}");
    }
    let rules = rules(session, arguments)?;
    if rules.policy.is_empty() {
        let what = "neither rules nor snapshots are given, so nothing is deleted: see `fhrd forget --help`";
        return Err(Error::Usage(what.into()));
    }
    let now_ns = repository.clock.now_ns();
    if !arguments.trust_clock {
        check_clock(&snapshots, now_ns).map_err(|error| {
            Error::Usage(format!("{error} If it is, give --trust-clock, or delete them by `fhrd forget ID`"))
        })?;
    }
    if let Some(text) = describe_future(&snapshots, now_ns) {
        tracing::warn!("{text}; no rule deletes or counts what is from the future");
    }
    let is_chosen = |named: &NamedSnapshot| {
        rules.host.as_ref().is_none_or(|host| named.snapshot.host == *host)
            && (arguments.tags.is_empty() || arguments.tags.iter().any(|list| has_tags(&named.snapshot.tags, list)))
    };
    let snapshots: Vec<NamedSnapshot> = snapshots.into_iter().filter(is_chosen).collect();
    plan_forget(&snapshots, &rules.policy, &TimeZone::system(), now_ns)
}

/// What stays.
struct Rules {
    policy: ForgetPolicy,
    /// Only snapshots of this host are decided about.
    host: Option<String>,
}

/// The rules of the command line; without any, those of the profile. They hold for the host of the profile alone,
/// because other machines may use the repository with rules of their own.
fn rules(session: &Session, arguments: &ForgetArguments) -> Result<Rules> {
    let given = &arguments.rules;
    let mut policy = ForgetPolicy {
        last: given.keep_last.unwrap_or(0),
        hourly: given.keep_hourly.unwrap_or(0),
        daily: given.keep_daily.unwrap_or(0),
        weekly: given.keep_weekly.unwrap_or(0),
        monthly: given.keep_monthly.unwrap_or(0),
        yearly: given.keep_yearly.unwrap_or(0),
        within: given.keep_within,
        tags: given.keep_tag.clone(),
        best: given.keep_best.clone(),
        runs: None,
        group_by: GroupBy::default(),
        allow_empty_group: false,
    };
    let (mut host, profile) = (arguments.host.clone(), &session.profile.forget);
    if policy.is_empty() && *profile != RetentionProfile::default() {
        policy = ForgetPolicy {
            last: profile.keep_last,
            hourly: profile.keep_hourly,
            daily: profile.keep_daily,
            weekly: profile.keep_weekly,
            monthly: profile.keep_monthly,
            yearly: profile.keep_yearly,
            within: period("forget.keep_within", profile.keep_within.as_deref())?,
            tags: profile.keep_tag.iter().map(|list| tag_list(list)).collect::<Result<_>>()?,
            best: profile
                .keep_best
                .iter()
                .filter_map(|rule| parsed("forget.keep_best", Some(rule)).transpose())
                .collect::<Result<_>>()?,
            runs: parsed("forget.runs", profile.runs.as_deref())?,
            group_by: GroupBy::default(),
            allow_empty_group: profile.allow_empty_group,
        };
        host = host.or_else(|| session.profile.backup.host.clone()).or_else(|| Some(host_name()));
    }
    let by_profile = parsed("forget.group_by", profile.group_by.as_deref())?;
    let by_default = || GroupBy(vec![GroupField::Host, GroupField::Paths]);
    policy.group_by = arguments.group_by.clone().or(by_profile).unwrap_or_else(by_default);
    policy.runs = arguments.runs.clone().or(policy.runs);
    policy.allow_empty_group |= arguments.allow_empty_group;
    Ok(Rules { policy, host })
}

/// The grace period of a prune that the profile asks for.
///
/// # Errors
/// [`Error::Config`] if it does not parse.
pub fn grace_of_profile(session: &Session) -> Result<jiff::SignedDuration> {
    let text = session.profile.forget.grace.as_deref();
    let grace = text.map(|text| parse_grace(text).map_err(|message| unusable("forget.grace", message))).transpose()?;
    Ok(grace.unwrap_or(DEFAULT_GRACE))
}

/// For how long a prune locks what stays, if the profile says so.
///
/// # Errors
/// [`Error::Config`] if it does not parse.
pub fn locks_of_profile(session: &Session) -> Result<Option<jiff::Span>> {
    period("forget.extend_locks", session.profile.forget.extend_locks.as_deref())
}

/// How old a data container must be before a prune deletes it, if the profile says so.
///
/// # Errors
/// [`Error::Config`] if it does not parse.
pub fn min_age_of_profile(session: &Session) -> Result<Option<jiff::SignedDuration>> {
    let text = session.profile.forget.min_age.as_deref();
    text.map(|text| parse_min_age(text).map_err(|message| unusable("forget.min_age", message))).transpose()
}

/// A span of time in the profile.
fn period(key: &str, text: Option<&str>) -> Result<Option<jiff::Span>> {
    text.map(|text| parse_period(text).map_err(|reason| unusable(key, reason))).transpose()
}

/// Tags in the profile.
fn tag_list(list: &str) -> Result<String> {
    checked_tag_list(list).map_err(|reason| unusable("forget.keep_tag", reason))
}

/// The value of a key of the profile.
fn parsed<T: FromStr<Err: Display>>(key: &str, text: Option<&str>) -> Result<Option<T>> {
    let failed = |text: &str, error: T::Err| unusable(key, format!("cannot use `{text}`: {error}"));
    text.map(|text| text.parse().map_err(|error| failed(text, error))).transpose()
}

fn unusable(key: &str, message: String) -> Error {
    Error::Config { origin: format!("profile, `{key}`"), message }
}

/// A step of a run with its metrics, for people.
fn shown_step(checkpoint: &Checkpoint) -> String {
    let metrics = checkpoint.metrics.iter().map(|(name, value)| format!(" {name}={value}"));
    format!("{}@{}{}", checkpoint.run, checkpoint.step, metrics.collect::<String>())
}

fn write_plan(out: &mut dyn Write, plan: &ForgetPlan, deleted: usize, is_dry: bool) -> Result<()> {
    for group in &plan.groups {
        if let Some(run) = &group.run {
            writeln!(out, "run {}", printable(run)).map_err(failed)?;
        }
        for decided in &group.snapshots {
            let named = &decided.snapshot;
            let verdict = match (decided.reasons.is_empty(), is_dry) {
                (false, _) => format!("stays ({})", decided.reasons.join(", ")),
                (true, false) => "deleted".into(),
                (true, true) => "would be deleted".into(),
            };
            let step = Checkpoint::of(&named.snapshot).map_or_else(String::new, |step| shown_step(&step) + "  ");
            writeln!(out, "{}  {}{verdict}", wide_row(named, []).join("  "), printable(&step)).map_err(failed)?;
        }
        writeln!(out).map_err(failed)?;
    }
    let noun = |count: usize| if count == 1 { "snapshot" } else { "snapshots" };
    if plan.runs_left > 0 {
        let (count, noun) = (plan.runs_left, noun(plan.runs_left));
        writeln!(out, "{count} {noun} of runs left alone: --runs and --keep-best decide about them").map_err(failed)?;
    }
    if plan.published_left > 0 {
        let (count, noun) = (plan.published_left, noun(plan.published_left));
        writeln!(out, "{count} published {noun} left alone: `fhrd unpublish` deletes these").map_err(failed)?;
    }
    let verb = if is_dry { "would be deleted" } else { "deleted" };
    writeln!(out, "{deleted} {} {verb}", noun(deleted)).map_err(failed)
}
