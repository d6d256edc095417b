//! Small ONNX files, and false ones.

use super::hostile_tests::reason;
use super::samples_tests::{found, listed, model, rows_of};
use super::*;

/// A field of a number.
fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

/// A field of bytes.
fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    [&[field << 3 | 2, len as u8 | 0x80, (len >> 7) as u8][..], content].concat()
}

/// A tensor: name, number of the type, sizes, and the field of the values.
fn tensor(name: &str, kind: u8, shape: &[u8], values: &[u8]) -> Vec<u8> {
    let sizes: Vec<u8> = shape.iter().flat_map(|size| number(1, *size)).collect();
    [sizes, number(2, kind), bytes(8, name.as_bytes()), values.to_vec()].concat()
}

/// A node with an output and an attribute of the given content.
fn node(output: &str, attribute: &[u8]) -> Vec<u8> {
    let attribute = [bytes(1, b"value"), attribute.to_vec()].concat();
    [bytes(1, b"input"), bytes(2, output.as_bytes()), bytes(4, b"Constant"), bytes(5, &attribute)].concat()
}

/// A model with this graph.
fn model_of(graph: &[Vec<u8>]) -> Vec<u8> {
    let head = [number(1, 8), bytes(2, b"test"), bytes(7, &graph.concat())].concat();
    [head, bytes(8, &number(2, 17))].concat()
}

pub(super) fn onnx_sample() -> Vec<u8> {
    let external = [bytes(13, b""), number(14, 1)].concat();
    let packed = tensor("packed", 11, &[], &bytes(10, &[4; 16]));
    // Sizes may be packed, too.
    let packed = [bytes(1, &[2, 1]), packed].concat();
    let inner = bytes(5, &tensor("inner", 7, &[1], &bytes(9, &[6; 8])));
    model_of(&[
        bytes(1, &node("c", &bytes(5, &tensor("", 10, &[2, 1], &bytes(9, &[1; 4]))))),
        bytes(1, &node("if", &bytes(6, &inner))),
        bytes(2, b"graph"),
        bytes(5, &tensor("w", 1, &[2, 3], &bytes(9, &[2; 24]))),
        bytes(5, &tensor("floats", 1, &[3], &bytes(4, &[3; 12]))),
        bytes(5, &packed),
        bytes(5, &tensor("half", 16, &[3], &bytes(9, &[5; 6]))),
        bytes(5, &tensor("nibbles", 22, &[3], &bytes(9, &[7; 2]))),
        bytes(5, &tensor("pairs", 14, &[1], &bytes(9, &[8; 8]))),
        bytes(5, &tensor("empty", 1, &[0], b"")),
        bytes(5, &tensor("spread", 7, &[2], &bytes(7, &[1, 2]))),
        bytes(5, &tensor("far", 1, &[2], &external)),
        bytes(5, &tensor("unsigned", 2, &[1], &bytes(9, &[9]))),
    ])
}

#[test]
fn onnx_has_its_initializers_and_the_constants_of_its_nodes() {
    let bytes = onnx_sample();
    let model = model(&bytes);
    let rows = rows_of(&model, &bytes);
    assert_eq!((model.format, rows.len()), ("onnx", 7));
    assert_eq!(rows[0], ("c.value".into(), "F16", vec![2, 1], vec![1; 4]));
    assert_eq!(rows[1], ("w".into(), "F32", vec![2, 3], vec![2; 24]));
    assert_eq!(rows[2], ("floats".into(), "F32", vec![3], vec![3; 12]));
    assert_eq!(rows[3], ("half".into(), "BF16", vec![3], vec![5; 6]));
    assert_eq!(rows[4], ("nibbles".into(), "other", vec![3], vec![7; 2]));
    assert_eq!(rows[5], ("pairs".into(), "F32", vec![1, 2], vec![8; 8]));
    assert_eq!(rows[6], ("unsigned".into(), "I8", vec![1], vec![9]));
}

#[test]
fn onnx_is_listed_with_exact_types_and_what_is_elsewhere() {
    let rows = listed(&onnx_sample());
    let of = |name: &str| rows.iter().find(|row| row.0 == name).map(|row| row.1.as_str());
    assert_eq!(
        (of("unsigned"), of("nibbles"), of("pairs"), of("empty")),
        (Some("U8"), Some("I4"), Some("C64"), Some("F32"))
    );
    // Wide numbers are listed, and are no weights.
    assert_eq!((of("if.value.inner"), of("packed")), (Some("I64"), Some("F64")));
    assert_eq!(of("far"), Some("its values are in another file"));
    assert_eq!(of("spread"), Some("its values are not stored one after another"));
    assert_eq!(rows.len(), 12);
}

#[test]
fn equal_names_of_onnx_get_numbers() {
    let twice = bytes(5, &tensor("w", 2, &[1], &bytes(9, &[1])));
    let file = model_of(&[twice.clone(), twice]);
    let names: Vec<String> = rows_of(&model(&file), &file).into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["w", "w (number 1)"]);
}

#[test]
fn false_onnx_files_are_defective_and_other_messages_are_opaque() {
    let of = |tensor: &[u8]| reason(&model_of(&[bytes(5, tensor)]));
    assert!(
        of(&tensor("w", 1, &[2, 3], &bytes(9, &[0; 23]))).contains("expected the bytes of F32 [2, 3] for tensor \"w\"")
    );
    let huge = [vec![1 << 3], vec![0xff; 9], vec![1]].concat();
    assert!(of(&[huge.clone(), huge, tensor("w", 1, &[], &bytes(9, &[0; 4]))].concat()).contains("found 4"));
    assert!(of(&tensor("w", 1, &[1; 40], &bytes(9, &[0; 4]))).contains("at most 32 dimensions"));
    assert!(of(b"\x4a\x7f").contains("found"));
    let deep = (0..20)
        .fold(bytes(5, &tensor("w", 2, &[1], &bytes(9, &[1]))), |graph, _| bytes(1, &node("n", &bytes(6, &graph))));
    // What is nested too deeply is not searched.
    assert_eq!(found(&model_of(&[deep])), Recognition::Opaque);
    let good = onnx_sample();
    assert_eq!(found(&good[..good.len() - 1]), Recognition::Opaque);
    assert_eq!(found(&[&good[..], &bytes(9, b"")].concat()), Recognition::Opaque);
    let graph = bytes(7, &bytes(5, &tensor("w", 2, &[1], &bytes(9, &[1]))));
    assert_eq!(found(&[number(1, 8), graph, bytes(2, b"no operators")].concat()), Recognition::Opaque);
    assert_eq!(found(&[number(1, 1), bytes(2, b"a saved model of TensorFlow")].concat()), Recognition::Opaque);
}
