//! The tokens that ask for the pages of a listing.

use super::opened::SourceBucket;
use crate::error::{Error, ErrorKind, Result};

/// The tokens of pages. A server that goes round in a circle would never end.
#[derive(Debug, Default)]
pub struct PageTokens {
    /// One of them, and how many came until it and since. Another one takes its place when as many have come since.
    mark: String,
    until: u64,
    since: u64,
}

impl PageTokens {
    /// Notes the token of the next page of a listing of `bucket`.
    ///
    /// # Errors
    /// [`Error::Remote`] if the pages go round in a circle.
    pub fn note(&mut self, bucket: &SourceBucket, token: &str) -> Result<()> {
        self.add(token).map_err(|reason| {
            let (action, what, kind) = ("list", bucket.location().to_string(), ErrorKind::Failed);
            Error::Remote { action, what, reason, kind }
        })
    }

    /// Notes a token. Finds any circle, in memory for one (Brent's algorithm).
    fn add(&mut self, token: &str) -> std::result::Result<(), String> {
        if self.until > 0 && self.mark == token {
            return Err("the server gives the same pages again and again".into());
        }
        self.since += 1;
        if self.since > self.until {
            (self.mark, self.until, self.since) = (token.into(), self.until + self.since, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_pages_is_found() {
        for (before, circle) in [(0, 1), (0, 2), (5, 3), (1, 40), (33, 100)] {
            let mut tokens = PageTokens::default();
            let number = |at: usize| if at < before { at } else { before + (at - before) % circle };
            let found = (0..10 * (before + circle)).find(|at| tokens.add(&number(*at).to_string()).is_err());
            assert!(found.is_some_and(|at| at >= before + circle), "{before} {circle} {found:?}");
        }
        let mut tokens = PageTokens::default();
        assert!((0..10_000).all(|at| tokens.add(&at.to_string()).is_ok()));
    }
}
