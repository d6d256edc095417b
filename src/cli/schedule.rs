//! `fhrd schedule`: a timer of systemd, or a line for crontab, that runs a command with a profile.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{ToSpan, Zoned, civil};
use serde::Serialize;

use super::Session;
use super::args::{DayValue, ScheduleArguments, Verb, command, matches_of};
use super::called;
use super::exit::Exit;
use super::output::{failed, print, print_json};
use super::request::check_input;
use crate::error::{Error, Result};
use crate::repo::paths::{home_directory, profile_name};
use crate::store::LocalFile;

/// Days for which the clock is looked at: a change of it comes within a year.
const DAYS_LOOKED_AT: i32 = 370;

/// What was written as JSON.
#[derive(Serialize)]
struct ScheduleDocument {
    /// Name of the timer; null for a line of crontab.
    timer: Option<String>,
    /// Files that were written.
    files: Vec<String>,
    /// The service, the timer, or the line of crontab.
    texts: Vec<String>,
    /// Days within a year on which the time does not exist, because clocks go forward.
    skipped: Vec<String>,
    /// Commands that start it.
    next: Vec<String>,
}

/// What runs, and when.
struct Job {
    /// The program with what it needs first, and the arguments.
    command: Vec<String>,
    verb: String,
    profile: String,
    is_root: bool,
}

/// Writes or prints it.
///
/// # Errors
/// [`Error::Usage`] without a profile, and for a command that is not valid; errors of writing.
pub fn run(session: &Session, arguments: &ScheduleArguments) -> Result<Exit> {
    let job = Job::of(session, arguments)?;
    let document = match arguments.crontab {
        true => {
            let line = job.crontab(arguments);
            ScheduleDocument {
                timer: None,
                files: Vec::new(),
                texts: vec![line],
                skipped: Vec::new(),
                next: vec!["crontab -e".into()],
            }
        }
        false => job.units(arguments)?,
    };
    for day in &document.skipped {
        tracing::warn!(
            "{} does not exist on {day}, when clocks go forward: systemd leaves that day out; take another time",
            arguments.daily.strftime("%H:%M")
        );
    }
    if session.options.json {
        print_json(&document)?;
        return Ok(Exit::Fine);
    }
    print(|out| {
        if document.files.is_empty() {
            document.texts.iter().try_for_each(|text| writeln!(out, "{}", text.trim_end()).map_err(failed))?;
        } else {
            document.files.iter().try_for_each(|file| writeln!(out, "wrote {file}").map_err(failed))?;
            writeln!(out, "start it with:").map_err(failed)?;
            document.next.iter().try_for_each(|line| writeln!(out, "  {line}").map_err(failed))?;
        }
        Ok(())
    })?;
    Ok(Exit::Fine)
}

impl Job {
    fn of(session: &Session, arguments: &ScheduleArguments) -> Result<Job> {
        let Some(profile) = &session.options.profile else {
            return Err(Error::Usage("a schedule is for a profile: give --profile NAME".into()));
        };
        let is_path = profile.components().count() > 1;
        let found = |error| Error::io("find", profile, error);
        let full = if is_path { std::path::absolute(profile).map_err(found)? } else { profile.clone() };
        let mut arguments: Vec<OsString> = arguments.command.clone();
        if arguments.is_empty() {
            arguments.push("backup".into());
        }
        arguments.extend(["--profile".into(), full.into()]);
        let given = std::iter::once(OsString::from("fhrd")).chain(arguments.iter().cloned());
        let cannot_run = |error: clap::Error| {
            let text = error.render().to_string();
            let line = text.lines().next().unwrap_or_default();
            Error::Usage(format!("this command cannot run: {}", line.trim_start_matches("error: ")))
        };
        let matches = matches_of(&mut command(), given.collect()).map_err(cannot_run)?;
        let verb = Verb::from_arg_matches(&matches).map_err(cannot_run)?;
        if let Verb::Backup(backup) = &verb {
            check_input(backup, &session.profile.backup)?;
        }
        let text = |argument: &OsString| {
            let text = argument.to_str().filter(|text| !text.chars().any(char::is_control));
            text.map(str::to_string).ok_or_else(|| Error::Usage(format!("a unit cannot have `{}`", argument.display())))
        };
        Ok(Job {
            command: called::again()?.iter().chain(&arguments).map(text).collect::<Result<_>>()?,
            verb: matches.subcommand_name().unwrap_or("backup").into(),
            profile: text(&profile_name(profile).to_os_string())?,
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    /// The line of the command, each argument quoted by `quote`.
    fn line(&self, quote: fn(&str) -> String) -> String {
        self.command.iter().map(|argument| quote(argument)).collect::<Vec<_>>().join(" ")
    }

    fn crontab(&self, arguments: &ScheduleArguments) -> String {
        let number = |day: &DayValue| ((*day as u8 + 1) % 7).to_string();
        let days: Vec<String> = arguments.on.iter().map(number).collect();
        let days = if days.is_empty() { "*".into() } else { days.join(",") };
        let (hour, minute) = (arguments.daily.hour(), arguments.daily.minute());
        // In a crontab, a percent sign ends the line unless it is escaped.
        let line = self.line(quoted_for_shell).replace('%', "\\%");
        format!("{minute} {hour} * * {days} {line} --quiet")
    }

    fn units(&self, arguments: &ScheduleArguments) -> Result<ScheduleDocument> {
        let name = format!("fhrd-{}-{}", escaped(&self.verb), escaped(&self.profile));
        let (service, timer) = (self.service(), self.timer(arguments));
        let mut files = Vec::new();
        if !arguments.print {
            let directory = arguments.directory.clone().map_or_else(|| self.directory(), Ok)?;
            fs::create_dir_all(&directory).map_err(|error| Error::io("create", &directory, error))?;
            for (suffix, text) in [("service", &service), ("timer", &timer)] {
                let path = directory.join(format!("{name}.{suffix}"));
                write_unit(&path, text, arguments.force)?;
                files.push(path.display().to_string());
            }
        }
        let user = if self.is_root { "" } else { " --user" };
        let mut next = vec![
            format!("systemctl{user} daemon-reload"),
            format!("systemctl{user} enable --now {}", quoted_for_shell(&format!("{name}.timer"))),
        ];
        if !self.is_root {
            next.push("loginctl enable-linger    # run it also while you are not logged in".into());
        }
        let skipped = skipped_days(&Zoned::now(), &TimeZone::system(), arguments);
        Ok(ScheduleDocument { timer: Some(format!("{name}.timer")), files, texts: vec![service, timer], skipped, next })
    }

    fn directory(&self) -> Result<PathBuf> {
        if self.is_root {
            return Ok("/etc/systemd/system".into());
        }
        let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let config = config.map_or_else(|| Ok::<_, Error>(home_directory()?.join(".config")), Ok)?;
        Ok(config.join("systemd/user"))
    }

    fn service(&self) -> String {
        let network = if self.is_root { "Wants=network-online.target\nAfter=network-online.target\n" } else { "" };
        let profile = self.profile.replace('%', "%%");
        let described = described(&profile);
        format!(
            "# Written by `fhrd schedule`.\n\
             [Unit]\n\
             Description=fhrd {} of the profile {described}\n\
             Documentation=man:fhrd-{}(1)\n\
             {network}\n\
             [Service]\n\
             Type=oneshot\n\
             ExecStart={}\n\
             # Variables such as FHRD_PASSWORD_FILE. Only you may read it.\n\
             EnvironmentFile=-%h/.config/fhrd/{profile}.env\n\
             # Some files could not be read; the snapshot has the others.\n\
             SuccessExitStatus=3\n\
             # The first signal ends a backup within a second and keeps what is stored.\n\
             KillSignal=SIGINT\n\
             TimeoutStopSec=60\n\
             Nice=10\n\
             IOSchedulingClass=idle\n",
            self.verb,
            self.verb,
            self.line(quoted_for_unit)
        )
    }

    fn timer(&self, arguments: &ScheduleArguments) -> String {
        let days: Vec<String> = arguments.on.iter().map(|day| format!("{day:?}")).collect();
        let days = if days.is_empty() { String::new() } else { format!("{} ", days.join(",")) };
        format!(
            "# Written by `fhrd schedule`.\n\
             [Unit]\n\
             Description=Runs fhrd {} of the profile {}\n\
             \n\
             [Timer]\n\
             OnCalendar={days}*-*-* {}:00\n\
             # Makes up for a time when the machine was off.\n\
             Persistent=true\n\
             \n\
             [Install]\n\
             WantedBy=timers.target\n",
            self.verb,
            described(&self.profile.replace('%', "%%")),
            arguments.daily.strftime("%H:%M")
        )
    }
}

/// Writes a unit. One that is there and differs is only replaced by `force`.
fn write_unit(path: &Path, text: &str, force: bool) -> Result<()> {
    match fs::read_to_string(path) {
        Ok(old) if old == text => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) if !force => return Err(Error::io("read", path, error)),
        Ok(_) if !force => {
            let reason = "it is there and differs; --force replaces it";
            return Err(Error::io("write", path, std::io::Error::other(reason)));
        }
        _ => {}
    }
    LocalFile::replace(path, text.as_bytes()).map_err(|error| Error::io("write", path, error))
}

/// The days from `now` on, for a year, on which the time of the schedule does not exist.
fn skipped_days(now: &Zoned, zone: &TimeZone, arguments: &ScheduleArguments) -> Vec<String> {
    let is_skipped = |date: &civil::Date| {
        let offset = zone.to_ambiguous_timestamp(date.to_datetime(arguments.daily)).offset();
        let day = date.weekday().to_monday_zero_offset();
        let is_meant = arguments.on.is_empty() || arguments.on.iter().any(|on| *on as i8 == day);
        is_meant && matches!(offset, AmbiguousOffset::Gap { .. })
    };
    let days = (0..DAYS_LOOKED_AT).filter_map(|day| now.date().checked_add(day.days()).ok());
    days.filter(is_skipped).map(|date| date.to_string()).collect()
}

/// A name at the end of a line of a unit: a line that ends in a backslash goes on with the next one.
fn described(name: &str) -> String {
    if name.ends_with('\\') { format!("\"{name}\"") } else { name.into() }
}

/// A argument of `ExecStart=`.
fn quoted_for_unit(argument: &str) -> String {
    let argument = argument.replace('%', "%%").replace('$', "$$");
    if is_plain(&argument) {
        return argument;
    }
    format!("\"{}\"", argument.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A argument for a shell.
fn quoted_for_shell(argument: &str) -> String {
    if is_plain(argument) { argument.into() } else { format!("'{}'", argument.replace('\'', "'\\''")) }
}

fn is_plain(argument: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@+,-%".contains(c);
    !argument.is_empty() && argument.chars().all(plain)
}

/// A name as part of the name of a unit, as `systemd-escape` makes it.
fn escaped(name: &str) -> String {
    let keep = |at: usize, byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte) || byte == b'.' && at > 0;
    let escape = |(at, byte): (usize, u8)| match byte {
        b'/' => "-".into(),
        byte if keep(at, byte) => char::from(byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    name.bytes().enumerate().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_units_and_shells() {
        let unit = ["a-b", "a b", "100%", "$HOME", "a\"b\\c"].map(quoted_for_unit);
        assert_eq!(unit, ["a-b", "\"a b\"", "100%%", "\"$$HOME\"", "\"a\\\"b\\\\c\""]);
        assert_eq!(["a-b", "a b", "it's", ""].map(quoted_for_shell), ["a-b", "'a b'", "'it'\\''s'", "''"]);
        assert_eq!(["nightly", "a\\b", "a\\"].map(described), ["nightly", "a\\b", "\"a\\\""]);
        assert_eq!(["nightly", "a-b", ".x", "a/b c"].map(escaped), ["nightly", "a\\x2db", "\\x2ex", "a-b\\x20c"]);
    }

    #[test]
    fn a_time_that_clocks_skip_is_found() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now: Zoned = "2026-11-25T12:00[Europe/Berlin]".parse().unwrap();
        let arguments = |hour: i8, on: Vec<DayValue>| ScheduleArguments {
            daily: civil::time(hour, 30, 0, 0),
            on,
            crontab: false,
            print: true,
            directory: None,
            force: false,
            command: Vec::new(),
        };
        assert_eq!(skipped_days(&now, &zone, &arguments(2, Vec::new())), ["2027-03-28"]);
        assert_eq!(skipped_days(&now, &zone, &arguments(2, vec![DayValue::Sun])), ["2027-03-28"]);
        assert!(skipped_days(&now, &zone, &arguments(2, vec![DayValue::Mon])).is_empty());
        assert!(skipped_days(&now, &zone, &arguments(3, Vec::new())).is_empty());
    }
}
