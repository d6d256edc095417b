//! Files that fall to one share of the work.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Says by the path of an entry, as patterns see it, whether it falls to a share.
#[derive(Clone)]
pub struct ShareFilter(Arc<dyn Fn(&Path) -> bool + Send + Sync>);

impl ShareFilter {
    /// What `has` says.
    pub fn new(has: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        ShareFilter(Arc::new(has))
    }

    /// Whether the entry at this path falls to the share.
    pub(super) fn has(&self, path: &Path) -> bool {
        (self.0)(path)
    }
}

impl fmt::Debug for ShareFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ShareFilter")
    }
}
