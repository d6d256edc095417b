//! Families: the stored models that a new one may be near to.
//!
//! 1. Only models that share a hash of a tensor with the new one are asked for: others have nothing to offer.
//! 2. A few are candidates because of what is said of them: the content that the file had in the last version, and the
//!    models that the new one's card names.
//! 3. Then those that the new one is nearest to, by the outlines of all that there are ([`super::outline`]), however
//!    many and however old: first the one that would save most, then always the one that adds most to what those before
//!    it save. So a crowd of relatives does not hide the one model that other tensors come from.
//! 4. If there is still room, those that share most hashes, the latest of equals first; then the bases of all these.

use std::collections::HashSet;
use std::sync::Arc;

use super::catalogue::{CatalogueEntry, name_hash};
use super::outline::{ModelOutline, ModelOutlines, Savings};
use super::record::ModelRecord;
use crate::error::Result;
use crate::types::Fingerprint;

/// Records compared with a new model, at most, and bases of those.
const CANDIDATES_MAX: usize = 12;
const BASES_MAX: usize = 4;
/// Candidates because of the last version or a name, at most.
const NAMED_MAX: usize = 4;
/// Memory for records of the running session.
const SESSION_BYTES_MAX: usize = 32 << 20;

/// Loads the record stored as a chunk; `None` if it cannot be had.
pub type RecordLoader<'a> = dyn FnMut(&Fingerprint) -> Result<Option<Arc<ModelRecord>>> + 'a;

/// The models known so far.
#[derive(Default)]
pub struct Families {
    stored: Vec<CatalogueEntry>,
    outlines: ModelOutlines,
    session: Vec<SessionModel>,
    session_bytes: usize,
    /// Models that have been compared with others so far.
    asked: u64,
}

/// A model of the running session.
struct SessionModel {
    head: CatalogueEntry,
    outline: ModelOutline,
    record: Arc<ModelRecord>,
    /// When it was a candidate last.
    wanted: u64,
}

/// A model that shares a hash with the new one.
struct Eligible<'a> {
    head: &'a CatalogueEntry,
    /// Models that are later.
    age: usize,
    /// More, if it is of this session.
    recent: Option<&'a SessionModel>,
    /// Hashes that it shares.
    shared: usize,
    is_named: bool,
    is_previous_version: bool,
    savings: Savings,
}

impl Eligible<'_> {
    fn saving(&self) -> f32 {
        self.savings.iter().sum()
    }

    /// What it adds to `saved`.
    fn gain(&self, saved: &Savings) -> f32 {
        self.savings.iter().zip(saved).map(|(own, saved)| (own - saved).max(0.0)).sum()
    }
}

impl Families {
    /// Those of the catalogue.
    pub fn new(stored: Vec<CatalogueEntry>) -> Self {
        Families { stored, ..Families::default() }
    }

    /// Adds a model of the running session. Those that were candidates for none for longest make room.
    pub fn add(&mut self, record: Arc<ModelRecord>) {
        self.session_bytes += record.memory_bytes();
        let head = CatalogueEntry::new(&record, Fingerprint([0; 32]));
        let outline = ModelOutline::of(&record);
        self.session.push(SessionModel { head, outline, record, wanted: self.asked });
        while self.session_bytes > SESSION_BYTES_MAX && self.session.len() > 1 {
            let oldest = self.session.iter().enumerate().min_by_key(|(_, recent)| recent.wanted);
            let at = oldest.map_or(0, |(at, _)| at);
            self.session_bytes -= self.session.remove(at).record.memory_bytes();
        }
    }

    /// The records to compare `new` with, the oldest first. `previous_version` is the content that the file had.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn candidates(
        &mut self,
        new: &ModelRecord,
        previous_version: Option<Fingerprint>,
        load: &mut RecordLoader<'_>,
    ) -> Result<Vec<Arc<ModelRecord>>> {
        let mut eligible = eligible(&self.session, &self.stored, new, previous_version);
        if eligible.len() > CANDIDATES_MAX {
            self.outlines.read(eligible.iter().filter(|one| one.recent.is_none()).map(|one| one.head), load)?;
            let own = ModelOutline::of(new);
            for one in &mut eligible {
                let outline =
                    one.recent.map_or_else(|| self.outlines.get(&one.head.id), |recent| Some(&recent.outline));
                one.savings = outline.map_or_else(Savings::default, |outline| own.savings(outline));
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
        self.asked += 1;
        for recent in &mut self.session {
            if found.iter().any(|record| record.id == recent.head.id) {
                recent.wanted = self.asked;
            }
        }
        Ok(found)
    }

    fn with_id(&self, id: &Fingerprint, load: &mut RecordLoader<'_>) -> Result<Option<Arc<ModelRecord>>> {
        if let Some(recent) = self.session.iter().find(|recent| recent.head.id == *id) {
            return Ok(Some(recent.record.clone()));
        }
        let head = self.stored.iter().rev().find(|head| head.id == *id);
        head.map_or(Ok(None), |head| load(&head.record))
    }
}

/// The models that share a hash with `new`, the latest first.
fn eligible<'a>(
    session: &'a [SessionModel],
    stored: &'a [CatalogueEntry],
    new: &ModelRecord,
    previous_version: Option<Fingerprint>,
) -> Vec<Eligible<'a>> {
    let mut keys = new.keys();
    keys.sort_unstable();
    let wanted: Vec<u64> = new.bases.iter().map(|name| name_hash(name)).collect();
    let of_session = session.iter().rev().map(|recent| (&recent.head, Some(recent)));
    let all = of_session.chain(stored.iter().rev().map(|head| (head, None)));
    let eligible = all.enumerate().map(|(age, (head, recent))| Eligible {
        head,
        age,
        recent,
        shared: head.keys.iter().filter(|key| keys.binary_search(key).is_ok()).count(),
        is_named: head.names.iter().any(|name| wanted.contains(name)),
        is_previous_version: previous_version.is_some() && previous_version == head.content,
        savings: Savings::default(),
    });
    eligible.filter(|one| one.shared > 0).collect()
}

/// The candidates so far.
#[derive(Default)]
struct CandidateSet {
    /// With their ages.
    records: Vec<(usize, Arc<ModelRecord>)>,
    ids: HashSet<Fingerprint>,
    /// Records that cannot be had.
    lost: HashSet<Fingerprint>,
    /// What they save together.
    saved: Savings,
}

impl CandidateSet {
    fn is_full(&self) -> bool {
        self.records.len() >= CANDIDATES_MAX
    }

    /// Whether a model has been taken or cannot be.
    fn is_done(&self, head: &CatalogueEntry) -> bool {
        self.ids.contains(&head.id) || self.lost.contains(&head.record)
    }

    fn take(&mut self, one: &Eligible<'_>, load: &mut RecordLoader<'_>) -> Result<()> {
        if self.is_full() || self.is_done(one.head) {
            return Ok(());
        }
        let record = match one.recent {
            Some(recent) => Some(recent.record.clone()),
            None => load(&one.head.record)?,
        };
        let Some(record) = record else {
            self.lost.insert(one.head.record);
            return Ok(());
        };
        self.ids.insert(one.head.id);
        self.records.push((one.age, record));
        self.saved.iter_mut().zip(&one.savings).for_each(|(saved, own)| *saved = saved.max(*own));
        Ok(())
    }

    /// The last version and what the card names.
    fn take_named(&mut self, eligible: &[Eligible<'_>], load: &mut RecordLoader<'_>) -> Result<()> {
        let mut named: Vec<&Eligible> = eligible.iter().filter(|one| one.is_named || one.is_previous_version).collect();
        named.sort_by(|one, other| {
            let by_saving = other.saving().total_cmp(&one.saving());
            other.is_previous_version.cmp(&one.is_previous_version).then(by_saving).then(other.shared.cmp(&one.shared))
        });
        named.dedup_by_key(|one| one.head.id);
        named.into_iter().take(NAMED_MAX).try_for_each(|one| self.take(one, load))
    }

    fn take_nearest(&mut self, eligible: &[Eligible<'_>], load: &mut RecordLoader<'_>) -> Result<()> {
        let mut open: Vec<&Eligible> = eligible.iter().filter(|one| one.saving() > 0.0).collect();
        while !self.is_full() {
            open.retain(|one| !self.is_done(one.head));
            let gain = |one: &Eligible<'_>| one.gain(&self.saved);
            // The last of equals is the oldest.
            let best = open.iter().max_by(|one, other| {
                let by_gain = gain(one).total_cmp(&gain(other));
                by_gain.then_with(|| one.saving().total_cmp(&other.saving()))
            });
            let Some(best) = best else { break };
            self.take(best, load)?;
        }
        Ok(())
    }

    fn take_latest(&mut self, eligible: &mut [Eligible<'_>], load: &mut RecordLoader<'_>) -> Result<()> {
        eligible.sort_by_key(|one| std::cmp::Reverse(one.shared));
        eligible.iter().try_for_each(|one| self.take(one, load))
    }
}
