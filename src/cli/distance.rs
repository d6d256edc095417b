//! `fhrd distance`: two models compared bit by bit.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::Session;
use super::args::DistanceArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{failed, print, print_json, printable};
use crate::error::{Error, Result};
use crate::inspect::distance::{BitTally, Distance, LeftOut, OpenModel, SnapshotModels, TypeDistance, distance};
use crate::model::{Relation, THRESHOLD};
use crate::repo::Repository;
use crate::repo::naming::SnapshotFilter;

/// Share of the values that one mark of a bar stands for.
const MARK: f64 = 0.02;
/// Skipped tensors that are listed by name, at most.
const NAMED_MAX: usize = 20;

/// Compares two models.
///
/// # Errors
/// Errors of the repository and [`distance`]; [`Error::Usage`] if an argument is not a model.
pub fn run(session: &Session, arguments: &DistanceArguments) -> Result<Exit> {
    let mut opener = Opener { session, repository: None };
    let first = opener.open(&arguments.first)?;
    let second = opener.open(&arguments.second)?;
    let found = distance(&first, &second, &session.stop)?;
    if session.options.json {
        print_json(&document(&first, &second, &found))?;
    } else {
        print(|out| write_report(out, &first, &second, &found).map_err(failed))?;
    }
    Ok(Exit::Fine)
}

/// Opens models. The repository is opened only if a model is in it.
struct Opener<'a> {
    session: &'a Session,
    repository: Option<(Repository, SnapshotModels)>,
}

impl Opener<'_> {
    /// Opens the file of this name or, if there is none, the model at SNAPSHOT:PATH.
    fn open(&mut self, text: &str) -> Result<OpenModel> {
        let path = Path::new(text);
        let named = text.contains(':') && path.symlink_metadata().is_err();
        if !named {
            return OpenModel::open(path);
        }
        if self.repository.is_none() {
            let repository = location::open(self.session)?;
            let stored = SnapshotModels::new(&repository)?;
            self.repository = Some((repository, stored));
        }
        let Some((repository, stored)) = &self.repository else {
            return Err(Error::Usage(format!("no repository for {text}")));
        };
        let (snapshot, inside) = choice::find_entry(repository, text.as_ref(), &SnapshotFilter::default())?;
        stored.open(&snapshot, &inside.unwrap_or_default(), text)
    }
}

fn document(first: &OpenModel, second: &OpenModel, found: &Distance) -> Value {
    let side = |side: &OpenModel| json!({"path": side.label, "format": side.model.format, "tensors": side.model.tensors.len()});
    let relation = found.relation();
    let types: Vec<Value> = found.types.iter().map(of_type).collect();
    let left_out = found.left_out.iter().map(|left_out| {
        let model = if left_out.is_second { "second" } else { "first" };
        json!({"tensor": left_out.tensor, "model": model, "reason": left_out.reason})
    });
    json!({
        "first": side(first),
        "second": side(second),
        "bit_distance": found.bit_distance(),
        "nonzero_distance": found.nonzero_distance(),
        "threshold": THRESHOLD,
        "same_family": relation.map(Relation::is_family),
        "relation": relation.map(|relation| if relation.is_family() { relation.name() } else { "distant" }),
        "types": types,
        "left_out": left_out.collect::<Vec<_>>(),
    })
}

fn of_type(of: &TypeDistance) -> Value {
    json!({
        "first": of.first,
        "second": of.second,
        "tensors": of.tensors,
        "compared": tally(&of.tally, if of.first == of.second { &of.first } else { of.tally.dtype.name() }),
        "as_bf16": of.rounded.as_ref().map(|rounded| tally(rounded, rounded.dtype.name())),
    })
}

fn tally(tally: &BitTally, name: &str) -> Value {
    let counts = tally.bits();
    let bits = counts.iter().enumerate().map(|(index, differing)| {
        let (bit, field) = (counts.len() - 1 - index, tally.field(index).name());
        json!({"bit": bit, "field": field, "differing": differing, "share": share(*differing, tally)})
    });
    json!({
        "type": name,
        "values": tally.values,
        "identical": tally.identical,
        "identical_share": share(tally.identical, tally),
        "differing_bits": tally.differing(),
        "bit_distance": tally.bit_distance(),
        "bits": bits.collect::<Vec<_>>(),
    })
}

fn share(count: u64, tally: &BitTally) -> f64 {
    count as f64 / tally.values.max(1) as f64
}

fn write_report(out: &mut dyn Write, first: &OpenModel, second: &OpenModel, found: &Distance) -> std::io::Result<()> {
    for side in [first, second] {
        let tensors = tensors(side.model.tensors.len() as u64);
        writeln!(out, "{} ({}, {tensors})", printable(&side.label), side.model.format)?;
    }
    writeln!(out, "{}", verdict(found))?;
    for of in &found.types {
        let (one, other) = (printable(&of.first), printable(&of.second));
        let names = if one == other { one } else { format!("{one} against {other}") };
        let tensors = tensors(of.tensors);
        write_tally(out, &format!("{names}, {tensors}"), &of.tally)?;
        if let Some(rounded) = &of.rounded {
            write_tally(out, &format!("{names} rounded to BF16, {tensors}"), rounded)?;
        }
    }
    write_left_out(out, &found.left_out)
}

/// Whether the models are of one family, and why.
fn verdict(found: &Distance) -> String {
    let distance = match found.bit_distance() {
        Some(distance) => format!("bit distance {distance:.2}"),
        None => "no floats in common".into(),
    };
    let nonzero = found.nonzero_distance().map_or_else(String::new, |nonzero| format!("{nonzero:.2}"));
    match found.relation() {
        None => format!("{distance}, nothing else to compare: the family is unknown"),
        Some(Relation::Cast) => format!("{distance}: the same family, one is the cast of the other"),
        Some(Relation::Pruned) => {
            format!("{distance}, {nonzero} where neither is zero: the same family, one is pruned (below {THRESHOLD})")
        }
        Some(relation) => {
            let share = match found.bit_distance() {
                Some(distance) if format!("{distance:.2}") == nonzero => String::new(),
                _ if nonzero.is_empty() => String::new(),
                _ => format!(", {nonzero} of 16 bits of all values but zeros"),
            };
            let is_family = relation.is_family();
            let verdict = if is_family { "the same family (below" } else { "different families (not below" };
            format!("{distance}{share}: {verdict} {THRESHOLD})")
        }
    }
}

fn write_tally(out: &mut dyn Write, title: &str, tally: &BitTally) -> std::io::Result<()> {
    let unit = if tally.dtype.width().is_some() { "values" } else { "bytes" };
    let identical = 100.0 * share(tally.identical, tally);
    let distance = tally.bit_distance();
    writeln!(out, "\n{title}: {} {unit}, {distance:.3} bits differ, {identical:.1} % identical", tally.values)?;
    if tally.identical == tally.values {
        return Ok(());
    }
    let counts = tally.bits();
    for (index, differing) in counts.iter().enumerate() {
        let (bit, field, share) = (counts.len() - 1 - index, tally.field(index).name(), share(*differing, tally));
        let line = format!("{bit:>4}  {field:<8}  {:>6.2} %  {}", 100.0 * share, bar(share));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn tensors(count: u64) -> String {
    format!("{count} tensor{}", if count == 1 { "" } else { "s" })
}

/// One mark for each [`MARK`], rounded up.
fn bar(share: f64) -> String {
    "#".repeat((share / MARK).ceil() as usize)
}

fn write_left_out(out: &mut dyn Write, left_out: &[LeftOut]) -> std::io::Result<()> {
    if left_out.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nleft out:")?;
    for left_out in left_out.iter().take(NAMED_MAX) {
        let model = if left_out.is_second { "second" } else { "first" };
        writeln!(out, "  {} ({model}): {}", printable(&left_out.tensor), printable(&left_out.reason))?;
    }
    match left_out.len().checked_sub(NAMED_MAX) {
        Some(more) if more > 0 => writeln!(out, "  and {more} more"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_rare_values_and_has_at_most_50_marks() {
        let lengths = [0.0, 1e-9, 0.02, 0.5, 1.0].map(|share| bar(share).len());
        assert_eq!(lengths, [0, 1, 1, 25, 50]);
    }
}
