//! Arguments of `key`, and those of `init` about keys.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Whether and how a new repository is encrypted.
#[derive(Debug, Args)]
pub struct EncryptionArguments {
    /// Encrypt the repository: the default for a remote one
    #[arg(long, conflicts_with = "unencrypted")]
    pub encrypt: bool,
    /// Do not encrypt the repository: the default for a local one
    #[arg(long)]
    pub unencrypted: bool,
    /// Name of the first key slot [default: the names of user and host]
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Also add a random recovery key and print it, as text and on a terminal as a QR code
    #[arg(long)]
    pub recovery_key: bool,
}

/// A new password or key file.
#[derive(Debug, Args)]
pub struct NewSecretArguments {
    /// File whose first line is the new password [env: FHRD_NEW_PASSWORD: the password itself]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["new_password_command", "new_key_file"])]
    pub new_password_file: Option<PathBuf>,
    /// Shell command whose first line of output is the new password
    #[arg(long, value_name = "COMMAND", conflicts_with = "new_key_file")]
    pub new_password_command: Option<OsString>,
    /// New key file, at least 32 random bytes
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
    /// Name of the key slot [default: the names of user and host]
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
}

/// The verbs of `key`.
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// List the key slots; no password is needed
    List,
    /// Add a key slot: another password or key file that opens the repository
    Add {
        /// The new secret.
        #[command(flatten)]
        secret: NewSecretArguments,
        /// Add a random recovery key, and print it
        #[arg(long, conflicts_with_all = ["new_password_file", "new_password_command", "new_key_file"])]
        recovery_key: bool,
    },
    /// Remove a key slot. Whoever has used it may know the keys: see `rotate`
    Remove {
        /// Id of the slot, or its first digits
        id: String,
    },
    /// Change the password: add a key slot, and remove the one that opened
    Passwd {
        /// The new secret.
        #[command(flatten)]
        secret: NewSecretArguments,
    },
    /// Encrypt with a new master key from now on. All other key slots are removed; add them again
    ///
    /// What is stored already stays under its old keys. To leave them behind, `copy` the snapshots to a new
    /// repository. Fingerprints stay the same, so chunks that are stored are found.
    Rotate,
    /// Write all keys in the clear into a file, for a safe place
    Export {
        /// The file; it must not exist
        file: PathBuf,
    },
    /// Add a key slot from exported keys, for a repository whose slots are lost
    Import {
        /// A file that `key export` wrote
        file: PathBuf,
        /// The new secret.
        #[command(flatten)]
        secret: NewSecretArguments,
    },
}
