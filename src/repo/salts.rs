//! Salts: random bytes in the headers of containers and index segments.
//!
//! The name of a container or segment is the hash of its bytes. With a salt among them no name is ever used twice, even
//! if the same chunks are stored again. So a deletion that comes late cannot hit something new.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::crypto::random;
use crate::error::Result;

/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;

/// A salt.
pub type Salt = [u8; SALT_BYTES];

/// A source of salts. Clones draw from the same source.
#[derive(Debug, Clone, Default)]
pub struct Salts(Option<Arc<Mutex<blake3::OutputReader>>>);

impl Salts {
    /// Salts that depend only on `seed` and on how many were drawn. Only tests and measurements, which compare stored
    /// bytes, may use them.
    pub fn fixed(seed: u64) -> Self {
        let reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
        Salts(Some(Arc::new(Mutex::new(reader))))
    }

    /// The next salt: random, unless the source is fixed.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) if the kernel gives no random bytes.
    pub fn draw(&self) -> Result<Salt> {
        let mut salt = [0; SALT_BYTES];
        match &self.0 {
            Some(fixed) => fixed.lock().fill(&mut salt),
            None => salt.copy_from_slice(random::fresh("a salt")?.first_chunk::<SALT_BYTES>().unwrap_or(&[0; 16])),
        }
        Ok(salt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_differ_and_those_of_a_fixed_source_come_again() {
        let random = Salts::default();
        assert_ne!(random.draw().unwrap(), random.draw().unwrap());
        let (fixed, again) = (Salts::fixed(1), Salts::fixed(1));
        let drawn = [fixed.draw().unwrap(), fixed.clone().draw().unwrap()];
        assert_ne!(drawn[0], drawn[1]);
        assert_eq!(drawn, [again.draw().unwrap(), again.draw().unwrap()]);
        assert_ne!(drawn[0], Salts::fixed(2).draw().unwrap());
    }
}
