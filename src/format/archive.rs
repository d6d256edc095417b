//! Zip archives of tensors: npz, and the files of `torch.save`. Other archives are opaque.

use std::collections::BTreeMap;

use super::array::{Array, Listed};
use super::read::{Fault, Window};
use super::tensor::{Recognised, Spans, settle};
use super::zip::{LOCAL_BYTES, LOCAL_MAGIC, Member, members};
use super::{Format, npy, torch, torch_views};

/// Name of archives of arrays.
const NPZ: &str = "npz";

/// Archives with stored members; `npz` and `torch` in what is recognised.
pub struct Archive;

impl Format for Archive {
    fn name(&self) -> &'static str {
        "zip"
    }

    fn may_be(&self, head: &[u8], _: u64) -> bool {
        head.starts_with(LOCAL_MAGIC)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, Fault> {
        let members = match members(window) {
            // A damaged archive of something else is no concern of a reader of tensors.
            Err(Fault::Defective(_)) if !begins_with_tensors(window)? => return Ok(None),
            members => members?,
        };
        if let Some(root) = torch::root(&members) {
            return torch::find(window, &members, &root);
        }
        arrays(window, &members)
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(Listed)) -> Result<Option<&'static str>, Fault> {
        let members = match members(window) {
            Err(Fault::Defective(_)) if !begins_with_tensors(window)? => return Ok(None),
            members => members?,
        };
        match torch::root(&members) {
            Some(root) => torch_views::list(window, &members, &root, visit),
            None => list_arrays(window, &members, visit),
        }
    }
}

/// The arrays of an npz, those too that are stored compressed and cannot be read where they lie.
fn list_arrays(
    window: Window,
    members: &[Member],
    visit: &mut dyn FnMut(Listed),
) -> Result<Option<&'static str>, Fault> {
    let mut spans = Spans::new(window.len());
    let mut count = 0;
    for member in members.iter().filter(|member| member.name.ends_with(b".npy")) {
        let name = array_name(member);
        if !member.is_stored {
            spans.add(&name, 0, 0)?;
            visit(Listed::Hidden {
                name,
                reason: "it is stored compressed in its archive, and only read plain".into(),
            });
            count += 1;
            continue;
        }
        let start = member.start(window)?;
        let Some(content) = window.part(start, member.len) else { continue };
        if !npy::Npy.may_be(&content.head(super::HEAD_BYTES)?, content.len()) {
            continue;
        }
        let listed = match npy::listed(content, name).map_err(|fault| in_member(member, fault))? {
            Listed::Array(array) => Listed::Array(Array { offset: start + array.offset, ..array }),
            hidden => hidden,
        };
        spans.add(listed.name(), start, member.len)?;
        visit(listed);
        count += 1;
    }
    spans.settle()?;
    Ok((count > 0).then_some(NPZ))
}

/// What an array is called: its member without the extension.
fn array_name(member: &Member) -> String {
    let label = member.label();
    label.strip_suffix(".npy").unwrap_or(&label).to_string()
}

fn in_member(member: &Member, fault: Fault) -> Fault {
    match fault {
        Fault::Defective(reason) => Fault::Defective(format!("member {:?}: {reason}", member.label())),
        io => io,
    }
}

/// Whether the first member's name is one of a tensor archive.
fn begins_with_tensors(window: Window) -> Result<bool, Fault> {
    let head = window.head(super::HEAD_BYTES)?;
    let name = head.get(LOCAL_BYTES..).unwrap_or_default();
    let len = head.get(26..28).and_then(|len| len.first_chunk()).map_or(0, |len| usize::from(u16::from_le_bytes(*len)));
    let name = &name[..len.min(name.len())];
    Ok(name.ends_with(b".npy") || name.ends_with(b"/data.pkl"))
}

/// The stored arrays of an npz.
fn arrays(window: Window, members: &[Member]) -> Result<Option<Recognised>, Fault> {
    let mut tensors = Vec::new();
    for member in members.iter().filter(|member| member.is_stored && member.name.ends_with(b".npy")) {
        let start = member.start(window)?;
        let Some(content) = window.part(start, member.len) else { continue };
        if !npy::Npy.may_be(&content.head(super::HEAD_BYTES)?, content.len()) {
            continue;
        }
        let array = npy::array(content, array_name(member)).map_err(|fault| in_member(member, fault))?;
        if let Some(mut tensor) = array {
            tensor.offset += start;
            tensors.push(tensor);
        }
    }
    if tensors.is_empty() {
        return Ok(None);
    }
    settle(NPZ, tensors, BTreeMap::new(), window.len())
}
