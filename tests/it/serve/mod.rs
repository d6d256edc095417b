//! `fhrd serve`, asked over HTTP: by hand, by hostile clients, and by the real client of the Hub.

mod answers;
mod browser;
mod fixture;
mod hostile;
mod lives;
mod login;
mod metrics;
mod pages;
mod publish_all;
mod real_client;
mod registry;
mod registry_clients;
mod tokens;
mod upload;
mod upload_crash;
mod upload_hostile;
mod upload_kill;
mod upload_parts;
mod uploader;
mod whole;
mod xet;
pub mod xet_client;
