//! File systems whose times were chosen by who made their image, such as squashfs, ISO 9660 and reproducible ext4.
//!
//! Two such images may hold other content under the same size, times and inode number, and be mounted at one path in
//! turn. A kernel that keeps times itself gives a change a fraction of a second, and an image of that kind is mounted
//! read-only: so whole seconds on a read-only mount say nothing about the content. Snapshots of file systems in use
//! have the fractions of their origin, although they are mounted read-only, too.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::repo::tree::Node;

/// Which devices are mounted read-only, learned once for each.
#[derive(Debug, Default)]
pub struct ChosenTimes(RefCell<BTreeMap<u64, bool>>);

impl ChosenTimes {
    /// Whether the times of the file `node` may be chosen. `is_read_only` looks how its file system is mounted.
    pub fn may_be_those_of(&self, node: &Node, is_read_only: impl FnOnce() -> bool) -> bool {
        node.ctime.nanoseconds == 0 && *self.0.borrow_mut().entry(node.device).or_insert_with(is_read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::tree::Timestamp;

    #[test]
    fn only_whole_seconds_on_a_read_only_mount_are_doubted() {
        for (is_read_only, nanoseconds, expected) in
            [(false, 0, false), (false, 1, false), (true, 0, true), (true, 1, false)]
        {
            let (times, ctime) = (ChosenTimes::default(), Timestamp { seconds: 9, nanoseconds });
            let node = Node { ctime, device: 7, ..Node::default() };
            assert_eq!(times.may_be_those_of(&node, || is_read_only), expected, "{is_read_only} {nanoseconds}");
            // Each device is looked at once.
            assert_eq!(times.may_be_those_of(&node, || !is_read_only), expected && nanoseconds == 0);
        }
    }
}
