//! A store on an SFTP server, over the system's `ssh`: one file per blob, as in a local store.
//!
//! 1. `session` starts `ssh HOST -s sftp` and pairs requests with replies, of which many are in flight. `packet` has
//!    the messages. `ssh` itself reads the user's configuration, keys and known hosts.
//! 2. `connection` starts another session when one is lost, and repeats what may be repeated.
//! 3. Put (`put`): write a file below `tmp/`, sync it, give it its name by `hardlink@openssh.com`, which never
//!    replaces, and sync the directory.
//! 4. `transfer` reads and writes with several requests in flight, so that a long way costs little speed.
//!
//! The crates for SFTP are not used: the known ones abort on a hostile count of names, and cannot sync a directory.

mod address;
mod blob;
mod connection;
mod directories;
mod failure;
mod files;
mod links;
mod packet;
mod put;
mod session;
mod store;
mod transfer;

pub use store::SftpStore;
