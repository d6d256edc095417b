//! Arguments of `parity`.

use std::str::FromStr;

use clap::Subcommand;

use crate::error::{Error, Result};
use crate::store::ParityShare;

/// How much parity there shall be.
#[derive(Debug, Clone, Copy)]
pub struct ParitySetting(pub Option<ParityShare>);

impl FromStr for ParitySetting {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "off" { Ok(ParitySetting(None)) } else { text.parse().map(|share| ParitySetting(Some(share))) }
    }
}

const NOTES: &str = "\
Containers are what holds the data. With 3%, 246 bad sectors of 4 KiB in a container of 32 MiB heal, wherever they are;
a short container heals from the loss of any half of it and its parity. Restores and checks heal for themselves;
`check --read-data --heal` writes back. Older versions of fhrd can read the repository and cannot write into it,
until parity is off again.";

/// What `parity` does.
#[derive(Debug, Subcommand)]
pub enum ParityVerb {
    /// Set how much parity new containers get, or turn it off
    #[command(after_help = NOTES)]
    Set {
        /// Share of the stored bytes, such as 3% (0.01% to 100%), or `off`
        #[arg(value_name = "SHARE")]
        share: ParitySetting,
    },
    /// Protect the containers that have no parity, or less than is set
    Add,
}
