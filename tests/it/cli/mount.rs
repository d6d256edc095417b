//! `mount` with the kernel: what is copied out of it, random reads, and its ends.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{Home, code, stderr};
use super::tree::{describe, noise, plant};

/// A mount, which ends with the test.
pub struct Mount {
    pub child: Child,
    pub directory: PathBuf,
}

/// Whether the kernel offers FUSE here. Without it, a test says so and tests nothing.
pub fn can_mount() -> bool {
    let offered = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !offered {
        eprintln!("NOT TESTED: /dev/fuse cannot be opened here");
    }
    offered
}

impl Mount {
    pub fn start(home: &Home, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(home.path("mnt")).unwrap();
        let mut command = home.command(&[&["mount", "mnt", "--json"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("\"mounted\""), "{line}");
        Mount { child, directory: home.path("mnt") }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(self.directory.to_str().unwrap())
    }

    fn unmount(&self) -> bool {
        Command::new("umount").arg(&self.directory).status().unwrap().success()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(&self.directory).status();
        }
    }
}

#[test]
fn a_copy_out_of_a_mount_is_what_a_restore_gives() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    plant(&home.path("tree"));
    home.backup(&["tree", "--tag", "a/b"]);
    let mut mount = Mount::start(&home, &[]);
    let from = mount.directory.join("latest/tree");
    std::fs::create_dir(home.path("copied")).unwrap();
    let copied = Command::new("cp").arg("-a").arg(&from).arg(home.path("copied")).status().unwrap();
    assert!(copied.success());
    let (expected, found) = (describe(&home.path("tree")), describe(&home.path("copied/tree")));
    for (path, expected) in &expected {
        assert_eq!(found.get(path), Some(expected), "{}", path.display());
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(std::fs::read_dir(mount.directory.join("tags/a_b")).unwrap().count(), 2);
    let refused = std::fs::write(from.join("new"), b"x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);

    mount.signal(rustix::process::Signal::INT);
    let started = Instant::now();
    assert!(mount.child.wait().unwrap().success());
    assert!(started.elapsed() < Duration::from_secs(10) && !mount.is_mounted());
}

#[test]
fn random_reads_of_a_disk_image_are_right_and_umount_ends_the_server() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let mut image = noise(1, 12 << 20);
    image[3 << 20..7 << 20].fill(0);
    home.write("disk.img", &image);
    home.backup(&["disk.img"]);
    let mut mount = Mount::start(&home, &["--host", "absent"]);
    assert!(!mount.directory.join("latest").exists(), "no snapshot passes");
    assert!(mount.unmount() && mount.child.wait().unwrap().success());

    let mut mount = Mount::start(&home, &[]);
    let file = std::fs::File::open(mount.directory.join("latest/disk.img")).unwrap();
    let offsets = noise(2, 8 * 300);
    for offset in offsets.chunks_exact(8) {
        let offset = u64::from_le_bytes(offset.try_into().unwrap()) as usize % (image.len() - 4096);
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, offset as u64).unwrap();
        assert_eq!(block, image[offset..offset + 4096], "{offset}");
    }
    drop(file);
    assert!(mount.unmount() && mount.child.wait().unwrap().success());
    assert!(!mount.is_mounted());
}

#[test]
fn a_killed_server_leaves_nothing_that_umount_cannot_clear() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    home.write("file", b"x");
    home.backup(&["file"]);
    let mut mount = Mount::start(&home, &[]);
    assert_eq!(std::fs::read(mount.directory.join("latest/file")).unwrap(), b"x");
    mount.signal(rustix::process::Signal::KILL);
    mount.child.wait().unwrap();
    assert!(std::fs::read(mount.directory.join("latest/file")).is_err());
    assert!(mount.unmount() && !mount.is_mounted());
    assert_eq!(std::fs::read_dir(&mount.directory).unwrap().count(), 0);
}

#[test]
fn ctrl_c_unmounts_although_a_file_is_open() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    home.write("file", &noise(1, 100_000));
    home.backup(&["file"]);
    let mut mount = Mount::start(&home, &[]);
    let file = std::fs::File::open(mount.directory.join("latest/file")).unwrap();
    mount.signal(rustix::process::Signal::INT);
    let started = Instant::now();
    assert!(mount.child.wait().unwrap().success());
    assert!(started.elapsed() < Duration::from_secs(10) && !mount.is_mounted());
    assert_eq!(std::fs::read_dir(&mount.directory).unwrap().count(), 0);
    drop(file);
}

#[test]
fn newer_snapshots_appear_while_a_file_is_open() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    home.write("file", b"old");
    home.backup(&["file"]);
    let mount = Mount::start(&home, &[]);
    let count = |what: &str| std::fs::read_dir(mount.directory.join(what)).unwrap().count();
    let latest = || std::fs::read(mount.directory.join("latest/file")).unwrap();
    let open = std::fs::File::open(mount.directory.join("latest/file")).unwrap();
    assert_eq!((count("ids"), latest()), (1, b"old".to_vec()));
    home.write("file", b"newer");
    home.backup(&["file"]);
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!((count("ids"), latest()), (2, b"newer".to_vec()));
    let mut bytes = [0; 3];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"old");
}

#[test]
fn a_mount_over_the_repository_is_refused() {
    let home = Home::new();
    home.write("file", b"x");
    home.backup(&["file"]);
    for directory in ["data", "data/fhrd/repository", "data/fhrd/repository/containers"] {
        let output = home.run(&["mount", directory]);
        assert_eq!(code(&output), 1);
        assert!(stderr(&output).contains("the repository is there"), "{}", stderr(&output));
    }
    assert_eq!(code(&home.run(&["mount", "absent"])), 1);
    assert_eq!(code(&home.run(&["mount"])), 2);
}

#[test]
fn holes_of_files_are_found_and_survive_a_copy() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    home.write("src/sparse", b"");
    let file = std::fs::File::options().write(true).open(home.path("src/sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&[7; 5000], 32 << 20).unwrap();
    drop(file);
    assert_eq!(code(&home.run(&["backup", "src"])), 0);
    let mount = Mount::start(&home, &[]);
    let mounted = std::fs::File::open(mount.directory.join("latest/src/sparse")).unwrap();
    use rustix::fs::{SeekFrom, seek};
    assert_eq!(seek(&mounted, SeekFrom::Hole(0)).unwrap(), 0);
    let data = seek(&mounted, SeekFrom::Data(0)).unwrap();
    assert!((1 << 20..=32 << 20).contains(&data), "{data}");
    let after = seek(&mounted, SeekFrom::Hole(data)).unwrap();
    assert!((32 << 20..40 << 20).contains(&after), "{after}");
    assert!(seek(&mounted, SeekFrom::Data(after)).is_err() && seek(&mounted, SeekFrom::Data(64 << 20)).is_err());
    let copied = Command::new("cp").arg(mount.directory.join("latest/src/sparse")).arg(home.path("copy")).status();
    assert!(copied.unwrap().success());
    assert!(home.read("copy") == home.read("src/sparse"));
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(home.path("copy")).unwrap());
    assert!(blocks * 512 < 8 << 20, "{blocks}");
}
