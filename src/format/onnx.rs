//! ONNX: a protocol buffer of a graph, its nodes and its initializers.
//!
//! 1. The format has no magic. A file is ONNX if its fields are those of a model, end with the file, and contain one
//!    graph and a set of operators. A file that is cut short is therefore opaque, not defective.
//! 2. Tensors are the initializers of the graph and the attributes of its nodes (constants), also in graphs within
//!    nodes. A tensor of a node has the name of the node's first output, a dot and the name of the attribute.
//! 3. Values lie in one range if they are raw, or packed floats. Other values, and those in files beside this one, are
//!    listed as unreadable.

use std::ops::Range;

use super::Format;
use super::array::ListedArray;
use super::proto::{ProtoReader, ProtoValue};
use super::read::{FormatError, Window};
use super::tensor::{DIMENSIONS_MAX, Recognised};
use super::typed::{NAME_BYTES_MAX, TypedTensor, TypedTensors, known_len, named_type};
use super::value_type::KnownType;

/// Name of the format.
const ONNX: &str = "onnx";
/// Deepest nesting of graphs.
const DEPTH_MAX: usize = 8;
/// Longest number of a version. Today's is 13.
const VERSION_MAX: u8 = 0x7f;

/// Names of the types by their numbers. `None` is a type without values of a fixed length.
const TYPES: &[Option<&str>] = &[
    None,
    Some("F32"),
    Some("U8"),
    Some("I8"),
    Some("U16"),
    Some("I16"),
    Some("I32"),
    Some("I64"),
    None,
    Some("BOOL"),
    Some("F16"),
    Some("F64"),
    Some("U32"),
    Some("U64"),
    Some("C64"),
    Some("C128"),
    Some("BF16"),
    Some("F8_E4M3"),
    Some("F8_E4M3FNUZ"),
    Some("F8_E5M2"),
    Some("F8_E5M2FNUZ"),
    Some("U4"),
    Some("I4"),
    Some("F4"),
    Some("F8_E8M0"),
];

/// Files of the Open Neural Network Exchange.
pub struct Onnx;

impl Format for Onnx {
    fn name(&self) -> &'static str {
        ONNX
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["onnx"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        // The version, and the tag of another field of a model.
        let [0x08, 1..=VERSION_MAX, tag, ..] = head else { return false };
        matches!(tag, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42 | 0x72)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        tensors(window)?.found(ONNX, window)
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        tensors(window)?.list(ONNX, window, visit)
    }
}

/// The tensors of the file; none if it is not ONNX.
fn tensors(window: Window) -> Result<TypedTensors, FormatError> {
    let mut fields = ProtoReader::new(window);
    let graph = match graph(&mut fields, window.len()) {
        Ok(Some(graph)) => graph,
        Ok(None) | Err(FormatError::Defective(_)) => return Ok(TypedTensors::default()),
        Err(io) => return Err(io),
    };
    let mut reader = OnnxReader { fields, tensors: TypedTensors::default() };
    reader.graph(graph, DEPTH_MAX)?;
    Ok(reader.tensors)
}

/// The graph of a model that ends at byte `end`. `None` if the message is not a model.
fn graph(fields: &mut ProtoReader, end: u64) -> Result<Option<Range<u64>>, FormatError> {
    let (mut graph, mut has_operators) = (None, false);
    while let Some(field) = fields.next(end)? {
        match field {
            (1 | 5, ProtoValue::Number(_)) | (2..=4 | 6 | 14 | 20 | 25 | 26, ProtoValue::Bytes(_)) => {}
            (7, ProtoValue::Bytes(range)) if graph.is_none() => graph = Some(range),
            (8, ProtoValue::Bytes(_)) => has_operators = true,
            _ => return Ok(None),
        }
    }
    Ok(graph.filter(|_| has_operators))
}

/// Reader of a graph.
struct OnnxReader<'a> {
    fields: ProtoReader<'a>,
    tensors: TypedTensors,
}

impl OnnxReader<'_> {
    fn graph(&mut self, graph: Range<u64>, depth: usize) -> Result<(), FormatError> {
        self.fields.enter(graph.start);
        while let Some(field) = self.fields.next(graph.end)? {
            match field {
                (1, ProtoValue::Bytes(node)) => self.node(node, depth)?,
                (5, ProtoValue::Bytes(initializer)) => self.tensor(initializer)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn node(&mut self, node: Range<u64>, depth: usize) -> Result<(), FormatError> {
        let (mut output, mark) = (String::new(), self.tensors.mark());
        self.fields.enter(node.start);
        while let Some(field) = self.fields.next(node.end)? {
            match field {
                (2, ProtoValue::Bytes(name)) if output.is_empty() => output = self.fields.text(name, NAME_BYTES_MAX)?,
                (5, ProtoValue::Bytes(attribute)) => self.attribute(attribute, depth)?,
                _ => {}
            }
            // A text is entered, and a message is left at its end.
        }
        self.tensors.prefix(mark, &output)
    }

    fn attribute(&mut self, attribute: Range<u64>, depth: usize) -> Result<(), FormatError> {
        let (mut own_name, mark) = (String::new(), self.tensors.mark());
        self.fields.enter(attribute.start);
        while let Some(field) = self.fields.next(attribute.end)? {
            match field {
                (1, ProtoValue::Bytes(name)) => own_name = self.fields.text(name, NAME_BYTES_MAX)?,
                (5 | 10, ProtoValue::Bytes(tensor)) => self.tensor(tensor)?,
                (6 | 11, ProtoValue::Bytes(graph)) if depth > 0 => self.graph(graph, depth - 1)?,
                _ => {}
            }
        }
        self.tensors.prefix(mark, &own_name)
    }

    fn tensor(&mut self, tensor: Range<u64>) -> Result<(), FormatError> {
        let (mut found, mut values_ranges) = (OnnxTensor::default(), 0);
        self.fields.enter(tensor.start);
        while let Some((number, value)) = self.fields.next(tensor.end)? {
            match (number, value) {
                (1, ProtoValue::Number(size)) => found.add_size(size),
                (1, ProtoValue::Bytes(sizes)) => self.fields.packed(sizes, &mut |size| found.add_size(size))?,
                (2, ProtoValue::Number(number)) => found.type_number = number,
                (4 | 9 | 10, ProtoValue::Bytes(values)) => {
                    values_ranges += 1;
                    found.values = Some((number, values));
                }
                (8, ProtoValue::Bytes(name)) => found.name = self.fields.text(name, NAME_BYTES_MAX)?,
                (13, _) => found.is_external = true,
                (4..=7 | 10 | 11, _) => found.is_spread = true,
                _ => {}
            }
        }
        found.is_spread |= values_ranges > 1;
        found.add_to(&mut self.tensors)
    }
}

/// A tensor as its message describes it.
#[derive(Default)]
struct OnnxTensor {
    name: String,
    type_number: u64,
    shape: Vec<u64>,
    /// The number of the field with the values, and where they lie.
    values: Option<(u64, Range<u64>)>,
    /// Whether the values are in another file.
    is_external: bool,
    /// Whether the values are texts, numbers of variable length, or in several ranges.
    is_spread: bool,
}

impl OnnxTensor {
    fn add_size(&mut self, size: u64) {
        // One more than the most makes the tensor defective.
        if self.shape.len() <= DIMENSIONS_MAX {
            self.shape.push(size);
        }
    }

    fn add_to(self, tensors: &mut TypedTensors) -> Result<(), FormatError> {
        let OnnxTensor { name, type_number, shape, .. } = self;
        let type_name = usize::try_from(type_number).ok().and_then(|number| TYPES.get(number).copied().flatten());
        let known = type_name.and_then(KnownType::named);
        if self.is_external {
            return tensors.push_unreadable(name, "its values are in another file".into());
        }
        let Some((field, values)) = self.values.filter(|_| !self.is_spread) else {
            let is_empty = known.is_some_and(|known| known_len(known, &shape) == Some(0));
            return match known.filter(|_| is_empty && !self.is_spread) {
                Some(known) => tensors.push(TypedTensor::known(name, known, shape, 0, 0)?),
                None => tensors.push_unreadable(name, "its values are not stored one after another".into()),
            };
        };
        let (offset, len) = (values.start, values.end - values.start);
        if field != 9 {
            // Packed floats are in pairs if they are complex numbers.
            let is_own = matches!((field, type_name), (4, Some("F32" | "C64")) | (10, Some("F64" | "C128")));
            let Some(known) = known.filter(|_| is_own) else {
                return tensors
                    .push_unreadable(name, format!("its values are in field {field}, not in that of their type"));
            };
            return tensors.push(TypedTensor::known(name, known, shape, offset, len)?);
        }
        match (known, type_name) {
            (Some(known), _) => tensors.push(TypedTensor::known(name, known, shape, offset, len)?),
            (None, label) => {
                let value_type = named_type(label.unwrap_or("other"));
                tensors.push(TypedTensor { name, value_type, shape, offset, len })
            }
        }
    }
}
