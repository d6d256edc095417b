//! Random bytes that do not come again when the state of the machine does.
//!
//! A virtual machine that is restored twice from one image with its memory may draw the same bytes from its kernel
//! twice. So the clock, the process and a counter are mixed in, and salts are made of the content, too: two different
//! blobs never get one key.

use std::sync::atomic::{AtomicU64, Ordering};

use super::secret::SecretKey;
use crate::error::{Error, Result};

const FRESH_CONTEXT: &str = "fhrd 2026-11 fresh random bytes";
const SALT_CONTEXT: &str = "fhrd 2026-11 salt";
/// Bytes that this process has drawn so far, in units of one call.
static CALLS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
thread_local! {
    /// Whether this thread draws the same bytes again and again, as the worst machine does.
    pub(crate) static REPEATS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// 32 random bytes: of the kernel, with clock, process and a counter mixed in. `purpose` says what they are for, as in
/// "a salt".
///
/// # Errors
/// [`Error::Io`] if the kernel gives no random bytes.
pub fn fresh(purpose: &'static str) -> Result<[u8; 32]> {
    #[cfg(test)]
    if REPEATS.get() {
        return Ok([7; 32]);
    }
    let mut kernel = [0; 32];
    getrandom::fill(&mut kernel)
        .map_err(|error| Error::io("get random bytes for", purpose, std::io::Error::other(error)))?;
    let mut hasher = blake3::Hasher::new_derive_key(FRESH_CONTEXT);
    hasher.update(&kernel);
    hasher.update(&jiff::Timestamp::now().as_nanosecond().to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(&CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    Ok(*hasher.finalize().as_bytes())
}

/// A number for which any value serves, such as where to begin: not random if the kernel gives no random bytes.
pub fn any_number() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A salt for something whose content has the hash `content`. Without `secret`, nobody can compare it with a guess of
/// the content.
///
/// # Errors
/// Errors of [`fresh`].
pub fn salt(secret: &SecretKey, content: &[u8; 32]) -> Result<[u8; 32]> {
    Ok(*secret.derive(SALT_CONTEXT, &[&fresh("a salt")?, content]).bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_twice_unless_everything_does() {
        let secret = SecretKey::new([1; 32]);
        assert_ne!(fresh("a test").unwrap(), fresh("a test").unwrap());
        assert_ne!(salt(&secret, &[2; 32]).unwrap(), salt(&secret, &[2; 32]).unwrap());
        REPEATS.set(true);
        assert_eq!(salt(&secret, &[2; 32]).unwrap(), salt(&secret, &[2; 32]).unwrap());
        assert_ne!(salt(&secret, &[2; 32]).unwrap(), salt(&secret, &[3; 32]).unwrap());
        REPEATS.set(false);
    }
}
