//! What the help says beyond the definitions: the verbs in groups, and examples.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use super::Arguments;
use crate::kernel::cpu_features::CpuFeatures;

/// The verbs by what they are for, in the order of the help.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Back up", &["init", "backup", "estimate", "import"]),
    ("Look", &["status", "snapshots", "ls", "find", "diff", "stats", "report"]),
    ("Get back", &["restore", "cat", "dump", "mount"]),
    ("Keep", &["forget", "prune", "recompress", "cold", "tag", "rewrite", "copy"]),
    ("Protect", &["key", "parity", "check", "verify", "repair", "upgrade"]),
    ("Models and training runs", &["runs", "steps", "best", "models", "lineage", "distance"]),
    ("Serve", &["publish", "unpublish", "published", "serve"]),
    ("Other", &["schedule", "completions", "man", "trace", "bench"]),
];

/// Command lines of each verb, and what they do.
const EXAMPLES: [(&str, &[(&str, &str)]); 43] = [
    (
        "init",
        &[
            ("fhrd init --repo /backup/fhrd", "create a repository"),
            ("fhrd init --repo s3://bucket/prefix --recovery-key", "encrypted, in a bucket"),
        ],
    ),
    (
        "key",
        &[
            ("fhrd key list", "show the passwords and key files"),
            ("fhrd key add --recovery-key", "add a key to print and put away"),
        ],
    ),
    (
        "backup",
        &[
            ("fhrd backup ~/documents ~/models --tag nightly", "store two directories"),
            ("fhrd backup ~ --exclude *.iso --exclude-caches -n -v", "name what would be stored, and store nothing"),
            ("fhrd backup --run tune --step 400 --metric loss=0.31 ckpt", "store a step of a training"),
            ("fhrd backup --stdin-filename db.sql --stdin-from-command -- pg_dump shop", "store a stream"),
        ],
    ),
    (
        "estimate",
        &[
            ("fhrd estimate ~/models /var/lib/images", "what a first backup would store, in a minute"),
            ("fhrd estimate ~ --exclude *.iso --time 10min", "a closer look"),
        ],
    ),
    (
        "import",
        &[
            ("fhrd import --from restic /backup/restic", "every snapshot; run it again to go on"),
            ("fhrd import --from restic s3:s3.amazonaws.com/bucket --dry-run", "what there is"),
        ],
    ),
    (
        "restore",
        &[
            ("fhrd restore latest --target back", "everything of the latest snapshot"),
            ("fhrd restore latest:home/me/thesis --target thesis", "the content of a directory"),
            ("fhrd restore latest --target / --path home/me/thesis --overwrite if-changed", "back where it was"),
        ],
    ),
    (
        "snapshots",
        &[
            ("fhrd snapshots", "all of them"),
            ("fhrd snapshots --host nas --latest 3", "the last three of each set of paths"),
        ],
    ),
    ("ls", &[("fhrd ls latest:home/me --long", "one directory"), ("fhrd ls latest~1", "everything in the one before")]),
    (
        "find",
        &[
            ("fhrd find *.safetensors --size-min 1GiB", "large models in all snapshots"),
            ("fhrd find notes.txt --newer 3d", "versions of the last three days"),
        ],
    ),
    (
        "diff",
        &[
            ("fhrd diff latest~1 latest", "what the last backup changed"),
            ("fhrd diff 1f3a:src latest:src --metadata", "one directory, with permissions and times"),
        ],
    ),
    ("cat", &[("fhrd cat latest:home/me/notes.txt", "print a file")]),
    ("dump", &[("fhrd dump latest:home/me/models --output models.tar", "a directory as a tar archive")]),
    ("mount", &[("fhrd mount /mnt", "browse all snapshots, until Ctrl-C or umount")]),
    ("runs", &[("fhrd runs", "all training runs")]),
    ("steps", &[("fhrd steps tune", "metrics and stored bytes of each step")]),
    (
        "best",
        &[
            ("fhrd best tune --metric loss", "the step with the smallest loss"),
            ("fhrd best tune --metric accuracy --mode max --restore best", "restore the most accurate one"),
        ],
    ),
    (
        "models",
        &[
            ("fhrd models", "the models of the latest snapshot"),
            ("fhrd models latest:hub --sort stored --top 10", "the ten that take most space in a directory"),
            ("fhrd models --families", "the families, with what each takes"),
        ],
    ),
    ("lineage", &[("fhrd lineage --all", "the models of all snapshots as trees")]),
    ("distance", &[("fhrd distance base.safetensors latest:ft/model.safetensors", "compare a file with a stored one")]),
    (
        "status",
        &[
            ("fhrd status", "last backups, damage, what is proven, space"),
            (
                "fhrd status --expect 26h --host nas",
                "for a monitor: exits with 4 if nas has no backup of the last 26 hours",
            ),
        ],
    ),
    (
        "stats",
        &[
            ("fhrd stats", "what the repository holds, and what it saves"),
            ("fhrd stats latest:home/me", "a directory by kind of file"),
            ("fhrd stats --by-snapshot", "what forgetting each snapshot would free"),
        ],
    ),
    (
        "report",
        &[
            ("fhrd report --out report.html", "health, space, growth, models and training runs as one page"),
            ("fhrd report --json", "the same for a program"),
        ],
    ),
    (
        "forget",
        &[
            ("fhrd forget --keep-daily 7 --keep-weekly 5 --dry-run", "show what would go"),
            ("fhrd forget --keep-daily 7 --keep-weekly 5 --prune", "delete it, and free its space"),
            ("fhrd forget 1f3a", "delete one snapshot"),
        ],
    ),
    ("copy", &[("fhrd copy --repo /second --from-repo /backup/fhrd", "copy what the second lacks")]),
    ("rewrite", &[("fhrd rewrite --exclude *.iso --forget", "remove files from all snapshots")]),
    ("tag", &[("fhrd tag latest --add checked", "add a tag")]),
    (
        "publish",
        &[
            ("fhrd publish latest:home/me/llama me/llama", "as the revision main of a model"),
            ("fhrd publish run:tune@400:ckpt me/tune --revision step-400", "a step of a training"),
            ("fhrd publish latest:data/poems me/poems --type dataset", "a dataset"),
        ],
    ),
    ("unpublish", &[("fhrd unpublish me/tune --revision step-400", "one revision; without --revision all of them")]),
    ("published", &[("fhrd published", "all names with their revisions and commits")]),
    (
        "serve",
        &[
            ("fhrd serve", "to clients of this machine, at http://127.0.0.1:8080"),
            ("fhrd serve --listen 0.0.0.0:8080 --token-file tokens", "to all who have a token"),
        ],
    ),
    ("prune", &[("fhrd prune --dry-run", "show what would be freed"), ("fhrd prune", "free it")]),
    (
        "recompress",
        &[
            ("fhrd recompress --dry-run", "show how much could be compressed more"),
            ("fhrd recompress --repack 20GiB", "compress the oldest 20 GiB of it"),
        ],
    ),
    (
        "parity",
        &[
            ("fhrd parity set 3%", "from now on, each container gets 3 % of its bytes as parity"),
            ("fhrd parity add", "protect what is stored already"),
        ],
    ),
    (
        "cold",
        &[
            ("fhrd cold set on", "data containers may be in GLACIER or a class like it"),
            ("fhrd cold add", "write the hot indexes of what is stored already"),
        ],
    ),
    (
        "check",
        &[
            ("fhrd check", "everything is there"),
            ("fhrd check --read-data-subset 5%", "read a random twentieth of the data, too"),
        ],
    ),
    (
        "verify",
        &[
            ("fhrd verify --sample 2%", "restore one of 50 files into nothing"),
            ("fhrd verify --within 90d", "each night: read what was not read for longest"),
        ],
    ),
    (
        "repair",
        &[("fhrd repair index", "write the index again"), ("fhrd repair snapshots --dry-run", "show what is lost")],
    ),
    ("upgrade", &[("fhrd upgrade", "enable what this version brings")]),
    (
        "schedule",
        &[
            ("fhrd schedule --daily 02:30 --profile nightly", "a backup each night, with systemd"),
            ("fhrd schedule --daily 04:00 --profile nightly -- verify --within 90d", "and a verification"),
            ("fhrd schedule --daily 02:30 --profile nightly --crontab", "print a line for crontab"),
        ],
    ),
    ("trace", &[("fhrd trace src --output trace.txt", "the chunks of a directory")]),
    ("completions", &[("fhrd completions bash", "print the script; put it where your shell looks for it")]),
    ("man", &[("fhrd man ~/.local/share/man/man1", "write the pages")]),
    ("bench", &[("fhrd bench configs/bench/quick.toml --out report", "a quick comparison")]),
];

/// The command line with the groups and examples in its help.
pub fn command() -> Command {
    let command = Arguments::command();
    let groups = groups(&command);
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}");
    let command = command.help_template(template).long_version(version());
    EXAMPLES.iter().fold(command, |command, (verb, examples)| {
        let exists = command.find_subcommand(verb).is_some();
        if exists { command.mut_subcommand(verb, |verb| with_examples(verb, examples)) } else { command }
    })
}

/// What `--version` prints after the name: version, commit if the build says it, platform and CPU features in use.
fn version() -> String {
    let commit = option_env!("FHRD_COMMIT").map(|commit| format!(" (commit {commit})")).unwrap_or_default();
    let library = if cfg!(target_env = "musl") { "static, musl" } else { "dynamic" };
    let features: Vec<&str> = CpuFeatures::used().labels().collect();
    let features = if features.is_empty() { "none that it could use".into() } else { features.join(", ") };
    let (version, os, processor) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    format!("{version}{commit}\nplatform: {os} {processor} ({library})\nCPU features: {features}")
}

/// The verbs with their first lines, under the names of their groups.
fn groups(command: &Command) -> String {
    let verbs: Vec<&Command> = command.get_subcommands().collect();
    let width = verbs.iter().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, members) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}:");
        for verb in members.iter().filter_map(|member| verbs.iter().find(|verb| verb.get_name() == *member)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:width$}  {about}", verb.get_name());
        }
        text.push('\n');
    }
    text
}

fn with_examples(verb: Command, examples: &[(&str, &str)]) -> Command {
    let mut text = verb.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    text.push_str("Examples:");
    for (line, what) in examples {
        let _ = write!(text, "\n  {line}\n      {what}");
    }
    verb.after_help(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group_and_has_examples_that_are_accepted() {
        let command = command();
        for verb in command.get_subcommands().map(Command::get_name) {
            let groups = GROUPS.iter().filter(|(_, members)| members.contains(&verb)).count();
            assert_eq!(groups, 1, "{verb}");
            let (_, examples) = EXAMPLES.iter().find(|(name, _)| *name == verb).unwrap_or_else(|| panic!("{verb}"));
            for (line, _) in *examples {
                assert!(line.starts_with(&format!("fhrd {verb}")) && line.len() < 80, "{line}");
                let parsed = command.clone().try_get_matches_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
