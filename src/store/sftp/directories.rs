//! The directories of a store on a server: what is in one that is away is unread, not absent (`store/directories.rs`).

use std::collections::HashMap;
use std::sync::Arc;

use super::failure::SftpFailure;
use super::files;
use super::packet::{Attributes, Request, SftpRequestKind};
use super::session::{SftpSession, WaitKind};
use super::store::SftpStore;
use crate::error::Result;
use crate::store::BlobKind;
use crate::store::directories::{NOTE, away, is_with_others, needed_for, no_directory, witnesses};
use crate::store::kind::lasting_directories;

impl SftpStore {
    /// Which of `directories` are there, with what the server says of them. What cannot be looked at is there.
    fn present(
        &self,
        session: &Arc<SftpSession>,
        directories: Vec<&'static str>,
    ) -> Result<HashMap<&'static str, Option<Attributes>>, SftpFailure> {
        let mut asked = Vec::new();
        for directory in directories {
            let request = Request::new(SftpRequestKind::Lstat).text(&self.path(directory));
            asked.push((directory, session.send(request)?));
        }
        let mut present = HashMap::new();
        for (directory, request) in asked {
            match files::attributes(request.wait(WaitKind::Stoppable)?) {
                Ok(None) => {}
                Ok(found) => _ = present.insert(directory, found),
                Err(SftpFailure::Status(..)) => _ = present.insert(directory, None),
                Err(failure) => return Err(failure),
            }
        }
        self.seen_directories.lock().extend(present.keys());
        Ok(present)
    }

    fn has_seen(&self, directory: &str) -> bool {
        self.seen_directories.lock().contains(directory)
    }

    /// Notes the directories that are there: they must stay.
    pub(super) fn see_directories(&self, session: &Arc<SftpSession>) -> Result<(), SftpFailure> {
        self.present(session, lasting_directories(true).chain([NOTE]).collect()).map(drop)
    }

    /// Fails if a directory is away, or something else is there, without which nobody knows what is below `prefix`.
    pub(super) fn check_directories(&self, session: &Arc<SftpSession>, prefix: &str) -> Result<(), SftpFailure> {
        let needed: Vec<&str> = needed_for(prefix, self.has_seen(BlobKind::Key.directory())).collect();
        let present = self.present(session, needed.clone())?;
        for directory in needed {
            let found = match present.get(directory) {
                None if self.is_expected(session, directory)? => return Err(away(directory).into()),
                Some(Some(found)) if found.is_link() => self.behind(session, directory)?,
                found => found.copied().flatten(),
            };
            if found.is_some_and(|found| found.permissions.is_some() && !found.is_directory()) {
                return Err(no_directory(directory).into());
            }
        }
        Ok(())
    }

    /// Like [`Self::check_directories`], after a listing of `prefix` that has found its directory.
    pub(super) fn check_others(&self, session: &Arc<SftpSession>, prefix: &str) -> Result<(), SftpFailure> {
        if is_with_others(prefix) { self.check_directories(session, prefix) } else { Ok(()) }
    }

    /// Whether a lasting directory that is missing was there.
    fn is_expected(&self, session: &Arc<SftpSession>, directory: &str) -> Result<bool, SftpFailure> {
        if self.has_seen(directory) || self.has_seen(NOTE) || self.present(session, vec![NOTE])?.contains_key(NOTE) {
            return Ok(true);
        }
        for witness in witnesses(directory) {
            let opened = files::open_directory(session, &self.path(witness));
            let has_entries = match opened {
                Err(failure) if failure.is_missing() => false,
                // One that cannot be read may have some.
                Err(SftpFailure::Status(..)) => true,
                opened => files::has_entries(&opened?)?,
            };
            if has_entries {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the lasting directories and the note, unless this is a `dry_run`. Fails if one is away.
    pub(super) fn make_lasting_directories(&self, dry_run: bool) -> Result<()> {
        let is_done = self.connection.retry(WaitKind::ToTheEnd, |session, _| {
            // Those of keys are new if a key slot is.
            self.see_directories(session)?;
            self.check_directories(session, "")?;
            Ok(dry_run || self.has_seen(NOTE))
        });
        let made = is_done.and_then(|is_done| if is_done { Ok(()) } else { self.make_them() });
        made.map_err(|failure| failure.into_error("create", &self.url("")))
    }

    fn make_them(&self) -> Result<(), SftpFailure> {
        let make = |directory: &str| {
            self.connection
                .retry(WaitKind::ToTheEnd, |session, _| files::make_directory(session, &self.path(directory)).map(drop))
        };
        lasting_directories(self.has_seen(BlobKind::Key.directory())).try_for_each(make)?;
        self.sync_parent(BlobKind::RequiredMark.directory())?;
        self.sync_parent(NOTE)?;
        make(NOTE)?;
        self.sync_parent(NOTE)?;
        self.connection.retry(WaitKind::ToTheEnd, |session, _| self.see_directories(session))
    }
}
