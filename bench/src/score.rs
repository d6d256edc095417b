//! Score of one class of blocks, or of a set of classes: a confusion matrix, bytes and time.

use std::io::Write;
use std::time::Duration;

use super::methods::IdentifyMethod;

/// Label or answer: float.
pub(super) const FLOAT: usize = 0;
/// Label or answer: ordinary.
pub(super) const ORDINARY: usize = 1;
/// Label or answer: incompressible.
pub(super) const INCOMPRESSIBLE: usize = 2;

/// Titles of the scores: class or set, method, blocks, blocks labelled float, found and missed ones, blocks wrongly
/// classified as float, found incompressible blocks, recall of weights, accuracy, bytes above the best encodings, time
/// per block.
pub(super) const HEADING: &str =
    "class            method     blocks  float  found missed  wrong incomp recall % accur. % excess %  us/blk";

/// Blocks by label (rows) and answer (columns): float, ordinary, incompressible.
pub type Confusion = [[u64; 3]; 3];

/// Score of one class, or of several together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Score {
    /// Name of the class or set.
    pub name: String,
    /// The method.
    pub method: IdentifyMethod,
    /// Blocks by label and answer.
    pub confusion: Confusion,
    /// Blocks of weights with the label float.
    pub weights: u64,
    /// Of those, blocks that the method found.
    pub weights_found: u64,
    /// Bytes stored with the answers.
    pub bytes: u64,
    /// Bytes stored with the best encodings.
    pub bytes_best: u64,
    /// Time of the method for all blocks.
    pub time: Duration,
}

impl Score {
    fn blocks(&self) -> u64 {
        self.confusion.iter().flatten().sum()
    }
    fn float(&self) -> u64 {
        self.confusion[0].iter().sum()
    }
    /// Fraction of the blocks that are correctly classified as float or not float, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        let [[hit, ..], ordinary, incompressible] = self.confusion;
        let right = hit + ordinary[1..].iter().chain(&incompressible[1..]).sum::<u64>();
        share(right, self.blocks())
    }
    /// Fraction of the float blocks of weights that were found, 0 to 1; 1 without such blocks.
    pub fn recall(&self) -> f64 {
        if self.weights == 0 { 1.0 } else { share(self.weights_found, self.weights) }
    }
    /// Bytes above the best encodings, as a fraction of those.
    pub fn excess(&self) -> f64 {
        share(self.bytes, self.bytes_best) - 1.0
    }
    /// Microseconds per block.
    pub fn block_us(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.blocks().max(1) as f64
    }
    /// Adds the counts of another class.
    pub(super) fn add(&mut self, other: &Score) {
        for (row, other) in self.confusion.iter_mut().zip(other.confusion) {
            for (count, other) in row.iter_mut().zip(other) {
                *count += other;
            }
        }
        self.weights += other.weights;
        self.weights_found += other.weights_found;
        self.bytes += other.bytes;
        self.bytes_best += other.bytes_best;
        self.time += other.time;
    }
    /// Prints one line below [`HEADING`].
    pub(super) fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let [[hit, missed @ ..], ordinary, incompressible] = self.confusion;
        writeln!(
            out,
            "{:16} {:9} {:7} {:6} {:6} {:6} {:6} {:6} {:8.2} {:8.2} {:8.3} {:8.1}",
            self.name,
            self.method.name(),
            self.blocks(),
            self.float(),
            hit,
            missed.iter().sum::<u64>(),
            ordinary[0] + incompressible[0],
            incompressible[2],
            self.recall() * 100.0,
            self.accuracy() * 100.0,
            self.excess() * 100.0,
            self.block_us(),
        )
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
