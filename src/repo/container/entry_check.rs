//! The bounds of entries and operations. The writer checks them before it accepts an entry, the reader when it decodes
//! one, so no strategy can seal a container that its own reader refuses.

use super::container_index::{EntryFields, FEATURES_MAX};
use super::frame::FrameInfo;
use super::operation_source::DEPTH_LIMIT;
use super::operations::{Operation, OperationList};
use crate::config::{CHUNK_BYTES_LIMIT, DELTA_BASE_BYTES_LIMIT, FRAME_BYTES_LIMIT};

/// Stored bytes of a frame, at most.
const STORED_BYTES_LIMIT: u64 = 2 * FRAME_BYTES_LIMIT;

/// A broken bound.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) expected: String,
    pub(super) found: String,
}

fn require(holds: bool, expected: impl FnOnce() -> String, found: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { expected: expected(), found: found() }) }
}

/// Checks the lengths of a frame.
pub(super) fn check_frame(raw_len: u64, stored_len: u64) -> Result<(), Violation> {
    require(
        raw_len <= FRAME_BYTES_LIMIT && stored_len <= STORED_BYTES_LIMIT,
        || format!("a frame of at most {FRAME_BYTES_LIMIT} raw and {STORED_BYTES_LIMIT} stored bytes"),
        || format!("{raw_len} raw and {stored_len} stored bytes"),
    )
}

/// Checks the length of an operation, bytes.
pub(super) fn check_length(len: u64) -> Result<u32, Violation> {
    let expected = || format!("an operation of 1 to {CHUNK_BYTES_LIMIT} bytes");
    require((1..=CHUNK_BYTES_LIMIT).contains(&len), expected, || len.to_string())?;
    Ok(len as u32)
}

/// Checks that `base` counts in a list of `count` bases.
pub(super) fn check_base(base: i64, count: u64) -> Result<u32, Violation> {
    let in_list = u64::try_from(base).is_ok_and(|base| base < count);
    require(in_list, || format!("a base below {count}"), || base.to_string())?;
    Ok(base as u32)
}

/// Checks that a range of a base lies within a chunk.
pub(super) fn check_offset(offset: i64, len: u32) -> Result<u32, Violation> {
    let fits = (0..=CHUNK_BYTES_LIMIT as i64 - i64::from(len)).contains(&offset);
    require(fits, || "a copy within a chunk".into(), || format!("offset {offset}, {len} bytes"))?;
    Ok(offset as u32)
}

/// The numbers of an entry, as wide as they are decoded.
#[derive(Debug)]
pub(super) struct EntryBounds {
    pub(super) raw_len: u64,
    pub(super) literal_offset: i64,
    pub(super) literal_len: u64,
    /// Raw length of the entry's frame; `None` if the container has no such frame.
    pub(super) frame_raw_len: Option<u32>,
    pub(super) depth: u64,
    pub(super) features: u64,
}

impl EntryBounds {
    /// Checks the numbers against the limits of the format and against the frame.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let EntryBounds { raw_len, literal_offset, literal_len, frame_raw_len, depth, features } = *self;
        require(
            raw_len <= CHUNK_BYTES_LIMIT && literal_len <= raw_len,
            || format!("a chunk of at most {CHUNK_BYTES_LIMIT} bytes, with no more literal bytes"),
            || format!("{raw_len} bytes, {literal_len} literal"),
        )?;
        let end = u64::try_from(literal_offset).ok().and_then(|offset| offset.checked_add(literal_len));
        let in_frame = matches!((frame_raw_len, end), (Some(len), Some(end)) if end <= u64::from(len));
        require(
            literal_len == 0 || in_frame,
            || format!("literal bytes within a frame of {} bytes", frame_raw_len.unwrap_or(0)),
            || format!("{literal_len} from {literal_offset}"),
        )?;
        require(
            (1..=u64::from(DEPTH_LIMIT)).contains(&depth) && features <= FEATURES_MAX as u64,
            || format!("a depth of 1 to {DEPTH_LIMIT} and at most {FEATURES_MAX} features"),
            || format!("depth {depth}, {features} features"),
        )
    }
}

/// Checks that operations make the whole chunk and use all its literal bytes, or that all of them belong to a delta.
pub(super) fn check_totals(raw_len: u64, literal_len: u64, operations: &[Operation]) -> Result<(), Violation> {
    // What an unknown operation makes is not known.
    if operations.iter().any(|operation| operation.check_known().is_err()) {
        return Ok(());
    }
    let sum = |belongs: fn(&Operation) -> bool| -> u64 {
        operations.iter().filter(|operation| belongs(operation)).map(|operation| u64::from(operation.len())).sum()
    };
    let (total, added) = (sum(|_| true), sum(|operation| matches!(operation, Operation::Add { .. })));
    let delta = sum(|operation| matches!(operation, Operation::Delta { .. }));
    let holds = match (operations.is_empty(), delta) {
        (true, _) => raw_len == literal_len,
        (false, 0) => total == raw_len && added == literal_len,
        (false, _) => total == delta && delta <= DELTA_BASE_BYTES_LIMIT,
    };
    require(
        holds,
        || format!("operations of {raw_len} bytes, {literal_len} of them literal, or deltas only"),
        || format!("{total} bytes, {added} literal, {delta} of deltas"),
    )
}

/// Checks a new entry in full, as the reader does; `frames` are those of its container.
pub(super) fn check_entry(fields: &EntryFields, list: &OperationList, frames: &[FrameInfo]) -> Result<(), Violation> {
    let bounds = EntryBounds {
        raw_len: fields.raw_len.into(),
        literal_offset: fields.literal_offset.into(),
        literal_len: fields.literal_len.into(),
        frame_raw_len: frames.get(fields.frame as usize).map(|frame| frame.raw_len),
        depth: fields.depth.into(),
        // The index takes no more than it may.
        features: 0,
    };
    bounds.check()?;
    for operation in &list.operations {
        let kind = operation.kind().to_string();
        require(operation.check_known().is_ok(), || "operations of a known kind".into(), || kind)?;
        check_length(operation.len().into())?;
        if let Some((base, offset)) = operation.source() {
            check_base(base.into(), list.bases.len() as u64)?;
            check_offset(offset.into(), operation.len())?;
        }
    }
    check_totals(bounds.raw_len, bounds.literal_len, &list.operations)
}
