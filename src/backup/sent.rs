//! A file whose content is sent once and referred to later: by other names of its inode, or by the entry of a hoisted
//! file.
//!
//! 1. The stage that sends the content keeps a [`SentFile`] and sends it along with the end of the file.
//! 2. Read says whether the file was read whole, and whether it can be told from any other file of its inode number.
//!    The other names wait for that. If it was not, they are read like files of their own.
//! 3. Save says what it stored. It arrives there before any name that refers to it.
//!
//! So no stage looks a content up by an inode number, which the source may have given to another file meanwhile.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::repo::recipe::ContentReference;

/// What is stored of a file.
#[derive(Debug, Clone, Copy)]
pub struct SavedContent {
    /// The content; `None` if it is empty.
    pub content: Option<ContentReference>,
    /// Its length, bytes.
    pub size: u64,
}

/// A file that is sent once.
#[derive(Debug, Clone, Default)]
pub struct SentFile(Arc<SentState>);

#[derive(Debug, Default)]
struct SentState {
    /// Whether other entries may refer to it; `None` until it has been read.
    is_shareable: Mutex<Option<bool>>,
    is_read: Condvar,
    saved: OnceLock<SavedContent>,
}

impl SentFile {
    /// A file whose content is stored already.
    pub fn stored(content: Option<ContentReference>, size: u64) -> Self {
        let sent = SentFile::default();
        sent.end(true);
        sent.save(SavedContent { content, size });
        sent
    }

    /// Says that the file has been read, and whether other entries may refer to it. Only the first call counts.
    pub fn end(&self, is_shareable: bool) {
        self.0.is_shareable.lock().get_or_insert(is_shareable);
        self.0.is_read.notify_all();
    }

    /// Whether other entries may refer to the file. Waits for that no longer than `patience`.
    pub fn is_shareable(&self, patience: Duration) -> Option<bool> {
        let mut state = self.0.is_shareable.lock();
        self.0.is_read.wait_while_for(&mut state, |is_shareable| is_shareable.is_none(), patience);
        *state
    }

    /// Says what is stored. Only the first call counts.
    pub fn save(&self, saved: SavedContent) {
        self.0.saved.get_or_init(|| saved);
    }

    /// What is stored, once Save has it.
    pub fn saved(&self) -> Option<SavedContent> {
        self.0.saved.get().copied()
    }
}
