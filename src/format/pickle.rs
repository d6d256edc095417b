//! A static reader of Python pickles: it builds a tree of the pickled object and runs nothing.
//!
//! It is a stack machine for the opcodes that saved tensors use. Values are nodes with numbers, and a call is a node
//! too. Other opcodes and exceeded bounds are errors, after which nothing is known about the pickle.

use std::collections::HashMap;

use crate::error::Result;
use crate::wire::WireReader;

/// Most nodes of a tree, values on the stack and marks.
const NODES_MAX: usize = 1 << 20;

/// Number of a node in its tree.
pub(super) type NodeNumber = usize;

/// A value of the pickle.
pub(super) enum PickleNode<'a> {
    /// A value without tensors, for example `None`, a float or bytes.
    Plain,
    /// An integer or a boolean.
    Number(i64),
    /// A string.
    Text(&'a str),
    /// An attribute of a module.
    Global { module: &'a str, name: &'a str },
    /// An object outside the pickle, with the value that identifies it.
    Persistent(NodeNumber),
    /// A list, tuple, set or dictionary.
    Items(Vec<PickleItem>),
    /// The result of a call, and the items added to it afterwards.
    Call { callee: NodeNumber, arguments: NodeNumber, items: Vec<PickleItem> },
}

/// A value in a container. `key` is `None` in lists and for the state of an object.
pub(super) struct PickleItem {
    pub(super) key: Option<NodeNumber>,
    pub(super) value: NodeNumber,
}

/// All nodes of a pickle. `top` is the pickled object.
pub(super) struct PickleTree<'a> {
    nodes: Vec<PickleNode<'a>>,
    pub(super) top: NodeNumber,
}

impl<'a> PickleTree<'a> {
    /// Reads a pickle.
    pub(super) fn read(bytes: &'a [u8]) -> Result<PickleTree<'a>> {
        Self::read_first(bytes).map(|(tree, _)| tree)
    }
    /// Reads the pickle that `bytes` begin with. Also returns the bytes after it.
    pub(super) fn read_first(bytes: &'a [u8]) -> Result<(PickleTree<'a>, &'a [u8])> {
        let input = WireReader::new("pickle", 0, bytes);
        let mut reader =
            PickleReader { input, nodes: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
        while !reader.step()? {}
        let top = reader.pop()?;
        let rest = bytes.get(bytes.len() - reader.input.remaining()..).unwrap_or_default();
        Ok((PickleTree { nodes: reader.nodes, top }, rest))
    }
    /// The node with this number.
    pub(super) fn node(&self, id: NodeNumber) -> &PickleNode<'a> {
        self.nodes.get(id).unwrap_or(&PickleNode::Plain)
    }
    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

struct PickleReader<'a> {
    input: WireReader<'a>,
    nodes: Vec<PickleNode<'a>>,
    stack: Vec<NodeNumber>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, NodeNumber>,
}

impl<'a> PickleReader<'a> {
    /// Runs one opcode. Returns true at the end of the pickle.
    fn step(&mut self) -> Result<bool> {
        let opcode = self.input.u8()?;
        match opcode {
            b'.' => return Ok(true),
            0x80 => self.input.bytes(1).map(drop)?,
            0x95 => self.input.bytes(8).map(drop)?,
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.pop().map(drop)?,
            b'1' => self.pop_mark().map(drop)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.memoize(opcode)?,
            b'N' | 0x88 | 0x89 | b'J' | b'K' | b'M' | 0x8a | b'G' => self.scalar(opcode)?,
            b'X' | 0x8c | 0x8d | b'T' | b'U' | b'B' | b'C' => self.text(opcode)?,
            b'c' | 0x93 | b'Q' | b'R' | 0x81 => self.object(opcode)?,
            _ => self.container(opcode)?,
        }
        Ok(false)
    }

    fn push(&mut self, node: PickleNode<'a>) -> Result<()> {
        self.nodes.push(node);
        self.push_id(self.nodes.len() - 1)
    }

    fn push_id(&mut self, id: NodeNumber) -> Result<()> {
        self.stack.push(id);
        if self.nodes.len() > NODES_MAX || self.stack.len() > NODES_MAX || self.marks.len() > NODES_MAX {
            return Err(self.input.error(format!("at most {NODES_MAX} values"), "more"));
        }
        Ok(())
    }

    /// Height of the stack at the last mark. Values below belong to marks before it.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<NodeNumber> {
        let floor = self.floor();
        let popped = if self.stack.len() > floor { self.stack.pop() } else { None };
        popped.ok_or_else(|| self.input.error("a value on the stack", "none"))
    }

    fn pop_mark(&mut self) -> Result<Vec<NodeNumber>> {
        match self.marks.pop() {
            Some(height) => Ok(self.stack.split_off(height.min(self.stack.len()))),
            None => Err(self.input.error("a mark on the stack", "none")),
        }
    }

    /// Copies the top of the stack to the memo, or a value of the memo to the stack.
    fn memoize(&mut self, opcode: u8) -> Result<()> {
        let slot = match opcode {
            b'q' | b'h' => u32::from(self.input.u8()?),
            b'r' | b'j' => self.input.u32()?,
            _ => self.memo.len() as u32,
        };
        if matches!(opcode, b'h' | b'j') {
            return match self.memo.get(&slot) {
                Some(id) => self.push_id(*id),
                None => Err(self.input.error("a value in the memo", format!("none in slot {slot}"))),
            };
        }
        let top = self.pop()?;
        self.memo.insert(slot, top);
        self.push_id(top)
    }

    fn scalar(&mut self, opcode: u8) -> Result<()> {
        let number = match opcode {
            0x88 => 1,
            0x89 => 0,
            b'J' => i64::from(self.input.u32()? as i32),
            b'K' => i64::from(self.input.u8()?),
            b'M' => i64::from(self.input.u16()?),
            0x8a => {
                let len = usize::from(self.input.u8()?);
                let bytes = self.input.bytes(len)?;
                let Some(shift) = 8usize.checked_sub(len) else { return self.push(PickleNode::Plain) };
                let wide = bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
                if len == 0 { 0 } else { (wide << (8 * shift)) as i64 >> (8 * shift) }
            }
            b'G' => {
                self.input.bytes(8)?;
                return self.push(PickleNode::Plain);
            }
            _ => return self.push(PickleNode::Plain),
        };
        self.push(PickleNode::Number(number))
    }

    fn text(&mut self, opcode: u8) -> Result<()> {
        let len = match opcode {
            0x8c | b'U' | b'C' => u64::from(self.input.u8()?),
            0x8d => self.input.u64()?,
            _ => u64::from(self.input.u32()?),
        };
        let bytes = self.input.bytes(usize::try_from(len).unwrap_or(usize::MAX))?;
        let text = if matches!(opcode, b'B' | b'C') { None } else { std::str::from_utf8(bytes).ok() };
        self.push(text.map_or(PickleNode::Plain, PickleNode::Text))
    }

    /// Text up to the next newline.
    fn line(&mut self) -> Result<&'a str> {
        let rest = self.input.clone().bytes(self.input.remaining())?;
        let len = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = self.input.bytes(len)?;
        self.input.bytes(1)?;
        std::str::from_utf8(line).map_err(|_| self.input.error("a name in UTF-8", "other bytes"))
    }

    fn object(&mut self, opcode: u8) -> Result<()> {
        let node = match opcode {
            b'c' => PickleNode::Global { module: self.line()?, name: self.line()? },
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (self.nodes.get(module), self.nodes.get(name)) {
                    (Some(PickleNode::Text(module)), Some(PickleNode::Text(name))) => {
                        PickleNode::Global { module, name }
                    }
                    _ => return Err(self.input.error("two names", "other values")),
                }
            }
            b'Q' => PickleNode::Persistent(self.pop()?),
            _ => {
                let (arguments, callee) = (self.pop()?, self.pop()?);
                PickleNode::Call { callee, arguments, items: Vec::new() }
            }
        };
        self.push(node)
    }

    fn container(&mut self, opcode: u8) -> Result<()> {
        let fixed = match opcode {
            b')' | b']' | b'}' | 0x8f => 0,
            0x85 => 1,
            0x86 => 2,
            0x87 => 3,
            b't' => {
                let values = self.pop_mark()?;
                return self.push(PickleNode::Items(items_of(values)));
            }
            _ => return self.fill(opcode),
        };
        let mut values = Vec::with_capacity(fixed);
        for _ in 0..fixed {
            values.push(self.pop()?);
        }
        values.reverse();
        self.push(PickleNode::Items(items_of(values)))
    }

    /// Adds values to the container on the stack.
    fn fill(&mut self, opcode: u8) -> Result<()> {
        let more = match opcode {
            b'a' | b'b' => items_of(vec![self.pop()?]),
            b'e' | 0x90 => items_of(self.pop_mark()?),
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                vec![PickleItem { key: Some(key), value }]
            }
            b'u' => {
                let values = self.pop_mark()?;
                values.chunks_exact(2).map(|pair| PickleItem { key: Some(pair[0]), value: pair[1] }).collect()
            }
            _ => return Err(self.input.error("a known opcode", format!("{opcode:#04x}"))),
        };
        let target = self.pop()?;
        if let Some(PickleNode::Items(items) | PickleNode::Call { items, .. }) = self.nodes.get_mut(target) {
            items.extend(more);
        }
        self.push_id(target)
    }
}

fn items_of(values: Vec<NodeNumber>) -> Vec<PickleItem> {
    values.into_iter().map(|value| PickleItem { key: None, value }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(bytes: &[u8]) -> Option<i64> {
        let tree = PickleTree::read(bytes).ok()?;
        if let PickleNode::Number(number) = tree.node(tree.top) { Some(*number) } else { None }
    }

    #[test]
    fn numbers_of_all_opcodes_are_read() {
        assert_eq!(top(b"\x80\x02K\x07."), Some(7));
        assert_eq!(top(b"J\xfe\xff\xff\xff."), Some(-2));
        assert_eq!(top(b"M\x01\x02."), Some(513));
        assert_eq!(top(b"\x8a\x00."), Some(0));
        assert_eq!(top(b"\x8a\x02\xff\xff."), Some(-1));
        assert_eq!(top(b"\x8a\x05\0\0\0\0\x01."), Some(1 << 32));
        assert_eq!(top(b"\x8a\x09\0\0\0\0\0\0\0\0\x01."), None);
        assert_eq!(top(b"\x88."), Some(1));
        assert_eq!(top(b"K\x05q\x000h\x00."), Some(5));
        assert_eq!(top(b"K\x05\x94K\x06\x94j\x00\x00\x00\x00."), Some(5));
    }

    #[test]
    fn pickles_that_python_refuses_or_runs_differently_are_errors() {
        for wrong in [&b"."[..], b"", b"K", b"0.", b"h\x00.", b"t.", b"K\x01(s.", b"cos\nsystem", b"P0\n.", b"\xff."] {
            assert!(PickleTree::read(wrong).is_err(), "{wrong:?}");
        }
        let many = [vec![b'N'; NODES_MAX + 1], vec![b'.']].concat();
        assert!(PickleTree::read(&many).is_err());
        let tree = PickleTree::read(b"cos\nsystem\nX\x02\0\0\0ls\x85R.").unwrap();
        assert!(matches!(tree.node(tree.top), PickleNode::Call { .. }));
    }
}
