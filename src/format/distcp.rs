//! The `.distcp` files of `torch.distributed.checkpoint`: archives of `torch.save`, one after another without gaps.
//!
//! 1. The archives are found from the end of the file: the directory of the last one tells where it begins, and there
//!    the archive before it ends. The separate `.metadata` file, a pickle of these offsets, is not needed.
//! 2. Every archive is read as a file of `torch.save` is, within its own bytes. So all reads together are bounded by
//!    the length of the file.
//! 3. A tensor's name is the number of its archive, from 0, a colon, and its name within the archive. Names of
//!    the model are only in `.metadata`.
//!
//! A file that is a single archive is left to [`super::zip`]. Checkpoints that were written as safetensors are ordinary
//! files of that format.

use std::collections::BTreeMap;

use super::array::ListedArray;
use super::read::{FormatError, Window};
use super::tensor::{Recognised, TENSORS_MAX, Tensor, checked_model};
use super::zip_members::{LOCAL_MAGIC, ZipMember, archive_len, members};
use super::{Format, torch, torch_views};

/// Name of the format.
const DISTCP: &str = "distcp";

/// Files of `torch.distributed.checkpoint`.
pub struct Distcp;

impl Format for Distcp {
    fn name(&self) -> &'static str {
        DISTCP
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["distcp"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        head.starts_with(LOCAL_MAGIC)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        let mut tensors = Vec::new();
        let is_distcp = each_archive(window, &mut |archive| {
            let Some(found) = torch::find(archive.window, &archive.members, &archive.root)? else { return Ok(()) };
            check_count(tensors.len() + found.tensors.len())?;
            for Tensor { name, dtype, shape, offset, len } in found.tensors {
                let (name, offset) = (format!("{}:{name}", archive.number), archive.start + offset);
                tensors.push(Tensor { name, dtype, shape, offset, len });
            }
            Ok(())
        })?;
        if !is_distcp || tensors.is_empty() {
            return Ok(None);
        }
        checked_model(DISTCP, tensors, BTreeMap::new(), window.len())
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        let mut count = 0;
        let is_distcp = each_archive(window, &mut |archive| {
            let number = archive.number.to_string();
            torch_views::list(archive.window, &archive.members, &archive.root, &mut |array| {
                count += 1;
                // The check below reports any more.
                if count <= TENSORS_MAX {
                    visit(array.within(&number, archive.start));
                }
            })?;
            check_count(count)
        })?;
        Ok((is_distcp && count > 0).then_some(DISTCP))
    }
}

/// One archive of the file.
struct DistcpArchive<'a> {
    /// Its number, from 0.
    number: usize,
    /// Offset of its first byte in the file.
    start: u64,
    /// Its bytes.
    window: Window<'a>,
    members: Vec<ZipMember>,
    /// Directory of its members, with its slash.
    root: Vec<u8>,
}

/// Passes all archives to `visit`, the first one first. Returns whether the file has this format.
fn each_archive<'a>(
    window: Window<'a>,
    visit: &mut dyn FnMut(DistcpArchive<'a>) -> Result<(), FormatError>,
) -> Result<bool, FormatError> {
    let Some(starts) = archive_starts(window)? else { return Ok(false) };
    let ends = starts.iter().skip(1).copied().chain([window.len()]);
    let mut entries = 0;
    for (number, (start, end)) in starts.iter().copied().zip(ends).enumerate() {
        let in_archive = |fault| match fault {
            FormatError::Defective(reason) => {
                FormatError::Defective(format!("archive {number} at byte {start}: {reason}"))
            }
            io => io,
        };
        let Some(window) = window.part(start, end - start) else { return Ok(false) };
        let members = members(window).map_err(in_archive)?;
        entries += members.len();
        check_count(entries)?;
        let Some(root) = torch::root(&members) else {
            // Other archives may follow one another, too.
            return if number == 0 {
                Ok(false)
            } else {
                FormatError::defective("expected a data.pkl, found none").map_err(in_archive)
            };
        };
        visit(DistcpArchive { number, start, window, members, root }).map_err(in_archive)?;
    }
    Ok(true)
}

/// Offsets of the archives in ascending order. `None` if the file is a single archive, or does not end with one.
fn archive_starts(window: Window) -> Result<Option<Vec<u64>>, FormatError> {
    let (mut starts, mut end) = (Vec::new(), window.len());
    while end > 0 {
        let before = window.part(0, end);
        let len = before.map_or(Ok(None), archive_len)?;
        let Some(start) = len.and_then(|len| end.checked_sub(len)) else {
            if starts.len() < 2 {
                return Ok(None);
            }
            return FormatError::defective(format!("expected the end of an archive at byte {end}, found other bytes"));
        };
        starts.push(start);
        check_count(starts.len())?;
        end = start;
    }
    starts.reverse();
    Ok((starts.len() > 1).then_some(starts))
}

fn check_count(count: usize) -> Result<(), FormatError> {
    if count > TENSORS_MAX {
        return FormatError::defective(format!("expected at most {TENSORS_MAX} archives, members and tensors"));
    }
    Ok(())
}
