//! Keys of a CBOR map that this version does not know.
//!
//! A newer version may add integer keys. Those below [`REQUIRED_FROM`] can be ignored, and stay when this version
//! writes the map again. What has one from there on must not be used by a program that does not know it.

use minicbor::decode::Error as DecodeError;
use minicbor::{Decoder, Encoder};

/// Keys from this one on must be known to whoever uses what they are in.
pub const REQUIRED_FROM: u64 = 128;

/// Keys with their values, as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownKeys {
    count: u64,
    pairs: Vec<u8>,
    /// The first key that must be known.
    pub required: Option<u64>,
}

impl UnknownKeys {
    /// The keys above `known_max` of the map at the beginning of `bytes`. `visit` gets each key, and the decoder at its
    /// value, which it may read.
    ///
    /// # Errors
    /// Errors of CBOR and of `visit`.
    pub fn of<'a>(
        bytes: &'a [u8],
        known_max: u64,
        mut visit: impl FnMut(u64, Decoder<'a>) -> Result<(), DecodeError>,
    ) -> Result<Self, DecodeError> {
        let (mut decoder, mut unknown) = (Decoder::new(bytes), UnknownKeys::default());
        let count = decoder.map()?.ok_or_else(|| DecodeError::message("a map without a length"))?;
        for _ in 0..count {
            let start = decoder.position();
            let key = decoder.u64()?;
            visit(key, decoder.clone())?;
            decoder.skip()?;
            if key > known_max {
                unknown.count += 1;
                unknown.pairs.extend_from_slice(bytes.get(start..decoder.position()).unwrap_or_default());
                unknown.required = unknown.required.or((key >= REQUIRED_FROM).then_some(key));
            }
        }
        Ok(unknown)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A map with these keys behind those of `map`. They are greater, so the keys still ascend.
    ///
    /// # Errors
    /// Errors of CBOR.
    pub fn added_to(&self, map: Vec<u8>) -> Result<Vec<u8>, DecodeError> {
        if self.is_empty() {
            return Ok(map);
        }
        let mut decoder = Decoder::new(&map);
        let count = decoder.map()?.ok_or_else(|| DecodeError::message("a map without a length"))?;
        let mut encoder = Encoder::new(Vec::new());
        encoder.map(count + self.count).map_err(|_| DecodeError::message("a map that cannot be written"))?;
        let mut out = encoder.into_writer();
        out.extend_from_slice(map.get(decoder.position()..).unwrap_or_default());
        out.extend_from_slice(&self.pairs);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_stay_in_a_map_that_is_written_again() {
        // {0: 1, 200: [2], 7: "x"} in ascending order of keys, with a value that is nested.
        let stored = [0xa3, 0x00, 0x01, 0x07, 0x61, b'x', 0x18, 200, 0x81, 0x02];
        let unknown = UnknownKeys::of(&stored, 5, |_, _| Ok(())).unwrap();
        assert_eq!((unknown.is_empty(), unknown.required), (false, Some(200)));
        assert_eq!(unknown.added_to(vec![0xa1, 0x00, 0x01]).unwrap(), stored);
        assert!(UnknownKeys::of(&stored, 200, |_, _| Ok(())).unwrap().is_empty());
    }
}
