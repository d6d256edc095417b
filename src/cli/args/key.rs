//! Arguments of `key`, and those of `init` about keys.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Whether and how a new repository is encrypted.
#[derive(Debug, Args)]
pub struct EncryptionArguments {
    /// Encrypt the repository: the default for a remote one, and if a password or key file is given
    #[arg(long, conflicts_with = "unencrypted")]
    pub encrypt: bool,
    /// Do not encrypt the repository: the default for a local one without a password or key file
    #[arg(long)]
    pub unencrypted: bool,
    /// Name of the first key slot [default: the names of user and host]
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Also add a random recovery key and print it, on a terminal also as a QR code
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
    /// Remove a key slot, but not the only one that the given secret opens
    ///
    /// Whoever has used the slot may have kept the keys: see `rotate`.
    Remove {
        /// Id of the slot, or its first digits
        id: String,
    },
    /// Change the password: add a key slot, and remove the slot of the old password
    Passwd {
        /// The new secret.
        #[command(flatten)]
        secret: NewSecretArguments,
    },
    /// Encrypt new data with a new master key. All key slots but one are removed; add the others again
    ///
    /// Stored data stays encrypted with its old key. To re-encrypt it, `copy` the snapshots to a new repository.
    /// Fingerprints stay the same, so stored chunks are still found.
    Rotate,
    /// Write all keys unencrypted into a file, to be kept in a safe place
    Export {
        /// New file; it must not exist
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
