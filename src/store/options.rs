//! How stores are reached, beyond their location.

use std::ffi::OsString;

/// What a user can say about the way to a store. The defaults suit every store that needs nothing special.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// Use SFTP servers that cannot put a file only if its name is free, or cannot sync files.
    pub unsafe_sftp: bool,
    /// Shell command that takes the place of `ssh`, with options.
    pub ssh_command: Option<OsString>,
}
