//! Reads all marks of a repository, and says what they forbid.

use std::sync::Arc;

use super::blob::{Mark, MarkKind};
use super::quarantine::Quarantine;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::store::{BlobKind, BlobName, ParityShare, Store};
use crate::wire::WRITER_FEATURES_KNOWN;

/// Bytes of all marks that are read, at most. The others count as unreadable.
const TOTAL_BYTES_MAX: u64 = 32 << 20;

/// The marks of a repository at one moment.
#[derive(Debug, Default)]
pub struct Marks {
    /// What all marks of the kind `quarantine` list.
    pub quarantine: Arc<Quarantine>,
    /// Names of those marks.
    pub quarantine_names: Vec<BlobName>,
    /// The bits of all marks of the kind `writer-features`.
    writer_features: u64,
    /// Name of one of those marks.
    pub writer_features_name: Option<BlobName>,
    /// When the last mark of the kind `parity` was set, its share of parity, and its name.
    parity: Option<(i64, ParityShare, BlobName)>,
    /// Names of all marks of that kind.
    pub parity_names: Vec<BlobName>,
    /// Names of all marks of the kind `cold`.
    pub cold_names: Vec<BlobName>,
    /// Names of all marks that were listed.
    pub names: Vec<BlobName>,
    /// Marks that cannot be read, with the reason.
    pub damaged: Vec<(String, Error)>,
    /// Why nobody may write: the first reason found.
    refusal: Option<Error>,
}

impl Marks {
    /// Reads all marks. From then on, the store knows whether the repository is cold.
    ///
    /// # Errors
    /// Errors of listing the store. Marks that cannot be read are in [`Self::damaged`].
    pub fn read(store: &dyn Store) -> Result<Marks> {
        let (mut marks, mut quarantine, mut total) = (Marks::default(), Quarantine::default(), 0);
        let listed = match store.list(BlobKind::Mark.into()) {
            // It may hold a mark that forbids writing.
            Err(error @ Error::Unreadable { .. }) => {
                marks.refusal = Some(error.duplicate());
                marks.damaged.push((BlobKind::Mark.to_string(), error));
                Vec::new()
            }
            listed => listed?,
        };
        for listed in listed {
            total = u64::saturating_add(total, listed.len);
            marks.names.push(listed.name.clone());
            let is_required = is_required(&listed.name);
            let read = || {
                if total > TOTAL_BYTES_MAX {
                    let expected = format!("marks of at most {TOTAL_BYTES_MAX} bytes together");
                    return Err(Error::corrupt(&listed.name, 0, expected, total.to_string()));
                }
                Mark::load(store, &listed.name)
            };
            match read() {
                Ok(mark) => {
                    if let MarkKind::WriterFeatures(features) = &mark.kind {
                        marks.writer_features |= features;
                        marks.writer_features_name = Some(listed.name.clone());
                    }
                    if let MarkKind::Parity(share) = &mark.kind {
                        marks.parity = marks.parity.take().max(Some((mark.time_ns, *share, listed.name.clone())));
                        marks.parity_names.push(listed.name.clone());
                    }
                    if mark.kind == MarkKind::Cold {
                        marks.cold_names.push(listed.name.clone());
                    }
                    if let MarkKind::Quarantine(found) = &mark.kind {
                        quarantine.merge(found);
                        marks.quarantine_names.push(listed.name);
                    } else if let Some(refusal) = refusal(&listed.name, mark, is_required) {
                        marks.refusal.get_or_insert(refusal);
                    }
                }
                // It was removed after the listing.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if error.stops_reading() => return Err(error),
                Err(error) => {
                    if is_required {
                        marks.refusal.get_or_insert_with(|| unreadable(&listed.name, &error));
                    }
                    marks.damaged.push((listed.name.into(), error));
                }
            }
        }
        marks.quarantine = Arc::new(quarantine);
        if let Some(state) = store.cold_state() {
            state.set(marks.is_cold());
        }
        Ok(marks)
    }

    /// The bits of all marks of the kind `writer-features`.
    ///
    /// # Errors
    /// The damage of a mark that may be one of them: what cannot be read does not count as absent.
    pub fn writer_features(&self) -> Result<u64> {
        match self.damaged.iter().find(|(name, _)| is_required(name)) {
            None => Ok(self.writer_features),
            Some((_, error)) => Err(error.duplicate()),
        }
    }

    /// How much parity containers get. If two programs have set it at the same time, the later one counts.
    pub fn parity(&self) -> Option<ParityShare> {
        self.parity.as_ref().map(|(_, share, _)| *share)
    }

    /// From now on, containers get the parity that these marks say.
    pub fn set_parity(&self, repository: &Repository) {
        repository.parity.set_share(self.parity());
        repository.parity.set_share_mark(self.parity.as_ref().map(|(_, _, name)| name.clone()));
    }

    /// Whether data containers are in cold storage.
    pub fn is_cold(&self) -> bool {
        !self.cold_names.is_empty()
    }

    /// Marks that may list bad bytes and cannot be read, with the reason. What they list seems to be sound.
    pub fn unread(&self) -> impl Iterator<Item = &(String, Error)> {
        // A newer version knows why they may be ignored.
        self.damaged.iter().filter(|(name, error)| !is_required(name) && !error.is_newer())
    }

    /// Fails if a mark forbids this version to write.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::SetAside`] or [`Error::Unsupported`] with the name of the mark. For a damaged mark
    /// that may forbid writing, its damage.
    pub fn check_writable(&self) -> Result<()> {
        match &self.refusal {
            None => Ok(()),
            Some(refusal) => Err(refusal.duplicate()),
        }
    }

    /// Like [`check_writable`] with these marks. From then on, containers get the parity that they say.
    ///
    /// # Errors
    /// Errors of [`Repository::check_writable`] and [`Self::check_writable`]. [`Error::Usage`] if data containers shall
    /// get a class of storage or a tag, and the repository is not cold.
    pub fn admit_writer(&self, repository: &Repository) -> Result<()> {
        repository.check_writable()?;
        self.check_writable()?;
        self.set_parity(repository);
        match repository.store.properties().cold_option {
            // Containers that nobody can read at once, and without hot indexes.
            Some(option) if !self.is_cold() => {
                Err(Error::Usage(format!("{option} needs a cold repository: run `fhrd cold set on` first")))
            }
            _ => Ok(()),
        }
    }
}

/// Fails if the configuration or a mark forbids this version to write into `repository`. From then on, containers get
/// the parity that the marks say.
///
/// # Errors
/// Errors of [`Marks::admit_writer`]; errors of listing the store.
pub fn check_writable(repository: &Repository) -> Result<()> {
    repository.check_writable()?;
    Marks::read(repository.store.as_ref())?.admit_writer(repository)
}

/// Whether writers that do not know the mark `name` must not write.
fn is_required(name: &str) -> bool {
    let optional = BlobKind::OptionalMark.directory();
    !name.strip_prefix(optional).is_some_and(|rest| rest.starts_with('/'))
}

/// Why a required mark that cannot be read forbids writing.
fn unreadable(name: &str, error: &Error) -> Error {
    if !error.is_bad_blob() {
        return error.duplicate();
    }
    let expected = "a mark that says who may write (see \"A damaged mark\" in docs/EXIT-CODES.md)";
    Error::corrupt(name, 0, expected, error.to_string())
}

/// Why a mark of another kind than `quarantine` forbids writing, if it does.
fn refusal(name: &str, mark: Mark, is_required: bool) -> Option<Error> {
    let Mark { kind, reason, .. } = mark;
    match kind {
        MarkKind::Quarantine(_) => None,
        MarkKind::WriterFeatures(features) => match features & !WRITER_FEATURES_KNOWN {
            0 => None,
            unknown => Some(Error::unknown_features(name, unknown)),
        },
        MarkKind::Parity(_) | MarkKind::Cold => None,
        MarkKind::ReadOnly => Some(Error::ReadOnly { mark: name.into(), reason }),
        MarkKind::SetAside => Some(Error::SetAside { mark: name.into(), reason }),
        MarkKind::Unknown(kind) => is_required.then(|| Error::unsupported(name, format!("kind of mark `{kind}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durable, MemoryStore, StoreExt, named};
    use crate::wire::Envelope;

    fn put(store: &MemoryStore, prefix: &str, kind: &str) -> BlobName {
        let mut payload = Vec::new();
        let mut encoder = minicbor::Encoder::new(&mut payload);
        encoder.map(4).unwrap().u8(0).unwrap().str(kind).unwrap().u8(1).unwrap().u8(0).unwrap();
        encoder.u8(2).unwrap().str("why").unwrap().u8(3).unwrap().bytes(&[0; 16]).unwrap();
        let blob = Envelope::new(*b"FHRDMARK").seal(&payload);
        let name = named(&format!("{prefix}/{}", blake3::hash(&blob).to_hex()));
        store.put_if_absent(&name, &[&blob]).unwrap();
        name
    }

    fn refused(store: &MemoryStore) -> Option<String> {
        Marks::read(store).unwrap().check_writable().err().map(|error| error.to_string())
    }

    #[test]
    fn unknown_kinds_stop_writers_only_if_they_are_required() {
        let store = MemoryStore::new();
        put(&store, "marks/optional", "novel");
        assert_eq!(refused(&store), None);
        let name = put(&store, "marks/required", "novel");
        assert_eq!(refused(&store).unwrap(), format!("{name} needs a newer fhrd: unknown kind of mark `novel`"));
        // A mark outside both prefixes is of a version that this one does not know.
        let store = MemoryStore::new();
        put(&store, "marks/others", "novel");
        assert!(refused(&store).is_some());
    }

    #[test]
    fn a_damaged_mark_stops_writers_only_if_it_is_required() {
        for prefix in ["marks/optional", "marks/required"] {
            let store = MemoryStore::new();
            let name = put(&store, prefix, "novel");
            let mut blob = store.get(&name, 1 << 10).unwrap();
            blob[20] ^= 1;
            store.replace(&name, &blob);
            assert_eq!(refused(&store).is_some(), prefix == "marks/required");
            assert_eq!(Marks::read(&store).unwrap().damaged[0].0, name);
        }
    }

    #[test]
    fn the_last_mark_says_how_much_parity_there_is() {
        let store = MemoryStore::new();
        assert_eq!(Marks::read(&store).unwrap().parity(), None);
        for (time_ns, parts) in [(2, 300), (3, 100), (1, 500)] {
            let kind = MarkKind::Parity(ParityShare::new(parts).unwrap());
            Mark { kind, time_ns, reason: String::new() }.save(&store).unwrap();
        }
        let marks = Marks::read(&store).unwrap();
        assert_eq!((marks.parity(), marks.parity_names.len()), (ParityShare::new(100), 3));
    }

    #[test]
    fn marks_that_forbid_writing_say_why() {
        let cases = [
            (MarkKind::WriterFeatures(0), None),
            (MarkKind::Parity(ParityShare::new(300).unwrap()), None),
            (MarkKind::Cold, None),
            (MarkKind::WriterFeatures(4), Some("unknown feature bits 0x4")),
            (MarkKind::ReadOnly, Some("is read-only")),
            (MarkKind::SetAside, Some("set aside for repair")),
        ];
        for (kind, expected) in cases {
            let store = MemoryStore::new();
            let name = Mark::new(kind, "the archive is full").save(&store).unwrap().remove(0);
            let refused = refused(&store);
            let names_all = |text: &str| text.contains(expected.unwrap_or_default()) && text.contains(name.as_str());
            assert!(refused.as_ref().map_or(expected.is_none(), |text| names_all(text)), "{refused:?}");
            store.delete(&name, Durable::OnReturn).unwrap();
        }
    }
}
