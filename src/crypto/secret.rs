//! Secrets in memory: cleared when dropped, never shown.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::random;
use crate::error::Result;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A key. Its memory is cleared when it is dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey([u8; KEY_BYTES]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

impl SecretKey {
    /// A key from its bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        SecretKey(bytes)
    }

    /// A new key from the kernel.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) if the kernel gives no random bytes.
    pub fn random() -> Result<Self> {
        random::fresh("a key").map(SecretKey)
    }

    /// A key for one purpose: BLAKE3 in its key derivation mode with `context`, of this key and `parts` one after
    /// another. The lengths of `parts` must not vary for a context, except of the last.
    pub fn derive(&self, context: &str, parts: &[&[u8]]) -> SecretKey {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(&self.0);
        for part in parts {
            hasher.update(part);
        }
        let key = SecretKey(*hasher.finalize().as_bytes());
        hasher.zeroize();
        key
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// Secret bytes of any length, like a password. Their memory is cleared when they are dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct SecretBytes(Vec<u8>);

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(…)")
    }
}

impl SecretBytes {
    /// Takes the bytes. Whoever made them must not keep another copy.
    pub fn new(bytes: Vec<u8>) -> Self {
        SecretBytes(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
