//! Random access to the bytes of a content through its recipes, with bounded memory for files of any length.
//!
//! 1. A look-up descends from the content's reference to the chunk or hole at an offset, by binary search in each
//!    recipe on the way. Decoded recipes are cached.
//! 2. A copy of a range looks up one chunk or hole after the other and passes on its bytes.

use std::sync::Arc;

use crate::cache::ByteLru;
use crate::error::{Error, Result};
use crate::repo::reader::ChunkReader;
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
    /// The chunk. `None` for a hole.
    pub chunk: Option<Fingerprint>,
}

impl LocatedRange {
    /// Offset of the byte behind it.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// A decoded recipe: its references, each with its offset in the recipe's content.
type OffsetRecipe = Arc<Vec<(u64, ContentReference)>>;

/// Finds chunks of contents by offset. Caches recipes.
pub struct ContentMap {
    recipes: ByteLru<(Fingerprint, u8, u64), OffsetRecipe>,
}

impl ContentMap {
    /// A map that caches recipes of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        ContentMap { recipes: ByteLru::new(bytes_max) }
    }

    /// The chunk or hole that holds byte `offset` of `content`. `None` at and behind its end.
    ///
    /// # Errors
    /// Those of reading recipes. [`Error::Corrupt`] if recipes are nested too deeply.
    pub fn locate(
        &mut self,
        reader: &mut ChunkReader,
        content: ContentReference,
        offset: u64,
    ) -> Result<Option<LocatedRange>> {
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
                ContentReference::Recipe { level, fingerprint, len } => {
                    let recipe = self.recipe(reader, &fingerprint, level, len)?;
                    let after = recipe.partition_point(|(at, _)| *at <= offset - start);
                    let Some((at, inner)) = after.checked_sub(1).and_then(|at| recipe.get(at)) else {
                        return Err(Error::internal("a recipe without references passed its check"));
                    };
                    (start, reference) = (start + at, *inner);
                }
            }
        }
    }

    /// Levels strictly descend, because [`decode_recipe`] checks that, so a look-up ends.
    fn recipe(
        &mut self,
        reader: &mut ChunkReader,
        fingerprint: &Fingerprint,
        level: u8,
        len: u64,
    ) -> Result<OffsetRecipe> {
        if level > LEVELS_MAX {
            return Err(Error::corrupt("recipe", 0, format!("at most {LEVELS_MAX} levels"), level.to_string()));
        }
        let key = (*fingerprint, level, len);
        if let Some(recipe) = self.recipes.get(&key) {
            return Ok(recipe);
        }
        let references = decode_recipe(fingerprint, level, len, &reader.read(fingerprint)?)?;
        let mut at = 0u64;
        let with_offset = |reference: ContentReference| {
            let start = at;
            at = at.saturating_add(reference.content_len());
            (start, reference)
        };
        let recipe: OffsetRecipe = Arc::new(references.into_iter().map(with_offset).collect());
        let bytes = recipe.len() * size_of::<(u64, ContentReference)>();
        self.recipes.put(key, recipe.clone(), bytes);
        Ok(recipe)
    }

    /// Passes the bytes `from` to `to` (exclusive) of `content` to `write`, in order. Bytes behind the content's end
    /// are left out.
    ///
    /// # Errors
    /// Those of reading and of `write`.
    pub fn copy_range(
        &mut self,
        reader: &mut ChunkReader,
        content: ContentReference,
        (from, to): (u64, u64),
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut offset = from;
        while offset < to
            && let Some(range) = self.locate(reader, content, offset)?
        {
            let end = range.end().min(to);
            match &range.chunk {
                Some(fingerprint) => {
                    let bytes = reader.read_exact(fingerprint, range.len)?;
                    let within = |at: u64| usize::try_from(at - range.start).unwrap_or(usize::MAX);
                    write(bytes.get(within(offset)..within(end)).unwrap_or_default())?;
                }
                None => write_zeros(end - offset, write)?,
            }
            offset = end;
        }
        Ok(())
    }
}

/// Passes `count` zeros to `write`.
///
/// # Errors
/// Those of `write`.
pub fn write_zeros(mut count: u64, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    while count > 0 {
        let step = count.min(ZEROS.len() as u64);
        write(ZEROS.get(..step as usize).unwrap_or_default())?;
        count -= step;
    }
    Ok(())
}
