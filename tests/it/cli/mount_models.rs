//! A mount as a home for models: mapped files, the cache of a Hub client, holes, and what the kernel asks for.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command};

use super::fixture::{Home, code};
use super::mount::{Mount, can_mount};
use super::tree::noise;
use crate::normal::Normal;
use crate::weights::{Tensor, bfloat16, safetensors};

const MIB: usize = 1 << 20;

/// Compares two files in a process of its own, by mappings: `sequential`, or pieces at random with this seed.
const COMPARE: &str = "
import mmap, random, sys
expected, found, order = sys.argv[1:]
with open(expected, 'rb') as a, open(found, 'rb') as b:
    a, b = (mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in (a, b))
    assert len(a) == len(b)
    if order == 'sequential':
        ranges = [(at, at + 300_000) for at in range(0, len(a), 300_000)]
    else:
        source = random.Random(int(order))
        ranges = [(at, at + source.randrange(200_000)) for at in (source.randrange(len(a)) for _ in range(300))]
    for start, end in ranges:
        assert a[start:end] == b[start:end], (start, end)
";

fn comparison(expected: &Path, found: &Path, order: &str) -> Child {
    Command::new("python3").args(["-c", COMPARE]).args([expected, found]).arg(order).spawn().unwrap()
}

/// A model of `layers` MiB.
fn model(seed: u64, layers: u64) -> Vec<u8> {
    let mut normal = Normal::new(seed);
    let layer = |number| {
        let values = bfloat16(&normal.weights(MIB / 2, 0.02));
        Tensor::new(&format!("layers.{number}.weight"), "BF16", &[512, 1024], values)
    };
    safetensors(&(0..layers).map(layer).collect::<Vec<_>>())
}

/// What a process has counted in `/proc/PID/io`.
fn counted(mount: &Mount, key: &str) -> u64 {
    let counts = std::fs::read_to_string(format!("/proc/{}/io", mount.child.id())).unwrap();
    let value = counts.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).unwrap();
    value.parse().unwrap()
}

#[test]
fn processes_that_map_a_model_find_its_bytes_in_any_order() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    home.write("base/model.safetensors", &model(1, 9));
    home.backup(&["base"]);
    let mount = Mount::start(&home, &[]);
    let (expected, found) =
        (home.path("base/model.safetensors"), mount.directory.join("latest/base/model.safetensors"));
    let orders = ["1", "sequential", "2", "sequential"];
    let children: Vec<Child> = orders.iter().map(|order| comparison(&expected, &found, order)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_hub_cache_works_through_its_relative_links() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let (revision, digest) = ("0123456789012345678901234567890123456789", "c0ffee".repeat(10));
    let cache = home.path("hub/models--org--tiny");
    let weights = model(2, 2);
    home.write(&format!("hub/models--org--tiny/blobs/{digest}"), &weights);
    home.write("hub/models--org--tiny/blobs/5eed", b"{}");
    home.write("hub/models--org--tiny/refs/main", revision.as_bytes());
    home.write(&format!("hub/models--org--tiny/.no_exist/{revision}/adapter_config.json"), b"");
    let snapshot = cache.join("snapshots").join(revision);
    std::fs::create_dir_all(snapshot.join("sub")).unwrap();
    symlink(format!("../../blobs/{digest}"), snapshot.join("model.safetensors")).unwrap();
    symlink("../../../blobs/5eed", snapshot.join("sub/config.json")).unwrap();
    home.backup(&["hub"]);
    let mount = Mount::start(&home, &[]);
    let mounted = mount.directory.join("latest/hub/models--org--tiny");
    let main = std::fs::read_to_string(mounted.join("refs/main")).unwrap();
    let from = mounted.join("snapshots").join(&main);
    assert!(std::fs::read(from.join("model.safetensors")).unwrap() == weights);
    assert_eq!(std::fs::read(from.join("sub/config.json")).unwrap(), b"{}");
    let link = std::fs::read_link(from.join("model.safetensors")).unwrap();
    assert_eq!(link, Path::new("../../blobs").join(&digest));
    let resolved = from.join("model.safetensors").canonicalize().unwrap();
    assert_eq!(resolved, mounted.canonicalize().unwrap().join("blobs").join(&digest));
    assert_eq!(std::fs::metadata(from.join("model.safetensors")).unwrap().len(), weights.len() as u64);
    let absent = mounted.join(".no_exist").join(&main).join("adapter_config.json");
    assert_eq!(std::fs::metadata(absent).unwrap().len(), 0);
    let refused = std::fs::write(mounted.join("refs/other"), b"x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn what_the_kernel_has_read_stays_when_a_file_is_opened_again() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    home.write("model.bin", &noise(3, 16 * MIB));
    home.backup(&["model.bin"]);
    let mount = Mount::start(&home, &[]);
    let mounted = mount.directory.join("latest/model.bin");
    let sent = |_: u32| {
        let before = counted(&mount, "wchar");
        let mut file = File::open(&mounted).unwrap();
        std::io::copy(&mut file, &mut std::io::sink()).unwrap();
        counted(&mount, "wchar") - before
    };
    let (first, second) = (sent(1), sent(2));
    assert!(first >= 16 * MIB as u64, "{first}");
    assert!(second < 64 << 10, "{second} bytes were asked for again");
}

#[test]
fn a_new_backup_changes_nothing_under_an_open_file() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let (old, new) = (noise(5, 6 * MIB), noise(6, 6 * MIB));
    home.write("model.bin", &old);
    home.backup(&["model.bin"]);
    let mount = Mount::start(&home, &[]);
    let path = mount.directory.join("latest/model.bin");
    let file = File::open(&path).unwrap();
    let mut head = vec![0; MIB];
    file.read_exact_at(&mut head, 0).unwrap();
    assert!(head == old[..MIB]);
    home.write("model.bin", &new);
    home.backup(&["model.bin"]);
    let mut all = vec![0; old.len()];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == old, "the file that is open");
    home.write("before.bin", &old);
    assert!(comparison(&home.path("before.bin"), &path, "sequential").wait().unwrap().success(), "`latest` stays");
    drop(mount);
    let mount = Mount::start(&home, &[]);
    assert!(std::fs::read(mount.directory.join("latest/model.bin")).unwrap() == new, "the next mount has it");
}

#[test]
fn blocks_of_a_sparse_file_are_those_of_its_data() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    home.write("src/whole", &noise(7, MIB));
    home.write("src/sparse", b"");
    let file = File::options().write(true).open(home.path("src/sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&noise(8, MIB), 32 << 20).unwrap();
    drop(file);
    assert_eq!(code(&home.run(&["backup", "src"])), 0);
    let mount = Mount::start(&home, &[]);
    let blocks = |name: &str| std::fs::metadata(mount.directory.join("latest/src").join(name)).unwrap().blocks();
    assert_eq!(blocks("whole"), (MIB / 512) as u64);
    let sparse = blocks("sparse");
    assert!((2048..8192).contains(&sparse), "{sparse}");
}
