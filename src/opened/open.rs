//! The analysis: finds deflate streams in an input and opens them, in one pass.

use std::io::{self, Read, Write};

use super::containers::{HEADER_MAX, StreamStart, header, next_header, zlib_window_bits};
use super::corrections::CorrectionModel;
use super::directive::{Directive, code_chunks};
use super::framer::Chunks;
use super::inflate::Block;
use super::input::BitInput;
use super::member::{MEMBER_PLAIN_MAX, OpenMember, Section};
use super::predictor::Settings;
use super::queue::{Next, Queue, Ready};
use super::range_coder::RangeEncoder;
use super::trial::choose_settings;

/// Compressed bytes of a member from which the share of its corrections counts.
const SHARE_FROM: u64 = 64 << 10;
/// Plain bytes that trials of streams may cost which are then not opened, and as many per byte of input.
const WASTE_MIN: u64 = 32 << 20;
const WASTE_PER_BYTE: u64 = 4;
/// Most bytes of the chunks of one image.
const CHUNKED_MAX: usize = 16 << 20;
/// Bytes that one token that is not predicted costs, about.
const MISS_BYTES: f64 = 2.2;
/// Bytes of corrections that a small member may take whatever its size.
const SMALL_COST: f64 = 16.0;

/// Limits of the analysis of one stream.
#[derive(Debug, Clone, Copy)]
pub struct OpenLimits {
    /// Most plain bytes of one member that are opened; the rest of it stays as it is. At most 1 GiB.
    pub max_member_plain: u64,
    /// Largest share of the compressed bytes of a member that its corrections may take.
    pub max_correction_share: f64,
}

impl Default for OpenLimits {
    fn default() -> Self {
        OpenLimits { max_member_plain: 256 << 20, max_correction_share: 0.06 }
    }
}

/// What [`open_stream`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenedSummary {
    /// Members that were opened, at least in part.
    pub members: u64,
    /// Compressed bytes of members that were opened.
    pub opened_bytes: u64,
    /// Members that were found and not opened.
    pub closed_members: u64,
    /// Bytes of the plain content.
    pub plain_len: u64,
    /// Bytes of the corrections.
    pub corrections_len: u64,
    /// Compressor of the last member that was opened, such as `zlib 6`.
    pub writer: Option<String>,
}

/// Reads a stream to its end and writes its plain content (the bytes between members as they are, the inflated
/// bytes of members, in order) to `plain`, and to `corrections` what is needed to rebuild the exact stream.
///
/// What cannot be predicted passes as it is. Memory is bounded by constants, not by the input.
///
/// # Errors
/// Faults of the input and of the outputs. No content of the input is an error.
pub fn open_stream(
    input: impl Read,
    limits: &OpenLimits,
    plain: &mut impl Write,
    corrections: &mut impl Write,
) -> io::Result<OpenedSummary> {
    let mut opener = StreamOpener {
        limits: *limits,
        plain,
        corrections,
        coder: RangeEncoder::new(),
        model: CorrectionModel::default(),
        member: OpenMember::new(),
        settings: Settings::default(),
        copied: 0,
        wasted: 0,
        summary: OpenedSummary::default(),
    };
    opener.run(&mut BitInput::new(input))?;
    Directive::Rest.code(&mut opener.model, &mut opener.coder);
    opener.summary.corrections_len = opener.coder.finish(opener.corrections)?;
    Ok(opener.summary)
}

struct StreamOpener<'a, P, C> {
    limits: OpenLimits,
    plain: &'a mut P,
    corrections: &'a mut C,
    coder: RangeEncoder,
    model: CorrectionModel,
    member: OpenMember,
    /// Of the last member.
    settings: Settings,
    /// Bytes passed as they are that are not coded yet.
    copied: u64,
    /// Plain bytes that trials cost.
    wasted: u64,
    summary: OpenedSummary,
}

impl<P: Write, C: Write> StreamOpener<'_, P, C> {
    fn run<R: Read>(&mut self, input: &mut BitInput<R>) -> io::Result<()> {
        let mut at_start = true;
        loop {
            input.set_mark();
            let bytes = input.peek(HEADER_MAX)?;
            if bytes.is_empty() {
                return Ok(());
            }
            let start = header(bytes, std::mem::take(&mut at_start));
            if let Some(start) = start
                && self.try_stream(input, start)?
            {
                continue;
            }
            let bytes = input.peek(HEADER_MAX)?;
            let count = next_header(bytes, 1).unwrap_or(bytes.len());
            self.pass(input, count)?;
        }
    }

    /// Passes bytes as they are.
    fn pass<R: Read>(&mut self, input: &mut BitInput<R>, count: usize) -> io::Result<()> {
        let bytes = input.peek(count)?;
        self.plain.write_all(&bytes[..count])?;
        input.skip(count);
        self.copied += count as u64;
        self.summary.plain_len += count as u64;
        Ok(())
    }

    /// Codes the bytes passed so far.
    fn code_copied(&mut self) {
        if self.copied > 0 {
            Directive::Pass(self.copied).code(&mut self.model, &mut self.coder);
            self.copied = 0;
        }
    }

    /// Opens a stream at the current position. If it gives false, the position is unchanged.
    fn try_stream<R: Read>(&mut self, input: &mut BitInput<R>, start: StreamStart) -> io::Result<bool> {
        if self.wasted > WASTE_MIN + WASTE_PER_BYTE * (input.bit_position() / 8) {
            return Ok(false);
        }
        if !start.in_chunks {
            return self.try_member(input, start, None);
        }
        let mut chunks = Chunks::default();
        let mut need = 8;
        loop {
            let bytes = input.peek(need)?;
            if bytes.len() < need {
                break;
            }
            match chunks.read(bytes) {
                Some(more) if more <= CHUNKED_MAX => need = more,
                _ => break,
            }
        }
        let Some(window_bits) = zlib_window_bits(&chunks.payload) else { return Ok(false) };
        let mut inner = BitInput::new(chunks.payload.as_slice());
        let start = StreamStart { header_len: 2, window_bits, in_chunks: false };
        if !self.try_member(&mut inner, start, Some(&chunks))? {
            return Ok(false);
        }
        let rest = inner.peek(usize::MAX)?.len();
        self.pass(&mut inner, rest)?;
        self.code_copied();
        input.skip(chunks.framed_len);
        Ok(true)
    }

    fn try_member<R: Read>(
        &mut self,
        input: &mut BitInput<R>,
        start: StreamStart,
        chunks: Option<&Chunks>,
    ) -> io::Result<bool> {
        let begin = input.bit_position();
        let head = input.peek(start.header_len)?[..start.header_len].to_vec();
        input.skip(head.len());
        let mut queue = Queue::new(self.limits.max_member_plain.min(MEMBER_PLAIN_MAX));
        let mut data = Vec::new();
        let ready = queue.read(input, &mut data);
        input.check()?;
        let compressed = (input.bit_position() - begin) / 8;
        let Some(settings) = self.choose(start.window_bits, &data, &queue.blocks, compressed) else {
            self.wasted += (data.len() + HEADER_MAX / 4) as u64;
            self.summary.closed_members += u64::from(data.len() >= 64);
            input.rewind(begin);
            return Ok(false);
        };
        self.plain.write_all(&head)?;
        self.copied += if let Some(chunks) = chunks {
            self.code_copied();
            Directive::Chunks.code(&mut self.model, &mut self.coder);
            code_chunks(&mut self.model, &mut self.coder, &chunks.lens);
            head.len()
        } else {
            head.len()
        } as u64;
        self.summary.plain_len += head.len() as u64;
        self.code_copied();
        Directive::Member.code(&mut self.model, &mut self.coder);
        self.model.settings(&mut self.coder, &self.settings, &settings);
        self.settings = settings;
        self.member.start(&settings);
        self.member.data = data;
        self.open_member(input, begin + 8 * head.len() as u64, queue, ready)?;
        Ok(true)
    }

    /// The settings of the compressor, if they predict its stream well enough.
    fn choose(&mut self, window_bits: u8, data: &[u8], blocks: &[Block], compressed: u64) -> Option<Settings> {
        if data.is_empty() {
            return None;
        }
        let (settings, misses) = choose_settings(&mut self.member, &self.settings, window_bits, data, blocks);
        let tokens: usize = blocks.iter().map(|block| block.tokens.len()).sum();
        let cost = misses * tokens as f64 * MISS_BYTES;
        let share = self.limits.max_correction_share;
        (cost <= share * compressed as f64 + SMALL_COST).then_some(settings)
    }

    /// Codes a member, section by section.
    fn open_member<R: Read>(
        &mut self,
        input: &mut BitInput<R>,
        begin: u64,
        mut queue: Queue,
        mut ready: Ready,
    ) -> io::Result<()> {
        let coded_before = self.coder.len();
        self.summary.members += 1;
        self.summary.writer = Some(self.settings.to_string());
        let mut end = begin;
        loop {
            let compressed = (input.bit_position() - begin) / 8;
            let share = (self.coder.len() - coded_before) as f64 / compressed.max(1) as f64;
            if compressed > SHARE_FROM && share > self.limits.max_correction_share && ready.next == Next::Block {
                ready = Ready { blocks: queue.blocks.len(), lookahead: 0, next: Next::Cut(input.bit_position()) };
            }
            if ready.blocks > 0 {
                end = ready.end(input);
                self.code_section(&queue.blocks[..ready.blocks], ready.lookahead)?;
                queue.drop_front(ready.blocks);
            }
            match ready.next {
                Next::Block => {}
                Next::End => {
                    let (padding, _) = input.align();
                    input.end_bits();
                    self.model.padding(&mut self.coder, padding);
                    break;
                }
                Next::Cut(position) => {
                    self.model.cut(&mut self.coder, true);
                    input.rewind(position / 8 * 8);
                    break;
                }
            }
            self.coder.drain(self.corrections)?;
            ready = queue.read(input, &mut self.member.data);
            input.check()?;
            if ready.blocks > 0 {
                self.model.cut(&mut self.coder, false);
            }
        }
        self.summary.opened_bytes += (end - begin).div_ceil(8);
        self.coder.drain(self.corrections)
    }

    fn code_section(&mut self, blocks: &[Block], lookahead: usize) -> io::Result<()> {
        let plain_len: usize = blocks.iter().map(|block| block.plain_len).sum();
        let section = Section { plain_len: plain_len as u64, lookahead: lookahead as u64, blocks: blocks.len() as u64 };
        Section::code(&mut self.model, &mut self.coder, section);
        let from = self.member.index;
        self.member.encode(&mut self.model, &mut self.coder, &section, blocks);
        self.plain.write_all(&self.member.data[from..from + plain_len])?;
        self.summary.plain_len += plain_len as u64;
        self.member.forget();
        Ok(())
    }
}
