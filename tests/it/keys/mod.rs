//! Changes of keys beside each other, and keys that are older than the repository.

mod beside;
mod copies;
mod hostile;
mod older;
pub mod returned;
mod scene;
