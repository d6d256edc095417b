//! Families: the stored models that a new one may be near to.
//!
//! 1. Candidates are records that share most hashes of tensors with the new one, those of the file's last version and
//!    of models that its card names first, the latest of equals first; then the bases of these.
//! 2. What is stored against which of them is chosen tensor by tensor ([`super::choice`]).

use std::sync::Arc;

use super::catalogue::{Head, name_hash};
use super::record::ModelRecord;
use crate::error::Result;
use crate::types::Fingerprint;

/// Records compared with a new model, at most, and bases of those.
const CANDIDATES_MAX: usize = 12;
const BASES_MAX: usize = 4;
/// What a name and the last version weigh beside a shared hash.
const NAME_WEIGHT: usize = 1 << 8;
const VERSION_WEIGHT: usize = 1 << 16;
/// Memory for records of the running session.
const SESSION_BYTES_MAX: usize = 32 << 20;

/// Loads the record stored as a chunk; `None` if it cannot be had.
pub type Load<'a> = dyn FnMut(&Fingerprint) -> Result<Option<Arc<ModelRecord>>> + 'a;

/// The models known so far.
#[derive(Default)]
pub struct Families {
    stored: Vec<Head>,
    session: Vec<(Head, Arc<ModelRecord>)>,
    session_bytes: usize,
}

impl Families {
    /// Those of the catalogue.
    pub fn new(stored: Vec<Head>) -> Self {
        Families { stored, ..Families::default() }
    }

    /// Adds a model of the running session; old ones make room.
    pub fn add(&mut self, record: Arc<ModelRecord>) {
        self.session_bytes += record.memory_bytes();
        let head = Head::new(&record, Fingerprint([0; 32]));
        self.session.push((head, record));
        while self.session_bytes > SESSION_BYTES_MAX && self.session.len() > 1 {
            self.session_bytes -= self.session.remove(0).1.memory_bytes();
        }
    }

    /// The records to compare `new` with, most promising first. `last_version` is the content that the file had.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn candidates(
        &self,
        new: &ModelRecord,
        last_version: Option<Fingerprint>,
        load: &mut Load<'_>,
    ) -> Result<Vec<Arc<ModelRecord>>> {
        let keys = new.keys();
        let wanted: Vec<u64> = new.bases.iter().map(|name| name_hash(name)).collect();
        let score = |head: &Head| {
            let shared = keys.iter().filter(|key| head.keys.contains(key)).count();
            let named = usize::from(head.names.iter().any(|name| wanted.contains(name)));
            let is_last = usize::from(last_version.is_some() && last_version == head.content);
            // A name alone is none: a model of another shape has nothing to offer.
            if shared == 0 { 0 } else { shared + named * NAME_WEIGHT + is_last * VERSION_WEIGHT }
        };
        let session = self.session.iter().rev().map(|(head, record)| (head, Some(record)));
        let all = session.chain(self.stored.iter().rev().map(|head| (head, None)));
        let mut scored: Vec<_> = all.map(|(head, record)| (score(head), head, record)).collect();
        scored.retain(|scored| scored.0 > 0);
        scored.sort_by_key(|scored| std::cmp::Reverse(scored.0));
        let mut found: Vec<Arc<ModelRecord>> = Vec::new();
        for (_, head, record) in scored {
            if found.len() == CANDIDATES_MAX {
                break;
            }
            if !found.iter().any(|other| other.id == head.id) {
                found.extend(self.record(head, record, load)?);
            }
        }
        let bases: Vec<Fingerprint> = found.iter().filter_map(|record| Some(record.base.as_ref()?.id)).collect();
        for base in bases {
            if found.len() < CANDIDATES_MAX + BASES_MAX && !found.iter().any(|record| record.id == base) {
                found.extend(self.with_id(&base, load)?);
            }
        }
        Ok(found)
    }

    fn record(
        &self,
        head: &Head,
        record: Option<&Arc<ModelRecord>>,
        load: &mut Load<'_>,
    ) -> Result<Option<Arc<ModelRecord>>> {
        match record {
            Some(record) => Ok(Some(record.clone())),
            None => load(&head.record),
        }
    }

    fn with_id(&self, id: &Fingerprint, load: &mut Load<'_>) -> Result<Option<Arc<ModelRecord>>> {
        if let Some((_, record)) = self.session.iter().find(|(head, _)| head.id == *id) {
            return Ok(Some(record.clone()));
        }
        let head = self.stored.iter().rev().find(|head| head.id == *id);
        head.map_or(Ok(None), |head| load(&head.record))
    }
}
