//! What an actor does wrong on purpose, so that the search is seen to find it.

/// A rule of the protocol that an actor breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Nothing.
    None,
    /// A backup does not put its intent, and does not look after its commit.
    NoIntent,
    /// A backup does not look at pending entries.
    NoPendingLook,
    /// A backup does not list the containers again before its commit.
    StaleContainersOfBackup,
    /// A backup does not look after its commit.
    NoRecheck,
    /// A publication does not look whether the snapshot that it is of is still there.
    NoLookAtOriginal,
    /// A prune does not put its pending entry.
    NoPendingEntry,
    /// A prune does not withdraw beside another one.
    NoWithdrawal,
    /// A prune ignores intents.
    NoIntentsRead,
    /// A prune decides by snapshots that it listed before the intents.
    StaleSnapshots,
    /// A prune that finishes a dead one does not put an entry of its own.
    NoEntryOfFinisher,
    /// A prune sweeps by the containers that it listed before it listed their parity, and looks for none again.
    SweepByOldListing,
    /// The same bytes get the same name again: a writer deletes nothing late, but a prune does.
    NamesReturn,
}
