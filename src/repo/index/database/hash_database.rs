//! Hashes of contents that clients of the Hub know files by, in a redb database in the local cache directory.
//!
//! A row maps a hash of a content's reference to another hash of its bytes. The file is a cache of what can be computed
//! again: one that is damaged, foreign or too large is emptied, and one that another process has locked is not used.

use std::fs::File;
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};

use super::checked_file::CheckedFile;
use super::chunk_database::{DatabaseFailure, DatabaseResult, empty, failed, guarded, lock};
use crate::crypto::SecretKey;

/// Name of the file in the local cache directory.
pub const HASHES_FILE: &str = "hashes.redb";
const ROWS: TableDefinition<'static, &[u8; 32], &[u8]> = TableDefinition::new("hashes");
/// Memory of redb's cache, bytes.
const CACHE_BYTES: usize = 4 << 20;
/// Rows of a file, at most.
const ROWS_MAX: u64 = 1 << 20;

/// A database in use.
pub struct HashDatabase {
    database: Database,
    /// Holds the lock.
    _file: File,
}

impl HashDatabase {
    /// Opens the database of the repository with this id in a directory. `key` encrypts it. `None` if it cannot be
    /// used: then nothing is remembered.
    pub fn open(directory: &Path, repository: &str, key: Option<&SecretKey>) -> Option<Self> {
        let path = directory.join(HASHES_FILE);
        let file = lock(&path)?;
        for is_last in [false, true] {
            match guarded(|| load(&file, repository, key)) {
                Ok(database) => return Some(HashDatabase { database, _file: file }),
                Err(failure) => tracing::warn!("hashes are computed again: {}: {}", path.display(), reason(failure)),
            }
            if is_last || !empty(&file) {
                break;
            }
        }
        None
    }

    /// The hash of a content. `None` if it is not known.
    pub fn get(&self, content: &[u8; 32]) -> Option<Vec<u8>> {
        let found = guarded(|| {
            let rows = self.database.begin_read().map_err(failed)?.open_table(ROWS).map_err(failed)?;
            Ok(rows.get(content).map_err(failed)?.map(|row| row.value().to_vec()))
        });
        found.unwrap_or_else(|failure| {
            tracing::warn!("a hash is computed again: {}", reason(failure));
            None
        })
    }

    /// Remembers hashes of contents. Returns whether that worked.
    pub fn put(&mut self, hashes: &[([u8; 32], Vec<u8>)]) -> bool {
        let written = guarded(|| {
            let mut transaction = self.database.begin_write().map_err(failed)?;
            transaction.set_quick_repair(true);
            let mut rows = transaction.open_table(ROWS).map_err(failed)?;
            for (content, hash) in hashes {
                rows.insert(content, hash.as_slice()).map_err(failed)?;
            }
            drop(rows);
            transaction.commit().map_err(failed)
        });
        written.inspect_err(|_| tracing::warn!("hashes are no longer remembered: {HASHES_FILE} is unusable")).is_ok()
    }
}

fn load(file: &File, repository: &str, key: Option<&SecretKey>) -> DatabaseResult<Database> {
    let unusable = |error: std::io::Error| DatabaseFailure::Database(error.to_string());
    let checked = CheckedFile::open(file.try_clone().map_err(unusable)?, repository, key).map_err(unusable)?;
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(checked).map_err(failed)?;
    let transaction = database.begin_write().map_err(failed)?;
    let rows = transaction.open_table(ROWS).map_err(failed)?.len().map_err(failed)?;
    transaction.commit().map_err(failed)?;
    match rows > ROWS_MAX {
        true => Err(DatabaseFailure::Database(format!("it has {rows} rows"))),
        false => Ok(database),
    }
}

fn reason(failure: DatabaseFailure) -> String {
    match failure {
        DatabaseFailure::Database(reason) => reason,
        DatabaseFailure::Run(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &Path, key: Option<&SecretKey>) -> Option<HashDatabase> {
        HashDatabase::open(directory, "0123", key)
    }

    #[test]
    fn hashes_outlive_the_process_and_only_one_has_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut database = open(directory.path(), None).unwrap();
        assert!(database.put(&[([1; 32], vec![7; 32]), ([2; 32], vec![8; 20])]));
        assert!(open(directory.path(), None).is_none(), "another process has it");
        drop(database);
        let database = open(directory.path(), None).unwrap();
        assert_eq!((database.get(&[1; 32]), database.get(&[2; 32])), (Some(vec![7; 32]), Some(vec![8; 20])));
        assert_eq!(database.get(&[3; 32]), None);
    }

    #[test]
    fn a_damaged_file_and_one_of_another_key_are_begun_again() {
        let directory = tempfile::tempdir().unwrap();
        let key = SecretKey::new([5; 32]);
        let filled = |key: Option<&SecretKey>| {
            let mut database = open(directory.path(), key).unwrap();
            assert!(database.put(&[([1; 32], vec![7; 32])]));
        };
        filled(None);
        assert_eq!(open(directory.path(), Some(&key)).unwrap().get(&[1; 32]), None);
        filled(Some(&key));
        let path = directory.path().join(HASHES_FILE);
        assert_eq!(open(directory.path(), Some(&key)).unwrap().get(&[1; 32]), Some(vec![7; 32]));
        let mut bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(16).any(|window| window == [7; 16]), "it is encrypted");
        let step = bytes.len() / 64;
        bytes.iter_mut().step_by(step).for_each(|byte| *byte ^= 0x40);
        std::fs::write(&path, &bytes).unwrap();
        filled(Some(&key));
        std::fs::write(&path, b"something else").unwrap();
        filled(Some(&key));
    }
}
