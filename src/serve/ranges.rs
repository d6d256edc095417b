//! The `Range` header: one range of bytes, or none. Anything else is refused, because to send the whole file instead
//! would cost the client more than an error.

/// What a request asks for of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeChoice {
    /// All of it.
    Whole,
    /// The bytes from the first to the second offset, exclusive.
    Part(u64, u64),
    /// Nothing that the file has.
    Unsatisfiable,
}

impl RangeChoice {
    /// What a `Range` header asks for of a file of `len` bytes.
    pub fn of(header: Option<&[u8]>, len: u64) -> Self {
        let Some(header) = header else { return RangeChoice::Whole };
        let Some(text) = std::str::from_utf8(header).ok() else { return RangeChoice::Unsatisfiable };
        let Some((unit, range)) = text.split_once('=') else { return RangeChoice::Unsatisfiable };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            // Units that nobody knows are to be ignored.
            return RangeChoice::Whole;
        }
        match bounds(range.trim(), len) {
            Some((from, to)) if from < to => RangeChoice::Part(from, to),
            _ => RangeChoice::Unsatisfiable,
        }
    }
}

fn bounds(range: &str, len: u64) -> Option<(u64, u64)> {
    // A number with a sign parses, and is none here. A comma makes no number.
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    match range.split_once('-')? {
        ("", last) => Some((len.saturating_sub(number(last)?), len)),
        (first, "") => Some((number(first)?, len)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some((first, last.saturating_add(1).min(len)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RangeChoice::{Part, Unsatisfiable, Whole};

    fn of(header: &str) -> RangeChoice {
        RangeChoice::of(Some(header.as_bytes()), 1000)
    }

    #[test]
    fn a_range_is_clamped_to_the_file() {
        for (header, expected) in [
            ("bytes=0-99", Part(0, 100)),
            ("bytes=0-0", Part(0, 1)),
            ("bytes=999-", Part(999, 1000)),
            ("bytes=0-100000", Part(0, 1000)),
            ("bytes=-5", Part(995, 1000)),
            ("bytes=-5000", Part(0, 1000)),
            ("Bytes = 1-2", Part(1, 3)),
            ("bytes=0-18446744073709551615", Part(0, 1000)),
            ("items=0-5", Whole),
        ] {
            assert_eq!(of(header), expected, "{header}");
        }
        assert_eq!(RangeChoice::of(None, 1000), Whole);
        assert_eq!(RangeChoice::of(Some(b"bytes=0-"), 0), Unsatisfiable);
    }

    #[test]
    fn what_is_no_single_range_of_the_file_is_refused() {
        let many = format!("bytes={}", (0..5000).map(|at| format!("{at}-{at}")).collect::<Vec<_>>().join(","));
        for header in [
            "bytes=1000-",
            "bytes=5-2",
            "bytes=-0",
            "bytes=-",
            "bytes=",
            "bytes",
            "bytes=a-b",
            "bytes=--5",
            "bytes=+1-2",
            "bytes=0-1,5-6",
            "bytes=0-5,3-9",
            "bytes=0-1,",
            "bytes=1-18446744073709551616",
            "bytes=1 -2",
            "",
            &many,
        ] {
            assert_eq!(of(header), Unsatisfiable, "{header}");
        }
        assert_eq!(RangeChoice::of(Some(b"bytes=\xff-"), 1000), Unsatisfiable);
    }
}
