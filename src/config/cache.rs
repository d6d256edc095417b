//! The table `[cache]`.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// `[cache]`: copies of indexes, trees and snapshots of a remote repository on the local disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Most disk space for each repository, bytes. Those used last stay.
    pub bytes_max: ByteSize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig { bytes_max: ByteSize::gib(4) }
    }
}
