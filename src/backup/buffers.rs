//! Read buffers: Read fills a buffer once, the stages share slices of it, and the last slice returns it to its pool.

use crossbeam_channel::{Receiver, Sender, bounded};

/// Reusable buffers of one size.
pub struct BufferPool {
    bytes: usize,
    free: Receiver<Vec<u8>>,
    back: Sender<Vec<u8>>,
}

/// A buffer that returns to its pool when it is dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    back: Option<Sender<Vec<u8>>>,
}

impl BufferPool {
    /// A pool that holds at most `buffers_max` free buffers of `bytes` bytes.
    pub fn new(bytes: usize, buffers_max: usize) -> Self {
        let (back, free) = bounded(buffers_max);
        BufferPool { bytes, free, back }
    }

    /// Bytes of each buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes
    }

    /// A free buffer, or a new one. Its bytes are those of its last use.
    pub fn take(&self) -> Buffer {
        let bytes = self.free.try_recv().unwrap_or_else(|_| vec![0; self.bytes]);
        Buffer { bytes, filled: 0, back: Some(self.back.clone()) }
    }

    /// A buffer of `len` bytes that does not return to the pool.
    pub fn small(&self, len: usize) -> Buffer {
        Buffer { bytes: vec![0; len], filled: 0, back: None }
    }
}

impl Buffer {
    /// The first `len` bytes, to write to.
    pub fn space(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.bytes.len());
        self.bytes.get_mut(..len).unwrap_or_default()
    }

    /// Sets the content to the first `len` bytes.
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
            // If the pool is full the buffer is freed.
            let _ = back.try_send(std::mem::take(&mut self.bytes));
        }
    }
}
