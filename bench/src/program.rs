//! What another program measures: the rows of a paper about programs that are not part of this one, such as
//! `torch.save`.
//!
//! 1. `needs` is a command that succeeds where the program is there. Otherwise the rows are not tested, and say so.
//! 2. `command` prints a line of JSON for each line of the result: an object with texts, numbers and `parameters`.
//! 3. A list of milliseconds, `save_rounds`, becomes `save_ms`, its median, and `save_noise`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::claim::Claim;
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report};
use super::speed::noise;
use super::table::{flush, write_line};
use super::workbench::median;

/// Configuration of a measurement by another program.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramBench {
    /// `"program"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Programs to run, by name.
    pub program: Vec<Program>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name in tables.
    pub name: String,
    /// A command that succeeds if the program is there.
    pub needs: Vec<String>,
    /// The command. The directory of temporary files is in the environment variable `FHRD_BENCH_WORK`.
    pub command: Vec<String>,
}

fn title() -> String {
    "Other programs".into()
}

/// Field of a line with the milliseconds of several saves.
const ROUNDS: &str = "save_rounds";
/// Name of the environment variable with a directory for temporary files.
const WORK: &str = "FHRD_BENCH_WORK";

impl ProgramBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and empty commands.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let bench: ProgramBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        match bench.program.iter().find(|program| program.needs.is_empty() || program.command.is_empty()) {
            Some(program) => Err(wrong(format!("the program `{}` needs `needs` and `command`", program.name))),
            None => Ok(bench),
        }
    }
}

impl Program {
    /// Why it cannot run, if it cannot.
    fn lack(&self) -> Option<String> {
        let started = command(&self.needs)?.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let is_there = started.is_ok_and(|status| status.success());
        (!is_there).then(|| format!("program `{}`: `{}` fails here", self.name, self.needs.join(" ")))
    }

    /// The lines that it prints, each with its name.
    fn run(&self) -> Result<Vec<Value>> {
        let work = tempfile::tempdir().map_err(|error| Error::io("create", "a directory", error))?;
        let wrong = |what: String| Error::Usage(format!("the program `{}` {what}", self.name));
        let mut command = command(&self.command).ok_or_else(|| wrong("has no command".into()))?;
        let output = command.env(WORK, work.path()).stdin(Stdio::null()).output();
        let output = output.map_err(|error| Error::io("start", &self.name, error))?;
        if !output.status.success() {
            let last = String::from_utf8_lossy(&output.stderr).lines().next_back().unwrap_or_default().to_string();
            return Err(wrong(format!("failed: {last}")));
        }
        let parsed = |line: &str| {
            let mut line: Value = serde_json::from_str(line).map_err(|error| wrong(format!("printed: {error}")))?;
            let object = line.as_object_mut().ok_or_else(|| wrong("printed a line that is no object".into()))?;
            object.insert("program".into(), self.name.clone().into());
            if let Some(rounds) = object.remove(ROUNDS) {
                let rounds: Vec<f64> = serde_json::from_value(rounds)
                    .map_err(|error| wrong(format!("printed `{ROUNDS}` that are no numbers: {error}")))?;
                object.insert("save_ms".into(), median(rounds.iter().copied()).into());
                object.insert("save_noise".into(), noise(&[rounds]).into());
            }
            Ok(line)
        };
        String::from_utf8_lossy(&output.stdout).lines().map(parsed).collect()
    }
}

fn command(texts: &[String]) -> Option<Command> {
    let (first, rest) = texts.split_first()?;
    let mut command = Command::new(first);
    command.args(rest);
    Some(command)
}

impl Measurement for ProgramBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        let missing = self.program.iter().filter_map(Program::lack).collect();
        Outline::of("program", self.program.iter().map(|program| &program.name), missing)
    }

    fn run(&self, _stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        let mut lines = Vec::new();
        for program in &self.program {
            lines.extend(program.run()?);
        }
        write_line(out, "program", "line", &[""; 0])?;
        let name = |line: &Value| line.get("program").and_then(Value::as_str).unwrap_or_default().to_string();
        lines.iter().try_for_each(|line| write_line(out, &name(line), &line.to_string(), &[""; 0]))?;
        flush(out)?;
        let rows = lines.iter().map(|line| vec![name(line), line.to_string()]).collect();
        let columns = ["program", "line"].map(str::to_string).to_vec();
        let grids = vec![Grid { title: String::new(), columns, rows }];
        Ok(Report { title: self.title.clone(), grids, lines, ..Report::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(needs: &str, command: &str) -> ProgramBench {
        let text = format!(
            "kind = \"program\"\n[[program]]\nname = \"shell\"\nneeds = [\"sh\", \"-c\", \"{needs}\"]\n\
            command = [\"sh\", \"-c\", '''{command}''']\n"
        );
        ProgramBench::parse(&text, "x.toml").unwrap()
    }

    #[test]
    fn the_lines_of_a_program_are_those_of_the_result() {
        let print = "[ -d \"$FHRD_BENCH_WORK\" ] && echo '{\"set\": \"a\", \"bytes\": 3}'; echo '{\"set\": \"b\"}'";
        let report = bench("true", print).run(&Arc::default(), &mut Vec::new()).unwrap();
        let line = |number: usize, key: &str| report.lines[number][key].clone();
        assert_eq!((line(0, "set"), line(0, "bytes"), line(1, "program")), ("a".into(), 3.into(), "shell".into()));
    }

    #[test]
    fn times_of_rounds_become_their_median_with_its_noise() {
        let print = |rounds: &str| format!("echo '{{\"save_rounds\": {rounds}}}'");
        let line = |rounds: &str| {
            let report = bench("true", &print(rounds)).run(&Arc::default(), &mut Vec::new()).unwrap();
            report.lines[0].clone()
        };
        let of_three = line("[3, 1, 2.5]");
        assert_eq!((&of_three["save_ms"], of_three.get("save_rounds")), (&2.5.into(), None));
        assert!(of_three["save_noise"].as_f64().unwrap() > 0.1, "{of_three}");
        assert!(line("[7]")["save_noise"].is_null(), "one round has no noise");
        let wrong = bench("true", &print("[true]")).run(&Arc::default(), &mut Vec::new());
        assert!(wrong.err().unwrap().to_string().contains("no numbers"));
    }

    #[test]
    fn a_program_that_is_not_there_or_fails_is_named() {
        assert_eq!(bench("true", "true").outline().missing, [""; 0]);
        let missing = bench("exit 3", "true").outline().missing;
        assert!(missing.len() == 1 && missing[0].contains("program `shell`: `sh -c exit 3`"), "{missing:?}");
        let message = |command: &str| {
            let run = bench("true", command).run(&Arc::default(), &mut Vec::new());
            run.err().map_or_else(String::new, |error| error.to_string())
        };
        assert!(message("echo broken >&2; exit 1").contains("`shell` failed: broken"));
        assert!(message("echo 1").contains("no object") && message("echo x").contains("printed"));
        let empty = "kind = \"program\"\n[[program]]\nname = \"p\"\nneeds = []\ncommand = [\"a\"]\n";
        assert!(ProgramBench::parse(empty, "x.toml").unwrap_err().to_string().contains("`p`"));
    }
}
