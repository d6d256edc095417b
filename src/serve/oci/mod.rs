//! Registries: what is published, as clients of OCI registries ask for it, to be read only.
//!
//! A commit is an artifact: a `manifest` that lists its files as layers, each a blob with the path as its title. The
//! manifest depends on nothing but the commit. Blobs are files as they are, so nothing is stored twice. A tag is a
//! revision; `latest` is `main`, if there is no such revision.
//!
//! A digest needs the SHA-256 of each file, so the first one who asks for a manifest waits until the files are read.
//! What is `known` of commits is kept in memory, and found again from the hashes that are kept on the disk.
//!
//! Ollama knows another form of manifest, of one GGUF file. It says so in `Accept`.

mod answers;
mod fault;
mod known;
mod manifest;

pub use answers::{blob, manifest, objects_of, root, tags};
pub use fault::registry_fault;
pub use known::KnownManifests;

use crate::repo::published::PublishedKind;

/// The name of a request, as the client spells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryName {
    /// What it is.
    pub kind: PublishedKind,
    /// `ORG/NAME`.
    pub name: String,
}

impl RegistryName {
    /// The name in URLs of a registry.
    pub fn path(&self) -> String {
        match self.kind {
            PublishedKind::Model => self.name.clone(),
            PublishedKind::Dataset => format!("datasets/{}", self.name),
        }
    }
}
