//! Identifiers: 32-byte names, with one type for each kind of object.

use std::fmt;

/// Formats `bytes` as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses exactly 64 hex digits, of either case, into 32 bytes.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0u8; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// Parses 64 hex digits.
            pub fn parse(text: &str) -> Option<Self> {
                unhex(text).map(Self)
            }
            /// The first eight bytes as a little-endian number. Uniformly distributed, for use as a hash.
            pub fn prefix(&self) -> u64 {
                let mut first = [0u8; 8];
                first.copy_from_slice(&self.0[..8]);
                u64::from_le_bytes(first)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // `{:.8}` gives the first digits.
                f.pad(&hex(&self.0))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), hex(&self.0[..8]))
            }
        }
        impl<C> minicbor::Encode<C> for $name {
            fn encode<W: minicbor::encode::Write>(
                &self,
                e: &mut minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                e.bytes(&self.0)?;
                Ok(())
            }
        }
        impl<'b, C> minicbor::Decode<'b, C> for $name {
            fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
                let bytes = d.bytes()?;
                let bytes = <[u8; 32]>::try_from(bytes)
                    .map_err(|_| minicbor::decode::Error::message("an identifier has 32 bytes"))?;
                Ok(Self(bytes))
            }
        }
    };
}

identifier! {
    /// Name of a chunk: BLAKE3-256 of its bytes, keyed with the repository's key.
    Fingerprint
}
identifier! {
    /// Name of a container: BLAKE3-256 of the sealed file.
    ContainerId
}
identifier! {
    /// Name of a snapshot: BLAKE3-256 of its blob.
    SnapshotId
}

/// The repository's 32-byte secret: the key of fingerprints and the source of seeds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RepositoryKey(pub [u8; 32]);

impl fmt::Debug for RepositoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RepositoryKey(…)")
    }
}

impl RepositoryKey {
    /// Fingerprint of `bytes` under this key.
    pub fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        Fingerprint(*blake3::keyed_hash(&self.0, bytes).as_bytes())
    }
    /// Computes a fingerprint of bytes that come in parts: its result is that of [`Self::fingerprint`].
    pub fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.0)
    }
    /// Derives a 64-bit seed for a named purpose from the key.
    pub fn seed(&self, purpose: &str) -> u64 {
        let digest = blake3::keyed_hash(&self.0, purpose.as_bytes());
        Fingerprint(*digest.as_bytes()).prefix()
    }
}
