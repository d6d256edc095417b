//! The files in which the tools of AWS keep credentials and settings: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Static keys, `credential_process`, `region` and `endpoint_url` are read. A profile that needs the network to get
//! credentials, as single sign-on does, is refused with the command that prints them.

use std::collections::HashMap;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use configparser::ini::{Ini, IniDefault};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::child::{self, in_own_group, without_secrets};
use crate::error::{Error, Result, quoted};
use crate::wire::{input_failed, read_text_file};

/// Bytes of a file, and of what a command prints, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the message of a command that fails, at most.
const ERROR_BYTES_MAX: u64 = 4096;

/// What a profile says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AwsProfile {
    name: String,
    settings: HashMap<String, String>,
}

/// Keys for signatures.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AwsKeys {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    pub(super) session_token: Option<String>,
}

impl AwsProfile {
    /// Reads the profile of `AWS_PROFILE`, or `default`.
    ///
    /// # Errors
    /// [`Error::Usage`] if `AWS_PROFILE` names none. [`Error::Config`] for a file that does not parse.
    pub(super) fn load(
        home: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let chosen = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let name = chosen.clone().unwrap_or_else(|| "default".into());
        let file = |key: &str, own: &str| {
            variable(key).map(PathBuf::from).or_else(|| home.map(|home| home.join(".aws").join(own)))
        };
        let config = file("AWS_CONFIG_FILE", "config");
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let mut found = AwsProfile { name: name.clone(), settings: HashMap::new() };
        let mut is_found = false;
        let section = if name == "default" { name.clone() } else { format!("profile {name}") };
        for (path, section) in [(config, section.as_str()), (credentials, name.as_str())] {
            let Some(mut sections) = path.as_deref().map(|path| read(path, stop)).transpose()? else { continue };
            let Some(settings) = sections.remove(section) else { continue };
            is_found = true;
            found.settings.extend(settings.into_iter().filter_map(|(key, value)| Some((key, value?))));
        }
        if let Some(chosen) = chosen.filter(|_| !is_found) {
            return Err(Error::Usage(format!(
                "AWS_PROFILE is `{chosen}`, but neither ~/.aws/config nor ~/.aws/credentials has that profile"
            )));
        }
        Ok(found)
    }

    /// A setting, as `region`.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The keys of the profile. `None` if it has none, and names no other way to get them.
    ///
    /// # Errors
    /// [`Error::Usage`] if they are incomplete, or come from a service that fhrd does not ask. Errors of the command,
    /// and [`Error::Interrupted`] once `stop` is set while it runs.
    pub(super) fn keys(&self, stop: &AtomicBool) -> Result<Option<AwsKeys>> {
        match (self.setting("aws_access_key_id"), self.setting("aws_secret_access_key")) {
            (Some(id), Some(secret)) => {
                return Ok(Some(AwsKeys {
                    access_key_id: id.into(),
                    secret_access_key: secret.into(),
                    session_token: self.setting("aws_session_token").map(Into::into),
                }));
            }
            (None, None) => {}
            _ => return Err(self.unusable("it has only one of aws_access_key_id and aws_secret_access_key")),
        }
        if let Some(command) = self.setting("credential_process") {
            return self.run(command, stop).map(Some);
        }
        let asked = ["sso_session", "sso_start_url", "role_arn", "login_session"];
        match asked.into_iter().find(|key| self.setting(key).is_some()) {
            None => Ok(None),
            Some(key) => Err(self.unusable(&format!(
                "fhrd does not get credentials through `{key}`. This puts them into the environment: \
                 eval \"$(aws configure export-credentials --profile {} --format env)\"",
                self.name
            ))),
        }
    }

    fn run(&self, command: &str, stop: &AtomicBool) -> Result<AwsKeys> {
        let failed = |error| Error::io("run", "credential_process", error);
        let mut errors = tempfile::tempfile().map_err(failed)?;
        let mut shell = Command::new("sh");
        let shell = without_secrets(&mut shell).arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped());
        let shell = shell.stderr(errors.try_clone().map_err(failed)?);
        let mut child = in_own_group(shell).spawn().map_err(failed)?;
        let output = child::output(&mut child, FILE_BYTES_MAX, stop).map_err(failed)?;
        let Some((status, printed)) = output else { return Err(Error::Interrupted) };
        let printed = Zeroizing::new(printed);
        if !status.success() {
            let mut text = Vec::new();
            let read = errors.rewind().and_then(|()| errors.take(ERROR_BYTES_MAX).read_to_end(&mut text));
            read.map_err(failed)?;
            let text = String::from_utf8_lossy(&text);
            return Err(self.unusable(&format!("its credential_process failed: {}", quoted(text.trim()))));
        }
        serde_json::from_slice(&printed)
            .map_err(|_| self.unusable("its credential_process did not print a JSON document with credentials"))
    }

    fn unusable(&self, why: &str) -> Error {
        Error::Usage(format!("cannot use the AWS profile `{}`: {why}", self.name))
    }
}

/// Settings by section.
type Sections = HashMap<String, HashMap<String, Option<String>>>;

/// Reads a file. One that does not exist has no sections.
fn read(path: &Path, stop: &AtomicBool) -> Result<Sections> {
    let text = match read_text_file(path, FILE_BYTES_MAX, stop) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Sections::new()),
        read => read,
    };
    let text = text.map_err(|error| input_failed("read", path, error))?;
    let mut syntax = IniDefault::default();
    // Indented lines belong to the setting before them. Keys may have any character but line ends.
    (syntax.case_sensitive, syntax.multiline) = (true, true);
    (syntax.delimiters, syntax.enable_inline_comments) = (vec!['='], false);
    let parsed = Ini::new_from_defaults(syntax).read(text);
    parsed.map_err(|message| Error::Config { origin: path.display().to_string(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: [&str; 2], variables: &[(&str, &str)]) -> Result<AwsProfile> {
        let home = tempfile::tempdir().expect("creates a directory");
        std::fs::create_dir(home.path().join(".aws")).expect("creates");
        for (name, text) in ["config", "credentials"].into_iter().zip(files) {
            std::fs::write(home.path().join(".aws").join(name), text).expect("writes");
        }
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
        AwsProfile::load(Some(home.path()), variable, &AtomicBool::new(false))
    }

    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  max_concurrent_requests = 20\n  region = no\n\
                          [profile work]\nregion=us-west-2\nendpoint_url = https://s3.example:9000/\n\
                          credential_process = printf '{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"Q\"}'\n\
                          [profile sso]\nsso_session = x\n[profile bad]\ncredential_process = echo no >&2; exit 3\n";
    const CREDENTIALS: &str = "# a comment\n[default]\naws_access_key_id = AK\naws_secret_access_key = a/b+c\\n=\n\
                               [half]\naws_access_key_id = AK\n[session]\naws_access_key_id=I\n\
                               aws_secret_access_key=S\naws_session_token=T\n";

    #[test]
    fn keys_and_settings_come_from_both_files() {
        let profile = load([CONFIG, CREDENTIALS], &[]).expect("reads");
        assert_eq!(profile.setting("region"), Some("eu-west-1"));
        let keys = profile.keys(&AtomicBool::new(false)).expect("fine").expect("has keys");
        assert_eq!((keys.access_key_id.as_str(), keys.secret_access_key.as_str()), ("AK", "a/b+c\\n="));
        let session = load([CONFIG, CREDENTIALS], &[("AWS_PROFILE", "session")]).expect("reads");
        assert_eq!(
            session.keys(&AtomicBool::new(false)).expect("fine").expect("has keys").session_token.as_deref(),
            Some("T")
        );
        let work = load([CONFIG, ""], &[("AWS_PROFILE", "work")]).expect("reads");
        assert_eq!(work.setting("endpoint_url"), Some("https://s3.example:9000/"));
        assert_eq!(work.keys(&AtomicBool::new(false)).expect("runs").expect("has keys").secret_access_key, "Q");
        assert!(load(["", ""], &[]).expect("reads").keys(&AtomicBool::new(false)).expect("fine").is_none());
    }

    #[test]
    fn what_a_profile_lacks_is_said() {
        let message = |name: &str| match load([CONFIG, CREDENTIALS], &[("AWS_PROFILE", name)]) {
            Ok(profile) => profile.keys(&AtomicBool::new(false)).err().expect("no keys").to_string(),
            Err(error) => error.to_string(),
        };
        assert!(message("none").contains("AWS_PROFILE is `none`"));
        assert!(message("half").contains("only one of"));
        assert!(message("sso").contains("export-credentials --profile sso"));
        assert!(message("bad").contains("failed: no"), "{}", message("bad"));
    }
}
