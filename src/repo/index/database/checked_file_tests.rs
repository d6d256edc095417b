//! Round trips of the checked file, and what damage it notices. Also refuses changes of the file, for other tests.

use std::cell::Cell;

use super::*;

thread_local! {
    /// Changes of files that are left to this thread before the system refuses them; `None` = any number.
    static CHANGES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Fails from the change on that [`allow_changes`] says, as if the process had ended there or the disk were full.
pub(in super::super) fn may_change() -> Result<()> {
    match CHANGES_LEFT.get() {
        Some(0) => Err(Error::new(ErrorKind::StorageFull, "no space is left for tests")),
        left => {
            CHANGES_LEFT.set(left.map(|left| left - 1));
            Ok(())
        }
    }
}

/// Allows this thread so many changes of files.
pub(in super::super) fn allow_changes(count: Option<u32>) {
    CHANGES_LEFT.set(count);
}

/// Changes of files that are left to this thread.
pub(in super::super) fn changes_left() -> Option<u32> {
    CHANGES_LEFT.get()
}

fn open(file: &File, repository: &str, key: Option<&SecretKey>) -> Result<CheckedFile> {
    CheckedFile::open(file.try_clone().unwrap(), repository, key)
}

#[test]
fn ranges_come_back_whatever_pages_they_touch() {
    for key in [None, Some(SecretKey::new([7; 32]))] {
        let file = tempfile::tempfile().unwrap();
        let checked = open(&file, "a", key.as_ref()).unwrap();
        checked.set_len(8 * PAGE_BYTES as u64).unwrap();
        let mut expected = vec![0; 8 * PAGE_BYTES];
        for (number, (offset, len)) in
            [(0, 320), (0, 4096), (4096, 8192), (5000, 10_000), (100, 1), (3 * 4096 - 1, 2), (6 * 4096, 2 * 4096)]
                .into_iter()
                .enumerate()
        {
            let bytes = vec![number as u8 + 1; len];
            expected[offset..offset + len].copy_from_slice(&bytes);
            checked.write(offset as u64, &bytes).unwrap();
        }
        let again = open(&file, "a", key.as_ref()).unwrap();
        assert_eq!(again.len().unwrap(), 8 * PAGE_BYTES as u64);
        for (offset, len) in [(0, 4 * 4096), (4095, 2), (5000, 9000), (6 * 4096, 8192), (0, 0)] {
            let mut read = vec![0; len];
            again.read(offset as u64, &mut read).unwrap();
            assert!(read == expected[offset..offset + len], "{offset}, {len}");
        }
        let error = again.read(8 * 4096 - 1, &mut [0; 2]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        // Page 5 was never written.
        assert_eq!(again.read(5 * 4096, &mut [0; 10]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn every_flipped_bit_of_a_page_and_a_page_in_another_place_is_damage() {
    for key in [None, Some(SecretKey::new([7; 32]))] {
        let file = tempfile::tempfile().unwrap();
        let checked = open(&file, "a", key.as_ref()).unwrap();
        checked.set_len(3 * PAGE_BYTES as u64).unwrap();
        for number in 0..3 {
            checked.write(number * PAGE_BYTES as u64, &[9; PAGE_BYTES]).unwrap();
        }
        let slot = checked.read_slot(1).unwrap();
        let mut page = [0; PAGE_BYTES];
        let used = if key.is_some() { NONCE_BYTES + TAG_BYTES } else { CHECKSUM_BYTES + 1 };
        for at in (0..PAGE_BYTES).step_by(97).chain(PAGE_BYTES..PAGE_BYTES + used) {
            let mut damaged = slot;
            damaged[at] ^= 1 << (at % 8);
            file.write_all_at(&damaged, position(1)).unwrap();
            assert_eq!(checked.read(4096, &mut page).unwrap_err().kind(), ErrorKind::InvalidData, "byte {at}");
        }
        file.write_all_at(&checked.read_slot(2).unwrap(), position(1)).unwrap();
        assert_eq!(checked.read(4096, &mut page).unwrap_err().kind(), ErrorKind::InvalidData);
        file.write_all_at(&slot, position(1)).unwrap();
        checked.read(4096, &mut page).unwrap();
        assert_eq!(page, [9; PAGE_BYTES]);
        file.set_len(position(3) - 1).unwrap();
        assert_eq!(checked.len().unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn a_file_of_another_repository_or_format_is_refused() {
    let file = tempfile::tempfile().unwrap();
    open(&file, "a", None).unwrap();
    open(&file, "a", None).unwrap();
    assert_eq!(open(&file, "b", None).unwrap_err().kind(), ErrorKind::InvalidData);
    for at in 0..HEADER_BYTES as u64 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        assert_eq!(open(&file, "a", None).unwrap_err().kind(), ErrorKind::InvalidData, "byte {at}");
        file.write_all_at(&byte, at).unwrap();
    }
    file.set_len(20).unwrap();
    assert_eq!(open(&file, "a", None).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn an_encrypted_file_has_no_byte_of_its_pages() {
    let file = tempfile::tempfile().unwrap();
    let checked = open(&file, "a", Some(&SecretKey::new([7; 32]))).unwrap();
    checked.set_len(PAGE_BYTES as u64).unwrap();
    checked.write(0, &[b'x'; PAGE_BYTES]).unwrap();
    let slot = checked.read_slot(0).unwrap();
    assert!(!slot.windows(4).any(|window| window == b"xxxx"));
    assert!(open(&file, "a", Some(&SecretKey::new([8; 32]))).unwrap().read(0, &mut [0; 8]).is_err());
    assert!(open(&file, "a", None).unwrap().read(0, &mut [0; 8]).is_err());
}
