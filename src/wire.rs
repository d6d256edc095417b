//! Byte-level reading and writing: little-endian integers, LEB128 varints, and the typed, checksummed envelope.
//!
//! A [`WireReader`] never reads past its slice and never trusts a count. Each error has the name of the blob, the
//! offset, the expected value and the actual value.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::types::hex;

/// Appends `value` as a LEB128 varint (1 to 10 bytes).
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps a signed number to an unsigned one. Small magnitudes stay small.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// A bounds-checked cursor over a slice of a named blob.
#[derive(Debug, Clone)]
pub struct WireReader<'a> {
    bytes: &'a [u8],
    position: usize,
    what: &'a str,
    base: u64,
}

impl<'a> WireReader<'a> {
    /// A reader of `bytes`, which start at byte `base` of the blob `what`.
    pub fn new(what: &'a str, base: u64, bytes: &'a [u8]) -> Self {
        WireReader { bytes, position: 0, what, base }
    }
    /// Offset of the next byte in the blob.
    pub fn offset(&self) -> u64 {
        self.base + self.position as u64
    }
    /// Bytes read so far.
    pub fn consumed(&self) -> &'a [u8] {
        &self.bytes[..self.position]
    }
    /// Number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }
    /// Returns an error at the current offset.
    pub fn error(&self, expected: impl Into<String>, got: impl Into<String>) -> Error {
        Error::corrupt(self.what, self.offset(), expected, got)
    }
    /// Returns the error of a structure that a newer version wrote. `unknown` names the part, as in `codec 9`.
    pub fn unsupported(&self, unknown: impl Into<String>) -> Error {
        Error::unsupported(self.what, unknown)
    }
    /// Reads `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.position.checked_add(count).filter(|end| *end <= self.bytes.len());
        let slice = end.and_then(|end| self.bytes.get(self.position..end));
        match slice {
            Some(slice) => {
                self.position += count;
                Ok(slice)
            }
            None => Err(self.error(format!("{count} more bytes"), format!("{}", self.remaining()))),
        }
    }
    /// Reads `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0u8; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }
    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    /// Reads a little-endian `u16`.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Reads a little-endian `u32`.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Reads a little-endian `u64`.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// Reads a varint of at most 64 bits.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return Err(self.error("a varint of at most 64 bits", "a longer one"));
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error("a varint of at most 10 bytes", "a longer one"))
    }
    /// Reads a varint of at most `limit`. `name` describes it in the error.
    pub fn bounded(&mut self, name: &str, limit: u64) -> Result<u64> {
        let value = self.varint()?;
        if value > limit {
            return Err(self.error(format!("{name} of at most {limit}"), format!("{value}")));
        }
        Ok(value)
    }
    /// Fails if there are unread bytes.
    pub fn finish(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            more => Err(self.error("the end", format!("{more} more bytes"))),
        }
    }
}

/// The first `N` bytes of the BLAKE3 of `covered`, at most 32.
pub fn checksum<const N: usize>(covered: &[&[u8]]) -> [u8; N] {
    const { assert!(N <= blake3::OUT_LEN) };
    let mut hasher = blake3::Hasher::new();
    for part in covered {
        hasher.update(part);
    }
    let mut checksum = [0; N];
    checksum.copy_from_slice(&hasher.finalize().as_bytes()[..N]);
    checksum
}

/// Checks a recorded BLAKE3 prefix of 1 to 32 bytes against the bytes that it covers.
///
/// # Errors
/// [`Error::ChecksumMismatch`] if they differ. [`Error::Internal`] if `recorded` has another length.
pub fn verify(what: &str, offset: u64, recorded: &[u8], covered: &[&[u8]]) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    for part in covered {
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let computed = digest.as_bytes().get(..recorded.len()).filter(|computed| !computed.is_empty());
    let computed = computed.ok_or_else(|| Error::internal(format!("a checksum of {} bytes", recorded.len())))?;
    if computed == recorded {
        return Ok(());
    }
    Err(Error::ChecksumMismatch { what: what.into(), offset, expected: hex(recorded), got: hex(computed) })
}

/// Checks the format version and the reader-required features of the blob `what`. Its checksum must be right already:
/// a flipped bit in these fields is damage, not a newer version.
///
/// # Errors
/// [`Error::Unsupported`] with the version or the unknown feature bits.
pub fn check_readable(what: &str, version: u16, reader_features: u64) -> Result<()> {
    match reader_features & !READER_FEATURES_KNOWN {
        _ if version != FORMAT_VERSION => Err(Error::unsupported(what, format!("format version {version}"))),
        0 => Ok(()),
        unknown => Err(Error::unknown_features(what, unknown)),
    }
}

/// Checks that the blob `what` is not encrypted. Its checksum must be right already.
///
/// # Errors
/// [`Error::Unsupported`] with the key generation, unless it is 0.
pub fn check_key_generation(what: &str, key_generation: u32) -> Result<()> {
    match key_generation {
        0 => Ok(()),
        generation => Err(Error::unsupported(what, format!("key generation {generation}"))),
    }
}

/// Bytes before an envelope's payload.
pub const ENVELOPE_HEADER_BYTES: usize = 34;
/// Bytes after an envelope's payload.
pub const ENVELOPE_CHECKSUM_BYTES: usize = 32;

/// Type and feature bits of a blob. Every version can read this part.
///
/// On disk: magic (8), format version (`u16`), reader-required bits (`u64`), writer-required bits (`u64`),
/// payload length (`u64`), payload, BLAKE3-256 of all preceding bytes. Integers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Type of the blob, eight ASCII letters.
    pub magic: [u8; 8],
    /// Features that a program must support to read the blob.
    pub reader_features: u64,
    /// Features that a program must support to write into the repository.
    pub writer_features: u64,
}

/// Version of the envelope and of its payload.
pub const FORMAT_VERSION: u16 = 1;
/// Writer-required feature: every key slot is stored twice.
pub const KEY_COPIES: u64 = 1 << 0;
/// Writer-required feature: deltas may have derivations 11 to 14 and modes 7 to 9, and floats may be coded or without
/// their zeros.
pub const DERIVATIONS: u64 = 1 << 5;
/// Writer-required feature: contents of files may be rebuilt from other content.
pub const REBUILT: u64 = 1 << 4;
/// Writer-required feature: the last page of a segment may be short.
pub const SHORT_PAGES: u64 = 1 << 9;
/// Writer-required feature: listings may be differences to former ones.
pub const LISTINGS: u64 = 1 << 10;
/// Writer-required features that this program supports.
pub const WRITER_FEATURES_KNOWN: u64 = KEY_COPIES | DERIVATIONS | REBUILT | SHORT_PAGES | LISTINGS;
/// Reader-required features that this program supports.
pub const READER_FEATURES_KNOWN: u64 = 0;

impl Envelope {
    /// An envelope of the type `magic` without feature bits.
    pub const fn new(magic: [u8; 8]) -> Self {
        Envelope { magic, reader_features: 0, writer_features: 0 }
    }

    /// Wraps `payload`.
    pub fn seal(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENVELOPE_HEADER_BYTES + payload.len() + ENVELOPE_CHECKSUM_BYTES);
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&self.reader_features.to_le_bytes());
        out.extend_from_slice(&self.writer_features.to_le_bytes());
        out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        out.extend_from_slice(payload);
        let digest = blake3::hash(&out);
        out.extend_from_slice(digest.as_bytes());
        out
    }

    /// Unwraps the blob `what`. Checks type, checksum, version, features and length, in this order.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::ChecksumMismatch`] for damage, [`Error::Unsupported`] for an intact blob of
    /// another version.
    pub fn open<'a>(magic: [u8; 8], what: &str, blob: &'a [u8]) -> Result<(Envelope, &'a [u8])> {
        let mut reader = WireReader::new(what, 0, blob);
        let found: [u8; 8] = reader.array()?;
        if found != magic {
            let (want, got) = (String::from_utf8_lossy(&magic), String::from_utf8_lossy(&found));
            return Err(Error::corrupt(what, 0, format!("type {want}"), format!("{got:?}")));
        }
        let Some((covered, recorded)) = blob.split_last_chunk::<ENVELOPE_CHECKSUM_BYTES>() else {
            return Err(reader.error("an envelope with a checksum", format!("{} bytes in all", blob.len())));
        };
        verify(what, 0, recorded, &[covered])?;
        let version = reader.u16()?;
        let (reader_features, writer_features) = (reader.u64()?, reader.u64()?);
        check_readable(what, version, reader_features)?;
        let len = reader.u64()?;
        let expected = len.checked_add((ENVELOPE_HEADER_BYTES + ENVELOPE_CHECKSUM_BYTES) as u64);
        if expected != Some(blob.len() as u64) {
            return Err(
                reader.error(format!("{len} payload bytes and a checksum"), format!("{} bytes in all", blob.len()))
            );
        }
        let payload = covered.get(ENVELOPE_HEADER_BYTES..);
        let payload = payload.ok_or_else(|| Error::internal("the length of an envelope was not checked"))?;
        Ok((Envelope { magic, reader_features, writer_features }, payload))
    }
}

/// Opens a regular file. Never waits, as for the writer of a named pipe that somebody has put in its place.
///
/// # Errors
/// Errors of the system, and [`ErrorKind::InvalidInput`] if it is something else.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_without_waiting(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "expected a regular file, found something else")),
    }
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// Errors of [`open_regular`] and of the system, and [`ErrorKind::FileTooLarge`].
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_input(&open_regular(path)?, bytes_max, &AtomicBool::new(false))
}

/// Reads a text of at most `bytes_max` bytes that the user names. A device, a pipe or a file of `/proc` does not say
/// how much it has, and a pipe may have to be waited for, until `stop` is set.
///
/// # Errors
/// Errors of [`read_input`], and [`ErrorKind::InvalidData`].
pub fn read_text_file(path: &Path, bytes_max: u64, stop: &AtomicBool) -> io::Result<String> {
    let bytes = read_input(&open_without_waiting(path)?, bytes_max, stop)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Opens a file, also a pipe that nobody has opened to write, or a device. Reads from it may have to wait.
///
/// # Errors
/// Errors of the system.
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Reads at most `bytes_max` bytes up to the end, until `stop` is set.
///
/// # Errors
/// Errors of the system, [`ErrorKind::FileTooLarge`], and [`ErrorKind::Interrupted`] once `stop` is set.
pub fn read_input(mut input: &File, bytes_max: u64, stop: &AtomicBool) -> io::Result<Vec<u8>> {
    // It may be a secret.
    let (mut bytes, mut buffer) = (Vec::new(), Zeroizing::new(vec![0; INPUT_BYTES]));
    while bytes.len() as u64 <= bytes_max {
        wait_for_input(input, stop)?;
        match input.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PATIENCE / 10),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::FileTooLarge, format!("expected at most {bytes_max} bytes, found more")))
}

/// Waits until there are bytes to read, or the end.
///
/// # Errors
/// Errors of the system, and [`ErrorKind::Interrupted`] once `stop` is set.
pub fn wait_for_input(input: impl AsFd, stop: &AtomicBool) -> io::Result<()> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::Interrupted, "the run was stopped"));
        }
        if has_input(&input)? {
            return Ok(());
        }
    }
}

/// Waits for a moment until there are bytes to read, or the end. Returns whether there are.
///
/// # Errors
/// Errors of the system.
pub fn has_input(input: impl AsFd) -> io::Result<bool> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos().into() };
    match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The error of `action` on a file that the user names.
pub fn input_failed(action: &'static str, path: &Path, error: io::Error) -> Error {
    if error.kind() == ErrorKind::Interrupted { Error::Interrupted } else { Error::io(action, path, error) }
}

/// Time between two looks at the stop flag.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes of one read.
const INPUT_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_flipped_bit_of_an_envelope_is_damage() {
        let blob = Envelope::new(*b"FHRDTEST").seal(b"payload");
        for bit in 0..blob.len() * 8 {
            let mut blob = blob.clone();
            blob[bit / 8] ^= 1 << (bit % 8);
            let error = Envelope::open(*b"FHRDTEST", "test", &blob).expect_err("a flipped bit");
            assert_eq!(error.kind(), crate::error::ErrorKind::Damaged, "bit {bit}: {error}");
        }
        for len in 0..blob.len() {
            let error = Envelope::open(*b"FHRDTEST", "test", &blob[..len]).expect_err("a truncated blob");
            assert_eq!(error.kind(), crate::error::ErrorKind::Damaged, "{len} bytes: {error}");
        }
    }

    #[test]
    fn an_intact_envelope_of_another_version_names_the_version() {
        let mut blob = Envelope::new(*b"FHRDTEST").seal(b"payload");
        blob[8] = 2;
        let covered = blob.len() - ENVELOPE_CHECKSUM_BYTES;
        let digest = blake3::hash(&blob[..covered]);
        blob[covered..].copy_from_slice(digest.as_bytes());
        let error = Envelope::open(*b"FHRDTEST", "test", &blob).expect_err("another version");
        assert_eq!(error.to_string(), "test needs a newer fhrd: unknown format version 2");
    }

    proptest! {
        #[test]
        fn varints_round_trip(value: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = WireReader::new("test", 0, &bytes);
            prop_assert_eq!(reader.varint().ok(), Some(value));
            prop_assert_eq!(reader.remaining(), 0);
            prop_assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let _ = WireReader::new("test", 0, &bytes).varint();
            let _ = Envelope::open(*b"FHRDTEST", "test", &bytes);
        }

        #[test]
        fn every_flipped_bit_of_an_envelope_is_found(payload: Vec<u8>, position: prop::sample::Index, bit in 0u8..8) {
            let mut blob = Envelope::new(*b"FHRDTEST").seal(&payload);
            prop_assert_eq!(Envelope::open(*b"FHRDTEST", "test", &blob).ok().map(|(_, p)| p.to_vec()), Some(payload));
            let at = position.index(blob.len());
            blob[at] ^= 1 << bit;
            prop_assert!(Envelope::open(*b"FHRDTEST", "test", &blob).is_err());
        }
    }
}
