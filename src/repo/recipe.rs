//! Recipes: lists of [`ContentReference`]s that describe the bytes of a file.

use super::rebuilt::{ContentPart, RebuiltContent, TRANSFORM_MAX};
use crate::error::{Error, Result};
use crate::types::Fingerprint;
use minicbor::decode::{self, Decoder};
use minicbor::{Decode, Encode};

/// One step of a recipe: the source of the next `len` bytes of the content.
///
/// CBOR: an array of the variant's number and its fields. Numbers and order never change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(flat)]
pub enum ContentReference {
    /// The bytes of a chunk.
    #[n(0)]
    Chunk {
        /// Fingerprint of the chunk.
        #[n(0)]
        fingerprint: Fingerprint,
        /// Length of the chunk, bytes.
        #[n(1)]
        len: u64,
    },
    /// The bytes that a stored recipe describes.
    #[n(1)]
    Recipe {
        /// Number of recipe levels above the chunks, at least 1. A recipe of level 1 refers to chunks and holes only.
        #[cbor(n(0), decode_with = "decode_level")]
        level: u8,
        /// Fingerprint of the chunk that holds the recipe.
        #[n(1)]
        fingerprint: Fingerprint,
        /// Length of the described content, bytes.
        #[n(2)]
        len: u64,
    },
    /// Zeros that are not stored.
    #[n(2)]
    Hole {
        /// Number of zeros, bytes.
        #[n(0)]
        len: u64,
    },
    /// Bytes that a transform makes of other content. Only the content of a file, never a part of a recipe.
    #[n(3)]
    Rebuilt {
        /// Number of the transform.
        #[cbor(n(0), decode_with = "decode_transform")]
        transform: u64,
        /// The plain content.
        #[n(1)]
        source: ContentPart,
        /// What the transform needs besides. `None` if that is empty.
        #[n(2)]
        corrections: Option<ContentPart>,
        /// Fingerprint of all rebuilt bytes.
        #[n(3)]
        hash: Fingerprint,
        /// Number of rebuilt bytes.
        #[n(4)]
        len: u64,
    },
}

impl ContentReference {
    /// Fingerprint of the chunk or recipe, or of all rebuilt bytes, which are not stored. A hole has none.
    pub fn fingerprint(self) -> Option<Fingerprint> {
        match self {
            ContentReference::Chunk { fingerprint, .. }
            | ContentReference::Recipe { fingerprint, .. }
            | ContentReference::Rebuilt { hash: fingerprint, .. } => Some(fingerprint),
            ContentReference::Hole { .. } => None,
        }
    }

    /// How the content is rebuilt, if it is.
    pub fn rebuilt(self) -> Option<RebuiltContent> {
        match self {
            ContentReference::Rebuilt { transform, source, corrections, hash, len } => {
                Some(RebuiltContent { transform, source, corrections, hash, len })
            }
            _ => None,
        }
    }

    /// What is stored of the content: of rebuilt content the plain content and the corrections, else itself.
    pub fn stored_parts(self) -> Vec<ContentReference> {
        match self.rebuilt() {
            Some(rebuilt) => rebuilt.parts().collect(),
            None => vec![self],
        }
    }

    /// Length of the described content, bytes.
    pub fn content_len(&self) -> u64 {
        match *self {
            ContentReference::Chunk { len, .. }
            | ContentReference::Recipe { len, .. }
            | ContentReference::Hole { len }
            | ContentReference::Rebuilt { len, .. } => len,
        }
    }
}

/// What this version does not know of a reference, if `reference` is at one of a newer version.
pub(super) fn unknown_variant(reference: &mut Decoder<'_>) -> Option<String> {
    reference.array().ok()??;
    match reference.u64().ok()? {
        variant if variant > VARIANT_MAX => Some(format!("variant {variant} of a reference")),
        REBUILT => {
            let transform = reference.u64().ok()?;
            (!is_known(transform)).then(|| format!("transform {transform} of content"))
        }
        _ => None,
    }
}

/// Whether this version has the transform.
fn is_known(transform: u64) -> bool {
    (1..=TRANSFORM_MAX).contains(&transform)
}

fn decode_transform<C>(decoder: &mut Decoder<'_>, _: &mut C) -> std::result::Result<u64, decode::Error> {
    let position = decoder.position();
    let transform = decoder.u64()?;
    match is_known(transform) {
        true => Ok(transform),
        false => Err(decode::Error::message("a transform of a newer version").at(position)),
    }
}

fn decode_level<C>(decoder: &mut Decoder<'_>, _: &mut C) -> std::result::Result<u8, decode::Error> {
    let position = decoder.position();
    match decoder.u8()? {
        0 => Err(decode::Error::message("a recipe's level is at least 1").at(position)),
        level => Ok(level),
    }
}

/// The greatest variant of a reference that this version knows.
const VARIANT_MAX: u64 = 3;
/// The variant of rebuilt content.
const REBUILT: u64 = 3;
/// Longest stored recipe, references.
const REFERENCES_MAX: usize = 2048;
/// References that a reader accepts in a recipe.
const REFERENCES_LIMIT: u64 = 1 << 16;
/// Average length of a stored recipe, references (a power of two).
const REFERENCES_AVERAGE: u64 = 512;
/// First bytes of a stored recipe: its type and version.
const PREFIX: [u8; 2] = [b'R', 1];

/// Builds the recipe of one content, level by level.
///
/// A stored recipe ends after a fingerprint whose low bits are zero, or at `REFERENCES_MAX`. The end depends on
/// content only, so unchanged parts of a large file share recipes with its next version. A content of one reference
/// needs no recipe.
#[derive(Debug, Default)]
pub struct RecipeBuilder {
    levels: Vec<Vec<ContentReference>>,
}

impl RecipeBuilder {
    /// Appends a reference. `store` stores the bytes of a recipe and returns their fingerprint.
    ///
    /// # Errors
    /// Errors of `store`.
    pub fn push(
        &mut self,
        reference: ContentReference,
        store: &mut dyn FnMut(Vec<u8>) -> Result<Fingerprint>,
    ) -> Result<()> {
        if let (ContentReference::Hole { len }, Some(ContentReference::Hole { len: last })) =
            (reference, self.levels.first_mut().and_then(|level| level.last_mut()))
        {
            *last += len;
            return Ok(());
        }
        self.push_at(0, reference, store)
    }

    fn push_at(
        &mut self,
        level: usize,
        reference: ContentReference,
        store: &mut dyn FnMut(Vec<u8>) -> Result<Fingerprint>,
    ) -> Result<()> {
        if level == self.levels.len() {
            self.levels.push(Vec::new());
        }
        let Some(list) = self.levels.get_mut(level) else {
            return Err(Error::internal(format!("a recipe has no level {level}")));
        };
        list.push(reference);
        let ends = match reference {
            ContentReference::Chunk { fingerprint, .. } | ContentReference::Recipe { fingerprint, .. } => {
                fingerprint.prefix().is_multiple_of(REFERENCES_AVERAGE)
            }
            ContentReference::Hole { .. } => false,
            ContentReference::Rebuilt { .. } => {
                return Err(Error::internal("rebuilt content is no part of a recipe"));
            }
        };
        if list.len() >= REFERENCES_MAX || ends && list.len() > 1 { self.close(level, store) } else { Ok(()) }
    }

    /// Stores the list of `level` as a recipe and appends a reference to the level above.
    fn close(&mut self, level: usize, store: &mut dyn FnMut(Vec<u8>) -> Result<Fingerprint>) -> Result<()> {
        let list = self.levels.get_mut(level).map(std::mem::take).unwrap_or_default();
        if list.is_empty() {
            return Ok(());
        }
        let len = list.iter().map(ContentReference::content_len).sum();
        let mut bytes = PREFIX.to_vec();
        minicbor::encode(&list, &mut bytes)
            .map_err(|error| Error::internal(format!("cannot encode a recipe: {error}")))?;
        let fingerprint = store(bytes)?;
        let reference = ContentReference::Recipe { level: level as u8 + 1, fingerprint, len };
        self.push_at(level + 1, reference, store)
    }

    /// Ends the content and returns a reference to it, or `None` if it is empty.
    ///
    /// # Errors
    /// Errors of `store`.
    pub fn finish(mut self, store: &mut dyn FnMut(Vec<u8>) -> Result<Fingerprint>) -> Result<Option<ContentReference>> {
        let mut level = 0;
        while let Some(list) = self.levels.get(level) {
            let top = level + 1 == self.levels.len();
            match (top, list.as_slice()) {
                (true, []) => return Ok(None),
                (true, [one]) => return Ok(Some(*one)),
                _ => self.close(level, store)?,
            }
            level += 1;
        }
        Ok(None)
    }
}

/// What is unknown of the first reference of a newer version in a list of references.
fn first_unknown_variant(list: &[u8]) -> std::result::Result<Option<String>, decode::Error> {
    let mut decoder = Decoder::new(list);
    for _ in 0..decoder.array()?.unwrap_or(0) {
        if let Some(variant) = unknown_variant(&mut decoder.clone()) {
            return Ok(Some(variant));
        }
        decoder.skip()?;
    }
    Ok(None)
}

/// Parses the stored recipe `fingerprint`, which describes `len` bytes and has the level `level`.
///
/// # Errors
/// [`Error::Unsupported`] for one of a newer version, or with a reference of an unknown variant or of rebuilt content.
/// [`Error::Corrupt`] if it does not parse or has too many references, if one is empty or not one level below, or if
/// the lengths do not add up. With empty references a few recipes could take forever to walk.
pub fn decode_recipe(fingerprint: &Fingerprint, level: u8, len: u64, bytes: &[u8]) -> Result<Vec<ContentReference>> {
    let corrupt = |expected: String, got: String| Error::corrupt(format!("recipe {fingerprint}"), 0, expected, got);
    let unsupported = |unknown: String| Error::unsupported(format!("recipe {fingerprint}"), unknown);
    let Some(list) = bytes.strip_prefix(&PREFIX) else {
        if let ([kind, _], Some([found, version])) = (PREFIX, bytes.first_chunk())
            && kind == *found
        {
            return Err(unsupported(format!("version {version} of recipes")));
        }
        return Err(corrupt("a recipe of version 1".into(), format!("{:?}", bytes.get(..2))));
    };
    let invalid = |error: decode::Error| corrupt("a list of references".into(), error.to_string());
    let count = Decoder::new(list).array().map_err(invalid)?;
    if count.is_none_or(|count| count > REFERENCES_LIMIT) {
        let got = count.map_or("an unknown number".into(), |count| count.to_string());
        return Err(corrupt(format!("at most {REFERENCES_LIMIT} references"), got));
    }
    let list: Vec<ContentReference> = match minicbor::decode(list) {
        Ok(list) => list,
        Err(error) => {
            let unknown = first_unknown_variant(list).map_err(invalid)?;
            return Err(unknown.map(unsupported).unwrap_or_else(|| invalid(error)));
        }
    };
    if list.iter().any(|reference| reference.rebuilt().is_some()) {
        return Err(unsupported("rebuilt content as a part of a recipe".into()));
    }
    if list.iter().any(|reference| reference.content_len() == 0) {
        return Err(corrupt("references to at least one byte".into(), "an empty one".into()));
    }
    let fits = |reference: &ContentReference| match reference {
        ContentReference::Recipe { level: below, .. } => below.checked_add(1) == Some(level),
        _ => level == 1,
    };
    if list.is_empty() || !list.iter().all(fits) {
        return Err(corrupt(format!("references one level below {level}"), format!("{} references", list.len())));
    }
    let total = list.iter().try_fold(0u64, |sum, reference| sum.checked_add(reference.content_len()));
    if total != Some(len) {
        return Err(corrupt(format!("references of {len} bytes in total"), format!("{total:?}")));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encodings_never_change() {
        let fingerprint = Fingerprint([0xab; 32]);
        let mut chunk = vec![0x83, 0x00, 0x58, 0x20];
        chunk.extend([0xab; 32]);
        chunk.extend([0x19, 0x01, 0x00]);
        assert_eq!(minicbor::to_vec(ContentReference::Chunk { fingerprint, len: 256 }).unwrap(), chunk);
        let mut recipe = vec![0x84, 0x01, 0x02, 0x58, 0x20];
        recipe.extend([0xab; 32]);
        recipe.extend([0x05]);
        assert_eq!(minicbor::to_vec(ContentReference::Recipe { level: 2, fingerprint, len: 5 }).unwrap(), recipe);
        assert_eq!(minicbor::to_vec(ContentReference::Hole { len: 7 }).unwrap(), [0x82, 0x02, 0x07]);
    }

    fn rebuilt(corrections: Option<ContentPart>) -> ContentReference {
        let source = ContentPart { level: 2, fingerprint: Fingerprint([0xab; 32]), len: 300 };
        ContentReference::Rebuilt { transform: 1, source, corrections, hash: Fingerprint([0xcd; 32]), len: 5 }
    }

    #[test]
    fn encodings_of_rebuilt_content_never_change() {
        let corrections = ContentPart { level: 0, fingerprint: Fingerprint([0xef; 32]), len: 7 };
        let mut bytes = vec![0x86, 0x03, 0x01, 0x84, 0x01, 0x02, 0x58, 0x20];
        bytes.extend([0xab; 32]);
        bytes.extend([0x19, 0x01, 0x2c, 0x83, 0x00, 0x58, 0x20]);
        bytes.extend([0xef; 32]);
        bytes.extend([0x07, 0x58, 0x20]);
        bytes.extend([0xcd; 32]);
        bytes.push(0x05);
        assert_eq!(minicbor::to_vec(rebuilt(Some(corrections))).unwrap(), bytes);
        for reference in [rebuilt(Some(corrections)), rebuilt(None)] {
            let bytes = minicbor::to_vec(reference).unwrap();
            assert_eq!(minicbor::decode::<ContentReference>(&bytes).unwrap(), reference);
        }
        assert_eq!(minicbor::to_vec(rebuilt(None)).unwrap()[43], 0xf6, "no corrections are null");
    }

    #[test]
    fn an_unknown_transform_is_newer_and_bad_parts_are_damage() {
        let bytes = minicbor::to_vec(rebuilt(None)).unwrap();
        let unknown = |bytes: &[u8]| unknown_variant(&mut Decoder::new(bytes));
        assert_eq!(unknown(&bytes), None);
        for transform in [0, 2] {
            let mut other = bytes.clone();
            other[2] = transform;
            assert!(minicbor::decode::<ContentReference>(&other).is_err());
            assert_eq!(unknown(&other), Some(format!("transform {transform} of content")));
        }
        // A hole, and rebuilt content, are no plain content.
        for part in [&[0x82, 0x02, 0x07][..], &bytes] {
            let damaged = [&bytes[..3], part, &bytes[43..]].concat();
            assert!(minicbor::decode::<ContentReference>(&damaged).is_err() && unknown(&damaged).is_none());
        }
    }

    #[test]
    fn rebuilt_content_in_a_recipe_is_newer() {
        let mut bytes = PREFIX.to_vec();
        minicbor::encode([rebuilt(None)], &mut bytes).unwrap();
        let error = decode_recipe(&Fingerprint([1; 32]), 1, 5, &bytes).unwrap_err();
        assert!(error.is_newer(), "{error}");
        let pushed = RecipeBuilder::default().push(rebuilt(None), &mut |_| Ok(Fingerprint([0; 32])));
        assert!(pushed.is_err());
    }

    #[test]
    fn a_recipe_of_level_0_is_refused() {
        let bytes =
            minicbor::to_vec(ContentReference::Recipe { level: 0, fingerprint: Fingerprint([0; 32]), len: 5 }).unwrap();
        assert!(minicbor::decode::<ContentReference>(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn references_round_trip(which in 0u8..3, level in 1u8.., name: [u8; 32], len: u64) {
            let fingerprint = Fingerprint(name);
            let reference = match which {
                0 => ContentReference::Chunk { fingerprint, len },
                1 => ContentReference::Recipe { level, fingerprint, len },
                _ => ContentReference::Hole { len },
            };
            let bytes = minicbor::to_vec(reference).unwrap();
            prop_assert_eq!(minicbor::decode::<ContentReference>(&bytes).unwrap(), reference);
            prop_assert_eq!(reference.content_len(), len);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let _ = minicbor::decode::<ContentReference>(&bytes);
        }
    }
}
