//! Headers of the entropy coders: prefix codes and frequency tables as packed bits, written and read.
//!
//! The coders themselves are [`crate::kernel::prefix`] and [`crate::kernel::rans`].

pub mod frequency_table;
pub(in crate::codec) mod packed;
pub mod prefix_code;
#[cfg(test)]
mod tests;
