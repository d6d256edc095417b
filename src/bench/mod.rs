//! Measurements on real data. Each is a TOML file, a function that runs it, and a report.

pub mod agreement;
pub mod bits;
mod blocks;
pub mod claim;
pub mod codecs;
pub mod comparison;
pub mod data;
pub mod entropies;
pub mod experiment;
pub mod granularity;
pub mod identify;
pub mod latency;
pub mod methods;
pub mod page;
pub mod report;
mod same;
pub mod schemes;
pub mod score;
mod speed;
pub mod table;
pub mod threshold;
pub mod trace;
pub mod versions;
mod workbench;
