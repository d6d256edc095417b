//! HTML that several faces share: the look of pages, tables, and pictures as SVG. Nothing here needs a script.
//!
//! | module | what is in it |
//! |---|---|
//! | `picture` | the frame of a picture, the order of colours, names that fit |
//! | `treemap` `squarify` | treemaps |
//! | `chart` `ticks` | charts of lines and areas |
//! | `table` | tables |

pub mod chart;
pub mod picture;
mod squarify;
pub mod table;
pub mod ticks;
pub mod treemap;

/// Look of every page: colours and their order are variables of it.
pub const STYLE: &str = include_str!("style.css");
