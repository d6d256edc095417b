//! Text, as opposed to bytes of programs: logs, exports, sources, in any encoding that has no zero bytes.
//!
//! Bytes are text if hardly any of them is a control character. Archives and databases have headers with zero bytes
//! every few KiB, so they are not text, even if most of what they hold is.

/// Bytes for one control character that text may have.
const BYTES_PER_CONTROL: usize = 1024;
/// Bytes that are counted before the count is compared with the bound.
const BLOCK_BYTES: usize = 4 << 10;
/// Bytes whose count fits in a byte, so that the loop over them is one of bytes.
const PART_BYTES: usize = 128;

/// Whether `bytes` are text.
pub fn is_text(bytes: &[u8]) -> bool {
    let controls_max = bytes.len() / BYTES_PER_CONTROL;
    let mut controls = 0;
    for block in bytes.chunks(BLOCK_BYTES) {
        controls += block.chunks(PART_BYTES).map(|part| usize::from(controls_in(part))).sum::<usize>();
        if controls > controls_max {
            return false;
        }
    }
    !bytes.is_empty()
}

/// Control characters other than those of lines, of which a part has at most 128.
fn controls_in(part: &[u8]) -> u8 {
    part.iter().map(|byte| u8::from(*byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r'))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_any_encoding_without_zeros_are_text() {
        assert!(is_text(&b"a\tline\r\n".repeat(20_000)));
        assert!(is_text(&"Größe 7 \u{4e2d}\n".as_bytes().repeat(20_000)));
        assert!(!is_text(&"Größe".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>().repeat(20_000)));
        assert!(!is_text(b""));
    }

    #[test]
    fn a_control_character_in_a_kilobyte_is_allowed_and_no_more() {
        for len in [1024, 100_000, 524_288] {
            let mut bytes = b"0123456789abcde\n".repeat(len / 16);
            for position in 0..bytes.len() / BYTES_PER_CONTROL {
                bytes[position * BYTES_PER_CONTROL] = 0x1b;
            }
            assert!(is_text(&bytes), "{len}");
            // The last byte counts as much as the first.
            *bytes.last_mut().unwrap() = 0;
            assert!(!is_text(&bytes), "{len}");
        }
    }

    #[test]
    fn an_archive_of_text_is_not_text() {
        let member = [&b"member.txt"[..], &[0; 502], &b"a line of text\n".repeat(500)].concat();
        assert!(!is_text(&member.repeat(60)));
    }
}
