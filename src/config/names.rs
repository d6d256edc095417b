//! Enums whose values a configuration names.
//!
//! `named_values!` holds one table of values and names. It derives the enum, its list, its display and its serde form
//! from that table. An unknown name is an error that names the key, the allowed names and the name found.

/// Declares an enum for configuration key `$key`: `Name of "table.key" { Value = "name", ... }`.
macro_rules! named_values {
    ($(#[$doc:meta])* $kind:ident of $key:literal { $($(#[$value_doc:meta])* $value:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {
            $($(#[$value_doc])* $value,)+
        }

        impl $kind {
            /// All values, in the order in which errors list them.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// Name in configurations, in reports and on disk.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// The value with this name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let found = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::from_name(&found).ok_or_else(|| {
                    let allowed = Self::ALL.iter().map(|value| value.name()).collect::<Vec<_>>().join(", ");
                    serde::de::Error::custom(format!("`{}` must be one of {allowed}, found `{found}`", $key))
                })
            }
        }
    };
}

named_values! {
    /// Whether compressed files are stored as what they unpack to: the values of `read.open`.
    OpenStreams of "read.open" {
        /// Where it is likely to pay.
        Auto = "auto",
        /// Every file that looks as if it can be opened.
        Always = "always",
        /// None.
        Never = "never",
    }
}

named_values! {
    /// A chunker of opaque bytes: the values of `repository.chunker`.
    ChunkerKind of "repository.chunker" {
        /// Content-defined, at anchors (ours).
        Sieve = "sieve",
        /// Content-defined, by a gear hash (FastCDC).
        FastCdc = "fastcdc",
        /// Xet's chunks, where the limits are 8, 64 and 128 KiB.
        GearXet = "gear-xet",
        /// Content-defined, by Hamming distance (UltraCDC).
        UltraCdc = "ultracdc",
        /// A boundary every `chunk_bytes_avg` bytes.
        Fixed = "fixed",
    }
}

named_values! {
    /// A strategy of sub-block deduplication: the values of `subdedup.strategy`.
    StrategyKind of "subdedup.strategy" {
        /// Store every new chunk whole.
        None = "none",
        /// Head and tail of one similar chunk.
        Burst = "burst",
        /// Equal parts of a chunk (FHRD-2).
        Uniform = "uniform",
        /// Sub-blocks from the head on.
        HeadOnly = "head-only",
        /// Sub-blocks from both ends.
        Bidirectional = "bidirectional",
        /// Delta against one similar chunk.
        Superfeature = "superfeature",
        /// Ranges of several similar chunks.
        Anchors = "anchors",
    }
}

named_values! {
    /// What finds stored chunks that no cache has: the values of `index.last_level`.
    LastLevel of "index.last_level" {
        /// The sorted index segments (ours).
        Segments = "segments",
        /// A local key-value store of their records before them (FHRD).
        Redb = "redb",
    }
}

named_values! {
    /// How a chunk is recognised as floats: the values of `identify.method`.
    IdentifyRule of "identify.method" {
        /// By entropies, and by trial compression where they leave doubt (ours).
        Probes = "probes",
        /// By the limits of entropies alone (FHRD).
        Entropies = "entropies",
        /// Not at all: every chunk counts as floats, whatever it is (a codec of models that is given everything).
        Everything = "everything",
    }
}

named_values! {
    /// Encoding of float chunks and of tensor blocks that are not deltas: the values of `model.codec`.
    FloatCodec of "model.codec" {
        /// Entropy-coded byte planes (ours).
        Floats = "floats",
        /// The low-entropy byte groups with zstd, the others stored (FHRD).
        Planes = "planes",
        /// Every byte group with zstd (FHRD-1).
        AllPlanes = "all-planes",
        /// Byte groups of rotated elements with Huffman codes (ZipNN).
        ZipNn = "zipnn",
        /// Four byte groups with LZ4, or LZ4 alone if that is smaller (Xet).
        ByteGroups = "bg4-lz4",
        /// Bit planes with LZ4 (Xet).
        BitPlanes = "bit-planes",
        /// No float codec: zstd at `compress.level`.
        Zstandard = "zstd",
    }
}

named_values! {
    /// Encoding of deltas to tensors of stored models: the values of `model.delta`.
    ModelDelta of "model.delta" {
        /// Differences of elements, entropy-coded by the exponent of the base (ours).
        Context = "context",
        /// XOR and zstd (BitX).
        Xor = "xor",
        /// No deltas.
        None = "none",
    }
}

named_values! {
    /// Encoding of frames without floats: the values of `compress.codec`.
    CompressCodec of "compress.codec" {
        /// zstd at `compress.level`.
        Zstandard = "zstd",
        /// LZ4, which has no levels.
        Lz4 = "lz4",
    }
}
