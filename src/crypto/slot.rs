//! Key slots: the keyring, sealed under a password or a key file.
//!
//! The key of a slot is made from what the user gives and a random salt. AES-GCM and ChaCha20-Poly1305 do not commit to
//! their key, so a slot also has a commitment to it, which is compared first.

use argon2::{Algorithm, Argon2, Params, Version};
use minicbor::{Decode, Encode};
use zeroize::Zeroize;

use super::keyring::Keyring;
use super::random;
use super::secret::{SecretBytes, SecretKey};
use super::suite::{CipherSuite, TAG_BYTES};
use crate::error::{Error, Result};
use crate::wire::Envelope;

const MAGIC: [u8; 8] = *b"FHRDKEYS";
/// Purposes of the keys of a slot.
const KEY_FILE_CONTEXT: &str = "fhrd 2026-11 key file";
const SEAL_CONTEXT: &str = "fhrd 2026-11 key slot";
const COMMITMENT_CONTEXT: &str = "fhrd 2026-11 key slot commitment";
/// Greatest accepted costs of a password: KiB of memory, passes, lanes.
const MEMORY_KIB_MAX: u32 = 1 << 20;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;
/// Costs of new passwords: the second recommendation of RFC 9106.
const MEMORY_KIB: u32 = if cfg!(test) { 64 } else { 64 << 10 };
const PASSES: u32 = 3;
const LANES: u32 = 4;
/// Bytes of a label, at most.
const LABEL_BYTES_MAX: usize = 256;

/// What opens a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// A password.
    Password,
    /// The content of a file.
    KeyFile,
}

/// What a user has to open a repository with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unlock {
    /// A password.
    Password(SecretBytes),
    /// The content of a key file.
    KeyFile(SecretBytes),
}

impl Unlock {
    /// The kind of slot that it opens.
    pub fn kind(&self) -> SlotKind {
        match self {
            Unlock::Password(_) => SlotKind::Password,
            Unlock::KeyFile(_) => SlotKind::KeyFile,
        }
    }
}

/// A slot: everything but the sealed keyring is public.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct KeySlot {
    /// 1 password, 2 key file.
    #[n(0)]
    kind: u8,
    /// Whose it is, as the user says.
    #[n(1)]
    pub label: String,
    /// When it was made, nanoseconds since 1970.
    #[n(2)]
    pub time_ns: i64,
    #[cbor(n(3), with = "minicbor::bytes")]
    salt: Vec<u8>,
    /// Costs of a password: KiB of memory, passes, lanes.
    #[n(4)]
    costs: Option<[u32; 3]>,
    #[n(5)]
    suite: u8,
    #[cbor(n(6), with = "minicbor::bytes")]
    commitment: Vec<u8>,
    /// The keyring and its tag.
    #[cbor(n(7), with = "minicbor::bytes")]
    sealed: Vec<u8>,
}

impl KeySlot {
    /// A slot for `keyring` that `unlock` opens.
    ///
    /// # Errors
    /// [`Error::Usage`] for an empty password, a key file below 32 bytes or a long label; [`Error::Io`] if the kernel
    /// gives no random bytes.
    pub fn new(keyring: &Keyring, unlock: &Unlock, label: &str, suite: CipherSuite) -> Result<Self> {
        match unlock {
            Unlock::Password(password) if password.bytes().is_empty() => {
                return Err(Error::Usage("the password is empty".into()));
            }
            Unlock::KeyFile(content) if content.bytes().len() < 32 => {
                let len = content.bytes().len();
                return Err(Error::Usage(format!("the key file has {len} bytes; 32 random bytes are the least")));
            }
            _ if label.len() > LABEL_BYTES_MAX => {
                return Err(Error::Usage(format!("the label has more than {LABEL_BYTES_MAX} bytes")));
            }
            _ => {}
        }
        let content = *blake3::hash(keyring.encode()?.bytes()).as_bytes();
        let salt = random::salt(&keyring.fingerprint_key, &content)?.to_vec();
        let (kind, costs) = match unlock.kind() {
            SlotKind::Password => (1, Some([MEMORY_KIB, PASSES, LANES])),
            SlotKind::KeyFile => (2, None),
        };
        let time_ns = jiff::Timestamp::now().as_nanosecond() as i64;
        let mut slot = KeySlot {
            kind,
            label: label.into(),
            time_ns,
            salt,
            costs,
            suite: suite.number(),
            commitment: Vec::new(),
            sealed: Vec::new(),
        };
        let key = slot.key("a new key slot", unlock)?.ok_or_else(|| Error::internal("a slot of another kind"))?;
        slot.commitment = slot.commitment_to(&key);
        let associated = slot.associated()?;
        let mut text = keyring.encode()?.bytes().to_vec();
        let tag = suite.cipher(&key.derive(SEAL_CONTEXT, &[&slot.salt]))?.seal(0, &associated, &mut text)?;
        text.extend_from_slice(&tag);
        slot.sealed = text;
        Ok(slot)
    }

    /// What opens the slot; `None` for a kind of a newer version.
    pub fn kind(&self) -> Option<SlotKind> {
        match self.kind {
            1 => Some(SlotKind::Password),
            2 => Some(SlotKind::KeyFile),
            _ => None,
        }
    }

    /// Whether a password for it costs more than for the slots that this program makes.
    pub fn is_costly(&self) -> bool {
        self.costs.is_some_and(|[memory, passes, _]| memory > MEMORY_KIB || passes > PASSES)
    }

    /// The slot as a blob.
    ///
    /// # Errors
    /// [`Error::Internal`] if it does not encode.
    pub fn encode(&self) -> Result<Vec<u8>> {
        Ok(Envelope::new(MAGIC).seal(&self.payload()?))
    }

    /// Parses the slot that is stored as `what`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::ChecksumMismatch`] for a damaged one, [`Error::Unsupported`] for a newer one.
    pub fn parse(what: &str, blob: &[u8]) -> Result<Self> {
        let (_, payload) = Envelope::open(MAGIC, what, blob)?;
        let slot: KeySlot =
            minicbor::decode(payload).map_err(|error| Error::corrupt(what, 0, "a key slot", error.to_string()))?;
        // What `open` authenticates is the slot as this program encodes it. Kinds of newer versions may have more.
        if slot.kind().is_some() && slot.payload()? != payload {
            return Err(Error::corrupt(what, 0, "a key slot and nothing else", "further or differently encoded bytes"));
        }
        Ok(slot)
    }

    fn payload(&self) -> Result<Vec<u8>> {
        minicbor::to_vec(self).map_err(|error| Error::internal(format!("cannot encode a key slot: {error}")))
    }

    /// Opens the slot `what`; `None` if it is of another kind, or was not made with this password or file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the costs are beyond the bounds, or the keyring is not as it was sealed.
    pub fn open(&self, what: &str, unlock: &Unlock) -> Result<Option<Keyring>> {
        let Some(key) = self.key(what, unlock)? else { return Ok(None) };
        // What is compared is public, so the time that it takes tells nothing.
        if self.commitment_to(&key) != self.commitment {
            return Ok(None);
        }
        let suite = CipherSuite::from_number(self.suite)
            .ok_or_else(|| Error::unsupported(what, format!("cipher {}", self.suite)))?;
        let mut text = vec![0; self.sealed.len().saturating_sub(TAG_BYTES)];
        let opened = suite.cipher(&key.derive(SEAL_CONTEXT, &[&self.salt]))?.open(
            0,
            &self.associated()?,
            &self.sealed,
            &mut text,
        );
        let text = SecretBytes::new(text);
        opened.ok_or_else(|| Error::corrupt(what, 0, "a keyring as it was sealed", "other bytes"))?;
        Keyring::parse(what, &text).map(Some)
    }

    /// The key that the user's secret makes for this slot.
    fn key(&self, what: &str, unlock: &Unlock) -> Result<Option<SecretKey>> {
        match (self.kind(), unlock) {
            (Some(SlotKind::Password), Unlock::Password(password)) => {
                let [memory, passes, lanes] = self.costs.unwrap_or_default();
                if memory > MEMORY_KIB_MAX || passes > PASSES_MAX || lanes > LANES_MAX {
                    let expected = format!("at most {MEMORY_KIB_MAX} KiB, {PASSES_MAX} passes, {LANES_MAX} lanes");
                    let got = format!("{memory} KiB, {passes} passes, {lanes} lanes");
                    return Err(Error::corrupt(what, 0, expected, got));
                }
                let mut key = [0; 32];
                let params = Params::new(memory, passes, lanes, Some(key.len()));
                let made = params.and_then(|params| {
                    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
                    argon.hash_password_into(password.bytes(), &self.salt, &mut key)
                });
                let secret = SecretKey::new(key);
                key.zeroize();
                made.map_err(|error| Error::corrupt(what, 0, "usable costs of a password", error.to_string()))?;
                Ok(Some(secret))
            }
            (Some(SlotKind::KeyFile), Unlock::KeyFile(content)) => {
                let hash = SecretKey::new(*blake3::hash(content.bytes()).as_bytes());
                Ok(Some(hash.derive(KEY_FILE_CONTEXT, &[&self.salt])))
            }
            _ => Ok(None),
        }
    }

    fn commitment_to(&self, key: &SecretKey) -> Vec<u8> {
        key.derive(COMMITMENT_CONTEXT, &[&self.salt]).bytes().to_vec()
    }

    /// What is authenticated with the keyring: the slot without it.
    fn associated(&self) -> Result<Vec<u8>> {
        KeySlot { sealed: Vec::new(), ..self.clone() }.payload()
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
