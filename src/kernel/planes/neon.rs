//! Deinterleaving with the loads of [`crate::kernel::deinterleave`], which sort bytes by plane.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "planes as bytes that may be uninitialised")]

use super::{UninitBytes, planes_mut};
use crate::kernel::deinterleave::neon;

/// Fills `planes` with those of the elements of `raw`, of `width` bytes. Both have whole elements. False for a `width`
/// other than 2, 4 and 8.
#[target_feature(enable = "neon")]
pub(super) fn deinterleave(raw: &[u8], width: usize, rotated: bool, planes: &mut [u8]) -> bool {
    let elements = raw.len().checked_div(width).unwrap_or(0).max(1);
    match width {
        2 => neon::pairs(raw, rotated, planes_mut(planes, elements).map(uninit)),
        4 => neon::fours(raw, rotated, planes_mut(planes, elements).map(uninit)),
        8 => neon::eights(raw, rotated, planes_mut(planes, elements).map(uninit)),
        _ => false,
    }
}

fn uninit(bytes: &mut [u8]) -> &mut UninitBytes {
    // SAFETY: bytes that may be uninitialised have the same layout, and only initialised bytes are written to them.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut UninitBytes) }
}
