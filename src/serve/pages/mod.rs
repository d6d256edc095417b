//! Pages for people: what is published, as HTML that needs no script.
//!
//! | module | what is in it |
//! |---|---|
//! | `layout` | the frame of a page, its headers, and what a request that fails gets |
//! | `list` | lists in pages of 100, with search and sorting by the query |
//! | `home` | all names |
//! | `card` | a name: its revisions, how to get it, its README |
//! | `whole` | snapshots, health, space, families of models, training runs |
//! | `files` | a directory |
//! | `login` | the form for a token |
//! | `entry` | a file: its text, or its tensors |
//!
//! Lists of names come from memory. Nothing that is stored is trusted: names and texts are escaped, and lose what
//! steers.

mod card;
mod entry;
mod files;
mod home;
mod layout;
mod list;
mod login;
mod whole;

pub use card::card;
pub use entry::entry;
pub use files::files;
pub use home::{home, path_of};
pub use layout::{PageFrame, fault_page, icon, style};
pub use login::{log_in, log_out, login};
pub use whole::{overview, snapshots};
