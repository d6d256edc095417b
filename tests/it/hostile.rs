//! Repositories with hostile or foreign content: every checksum is right, but what it covers is not what fhrd writes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::inspect::check::{CheckReport, check};
use fhrd::metrics::Progress;
use fhrd::repo::container::HEADER_BYTES;
use fhrd::repo::snapshot;
use fhrd::restore::{RestoreReport, restore};
use fhrd::wire::checksum;

use crate::input::{TestRepository, write};
use crate::trees::Random;

fn restored(repository: &TestRepository, target: &Path) -> RestoreReport {
    let (repository, config) = (repository.open(), TestRepository::config());
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    restore(&repository, &config, &named, target, &Progress::default(), &Arc::default()).unwrap()
}

fn checked(repository: &TestRepository) -> CheckReport {
    let config = TestRepository::config();
    check(&repository.open(), &config, true, &Progress::default(), &Arc::default()).unwrap()
}

/// Edits the header of the only data container and returns the container's name.
fn edit_data_container(repository: &TestRepository, edit: impl FnOnce(&mut [u8])) -> String {
    let containers = repository.names().into_iter().filter(|name| name.starts_with("containers/"));
    let data: Vec<String> = containers.filter(|name| repository.read(name)[10] == 0).collect();
    let [name] = data.as_slice() else { panic!("{data:?}") };
    let mut bytes = repository.read(name);
    edit(&mut bytes[..HEADER_BYTES]);
    fs::write(repository.path().join(name), bytes).unwrap();
    name.clone()
}

#[test]
fn one_container_of_another_version_or_with_a_flipped_header_bit_costs_its_own_files() {
    let to_version_2 = |header: &mut [u8]| {
        header[8] = 2;
        let recorded = checksum::<16>(&[&header[..HEADER_BYTES - 16]]);
        header[HEADER_BYTES - 16..].copy_from_slice(&recorded);
    };
    let flip = |header: &mut [u8]| header[8] ^= 2;
    for (is_damage, edit) in [(false, &to_version_2 as &dyn Fn(&mut [u8])), (true, &flip)] {
        let (repository, source, target) =
            (TestRepository::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(source.path().join("first"), &Random(1).bytes(300_000));
        repository.backup(source.path(), &TestRepository::config());
        let name = edit_data_container(&repository, edit);
        let defects = checked(&repository).defects;
        let text = if is_damage { "damaged" } else { "unknown format version 2" };
        assert!(defects.iter().any(|defect| defect.contains(&name) && defect.contains(text)), "{defects:#?}");

        let lost = restored(&repository, &target.path().join("one"));
        assert_eq!((lost.files, lost.damaged, lost.problems), (0, u64::from(is_damage), u64::from(!is_damage)));

        // The backup goes on and stores the file again. The new container may have the name of the old one.
        write(source.path().join("second"), &Random(2).bytes(300_000));
        let report = repository.backup(source.path(), &TestRepository::config());
        assert_eq!((report.files, report.problems), (2, 0));
        let whole = restored(&repository, &target.path().join("two"));
        assert_eq!((whole.files, whole.damaged, whole.problems), (2, 0, 0), "{name}");
    }
}
