//! `fhrd key`.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;

use super::Session;
use super::args::{KeyVerb, NewSecretArguments};
use super::exit::Exit;
use super::output::{failed, note, print, print_json, printable};
use super::{location, secrets};
use crate::crypto::{Keyring, SecretBytes, SlotKind, Unlock};
use crate::error::{Error, Result};
use crate::repo::{Encryption, Repository, keys};
use crate::store::{Store, StoreExt, sync_name};

/// First line of exported keys.
const EXPORT_HEADER: &str = "fhrd keys: whoever has this file can read the repository";

/// A key slot as JSON.
#[derive(Serialize)]
struct SlotDocument {
    id: String,
    label: String,
    /// `password`, `key file` or `unknown`.
    kind: &'static str,
    /// When it was made.
    time: String,
}

/// What a change did, as JSON.
#[derive(Serialize, Default)]
struct KeyChangeDocument {
    added: Vec<String>,
    removed: Vec<String>,
    /// The new recovery key.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_key: Option<String>,
    /// Generation of the master key for what is written from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
}

/// Runs a verb of `key`.
///
/// # Errors
/// Errors of the repository; [`Error::Usage`] if it is not encrypted.
pub fn run(session: &Session, verb: &KeyVerb) -> Result<Exit> {
    match verb {
        KeyVerb::List => list(session),
        KeyVerb::Add { secret, recovery_key: false } => {
            let open = Open::new(session)?;
            let id = keys::add(&open.repository, &secrets::new(secret)?, &label(secret))?;
            open.done(&KeyChangeDocument { added: vec![id], ..Default::default() })
        }
        KeyVerb::Add { secret, recovery_key: true } => {
            let open = Open::new(session)?;
            let (id, key) = add_recovery_key(&open.repository, secret.label.as_deref())?;
            open.done(&KeyChangeDocument { added: vec![id], recovery_key: Some(key), ..Default::default() })
        }
        KeyVerb::Remove { id } => remove(session, id),
        KeyVerb::Passwd { secret } => {
            let open = Open::new(session)?;
            let (id, removed) = keys::passwd(&open.repository, &secrets::new(secret)?, &label(secret))?;
            open.done(&KeyChangeDocument { added: vec![id], removed, ..Default::default() })
        }
        KeyVerb::Rotate => rotate(session),
        KeyVerb::Export { file } => export(session, file),
        KeyVerb::Import { file, secret } => import(session, file, secret),
    }
}

fn label(secret: &NewSecretArguments) -> String {
    secret.label.clone().unwrap_or_else(secrets::default_label)
}

/// An open encrypted repository.
struct Open<'a> {
    session: &'a Session,
    repository: Repository,
    encryption: Encryption,
}

fn not_encrypted() -> Error {
    Error::Usage("the repository is not encrypted: it has no keys. `fhrd init --encrypt` creates one that is".into())
}

impl<'a> Open<'a> {
    fn new(session: &'a Session) -> Result<Self> {
        let repository = location::open(session)?;
        let encryption = repository.encryption.clone().ok_or_else(not_encrypted)?;
        Ok(Open { session, repository, encryption })
    }

    fn store(&self) -> &dyn Store {
        self.repository.store.as_ref()
    }

    fn done(&self, change: &KeyChangeDocument) -> Result<Exit> {
        report(self.session, change)
    }
}

/// Prints what a change did.
fn report(session: &Session, change: &KeyChangeDocument) -> Result<Exit> {
    if session.options.json {
        print_json(change)?;
        return Ok(Exit::Fine);
    }
    let short = |id: &String| id.get(..8).unwrap_or_default().to_string();
    if !session.options.quiet {
        print(|out| {
            let mut line = |what: &str, ids: &[String]| {
                ids.iter().try_for_each(|id| writeln!(out, "{what} key slot {}", short(id)).map_err(failed))
            };
            line("added", &change.added)?;
            line("removed", &change.removed)
        })?;
    }
    if let Some(key) = &change.recovery_key {
        print_recovery_key(key)?;
    }
    Ok(Exit::Fine)
}

/// Adds a key slot with a random key, and returns its id and the key.
pub fn add_recovery_key(repository: &Repository, label: Option<&str>) -> Result<(String, String)> {
    let key = secrets::recovery_key()?;
    let unlock = Unlock::Password(SecretBytes::new(key.clone().into_bytes()));
    Ok((keys::add(repository, &unlock, label.unwrap_or("recovery key"))?, key))
}

/// Prints a recovery key as text, and on a terminal as a QR code.
pub fn print_recovery_key(key: &str) -> Result<()> {
    use std::io::IsTerminal;
    let code = std::io::stdout().is_terminal().then(|| qrcode::QrCode::new(key).ok()).flatten();
    let code = code.map(|code| code.render::<qrcode::render::unicode::Dense1x2>().build());
    print(|out| {
        writeln!(out, "recovery key: {key}").map_err(failed)?;
        code.map_or(Ok(()), |code| writeln!(out, "{code}").map_err(failed))
    })?;
    note("keep the recovery key where the repository is not; it is a password like any other, and is not stored");
    Ok(())
}

fn list(session: &Session) -> Result<Exit> {
    let slots = keys::list(location::store(&session.options)?.as_ref())?;
    let document = |named: keys::NamedSlot| SlotDocument {
        kind: match named.slot.kind() {
            Some(SlotKind::Password) => "password",
            Some(SlotKind::KeyFile) => "key file",
            None => "unknown",
        },
        time: jiff::Timestamp::from_nanosecond(named.slot.time_ns.into())
            .map(|time| time.to_string())
            .unwrap_or_default(),
        label: named.slot.label,
        id: named.id,
    };
    let documents: Vec<SlotDocument> = slots.into_iter().map(document).collect();
    if documents.is_empty() {
        let text = "no key slot is there, or none can be read. If the repository is encrypted, `fhrd key import` makes one of \
                    exported keys; if not, `fhrd init --encrypt` creates one that is";
        return Err(Error::Usage(text.into()));
    } else if session.options.json {
        print_json(&documents)?;
    } else {
        print(|out| {
            documents.iter().try_for_each(|slot| {
                let (id, day) = (slot.id.get(..8).unwrap_or_default(), slot.time.get(..10).unwrap_or_default());
                writeln!(out, "{id}  {day}  {:<8}  {}", slot.kind, printable(&slot.label)).map_err(failed)
            })
        })?;
    }
    Ok(Exit::Fine)
}

fn remove(session: &Session, id: &str) -> Result<Exit> {
    let open = Open::new(session)?;
    let removed = keys::remove_slot(&open.repository, id)?;
    note("whoever has used the key slot may have the keys; `fhrd key rotate` protects what is written from now on");
    open.done(&KeyChangeDocument { removed: vec![removed], ..Default::default() })
}

fn rotate(session: &Session) -> Result<Exit> {
    let open = Open::new(session)?;
    let unlock = secrets::existing(&session.options, &location::path(&session.options)?)?;
    // The user may have been asked again: the answer must be the same.
    let slots = keys::list(open.store())?;
    let current = slots.iter().find(|slot| slot.id == open.encryption.slot);
    if current.is_some_and(|slot| !matches!(slot.slot.open("keys", &unlock), Ok(Some(_)))) {
        return Err(Error::Locked { location: open.store().location(), reason: "this is another password".into() });
    }
    let keys::Rotated { added, removed, generation } = keys::rotate(&open.repository, &unlock)?;
    note(&format!(
        "from now on, generation {generation} of the master key encrypts. What is stored stays under the older ones; \
         `fhrd copy` to a new repository leaves them behind. Fingerprints stay the same. Add the other key slots again"
    ));
    open.done(&KeyChangeDocument { added: vec![added], removed, generation: Some(generation), ..Default::default() })
}

fn export(session: &Session, file: &Path) -> Result<Exit> {
    let open = Open::new(session)?;
    let keyring = open.encryption.keyring.encode()?;
    let failed = |error| Error::io("write", file, error);
    let mut options = std::fs::File::options();
    let mut out = options.write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    let digits = SecretBytes::new(crate::types::hex(keyring.bytes()).into_bytes());
    let head = format!("{EXPORT_HEADER}\nrepository {}\nkeys ", open.repository.id);
    let written = [head.as_bytes(), digits.bytes(), b"\n"].into_iter().try_for_each(|part| out.write_all(part));
    written.and_then(|()| out.sync_all()).and_then(|()| sync_name(file)).map_err(failed)?;
    note("whoever has this file can read the repository: keep it in a safe place");
    report(session, &KeyChangeDocument::default())
}

fn import(session: &Session, file: &Path, secret: &NewSecretArguments) -> Result<Exit> {
    super::process::forbid_core_dumps();
    let content = SecretBytes::new(secrets::read_file(file)?);
    let what = file.display().to_string();
    let invalid = || Error::corrupt(&what, 0, "a file that `fhrd key export` wrote", "something else");
    let text = str::from_utf8(content.bytes()).map_err(|_| invalid())?;
    let digits = text.lines().find_map(|line| line.strip_prefix("keys ")).filter(|_| text.starts_with(EXPORT_HEADER));
    let digits = digits.ok_or_else(invalid)?.trim().as_bytes();
    let pairs =
        digits.chunks(2).map(|pair| str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
    let bytes = SecretBytes::new(pairs.collect::<Option<Vec<u8>>>().ok_or_else(invalid)?);
    let keyring = Keyring::parse(&what, &bytes)?;
    let store = location::store(&session.options)?;
    let id = keys::import(&store, keyring, &secrets::new(secret)?, &label(secret))?;
    report(session, &KeyChangeDocument { added: vec![id], ..Default::default() })
}
