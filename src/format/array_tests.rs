//! Listing of small files of every format.

use ::safetensors::Dtype as SafetensorsDtype;

use super::samples_tests::{npy_of, safetensors_of, tar_of, torch_sample, zip_of};
use super::*;

/// The listing of the bytes, and the listed arrays by name.
fn listed(bytes: &[u8]) -> (ArrayListing, Vec<ListedArray>) {
    let mut all = Vec::new();
    let listing = list_arrays(&bytes, bytes.len() as u64, &mut |array| all.push(array)).unwrap();
    all.sort_by(|one, other| one.name().cmp(other.name()));
    (listing, all)
}

fn of<'a>(all: &'a [ListedArray], name: &str) -> &'a Array {
    match all.iter().find(|array| array.name() == name) {
        Some(ListedArray::Array(array)) => array,
        other => panic!("{name}: {other:?} of {all:?}"),
    }
}

fn reason<'a>(all: &'a [ListedArray], name: &str) -> &'a str {
    match all.iter().find(|array| array.name() == name) {
        Some(ListedArray::Unreadable { reason, .. }) => reason,
        other => panic!("{name}: {other:?} of {all:?}"),
    }
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A number of any size.
fn number(value: i64) -> Vec<u8> {
    [&[0x8a, 8][..], &value.to_le_bytes()].concat()
}

fn tuple(values: &[i64]) -> Vec<u8> {
    [b"(".to_vec(), values.iter().flat_map(|value| number(*value)).collect(), b"t".to_vec()].concat()
}

/// The opcodes of the identity of a storage.
fn storage(class: &str, key: &str, count: i64) -> Vec<u8> {
    let class = format!("ctorch\n{class}\n").into_bytes();
    [b"(".to_vec(), text("storage"), class, text(key), text("cpu"), number(count), b"tQ".to_vec()].concat()
}

/// The opcodes of a tensor: its storage, the first value, sizes, strides, and what follows them.
fn tensor(storage: &[u8], offset: i64, sizes: &[i64], strides: &[i64], more: &[u8]) -> Vec<u8> {
    let begin = b"ctorch._utils\n_rebuild_tensor_v2\n(";
    let rest = [b"\x89ccollections\nOrderedDict\n)R", more, b"tR"].concat();
    [&begin[..], storage, &number(offset), &tuple(sizes), &tuple(strides), &rest].concat()
}

/// An archive of a dictionary and storages.
fn torch_of(entries: &[(&str, Vec<u8>)], storages: &[(&str, &[u8])]) -> Vec<u8> {
    let entries: Vec<u8> = entries.iter().flat_map(|(name, value)| [text(name), value.clone()].concat()).collect();
    let pickle = [b"\x80\x02}(", entries.as_slice(), b"u."].concat();
    let names: Vec<String> = storages.iter().map(|(key, _)| format!("m/data/{key}")).collect();
    let mut members: Vec<(&str, &[u8], u16)> = vec![("m/data.pkl", &pickle, 0)];
    members.extend(names.iter().zip(storages).map(|(name, (_, bytes))| (name.as_str(), *bytes, 0)));
    zip_of(&members, false)
}

#[test]
fn numpy_arrays_have_their_own_shape_and_type() {
    let (_, all) = listed(&npy_of("'<f4'", true, "(2, 3, 4)", &[1; 96]));
    let array = of(&all, "array");
    assert_eq!((&*array.shape, array.strides.as_deref()), (&[2, 3, 4][..], Some(&[1, 2, 6][..])));
    assert!(array.is_column_major());
    for (descr, name, shape, numpy, safetensors) in [
        ("<c8", "C64", "(3,)", Some("<c8"), Some(SafetensorsDtype::C64)),
        ("<c16", "C128", "(3,)", Some("<c16"), None),
        ("|u1", "U8", "(3,)", Some("|u1"), Some(SafetensorsDtype::U8)),
        ("<b1", "BOOL", "(3,)", Some("|b1"), Some(SafetensorsDtype::BOOL)),
        (">f4", ">f4", "(3,)", Some(">f4"), None),
        ("<M8[ns]", "<M8[ns]", "(3,)", Some("<M8[ns]"), None),
        ("<U5", "<U5", "(3,)", Some("<U5"), None),
    ] {
        let (_, all) = listed(&npy_of(&format!("'{descr}'"), true, shape, &[1; 60]));
        let array = of(&all, "array");
        assert_eq!(
            (&*array.value_type.name, array.value_type.numpy.as_deref(), array.value_type.safetensors),
            (name, numpy, safetensors)
        );
        assert_eq!((&*array.shape, array.strides.as_deref()), (&[3][..], None), "{descr}");
    }
    let (_, all) = listed(&npy_of("\"<f4', 'x': 'y\"", false, "(1,)", &[0; 4]));
    assert_eq!(of(&all, "array").value_type.numpy, None);
    let (listing, all) = listed(&npy_of("'|O'", false, "(1,)", b"pickle"));
    assert_eq!(
        (listing, reason(&all, "array")),
        (ArrayListing::Arrays { format: "npy" }, "it holds Python objects or records")
    );
}

#[test]
fn compressed_members_of_npz_are_listed_as_unreadable() {
    let one = npy_of("'<f8'", false, "(2,)", &[1; 16]);
    let (listing, all) = listed(&zip_of(&[("one.npy", &one, 0), ("packed.npy", &one, 8), ("a.txt", b"x", 0)], false));
    assert_eq!((listing, all.len()), (ArrayListing::Arrays { format: "npz" }, 2));
    assert_eq!(of(&all, "one").len, 16);
    assert!(reason(&all, "packed").contains("compressed"));
    assert_eq!(listed(&zip_of(&[("a.txt", b"x", 0)], false)).0, ArrayListing::Opaque);
}

#[test]
fn safetensors_are_listed_one_by_one_and_checked_like_stored_tensors() {
    let header = r#"{"c":{"dtype":"C64","shape":[2],"data_offsets":[0,16]},"none":{"dtype":"I16","shape":[0,3],
        "data_offsets":[16,16]},"odd":{"dtype":"X9","shape":[3],"data_offsets":[16,20]}}"#;
    let (listing, all) = listed(&safetensors_of(header, &[0; 20]));
    assert_eq!(listing, ArrayListing::Arrays { format: "safetensors" });
    assert_eq!((&*of(&all, "c").value_type.name, &*of(&all, "c").shape), ("C64", &[2][..]));
    assert_eq!((&*of(&all, "none").shape, of(&all, "none").len), (&[0, 3][..], 0));
    assert_eq!((&*of(&all, "odd").value_type.name, of(&all, "odd").value_type.safetensors), ("X9", None));
    for (wrong, phrase) in [
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}}"#,
            "two",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}"#,
            "byte",
        ),
        (r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[18,22]}}"#, "within"),
        (r#"{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,4]}}"#, "the bytes of U8"),
        (r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},}"#, "a header of tensors"),
    ] {
        match listed(&safetensors_of(wrong, &[0; 20])).0 {
            ArrayListing::Defective { reason, .. } => assert!(reason.contains(phrase), "{reason}"),
            other => panic!("{wrong}: {other:?}"),
        }
    }
}

#[test]
fn views_of_torch_are_listed_with_shape_strides_and_range() {
    let floats = storage("FloatStorage", "0", 24);
    let entries = [
        ("whole", tensor(&floats, 0, &[4, 6], &[6, 1], b"")),
        ("rows", tensor(&floats, 6, &[2, 6], &[6, 1], b"")),
        ("transposed", tensor(&floats, 0, &[6, 4], &[1, 6], b"")),
        ("column", tensor(&floats, 2, &[4], &[6], b"")),
        ("none", tensor(&storage("FloatStorage", "1", 0), 0, &[0, 5], &[5, 1], b"")),
        ("beyond", tensor(&floats, 1, &[4, 6], &[6, 1], b"")),
        ("before", tensor(&floats, -1, &[4], &[1], b"")),
        ("negative", tensor(&floats, 0, &[4, 6], &[-6, -1], b"")),
        ("unnumbered", {
            let endless = [&[0x8a, 9][..], &[0; 9]].concat();
            let begin = [&b"ctorch._utils\n_rebuild_tensor_v2\n("[..], &floats, &endless].concat();
            [begin, tuple(&[24]), tuple(&[1]), b"tR".to_vec()].concat()
        }),
        ("repeated", tensor(&floats, 0, &[1 << 40, 1 << 20], &[0, 0], b"")),
        ("conjugate", tensor(&floats, 0, &[4], &[1], &[&b"}"[..], &text("conj"), b"\x88s"].concat())),
        ("gone", tensor(&storage("FloatStorage", "9", 24), 0, &[24], &[1], b"")),
        ("wide", tensor(&storage("FloatStorage", "2", 24), 0, &[24], &[1], b"")),
    ];
    let data: Vec<u8> = (0..96).collect();
    let bytes = torch_of(&entries, &[("0", &data), ("1", b""), ("2", &[0; 8]), ("3", &[7; 5])]);
    let (listing, all) = listed(&bytes);
    assert_eq!((listing, all.len()), (ArrayListing::Arrays { format: "torch" }, entries.len() + 1));
    let start = of(&all, "whole").offset;
    assert_eq!(bytes[start as usize..start as usize + 96], data);
    for (name, shape, strides, offset, len) in [
        ("whole", &[4, 6][..], None, 0, 96),
        ("rows", &[2, 6], None, 24, 48),
        ("transposed", &[6, 4], Some(&[1, 6][..]), 0, 96),
        ("column", &[4], Some(&[6]), 8, 16),
    ] {
        let array = of(&all, name);
        assert_eq!((&*array.shape, array.strides.as_deref()), (shape, strides), "{name}");
        assert_eq!((array.offset - start, array.len, &*array.value_type.name), (offset, len, "F32"), "{name}");
    }
    assert!(of(&all, "transposed").is_column_major());
    assert_eq!((&*of(&all, "none").shape, of(&all, "none").len), (&[0, 5][..], 0));
    assert_eq!((&*of(&all, "3").value_type.name, of(&all, "3").len), ("other", 5));
    for (name, phrase) in [
        ("beyond", "beyond its storage of 24 values"),
        ("before", "exceed all bounds"),
        ("negative", "not numbers"),
        ("unnumbered", "not numbers"),
        ("repeated", "too many"),
        ("conjugate", "conjugation"),
        ("gone", "missing"),
        ("wide", "24 values of 4 bytes"),
    ] {
        assert!(reason(&all, name).contains(phrase), "{name}: {}", reason(&all, name));
    }
}

#[test]
fn tensors_of_torch_have_all_their_names_within_bounds() {
    let shared = [&tensor(&storage("ByteStorage", "0", 8), 0, &[8], &[1], b"")[..], b"q\x07"].concat();
    let (_, all) = listed(&torch_of(&[("a", shared.clone()), ("b", b"h\x07".to_vec())], &[("0", &[200; 8])]));
    let names: Vec<&str> = all.iter().map(ListedArray::name).collect();
    assert_eq!((names, &*of(&all, "a").value_type.name), (vec!["a", "b"], "U8"));
    let (_, all) = listed(&torch_sample());
    assert_eq!((&*of(&all, "model.w").shape, &*of(&all, "model.tied").shape), (&[3, 2][..], &[2, 3][..]));

    // Each list holds the list before twice: more names than fit in memory.
    let mut nested = [b"](".to_vec(), shared, b"e".to_vec()].concat();
    for slot in 8..48u8 {
        nested = [&b"]("[..], &nested, &[b'q', slot, b'h', slot, b'h', slot], b"e"].concat();
    }
    let (listing, all) = listed(&torch_of(&[("x", nested)], &[("0", &[200; 8])]));
    assert!(
        listing == ArrayListing::Arrays { format: "torch" } && all.len() > 1 && all.len() < 1 << 19,
        "{}",
        all.len()
    );
}

#[test]
fn types_of_torch_have_their_signedness() {
    let of_class = |class: &str, count| tensor(&storage(class, "0", count), 0, &[count], &[1], b"");
    for (class, count, name, safetensors) in [
        ("ByteStorage", 8, "U8", Some(SafetensorsDtype::U8)),
        ("CharStorage", 8, "I8", Some(SafetensorsDtype::I8)),
        ("BoolStorage", 8, "BOOL", Some(SafetensorsDtype::BOOL)),
        ("QUInt8Storage", 8, "QUINT8", Some(SafetensorsDtype::U8)),
        ("ComplexFloatStorage", 1, "C64", Some(SafetensorsDtype::C64)),
        ("HalfStorage", 4, "F16", Some(SafetensorsDtype::F16)),
    ] {
        let (_, all) = listed(&torch_of(&[("w", of_class(class, count))], &[("0", &[1; 8])]));
        let value_type = &of(&all, "w").value_type;
        assert_eq!(
            (&*value_type.name, value_type.safetensors, value_type.remark.is_some()),
            (name, safetensors, class.starts_with('Q'))
        );
    }
    for (dtype, name) in [("uint16", "U16"), ("float8_e5m2", "F8_E5M2"), ("bool", "BOOL")] {
        let more = format!("ctorch\n{dtype}\n").into_bytes();
        let count = if dtype == "uint16" { 4 } else { 8 };
        let entry = tensor(&storage("UntypedStorage", "0", 8), 0, &[count], &[1], &more);
        let (_, all) = listed(&torch_of(&[("w", entry)], &[("0", &[1; 8])]));
        assert_eq!((&*of(&all, "w").value_type.name, of(&all, "w").len), (name, 8));
    }
    let entry = tensor(&storage("UntypedStorage", "0", 8), 0, &[8], &[1], b"ctorch\nint1\n");
    let (_, all) = listed(&torch_of(&[("w", entry)], &[("0", &[1; 8])]));
    assert!(reason(&all, "w").contains("torch.int1"));
}

#[test]
fn arrays_of_a_tar_are_named_by_the_paths_of_their_members() {
    let large = npy_of("'<i2'", true, "(200, 200)", &[3; 80_000]);
    let broken = npy_of("'<i2'", true, "(900, 900)", &[3; 80_000]);
    let (listing, all) =
        listed(&tar_of(&[(b'0', "m/x.npy", &large), (b'0', "y.npy", &broken), (b'0', "m/x.npy", &large)]));
    assert_eq!((listing, all.len()), (ArrayListing::Arrays { format: "tar" }, 2));
    let array = of(&all, "m/x.npy:array");
    assert_eq!((&*array.shape, array.offset), (&[200, 200][..], 512 + 128));
    assert!(all[1].name().starts_with("m/x.npy@") && array.is_column_major());
}
