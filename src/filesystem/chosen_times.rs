//! File systems whose times were chosen by who made their image, such as squashfs, ISO 9660 and reproducible ext4.
//!
//! Two such images may hold other content under the same size, times and inode number, and be mounted at one path in
//! turn. A kernel that keeps times itself gives a change a fraction of a second, and an image of that kind is mounted
//! read-only, maybe below an overlay: so whole seconds there say nothing about the content. Snapshots of file systems
//! in use have the fractions of their origin, although they are mounted read-only, too.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::repo::tree::Node;

/// Which devices may be those of images, learned once for each.
#[derive(Debug, Default)]
pub struct ChosenTimes(RefCell<BTreeMap<u64, bool>>);

impl ChosenTimes {
    /// Whether the times of the file `node` may be chosen. `may_be_image` looks at its file system.
    pub fn may_be_those_of(&self, node: &Node, may_be_image: impl FnOnce() -> bool) -> bool {
        node.ctime.nanoseconds == 0 && *self.0.borrow_mut().entry(node.device).or_insert_with(may_be_image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::tree::Timestamp;

    #[test]
    fn only_whole_seconds_on_what_may_be_an_image_are_doubted() {
        for (is_image, nanoseconds, expected) in
            [(false, 0, false), (false, 1, false), (true, 0, true), (true, 1, false)]
        {
            let (times, ctime) = (ChosenTimes::default(), Timestamp { seconds: 9, nanoseconds });
            let node = Node { ctime, device: 7, ..Node::default() };
            assert_eq!(times.may_be_those_of(&node, || is_image), expected, "{is_image} {nanoseconds}");
            // Each device is looked at once.
            assert_eq!(times.may_be_those_of(&node, || !is_image), expected && nanoseconds == 0);
        }
    }
}
