//! Hints for those who know restic or borg.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What other programs call a verb, our verb, and what to know about it.
const VERBS: [(&str, &str, &str); 19] = [
    ("create", "backup", "`fhrd backup PATH...` stores a snapshot; it needs no name"),
    ("extract", "restore", "`fhrd restore latest --target DIR` writes a snapshot to disk"),
    ("list", "snapshots", "`fhrd snapshots` lists the snapshots, and `fhrd ls latest` the entries of one"),
    ("archives", "snapshots", "`fhrd snapshots` lists the snapshots"),
    ("info", "stats", "`fhrd stats` shows what the repository holds, and `fhrd stats latest` one snapshot"),
    ("delete", "forget", "`fhrd forget ID` deletes a snapshot, and `fhrd prune` frees the space"),
    ("remove", "forget", "`fhrd forget ID` deletes a snapshot, and `fhrd prune` frees the space"),
    ("compact", "prune", "`fhrd prune` frees the space of deleted snapshots"),
    ("gc", "prune", "`fhrd prune` frees the space of deleted snapshots"),
    ("unlock", "check", "a repository has no locks: there is nothing to unlock"),
    ("break-lock", "check", "a repository has no locks: there is nothing to break"),
    ("export-tar", "dump", "`fhrd dump latest --output FILE` writes a tar archive"),
    ("umount", "mount", "`umount DIR` ends a mount; so does Ctrl-C in its terminal"),
    ("rebuild-index", "repair", "`fhrd repair index` writes the index again"),
    ("recover", "repair", "`fhrd repair snapshots` writes damaged snapshots again without what is lost"),
    ("recreate", "rewrite", "`fhrd rewrite --exclude PATTERN` removes entries from snapshots"),
    ("migrate", "upgrade", "`fhrd upgrade` enables what this version brings"),
    ("generate", "completions", "`fhrd completions SHELL` and `fhrd man DIR` write completions and manual pages"),
    ("version", "help", "`fhrd --version` prints the version"),
];

/// What may have been meant, with the suggestion of the error replaced by it.
pub fn hint(error: &mut clap::Error) -> Option<&'static str> {
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let given = text(error, ContextKind::InvalidSubcommand);
            let (_, verb, hint) = VERBS.iter().find(|(name, ..)| *name == given)?;
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![(*verb).into()]));
            Some(hint)
        }
        ErrorKind::UnknownArgument => match text(error, ContextKind::InvalidArg).as_str() {
            "-r" => Some("`--repo LOCATION`, or FHRD_REPO, says which repository"),
            "-p" => Some("`--password-file FILE` says where the password is"),
            "-o" | "--option" => Some("`--config FILE` gives parameters; configs/default.toml documents them"),
            "--list" => Some("`-v` names new, changed and removed entries"),
            "--compression" | "-C" => Some("`compress.level` in a file for --config sets the compression"),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::help::command;
    use super::*;

    #[test]
    fn verbs_of_other_programs_are_none_of_ours_and_name_one() {
        let ours: Vec<String> = command().get_subcommands().map(|verb| verb.get_name().to_string()).collect();
        for (name, verb, _) in VERBS {
            assert!(!ours.iter().any(|ours| ours == name), "{name}");
            assert!(verb == "help" || ours.iter().any(|ours| ours == verb), "{verb}");
            let mut error = command().try_get_matches_from(["fhrd", name]).unwrap_err();
            assert!(hint(&mut error).is_some(), "{name}");
            assert!(error.to_string().contains(&format!("'{verb}'")), "{error}");
        }
        let mut error = command().try_get_matches_from(["fhrd", "snapshots", "-r", "x"]).unwrap_err();
        assert!(hint(&mut error).is_some_and(|hint| hint.contains("--repo")));
        let mut error = command().try_get_matches_from(["fhrd", "snapshotz"]).unwrap_err();
        assert!(hint(&mut error).is_none() && error.to_string().contains("'snapshots'"));
    }
}
