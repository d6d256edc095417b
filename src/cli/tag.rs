//! `fhrd tag`.

use serde::Serialize;

use super::Session;
use super::args::{FilterArguments, TagArguments};
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json};
use crate::error::{Error, Result};
use crate::keep::{TagChange, tag};
use crate::repo::tags::merged_tags;

/// A changed snapshot as JSON.
#[derive(Serialize)]
struct TagDocument {
    old: String,
    /// The same if its tags did not change.
    new: String,
}

/// Changes the tags of snapshots.
///
/// # Errors
/// Errors of the repository.
pub fn run(session: &Session, arguments: &TagArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let split = |lists: &[String]| merged_tags(lists.iter().filter(|list| !list.is_empty())).map_err(Error::Usage);
    let set = (!arguments.set.is_empty()).then(|| split(&arguments.set)).transpose()?;
    // A tag that is called exactly as it was given goes, too: it may have commas.
    let remove = split(&arguments.remove)?.into_iter().chain(arguments.remove.iter().cloned()).collect();
    let change = TagChange { set, add: split(&arguments.add)?, remove };
    // All are found before the first changes its id.
    let found = choice::named(&repository, &arguments.ids, &FilterArguments::default())?;
    let mut documents = Vec::with_capacity(found.len());
    for named in &found {
        let new = tag(&repository, named, &change)?.unwrap_or(named.id);
        documents.push(TagDocument { old: named.id.to_string(), new: new.to_string() });
    }
    if session.options.json {
        print_json(&documents)?;
    } else if !session.options.quiet {
        print(|out| {
            documents.iter().try_for_each(|document| {
                let (old, new) = (document.old.get(..8).unwrap_or_default(), document.new.get(..8).unwrap_or_default());
                let text = if old == new { format!("{old}  unchanged") } else { format!("{old} is now {new}") };
                writeln!(out, "{text}").map_err(failed)
            })
        })?;
    }
    Ok(Exit::Fine)
}
