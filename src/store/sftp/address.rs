//! The URL of an SFTP store: `sftp://[user@]host[:port]/path`.
//!
//! A path is absolute. `/./` or `/~/` before it makes it relative to the directory in which the server starts, usually
//! the home directory. Bytes may be percent-encoded.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use super::super::scheme::percent_decoded;
use crate::error::{Error, Result};

/// Where an SFTP store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SftpAddress {
    pub user: Option<String>,
    /// Name or address, without brackets, as `ssh` takes it.
    pub host: String,
    pub port: Option<u16>,
    /// Path on the server without a slash at its end: absolute, or relative to where the server starts. `.` is there.
    pub path: Vec<u8>,
}

impl SftpAddress {
    /// Parses what follows `sftp://`.
    ///
    /// # Errors
    /// [`Error::Usage`] with the expected form.
    pub fn parse(rest: &OsStr) -> Result<Self> {
        let invalid = |why: &str| {
            Error::Usage(format!(
                "sftp://{} is not a valid location: {why}; expected sftp://user@host:port/path, or /~/path for a path \
                 below the home directory",
                rest.display()
            ))
        };
        let bytes = rest.as_bytes();
        let slash = bytes.iter().position(|byte| *byte == b'/').ok_or_else(|| invalid("it has no path"))?;
        let (authority, path) = bytes.split_at(slash);
        let authority = std::str::from_utf8(authority).map_err(|_| invalid("its host is not UTF-8"))?;
        let (user, host_port) = match authority.rsplit_once('@') {
            Some((user, host_port)) => (Some(user), host_port),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(invalid("ssh takes no password from a URL, so use a key or an agent"));
        }
        let (host, port) = split_port(host_port).ok_or_else(|| invalid("a bracket is missing"))?;
        let port = match port {
            None => None,
            Some(text) => Some(text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| invalid("its port"))?),
        };
        // A name that begins with a dash would be an option of ssh.
        // A name with characters of a shell would be run by a `ProxyCommand` of the user's configuration of ssh. As in
        // ssh, users may have `$`, and `\` before other characters: `DOMAIN\user`.
        let is_bad = |char: char| char.is_whitespace() || char.is_control() || "'`\";&<>|(){}".contains(char);
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('-') && !name.contains(is_bad);
        let is_host = |name: &str| is_name(name) && !name.contains(['$', '\\']);
        if !is_host(host) || user.is_some_and(|user| !is_name(user) || user.ends_with('\\')) {
            return Err(invalid("its user or host"));
        }
        let path = percent_decoded(path).filter(|path| !path.contains(&0));
        let path = server_path(&path.ok_or_else(|| invalid("`%` is written as %25"))?);
        Ok(SftpAddress { user: user.map(str::to_string), host: host.into(), port, path })
    }
}

/// Splits `host:port`, where a host with colons stands in brackets.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after {
            "" => Some((host, None)),
            _ => after.strip_prefix(':').map(|port| (host, Some(port))),
        };
    }
    Some(text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))))
}

/// The path on the server of the path of a URL.
fn server_path(url_path: &[u8]) -> Vec<u8> {
    let components = url_path.split(|byte| *byte == b'/').filter(|component| !component.is_empty());
    let mut components = components.peekable();
    let relative = components.next_if(|first| *first == b"~" || *first == b".").is_some();
    let path = components.filter(|component| *component != b".").collect::<Vec<_>>().join(&b'/');
    match (relative, path.is_empty()) {
        (true, true) => b".".to_vec(),
        (true, false) => path,
        (false, _) => [b"/", path.as_slice()].concat(),
    }
}

/// The URL.
impl fmt::Display for SftpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sftp://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if !self.path.starts_with(b"/") {
            f.write_str("/~/")?;
        }
        for byte in self.path.strip_prefix(b".").filter(|rest| rest.is_empty()).unwrap_or(&self.path) {
            match byte {
                b'/' | b'.' | b'-' | b'_' | b'~' | b'+' | b'@' => write!(f, "{}", char::from(*byte))?,
                byte if byte.is_ascii_alphanumeric() => write!(f, "{}", char::from(*byte))?,
                byte => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_written_again() {
        let address = |user: Option<&str>, host: &str, port, path: &str| SftpAddress {
            user: user.map(str::to_string),
            host: host.into(),
            port,
            path: path.as_bytes().to_vec(),
        };
        let cases = [
            ("host/srv/backup", address(None, "host", None, "/srv/backup"), "sftp://host/srv/backup"),
            ("a@b@host:22//srv/x/", address(Some("a@b"), "host", Some(22), "/srv/x"), "sftp://a@b@host:22/srv/x"),
            ("me@[::1]:2222/a%20b", address(Some("me"), "::1", Some(2222), "/a b"), "sftp://me@[::1]:2222/a%20b"),
            ("D\\me$@host/p", address(Some("D\\me$"), "host", None, "/p"), "sftp://D\\me$@host/p"),
            ("[fe80::1]/", address(None, "fe80::1", None, "/"), "sftp://[fe80::1]/"),
            ("host/~/x/./y", address(None, "host", None, "x/y"), "sftp://host/~/x/y"),
            ("host/./x", address(None, "host", None, "x"), "sftp://host/~/x"),
            ("host/~/", address(None, "host", None, "."), "sftp://host/~/"),
            ("host/%7E", address(None, "host", None, "."), "sftp://host/~/"),
            ("host/~user/x", address(None, "host", None, "/~user/x"), "sftp://host/~user/x"),
        ];
        for (text, expected, written) in cases {
            let parsed = SftpAddress::parse(OsStr::new(text)).unwrap();
            assert_eq!(parsed, expected, "{text}");
            assert_eq!(parsed.to_string(), written);
            let again = SftpAddress::parse(OsStr::new(written.strip_prefix("sftp://").unwrap())).unwrap();
            assert_eq!(again, expected, "{written}");
        }
    }

    #[test]
    fn what_ssh_would_misunderstand_is_refused() {
        let cases = [
            ("host", "no path"),
            ("", "no path"),
            ("/path", "user or host"),
            ("-oProxyCommand=x/p", "user or host"),
            ("`id`@host/p", "user or host"),
            ("$(id)@host/p", "user or host"),
            ("DOMAIN\\@host/p", "user or host"),
            ("me@host$x/p", "user or host"),
            ("host;id/p", "user or host"),
            ("me\u{7}@host/p", "user or host"),
            ("-l@host/p", "user or host"),
            ("@host/p", "user or host"),
            ("me:secret@host/p", "password"),
            ("host:0/p", "port"),
            ("host:99999/p", "port"),
            ("host:/p", "port"),
            ("[::1/p", "bracket"),
            ("[::1]x/p", "bracket"),
            ("host/%zz", "%25"),
            ("host/a%00b", "%25"),
        ];
        for (text, why) in cases {
            let error = SftpAddress::parse(OsStr::new(text)).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
