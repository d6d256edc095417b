//! `fhrd forget`.

use std::io::Write;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::Session;
use super::args::{ForgetArguments, PruneArguments};
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json, printable, split_ns, time_local};
use super::prune::{DEFAULT_GRACE, prune_now, write_report};
use super::snapshots::{SnapshotDocument, short_id};
use crate::error::Result;
use crate::keep::{ForgetGroup, ForgetPolicy, GroupBy, PruneReport, RetainedSnapshot, forget, plan_forget};
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::types::SnapshotId;

/// The result as JSON.
#[derive(Serialize)]
struct ForgetDocument<'a> {
    dry_run: bool,
    groups: Vec<GroupDocument<'a>>,
    /// Ids of the deleted snapshots, or of those that would be deleted.
    deleted: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prune: Option<&'a PruneReport>,
}

#[derive(Serialize)]
struct GroupDocument<'a> {
    snapshots: Vec<DecisionDocument<'a>>,
}

#[derive(Serialize)]
struct DecisionDocument<'a> {
    keep: bool,
    reasons: &'a [&'static str],
    #[serde(flatten)]
    snapshot: SnapshotDocument<'a>,
}

impl<'a> DecisionDocument<'a> {
    fn new(decided: &'a RetainedSnapshot) -> Self {
        let snapshot = SnapshotDocument::new(&decided.snapshot);
        DecisionDocument { keep: !decided.reasons.is_empty(), reasons: &decided.reasons, snapshot }
    }
}

/// Deletes snapshots by id or by rules.
///
/// # Errors
/// Those of the repository and of [`plan_forget`].
pub fn run(session: &Session, arguments: &ForgetArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let store = repository.store.as_ref();
    let groups = if arguments.ids.is_empty() {
        let (snapshots, damaged) = snapshot::list_reported(store)?;
        for (name, error) in damaged {
            tracing::warn!("leaving {name} alone: {error}");
        }
        let is_chosen = |named: &NamedSnapshot| {
            arguments.host.as_ref().is_none_or(|host| named.snapshot.host == *host)
                && (arguments.tags.is_empty() || named.snapshot.tags.iter().any(|tag| arguments.tags.contains(tag)))
        };
        let snapshots: Vec<NamedSnapshot> = snapshots.into_iter().filter(is_chosen).collect();
        let policy = policy(arguments)?;
        match policy.is_empty() {
            true => Vec::new(),
            false => plan_forget(&snapshots, &policy, &TimeZone::system())?,
        }
    } else {
        let find = |id: &String| Ok(RetainedSnapshot { snapshot: snapshot::find(store, id)?, reasons: Vec::new() });
        let snapshots = arguments.ids.iter().map(find).collect::<Result<_>>()?;
        vec![ForgetGroup { host: None, paths: None, tags: None, snapshots }]
    };
    let deleted: Vec<SnapshotId> = groups.iter().flat_map(ForgetGroup::deleted).collect();
    if !arguments.dry_run {
        forget(&repository, &deleted)?;
    }
    let pruned = match arguments.prune {
        true => {
            let grace = DEFAULT_GRACE;
            Some(prune_now(session, &repository, &PruneArguments { grace, dry_run: false, repack: None })?)
        }
        false => None,
    };
    if session.options.json {
        print_json(&ForgetDocument {
            dry_run: arguments.dry_run,
            groups: groups
                .iter()
                .map(|group| GroupDocument { snapshots: group.snapshots.iter().map(DecisionDocument::new).collect() })
                .collect(),
            deleted: deleted.iter().map(ToString::to_string).collect(),
            prune: pruned.as_ref(),
        })?;
    } else if !session.options.quiet {
        print(|out| write_groups(out, &groups, deleted.len(), arguments.dry_run))?;
        if let Some(report) = &pruned {
            print(|out| write_report(out, report))?;
        }
    }
    Ok(Exit::Fine)
}

fn policy(arguments: &ForgetArguments) -> Result<ForgetPolicy> {
    let rules = &arguments.rules;
    Ok(ForgetPolicy {
        last: rules.keep_last,
        hourly: rules.keep_hourly,
        daily: rules.keep_daily,
        weekly: rules.keep_weekly,
        monthly: rules.keep_monthly,
        yearly: rules.keep_yearly,
        within: rules.keep_within,
        tags: rules.keep_tag.clone(),
        group_by: GroupBy::parse(&arguments.group_by)?,
    })
}

fn write_groups(out: &mut dyn Write, groups: &[ForgetGroup], deleted: usize, is_dry: bool) -> Result<()> {
    for group in groups {
        for decided in &group.snapshots {
            let named = &decided.snapshot;
            let verdict = match (decided.reasons.is_empty(), is_dry) {
                (false, _) => format!("stays ({})", decided.reasons.join(", ")),
                (true, false) => "deleted".into(),
                (true, true) => "would be deleted".into(),
            };
            let paths: Vec<_> = named.snapshot.paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
            let time = time_local(split_ns(named.snapshot.time_ns).0);
            let (host, paths) = (printable(&named.snapshot.host), printable(&paths.join(" ")));
            writeln!(out, "{}  {time}  {host}  {paths}  {verdict}", short_id(named)).map_err(failed)?;
        }
        writeln!(out).map_err(failed)?;
    }
    let verb = if is_dry { "would be deleted" } else { "deleted" };
    writeln!(out, "{deleted} snapshots {verb}").map_err(failed)
}
