//! Every verb and every flag of `fhrd`: arguments in a file for each group. The doc comments are the help texts.

mod backup;
mod check;
mod cold;
mod environment;
mod estimate;
mod exclude;
mod help;
mod hints;
mod import;
mod keep;
mod key;
mod look;
mod manual;
mod measure;
mod metrics;
mod models;
mod options;
mod parity;
mod publish;
mod relations;
mod repair;
mod restore;
mod runs;
mod schedule;
#[cfg(feature = "serve")]
mod serve;
#[cfg(test)]
mod tests;
mod values;
mod verbs;
mod verify;

use clap::Parser;

pub use backup::{BackupArguments, BackupLevel, ChoiceArguments, InputArguments, ShareArguments};
pub use cold::{ColdSetting, ColdVerb};
pub use environment::{matches_of, of_process};
pub use estimate::EstimateArguments;
pub use exclude::ExcludeArguments;
pub use import::ImportArguments;
pub use keep::{
    CopyArguments, ForgetArguments, InitArguments, PruneArguments, RecompressArguments, RewriteArguments, TagArguments,
};
pub use key::{EncryptionArguments, KeyVerb, NewSecretArguments};
pub use look::{
    CatArguments, DiffArguments, DumpArguments, FilterArguments, FindArguments, LsArguments, MountArguments,
    ReportArguments, SnapshotsArguments, StatsArguments, StatusArguments,
};
pub use manual::{CompletionsArguments, ManArguments};
pub use measure::{ProgramArguments, TraceArguments};
pub use metrics::MetricsArguments;
pub use models::{DistanceArguments, LineageArguments, ModelOrder, ModelsArguments, SnapshotChoice};
pub use options::Options;
pub use parity::{ParitySetting, ParityVerb};
pub use publish::{PublishArguments, UnpublishArguments};
pub use repair::{RepairSnapshotsArguments, RepairVerb, UpgradeArguments};
pub use runs::{BestArguments, CheckpointArguments, StepsArguments};
pub use schedule::{DayValue, ScheduleArguments};
#[cfg(feature = "serve")]
pub use serve::ServeArguments;
pub use values::{parse_grace, parse_min_age, parse_period};
pub use verbs::Verb;
pub use {check::CheckArguments, help::command, restore::RestoreArguments, verify::VerifyArguments};

/// Data-reduction backup engine for source code, images, databases and machine-learning models
#[derive(Debug, Parser)]
#[command(name = "fhrd", version, propagate_version = true, after_help = options::EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
    /// Options of every verb.
    #[command(flatten)]
    pub options: Options,
}
