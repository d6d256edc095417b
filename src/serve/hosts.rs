//! Whether a request is meant for this server: the checks against DNS rebinding and foreign pages.
//!
//! A page of a browser can give its own name the address of this machine. Its requests then have that name in `Host`.
//! So a name must be known; an address is never a name of somebody else.

use std::net::IpAddr;

/// Names of this server.
#[derive(Debug, Clone, Default)]
pub struct HostRules {
    /// Names, in lower case.
    names: Vec<String>,
    /// The origin of the public URL, in lower case.
    public_origin: Option<String>,
}

/// Why a request is not meant for this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostFault {
    /// It does not say for whom it is.
    Missing,
    /// It is for another host.
    Foreign,
    /// It comes from a page of another origin.
    ForeignOrigin,
}

impl HostRules {
    /// Rules for a server with these names, and with the URL under which clients know it.
    ///
    /// # Errors
    /// A message if that is no `http://` or `https://` URL of a host alone.
    pub fn new(names: &[String], public_url: Option<&str>) -> Result<Self, String> {
        let mut rules =
            HostRules { names: names.iter().map(|name| name.to_ascii_lowercase()).collect(), ..Self::default() };
        rules.names.push("localhost".into());
        if let Some(url) = public_url {
            let origin = url.trim_end_matches('/').to_ascii_lowercase();
            let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
            let host = authority.filter(|authority| authority.chars().all(is_plain)).map(host_of);
            let host = host.filter(|host| !host.is_empty());
            let host = host.ok_or_else(|| format!("expected a URL such as https://models.example, found `{url}`"))?;
            rules.names.push(host.to_string());
            rules.public_origin = Some(origin);
        }
        Ok(rules)
    }

    /// The origin of the public URL.
    pub fn public_origin(&self) -> Option<&str> {
        self.public_origin.as_deref()
    }

    /// Checks the headers of a request.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self, host: Option<&str>, origin: Option<&str>) -> Result<(), HostFault> {
        let host = host.filter(|host| !host.is_empty()).ok_or(HostFault::Missing)?.to_ascii_lowercase();
        let name = host_of(&host);
        let is_address = name.parse::<IpAddr>().is_ok();
        if !is_address && !self.names.iter().any(|own| own == name) {
            return Err(HostFault::Foreign);
        }
        let Some(origin) = origin.map(str::to_ascii_lowercase) else { return Ok(()) };
        let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        let is_own = authority == Some(host.as_str()) || self.public_origin.as_ref() == Some(&origin);
        if is_own { Ok(()) } else { Err(HostFault::ForeignOrigin) }
    }
}

/// The host of `HOST:PORT`.
fn host_of(authority: &str) -> &str {
    let host = match authority.rsplit_once(']') {
        // Nothing but a port may stand behind an address in brackets.
        Some((address, "")) => address.strip_prefix('[').unwrap_or(authority),
        Some((address, rest)) if rest.strip_prefix(':').is_some_and(is_port) => {
            address.strip_prefix('[').unwrap_or(authority)
        }
        Some(_) => authority,
        None => authority.split_once(':').filter(|(_, port)| is_port(port)).map_or(authority, |(host, _)| host),
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// Whether it is a port, which may be empty. The text behind a host comes back in links, so it must be nothing else.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && (text.is_empty() || text.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_pass_and_other_names_do_not() {
        let rules = HostRules::new(&["Nas".into()], Some("https://models.example:8443/")).unwrap();
        for good in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "[::1]:8080",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "localhost.:80",
            "192.168.1.5:80",
            "nas:8080",
            "models.example",
            "models.example:8443",
        ] {
            assert_eq!(rules.check(Some(good), None), Ok(()), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "nas.evil.example",
            "xmodels.example",
            "localhost@evil.example",
            "[::1].evil.example",
            "0x7f.1",
            ":80",
            "[",
            "[]",
            "localhost:1@evil.example",
            "127.0.0.1:80> ; <http://evil.example",
            "localhost:65536",
            "[::1]:x",
        ] {
            assert_eq!(rules.check(Some(bad), None), Err(HostFault::Foreign), "{bad}");
        }
        assert_eq!(rules.check(None, None), Err(HostFault::Missing));
        assert_eq!(rules.check(Some(""), None), Err(HostFault::Missing));
    }

    #[test]
    fn a_page_of_another_origin_gets_nothing() {
        let rules = HostRules::new(&[], Some("https://models.example")).unwrap();
        let check = |host, origin| rules.check(Some(host), Some(origin));
        assert_eq!(check("127.0.0.1:8080", "http://127.0.0.1:8080"), Ok(()));
        assert_eq!(check("127.0.0.1:8080", "https://models.example"), Ok(()));
        for foreign in ["null", "", "http://127.0.0.1:9090", "http://evil.example", "file://", "models.example"] {
            assert_eq!(check("127.0.0.1:8080", foreign), Err(HostFault::ForeignOrigin), "{foreign}");
        }
    }

    #[test]
    fn a_public_url_has_a_host_and_nothing_more() {
        for bad in ["", "models.example", "ftp://a", "http://", "http://a/b", "http://a?b", "http://u@a", "http://:80"]
        {
            assert!(HostRules::new(&[], Some(bad)).is_err(), "{bad}");
        }
    }
}
