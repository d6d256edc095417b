//! Zip archives of tensors: npz files, the files of `torch.save` and those of Keras. Other archives are opaque.

use std::collections::BTreeMap;

use super::array::ListedArray;
use super::read::{FormatError, Window};
use super::tensor::{ListingChecks, Recognised, checked_model};
use super::zip_members::{LOCAL_BYTES, LOCAL_MAGIC, ZipMember, members};
use super::{Format, hdf5, npy, torch, torch_views};

/// Name of the format of archives of arrays.
const NPZ: &str = "npz";
/// Name of the format of Keras's archives.
const KERAS: &str = "keras";
/// Member of Keras's archives with the weights: an HDF5 file.
const KERAS_WEIGHTS: &[u8] = b"model.weights.h5";

/// Zip archives. Recognised content has the format name `npz`, `torch` or `keras`.
pub struct Zip;

impl Format for Zip {
    fn name(&self) -> &'static str {
        "zip"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["npz", "pt", "pth", "bin", "ckpt", "keras"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        head.starts_with(LOCAL_MAGIC)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        let members = match members(window) {
            // Damaged archives of other content are opaque, not defective.
            Err(FormatError::Defective(_)) if !begins_with_tensors(window)? => return Ok(None),
            members => members?,
        };
        if let Some(root) = torch::root(&members) {
            return torch::find(window, &members, &root);
        }
        if let Some((start, weights)) = keras_weights(window, &members)? {
            let Some(mut model) = hdf5::Hdf5.find(weights)? else { return Ok(None) };
            model.tensors.iter_mut().for_each(|tensor| tensor.offset += start);
            return Ok(Some(Recognised { format: KERAS, ..model }));
        }
        arrays(window, &members)
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        let members = match members(window) {
            Err(FormatError::Defective(_)) if !begins_with_tensors(window)? => return Ok(None),
            members => members?,
        };
        if let Some(root) = torch::root(&members) {
            return torch_views::list(window, &members, &root, visit);
        }
        if let Some((start, weights)) = keras_weights(window, &members)? {
            let listed = hdf5::Hdf5.list(weights, &mut |array| visit(array.shifted(start)))?;
            return Ok(listed.map(|_| KERAS));
        }
        list_arrays(window, &members, visit)
    }
}

/// The weights of a Keras archive, and their offset.
fn keras_weights<'a>(window: Window<'a>, members: &[ZipMember]) -> Result<Option<(u64, Window<'a>)>, FormatError> {
    let Some(member) = members.iter().find(|member| member.is_stored && member.name == KERAS_WEIGHTS) else {
        return Ok(None);
    };
    let start = member.start(window)?;
    let Some(weights) = window.part(start, member.len) else { return Ok(None) };
    Ok(hdf5::Hdf5.matches_head(&weights.head(super::HEAD_BYTES)?).then_some((start, weights)))
}

/// The arrays of an npz file. Compressed ones are listed as unreadable.
fn list_arrays(
    window: Window,
    members: &[ZipMember],
    visit: &mut dyn FnMut(ListedArray),
) -> Result<Option<&'static str>, FormatError> {
    let mut checks = ListingChecks::new(window.len());
    let mut count = 0;
    for member in members.iter().filter(|member| member.name.ends_with(b".npy")) {
        let name = array_name(member);
        if !member.is_stored {
            checks.add(&name, 0, 0)?;
            visit(ListedArray::Unreadable {
                name,
                reason: "it is stored compressed in its archive, and only uncompressed members are read".into(),
            });
            count += 1;
            continue;
        }
        let start = member.start(window)?;
        let Some(content) = window.part(start, member.len) else { continue };
        if !npy::Npy.matches_head(&content.head(super::HEAD_BYTES)?) {
            continue;
        }
        let array = npy::listed(content, name).map_err(|fault| in_member(member, fault))?.shifted(start);
        checks.add(array.name(), start, member.len)?;
        visit(array);
        count += 1;
    }
    checks.finish()?;
    Ok((count > 0).then_some(NPZ))
}

/// Name of an array: the name of its member without the extension.
fn array_name(member: &ZipMember) -> String {
    let label = member.label();
    label.strip_suffix(".npy").unwrap_or(&label).to_string()
}

fn in_member(member: &ZipMember, fault: FormatError) -> FormatError {
    match fault {
        FormatError::Defective(reason) => FormatError::Defective(format!("member {:?}: {reason}", member.label())),
        io => io,
    }
}

/// Whether the first member has the name of a member of a tensor archive.
fn begins_with_tensors(window: Window) -> Result<bool, FormatError> {
    let head = window.head(super::HEAD_BYTES)?;
    let name = head.get(LOCAL_BYTES..).unwrap_or_default();
    let len = head.get(26..28).and_then(|len| len.first_chunk()).map_or(0, |len| usize::from(u16::from_le_bytes(*len)));
    let name = &name[..len.min(name.len())];
    Ok(name.ends_with(b".npy") || name.ends_with(b"/data.pkl"))
}

/// The uncompressed arrays of an npz file.
fn arrays(window: Window, members: &[ZipMember]) -> Result<Option<Recognised>, FormatError> {
    let mut tensors = Vec::new();
    for member in members.iter().filter(|member| member.is_stored && member.name.ends_with(b".npy")) {
        let start = member.start(window)?;
        let Some(content) = window.part(start, member.len) else { continue };
        if !npy::Npy.matches_head(&content.head(super::HEAD_BYTES)?) {
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
    checked_model(NPZ, tensors, BTreeMap::new(), window.len())
}
