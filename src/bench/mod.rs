//! Measurements on real data: each is a TOML file, a function that runs it and a report it prints.

mod blocks;
pub mod comparison;
pub mod identify;
mod same;
pub mod schemes;
pub mod score;
pub mod table;
pub mod versions;
mod workbench;
