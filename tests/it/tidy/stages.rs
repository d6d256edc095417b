//! Stages: each is in the list of its flow, and none names another one.

use super::layers::heads;
use super::source::Source;

/// Files that hold a stage, by flow. A stage never names another stage: what they share is in a file of its own.
const STAGES: &[(&str, &[&str])] = &[
    (
        "backup",
        &[
            "source/walk",
            "source/read",
            "source/stream",
            "source/memory_stage",
            "source/stored",
            "source/bucket/list",
            "source/bucket/fetch",
            "chunk",
            "hash",
            "dedup",
            "estimate",
            "identify",
            "choose",
            "matching",
            "fine_hash",
            "fine_dedup",
            "diff",
            "subdedup",
            "model_encode",
            "compress",
            "save",
        ],
    ),
    ("restore", &["plan", "locate", "order", "fetch", "decode", "gather", "write", "finish"]),
];
/// The traits of stages.
const TRAITS: &[&str] = &["Source", "Stage", "Map", "Sink"];

/// The flow of a file, and its name there.
fn flow_of(source: &Source) -> Option<(&'static str, &'static [&'static str], &str)> {
    let (flow, own) = source.name.strip_suffix(".rs")?.split_once('/')?;
    STAGES.iter().find(|(name, _)| *name == flow).map(|(name, stages)| (*name, *stages, own))
}

fn holds_stage(source: &Source) -> bool {
    source.library().iter().any(|line| {
        let header = line.strip_prefix("impl").unwrap_or_default();
        TRAITS.iter().any(|name| header.contains(&format!(" {name} for ")))
    })
}

/// Modules of the flow that a file names, by the last parts of their paths.
fn named_modules(source: &Source, flow: &str) -> Vec<String> {
    let code = source.library().join("\n");
    let mut named = Vec::new();
    for root in ["super::".to_string(), format!("crate::{flow}::"), format!("crate::{flow}::source::")] {
        for (at, _) in code.match_indices(&root) {
            if !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                named.extend(heads(&code[at + root.len()..]));
            }
        }
    }
    named
}

/// Stages that a stage names, and a stage that is in no list.
pub fn stage_faults(source: &Source) -> Vec<String> {
    let Some((flow, stages, own)) = flow_of(source).filter(|_| !source.is_test()) else { return Vec::new() };
    let is_listed = stages.contains(&own);
    if is_listed != holds_stage(source) {
        let what = if is_listed { "is in the list of stages and holds none" } else { "holds a stage of no list" };
        return vec![format!("{}: {what}", source.name)];
    }
    let last = |stage: &str| stage.rsplit('/').next().unwrap_or_default().to_string();
    let named = if is_listed { named_modules(source, flow) } else { Vec::new() };
    let others = stages.iter().filter(|stage| **stage != own && named.contains(&last(stage)));
    others.map(|stage| format!("{}: names the stage `{stage}`", source.name)).collect()
}

#[test]
fn a_stage_that_names_another_and_a_stage_of_no_list_are_found() {
    let faults = |name: &str, text: &str| stage_faults(&Source::new(name, text)).len();
    let stage = |text: &str| format!("{text}\nimpl Sink for SaveStage<'_> {{}}");
    assert_eq!(faults("backup/save.rs", &stage("use super::compress::compress;")), 1);
    assert_eq!(faults("backup/save.rs", &stage("use crate::backup::dedup::DedupStage;")), 1);
    assert_eq!(faults("backup/save.rs", &stage("use crate::backup::{message, source::walk};")), 0);
    assert_eq!(faults("backup/save.rs", &stage("use crate::backup::source::walk::WalkStage;")), 1);
    assert_eq!(faults("backup/save.rs", &stage("use super::{message::Packet, chunk};")), 1);
    assert_eq!(faults("backup/save.rs", &stage("use super::message::Packet;\nuse crate::chunk::text;")), 0);
    assert_eq!(faults("backup/source/stored.rs", &stage("use super::walk::ITEMS_MAX;")), 1);
    assert_eq!(faults("backup/source/stored.rs", &stage("use super::super::chunk::region;")), 1);
    assert_eq!(faults("backup/source/tree.rs", "use super::walk::WalkStage;"), 0);
    assert_eq!(faults("backup/novel.rs", &stage("")), 1);
    assert_eq!(faults("backup/novel.rs", "#[cfg(test)]\nmod tests {\n    impl Sink for S {}\n}"), 0);
    assert_eq!(faults("backup/save.rs", "use super::message::Packet;"), 1);
    assert_eq!(faults("inspect/novel.rs", &stage("")), 0);
}
