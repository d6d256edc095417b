//! Arguments of `schedule`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use jiff::civil::Time;

const SCHEDULE_NOTES: &str = "\
It writes a service and a timer of systemd: below ~/.config/systemd/user, or in /etc/systemd/system for root. Nothing
is started: it prints the commands that do. Passwords belong into the file ~/.config/fhrd/NAME.env, which only you can
read, as lines such as FHRD_PASSWORD_FILE=/path.";

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum DayValue {
    /// Monday
    Mon,
    /// Tuesday
    Tue,
    /// Wednesday
    Wed,
    /// Thursday
    Thu,
    /// Friday
    Fri,
    /// Saturday
    Sat,
    /// Sunday
    Sun,
}

/// Arguments of `schedule`.
#[derive(Debug, Args)]
#[command(after_help = SCHEDULE_NOTES)]
pub struct ScheduleArguments {
    /// Time of the day in the local time zone, such as 02:30
    #[arg(long, value_name = "TIME", value_parser = parse_clock)]
    pub daily: Time,
    /// Only on these days of the week, such as sat,sun
    #[arg(long, value_name = "DAYS", value_delimiter = ',')]
    pub on: Vec<DayValue>,
    /// Print a line for crontab instead
    #[arg(long, conflicts_with_all = ["print", "directory", "force"])]
    pub crontab: bool,
    /// Print the units instead of writing them
    #[arg(long, conflicts_with = "directory")]
    pub print: bool,
    /// Directory of the units
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Replace units that differ
    #[arg(long)]
    pub force: bool,
    /// Verb and options to run with the profile, such as `-- verify --within 90d` [default: backup]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Hours and minutes. 24:00 is no time of a day.
fn parse_clock(text: &str) -> Result<Time, String> {
    Time::strptime("%H:%M", text).map_err(|_| format!("expected a time from 00:00 to 23:59: `{text}`"))
}
