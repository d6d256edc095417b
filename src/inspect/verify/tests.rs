//! Which containers are read in turn.

use std::collections::HashSet;
use std::sync::Arc;

use super::turn::choose;
use super::*;
use crate::config::RepositoryConfig;
use crate::repo::clock::Clock;
use crate::repo::reads::{self, ReadRun};
use crate::store::MemoryStore;

const DAY: i64 = 86_400 * 1_000_000_000;

fn container(number: u64) -> ContainerId {
    ContainerId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// Nightly runs, some of them missed, of a repository that grows, and what they have read.
#[test]
fn nightly_runs_read_everything_in_time_and_about_the_same_each_night() {
    let mut repository = Repository::init(Arc::new(MemoryStore::new()), &RepositoryConfig::default()).unwrap();
    let within = 30 * DAY;
    let mut last: Vec<i64> = vec![0; 600];
    for night in 0..400i64 {
        if (100..104).contains(&night) || night == 250 {
            continue;
        }
        last.resize(600 + night as usize, night);
        let all: Vec<(ContainerId, u64)> = (0..last.len() as u64).map(|number| (container(number), 100)).collect();
        repository.clock = Clock::at(1_000 * DAY + night * DAY);
        let now = repository.clock.now_ns();
        let chosen = choose(&all, &ReadLedger::load(repository.store.as_ref(), now).unwrap(), None, (now, within));
        let share = chosen.len() as f64 / all.len() as f64;
        let usual = if night == 104 {
            5.0
        } else if night == 251 {
            2.0
        } else {
            1.0
        } / 30.0;
        assert!(share >= usual * 0.99 && share <= usual * 2.0 + 0.01, "{night}: {share}");
        (0..last.len()).filter(|at| chosen.contains(&container(*at as u64))).for_each(|at| last[at] = night);
        let listed: HashSet<ContainerId> = all.iter().map(|(id, _)| *id).collect();
        let read: Vec<(ContainerId, bool)> = chosen.iter().map(|id| (*id, true)).collect();
        let run = ReadRun { verb: VERB.into(), containers: read.len() as u64, ..ReadRun::default() };
        reads::save(&repository, run, &read, &listed).unwrap();
        let oldest = last.iter().map(|last| night - last).max().unwrap();
        assert!(oldest <= 30, "{night}: {oldest}");
    }
}

#[test]
fn a_share_is_a_percentage() {
    assert!(["2%", "0.5 %", "100%"].iter().all(|text| text.parse::<SampleShare>().is_ok()));
    for bad in ["", "2", "0%", "101%", "-1%", "NaN%", "2G"] {
        assert!(bad.parse::<SampleShare>().unwrap_err().contains(&format!("`{bad}`")), "{bad}");
    }
}

#[test]
fn what_would_be_too_old_at_the_next_run_is_read_now() {
    let mut repository = Repository::init(Arc::new(MemoryStore::new()), &RepositoryConfig::default()).unwrap();
    let all: Vec<(ContainerId, u64)> = (0..100).map(|number| (container(number), 100)).collect();
    let listed: HashSet<ContainerId> = all.iter().map(|(id, _)| *id).collect();
    let read: Vec<(ContainerId, bool)> = all.iter().map(|(id, _)| (*id, true)).collect();
    repository.clock = Clock::at(1_000 * DAY);
    // A check has read everything on one day.
    reads::save(&repository, ReadRun { verb: "check".into(), ..ReadRun::default() }, &read, &listed).unwrap();
    let chosen = |day: i64| {
        let now = (1_000 + day) * DAY;
        choose(&all, &ReadLedger::load(repository.store.as_ref(), now).unwrap(), None, (now, 30 * DAY)).len()
    };
    assert_eq!((chosen(1), chosen(28), chosen(30)), (4, 4, 100));
}
