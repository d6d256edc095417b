//! Overview: what pages say of a whole repository, as HTML. `fhrd report` and `fhrd serve` show it.
//!
//! | module | what is in it |
//! |---|---|
//! | `head` | what cannot be shown, the main numbers, health, the last backups |
//! | `space` | treemaps by host, directory and kind of file |
//! | `growth` | charts over time, and the largest changes |
//! | `families` | models as treemap and trees |
//! | `runs` | training runs with curves of their metrics |
//! | `texts` | the state in words |
//!
//! Tables and pictures are those of [`crate::html`].

pub mod families;
pub mod growth;
pub mod head;
pub mod runs;
pub mod space;
pub mod texts;
