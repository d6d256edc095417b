//! Arguments of the verbs that publish.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use super::look::FilterArguments;
use crate::repo::published::{PublishedKind, name_defect, revision_defect};

/// What a name is to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PublishedType {
    /// A model.
    Model,
    /// A dataset.
    Dataset,
}

impl From<PublishedType> for PublishedKind {
    fn from(kind: PublishedType) -> Self {
        match kind {
            PublishedType::Model => PublishedKind::Model,
            PublishedType::Dataset => PublishedKind::Dataset,
        }
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    name_defect(text).map_or_else(|| Ok(text.to_string()), Err)
}

fn parse_revision(text: &str) -> Result<String, String> {
    revision_defect(text).map_or_else(|| Ok(text.to_string()), Err)
}

const PUBLISH_NOTES: &str = "\
No data is copied: the name is a small snapshot of its own, with the tag `published`, that refers to the content. Rules
of `forget` leave it alone, it is never `latest`, and `prune` keeps what it needs until `unpublish`.

Clients see a commit of 40 hex digits, which depends on the stored directory alone. If a revision is published again, it
moves to the new commit. Clients that ask for the old commit still get it, unless --replace is given.

Links to files are shown as files if they stay within the directory. Of a cache of the Hub, name
models--ORG--NAME/snapshots/COMMIT: its links to ../../blobs count as within.";

/// Arguments of `publish`.
#[derive(Debug, Args)]
#[command(after_help = PUBLISH_NOTES)]
pub struct PublishArguments {
    /// Directory: an id, a unique prefix, `latest` or a step such as run:NAME@STEP, a colon and the path
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub entry: OsString,
    /// Name for clients
    #[arg(value_name = "ORG/NAME", value_parser = parse_name)]
    pub name: String,
    /// Revision
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = parse_revision)]
    pub revision: String,
    /// What it is to clients
    #[arg(long = "type", value_name = "TYPE", default_value = "model")]
    pub kind: PublishedType,
    /// Delete the snapshots that held this name and revision before
    #[arg(long)]
    pub replace: bool,
    /// Narrows `latest`.
    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Arguments of `unpublish`.
#[derive(Debug, Args)]
pub struct UnpublishArguments {
    /// Name
    #[arg(value_name = "ORG/NAME", value_parser = parse_name)]
    pub name: String,
    /// Only this revision [default: all]
    #[arg(long, value_name = "NAME")]
    pub revision: Option<String>,
    /// What it is to clients
    #[arg(long = "type", value_name = "TYPE", default_value = "model")]
    pub kind: PublishedType,
}
