//! Manifests: JSON documents whose bytes never change for one commit.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::repo::published::{PublishedFile, PublishedKind};
use crate::types::hex;

/// Longest manifest, bytes: clients refuse longer ones.
pub const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Types of manifests: of OCI, and of Docker, which Ollama asks for.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// What is said of a commit besides its files: nothing. The digest of that is known to all clients.
pub const EMPTY_CONFIG: &[u8] = b"{}";
/// What Ollama wants to know besides the file. All else is in the file itself.
pub const OLLAMA_CONFIG: &[u8] = br#"{"model_format":"gguf","architecture":"amd64","os":"linux"}"#;
/// Bytes of a layer in a manifest, besides its path.
const LAYER_BYTES: usize = 220;

/// A file of a commit.
#[derive(Debug, Clone)]
pub struct ManifestFile {
    /// Its SHA-256.
    pub sha256: [u8; 32],
    /// Its path.
    pub path: String,
    /// Where its bytes are.
    pub file: PublishedFile,
}

impl ManifestFile {
    /// Bytes that it takes in a manifest, about. Escapes may double those of its path.
    pub fn manifest_bytes(path: &str) -> usize {
        LAYER_BYTES + path.len()
    }
}

/// A manifest and its SHA-256.
#[derive(Debug, Clone)]
pub struct ManifestDocument {
    pub bytes: Bytes,
    pub sha256: [u8; 32],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u8,
    media_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<&'a str>,
    config: BlobDescriptor<'a>,
    layers: Vec<BlobDescriptor<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlobDescriptor<'a> {
    media_type: &'a str,
    digest: String,
    size: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, &'a str>,
}

/// The SHA-256 of some bytes.
pub fn sha256_of_bytes(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// A digest as registries write it.
pub fn digest_text(sha256: &[u8; 32]) -> String {
    format!("sha256:{}", hex(sha256))
}

fn config<'a>(media_type: &'a str, bytes: &[u8]) -> BlobDescriptor<'a> {
    let digest = digest_text(&sha256_of_bytes(bytes));
    BlobDescriptor { media_type, digest, size: bytes.len() as u64, annotations: BTreeMap::new() }
}

fn layer<'a>(media_type: &'a str, file: &'a ManifestFile) -> BlobDescriptor<'a> {
    let annotations = BTreeMap::from([("org.opencontainers.image.title", file.path.as_str())]);
    BlobDescriptor { media_type, digest: digest_text(&file.sha256), size: file.file.len, annotations }
}

fn document(manifest: &Manifest<'_>) -> Result<ManifestDocument> {
    let bytes = serde_json::to_vec(manifest).map_err(|error| Error::internal(format!("no manifest: {error}")))?;
    Ok(ManifestDocument { sha256: sha256_of_bytes(&bytes), bytes: bytes.into() })
}

/// The manifest of a commit.
///
/// # Errors
/// [`Error::Internal`].
pub fn of_commit(kind: PublishedKind, commit: &str, files: &[ManifestFile]) -> Result<ManifestDocument> {
    let artifact_type = match kind {
        PublishedKind::Model => "application/vnd.fhrd.model.v1",
        PublishedKind::Dataset => "application/vnd.fhrd.dataset.v1",
    };
    document(&Manifest {
        schema_version: 2,
        media_type: OCI_MANIFEST,
        artifact_type: Some(artifact_type),
        config: config("application/vnd.oci.empty.v1+json", EMPTY_CONFIG),
        layers: files.iter().map(|file| layer("application/octet-stream", file)).collect(),
        annotations: BTreeMap::from([("org.opencontainers.image.revision", commit)]),
    })
}

/// The manifest of one GGUF file, for Ollama.
///
/// # Errors
/// [`Error::Internal`].
pub fn of_gguf(file: &ManifestFile) -> Result<ManifestDocument> {
    document(&Manifest {
        schema_version: 2,
        media_type: DOCKER_MANIFEST,
        artifact_type: None,
        config: config("application/vnd.docker.container.image.v1+json", OLLAMA_CONFIG),
        layers: vec![layer("application/vnd.ollama.image.model", file)],
        annotations: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ManifestFile {
        ManifestFile { sha256: [7; 32], path: path.into(), file: PublishedFile { content: None, len: 5 } }
    }

    /// Clients remember manifests by their digests, so these bytes never change.
    #[test]
    fn the_bytes_of_a_manifest_are_frozen() {
        let commit = "0123456789012345678901234567890123456789";
        let oci = of_commit(PublishedKind::Model, commit, &[file("a/\"b\".bin")]).unwrap();
        let expected = format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"artifactType\":\
             \"application/vnd.fhrd.model.v1\",\"config\":{{\"mediaType\":\"application/vnd.oci.empty.v1+json\",\
             \"digest\":\"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\",\"size\":2}},\
             \"layers\":[{{\"mediaType\":\"application/octet-stream\",\"digest\":\"sha256:{digest}\",\"size\":5,\
             \"annotations\":{{\"org.opencontainers.image.title\":\"a/\\\"b\\\".bin\"}}}}],\"annotations\":\
             {{\"org.opencontainers.image.revision\":\"{commit}\"}}}}",
            digest = "07".repeat(32),
        );
        assert_eq!(std::str::from_utf8(&oci.bytes).unwrap(), expected);
        assert_eq!(oci.sha256, sha256_of_bytes(expected.as_bytes()));
        let ollama = of_gguf(&file("m.gguf")).unwrap();
        let text = std::str::from_utf8(&ollama.bytes).unwrap();
        assert!(text.starts_with(&format!("{{\"schemaVersion\":2,\"mediaType\":\"{DOCKER_MANIFEST}\",\"config\":")));
        assert!(text.contains("\"mediaType\":\"application/vnd.ollama.image.model\""), "{text}");
    }

    #[test]
    fn a_layer_takes_no_more_than_is_counted() {
        let path = "p".repeat(300);
        let long = |count: usize| {
            let mut file = file(&path);
            file.file.len = u64::MAX;
            of_commit(PublishedKind::Dataset, "c", &vec![file; count]).unwrap().bytes.len()
        };
        assert!(long(11) - long(1) <= 10 * ManifestFile::manifest_bytes(&path), "{}", long(11) - long(1));
    }
}
