//! Stores on real servers, which the tests start themselves on free ports of this machine and end again.
//!
//! A server that is not installed is no failure: the test says NOT RUN, on standard error and in the file that
//! `FHRD_TEST_SERVERS_LOG` names, from which `.ci/run` makes a summary.

mod bucket_tests;
mod buckets;
mod cold_bucket;
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
#[path = "../../../src/store/contract.rs"]
mod contract;
mod locked_bucket;
mod process;
mod sftp;
mod sftp_faults;
mod sshd;
mod writers;

// What the contract uses.
use fhrd::error::Error;
use fhrd::store::{BlobKind, BlobName, BlobPrefix, Durable, ListedBlob, NewName, PutOptions, Reading, Store, StoreExt};
