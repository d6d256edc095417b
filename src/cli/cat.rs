//! `fhrd cat`: the bytes of a file on standard output.

use super::Session;
use super::args::CatArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{check_open, failed, print};
use crate::error::{Error, Result};
use crate::inspect::dump::Dump;
use crate::repo::snapshot::explain_loss;
use crate::repo::tree::NodeKind;

/// Writes a file, or a range of it.
///
/// # Errors
/// Errors of the repository and the snapshot, and [`Error::Usage`] if the entry is no regular file.
pub fn run(session: &Session, arguments: &CatArguments) -> Result<Exit> {
    check_open()?;
    let repository = location::open(session)?;
    let (named, path) = choice::entry(&repository, &arguments.file, &arguments.filter)?;
    let dump = Dump::new(&repository, &session.stop)?;
    let file = dump.entry(&named, path.as_deref())?.filter(|node| node.kind == NodeKind::File);
    let Some(file) = file else {
        let name = arguments.file.display();
        return Err(Error::Usage(format!("{name} is not a regular file: `fhrd dump` writes directories as archives")));
    };
    let printed = print(|out| {
        dump.file(&file, arguments.range.unwrap_or((0, u64::MAX)), &mut |bytes| out.write_all(bytes).map_err(failed))
    });
    printed.map_err(|error| explain_loss(repository.store.as_ref(), [&named.id], error))?;
    Ok(Exit::Fine)
}
