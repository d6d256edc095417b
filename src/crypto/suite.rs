//! The ciphers: AES-256-GCM where the processor has instructions for it, else ChaCha20-Poly1305.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::random;
use super::secret::SecretKey;
use crate::error::{Error, Result};

/// Bytes of an authentication tag.
pub const TAG_BYTES: usize = 16;

/// A cipher with authentication. Both take keys of 32 bytes, nonces of 12 and make tags of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CipherSuite {
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305, for processors without instructions for AES.
    ChaCha20Poly1305,
}

/// The suites with their numbers and names.
const SUITES: [(CipherSuite, u8, &str); 2] =
    [(CipherSuite::Aes256Gcm, 1, "AES-256-GCM"), (CipherSuite::ChaCha20Poly1305, 2, "ChaCha20-Poly1305")];

impl CipherSuite {
    /// The faster one on this machine.
    pub fn of_this_machine() -> Self {
        #[cfg(target_arch = "x86_64")]
        let has_aes = std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes = std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes { CipherSuite::Aes256Gcm } else { CipherSuite::ChaCha20Poly1305 }
    }

    /// The suite with this number on disk.
    pub fn from_number(number: u8) -> Option<Self> {
        SUITES.iter().find(|suite| suite.1 == number).map(|suite| suite.0)
    }

    /// Its number on disk.
    pub fn number(self) -> u8 {
        SUITES.iter().find(|suite| suite.0 == self).map_or(0, |suite| suite.1)
    }

    /// Its name, as in `AES-256-GCM`.
    pub fn name(self) -> &'static str {
        SUITES.iter().find(|suite| suite.0 == self).map_or("", |suite| suite.2)
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            CipherSuite::Aes256Gcm => &AES_256_GCM,
            CipherSuite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    /// A cipher with this key.
    ///
    /// # Errors
    /// [`Error::Internal`] if the library refuses the key, which it never does for its length.
    pub fn cipher(self, key: &SecretKey) -> Result<Cipher> {
        let key = UnboundKey::new(self.algorithm(), key.bytes()).map_err(|_| Error::internal("a key was refused"))?;
        Ok(Cipher(LessSafeKey::new(key)))
    }
}

/// A cipher with its key.
#[derive(Debug)]
pub struct Cipher(LessSafeKey);

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;

/// The number as a nonce: 12 bytes, little-endian. Each number must be used once at most under a key.
fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
    Nonce::assume_unique_for_key(nonce)
}

impl Cipher {
    /// Encrypts `text` in place and returns its tag. `number` is the nonce, `associated` is authenticated with it.
    ///
    /// # Errors
    /// [`Error::Internal`] if the text is longer than the cipher allows, gigabytes.
    pub fn seal(&self, number: u64, associated: &[u8], text: &mut [u8]) -> Result<[u8; TAG_BYTES]> {
        self.seal_with(nonce(number), associated, text)
    }

    /// Like [`Self::seal`], with a random nonce, which it returns, too. For what is written again and again under one
    /// key, at most 2^32 times.
    ///
    /// # Errors
    /// Errors of [`Self::seal`]; [`Error::Io`] if the kernel gives no random bytes.
    pub fn seal_randomly(&self, associated: &[u8], text: &mut [u8]) -> Result<([u8; NONCE_BYTES], [u8; TAG_BYTES])> {
        // The text, too, so that two texts have two nonces even if the random bytes come again.
        let mut hasher = blake3::Hasher::new();
        hasher.update(&random::fresh("a nonce")?).update(associated).update(text);
        let mut nonce = [0; NONCE_BYTES];
        hasher.finalize_xof().fill(&mut nonce);
        Ok((nonce, self.seal_with(Nonce::assume_unique_for_key(nonce), associated, text)?))
    }

    fn seal_with(&self, nonce: Nonce, associated: &[u8], text: &mut [u8]) -> Result<[u8; TAG_BYTES]> {
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(associated), text);
        let tag = tag.map_err(|_| Error::internal("the cipher failed"))?;
        tag.as_ref().try_into().map_err(|_| Error::internal("a tag of another length"))
    }

    /// Decrypts `text`, whose tag directly follows it, in place. `None` as of [`Self::open`].
    pub fn open_in_place(&self, nonce: [u8; NONCE_BYTES], associated: &[u8], text_and_tag: &mut [u8]) -> Option<()> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(associated), text_and_tag).ok().map(drop)
    }

    /// Decrypts `sealed`, a text and its tag, into `text`, which is as long as the text. `None` if it was not sealed
    /// with this key, number and associated bytes; `text` is then undefined.
    pub fn open(&self, number: u64, associated: &[u8], sealed: &[u8], text: &mut [u8]) -> Option<()> {
        let (encrypted, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG_BYTES)?)?;
        self.0.open_separate_gather(nonce(number), Aad::from(associated), encrypted, tag, text).ok()
    }
}
