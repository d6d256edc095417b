//! `fhrd init`.

use serde::Serialize;

use super::Session;
use super::args::{EncryptionArguments, InitArguments, Options};
use super::exit::Exit;
use super::output::{note, print, print_json, size, write_pairs};
use super::{key, location, secrets};
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::open::FirstSlot;
use crate::repo::{cold, parity};

/// The new repository as JSON.
#[derive(Serialize)]
struct InitDocument {
    repository: String,
    id: String,
    chunker: String,
    chunk_bytes_min: u64,
    chunk_bytes_avg: u64,
    chunk_bytes_max: u64,
    /// The cipher, if the repository is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    encryption: Option<&'static str>,
    /// The share of parity, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    parity: Option<String>,
    /// Whether data containers may be in cold storage.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cold: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_key: Option<String>,
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
            encryption: repository.encryption.as_ref().map(|encryption| encryption.suite.name()),
            parity: None,
            cold: false,
            recovery_key: None,
        }
    }
}

/// Whether the new repository is encrypted.
fn is_encrypted(arguments: &EncryptionArguments, options: &Options) -> bool {
    arguments.encrypt || (!arguments.unencrypted && location::encrypts(options))
}

/// Puts the marks that are asked for. Whoever names a class of storage may write only once the repository is cold.
fn set_up(session: &Session, repository: &Repository, arguments: &InitArguments) -> Result<()> {
    if arguments.cold {
        cold::set(repository, true)?;
    }
    if arguments.parity.is_some() {
        parity::set(repository, arguments.parity)?;
        // Of the mark before.
        parity::add(repository, &Progress::default(), &session.stop)?;
    }
    Ok(())
}

/// Creates a repository.
///
/// # Errors
/// Errors of the configuration and of [`Repository::init_at`].
pub fn run(session: &Session, arguments: &InitArguments) -> Result<Exit> {
    let keys = &arguments.encryption;
    let (options, mut config) = (&session.options, location::config(&session.options)?);
    config.repository.pad_containers |= arguments.pad_containers;
    let like = arguments.from_repo.as_deref().map(|location| location::open_at(session, location)).transpose()?;
    if like.as_ref().is_some_and(|like| like.encryption.is_some()) && !is_encrypted(keys, options) {
        let what = "--copy-chunker-params would store the key of an encrypted repository in the clear: add --encrypt";
        return Err(Error::Usage(what.into()));
    }
    let repository = if is_encrypted(keys, options) {
        let label = keys.label.clone().unwrap_or_else(secrets::default_label);
        let unlock = &secrets::first(options)?;
        let is_explicit = keys.encrypt || location::is_remote(options);
        let first = FirstSlot { unlock, label: &label, is_explicit };
        location::create(options, &config, like.as_ref(), Some(&first))?
    } else if keys.recovery_key || keys.label.is_some() {
        return Err(Error::Usage("--recovery-key and --label need --encrypt: other repositories have no keys".into()));
    } else {
        location::create(options, &config, like.as_ref(), None)?
    };
    if repository.encryption.is_none() && secrets::is_given(options) && !options.allow_unencrypted {
        note(
            "the repository is not encrypted: other commands refuse the password or key file that is given, unless \
             `--allow-unencrypted` is said",
        );
    }
    if !repository.was_created_alone()? {
        tracing::warn!(
            "this store does not refuse names that are taken: two `fhrd init` there at the same time would overwrite \
             each other. Backups, also many at the same time, are safe"
        );
    }
    set_up(session, &repository, arguments)?;
    let mut created = InitDocument::from(&repository);
    created.cold = arguments.cold;
    created.parity = arguments.parity.map(|share| share.to_string());
    if repository.encryption.is_some() && keys.recovery_key {
        created.recovery_key = Some(key::add_recovery_key(&repository, None)?.1);
    }
    if session.options.json {
        print_json(&created)?;
    } else if !session.options.quiet {
        let [min, avg, max] = [created.chunk_bytes_min, created.chunk_bytes_avg, created.chunk_bytes_max].map(size);
        let mut pairs = vec![
            ("repository", created.repository.clone()),
            ("id", created.id.clone()),
            ("chunks", format!("{}, {avg} on average, {min} to {max}", created.chunker)),
        ];
        pairs.extend(created.parity.clone().map(|share| ("parity", share)));
        pairs.extend(created.cold.then(|| ("cold", "on".to_string())));
        pairs.extend(created.encryption.map(|cipher| ("encrypted", cipher.to_string())));
        print(|out| write_pairs(out, &pairs))?;
    }
    if let Some(recovery_key) = created.recovery_key.as_ref().filter(|_| !session.options.json) {
        key::print_recovery_key(recovery_key)?;
    }
    Ok(Exit::Fine)
}
