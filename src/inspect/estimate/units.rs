//! The files of a sample, cut into groups that are like each other.
//!
//! A unit is read whole or not at all: neighbours of a directory with all versions of them, or a large file, or a part
//! of one. In each kind of units, by extension, the units have a random order and positions from 0 to 1. Units are
//! read in the order of positions. So whatever was read by some time has about the same share of each kind.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::sample::{DrawnFile, random, without_digits};
use crate::filesystem::suggests_model;

/// Bytes of a part of a large file.
const PART_BYTES: u64 = 32 << 20;
/// Parts of a file, at most: those of a larger one lie apart.
const PARTS_MAX: u64 = 4096;
/// Units of a group, about, if there are enough files.
const UNITS_OF_GROUP: u64 = 8;
/// Large members that stay together as versions of each other, at most.
const VERSIONS_MAX: usize = 8;

/// What a group may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupLimits {
    /// Bytes, about.
    pub(super) bytes: u64,
    /// Files, about.
    pub(super) files: usize,
    /// Bytes of a model that is read whole, at most. A part of a model has no base.
    pub(super) model_bytes: u64,
}

/// A file that is read, or a part of a large one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SampleMember {
    /// First byte, if it is a part.
    pub(super) start: Option<u64>,
    /// Where the file is.
    pub(super) path: PathBuf,
    /// Bytes that are read.
    pub(super) bytes: u64,
}

/// Members that are read at once.
#[derive(Debug, Default)]
pub(super) struct SampleGroup {
    /// Files and parts.
    pub(super) members: Vec<SampleMember>,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Bytes of those that are called like models.
    pub(super) model_bytes: u64,
}

impl SampleGroup {
    fn add(&mut self, unit: Vec<SampleMember>) {
        for member in unit {
            self.bytes += member.bytes;
            self.model_bytes += if suggests_model(&member.path) { member.bytes } else { 0 };
            self.members.push(member);
        }
    }
}

/// Cuts files that are ordered by clusters into groups in random order.
pub(super) fn grouped(files: Vec<DrawnFile>, seed: u64, limits: &GroupLimits) -> Vec<SampleGroup> {
    let mut units = Vec::new();
    for cluster in files.chunk_by(|one, other| one.cluster == other.cluster) {
        cut(cluster, limits, &mut units);
    }
    let (mut groups, mut group) = (Vec::new(), SampleGroup::default());
    for unit in ordered(units, seed) {
        group.add(unit);
        if group.bytes >= limits.bytes || group.members.len() >= limits.files {
            groups.push(std::mem::take(&mut group));
        }
    }
    if !group.members.is_empty() {
        groups.push(group);
    }
    groups
}

/// The parts of a file, or the file as the only one.
fn members(file: &DrawnFile, limits: &GroupLimits) -> Vec<SampleMember> {
    let whole_max = if suggests_model(&file.path) { limits.model_bytes } else { PART_BYTES };
    if file.bytes <= whole_max || file.has_holes {
        return vec![SampleMember { start: None, path: file.path.clone(), bytes: file.bytes }];
    }
    let step = PART_BYTES.max((file.bytes / PARTS_MAX).next_multiple_of(PART_BYTES));
    let part = |start: u64| SampleMember {
        start: Some(start),
        path: file.path.clone(),
        bytes: (file.bytes - start).min(PART_BYTES),
    };
    (0..file.bytes.div_ceil(step)).map(|number| part(number * step)).collect()
}

/// Cuts a cluster into units of neighbours. Members whose names differ in digits only stay together, so that versions
/// meet.
fn cut(cluster: &[DrawnFile], limits: &GroupLimits, units: &mut Vec<Vec<SampleMember>>) {
    let name = |member: &SampleMember| (member.path.file_name().map(without_digits), member.start);
    let mut named: Vec<_> = cluster.iter().flat_map(|file| members(file, limits)).map(|it| (name(&it), it)).collect();
    named.sort();
    let (mut unit, mut bytes) = (Vec::new(), 0);
    let mut rest = named.into_iter().peekable();
    while let Some((name, member)) = rest.next() {
        bytes += member.bytes;
        unit.push(member);
        let is_version = rest.peek().is_some_and(|(next, _)| *next == name);
        let is_large = bytes >= limits.bytes && (unit.len() >= VERSIONS_MAX || bytes >= limits.model_bytes);
        let is_enough = bytes >= limits.bytes / UNITS_OF_GROUP || unit.len() >= limits.files / UNITS_OF_GROUP as usize;
        if is_large || (is_enough && !is_version) {
            units.push(std::mem::take(&mut unit));
            bytes = 0;
        }
    }
    if !unit.is_empty() {
        units.push(unit);
    }
}

/// The units in an order in which each start of it has about the same share of each kind.
fn ordered(units: Vec<Vec<SampleMember>>, seed: u64) -> impl Iterator<Item = Vec<SampleMember>> {
    let mut kinds: BTreeMap<Vec<u8>, Vec<(u64, Vec<SampleMember>)>> = BTreeMap::new();
    for unit in units {
        let number = unit.first().map_or(0, |first| {
            let start = first.start.unwrap_or(0).to_le_bytes();
            random(seed, [first.path.as_os_str().as_bytes(), &start].into_iter())
        });
        kinds.entry(kind(&unit)).or_default().push((number, unit));
    }
    let bytes_of = |unit: &[SampleMember]| unit.iter().map(|member| member.bytes).sum::<u64>() as f64;
    let mut ordered = Vec::new();
    for mut units in kinds.into_values() {
        units.sort();
        let total: f64 = units.iter().map(|(_, unit)| bytes_of(unit)).sum();
        let mut before = 0.0;
        for (number, unit) in units {
            // A kind of one unit may come at any time.
            let (bytes, share) = (bytes_of(&unit), number.rotate_left(32) as f64 / u64::MAX as f64);
            let position = if total > 0.0 { (before + share * bytes) / total } else { share };
            before += bytes;
            ordered.push((position, unit));
        }
    }
    ordered.sort_by(|one, other| one.0.total_cmp(&other.0));
    ordered.into_iter().map(|(_, unit)| unit)
}

/// The extension that most bytes of a unit have.
fn kind(unit: &[SampleMember]) -> Vec<u8> {
    let mut bytes: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for member in unit {
        let extension = member.path.extension().map(|extension| without_digits(extension).to_ascii_lowercase());
        *bytes.entry(extension.unwrap_or_default()).or_default() += member.bytes;
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(extension, _)| extension).unwrap_or_default()
}
