//! Read buffers: filled once, shared as slices by the stages, returned to their pool by the last of them.

use crossbeam_channel::{Receiver, Sender, bounded};

/// Buffers of one size.
pub struct BufferPool {
    bytes: usize,
    free: Receiver<Vec<u8>>,
    back: Sender<Vec<u8>>,
}

/// A buffer on loan; dropping it returns it.
pub struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    back: Option<Sender<Vec<u8>>>,
}

impl BufferPool {
    /// A pool of buffers of `bytes` each that keeps at most `buffers_max` of them.
    pub fn new(bytes: usize, buffers_max: usize) -> Self {
        let (back, free) = bounded(buffers_max);
        BufferPool { bytes, free, back }
    }

    /// Size of the pool's buffers.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes
    }

    /// A buffer of the pool's size.
    pub fn take(&self) -> Buffer {
        let bytes = self.free.try_recv().unwrap_or_else(|_| vec![0; self.bytes]);
        Buffer { bytes, filled: 0, back: Some(self.back.clone()) }
    }

    /// A buffer of just `len` bytes that no pool gets back.
    pub fn small(&self, len: usize) -> Buffer {
        Buffer { bytes: vec![0; len], filled: 0, back: None }
    }
}

impl Buffer {
    /// The first `len` bytes, to be filled.
    pub fn space(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.bytes.len());
        self.bytes.get_mut(..len).unwrap_or_default()
    }

    /// The buffer with its first `len` bytes as its content.
    pub fn filled(mut self, len: usize) -> Self {
        self.filled = len.min(self.bytes.len());
        self
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(back) = &self.back {
            // A full pool has enough: this one is freed.
            let _ = back.try_send(std::mem::take(&mut self.bytes));
        }
    }
}
