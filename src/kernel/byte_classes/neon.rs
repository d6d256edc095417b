//! Classes of 16 bytes at a time. Four shuffles of 64 bytes look them up: each leaves alone what is not in its quarter.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads and stores of vectors")]

use std::arch::aarch64::*;

/// Bytes of a vector.
const WIDTH: usize = 16;

/// Like [`super::classes_loop`].
#[target_feature(enable = "neon")]
pub(super) fn classes(classes: &[u8; 256], base: &[u8], contexts: &mut [u8]) {
    let (quarters, _) = classes.as_chunks::<64>();
    // SAFETY: the array is as long as the four vectors; the load needs no alignment.
    let quarter = |number: usize| unsafe { vld1q_u8_x4(quarters[number].as_ptr()) };
    let [a, b, c, d] = [quarter(0), quarter(1), quarter(2), quarter(3)];
    let whole = base.len().min(contexts.len()) / WIDTH * WIDTH;
    for (out, vector) in contexts.as_chunks_mut::<WIDTH>().0.iter_mut().zip(base.as_chunks::<WIDTH>().0) {
        // SAFETY: the array is as long as the vector; the load needs no alignment.
        let bytes = unsafe { vld1q_u8(vector.as_ptr()) };
        let within = |first: u8| veorq_u8(bytes, vdupq_n_u8(first));
        let half = vqtbx4q_u8(vqtbl4q_u8(a, bytes), b, within(64));
        let found = vqtbx4q_u8(vqtbx4q_u8(half, c, within(128)), d, within(192));
        // SAFETY: the array is as long as the vector; the store needs no alignment.
        unsafe { vst1q_u8(out.as_mut_ptr(), found) }
    }
    super::classes_loop(classes, &base[whole..], &mut contexts[whole..]);
}
