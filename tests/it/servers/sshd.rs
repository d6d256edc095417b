//! OpenSSH's server on this machine, with keys and configuration of its own.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fhrd::store::StoreOptions;

use super::process::{ServerProcess, find_program, free_port, not_run};

/// A running `sshd`, and what `ssh` needs to reach it.
pub struct Sshd {
    directory: tempfile::TempDir,
    port: u16,
    process: Option<ServerProcess>,
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{program}: {status}");
}

impl Sshd {
    /// Starts `sshd`, whose SFTP server gets `arguments`. `None`, and NOT RUN for `test`, if it is not installed.
    pub fn start(test: &str, arguments: &str) -> Option<Self> {
        let server = find_program("FHRD_TEST_SSHD", &["/usr/sbin/sshd"]);
        if server.and(find_program("FHRD_TEST_SSH", &["/usr/bin/ssh"])).is_none() {
            not_run(test, "OpenSSH's server is not installed (Debian: openssh-server)");
            return None;
        }
        let mut sshd = Sshd { directory: tempfile::tempdir().unwrap(), port: free_port(), process: None };
        // Not a program of its own, which the user's shell would start, with all its start-up files.
        sshd.configure(&format!("internal-sftp {arguments}"));
        sshd.restart();
        Some(sshd)
    }

    fn configure(&self, sftp_server: &str) {
        let path = |name: &str| self.path(name).display().to_string();
        for key in ["host-key", "user-key"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]);
        }
        fs::copy(self.path("user-key.pub"), self.path("authorized")).unwrap();
        let host_key = fs::read_to_string(self.path("host-key.pub")).unwrap();
        fs::write(self.path("known"), format!("[127.0.0.1]:{} {host_key}", self.port)).unwrap();
        let server = [
            format!("Port {}", self.port),
            "ListenAddress 127.0.0.1".into(),
            format!("HostKey {}", path("host-key")),
            format!("AuthorizedKeysFile {}", path("authorized")),
            "PidFile none".into(),
            "StrictModes no".into(),
            "UsePAM no".into(),
            "PasswordAuthentication no".into(),
            "KbdInteractiveAuthentication no".into(),
            "PermitRootLogin yes".into(),
            "MaxStartups 100".into(),
            format!("Subsystem sftp {sftp_server}"),
        ];
        let client = [
            format!("IdentityFile {}", path("user-key")),
            "IdentitiesOnly yes".into(),
            format!("UserKnownHostsFile {}", path("known")),
            "GlobalKnownHostsFile none".into(),
            "StrictHostKeyChecking yes".into(),
        ];
        fs::write(self.path("sshd.conf"), server.join("\n") + "\n").unwrap();
        fs::write(self.path("ssh.conf"), client.join("\n") + "\n").unwrap();
        fs::create_dir(self.path("data")).unwrap();
    }

    /// Starts the server, on the same port as before.
    pub fn restart(&mut self) {
        self.stop();
        if rustix::process::geteuid().is_root() {
            // Where it gives up its rights. Debian makes this directory when it starts the service.
            let _ = fs::create_dir("/run/sshd");
        }
        let sshd = find_program("FHRD_TEST_SSHD", &["/usr/sbin/sshd"]).unwrap();
        let mut command = Command::new(sshd);
        command.arg("-D").arg("-e").arg("-f").arg(self.path("sshd.conf"));
        let log = self.path("log");
        let mut process = ServerProcess::start(command, &log);
        process.await_port(self.port, &log);
        self.process = Some(process);
    }

    /// Kills the server with all its connections.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            // Each connection is a session of its own, so it is no member of the server's group.
            children(process.id()).into_iter().for_each(kill);
        }
    }

    /// Kills the connections.
    pub fn cut(&self) {
        let id = self.process.as_ref().unwrap().id();
        children(id).into_iter().for_each(kill);
    }

    /// A path of the fixture.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory on the server for stores.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// The URL of a directory below [`Sshd::data`].
    pub fn url(&self, name: &str) -> String {
        format!("sftp://127.0.0.1:{}{}/{name}", self.port, self.data().display())
    }

    /// Shell command that reaches the server.
    pub fn ssh_command(&self) -> OsString {
        format!("ssh -F {}", self.path("ssh.conf").display()).into()
    }

    /// Options that reach the server.
    pub fn options(&self) -> StoreOptions {
        StoreOptions { ssh_command: Some(self.ssh_command()), ..StoreOptions::default() }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
        // Directories that a test has made read-only.
        let _ = fs::set_permissions(self.data(), fs::Permissions::from_mode(0o700));
    }
}

fn kill(id: i32) {
    if let Some(id) = rustix::process::Pid::from_raw(id) {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
    }
}

/// Ids of all descendants of a process.
fn children(id: u32) -> Vec<i32> {
    let parent = |stat: &Path| {
        let text = fs::read_to_string(stat).ok()?;
        text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if parent(&entry.path().join("stat")) == Some(id) {
            found.push(child as i32);
            found.extend(children(child));
        }
    }
    found
}
