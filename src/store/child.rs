//! Programs that this one starts.

use std::process::Command;

/// Variables with a password.
const SECRETS: [&str; 3] = ["FHRD_PASSWORD", "FHRD_NEW_PASSWORD", "FHRD_FROM_PASSWORD"];

/// `command` without the passwords in the environment: a program like `ssh` may pass its variables on.
pub fn without_secrets(command: &mut Command) -> &mut Command {
    SECRETS.into_iter().fold(command, |command, name| command.env_remove(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_no_password() {
        let mut command = Command::new("ssh");
        command.env("FHRD_PASSWORD", "secret").env("OTHER", "kept");
        let left: Vec<_> = without_secrets(&mut command).get_envs().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(left, [("OTHER".as_ref(), Some("kept".as_ref()))]);
    }
}
