//! Patterns of the whole source, in the pattern language of gitignore, matched against absolute paths.

use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, Result};

/// Bytes of all patterns of a backup, at most.
pub const PATTERN_BYTES_MAX: usize = 4 << 20;
/// Bytes of a pattern with wildcards, at most. Braces nest, and the matcher's parser recurses into them.
const WILD_BYTES_MAX: usize = 1 << 10;

/// The message for a pattern that is too long to be compiled; `None` if it is not.
pub fn too_long(pattern: &str) -> Option<String> {
    let is_wild = pattern.contains(['*', '?', '[', '{', '\\']);
    (is_wild && pattern.len() > WILD_BYTES_MAX).then(|| {
        let found = pattern.len();
        format!("expected a pattern with wildcards of at most {WILD_BYTES_MAX} bytes, found {found}")
    })
}

/// Why a pattern matches no path, if that is certain or likely. The pattern language itself has no objection.
fn never_matches(pattern: &str) -> Option<&'static str> {
    let path = pattern.trim_start_matches('!').trim_end();
    if path.trim_matches('/').is_empty() {
        return None;
    }
    let mut names = path.trim_matches('/').split('/');
    if names.clone().any(|name| name == "." || name == "..") {
        return Some("no path has a component `.` or `..`; begin it with a slash, or give a name alone");
    }
    if names.clone().any(str::is_empty) {
        return Some("no path has two slashes in a row");
    }
    let first = names.next().unwrap_or_default();
    if !path.starts_with('/') && path.contains('/') && (first == "~" || first.starts_with('$')) {
        return Some("`~` and variables are left to the shell, which replaces none in quotes and behind `=`");
    }
    None
}

/// A list of patterns. A later pattern decides before an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    matcher: Option<Gitignore>,
    /// Whether one of them looks at more than a name.
    has_paths: bool,
}

impl Patterns {
    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.matcher.is_none()
    }

    /// Whether the name of an entry decides, whatever directory it is in.
    pub fn is_by_name(&self) -> bool {
        !self.has_paths
    }

    /// Whether the patterns name the entry at the absolute `path`: `Some(false)` if the last one that matches begins
    /// with `!`, `None` if none matches.
    pub fn names(&self, path: &Path, is_directory: bool) -> Option<bool> {
        match self.matcher.as_ref()?.matched(path, is_directory) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

/// Collects patterns.
#[derive(Debug)]
pub struct PatternsBuilder {
    builder: GitignoreBuilder,
    bytes: usize,
    patterns: usize,
    has_paths: bool,
}

impl Default for PatternsBuilder {
    fn default() -> Self {
        let mut builder = GitignoreBuilder::new("/");
        builder.allow_unclosed_class(false);
        PatternsBuilder { builder, bytes: 0, patterns: 0, has_paths: false }
    }
}

impl PatternsBuilder {
    /// Adds one pattern. Errors name `origin`, the option or the line of a file.
    ///
    /// # Errors
    /// [`Error::Config`] if it is no pattern, or if there are too many.
    pub fn add(&mut self, pattern: &str, ignore_case: bool, origin: &str) -> Result<()> {
        let failed = |message: String| Error::Config { origin: origin.into(), message };
        self.bytes += pattern.len();
        if self.bytes > PATTERN_BYTES_MAX {
            return Err(failed(format!("expected at most {PATTERN_BYTES_MAX} bytes of patterns in all, found more")));
        }
        if let Some(message) = too_long(pattern) {
            return Err(failed(message));
        }
        if let Some(reason) = never_matches(pattern) {
            tracing::warn!("{origin}: the pattern `{pattern}` matches nothing: {reason}");
        }
        let line = at_any_depth(pattern).ok_or_else(|| failed("expected a pattern, found an empty one".into()))?;
        let added = self.builder.case_insensitive(ignore_case).and_then(|builder| builder.add_line(None, &line));
        added.map_err(|error| failed(format!("expected a pattern, found `{pattern}`: {error}")))?;
        self.patterns += 1;
        // A class of characters may have the slash.
        self.has_paths |= pattern.trim_end().trim_end_matches('/').contains(['/', '[']);
        Ok(())
    }

    /// Adds the lines of a pattern file. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// Errors of [`PatternsBuilder::add`], with the number of the line.
    pub fn add_lines(&mut self, text: &str, ignore_case: bool, file: &str) -> Result<()> {
        for (number, line) in (1..).zip(text.lines()) {
            if !line.starts_with('#') && !line.trim_end().is_empty() {
                self.add(line, ignore_case, &format!("{file}, line {number}"))?;
            }
        }
        Ok(())
    }

    /// The patterns.
    ///
    /// # Errors
    /// [`Error::Config`] if they need more memory than the matcher may use.
    pub fn build(self) -> Result<Patterns> {
        if self.patterns == 0 {
            return Ok(Patterns::default());
        }
        let failed = |error| Error::Config {
            origin: "patterns".into(),
            message: format!("expected patterns that compile to at most 10 MiB; use fewer wildcards ({error})"),
        };
        Ok(Patterns { matcher: Some(self.builder.build().map_err(failed)?), has_paths: self.has_paths })
    }
}

/// The gitignore line of a pattern: without a slash at the start it matches at any depth, also if it has a slash
/// inside. `None` if nothing is left of it.
fn at_any_depth(pattern: &str) -> Option<String> {
    let (mark, rest) = match pattern.strip_prefix('!') {
        Some(rest) => ("!", rest),
        None => ("", pattern),
    };
    if rest.trim_end().is_empty() {
        return None;
    }
    let prefix = if rest.starts_with('/') || rest.starts_with("**/") { "" } else { "**/" };
    Some(format!("{mark}{prefix}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_match_nothing_are_known() {
        for pattern in ["./cache", "a//b", "~/x", "..", "a/../b", "$HOME/x", "!./x", "/a/./b", "a/..", "${HOME}/x/"] {
            assert!(never_matches(pattern).is_some(), "{pattern}");
        }
        for pattern in ["cache", "/a/b", "a/", "~", "*~", "~x/y", "...", ".git", "a/**/b", "/~/x", "$x", "/", "//"] {
            assert!(never_matches(pattern).is_none(), "{pattern}");
        }
    }
}
