//! Arguments of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

const SERVE_NOTES: &str = "\
Clients find it through HF_ENDPOINT=http://127.0.0.1:8080. What they see is what `fhrd publish` has published; names that
are published later are there within seconds. Nothing is written into the repository, unless --writable lets clients
upload, such as `hf upload`.

A file of tokens has a line for each: TOKEN read, or TOKEN write ORG/* for the names of one ORG. Without tokens, only
this machine may ask, unless --no-auth is given. Requests that name another host than this one are refused: give the URL
that clients use as --public-url. -v prints a line for each request. docs/SERVE.md has more.";

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: u64 = text.parse().map_err(|_| format!("expected seconds, found `{text}`"))?;
    match seconds {
        1..=3600 => Ok(Duration::from_secs(seconds)),
        _ => Err("expected 1 to 3600 seconds".into()),
    }
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_NOTES)]
pub struct ServeArguments {
    /// Address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// File of tokens, one a line, each with `read` or `write` and perhaps ORG/*
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    pub token_file: Option<PathBuf>,
    /// Let clients upload: those whose token may write, or anybody on this machine if there are no tokens
    #[arg(long)]
    pub writable: bool,
    /// Show also every directory with a model of the last backups, as HOST/PATH
    #[arg(long, requires = "token_file", conflicts_with = "writable")]
    pub publish_all: bool,
    /// Let everybody read who reaches the address
    #[arg(long)]
    pub no_auth: bool,
    /// Certificates in PEM, the own one first: speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// URL that clients use, such as `https://models.example`
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Connections at the same time; more wait
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Close a connection that sends no request, or takes nothing of an answer, for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub timeout: Duration,
}
