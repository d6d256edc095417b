//! Messages of SFTP version 3 (draft-ietf-secsh-filexfer-02), as far as the store needs them.
//!
//! A message is a length, a kind, a number that pairs requests with replies, and fields. Replies come from a server
//! that is not trusted: no field is used before it is known to lie in its message.
#![expect(clippy::big_endian_bytes, reason = "SFTP numbers are big-endian")]

use bytes::{Buf, Bytes};

use crate::error::quoted;

/// Bytes of a message after its length, at most: what OpenSSH takes and sends.
pub(super) const PACKET_BYTES_MAX: usize = 256 << 10;
/// Bytes of a message before its fields: length, kind, number.
const HEAD_BYTES: usize = 9;
/// The protocol version.
pub(super) const VERSION: u32 = 3;

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SftpRequestKind {
    Open = 3,
    Close = 4,
    Read = 5,
    Write = 6,
    Lstat = 7,
    Fstat = 8,
    Setstat = 9,
    Fsetstat = 10,
    Opendir = 11,
    Readdir = 12,
    Remove = 13,
    Mkdir = 14,
    Stat = 17,
    Rename = 18,
    Extended = 200,
}

/// Kind of the first message of a client.
const INIT: u8 = 1;
/// Kinds of replies.
pub(super) const VERSION_REPLY: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRIBUTES: u8 = 105;
const EXTENDED_REPLY: u8 = 201;

/// Flags of `open`.
pub(super) const OPEN_READ: u32 = 1;
pub(super) const OPEN_WRITE: u32 = 2;
pub(super) const OPEN_CREATE_NEW: u32 = 8 | 32;

/// Bits of attributes that are there.
const HAS_SIZE: u32 = 1;
const HAS_OWNER: u32 = 2;
const HAS_PERMISSIONS: u32 = 4;
const HAS_TIMES: u32 = 8;
const HAS_EXTENDED: u32 = 1 << 31;

/// The part of permissions that is the type of a file, and its values.
const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const DIRECTORY: u32 = 0o040_000;

/// A reply that does not follow the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadReply;

/// A request that is being made.
#[derive(Debug)]
pub(super) struct Request(Vec<u8>);

impl Request {
    pub fn new(kind: SftpRequestKind) -> Self {
        Self::with_capacity(kind, 0)
    }

    /// Like [`Request::new`], for fields of about `bytes` bytes.
    pub fn with_capacity(kind: SftpRequestKind, bytes: usize) -> Self {
        let mut packet = Vec::with_capacity(HEAD_BYTES + bytes);
        packet.extend_from_slice(&[0, 0, 0, 0, kind as u8, 0, 0, 0, 0]);
        Request(packet)
    }

    /// An extended request of the name.
    pub fn extended(name: &str) -> Self {
        Self::new(SftpRequestKind::Extended).text(name.as_bytes())
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Appends bytes with their length.
    pub fn text(mut self, text: &[u8]) -> Self {
        self.0.extend_from_slice(&(text.len() as u32).to_be_bytes());
        self.0.extend_from_slice(text);
        self
    }

    /// Appends attributes with nothing but permissions, or with nothing.
    pub fn permissions(self, permissions: Option<u32>) -> Self {
        match permissions {
            Some(permissions) => self.u32(HAS_PERMISSIONS).u32(permissions),
            None => self.u32(0),
        }
    }

    /// The bytes to send, with the number.
    pub fn packet(mut self, number: u32) -> Vec<u8> {
        let len = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&len.to_be_bytes());
        self.0[5..HEAD_BYTES].copy_from_slice(&number.to_be_bytes());
        self.0
    }
}

/// The first message of a client.
pub(super) fn hello() -> [u8; 9] {
    let mut packet = [0, 0, 0, 5, INIT, 0, 0, 0, 0];
    packet[5..].copy_from_slice(&VERSION.to_be_bytes());
    packet
}

/// Length of a message, from its first four bytes. `None` if no message can have it.
pub(super) fn packet_len(head: [u8; 4]) -> Option<usize> {
    let len = u32::from_be_bytes(head) as usize;
    (HEAD_BYTES - 4..=PACKET_BYTES_MAX).contains(&len).then_some(len)
}

/// What the server said of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub size: Option<u64>,
    pub permissions: Option<u32>,
    /// Seconds since 1970.
    pub modified: Option<u32>,
}

impl Attributes {
    pub fn is_file(&self) -> bool {
        self.permissions.is_some_and(|permissions| permissions & FILE_TYPE == REGULAR)
    }

    pub fn is_link(&self) -> bool {
        self.permissions.is_some_and(|permissions| permissions & FILE_TYPE == LINK)
    }

    pub fn is_directory(&self) -> bool {
        self.permissions.is_some_and(|permissions| permissions & FILE_TYPE == DIRECTORY)
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    pub name: Bytes,
    pub attributes: Attributes,
}

/// A status other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusCode {
    EndOfFile,
    NoSuchFile,
    PermissionDenied,
    Failure,
    Unsupported,
    Other(u32),
}

/// A reply, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Success,
    Status(StatusCode, String),
    Handle(Bytes),
    Data(Bytes),
    Names(Vec<DirectoryEntry>),
    Attributes(Attributes),
    /// The fields of an extended reply.
    Extended(Bytes),
}

/// Reads fields.
struct Fields(Bytes);

impl Fields {
    fn u32(&mut self) -> Result<u32, BadReply> {
        self.0.try_get_u32().map_err(|_| BadReply)
    }

    fn u64(&mut self) -> Result<u64, BadReply> {
        self.0.try_get_u64().map_err(|_| BadReply)
    }

    fn text(&mut self) -> Result<Bytes, BadReply> {
        let len = self.u32()? as usize;
        if len > self.0.len() { Err(BadReply) } else { Ok(self.0.split_to(len)) }
    }

    fn attributes(&mut self) -> Result<Attributes, BadReply> {
        let flags = self.u32()?;
        let size = if flags & HAS_SIZE != 0 { Some(self.u64()?) } else { None };
        if flags & HAS_OWNER != 0 {
            self.u64()?;
        }
        let permissions = if flags & HAS_PERMISSIONS != 0 { Some(self.u32()?) } else { None };
        let mut modified = None;
        if flags & HAS_TIMES != 0 {
            self.u32()?;
            modified = Some(self.u32()?);
        }
        if flags & HAS_EXTENDED != 0 {
            for _ in 0..self.u32()? {
                self.text()?;
                self.text()?;
            }
        }
        Ok(Attributes { size, permissions, modified })
    }

    fn names(&mut self) -> Result<Vec<DirectoryEntry>, BadReply> {
        let count = self.u32()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let name = self.text()?;
            self.text()?;
            entries.push(DirectoryEntry { name, attributes: self.attributes()? });
        }
        Ok(entries)
    }
}

/// Splits a message after its length into kind, number and fields.
pub(super) fn split(mut packet: Bytes) -> Result<(u8, u32, Bytes), BadReply> {
    let kind = packet.try_get_u8().map_err(|_| BadReply)?;
    let number = packet.try_get_u32().map_err(|_| BadReply)?;
    Ok((kind, number, packet))
}

/// Names of the extensions in the fields of a server's first message.
pub(super) fn extensions(fields: Bytes) -> Result<Vec<Bytes>, BadReply> {
    let (mut fields, mut names) = (Fields(fields), Vec::new());
    while !fields.0.is_empty() {
        names.push(fields.text()?);
        fields.text()?;
    }
    Ok(names)
}

/// Parses the reply of a kind with its fields.
pub(super) fn parse(kind: u8, fields: Bytes) -> Result<Reply, BadReply> {
    let mut fields = Fields(fields);
    Ok(match kind {
        STATUS => {
            let code = match fields.u32()? {
                0 => return Ok(Reply::Success),
                1 => StatusCode::EndOfFile,
                2 => StatusCode::NoSuchFile,
                3 => StatusCode::PermissionDenied,
                4 => StatusCode::Failure,
                8 => StatusCode::Unsupported,
                other => StatusCode::Other(other),
            };
            // Old servers send no text.
            let text = fields.text().unwrap_or_default();
            Reply::Status(code, quoted(&String::from_utf8_lossy(&text)))
        }
        HANDLE => Reply::Handle(fields.text()?),
        DATA => Reply::Data(fields.text()?),
        NAME => Reply::Names(fields.names()?),
        ATTRIBUTES => Reply::Attributes(fields.attributes()?),
        EXTENDED_REPLY => Reply::Extended(fields.0),
        _ => return Err(BadReply),
    })
}

/// The lengths of messages, of data to read and of data to write, at most, from the reply to `limits@openssh.com`.
pub(super) fn limits(fields: Bytes) -> Result<[u64; 3], BadReply> {
    let mut fields = Fields(fields);
    Ok([fields.u64()?, fields.u64()?, fields.u64()?])
}

/// The bytes that a user may still store, and whether there can be another file, from the reply to
/// `statvfs@openssh.com`.
pub(super) fn free_space(fields: Bytes) -> Result<(u64, bool), BadReply> {
    let mut fields = Fields(fields);
    let mut numbers = [0; 8];
    for number in &mut numbers {
        *number = fields.u64()?;
    }
    let [_, block_bytes, _, _, blocks, files, _, files_left] = numbers;
    // Some file systems do not count files.
    Ok((blocks.saturating_mul(block_bytes), files == 0 || files_left > 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_has_its_length_kind_number_and_fields() {
        let request = Request::new(SftpRequestKind::Read).text(b"ab").u64(5).u32(7);
        let expected = [0, 0, 0, 23, 5, 0, 0, 1, 2, 0, 0, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 7];
        assert_eq!(request.packet(258), expected);
        assert_eq!(hello(), [0, 0, 0, 5, 1, 0, 0, 0, 3]);
    }

    #[test]
    fn lengths_outside_the_limits_are_refused() {
        assert_eq!(packet_len([0, 0, 0, 5]), Some(5));
        assert_eq!(packet_len([0, 4, 0, 0]), Some(256 << 10));
        for head in [[0, 0, 0, 4], [0, 4, 0, 1], [255; 4]] {
            assert_eq!(packet_len(head), None);
        }
    }

    #[test]
    fn names_come_with_their_attributes() {
        let mut fields = vec![0, 0, 0, 2];
        for name in [b"x\xff", b"yz"] {
            fields.extend([0, 0, 0, 2]);
            fields.extend(name);
            fields.extend([0, 0, 0, 1, b'l', 0x80, 0, 0, 13]);
            fields.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0x81, 0x80, 0, 0, 0, 1, 0, 0, 0, 2]);
            fields.extend([0, 0, 0, 1, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v']);
        }
        let attributes = Attributes { size: Some(9), permissions: Some(0o100_600), modified: Some(2) };
        let entry = |name: &'static [u8]| DirectoryEntry { name: Bytes::from_static(name), attributes };
        let names = Reply::Names(vec![entry(b"x\xff"), entry(b"yz")]);
        assert_eq!(parse(104, fields.clone().into()), Ok(names));
        assert!(attributes.is_file() && !attributes.is_directory());
        for len in 0..fields.len() {
            assert_eq!(parse(104, fields[..len].to_vec().into()), Err(BadReply), "{len}");
        }
    }

    #[test]
    fn a_count_is_not_believed() {
        assert_eq!(parse(104, vec![255; 4].into()), Err(BadReply));
        assert_eq!(parse(102, vec![255; 8].into()), Err(BadReply));
        assert_eq!(parse(105, vec![255; 40].into()), Err(BadReply));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(kind: u8, fields in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(kind, fields.clone().into());
            let _ = extensions(fields.clone().into());
            let _ = limits(fields.clone().into());
            let _ = free_space(fields.into());
        }
    }
}
