//! Whoever puts a container puts it with the class of its kind: data and its parity are cold, all else is not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fhrd::config::RepositoryConfig;
use fhrd::keep::{Copier, prune, recompress};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::cold::{add, set};
use fhrd::repo::container::{blob_name, parse_name};
use fhrd::repo::heal::heal;
use fhrd::repo::parity;
use fhrd::repo::snapshot;
use fhrd::store::{BlobKind, BlobName, BlobPrefix, Durable, MemoryStore, ParityShare, PutOptions, Store};

use crate::cold::{is_data, open, run_check};
use crate::double::{Double, double_store};
use crate::flips::{back_up, config};
use crate::input::write;
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

/// Remembers how each blob was put last.
#[derive(Default)]
struct Classes {
    store: Arc<MemoryStore>,
    put: Mutex<BTreeMap<BlobName, PutOptions>>,
}

double_store!(Classes);

impl Double for Classes {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn is_put_with(&self, name: &BlobName, options: PutOptions) {
        self.put.lock().unwrap().insert(name.clone(), options);
    }
}

impl Classes {
    /// Fails unless each blob that was put since the last call, and is there, has the class of its kind. Returns how
    /// many containers and parity blobs are cold.
    fn assert_right(&self, what: &str) -> usize {
        let put = std::mem::take(&mut *self.put.lock().unwrap());
        let there = |name: &BlobName| self.store.head(name).unwrap().is_some();
        let mut cold = 0;
        for (name, options) in put.iter().filter(|(name, _)| there(name)) {
            let container = match name.kind() {
                BlobKind::Container => Some(name.clone()),
                _ => name.protected().map(|hash| BlobName::hashed(BlobKind::Container, &hash)),
            };
            // Parity of a snapshot, a segment or a mark is of no container.
            let expected = container.is_some_and(|container| there(&container) && is_data(&self.store, &container));
            assert_eq!(options.is_cold, expected, "{what}: {name}");
            cold += usize::from(expected);
        }
        cold
    }

    /// The data containers.
    fn data(&self) -> Vec<BlobName> {
        let listed = self.store.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name);
        listed.filter(|name| is_data(&self.store, name)).collect()
    }

    fn flip(&self, name: &BlobName, at: impl Fn(usize) -> usize) {
        let mut bytes = self.store.get(name, 1 << 30).unwrap();
        let at = at(bytes.len());
        bytes[at] ^= 1;
        self.store.replace(name, &bytes);
    }

    fn delete_all(&self, kind: BlobKind) {
        let listed = self.store.list(kind.into()).unwrap();
        listed.iter().for_each(|blob| self.store.delete(&blob.name, Durable::OnReturn).unwrap());
    }
}

fn cold_repository(classes: &Arc<Classes>) -> Repository {
    let repository = Repository::init(classes.clone(), &RepositoryConfig::default()).unwrap();
    parity::set(&repository, ParityShare::new(300)).unwrap();
    set(&repository, true).unwrap();
    repository
}

fn assert_heals(classes: &Arc<Classes>, what: &str, expected: usize) {
    let repository = open(classes.clone());
    let report = run_check(&repository, true).unwrap();
    assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
    heal(&repository, &report.healable).unwrap();
    assert_eq!(classes.assert_right(what), expected, "{what}");
}

fn add_parity(classes: &Arc<Classes>) -> usize {
    parity::add(&open(classes.clone()), &Progress::default(), &Arc::default()).unwrap();
    classes.assert_right("parity add")
}

fn rewrites(classes: &Arc<Classes>, source: &Path) {
    recompress(&open(classes.clone()), &no_grace(), 1, &Arc::default()).unwrap();
    classes.assert_right("recompress");
    for named in snapshot::list(classes.store.as_ref()).unwrap().0.into_iter().skip(1) {
        snapshot::delete(classes.store.as_ref(), &named.id).unwrap();
    }
    prune(&open(classes.clone()), &no_grace(), &Arc::default()).unwrap();
    classes.assert_right("prune");
    back_up(&open(classes.clone()), source);
    classes.assert_right("a backup after a prune");
}

#[test]
fn whoever_puts_a_container_gives_it_the_class_of_its_kind() {
    let classes = Arc::<Classes>::default();
    let repository = cold_repository(&classes);
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(6));
    (0..4).for_each(|number| write(source.path().join(format!("{number}")), &random.text(30_000)));
    back_up(&repository, source.path());
    write(source.path().join("more"), &random.bytes(9000));
    back_up(&repository, source.path());
    let data = classes.data();
    assert_eq!(classes.assert_right("backup"), 2 * data.len(), "each with its parity");

    classes.delete_all(BlobKind::Parity);
    assert_eq!(add_parity(&classes), data.len());
    let parity = |name: &BlobName| BlobName::parity_of(&name.hash().unwrap());
    classes.store.replace(&parity(&data[0]), b"short");
    assert_eq!(add_parity(&classes), 1, "overwritten");

    classes.flip(&data[0], |len| len / 2);
    assert_heals(&classes, "a container that parity gives back", 1);
    classes.flip(&parity(&data[0]), |len| len - 1);
    assert_heals(&classes, "parity that is made again", 1);
    classes.delete_all(BlobKind::Parity);
    classes.flip(&data[0], |len| len - 1);
    assert_heals(&classes, "a container that its hot index gives back", 1);
    classes.delete_all(BlobKind::HotIndex);
    assert_heals(&classes, "hot indexes", 0);
    classes.delete_all(BlobKind::HotIndex);
    add(&open(classes.clone()), &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(classes.assert_right("cold add"), 0);
    let id = parse_name(&data[0]).unwrap();
    assert!(classes.store.head(&blob_name(&id)).unwrap().is_some());

    let target = Arc::<Classes>::default();
    let copied = cold_repository(&target);
    let (config, from) = (config(), open(classes.clone()));
    let mut copier = Copier::new(&from, &copied, &config).unwrap();
    for named in snapshot::list(from.store.as_ref()).unwrap().0 {
        copier.copy(&named, false, &Progress::default(), &Arc::default()).unwrap();
    }
    assert!(target.assert_right("copy") >= 2);
    fs::remove_file(source.path().join("more")).unwrap();
    rewrites(&classes, source.path());
    assert!(!classes.store.list(BlobPrefix::All).unwrap().is_empty());
}
