//! Encryption of stored blobs: keys, and how blobs are sealed with them.
//!
//! 1. A repository has *master keys*, one for each *generation*. What is written is sealed under the latest one.
//! 2. Every blob has a key of its own, derived from a master key, the directory that the blob is in, and a salt in the
//!    blob's header, which is made of random bytes and of the blob. Blocks of the blob are numbered, and the number is
//!    the nonce. So no nonce is used twice under a key, without any counter that outlives the blob.
//! 3. A *key slot* keeps the keyring, sealed under what a user knows or has: a password or a key file.
//!
//! docs/FORMAT.md has the bytes, docs/THREATS.md what all this protects and what it does not.

mod keyring;
pub mod random;
mod sealed_blob;
mod secret;
mod slot;
mod suite;

pub use keyring::{Keyring, MasterKey};
pub use random::any_number;
pub use sealed_blob::{
    BLOCK_BYTES, BlobKey, HEADER_BYTES, SealedHeader, SealedReader, sealed_len, sealed_offset, unsealed_len,
};
pub use secret::{SecretBytes, SecretKey};
pub use slot::{KeySlot, SlotKind, Unlock};
pub use suite::{Cipher, CipherSuite, NONCE_BYTES, TAG_BYTES};
