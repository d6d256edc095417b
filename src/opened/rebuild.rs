//! The decoder: rebuilds a stream from its plain content and its corrections.

use std::io::{self, Read};

use super::corrections::CorrectionModel;
use super::deflate_writer::DeflateWriter;
use super::directive::{Directive, code_chunks};
use super::framer::Framer;
use super::member::{OpenMember, OpenSection, Section, fault};
use super::predictor::Settings;
use super::range_coder::RangeDecoder;

/// Bytes passed at once.
const PASS_BYTES: u64 = 64 << 10;

/// What the decoder is in.
#[derive(Debug)]
enum Phase {
    /// Before a directive.
    Directive,
    /// Within bytes that pass as they are.
    Pass(u64),
    /// Within a section of a member.
    Section(OpenSection),
    /// Within the bytes after the last directive.
    Rest,
}

/// Streams the original bytes of an opened stream. Memory is bounded by constants.
///
/// Corrections or plain content that are not those of one stream end as an error of kind `InvalidData` or
/// `UnexpectedEof`, or give other bytes: the caller checks the hash.
#[derive(Debug)]
pub struct Rebuilder<P, C> {
    plain: P,
    coder: RangeDecoder<C>,
    model: CorrectionModel,
    member: OpenMember,
    settings: Settings,
    writer: DeflateWriter,
    framer: Framer,
    phase: Phase,
    /// Bytes of the stream before framing.
    bytes: Vec<u8>,
    /// Bytes of the stream, read up to `pos`.
    out: Vec<u8>,
    pos: usize,
    is_broken: bool,
}

impl<P: Read, C: Read> Rebuilder<P, C> {
    /// Rebuilds from the plain content and the corrections that `open_stream` wrote.
    pub fn new(plain: P, corrections: C) -> Self {
        Rebuilder {
            plain,
            coder: RangeDecoder::new(corrections),
            model: CorrectionModel::default(),
            member: OpenMember::new(),
            settings: Settings::default(),
            writer: DeflateWriter::default(),
            framer: Framer::default(),
            phase: Phase::Directive,
            bytes: Vec::new(),
            out: Vec::new(),
            pos: 0,
            is_broken: false,
        }
    }

    /// Makes more bytes. False at the end.
    fn step(&mut self) -> io::Result<bool> {
        self.out.clear();
        self.pos = 0;
        match &mut self.phase {
            Phase::Directive => self.directive()?,
            Phase::Pass(0) => self.phase = Phase::Directive,
            Phase::Pass(left) => {
                let count = PASS_BYTES.min(*left);
                *left -= count;
                self.pass(count, true)?;
            }
            Phase::Rest => return Ok(self.pass(PASS_BYTES, false)? > 0),
            Phase::Section(section) if section.blocks > 0 => {
                section.rebuild_block(
                    &mut self.member,
                    &mut self.model,
                    &mut self.coder,
                    &mut self.plain,
                    &mut self.writer,
                )?;
                if section.is_last() && section.blocks > 0 {
                    return Err(fault("blocks follow the last one of a member"));
                }
                self.emit();
            }
            Phase::Section(_) => self.end_section()?,
        }
        Ok(true)
    }

    fn directive(&mut self) -> io::Result<()> {
        self.coder.start();
        let directive = Directive::Rest.code(&mut self.model, &mut self.coder);
        self.coder.check()?;
        match directive {
            Directive::Rest => self.phase = Phase::Rest,
            Directive::Pass(0) => return Err(fault("no bytes pass")),
            Directive::Pass(count) => self.phase = Phase::Pass(count),
            Directive::Chunks => {
                let chunks = code_chunks(&mut self.model, &mut self.coder, &[]);
                self.framer.start(chunks.ok_or_else(|| fault("wrong number of chunks"))?)?;
            }
            Directive::Member => {
                let settings = self.model.settings(&mut self.coder, &self.settings, &self.settings);
                let settings = settings.ok_or_else(|| fault("the settings of a member are not known"))?;
                self.settings = settings;
                self.member.start(&settings);
                self.section()?;
            }
        }
        Ok(())
    }

    fn section(&mut self) -> io::Result<()> {
        let section = Section::code(&mut self.model, &mut self.coder, Section::default());
        self.coder.check()?;
        self.phase = Phase::Section(OpenSection::start(&self.member, &section)?);
        Ok(())
    }

    /// Goes on after a section.
    fn end_section(&mut self) -> io::Result<()> {
        let Phase::Section(section) = &self.phase else { return Ok(()) };
        section.check_end()?;
        if section.is_last() {
            let padding = self.model.padding(&mut self.coder, 0);
            self.writer.align(padding);
        } else if self.model.cut(&mut self.coder, false) {
            self.writer.cut();
        } else {
            return self.section();
        }
        if self.member.data.len() != self.member.index {
            return Err(fault("a member ends before the bytes lookahead of it"));
        }
        self.phase = Phase::Directive;
        self.emit();
        Ok(())
    }

    /// Moves what was written to the output.
    fn emit(&mut self) {
        self.writer.drain(&mut self.bytes);
        self.framer.push(&self.bytes, &mut self.out);
        self.bytes.clear();
    }

    /// Passes `count` bytes; if `exact`, all of them have to be there.
    fn pass(&mut self, count: u64, exact: bool) -> io::Result<usize> {
        let read = self.plain.by_ref().take(count).read_to_end(&mut self.bytes)?;
        if exact && read as u64 != count {
            return Err(fault("the plain content ends too early"));
        }
        self.framer.push(&self.bytes, &mut self.out);
        self.bytes.clear();
        Ok(read)
    }
}

impl<P: Read, C: Read> Read for Rebuilder<P, C> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if self.is_broken {
            return Err(fault("the rebuilt stream had a fault before"));
        }
        while self.pos == self.out.len() {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(error) => {
                    self.is_broken = true;
                    return Err(error);
                }
            }
        }
        let count = buf.len().min(self.out.len() - self.pos);
        buf[..count].copy_from_slice(&self.out[self.pos..self.pos + count]);
        self.pos += count;
        Ok(count)
    }
}
