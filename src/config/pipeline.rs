//! Worker threads and queues.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// Most workers of a stage by default, when the configuration leaves the number to the machine. Eight workers keep the
/// single-threaded stages busy.
pub const AUTOMATIC_WORKERS_MAX: usize = 8;
/// Workers of Read, at least, if the number is not given.
const AUTOMATIC_READ_WORKERS_MIN: usize = 4;

/// `[pipeline]`: worker threads and queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineConfig {
    /// Workers of each parallel stage that is not set below; 0 = one per processor, at most `workers_max`.
    pub workers: usize,
    /// Most workers of a stage when the configuration leaves the number to the machine.
    pub workers_max: usize,
    /// Workers of Read; 0 = `workers`, and at least 4, because a disk needs several requests at once.
    pub read_workers: usize,
    /// Workers of Hash; 0 = `workers`.
    pub hash_workers: usize,
    /// Workers of Identify; 0 = `workers`.
    pub identify_workers: usize,
    /// Workers of Match; 0 = `workers`.
    pub match_workers: usize,
    /// Workers of ModelEncode; 0 = `workers`.
    pub model_encode_workers: usize,
    /// Workers of Compress; 0 = `workers`.
    pub compress_workers: usize,
    /// Workers of Fetch; 0 = `workers`.
    pub fetch_workers: usize,
    /// Workers of Decode; 0 = `workers`.
    pub decode_workers: usize,
    /// Workers of Write; 0 = `workers`.
    pub write_workers: usize,
    /// Batches that a link between two stages holds. Links after SubDedup hold four times as many smaller packets.
    pub queue_depth: usize,
    /// Bytes of a batch.
    pub batch_bytes: ByteSize,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        PipelineConfig {
            workers: 0,
            workers_max: AUTOMATIC_WORKERS_MAX,
            read_workers: 0,
            hash_workers: 0,
            identify_workers: 0,
            match_workers: 0,
            model_encode_workers: 0,
            compress_workers: 0,
            fetch_workers: 0,
            decode_workers: 0,
            write_workers: 0,
            queue_depth: 2,
            batch_bytes: ByteSize::kib(512),
        }
    }
}

impl PipelineConfig {
    /// Number of workers of a stage whose own key is set to `own`.
    pub fn workers_of(&self, own: usize) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from).min(self.workers_max);
        match (own, self.workers) {
            (0, 0) => processors(),
            (0, all) => all,
            (own, _) => own,
        }
    }

    /// Number of workers of Read.
    pub fn workers_of_read(&self) -> usize {
        match self.read_workers {
            0 => self.workers_of(0).max(AUTOMATIC_READ_WORKERS_MIN),
            own => own,
        }
    }
}
