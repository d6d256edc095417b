//! Families: finds the stored models that a new one is probably near to.
//!
//! 1. Only models that share a hash of a tensor with the new one are eligible.
//! 2. A few candidates are named: the file's previous version, and the models that the new one's card names. If none of
//!    these bases is there, models whose cards name the same base are *surrogates* of it (ZipLLM 4.4.4), and then those
//!    that share most [evidence](super::evidence) of the family.
//! 3. Then come the nearest models by outline ([`super::outline`]), of all eligible ones: first the model with the
//!    largest estimated saving, then repeatedly the model that adds most to the saving of those chosen before. So many
//!    close relatives do not hide the one model that other tensors come from.
//! 4. Remaining slots, and two in any case, go to the models that share most hashes, the latest of equals first: a
//!    running mean moves towards the latest model, which others are nearer to. The bases of all these follow.

use std::collections::HashSet;
use std::sync::Arc;

use super::catalogue::{CatalogueEntry, name_hash};
use super::evidence::{SharedEvidence, shared};
use super::outline::{ModelOutline, ModelOutlines, Savings};
use super::record::ModelRecord;
use crate::error::Result;
use crate::types::Fingerprint;

/// Records that a new model is compared with, and bases of those, at most.
const CANDIDATES_MAX: usize = 12;
const BASES_MAX: usize = 4;
/// Of these, the latest models have at least so many.
const LATEST: usize = 2;
/// Named candidates, at most.
const NAMED_MAX: usize = 4;
/// Surrogates of a base that is not there, at most.
const SURROGATES_MAX: usize = 2;

/// Loads the record that is stored as a chunk; `None` if it is unreadable.
pub type RecordLoader<'a> = dyn FnMut(&Fingerprint) -> Result<Option<Arc<ModelRecord>>> + 'a;

/// All known models: stored ones and those of this session.
#[derive(Default)]
pub struct Families {
    stored: Vec<CatalogueEntry>,
    outlines: ModelOutlines,
    session: Vec<SessionModel>,
    session_bytes: usize,
    /// Memory for outlines of stored models, and for records of this session's models, each. Bytes.
    bytes_max: usize,
    /// Calls of [`Families::candidates`] so far.
    calls: u64,
    /// Quantised tensors may follow from floats.
    derives: bool,
}

/// A model of this session.
struct SessionModel {
    entry: CatalogueEntry,
    outline: ModelOutline,
    record: Arc<ModelRecord>,
    /// The last call that made it a candidate.
    last_call: u64,
}

/// A model that shares a hash of a tensor with the new one.
struct Eligible<'a> {
    entry: &'a CatalogueEntry,
    /// Number of models stored after it.
    age: usize,
    /// The model itself, if it is of this session.
    recent: Option<&'a SessionModel>,
    /// Number of shared hashes.
    shared: usize,
    is_named: bool,
    /// Its card names a base that the card of the new model names.
    is_sibling: bool,
    evidence: SharedEvidence,
    is_previous_version: bool,
    savings: Savings,
}

impl Eligible<'_> {
    fn saving(&self) -> f32 {
        self.savings.iter().sum()
    }

    /// Saving that it adds to `saved`.
    fn gain(&self, saved: &Savings) -> f32 {
        self.savings.iter().zip(saved).map(|(own, saved)| (own - saved).max(0.0)).sum()
    }
}

impl Families {
    /// The models of the catalogue. With `derives`, quantised tensors may follow from floats. Outlines of stored models
    /// take at most `bytes_max` bytes, and so do records of this session's models.
    pub fn new(stored: Vec<CatalogueEntry>, derives: bool, bytes_max: usize) -> Self {
        Families { stored, derives, bytes_max, ..Families::default() }
    }

    /// Adds a model of this session. If memory is short, the models that were candidates least recently are evicted.
    pub fn add(&mut self, record: Arc<ModelRecord>) {
        self.session_bytes += record.memory_bytes();
        let entry = CatalogueEntry::new(&record, Fingerprint([0; 32]));
        let outline = ModelOutline::of(&record);
        self.session.push(SessionModel { entry, outline, record, last_call: self.calls });
        while self.session_bytes > self.bytes_max && self.session.len() > 1 {
            let oldest = self.session.iter().enumerate().min_by_key(|(_, recent)| recent.last_call);
            let at = oldest.map_or(0, |(at, _)| at);
            self.session_bytes -= self.session.remove(at).record.memory_bytes();
        }
    }

    /// The records to compare `new` with, the oldest first. `previous_version` is the fingerprint of the file's content
    /// in the parent snapshot.
    ///
    /// # Errors
    /// Errors of `load`.
    pub fn candidates(
        &mut self,
        new: &ModelRecord,
        previous_version: Option<Fingerprint>,
        load: &mut RecordLoader<'_>,
    ) -> Result<Vec<Arc<ModelRecord>>> {
        let mut eligible = eligible(&self.session, &self.stored, new, previous_version);
        if eligible.len() > CANDIDATES_MAX {
            let stored = eligible.iter().filter(|one| one.recent.is_none()).map(|one| one.entry);
            self.outlines.read(stored, self.bytes_max, load)?;
            let own = ModelOutline::of(new);
            for one in &mut eligible {
                let outline =
                    one.recent.map_or_else(|| self.outlines.get(&one.entry.id), |recent| Some(&recent.outline));
                one.savings = outline.map_or_else(Savings::default, |outline| own.savings(outline, self.derives));
            }
        }
        let mut found = CandidateSet::default();
        found.take_named(&eligible, load)?;
        found.take_nearest(&eligible, load)?;
        found.take_latest(&mut eligible, load)?;
        found.records.sort_by_key(|record| std::cmp::Reverse(record.0));
        let mut found: Vec<Arc<ModelRecord>> = found.records.into_iter().map(|record| record.1).collect();
        let bases: Vec<Fingerprint> = found.iter().filter_map(|record| Some(record.base.as_ref()?.id)).collect();
        for base in bases {
            if found.len() < CANDIDATES_MAX + BASES_MAX && !found.iter().any(|record| record.id == base) {
                found.extend(self.with_id(&base, load)?);
            }
        }
        self.calls += 1;
        for recent in &mut self.session {
            if found.iter().any(|record| record.id == recent.entry.id) {
                recent.last_call = self.calls;
            }
        }
        Ok(found)
    }

    /// The model, of this session or the latest stored ones, that holds most of these blocks; `None` if it holds less
    /// than half of them.
    ///
    /// # Errors
    /// Errors of `load`.
    pub fn holding(&self, blocks: &HashSet<Fingerprint>, load: &mut RecordLoader<'_>) -> Result<Option<Fingerprint>> {
        if blocks.is_empty() {
            return Ok(None);
        }
        let held = |record: &ModelRecord| {
            let all = record.tensors.iter().flat_map(|tensor| tensor.blocks.as_chunks().0);
            all.filter(|block| blocks.contains(&Fingerprint(**block))).count()
        };
        let mut best: Option<(usize, Fingerprint)> = None;
        let mut rate = |record: &ModelRecord| {
            let found = held(record);
            if found * 2 >= blocks.len() && best.is_none_or(|best| found > best.0) {
                best = Some((found, record.id));
            }
        };
        self.session.iter().rev().for_each(|recent| rate(&recent.record));
        for entry in self.stored.iter().rev().take(CANDIDATES_MAX) {
            load(&entry.record)?.iter().for_each(|record| rate(record));
        }
        Ok(best.map(|best| best.1))
    }

    /// The latest model that has one of these names.
    pub fn named(&self, names: &[String]) -> Option<Fingerprint> {
        let wanted: Vec<u64> = names.iter().map(|name| name_hash(name)).collect();
        let session = self.session.iter().rev().map(|recent| &recent.entry);
        let mut all = session.chain(self.stored.iter().rev());
        all.find(|entry| entry.names.iter().any(|name| wanted.contains(name))).map(|entry| entry.id)
    }

    /// The chunk of the record of a stored model.
    pub fn record_of(&self, id: &Fingerprint) -> Option<Fingerprint> {
        self.stored.iter().rev().find(|entry| entry.id == *id).map(|entry| entry.record)
    }

    /// Whether a model descends from one that descends from another one, and so on, over at least `count` models.
    ///
    /// # Errors
    /// Errors of `load`.
    pub fn descends(&self, id: &Fingerprint, count: usize, load: &mut RecordLoader<'_>) -> Result<bool> {
        let mut at = *id;
        for _ in 0..count {
            let Some(base) = self.with_id(&at, load)?.and_then(|record| record.base.clone()) else { return Ok(false) };
            at = base.id;
        }
        Ok(true)
    }

    fn with_id(&self, id: &Fingerprint, load: &mut RecordLoader<'_>) -> Result<Option<Arc<ModelRecord>>> {
        if let Some(recent) = self.session.iter().find(|recent| recent.entry.id == *id) {
            return Ok(Some(recent.record.clone()));
        }
        let entry = self.stored.iter().rev().find(|entry| entry.id == *id);
        entry.map_or(Ok(None), |entry| load(&entry.record))
    }
}

/// The models that share a hash of a tensor with `new`, the latest first.
fn eligible<'a>(
    session: &'a [SessionModel],
    stored: &'a [CatalogueEntry],
    new: &ModelRecord,
    previous_version: Option<Fingerprint>,
) -> Vec<Eligible<'a>> {
    let mut keys = new.wanted_keys();
    keys.sort_unstable();
    let wanted: Vec<u64> = new.bases.iter().map(|name| name_hash(name)).collect();
    let of_session = session.iter().rev().map(|recent| (&recent.entry, Some(recent)));
    let all = of_session.chain(stored.iter().rev().map(|entry| (entry, None)));
    let shared_keys = |entry: &CatalogueEntry| entry.keys.iter().filter(|key| keys.binary_search(key).is_ok()).count();
    let all = all.enumerate().map(|(age, (entry, recent))| (age, entry, recent, shared_keys(entry)));
    // Evidence of others is not compared.
    let eligible = all.filter(|one| one.3 > 0).map(|(age, entry, recent, shared_keys)| Eligible {
        entry,
        age,
        recent,
        shared: shared_keys,
        is_named: entry.names.iter().any(|name| wanted.contains(name)),
        is_sibling: entry.bases.iter().flatten().any(|base| wanted.contains(base)),
        evidence: shared(new.evidence.as_deref().unwrap_or_default(), entry.evidence.as_deref().unwrap_or_default()),
        is_previous_version: previous_version.is_some() && previous_version == entry.content,
        savings: Savings::default(),
    });
    eligible.collect()
}

/// The candidates chosen so far.
#[derive(Default)]
struct CandidateSet {
    /// Records with their ages.
    records: Vec<(usize, Arc<ModelRecord>)>,
    ids: HashSet<Fingerprint>,
    /// Unreadable records.
    lost: HashSet<Fingerprint>,
    /// Saving of all candidates together.
    saved: Savings,
}

impl CandidateSet {
    fn is_full(&self) -> bool {
        self.records.len() >= CANDIDATES_MAX
    }

    /// Whether a model is already chosen or unreadable.
    fn is_done(&self, entry: &CatalogueEntry) -> bool {
        self.ids.contains(&entry.id) || self.lost.contains(&entry.record)
    }

    fn take(&mut self, one: &Eligible<'_>, load: &mut RecordLoader<'_>) -> Result<()> {
        if self.is_full() || self.is_done(one.entry) {
            return Ok(());
        }
        let record = match one.recent {
            Some(recent) => Some(recent.record.clone()),
            None => load(&one.entry.record)?,
        };
        let Some(record) = record else {
            self.lost.insert(one.entry.record);
            return Ok(());
        };
        self.ids.insert(one.entry.id);
        self.records.push((one.age, record));
        self.saved.iter_mut().zip(&one.savings).for_each(|(saved, own)| *saved = saved.max(*own));
        Ok(())
    }

    /// Takes the previous version and the models that the card names.
    fn take_named(&mut self, eligible: &[Eligible<'_>], load: &mut RecordLoader<'_>) -> Result<()> {
        let mut named: Vec<&Eligible> = eligible.iter().filter(|one| one.is_named || one.is_previous_version).collect();
        named.sort_by(|one, other| {
            let by_saving = other.saving().total_cmp(&one.saving());
            other.is_previous_version.cmp(&one.is_previous_version).then(by_saving).then(other.shared.cmp(&one.shared))
        });
        named.dedup_by_key(|one| one.entry.id);
        named.into_iter().take(NAMED_MAX).try_for_each(|one| self.take(one, load))?;
        if eligible.iter().any(|one| one.is_named) { Ok(()) } else { self.take_surrogates(eligible, load) }
    }

    /// Takes models in the place of a base that is not there: siblings, the nearest first, then those with most shared
    /// evidence.
    fn take_surrogates(&mut self, eligible: &[Eligible<'_>], load: &mut RecordLoader<'_>) -> Result<()> {
        let is_surrogate = |one: &&Eligible<'_>| one.is_sibling || one.evidence != SharedEvidence::default();
        let mut surrogates: Vec<&Eligible> = eligible.iter().filter(is_surrogate).collect();
        surrogates.sort_by(|one, other| {
            let by_saving = other.saving().total_cmp(&one.saving());
            let by_evidence = other.evidence.cmp(&one.evidence);
            let within = if one.is_sibling { by_saving.then(by_evidence) } else { by_evidence.then(by_saving) };
            other.is_sibling.cmp(&one.is_sibling).then(within)
        });
        let enough = self.records.len() + SURROGATES_MAX;
        for one in surrogates {
            if self.records.len() == enough {
                break;
            }
            self.take(one, load)?;
        }
        Ok(())
    }

    /// Takes the models with the largest additional savings.
    fn take_nearest(&mut self, eligible: &[Eligible<'_>], load: &mut RecordLoader<'_>) -> Result<()> {
        let mut open: Vec<&Eligible> = eligible.iter().filter(|one| one.saving() > 0.0).collect();
        while self.records.len() + LATEST < CANDIDATES_MAX {
            open.retain(|one| !self.is_done(one.entry));
            let gain = |one: &Eligible<'_>| one.gain(&self.saved);
            // `max_by` gives the last of equals, which is the oldest.
            let best = open.iter().max_by(|one, other| {
                let by_gain = gain(one).total_cmp(&gain(other));
                by_gain.then_with(|| one.saving().total_cmp(&other.saving()))
            });
            let Some(best) = best else { break };
            self.take(best, load)?;
        }
        Ok(())
    }

    /// Takes the models that share most hashes.
    fn take_latest(&mut self, eligible: &mut [Eligible<'_>], load: &mut RecordLoader<'_>) -> Result<()> {
        eligible.sort_by_key(|one| std::cmp::Reverse(one.shared));
        eligible.iter().try_for_each(|one| self.take(one, load))
    }
}
