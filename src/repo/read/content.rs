//! Random access to the bytes of a content through its recipes, with bounded memory for files of any length.
//!
//! A look-up descends from the content's reference to the chunk or hole at an offset, by binary search in each recipe
//! on the way. Decoded recipes are cached.

use std::sync::Arc;

use bytes::Bytes;

use super::chunks::{ChunkReader, RecipeWalk};
use super::read_cache::{Decoded, DecodedKey, OffsetRecipe};
use crate::error::{Error, Result};
use crate::repo::container::ContainerKind;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::types::Fingerprint;

/// Deepest tree of recipes that is accepted.
const LEVELS_MAX: u8 = 16;
/// Zeros that are passed on at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A range of a content that is one chunk or one hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocatedRange {
    /// Offset of its first byte in the content.
    pub start: u64,
    /// Length, bytes.
    pub len: u64,
    /// The chunk, or the hash of rebuilt content, which is one range. `None` for a hole.
    pub chunk: Option<Fingerprint>,
}

impl LocatedRange {
    /// Offset of the byte behind it.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

impl ChunkReader {
    /// The chunk or hole that holds byte `offset` of `content`. `None` at and behind its end.
    ///
    /// # Errors
    /// Errors of reading recipes. [`Error::Corrupt`] if recipes are nested too deeply.
    pub fn locate(&mut self, content: ContentReference, offset: u64) -> Result<Option<LocatedRange>> {
        if offset >= content.content_len() {
            return Ok(None);
        }
        let (mut start, mut reference) = (0u64, content);
        loop {
            match reference {
                ContentReference::Chunk { fingerprint, len } => {
                    return Ok(Some(LocatedRange { start, len, chunk: Some(fingerprint) }));
                }
                ContentReference::Hole { len } => return Ok(Some(LocatedRange { start, len, chunk: None })),
                ContentReference::Rebuilt { hash, len, .. } => {
                    return Ok(Some(LocatedRange { start, len, chunk: Some(hash) }));
                }
                ContentReference::Recipe { level, fingerprint, len } => {
                    let recipe = self.offset_recipe(&fingerprint, level, len)?;
                    let after = recipe.partition_point(|(at, _)| *at <= offset - start);
                    let Some((at, inner)) = after.checked_sub(1).and_then(|at| recipe.get(at)) else {
                        return Err(Error::internal("a recipe without references passed its check"));
                    };
                    (start, reference) = (start + at, *inner);
                }
            }
        }
    }

    /// Fingerprint of all bytes of a content: the hash that it would have as rebuilt content.
    ///
    /// # Errors
    /// Errors of reading, and of `check`, which is called before each chunk.
    pub fn hash(&mut self, content: ContentReference, mut check: impl FnMut() -> Result<()>) -> Result<Fingerprint> {
        let (mut hasher, mut walk) = (self.hasher(), RecipeWalk::new(content));
        while let Some(reference) = walk.next(self)? {
            check()?;
            match reference {
                ContentReference::Chunk { fingerprint, len } => {
                    hasher.update(&self.read_shared(&fingerprint, len)?);
                }
                ContentReference::Rebuilt { hash, .. } => return Ok(hash),
                other => write_zeros(other.content_len(), &mut |zeros| {
                    hasher.update(zeros);
                    Ok(())
                })?,
            }
        }
        Ok(Fingerprint(*hasher.finalize().as_bytes()))
    }

    /// Levels strictly descend, because [`decode_recipe`] checks that, so a look-up ends.
    fn offset_recipe(&mut self, fingerprint: &Fingerprint, level: u8, len: u64) -> Result<OffsetRecipe> {
        if level > LEVELS_MAX {
            return Err(Error::corrupt("recipe", 0, format!("at most {LEVELS_MAX} levels"), level.to_string()));
        }
        let key = (*fingerprint, level, len);
        if let Some(recipe) = self.decoded.recipe(key) {
            return Ok(recipe);
        }
        let references = decode_recipe(fingerprint, level, len, &self.read(fingerprint)?)?;
        let mut at = 0u64;
        let with_offset = |reference: ContentReference| {
            let start = at;
            at = at.saturating_add(reference.content_len());
            (start, reference)
        };
        let recipe: OffsetRecipe = Arc::new(references.into_iter().map(with_offset).collect());
        self.decoded.keep_recipe(key, recipe.clone());
        Ok(recipe)
    }

    /// Returns the bytes of a chunk of `len` bytes. Keeps them if `is_cached`.
    ///
    /// # Errors
    /// Errors of [`Self::read_exact`].
    pub(super) fn chunk(&mut self, fingerprint: &Fingerprint, len: u64, is_cached: bool) -> Result<Bytes> {
        let key = DecodedKey::Chunk(*fingerprint);
        let decoded = if is_cached { self.decoded.find(key) } else { self.decoded.look(key) };
        match decoded {
            Decoded::Found(bytes) if bytes.len() as u64 == len => Ok(bytes),
            // A reference with another length: the error says so.
            Decoded::Found(_) | Decoded::Missing(None) => self.read_shared(fingerprint, len),
            Decoded::Missing(Some(task)) => {
                // A copy: what is cached counts as its own length.
                let bytes = Bytes::from(self.read_exact(fingerprint, len)?);
                task.finish(ContainerKind::Data, bytes.clone());
                Ok(bytes)
            }
        }
    }
}

/// Passes `count` zeros to `write`.
///
/// # Errors
/// Errors of `write`.
pub fn write_zeros(mut count: u64, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    while count > 0 {
        let step = count.min(ZEROS.len() as u64);
        write(ZEROS.get(..step as usize).unwrap_or_default())?;
        count -= step;
    }
    Ok(())
}
