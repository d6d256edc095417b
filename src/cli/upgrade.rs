//! `fhrd upgrade`.

use super::Session;
use super::args::UpgradeArguments;
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json};
use crate::error::Result;
use crate::repo::features::upgrade;

/// Enables the features that the repository needs.
///
/// # Errors
/// Errors of the repository and of [`upgrade`].
pub fn run(session: &Session, arguments: &UpgradeArguments) -> Result<Exit> {
    let report = upgrade(&location::open(session)?, arguments.dry_run)?;
    if session.options.json {
        print_json(&report)?;
    } else if !session.options.quiet {
        let what = if report.dry_run { "would enable" } else { "enabled" };
        print(|out| {
            if report.enabled.is_empty() {
                writeln!(out, "nothing to enable").map_err(failed)?;
            }
            report
                .enabled
                .iter()
                .try_for_each(|one| writeln!(out, "{what} {}: {}", one.feature, one.purpose).map_err(failed))
        })?;
    }
    Ok(Exit::Fine)
}
