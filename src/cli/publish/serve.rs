//! `fhrd serve`: what is published, to clients of the Hub, until Ctrl-C.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::cli::Session;
use crate::cli::args::ServeArguments;
use crate::cli::exit::Exit;
use crate::cli::location;
use crate::cli::output::{note, print_json};
use crate::cli::request::host_name;
use crate::cli::secrets::read_file;
use crate::error::{Error, Result};
use crate::serve::{HostRules, Listening, ServeLimits, Tokens, UploadReceiver, serve, state, tls};

/// Serves until the user asks to stop.
///
/// # Errors
/// [`Error::Usage`] if the arguments would let everybody read without saying so, or a file is of no use; errors of the
/// repository, and of [`serve`].
pub fn run(session: &Session, arguments: &ServeArguments) -> Result<Exit> {
    let is_here = arguments.listen.ip().is_loopback();
    if !is_here && arguments.token_file.is_none() && !arguments.no_auth {
        let address = arguments.listen;
        return Err(Error::Usage(format!(
            "others than this machine could read everything that is published at {address}: give --token-file, or say \
             --no-auth"
        )));
    }
    if arguments.writable && !is_here && arguments.token_file.is_none() {
        return Err(Error::Usage("--writable: others than this machine could write; give --token-file".into()));
    }
    let tokens = arguments.token_file.as_deref().map(tokens).transpose()?;
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(tls(certificate, key)?),
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let is_hidden = tls.is_some() || arguments.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    if tokens.is_some() && !is_here && !is_hidden {
        tracing::warn!("tokens and files go over the network in the clear: see --tls-cert");
    }
    let own = hostname::get().ok().and_then(|name| name.into_string().ok());
    let hosts = HostRules::new(own.as_slice(), arguments.public_url.as_deref());
    let hosts = hosts.map_err(|message| Error::Usage(format!("--public-url: {message}")))?;
    let limits = ServeLimits {
        connections: usize::from(arguments.connections),
        header: arguments.timeout,
        body: arguments.timeout,
        write: arguments.timeout,
        ..ServeLimits::default()
    };
    // Answers end after the user has asked to stop, so that must not end their reads.
    let halt = Arc::default();
    let repository = location::open_until(session, &halt)?;
    let uploads = if arguments.writable {
        let config = location::config(&session.options)?;
        Some(UploadReceiver::new(repository.clone(), config, host_name(), halt.clone())?)
    } else {
        None
    };
    let state = state(repository, tokens, hosts, limits, uploads, arguments.publish_all)?;
    let count = state.published()?;
    let started = |address: SocketAddr| {
        let url = arguments.public_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
        if session.options.json {
            return print_json(&json!({ "listening": address.to_string(), "url": url, "published": count }));
        }
        if !session.options.quiet {
            let noun = if count == 1 { "snapshot" } else { "snapshots" };
            note(&format!("{count} published {noun} at {url}; Ctrl-C ends this"));
        }
        Ok(())
    };
    let listening = Listening { address: arguments.listen, tls };
    serve(&state, listening, &session.stop, &halt, started)?;
    Ok(Exit::Fine)
}

/// The tokens of a file.
fn tokens(path: &Path) -> Result<Tokens> {
    let unusable = |reason: String| Error::Usage(format!("{}: {reason}", path.display()));
    let text = String::from_utf8(read_file(path)?).map_err(|_| unusable("it is no text".into()))?;
    if path.metadata().is_ok_and(|metadata| metadata.mode() & 0o077 != 0) {
        tracing::warn!("others than its owner may read {}: see chmod 600", path.display());
    }
    Tokens::parse(&text).map_err(unusable)
}
