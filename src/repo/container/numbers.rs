//! Numbers of entries and frames while the process runs. None of them is stored.
//!
//! A number is eight bytes, because extent maps hold many of them. Its numeric order is: stored containers by their
//! number and position, then the session in the order of writing, then the open frames.

/// Marks the numbers of the running session.
const SESSION_BIT: u64 = 1 << 63;
/// Frame number of the open solid frame.
const OPEN_SOLID: u64 = u64::MAX;
/// Frame number of the open frame of incompressible bytes.
const OPEN_INCOMPRESSIBLE: u64 = u64::MAX - 1;

/// Number of a stored container: the resolver counts containers in the order of their first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerNumber(pub u32);

/// Number of an entry of the running session, in the order of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionEntryNumber(pub u64);

/// Number of a frame of the running session, in the order of emission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionFrameNumber(pub u64);

impl SessionEntryNumber {
    /// The number `count` entries further on.
    pub fn plus(self, count: u64) -> Self {
        SessionEntryNumber(self.0 + count)
    }

    /// The numbers from this one on, `end` excluded.
    pub fn until(self, end: Self) -> impl Iterator<Item = Self> {
        (self.0..end.0).map(SessionEntryNumber)
    }
}

impl SessionFrameNumber {
    /// The number `count` frames further on.
    pub fn plus(self, count: u64) -> Self {
        SessionFrameNumber(self.0 + count)
    }
}

/// A frame that still takes literal bytes. It gets its session number when it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpenFrame {
    /// Literal bytes of ordinary chunks.
    Solid,
    /// Bytes that do not compress.
    Incompressible,
}

/// Number of a chunk entry, stored or of the running session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryNumber(u64);

/// What an [`EntryNumber`] refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryAddress {
    /// An entry of a stored container.
    Stored {
        /// The container.
        container: ContainerNumber,
        /// Position in the container index.
        position: u32,
    },
    /// An entry of the running session.
    Session(SessionEntryNumber),
}

impl EntryNumber {
    /// Entry `position` of a stored container.
    pub fn stored(container: ContainerNumber, position: u32) -> Self {
        EntryNumber(stored(container, position))
    }

    /// An entry of the running session.
    pub fn session(number: SessionEntryNumber) -> Self {
        EntryNumber(SESSION_BIT | number.0)
    }

    /// What the number refers to.
    pub fn address(self) -> EntryAddress {
        match self.0 & SESSION_BIT {
            0 => EntryAddress::Stored { container: container_of(self.0), position: self.0 as u32 },
            _ => EntryAddress::Session(SessionEntryNumber(self.0 & !SESSION_BIT)),
        }
    }

    /// The session number; `None` for a stored entry.
    pub fn as_session(self) -> Option<SessionEntryNumber> {
        match self.address() {
            EntryAddress::Session(number) => Some(number),
            EntryAddress::Stored { .. } => None,
        }
    }
}

/// Number of a frame, stored, of the running session, or open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameNumber(u64);

/// What a [`FrameNumber`] refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameAddress {
    /// A frame of a stored container.
    Stored {
        /// The container.
        container: ContainerNumber,
        /// Position in the container index.
        position: u32,
    },
    /// A frame of the running session.
    Session(SessionFrameNumber),
    /// A frame that still takes bytes.
    Open(OpenFrame),
}

impl FrameNumber {
    /// Frame `position` of a stored container.
    pub fn stored(container: ContainerNumber, position: u32) -> Self {
        FrameNumber(stored(container, position))
    }

    /// A frame of the running session.
    pub fn session(number: SessionFrameNumber) -> Self {
        FrameNumber(SESSION_BIT | number.0)
    }

    /// A frame that still takes bytes.
    pub fn open(frame: OpenFrame) -> Self {
        match frame {
            OpenFrame::Solid => FrameNumber(OPEN_SOLID),
            OpenFrame::Incompressible => FrameNumber(OPEN_INCOMPRESSIBLE),
        }
    }

    /// What the number refers to.
    pub fn address(self) -> FrameAddress {
        match self.0 {
            OPEN_SOLID => FrameAddress::Open(OpenFrame::Solid),
            OPEN_INCOMPRESSIBLE => FrameAddress::Open(OpenFrame::Incompressible),
            number if number & SESSION_BIT == 0 => {
                FrameAddress::Stored { container: container_of(number), position: number as u32 }
            }
            number => FrameAddress::Session(SessionFrameNumber(number & !SESSION_BIT)),
        }
    }

    /// Whether the frame keeps this number. An open frame gets another one when it is full.
    pub fn is_final(self) -> bool {
        !matches!(self.address(), FrameAddress::Open(_))
    }
}

fn stored(container: ContainerNumber, position: u32) -> u64 {
    debug_assert!(container.0 < 1 << 31, "the top bit marks the session");
    u64::from(container.0) << 32 | u64::from(position)
}

fn container_of(number: u64) -> ContainerNumber {
    ContainerNumber((number >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_gives_its_address_back() {
        let container = ContainerNumber((1 << 31) - 1);
        for position in [0, 7, u32::MAX] {
            let stored = EntryAddress::Stored { container, position };
            assert_eq!(EntryNumber::stored(container, position).address(), stored);
            let stored = FrameAddress::Stored { container, position };
            assert_eq!(FrameNumber::stored(container, position).address(), stored);
            let number = u64::from(position);
            assert_eq!(EntryNumber::session(SessionEntryNumber(number)).as_session(), Some(SessionEntryNumber(number)));
            let session = FrameAddress::Session(SessionFrameNumber(number));
            assert_eq!(FrameNumber::session(SessionFrameNumber(number)).address(), session);
        }
        for frame in [OpenFrame::Solid, OpenFrame::Incompressible] {
            assert_eq!(FrameNumber::open(frame).address(), FrameAddress::Open(frame));
        }
    }

    #[test]
    fn stored_frames_come_first_and_open_frames_last() {
        let stored = |container, position| FrameNumber::stored(ContainerNumber(container), position);
        let ascending = [
            stored(0, 9),
            stored(1, 0),
            FrameNumber::session(SessionFrameNumber(0)),
            FrameNumber::session(SessionFrameNumber(1)),
            FrameNumber::open(OpenFrame::Incompressible),
            FrameNumber::open(OpenFrame::Solid),
        ];
        assert!(ascending.is_sorted());
        assert_eq!((size_of::<EntryNumber>(), size_of::<FrameNumber>()), (8, 8));
    }
}
