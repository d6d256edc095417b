//! Reads the blocks of a deflate stream as tokens.
//!
//! Only streams that the writer of this module gives back bit for bit are accepted: a length of 258 has its
//! own symbol, and every code is complete or has unused codes that do not occur.

use std::io::Read;

use super::codes::{BlockKind, Header};
use super::input::BitInput;
use super::symbols::{END_OF_BLOCK, MATCH_MAX, Token, distance_base, fixed_lengths, length_base};

/// Most tokens in one block.
pub(super) const BLOCK_TOKENS_MAX: usize = 1 << 20;
/// Most plain bytes of one block.
pub(super) const BLOCK_PLAIN_MAX: usize = 9 << 20;

/// One block of a deflate stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    pub(super) is_last: bool,
    pub(super) kind: BlockKind,
    /// Empty for a stored block.
    pub(super) tokens: Vec<Token>,
    pub(super) plain_len: usize,
    /// The bits before the length of a stored block, up to the byte boundary.
    pub(super) padding: u32,
}

/// Table that decodes one code by its bits.
#[derive(Debug)]
struct Table {
    /// `symbol << 4 | length` by the next bits; 0 where no code fits.
    entries: Vec<u16>,
    bits: u32,
}

impl Table {
    /// `None` if there are more codes than fit.
    fn new(lengths: &[u8]) -> Option<Table> {
        let bits = u32::from(lengths.iter().copied().max().unwrap_or(0)).max(1);
        let mut entries = vec![0u16; 1 << bits];
        let mut code = 0u32;
        for length in 1..=bits {
            for (symbol, _) in lengths.iter().enumerate().filter(|&(_, &own)| u32::from(own) == length) {
                if code >> length != 0 {
                    return None;
                }
                let first = (code.reverse_bits() >> (32 - length)) as usize;
                for entry in entries[first..].iter_mut().step_by(1 << length) {
                    *entry = (symbol as u16) << 4 | length as u16;
                }
                code += 1;
            }
            code <<= 1;
        }
        Some(Table { entries, bits })
    }

    fn decode<R: Read>(&self, source: &mut BitInput<R>) -> Option<usize> {
        let entry = self.entries[source.peek_bits() as usize & ((1 << self.bits) - 1)];
        if entry == 0 {
            return None;
        }
        source.take_bits(u32::from(entry & 15))?;
        Some(usize::from(entry >> 4))
    }
}

/// Reads one block and appends its plain bytes to `plain`, which holds the history of the stream from
/// `start` on. `None`: the block is not valid, too large, or the input ends within it.
pub(super) fn read_block<R: Read>(source: &mut BitInput<R>, plain: &mut Vec<u8>, start: usize) -> Option<Block> {
    let mut block = Block { is_last: source.take_bits(1)? != 0, ..Block::default() };
    let before = plain.len();
    match source.take_bits(2)? {
        0 => read_stored(source, plain, &mut block)?,
        1 => {
            let (literals, distances) = fixed_lengths();
            block.kind = BlockKind::Fixed;
            read_tokens(source, plain, start, &mut block, &literals, &distances)?;
        }
        2 => {
            let header = read_header(source)?;
            let (literals, distances) = header.lengths()?;
            read_tokens(source, plain, start, &mut block, &literals, &distances)?;
            block.kind = BlockKind::Dynamic(Box::new(header));
        }
        _ => return None,
    }
    block.plain_len = plain.len() - before;
    Some(block)
}

fn read_stored<R: Read>(source: &mut BitInput<R>, plain: &mut Vec<u8>, block: &mut Block) -> Option<()> {
    block.padding = source.align().0;
    let len = source.take_bits(16)?;
    if source.take_bits(16)? != len ^ 0xFFFF {
        return None;
    }
    source.end_bits();
    let bytes = source.peek(len as usize).ok()?.get(..len as usize)?;
    plain.extend_from_slice(bytes);
    source.skip(len as usize);
    block.kind = BlockKind::Stored;
    Some(())
}

fn read_header<R: Read>(source: &mut BitInput<R>) -> Option<Header> {
    let mut header = Header {
        literals: source.take_bits(5)? as usize + 257,
        distances: source.take_bits(5)? as usize + 1,
        ..Header::default()
    };
    header.code_lengths = source.take_bits(4)? as usize + 4;
    for &symbol in &super::codes::ORDER[..header.code_lengths] {
        header.code_length_lengths[symbol] = source.take_bits(3)? as u8;
    }
    if header.literals > 286 {
        return None;
    }
    let table = Table::new(&header.code_length_lengths)?;
    let mut count = 0;
    while count < header.literals + header.distances {
        let symbol = table.decode(source)? as u8;
        let extra = source.take_bits(super::codes::extra_bits(symbol))? as u8;
        count += super::codes::run_of(symbol, extra);
        header.symbols.push((symbol, extra));
    }
    Some(header)
}

fn read_tokens<R: Read>(
    source: &mut BitInput<R>,
    plain: &mut Vec<u8>,
    start: usize,
    block: &mut Block,
    literals: &[u8],
    distances: &[u8],
) -> Option<()> {
    let literal_table = Table::new(literals)?;
    let distance_table = Table::new(distances)?;
    let plain_max = plain.len() + BLOCK_PLAIN_MAX;
    loop {
        let symbol = literal_table.decode(source)?;
        if symbol == END_OF_BLOCK {
            return Some(());
        }
        if block.tokens.len() == BLOCK_TOKENS_MAX || plain.len() + MATCH_MAX > plain_max {
            return None;
        }
        if symbol < END_OF_BLOCK {
            plain.push(symbol as u8);
            block.tokens.push(Token::literal(symbol as u8));
            continue;
        }
        if symbol > 285 {
            return None;
        }
        let (base, extra_bits) = length_base(symbol);
        let len = base + source.take_bits(extra_bits)? as usize;
        if len == MATCH_MAX && symbol != 285 {
            return None;
        }
        let symbol = distance_table.decode(source)?;
        if symbol >= 30 {
            return None;
        }
        let (base, extra_bits) = distance_base(symbol);
        let distance = base + source.take_bits(extra_bits)? as usize;
        if distance > plain.len() - start {
            return None;
        }
        copy_match(plain, len, distance);
        block.tokens.push(Token::copy(len, distance));
    }
}

/// Appends `len` bytes from `distance` bytes back, which may overlap.
fn copy_match(plain: &mut Vec<u8>, len: usize, distance: usize) {
    let from = plain.len() - distance;
    if distance >= len {
        plain.extend_from_within(from..from + len);
    } else {
        for index in from..from + len {
            let byte = plain[index];
            plain.push(byte);
        }
    }
}
