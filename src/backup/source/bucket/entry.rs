//! The entry of an object.

use super::placed::PlacedObject;
use crate::repo::tree::{Node, ObjectFacts, Timestamp};
use crate::store::ObjectState;

/// Notes in an entry what is known of its object: by the listing, or by an answer with its bytes.
pub fn complete(node: &mut Node, placed: &PlacedObject, prefix: &str, state: Option<&ObjectState>) {
    let listed = placed.object.expected();
    let found = state.unwrap_or(&listed);
    // A listing knows the time more exactly than an answer about the same object.
    let time = listed.modified.filter(|_| found.etag == listed.etag).or(found.modified);
    node.mtime = time.map(stored_time).unwrap_or_default();
    (node.ctime, node.size) = (node.mtime, found.size);
    let rest = placed.object.key.strip_prefix(prefix).unwrap_or(&placed.object.key);
    let facts = ObjectFacts {
        etag: found.etag.clone(),
        version: found.version.clone(),
        content_type: found.content_type.clone(),
        metadata: found.metadata.iter().cloned().collect(),
        key: (rest != placed.path).then(|| rest.to_string()),
    };
    facts.attach(node);
}

fn stored_time(time: jiff::Timestamp) -> Timestamp {
    let nanoseconds = time.as_nanosecond();
    Timestamp {
        seconds: nanoseconds.div_euclid(1_000_000_000) as i64,
        nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32,
    }
}
