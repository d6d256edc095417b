//! Content that is rebuilt from other content by a transform.

use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder};
use minicbor::{Decode, Encode};

use super::recipe::ContentReference;
use crate::error::Result;
use crate::types::Fingerprint;

/// The transform whose decoder is [`crate::opened::Rebuilder`].
pub const OPENED: u64 = 1;
/// The greatest transform that this version knows.
pub(super) const TRANSFORM_MAX: u64 = OPENED;

/// How the content of a file is rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RebuiltContent {
    /// Number of the transform.
    pub transform: u64,
    /// The plain content.
    pub source: ContentPart,
    /// What the transform needs besides.
    pub corrections: Option<ContentPart>,
    /// Fingerprint of all rebuilt bytes.
    pub hash: Fingerprint,
    /// Number of rebuilt bytes.
    pub len: u64,
}

impl RebuiltContent {
    /// What is stored: the plain content, then the corrections.
    pub fn parts(&self) -> impl Iterator<Item = ContentReference> {
        [Some(self.source), self.corrections].into_iter().flatten().map(ContentReference::from)
    }
}

/// Stored content that a transform reads: a chunk or a recipe.
///
/// CBOR: as the [`ContentReference`] of the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContentPart {
    /// Levels of recipes above the chunks: 0 for a chunk.
    pub level: u8,
    /// Fingerprint of the chunk, or of the chunk that holds the recipe.
    pub fingerprint: Fingerprint,
    /// Length of the content, bytes.
    pub len: u64,
}

impl ContentPart {
    /// The part that `content` stands for.
    ///
    /// # Errors
    /// [`crate::Error::Internal`] for a hole or rebuilt content, which no writer makes one of.
    pub fn of(content: ContentReference) -> Result<Self> {
        match content {
            ContentReference::Chunk { fingerprint, len } => Ok(ContentPart { level: 0, fingerprint, len }),
            ContentReference::Recipe { level, fingerprint, len } => Ok(ContentPart { level, fingerprint, len }),
            ContentReference::Hole { .. } | ContentReference::Rebuilt { .. } => {
                Err(crate::Error::internal("only chunks and recipes are parts of rebuilt content"))
            }
        }
    }
}

impl From<ContentPart> for ContentReference {
    fn from(ContentPart { level, fingerprint, len }: ContentPart) -> Self {
        match level {
            0 => ContentReference::Chunk { fingerprint, len },
            level => ContentReference::Recipe { level, fingerprint, len },
        }
    }
}

impl<C> Encode<C> for ContentPart {
    fn encode<W: encode::Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> std::result::Result<(), encode::Error<W::Error>> {
        ContentReference::from(*self).encode(encoder, context)
    }
}

// Not by way of a reference: one of rebuilt content could nest without end.
impl<'b, C> Decode<'b, C> for ContentPart {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> std::result::Result<Self, decode::Error> {
        let position = decoder.position();
        let invalid = || decode::Error::message("a part of rebuilt content is a chunk or a recipe").at(position);
        let fields = decoder.array()?;
        let level = match (fields, decoder.u64()?) {
            (Some(3), 0) => 0,
            (Some(4), 1) => decoder.u8().ok().filter(|level| *level > 0).ok_or_else(invalid)?,
            _ => return Err(invalid()),
        };
        let (fingerprint, len) = (decoder.decode()?, decoder.u64()?);
        if len == 0 { Err(invalid()) } else { Ok(ContentPart { level, fingerprint, len }) }
    }
}
