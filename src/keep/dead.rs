//! What dead prunes and writers have left: pending entries and intents.

use std::collections::HashSet;
use std::time::Duration;

use super::plan::PlanBounds;
use super::prune::PruneRun;
use super::view::View;
use crate::error::{ErrorKind, Result};
use crate::repo::claims::{ClaimKind, ContainerClaim, IntentNote};
use crate::store::{BlobKind, BlobName, Durable};
use crate::types::ContainerId;

/// How long a broken intent without a snapshot stays: its writer may be stopped, or asleep.
const BROKEN_STAYS: Duration = Duration::from_secs(7 * 24 * 3600);

impl PruneRun<'_> {
    /// The entries of other prunes, which count as dead. One that cannot be read will be deleted if it is older than
    /// the grace period: nobody knows what its owner may still delete, so until then nobody may rely on anything.
    pub(super) fn dead_prunes(&mut self) -> Result<Vec<ContainerClaim>> {
        let store = self.repository.store.as_ref();
        let (dead, damaged) = ContainerClaim::list_with_seen(store, ClaimKind::Pending, &mut self.seen)?;
        for (name, error) in damaged {
            if error.is_newer() {
                return Err(error);
            }
            if !self.is_old(&name)? {
                tracing::warn!("{name} cannot be read; a prune deletes it once it is older than the grace period");
                return Err(error);
            }
            tracing::warn!("{error}; this entry of a prune is older than the grace period and will be deleted");
            self.damaged.push(name);
        }
        Ok(dead)
    }

    /// Breaks intents older than the grace period: before all lists, so that a writer that is alive either is seen
    /// there or notices, and that a snapshot of a dead one that lacks data does not end the plan. Also deletes what is
    /// released.
    pub(super) fn break_intents(&mut self) -> Result<()> {
        let store = self.repository.store.as_ref();
        let listed = self.seen.list(store, BlobKind::Intent)?;
        let names: HashSet<BlobName> = listed.iter().map(|listed| listed.name.clone()).collect();
        // A note of a writer comes after its intent.
        for listed in listed {
            if IntentNote::is_note(&listed.name) {
                let is_released = listed.name.ends_with(IntentNote::Released.suffix());
                if is_released || self.is_left_over(&listed.name, &names)? {
                    store.delete(&listed.name, Durable::OnReturn)?;
                }
            } else if names.contains(&IntentNote::Released.name(&listed.name)) {
                // Its writer could not delete it. If somebody else says so, the writer notices.
                store.delete(&listed.name, Durable::OnReturn)?;
            } else if !names.contains(&IntentNote::Broken.name(&listed.name)) && self.is_old(&listed.name)? {
                tracing::debug!("{}: its writer counts as dead", listed.name);
                IntentNote::Broken.put(store, &listed.name)?;
                self.report.intents_broken += 1;
            }
        }
        Ok(())
    }

    /// Whether there is something to do, for a prune that is alone, about snapshots that nobody has reported.
    pub(super) fn has_unreported(&mut self, view: &View) -> Result<bool> {
        let snapshots = view.snapshots.iter().chain(&view.lacking);
        Ok(view.intents.need_prune(snapshots) || !self.expired(view)?.is_empty())
    }

    /// The broken intents whose writers will not put a snapshot any more.
    pub(super) fn expired(&mut self, view: &View) -> Result<HashSet<BlobName>> {
        let bounds = PlanBounds { grace: BROKEN_STAYS, ..self.bounds() };
        let mut expired = HashSet::new();
        for intent in view.intents.broken() {
            let name = IntentNote::Broken.name(intent);
            if let Some(head) = self.repository.store.head(&name)?
                && bounds.is_old(self.ages.put_at(&name, head.modified, bounds.now))
            {
                expired.insert(intent.clone());
            }
        }
        Ok(expired)
    }

    /// Whether `name` is that of what a prune has put beside an intent that is neither among `names` nor there. Then it
    /// says nothing.
    fn is_left_over(&self, name: &BlobName, names: &HashSet<BlobName>) -> Result<bool> {
        let Some(intent) = IntentNote::intent_of_prune(name) else { return Ok(false) };
        Ok(!names.contains(&intent) && self.repository.store.head(&intent)?.is_none())
    }

    /// Records which containers of `doomed` broken intents name: segments that their writers put later may name them.
    /// Only reports need that, so a prune goes on without it.
    pub(super) fn record_pruned(&self, view: &View, doomed: &HashSet<ContainerId>) {
        if let Err(error) = self.try_record_pruned(view, doomed) {
            tracing::debug!("what is deleted is not recorded: {error}");
        }
    }

    fn try_record_pruned(&self, view: &View, doomed: &HashSet<ContainerId>) -> Result<()> {
        let store = self.repository.store.as_ref();
        let (mut pruned, mut last) = (HashSet::new(), None);
        for intent in view.intents.broken() {
            match ContainerClaim::load(store, intent) {
                Ok(claim) => pruned.extend(claim.containers.into_iter().filter(|id| doomed.contains(id))),
                Err(error) if error.is_unreadable() || error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            last = Some(intent);
        }
        let recorded = ContainerClaim::pruned(store)?;
        pruned.retain(|id| !recorded.contains(id));
        match last {
            Some(intent) if !pruned.is_empty() => {
                ContainerClaim::put_pruned(store, intent, &self.repository.salts.draw()?, pruned.into_iter().collect())
            }
            _ => Ok(()),
        }
    }

    /// Whether a blob is there and older than the grace period.
    fn is_old(&mut self, name: &BlobName) -> Result<bool> {
        let (head, bounds) = (self.repository.store.head(name)?, self.bounds());
        Ok(head.is_some_and(|head| bounds.is_old(self.ages.put_at(name, head.modified, bounds.now))))
    }
}
