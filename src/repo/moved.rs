//! Bytes of containers that are under the names of others, because files were mixed up. A heal puts them back.
//!
//! 1. The hash of all bytes under a name says whose they are. A heal looks before it overwrites them. If they are those
//!    of another container, which is missing or damaged under its own name, they go there first.
//! 2. What is under that name is looked at in the same way, and so on: a *chain*. It is written from its end on, with
//!    one container in memory. So no bytes are overwritten before they are read again under their own name.
//! 3. The bytes of a container that is lost elsewhere may be at the end of the chain that begins with it. Then they are
//!    overwritten first, which must cost nothing: parity must give them back.
//! 4. Bytes that are damaged, or cannot all be read, are compared with the right ones of that name: those of another
//!    container stay.
//! 5. What is not put back stays where it is, and so does what cannot be looked at: the container that should be there
//!    is not healed.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::Repository;
use super::cold::options_of_kind;
use super::container::{
    ContainerIndex, FOOTER_BYTES, Footer, HEADER_BYTES, blob_name, parse_frame, parse_header, read_kind,
};
use super::index::ContainerListing;
use super::marks::Marks;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BlobName, BytesInTheWay, PutOptions, Reading, Store, StoreExt};
use crate::types::ContainerId;

/// Finds moved bytes, and puts them back.
pub(super) struct MovedContainers<'a> {
    repository: &'a Repository,
    /// Containers that a prune may be deleting.
    pending: HashSet<ContainerId>,
    /// Containers that parity gives back.
    rebuilt: HashSet<ContainerId>,
    /// Containers that segments or marks name.
    named: HashSet<ContainerId>,
    /// What was found under names that nobody wrote since: a long chain begins at each of its containers.
    found: RefCell<HashMap<ContainerId, BytesOf>>,
}

/// Whose bytes are under the name of a container.
#[derive(Clone, Copy)]
enum BytesOf {
    /// Its own.
    Itself,
    /// They have damage, or there are none, or not all of them can be read.
    Nobody,
    /// All those of another container, and how they are put, if its header says it.
    Other(ContainerId, Option<PutOptions>),
}

/// The first container of a chain has the bytes of the first link, which has those of the second one, and so on.
struct MovedChain {
    first: ContainerId,
    links: Vec<(ContainerId, Option<PutOptions>)>,
}

impl<'a> MovedContainers<'a> {
    /// To look at `containers`, of which parity gives back those that are `rebuilt`. A prune may be deleting those that
    /// are `pending`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn new(
        repository: &'a Repository,
        containers: &[ContainerId],
        rebuilt: HashSet<ContainerId>,
        pending: HashSet<ContainerId>,
    ) -> Result<Self> {
        let mut named = HashSet::new();
        if !containers.is_empty() {
            let segments = ContainerListing::of_segments(&repository.store)?.segments();
            named.extend(segments.iter().flat_map(|segment| segment.containers().iter().copied()));
            // Segments that were written again may lack what was lost.
            let marks = Marks::read(repository.store.as_ref())?;
            named.extend(marks.quarantine.containers().map(|(id, _)| *id));
        }
        Ok(MovedContainers { repository, pending, rebuilt, named, found: RefCell::default() })
    }

    /// Forgets what was found. From now on, a prune may be deleting those that are `pending`.
    pub fn look_again(&mut self, pending: HashSet<ContainerId>) {
        self.pending = pending;
        self.found.get_mut().clear();
    }

    /// The containers that are to be put back before `first` is overwritten.
    ///
    /// # Errors
    /// Errors of [`Self::put_back`].
    pub fn owners(&self, first: ContainerId) -> Result<Vec<ContainerId>> {
        Ok(self.chain(first)?.links.into_iter().map(|(id, _)| id).collect())
    }

    /// Puts the bytes under the name of `first` under their own, and so on along the chain. Adds to `done` what it has
    /// put. An intent must have what it puts: those are `held`.
    ///
    /// # Errors
    /// If bytes of another container are there, or may be, and are not under their own name afterwards.
    pub fn put_back(
        &self,
        first: ContainerId,
        held: &HashSet<ContainerId>,
        done: &mut BTreeSet<ContainerId>,
    ) -> Result<()> {
        let MovedChain { first, links } = self.chain(first)?;
        if let Some((id, _)) = links.iter().find(|(id, _)| !held.contains(id)) {
            return Err(Error::Usage(format!("it has got the bytes of {} meanwhile", blob_name(id))));
        }
        for (number, (owner, options)) in links.iter().enumerate().rev() {
            let from = number.checked_sub(1).and_then(|before| links.get(before)).map_or(first, |(id, _)| *id);
            let is_new = self.put(&blob_name(&from), owner, *options).map_err(|error| {
                Error::Usage(format!("{} has the bytes of {}: {error}", blob_name(&from), blob_name(owner)))
            })?;
            self.found.borrow_mut().remove(owner);
            if is_new {
                done.insert(*owner);
            }
        }
        Ok(())
    }

    fn chain(&self, first: ContainerId) -> Result<MovedChain> {
        let (mut links, mut seen): (Vec<(ContainerId, Option<PutOptions>)>, _) = (Vec::new(), HashSet::new());
        loop {
            let last = links.last().map_or(first, |(id, _)| *id);
            let before = links.len().checked_sub(2).and_then(|at| links.get(at)).map_or(first, |(id, _)| *id);
            match self.bytes_of(&last, Some(&before))? {
                // What the one before has is a spare copy.
                BytesOf::Itself => {
                    links.pop();
                    break;
                }
                BytesOf::Nobody => break,
                BytesOf::Other(owner, _) if owner == first => {
                    self.check_rebuilt(&first, &last)?;
                    break;
                }
                // The one before it has the same bytes.
                BytesOf::Other(owner, _) if seen.contains(&owner) => break,
                BytesOf::Other(owner, options) => {
                    if self.pending.contains(&owner) && !matches!(self.bytes_of(&owner, None)?, BytesOf::Itself) {
                        let (name, owner) = (blob_name(&last), blob_name(&owner));
                        return Err(Error::Usage(format!(
                            "{name} has the bytes of {owner}, which a prune may be deleting"
                        )));
                    }
                    seen.insert(owner);
                    links.push((owner, options));
                }
            }
        }
        Ok(MovedChain { first, links })
    }

    /// Fails unless parity gives back the container `first`, whose bytes are under the name of `last`.
    fn check_rebuilt(&self, first: &ContainerId, last: &ContainerId) -> Result<()> {
        let (first, last) = (blob_name(first), blob_name(last));
        let rebuilt = self.repository.parity.healed_bytes(&first);
        rebuilt.map(drop).map_err(|error| {
            let text = "and the other way round, and parity does not give back";
            Error::Usage(format!("{last} has the bytes of {first}, {text} the latter: {error}"))
        })
    }

    /// Whose bytes are under the name of a container that the bytes under the name `before` are to replace: its own,
    /// if that is another container. Without `before`, nothing replaces them.
    fn bytes_of(&self, id: &ContainerId, before: Option<&ContainerId>) -> Result<BytesOf> {
        if let Some(found) = self.found.borrow().get(id) {
            return Ok(*found);
        }
        let found = match self.repository.parity.bytes_in_the_way(&blob_name(id))? {
            BytesInTheWay::Own => BytesOf::Itself,
            BytesInTheWay::Unreadable => BytesOf::Nobody,
            BytesInTheWay::Other(bytes) => self.owner_of(id, bytes)?,
        };
        if matches!(found, BytesOf::Nobody) {
            // What is damaged may be of another container, too. Where nothing replaces it, nobody has looked.
            let is_replaced = before.map_or(Ok(false), |before| self.check_part(id, before))?;
            if !is_replaced {
                return Ok(found);
            }
        }
        self.found.borrow_mut().insert(*id, found);
        Ok(found)
    }

    /// Fails if what can be read under the name of a container is not its own, or nobody's. Its right bytes are under
    /// the name `before`, or parity gives them back if that is its own name. Returns whether anything gives them.
    fn check_part(&self, id: &ContainerId, before: &ContainerId) -> Result<bool> {
        let (parity, name) = (self.repository.parity.as_ref(), blob_name(id));
        let right = match id == before {
            true if !parity.is_healed(&name) && !self.rebuilt.contains(id) => return Ok(false),
            true => parity.healed_bytes(&name)?,
            false => match parity.bytes_in_the_way(&blob_name(before))? {
                BytesInTheWay::Other(moved) if blake3::hash(&moved).as_bytes() == &id.0 => moved,
                _ => return Err(Error::Usage(format!("the bytes of {name} have changed meanwhile"))),
            },
        };
        match parity.is_part_of(&name, &right)? {
            true => Ok(true),
            false => Err(Error::Usage(format!(
                "{name} has other bytes, which are damaged or cannot all be read, and stay; empty the file if nobody \
                 needs them"
            ))),
        }
    }

    /// Whose `bytes` are under the name of the container `id`, which are not its own.
    fn owner_of(&self, id: &ContainerId, bytes: Vec<u8>) -> Result<BytesOf> {
        let (store, name) = (self.repository.store.as_ref(), blob_name(id));
        let owner = ContainerId(*blake3::hash(&bytes).as_bytes());
        let owner_name = blob_name(&owner);
        let is_known = self.named.contains(&owner) || self.pending.contains(&owner) || is_there(store, &owner_name)?;
        let bytes = store.open_stored(&owner_name, bytes);
        let header = bytes.as_deref().map(|bytes| bytes.get(..HEADER_BYTES).unwrap_or_default());
        let kind = header.map_err(Error::duplicate).and_then(|header| match parse_header(&owner_name, header) {
            Err(error) if error.is_newer() => Ok(None),
            kind => kind.map(Some),
        });
        let is_other = match (&bytes, &kind) {
            _ if is_known => true,
            // Bytes with damage have a hash, too, and are no container's.
            (_, Err(error)) if error.kind() == ErrorKind::Damaged => false,
            (_, Err(error)) => return Err(error.duplicate()),
            // No older program wrote such a header.
            (_, Ok(None)) if read_kind(store, &name, Reading::Again).is_ok() => true,
            (Ok(bytes), _) => is_of_other(store, &name, bytes)?,
            (Err(_), _) => false,
        };
        let options = kind.ok().map(|kind| options_of_kind(store, kind));
        Ok(if is_other { BytesOf::Other(owner, options) } else { BytesOf::Nobody })
    }

    /// Puts the bytes under the name `from` under that of the container `owner`. Returns whether they were not there.
    fn put(&self, from: &BlobName, owner: &ContainerId, options: Option<PutOptions>) -> Result<bool> {
        let parity = self.repository.parity.as_ref();
        let name = blob_name(owner);
        let options = options.ok_or_else(|| Error::Usage("they have no header that can be read".into()))?;
        match parity.bytes_in_the_way(from)? {
            BytesInTheWay::Other(moved) if blake3::hash(&moved).as_bytes() == &owner.0 => {
                parity.put_back(&name, &moved, options)
            }
            _ => Err(Error::Usage("they have changed meanwhile".into())),
        }
    }
}

/// Whether there is anything of this name.
fn is_there(store: &dyn Store, name: &BlobName) -> Result<bool> {
    match store.head(name) {
        Err(error) if error.is_unreadable() => Ok(true),
        head => Ok(head?.is_some()),
    }
}

/// Whether `bytes`, which are under the name of a container, end with the intact footer of another one. Segments may
/// not name that any more.
fn is_of_other(store: &dyn Store, name: &BlobName, bytes: &[u8]) -> Result<bool> {
    let end = |bytes: &[u8]| bytes.len().checked_sub(FOOTER_BYTES).and_then(|at| bytes.get(at..).map(<[u8]>::to_vec));
    let Some(footer) = end(bytes).filter(|footer| Footer::parse(name, bytes.len() as u64, footer).is_ok()) else {
        return Ok(false);
    };
    let len = store.len_of(name)?.unwrap_or_default();
    let Some(at) = len.checked_sub(FOOTER_BYTES as u64) else { return Ok(false) };
    if store.get_range(name, at, FOOTER_BYTES, Reading::Again)? == footer {
        return Ok(false);
    }
    // Their hash says what they are now, not what they were.
    match check_all(name, bytes) {
        Ok(()) => Ok(true),
        Err(error) => Err(Error::Usage(format!("it has damaged bytes of another container, which stay: {error}"))),
    }
}

/// Fails unless the index and all frames of a container with these bytes are intact.
fn check_all(name: &BlobName, bytes: &[u8]) -> Result<()> {
    let part = |offset: u64, len: u64| {
        let (from, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        bytes.get(from..from.checked_add(len)?)
    };
    let missing = || Error::corrupt(name, 0, "all of a container", "a part");
    let end = bytes.len().saturating_sub(FOOTER_BYTES);
    let footer = Footer::parse(name, bytes.len() as u64, bytes.get(end..).unwrap_or_default())?;
    let index = part(footer.index_offset, footer.index_len).ok_or_else(missing)?;
    ContainerIndex::parse(name, &footer, index)?.frames.iter().try_for_each(|info| {
        parse_frame(name, info, part(info.offset, info.stored_bytes() as u64).ok_or_else(missing)?).map(drop)
    })
}
