//! Options of every verb.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytesize::ByteSize;
use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args};

use super::values::parse_bytes;
use crate::config::parse_memory;
use crate::store::{ObjectTag, RateLimits, StorageClass, StorageClasses, StoreOptions};

/// Options of every verb.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Repository: a path, or a URL: s3://bucket/prefix, gs://, az://, sftp://user@host/path or file:///path
    /// [default: the one in your data directory]
    #[arg(long, global = true, value_name = "LOCATION", env = "FHRD_REPO")]
    pub repo: Option<PathBuf>,
    /// Profile: a name in your configuration directory, or a TOML file with a slash in its path. It gives the
    /// repository and what to back up; see docs/PROFILES.md
    #[arg(long, global = true, value_name = "NAME", env = "FHRD_PROFILE")]
    pub profile: Option<PathBuf>,
    /// TOML file with parameters; a key that is not in the file keeps its default
    #[arg(long, global = true, value_name = "FILE", env = "FHRD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Memory to take, about: caches, queues and workers follow, as docs/SIZING.md says [default: 256 MiB]
    #[arg(long, global = true, value_name = "SIZE", env = "FHRD_MEMORY", value_parser = parse_memory)]
    pub memory: Option<ByteSize>,
    /// Workers of each parallel stage, where the configuration does not say it [default: one for each processor that
    /// this process may use, at most 8]
    #[arg(long, global = true, value_name = "N", env = "FHRD_THREADS", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// File whose first line is the password of an encrypted repository [env: FHRD_PASSWORD: the password itself, which
    /// counts last]
    #[arg(long, global = true, value_name = "FILE", env = "FHRD_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// Shell command whose first line of output is the password
    #[arg(long, global = true, value_name = "COMMAND", env = "FHRD_PASSWORD_COMMAND")]
    pub password_command: Option<OsString>,
    /// Key file of an encrypted repository, in place of a password
    #[arg(long, global = true, value_name = "FILE", env = "FHRD_KEY_FILE")]
    pub key_file: Option<PathBuf>,
    /// Use a repository that is not encrypted although a password or key file is given. Without this, it is refused:
    /// somebody may have put it in the place of yours
    #[arg(long, global = true, env = "FHRD_ALLOW_UNENCRYPTED", value_parser = FalseyValueParser::new())]
    pub allow_unencrypted: bool,
    /// Use an SFTP server that lacks hardlink@openssh.com or fsync@openssh.com; docs/REMOTE.md explains the risk
    #[arg(long, global = true, env = "FHRD_UNSAFE_SFTP", value_parser = FalseyValueParser::new())]
    pub unsafe_sftp: bool,
    /// Shell command to run instead of `ssh` for sftp:// repositories, such as `ssh -i KEY -J HOST`
    #[arg(long, global = true, value_name = "COMMAND", env = "FHRD_SSH_COMMAND")]
    pub ssh_command: Option<OsString>,
    /// Server of an s3://, gs:// or az:// repository, if it is not the service's own. The bucket is a directory of the
    /// URL. With http:// the connection is not encrypted
    #[arg(long, global = true, value_name = "URL", env = "FHRD_ENDPOINT")]
    pub endpoint: Option<String>,
    /// Class of storage of new objects in a bucket, such as containers=GLACIER for data in a cold repository (see `cold
    /// set`). KIND is a directory of the repository; can be given several times
    #[arg(
        long = "storage-class",
        global = true,
        value_name = "KIND=CLASS",
        env = "FHRD_STORAGE_CLASS",
        value_delimiter = ','
    )]
    pub storage_classes: Vec<StorageClass>,
    /// Tag of data containers in a cold repository in a bucket of S3 or Azure, such as fhrd=data, by which a life-cycle
    /// rule finds them
    #[arg(long, global = true, value_name = "KEY=VALUE", env = "FHRD_DATA_TAG")]
    pub data_tag: Option<ObjectTag>,
    /// Send at most this many bytes per second to remote repositories, such as 10MiB
    #[arg(long, global = true, value_name = "RATE", env = "FHRD_LIMIT_UPLOAD", value_parser = parse_bytes)]
    pub limit_upload: Option<ByteSize>,
    /// Receive at most this many bytes per second from remote repositories
    #[arg(long, global = true, value_name = "RATE", env = "FHRD_LIMIT_DOWNLOAD", value_parser = parse_bytes)]
    pub limit_download: Option<ByteSize>,
    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// With --json, also print the progress on standard error: a JSON document on a line each second
    #[arg(long, global = true)]
    pub progress: bool,
    /// Print details on standard error; -vv prints all of them
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print errors and warnings only, without progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// The limits of both repositories of the command together.
    #[arg(skip)]
    pub limits: RateLimits,
    /// Set once the user has asked to stop.
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// These options for the other repository of a command, whose server the environment gives.
    #[must_use]
    pub fn for_other(&self) -> Self {
        let endpoint = std::env::var("FHRD_FROM_ENDPOINT").ok().filter(|endpoint| !endpoint.is_empty());
        Options { endpoint, storage_classes: Vec::new(), data_tag: None, ..self.clone() }
    }

    /// These options for the bucket that a backup stores, whose server and credentials are its own.
    pub fn source_options(&self, endpoint: Option<&str>) -> StoreOptions {
        StoreOptions {
            endpoint: endpoint.map(str::to_string),
            variable_prefix: "FHRD_SOURCE_",
            classes: StorageClasses::default(),
            data_tag: None,
            ..self.store_options()
        }
    }

    /// What these options say about the way to a store.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            unsafe_sftp: self.unsafe_sftp,
            ssh_command: self.ssh_command.clone(),
            endpoint: self.endpoint.clone(),
            classes: StorageClasses(self.storage_classes.clone()),
            data_tag: self.data_tag.clone(),
            limits: self.limits.clone(),
            stop: self.stop.clone(),
            ..StoreOptions::default()
        }
    }
}

/// What `--help` says about exit codes.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    failure, or a restore that could not write every entry
  2    invalid command line
  3    the backup or trace is complete except for entries that could not be read
  4    status --expect: the last snapshot is too old, or there is none
  10   no repository found, or no such bucket
  11   the repository is set read-only, or you or the credentials may not write or delete
  12   the password or key file is missing or wrong, or the repository is another one than before
  13   what is needed is in cold storage, and must be thawed
  20   the repository is damaged; a restore has written everything that is not damaged
  130  interrupted";
