//! HDF5, as Keras and h5py write it: groups within groups, and datasets in one range of the file.
//!
//! 1. The superblock names the header of the root group. A header is a list of messages, maybe continued elsewhere.
//! 2. Old groups have a tree of nodes that list names and headers, and a heap with the names. New groups have a message
//!    for each link. Groups with many links of the new kind keep them in a heap that is not read.
//! 3. Every header is read once, under its first name. Names are paths with slashes. Chunked, compressed and compact
//!    datasets are listed as unreadable.

use std::collections::HashSet;

use super::Format;
use super::array::ListedArray;
use super::hdf5_messages::{Hdf5Dataset, layout, number, shape, value_type};
use super::read::{FormatError, Window, WindowReader};
use super::tensor::Recognised;
use super::typed::{NAME_BYTES_MAX, TypedTensors};

/// Name of the format.
const HDF5: &str = "hdf5";
const MAGIC: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Deepest nesting of groups.
const DEPTH_MAX: usize = 64;
/// Most headers, continuations and nodes that are read. Each costs a few reads of 4 KiB.
const BLOCKS_MAX: usize = 1 << 17;
/// Most messages and links that are read.
const ITEMS_MAX: usize = 1 << 20;
/// Most bytes of the names of links that are read.
const LINKS_BYTES_MAX: u64 = 64 << 20;

/// Kinds of messages.
const SHAPE: u16 = 0x01;
const LINK_INFO: u16 = 0x02;
const VALUE_TYPE: u16 = 0x03;
const LINK: u16 = 0x06;
const LAYOUT: u16 = 0x08;
const CONTINUATION: u16 = 0x10;
const SYMBOL_TABLE: u16 = 0x11;
/// Flag of a message that is stored elsewhere.
const SHARED: u8 = 2;

/// Files of HDF5.
pub struct Hdf5;

impl Format for Hdf5 {
    fn name(&self) -> &'static str {
        HDF5
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["h5", "hdf5"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        head.strip_prefix(MAGIC).and_then(|rest| rest.first()).is_some_and(|version| *version <= 3)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        tensors(window)?.found(HDF5, window)
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        tensors(window)?.list(HDF5, window, visit)
    }
}

fn tensors(window: Window) -> Result<TypedTensors, FormatError> {
    let (mut file, root) = Hdf5Reader::open(window)?;
    file.object(root, "", DEPTH_MAX)?;
    Ok(file.tensors)
}

/// Reader of the objects of a file.
struct Hdf5Reader<'a> {
    reader: WindowReader<'a>,
    /// Bytes of an address and of a length.
    offset_bytes: u8,
    length_bytes: u8,
    /// What addresses count from.
    base: u64,
    /// Addresses of the headers that were read.
    seen: HashSet<u64>,
    blocks_left: usize,
    items_left: usize,
    link_bytes_left: u64,
    tensors: TypedTensors,
}

/// A message: kind, flags, offset of its content, and its size.
type HeaderMessage = (u16, u8, u64, u64);

/// What the messages of a header say.
#[derive(Default)]
struct Hdf5Header {
    dataset: Hdf5Dataset,
    /// Places of the tree and the heap of an old group.
    symbols: Option<(u64, u64)>,
    /// Names and addresses of the links of a new group.
    links: Vec<(String, u64)>,
    /// Whether there are links that are not read.
    has_other_links: bool,
}

impl<'a> Hdf5Reader<'a> {
    /// Reads the superblock. Also returns the address of the root group.
    fn open(window: Window<'a>) -> Result<(Self, u64), FormatError> {
        let mut reader = WindowReader::scattered(window);
        reader.seek(MAGIC.len() as u64);
        let version = reader.u8()?;
        reader.skip(if version < 2 { 4 } else { 0 })?;
        let (offset_bytes, length_bytes) = (reader.u8()?, reader.u8()?);
        if ![offset_bytes, length_bytes].iter().all(|bytes| matches!(bytes, 2 | 4 | 8)) {
            return FormatError::defective(format!(
                "expected addresses and lengths of 2, 4 or 8 bytes, found {offset_bytes} and {length_bytes}"
            ));
        }
        reader.skip(match version {
            0 => 9,
            1 => 13,
            _ => 1,
        })?;
        let base = number(&mut reader, offset_bytes)?.unwrap_or(0);
        number(&mut reader, offset_bytes)?;
        let (end, len) = (number(&mut reader, offset_bytes)?, window.len());
        let Some(end) = end else { return FormatError::defective("expected the length of the file, found none") };
        if end.saturating_add(base) > len {
            return FormatError::defective(format!("expected a file of {end} bytes from byte {base}, found {len}"));
        }
        if version < 2 {
            // The driver's block, and the name of the root group.
            number(&mut reader, offset_bytes)?;
            number(&mut reader, offset_bytes)?;
        }
        let Some(root) = number(&mut reader, offset_bytes)? else {
            return FormatError::defective("expected the address of the root group, found none");
        };
        let tensors = TypedTensors::default();
        let file = Hdf5Reader {
            reader,
            offset_bytes,
            length_bytes,
            base,
            seen: HashSet::new(),
            blocks_left: BLOCKS_MAX,
            items_left: ITEMS_MAX,
            link_bytes_left: LINKS_BYTES_MAX,
            tensors,
        };
        Ok((file, root))
    }

    fn seek(&mut self, address: u64) -> Result<(), FormatError> {
        self.blocks_left = match self.blocks_left.checked_sub(1) {
            Some(left) => left,
            None => return FormatError::defective(format!("expected at most {BLOCKS_MAX} blocks, found more")),
        };
        self.reader.seek(address.saturating_add(self.base));
        Ok(())
    }

    fn count_item(&mut self) -> Result<(), FormatError> {
        match self.items_left.checked_sub(1) {
            Some(left) => self.items_left = left,
            None => {
                return FormatError::defective(format!("expected at most {ITEMS_MAX} messages and links, found more"));
            }
        }
        Ok(())
    }

    fn magic(&mut self, expected: &[u8; 4]) -> Result<(), FormatError> {
        let at = self.reader.position();
        let found = self.reader.array::<4>()?;
        if found == *expected {
            return Ok(());
        }
        let (expected, found) = (expected.escape_ascii(), found.escape_ascii());
        FormatError::defective(format!("expected {expected} at byte {at}, found {found}"))
    }

    /// Reads the object whose header is at `address`, and all below it.
    fn object(&mut self, address: u64, path: &str, depth: usize) -> Result<(), FormatError> {
        if depth == 0 || !self.seen.insert(address) {
            return Ok(());
        }
        let header = self.header(address)?;
        match header.dataset.tensor(path, self.base)? {
            Some(Ok(tensor)) if tensor.len > 0 => self.tensors.push(tensor)?,
            Some(Ok(_)) | None => {}
            Some(Err(reason)) => self.tensors.push_unreadable(path.into(), reason)?,
        }
        if header.has_other_links {
            let reason = "its members are listed in a heap that is not read";
            self.tensors.push_unreadable(format!("{path}/"), reason.into())?;
        }
        for (name, address) in header.links {
            self.object(address, &child_path(path, &name), depth - 1)?;
        }
        match header.symbols {
            Some((tree, heap)) => self.old_group(tree, heap, path, depth - 1),
            None => Ok(()),
        }
    }

    /// Reads the messages of a header.
    fn header(&mut self, address: u64) -> Result<Hdf5Header, FormatError> {
        self.seek(address)?;
        let at = self.reader.position();
        let first = self.reader.u8()?;
        let (is_new, has_order, len) = match first {
            1 => {
                self.reader.skip(7)?;
                let len = u64::from(self.reader.u32()?);
                self.reader.skip(4)?;
                (false, false, len)
            }
            b'O' => {
                self.reader.seek(at);
                self.magic(b"OHDR")?;
                self.reader.skip(1)?;
                let flags = self.reader.u8()?;
                // Times, and limits of attributes.
                self.reader.skip(16 * u64::from(flags & 0x20 != 0) + 4 * u64::from(flags & 0x10 != 0))?;
                let len = match flags & 3 {
                    0 => u64::from(self.reader.u8()?),
                    1 => u64::from(self.reader.u16()?),
                    2 => u64::from(self.reader.u32()?),
                    _ => self.reader.u64()?,
                };
                (true, flags & 4 != 0, len)
            }
            _ => {
                return FormatError::defective(format!("expected the header of an object at byte {at}, found {first}"));
            }
        };
        let mut header = Hdf5Header::default();
        let mut ranges = vec![(self.reader.position(), len)];
        while let Some((start, len)) = ranges.pop() {
            let end = start.saturating_add(len);
            self.reader.seek(start);
            while let Some(message) = self.message(end, is_new, has_order)? {
                let (kind, _, content, size) = message;
                self.reader.seek(content);
                if kind == CONTINUATION {
                    ranges.extend(self.continuation(is_new)?);
                } else {
                    self.read_message(message, &mut header)?;
                }
                self.reader.seek(content.saturating_add(size));
            }
        }
        Ok(header)
    }

    /// The next message before byte `end`. Too few bytes for one are a gap.
    fn message(&mut self, end: u64, is_new: bool, has_order: bool) -> Result<Option<HeaderMessage>, FormatError> {
        let head_bytes = if is_new { 4 + 2 * u64::from(has_order) } else { 8 };
        if self.reader.position().saturating_add(head_bytes) > end {
            return Ok(None);
        }
        self.count_item()?;
        let kind = if is_new { u16::from(self.reader.u8()?) } else { self.reader.u16()? };
        let (size, flags) = (u64::from(self.reader.u16()?), self.reader.u8()?);
        self.reader.skip(if is_new { head_bytes - 4 } else { 3 })?;
        let content = self.reader.position();
        if content.saturating_add(size) > end {
            return FormatError::defective(format!(
                "expected a message before byte {end}, found {size} bytes at byte {content}"
            ));
        }
        Ok(Some((kind, flags, content, size)))
    }

    /// Where the messages of a continuation are: offset and size. `None` if it has no place.
    fn continuation(&mut self, is_new: bool) -> Result<Option<(u64, u64)>, FormatError> {
        let address = number(&mut self.reader, self.offset_bytes)?;
        let len = number(&mut self.reader, self.length_bytes)?;
        let Some((address, len)) = address.zip(len) else { return Ok(None) };
        self.seek(address)?;
        if !is_new {
            return Ok(Some((self.reader.position(), len)));
        }
        self.magic(b"OCHK")?;
        // Magic and checksum.
        Ok(Some((self.reader.position(), len.saturating_sub(8))))
    }

    /// Reads a message, to whose content the reader was sent.
    fn read_message(&mut self, message: HeaderMessage, header: &mut Hdf5Header) -> Result<(), FormatError> {
        let (kind, flags, content, _) = message;
        let (offset_bytes, length_bytes, reader) = (self.offset_bytes, self.length_bytes, &mut self.reader);
        if flags & SHARED != 0 {
            return Ok(());
        }
        match kind {
            SHAPE => header.dataset.shape = shape(reader, length_bytes)?,
            VALUE_TYPE => header.dataset.value_type = Some(value_type(reader)?),
            LAYOUT => header.dataset.layout = Some(layout(reader, offset_bytes, length_bytes)?),
            SYMBOL_TABLE => {
                header.symbols = number(reader, offset_bytes)?.zip(number(reader, offset_bytes)?);
            }
            LINK_INFO => {
                reader.skip(1)?;
                let has_order = reader.u8()? & 1 != 0;
                reader.skip(8 * u64::from(has_order))?;
                header.has_other_links = number(reader, offset_bytes)?.is_some();
            }
            LINK => header.links.extend(self.link(content)?),
            _ => {}
        }
        Ok(())
    }

    /// The name and the address of a link. `None` for links to names.
    fn link(&mut self, at: u64) -> Result<Option<(String, u64)>, FormatError> {
        let reader = &mut self.reader;
        let (version, flags) = (reader.u8()?, reader.u8()?);
        if version != 1 {
            return FormatError::defective(format!("expected a link of version 1 at byte {at}, found {version}"));
        }
        let kind = if flags & 8 != 0 { reader.u8()? } else { 0 };
        reader.skip(8 * u64::from(flags & 4 != 0) + u64::from(flags & 0x10 != 0))?;
        let len = match flags & 3 {
            0 => u64::from(reader.u8()?),
            1 => u64::from(reader.u16()?),
            2 => u64::from(reader.u32()?),
            _ => reader.u64()?,
        };
        let name = reader.bytes("a name", len, NAME_BYTES_MAX.min(self.link_bytes_left))?;
        self.link_bytes_left -= len;
        if kind != 0 {
            return Ok(None);
        }
        let address = number(reader, self.offset_bytes)?;
        Ok(address.map(|address| (String::from_utf8_lossy(&name).into_owned(), address)))
    }

    /// Reads the objects of an old group with its tree and its heap.
    fn old_group(&mut self, tree: u64, heap: u64, path: &str, depth: usize) -> Result<(), FormatError> {
        self.seek(heap)?;
        self.magic(b"HEAP")?;
        self.reader.skip(4 + 2 * u64::from(self.length_bytes))?;
        let Some(names) = number(&mut self.reader, self.offset_bytes)? else { return Ok(()) };
        let mut nodes = vec![tree];
        while let Some(node) = nodes.pop() {
            self.seek(node)?;
            if self.reader.array::<4>()? == *b"SNOD" {
                self.symbols(node, names, path, depth)?;
                continue;
            }
            self.seek(node)?;
            self.magic(b"TREE")?;
            self.reader.skip(2)?;
            let count = self.reader.u16()?;
            self.reader.skip(2 * u64::from(self.offset_bytes))?;
            let mut children = Vec::new();
            for _ in 0..count {
                self.count_item()?;
                self.reader.skip(u64::from(self.length_bytes))?;
                children.extend(number(&mut self.reader, self.offset_bytes)?);
            }
            nodes.extend(children.into_iter().rev());
        }
        Ok(())
    }

    /// Reads the objects that a node of a tree lists.
    fn symbols(&mut self, node: u64, names: u64, path: &str, depth: usize) -> Result<(), FormatError> {
        self.reader.skip(2)?;
        let (count, entry_bytes) = (self.reader.u16()?, 24 + 2 * u64::from(self.offset_bytes));
        for index in 0..count {
            self.count_item()?;
            self.seek(node.saturating_add(8 + u64::from(index) * entry_bytes))?;
            let name = number(&mut self.reader, self.offset_bytes)?;
            let Some((name, address)) = name.zip(number(&mut self.reader, self.offset_bytes)?) else { continue };
            let name = self.name(names.saturating_add(name))?;
            self.object(address, &child_path(path, &name), depth)?;
        }
        Ok(())
    }

    /// The name at `address`, up to a zero.
    fn name(&mut self, address: u64) -> Result<String, FormatError> {
        self.seek(address)?;
        let (at, mut name) = (self.reader.position(), Vec::new());
        loop {
            match self.reader.u8()? {
                0 => return Ok(String::from_utf8_lossy(&name).into_owned()),
                byte => name.push(byte),
            }
            if name.len() as u64 > NAME_BYTES_MAX {
                return FormatError::defective(format!(
                    "expected a name of at most {NAME_BYTES_MAX} bytes at byte {at}, found a longer one"
                ));
            }
        }
    }
}

fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}/{name}") }
}
