//! Where deflate streams begin: headers of gzip, zip, PNG and zlib.

/// Most bytes of a header that is looked at.
pub(super) const HEADER_MAX: usize = 64 << 10;

/// A place where a deflate stream may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamStart {
    /// Bytes of the header before the stream.
    pub(super) header_len: usize,
    /// Bits of the window, as a zlib header says.
    pub(super) window_bits: u8,
    /// The stream lies in chunks of PNG, which begin here.
    pub(super) in_chunks: bool,
}

/// First index from `from` on where a header may begin, or where the bytes are too few to say.
pub(super) fn next_header(bytes: &[u8], from: usize) -> Option<usize> {
    (from..bytes.len()).find(|&at| match bytes[at] {
        0x1F => starts(&bytes[at..], &[0x1F, 0x8B, 8]),
        b'P' => starts(&bytes[at..], b"PK\x03\x04"),
        _ => bytes.get(at + 4) == Some(&b'I') && starts(&bytes[at + 4..], b"IDAT"),
    })
}

fn starts(bytes: &[u8], magic: &[u8]) -> bool {
    let len = bytes.len().min(magic.len());
    bytes[..len] == magic[..len]
}

/// The stream whose header begins at the start of `bytes`. A zlib header counts only at the start of the input.
pub(super) fn header(bytes: &[u8], at_start: bool) -> Option<StreamStart> {
    let found = |header_len| StreamStart { header_len, window_bits: 15, in_chunks: false };
    if let Some(header_len) = gzip_header(bytes).or_else(|| zip_header(bytes)) {
        return Some(found(header_len));
    }
    if bytes.get(4..8) == Some(b"IDAT") {
        return Some(StreamStart { in_chunks: true, ..found(0) });
    }
    let window_bits = if at_start { zlib_window_bits(bytes)? } else { return None };
    Some(StreamStart { window_bits, ..found(2) })
}

/// Bits of the window of a zlib stream without a dictionary.
pub(super) fn zlib_window_bits(bytes: &[u8]) -> Option<u8> {
    let (&[method, flags], _) = bytes.split_first_chunk()?;
    let valid = (u32::from(method) << 8 | u32::from(flags)) % 31 == 0 && flags & 0x20 == 0;
    (method & 15 == 8 && method >> 4 < 8 && valid).then_some(((method >> 4) + 8).max(9))
}

fn gzip_header(bytes: &[u8]) -> Option<usize> {
    let &flags = bytes.get(3)?;
    if bytes[..3] != [0x1F, 0x8B, 8] || flags & 0xE0 != 0 {
        return None;
    }
    let mut len = 10;
    if flags & 4 != 0 {
        let extra = bytes.get(len..len + 2)?;
        len += 2 + usize::from(extra[0]) + (usize::from(extra[1]) << 8);
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            len += 1 + bytes.get(len..)?.iter().position(|&byte| byte == 0)?;
        }
    }
    if flags & 2 != 0 {
        len += 2;
    }
    (len < bytes.len()).then_some(len)
}

fn zip_header(bytes: &[u8]) -> Option<usize> {
    let (head, _) = bytes.split_first_chunk::<30>()?;
    let is_encrypted = head[6] & 1 != 0;
    if &head[..4] != b"PK\x03\x04" || head[8..10] != [8, 0] || is_encrypted {
        return None;
    }
    let len_at = |at: usize| usize::from(head[at]) + (usize::from(head[at + 1]) << 8);
    let len = 30 + len_at(26) + len_at(28);
    (len < bytes.len()).then_some(len)
}

/// Whether an input that begins with these bytes may have streams to open: gzip, zip, PNG, or zlib.
pub fn looks_open(first: &[u8]) -> bool {
    first.starts_with(&[0x1F, 0x8B, 8])
        || first.starts_with(b"PK\x03\x04")
        || first.starts_with(b"\x89PNG\r\n\x1A\n")
        || zlib_window_bits(first).is_some()
}
