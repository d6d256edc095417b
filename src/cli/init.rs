//! `fhrd init`.

use serde::Serialize;

use super::Session;
use super::args::InitArguments;
use super::exit::Exit;
use super::location;
use super::output::{print, print_json, size, write_pairs};
use crate::error::Result;
use crate::repo::Repository;

/// The new repository as JSON.
#[derive(Serialize)]
struct InitDocument {
    repository: String,
    id: String,
    chunker: String,
    chunk_bytes_min: u64,
    chunk_bytes_avg: u64,
    chunk_bytes_max: u64,
}

impl From<&Repository> for InitDocument {
    fn from(repository: &Repository) -> Self {
        let config = &repository.config;
        InitDocument {
            repository: location::of_repository(repository),
            id: repository.id.clone(),
            chunker: config.chunker.to_string(),
            chunk_bytes_min: config.chunk_bytes_min.0,
            chunk_bytes_avg: config.chunk_bytes_avg.0,
            chunk_bytes_max: config.chunk_bytes_max.0,
        }
    }
}

/// Creates a repository.
///
/// # Errors
/// Those of the configuration and of [`Repository::init_at`].
pub fn run(session: &Session, arguments: &InitArguments) -> Result<Exit> {
    let config = location::config(&session.options)?;
    let like = arguments.from_repo.as_deref().map(|location| location::open_at(session, location)).transpose()?;
    let created = InitDocument::from(&location::create(&session.options, &config, like.as_ref())?);
    if session.options.json {
        print_json(&created)?;
    } else if !session.options.quiet {
        let [min, avg, max] = [created.chunk_bytes_min, created.chunk_bytes_avg, created.chunk_bytes_max].map(size);
        let pairs = [
            ("repository", created.repository),
            ("id", created.id),
            ("chunks", format!("{}, {avg} on average, {min} to {max}", created.chunker)),
        ];
        print(|out| write_pairs(out, &pairs))?;
    }
    Ok(Exit::Fine)
}
