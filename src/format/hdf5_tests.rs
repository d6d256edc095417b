//! HDF5 files of h5py with old and with new groups (`tests/fixtures/formats/make.py`), and false ones.

use super::hostile_tests::{reason, reason_of_long};
use super::samples_tests::{found, listed, model, promises, rows_of, zip_of};
use super::*;

pub(super) const OLD_HDF5: &[u8] = include_bytes!("../../tests/fixtures/formats/old.h5");
pub(super) const NEW_HDF5: &[u8] = include_bytes!("../../tests/fixtures/formats/new.h5");

fn bytes_of<const N: usize, const W: usize>(numbers: [[u8; W]; N]) -> Vec<u8> {
    numbers.concat()
}

#[test]
fn datasets_of_old_and_new_groups_are_found() {
    for file in [OLD_HDF5, NEW_HDF5] {
        let model = model(file);
        let rows = rows_of(&model, file);
        let row = |name: &str| rows.iter().find(|row| row.0 == name).cloned().unwrap();
        assert_eq!((model.format, rows.len()), ("hdf5", 2));
        // The header of `alias` and `dense/vars/0` is one. Groups are read in the order of their names or links.
        let weights = bytes_of([0f32, 1.0, 2.0, 3.0, 4.0, 5.0].map(f32::to_le_bytes));
        let name = if rows.iter().any(|row| row.0 == "alias") { "alias" } else { "dense/vars/0" };
        assert_eq!(row(name), (name.into(), "F32", vec![2, 3], weights));
        assert_eq!(row("dense/vars/1"), ("dense/vars/1".into(), "F16", vec![3], vec![0, 0, 0, 0x3c, 0, 0x40]));
        // What is no weights is only listed.
        let listed = listed(file);
        let of = |name: &str| listed.iter().find(|row| row.0 == name).map(|row| row.1.as_str());
        assert_eq!((of("step"), of("name"), of("swapped")), (Some("I64"), Some("other"), Some("F64 (big-endian)")));
        assert_eq!(of("packed"), Some("its values are not stored in one range"));
        assert_eq!((of("text"), of("unwritten")), (None, None));
    }
}

#[test]
fn archives_of_keras_have_the_tensors_of_their_weights() {
    let members: &[(&str, &[u8], u16)] = &[("config.json", b"{}", 0), ("model.weights.h5", OLD_HDF5, 0)];
    let bytes = zip_of(members, false);
    let (archive, inner) = (model(&bytes), model(OLD_HDF5));
    assert_eq!((archive.format, rows_of(&archive, &bytes)), ("keras", rows_of(&inner, OLD_HDF5)));
    assert_eq!(listed(&bytes), listed(OLD_HDF5));
    // Compressed, and by the name alone.
    assert_eq!(found(&zip_of(&[("model.weights.h5", OLD_HDF5, 8)], false)), Recognition::Opaque);
    assert_eq!(found(&zip_of(&[("model.weights.h5", b"no weights", 0)], false)), Recognition::Opaque);
}

/// A copy in which `found` at its only place is `put`.
fn with(file: &[u8], found: &[u8], put: &[u8]) -> Vec<u8> {
    let offsets: Vec<usize> =
        file.windows(found.len()).enumerate().filter(|(_, at)| *at == found).map(|(at, _)| at).collect();
    assert_eq!(offsets.len(), 1, "{offsets:?}");
    let mut copy = file.to_vec();
    copy[offsets[0]..offsets[0] + put.len()].copy_from_slice(put);
    copy
}

#[test]
fn false_hdf5_files_are_defective() {
    for file in [OLD_HDF5, NEW_HDF5] {
        assert!(reason(&file[..file.len() - 1]).contains("expected a file of"), "{}", reason(&file[..file.len() - 1]));
        // Offset and size of `dense/vars/1`, whose values follow those of `alias`.
        let offset_and_len = bytes_of([2072u64, 6].map(u64::to_le_bytes));
        let of = |offset: u64, len: u64| {
            reason(&with(file, &offset_and_len, &bytes_of([offset, len].map(u64::to_le_bytes))))
        };
        assert!(of(2072, 7).contains("expected the bytes of F16 [3] for tensor \"dense/vars/1\", found 7"));
        assert!(of(1 << 40, 6).contains("within"));
        assert!(of(u64::MAX - 1, 6).contains("within"));
        assert!(of(2070, 6).contains("after"));
        // Bytes of addresses.
        let at = if file[8] == 0 { 13 } else { 9 };
        assert!(reason(&[&file[..at], &[3], &file[at + 1..]].concat()).contains("found 3 and 8"));
    }
}

#[test]
fn truncated_and_changed_hdf5_files_break_no_promise() {
    for file in [OLD_HDF5, NEW_HDF5] {
        for at in (0..file.len()).step_by(3) {
            for value in [0, 1, 0xff] {
                let changed = [&file[..at], &[value], &file[at + 1..]].concat();
                if let Recognition::Model(model) = found(&changed) {
                    promises(&model, changed.len() as u64);
                }
            }
        }
    }
}

#[test]
fn a_group_that_contains_itself_is_read_once() {
    // The root group of the new file links to its own header.
    let root = NEW_HDF5[36..44].to_vec();
    let step = NEW_HDF5.windows(4).position(|bytes| bytes == b"step").unwrap();
    let circle = [&NEW_HDF5[..step + 4], &root, &NEW_HDF5[step + 12..]].concat();
    let names: Vec<String> = listed(&circle).into_iter().map(|row| row.0).collect();
    assert!(names.len() == 5 && !names.contains(&"step".to_string()), "{names:?}");
}

#[test]
fn long_continuations_of_a_header_are_bounded() {
    // A header whose only message continues with itself.
    let superblock =
        [&b"\x89HDF\r\n\x1a\n\x02\x08\x08\0"[..], &bytes_of([0, u64::MAX, 1 << 40, 48].map(u64::to_le_bytes))];
    let header = [
        &b"\0\0\0\0\x01\0\x01\0\x01\0\0\0\x18\0\0\0\0\0\0\0\x10\0\x10\0\0\0\0\0"[..],
        &bytes_of([64u64, 24].map(u64::to_le_bytes)),
    ];
    let file = [superblock.concat(), header.concat()].concat();
    assert!(reason_of_long(file, 1 << 40, 2 << 30).contains("blocks"));
}
