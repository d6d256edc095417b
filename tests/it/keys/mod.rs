//! Changes of keys beside each other, and keys that are older than the repository.

mod beside;
mod copies;
mod forged;
mod hostile;
mod older;
pub mod returned;
mod scene;
