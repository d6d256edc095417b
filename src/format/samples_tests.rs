//! Small files of every format and their recognition.

use super::*;

/// Recognises bytes. Also checks that listed arrays end within the bytes, unless the listing is void.
pub(super) fn found(bytes: &[u8]) -> Recognition {
    let (mut end, len) = (0, bytes.len() as u64);
    let listing = list_arrays(&bytes, len, &mut |array| {
        if let ListedArray::Array(Array { offset, len, strides: None, .. }) = array {
            end = end.max(offset.checked_add(len).unwrap());
        }
    });
    assert!(end <= len || !matches!(listing.unwrap(), ArrayListing::Arrays { .. }), "{end} of {len}");
    recognise(&bytes, bytes.len() as u64).unwrap()
}

/// Recognises bytes as a model and checks the promises of a model.
pub(super) fn model(bytes: &[u8]) -> Recognised {
    assert!(may_be_model(&bytes[..bytes.len().min(HEAD_BYTES)]));
    match found(bytes) {
        Recognition::Model(model) => {
            promises(&model, bytes.len() as u64);
            model
        }
        other => panic!("{other:?}"),
    }
}

/// Checks that tensors are sorted, disjoint, within `len` bytes, not empty, and have unique names.
pub(super) fn promises(model: &Recognised, len: u64) {
    let mut end = 0;
    let mut names = std::collections::HashSet::new();
    for tensor in &model.tensors {
        assert!(tensor.len > 0 && tensor.offset >= end, "{tensor:?}");
        end = tensor.offset.checked_add(tensor.len).unwrap();
        assert!(end <= len && names.insert(&tensor.name), "{tensor:?}");
    }
}

/// Names of the listed arrays with the names of their types, and with the reason if they are unreadable.
pub(super) fn listed(bytes: &[u8]) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let listing = list_arrays(&bytes, bytes.len() as u64, &mut |array| {
        let name = array.name().to_string();
        rows.push(match array {
            ListedArray::Array(array) => (name, array.value_type.name.into_owned()),
            ListedArray::Unreadable { reason, .. } => (name, reason),
        });
    });
    assert!(matches!(listing.unwrap(), ArrayListing::Arrays { .. }));
    rows
}

/// Name, type, shape and bytes of each tensor.
pub(super) fn rows_of(model: &Recognised, bytes: &[u8]) -> Vec<(String, &'static str, Vec<u64>, Vec<u8>)> {
    let content = |tensor: &Tensor| bytes[tensor.offset as usize..(tensor.offset + tensor.len) as usize].to_vec();
    let row = |tensor: &Tensor| (tensor.name.clone(), tensor.dtype.name(), tensor.shape.clone(), content(tensor));
    model.tensors.iter().map(row).collect()
}

pub(super) fn safetensors_of(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

pub(super) fn safetensors_sample() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[3,2],"data_offsets":[3,15]},
        "odd":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"none":{"dtype":"F32","shape":[0,4],"data_offsets":[3,3]}}"#;
    safetensors_of(header, &(0..20).collect::<Vec<u8>>())
}

fn prefixed(version: u32, text: &str) -> Vec<u8> {
    let len = text.len() as u64;
    let count_bytes = if version == 1 { (len as u32).to_le_bytes().to_vec() } else { len.to_le_bytes().to_vec() };
    [count_bytes, text.as_bytes().to_vec()].concat()
}

/// A GGUF file. A tensor has a name, dimensions, a type number and bytes.
pub(super) fn gguf_of(version: u32, alignment: u32, tensors: &[(&str, &[u64], u32, &[u8])]) -> Vec<u8> {
    let count_bytes =
        |value: u64| if version == 1 { (value as u32).to_le_bytes().to_vec() } else { value.to_le_bytes().to_vec() };
    let mut out =
        [b"GGUF".to_vec(), version.to_le_bytes().to_vec(), count_bytes(tensors.len() as u64), count_bytes(3)].concat();
    out.extend([prefixed(version, "general.name"), 8u32.to_le_bytes().to_vec(), prefixed(version, "small")].concat());
    out.extend([prefixed(version, "tokens"), 9u32.to_le_bytes().to_vec(), 8u32.to_le_bytes().to_vec()].concat());
    out.extend([count_bytes(2), prefixed(version, "one"), prefixed(version, "")].concat());
    let key = prefixed(version, "general.alignment");
    out.extend([key, 4u32.to_le_bytes().to_vec(), alignment.to_le_bytes().to_vec()].concat());
    let mut data = Vec::new();
    for (name, dimensions, number, bytes) in tensors {
        data.resize(data.len().next_multiple_of(alignment as usize), 0xee);
        out.extend(prefixed(version, name));
        out.extend((dimensions.len() as u32).to_le_bytes());
        dimensions.iter().for_each(|size| out.extend(count_bytes(*size)));
        out.extend(number.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(*bytes);
    }
    out.resize(out.len().next_multiple_of(alignment as usize), 0xee);
    [out, data].concat()
}

pub(super) fn gguf_sample() -> Vec<u8> {
    gguf_of(3, 64, &[("a", &[3, 2], 0, &[1; 24]), ("q", &[64, 2], 8, &[2; 136]), ("new", &[5], 77, &[3; 10])])
}

pub(super) fn npy_of(descr: &str, is_fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if is_fortran { "True" } else { "False" };
    let text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
    let text = format!("{text:<117}\n");
    [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), data].concat()
}

/// A zip archive. A member has a name, bytes and a compression method.
pub(super) fn zip_of(members: &[(&str, &[u8], u16)], is_wide: bool) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes, method) in members {
        let at = out.len() as u64;
        let padding = (at as usize + 30 + name.len() + 4).next_multiple_of(64) - (at as usize + 30 + name.len() + 4);
        let sizes = [(bytes.len() as u32).to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat();
        let name_len = (name.len() as u16).to_le_bytes();
        out.extend([b"PK\x03\x04\0\0\0\0", &method.to_le_bytes()[..], &[0; 8], &sizes, &name_len].concat());
        out.extend([&(padding as u16 + 4).to_le_bytes(), name.as_bytes(), b"FB"].concat());
        out.extend([&(padding as u16).to_le_bytes()[..], &vec![b'Z'; padding], bytes].concat());
        let wide = [bytes.len() as u64, bytes.len() as u64, at].map(u64::to_le_bytes).concat();
        let extra = if is_wide { [b"\x99\x99\x02\x00xx\x01\x00\x18\x00".to_vec(), wide].concat() } else { Vec::new() };
        let (sizes, at) = if is_wide { (vec![0xff; 8], [0xff; 4]) } else { (sizes, (at as u32).to_le_bytes()) };
        directory.extend([b"PK\x01\x02\0\0\0\0\0\0", &method.to_le_bytes()[..], &[0; 8], &sizes, &name_len].concat());
        directory.extend([&(extra.len() as u16).to_le_bytes()[..], &[0; 10], &at, name.as_bytes(), &extra].concat());
    }
    let (count, len, at) = (members.len() as u64, directory.len() as u64, out.len() as u64);
    out.extend(directory);
    let end = out.len() as u64;
    if is_wide {
        out.extend([b"PK\x06\x06", &44u64.to_le_bytes()[..], &[0; 12]].concat());
        out.extend([count, count, len, at].map(u64::to_le_bytes).concat());
        out.extend([b"PK\x06\x07\0\0\0\0", &end.to_le_bytes()[..], &1u32.to_le_bytes()].concat());
    }
    let counts = if is_wide { [0xff; 4] } else { [count as u8, 0, count as u8, 0] };
    let location =
        if is_wide { vec![0xff; 8] } else { [(len as u32).to_le_bytes(), (at as u32).to_le_bytes()].concat() };
    out.extend([b"PK\x05\x06\0\0\0\0", &counts[..], &location, &[3, 0], b"PK\x05"].concat());
    out
}

/// The opcodes of a named tensor in a state dictionary.
fn pickled(name: &str, class: &str, key: &str, count: u8, shape: (u8, u8)) -> Vec<u8> {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let mut out = [text(name), b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(), text("storage")].concat();
    out.extend([format!("ctorch\n{class}\n").into_bytes(), text(key), text("cpu"), vec![b'K', count]].concat());
    out.extend(b"tQK\x00");
    out.extend([b'K', shape.0, b'K', shape.1, 0x86, b'K', shape.1, b'K', 1, 0x86, 0x89]);
    out.extend(b"ccollections\nOrderedDict\n)RtR");
    out
}

pub(super) fn torch_pickle() -> Vec<u8> {
    let tensors = [
        pickled("w", "BFloat16Storage", "0", 6, (3, 2)),
        pickled("tied", "BFloat16Storage", "0", 6, (2, 3)),
        pickled("part", "LongStorage", "1", 4, (1, 2)),
    ];
    let state = [&b"ccollections\nOrderedDict\n)Rq\x01("[..], &tensors.concat(), b"u"].concat();
    [b"\x80\x02}q\x00(X\x05\0\0\0model", &state[..], b"X\x04\0\0\0stepK\x07u."].concat()
}

pub(super) fn torch_sample() -> Vec<u8> {
    let (pickle, inner) = (torch_pickle(), zip_of(&[("x.npy", b"inner", 0)], false));
    let members: &[(&str, &[u8], u16)] = &[
        ("m/data.pkl", &pickle, 0),
        ("m/byteorder", b"little", 0),
        ("m/data/0", &[9; 12], 0),
        ("m/data/1", &[8; 32], 0),
        ("m/data/2", &inner, 0),
        ("m/data/3", &[7; 5], 8),
        ("m/data/4", b"", 0),
        ("m/version", b"3\n", 0),
    ];
    zip_of(members, false)
}

/// Archives of torch, one after another: a state dictionary, an archive without tensors, and a wide archive.
pub(super) fn distcp_sample() -> Vec<u8> {
    let state = torch_pickle();
    let members: &[(&str, &[u8], u16)] =
        &[("archive/data.pkl", &state, 0), ("archive/data/0", &[6; 12], 0), ("archive/data/1", &[5; 32], 0)];
    let number: &[(&str, &[u8], u16)] = &[("archive/data.pkl", b"\x80\x02K\x07.", 0)];
    [
        without_comment(zip_of(members, false)),
        without_comment(zip_of(number, true)),
        without_comment(zip_of(members, true)),
    ]
    .concat()
}

/// Removes the comment of an archive of [`zip_of`].
fn without_comment(mut archive: Vec<u8>) -> Vec<u8> {
    archive.truncate(archive.len() - 3);
    let at = archive.len() - 2;
    archive[at] = 0;
    archive
}

/// A tar archive. A member has a type, a path and bytes.
pub(super) fn tar_of(members: &[(u8, &str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, path, bytes) in members {
        let mut header = [0u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        header[156] = *kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(header);
        out.extend(*bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    [out, vec![0; 1024]].concat()
}

pub(super) fn tar_sample() -> Vec<u8> {
    let large = safetensors_of(r#"{"w":{"dtype":"F32","shape":[20000],"data_offsets":[0,80000]}}"#, &[5; 80_000]);
    let small = safetensors_sample();
    let members: &[(u8, &str, &[u8])] = &[
        (b'0', "readme", b"text"),
        (b'0', "small.safetensors", &small),
        (b'0', "m/large", &large),
        (b'L', "@long", b"a/long/path\0"),
        (b'0', "a/long/pa", &large),
        (b'x', "@pax", b"17 path=b/pax/it\n"),
        (b'0', "cut", &large),
        (b'0', "zeros", &[0; 70_000]),
        (b'0', "m/large", &large),
    ];
    tar_of(members)
}

#[test]
fn safetensors_with_gaps_trailing_bytes_and_odd_lengths_are_recognised() {
    let bytes = safetensors_sample();
    let start = bytes.len() - 20;
    let model = model(&bytes);
    assert_eq!((model.format, model.metadata.get("format").map(String::as_str)), ("safetensors", Some("pt")));
    let rows = rows_of(&model, &bytes);
    assert_eq!(rows[0], ("odd".into(), "I8", vec![3], vec![0, 1, 2]));
    assert_eq!(rows[1], ("w".into(), "BF16", vec![3, 2], (3..15).collect()));
    assert_eq!((rows.len(), model.tensors[0].offset), (2, start as u64));
}

#[test]
fn safetensors_may_have_a_header_as_long_as_the_reference_allows() {
    let header = r#"{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
    let padded = |len: usize| safetensors_of(&[header, &" ".repeat(len - header.len())].concat(), &[1, 2, 3]);
    let longest = padded(100_000_000);
    assert_eq!(rows_of(&model(&longest), &longest)[0], ("w".into(), "I8", vec![3], vec![1, 2, 3]));
    match found(&padded(100_000_001)) {
        Recognition::Defective { reason, .. } => assert!(reason.contains("100000001"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn safetensors_of_the_reference_are_recognised_with_the_same_ranges() {
    use ::safetensors::SafeTensors;
    use ::safetensors::tensor::{Dtype as SafetensorsDtype, TensorView};
    let data: Vec<u8> = (0..48).collect();
    let view = |kind, shape: &[usize], range: std::ops::Range<usize>| {
        TensorView::new(kind, shape.to_vec(), &data[range]).unwrap()
    };
    let views = [
        ("a", view(SafetensorsDtype::F64, &[2], 0..16)),
        ("b", view(SafetensorsDtype::F4, &[6], 16..19)),
        ("c", view(SafetensorsDtype::C64, &[1, 2], 19..35)),
        ("d", view(SafetensorsDtype::F8_E4M3, &[13], 35..48)),
        ("e", view(SafetensorsDtype::I16, &[0], 0..0)),
    ];
    let bytes = ::safetensors::serialize(views, None).unwrap();
    let model = model(&bytes);
    let rows = rows_of(&model, &bytes);
    let row = |name: &str| rows.iter().find(|row| row.0 == name).unwrap().clone();
    let (header_len, reference) = SafeTensors::read_metadata(&bytes).unwrap();
    for tensor in &model.tensors {
        let range = reference.info(&tensor.name).unwrap().data_offsets;
        assert_eq!(tensor.offset, (8 + header_len + range.0) as u64, "{tensor:?}");
        assert_eq!(tensor.len, (range.1 - range.0) as u64, "{tensor:?}");
    }
    assert_eq!(row("a"), ("a".into(), "F64", vec![2], data[..16].to_vec()));
    assert_eq!(row("b"), ("b".into(), "other", vec![6], data[16..19].to_vec()));
    assert_eq!(row("c"), ("c".into(), "F32", vec![1, 2, 2], data[19..35].to_vec()));
    assert_eq!(row("d"), ("d".into(), "F8", vec![13], data[35..].to_vec()));
    assert_eq!(rows.len(), 4);
}

#[test]
fn gguf_values_are_located_by_the_alignment() {
    let bytes = gguf_sample();
    let three = model(&bytes);
    let rows = rows_of(&three, &bytes);
    assert_eq!(rows[0], ("a".into(), "F32", vec![2, 3], vec![1; 24]));
    assert_eq!(rows[1], ("q".into(), "Q8_0", vec![2, 64], vec![2; 136]));
    assert_eq!(rows[2], ("new".into(), "other", vec![5], vec![3; 10]));
    assert!(three.tensors.iter().all(|tensor| tensor.offset % 64 == 0));
    assert_eq!(three.metadata.get("general.name").map(String::as_str), Some("small"));
    for version in [1, 2] {
        let bytes = gguf_of(version, 32, &[("x", &[], 30, &[4; 2]), ("y", &[0, 9], 0, b""), ("z", &[2], 1, &[6; 4])]);
        let rows = rows_of(&model(&bytes), &bytes);
        assert_eq!(rows[0], ("x".into(), "BF16", vec![], vec![4; 2]));
        assert_eq!((rows[1].1, rows.len()), ("F16", 2));
    }
}

#[test]
fn gguf_of_a_big_endian_machine_is_located_and_its_values_are_no_numbers() {
    let mut bytes = [&b"GGUF"[..], &[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    for (name, number, offset) in [(b'a', 0u8, 0u8), (b'b', 24, 32)] {
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 1, name, 0, 0, 0, 1]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0, offset]);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend([[1; 32].as_slice(), &[2; 8]].concat());
    let rows = rows_of(&model(&bytes), &bytes);
    assert_eq!(rows[0], ("a".into(), "other", vec![8], vec![1; 32]));
    // One byte each has no order.
    assert_eq!(rows[1], ("b".into(), "I8", vec![8], vec![2; 8]));
}

#[test]
fn a_tensor_of_unknown_type_extends_to_the_next_tensor() {
    let bytes = gguf_of(3, 32, &[("u", &[7], 200, &[1; 40]), ("v", &[1], 0, &[2; 4])]);
    let rows = rows_of(&model(&bytes), &bytes);
    assert_eq!((rows[0].1, rows[0].3.len()), ("other", 64));
}

#[test]
fn npy_is_recognised_in_both_orders() {
    let bytes = npy_of("'<f4'", true, "(2, 3)", &[1; 24]);
    assert_eq!(rows_of(&model(&bytes), &bytes)[0], ("array".into(), "F32", vec![3, 2], vec![1; 24]));
    let bytes = npy_of("'<V2'", false, "(4,)", &[1; 8]);
    assert_eq!(rows_of(&model(&bytes), &bytes)[0], ("array".into(), "other", vec![4], vec![1; 8]));
    let bytes = npy_of("'<c8'", false, "()", &[1; 8]);
    assert_eq!(rows_of(&model(&bytes), &bytes)[0].2, [2]);
    assert_eq!(found(&npy_of("'|O'", false, "(1,)", b"pickle")), Recognition::Opaque);
    assert_eq!(found(&npy_of("[('x', '<f4')]", false, "(1,)", &[0; 4])), Recognition::Opaque);
}

#[test]
fn npz_has_its_uncompressed_arrays_only() {
    let (one, two) = (npy_of("'<f8'", false, "(2,)", &[1; 16]), npy_of("'|u1'", false, "(3,)", &[2; 3]));
    let members: &[(&str, &[u8], u16)] =
        &[("one.npy", &one, 0), ("deflated.npy", &one, 8), ("no.npy", b"text", 0), ("d/two.npy", &two, 0)];
    for is_wide in [false, true] {
        let bytes = zip_of(members, is_wide);
        let model = model(&bytes);
        let rows = rows_of(&model, &bytes);
        assert_eq!((model.format, rows.len()), ("npz", 2));
        assert_eq!(rows[0], ("one".into(), "F64", vec![2], vec![1; 16]));
        assert_eq!(rows[1], ("d/two".into(), "I8", vec![3], vec![2; 3]));
    }
    assert_eq!(found(&zip_of(&[("a.txt", b"x", 0)], false)), Recognition::Opaque);
    assert_eq!(found(&zip_of(&members[1..2], true)), Recognition::Opaque);
}

#[test]
fn a_torch_storage_has_the_name_of_its_first_tensor() {
    let bytes = torch_sample();
    let model = model(&bytes);
    let rows = rows_of(&model, &bytes);
    assert_eq!((model.format, rows.len()), ("torch", 3));
    assert_eq!(rows[0], ("model.w".into(), "BF16", vec![3, 2], vec![9; 12]));
    assert_eq!(rows[1], ("model.part".into(), "I64", vec![4], vec![8; 32]));
    assert_eq!((rows[2].0.as_str(), rows[2].1), ("2", "other"));
    assert!(model.tensors.iter().all(|tensor| tensor.offset % 64 == 0));
}

#[test]
fn torch_storages_are_found_without_a_readable_pickle() {
    let bytes = zip_of(&[("m/data.pkl", b"cos\nsystem\n(S'x'\ntR.", 0), ("m/data/0", &[9; 12], 0)], true);
    assert_eq!(rows_of(&model(&bytes), &bytes), [("0".into(), "other", vec![12], vec![9; 12])]);
}

#[test]
fn archives_of_torch_after_one_another_have_numbers() {
    let bytes = distcp_sample();
    let model = model(&bytes);
    let rows = rows_of(&model, &bytes);
    assert_eq!((model.format, rows.len()), ("distcp", 4));
    assert_eq!(rows[0], ("0:model.w".into(), "BF16", vec![3, 2], vec![6; 12]));
    assert_eq!(rows[1], ("0:model.part".into(), "I64", vec![4], vec![5; 32]));
    assert_eq!(rows[2], ("2:model.w".into(), "BF16", vec![3, 2], vec![6; 12]));
    assert_eq!(rows[3].0, "2:model.part");
    let mut listed = Vec::new();
    let listing = list_arrays(&bytes, bytes.len() as u64, &mut |array| listed.push(array.name().to_string())).unwrap();
    assert_eq!(listing, ArrayListing::Arrays { format: "distcp" });
    assert_eq!(listed, ["0:model.w", "0:model.tied", "0:model.part", "2:model.w", "2:model.tied", "2:model.part"]);
}

#[test]
fn a_single_archive_and_archives_of_other_content_are_not_distcp() {
    let single = without_comment(torch_sample());
    assert_eq!(model(&single).format, "torch");
    let text = without_comment(zip_of(&[("a.txt", b"x", 0)], false));
    assert_eq!(found(&[text.clone(), text].concat()), Recognition::Opaque);
}

#[test]
fn tensors_of_a_tar_are_prefixed_with_the_path() {
    let bytes = tar_sample();
    let model = model(&bytes);
    let names: Vec<&str> = model.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names[..3], ["m/large:w", "a/long/path:w", "b/pax/it:w"]);
    assert!(names.len() == 4 && names[3].starts_with("m/large@"));
    assert!(rows_of(&model, &bytes).iter().all(|row| row.3 == [5; 80_000]));
    assert_eq!(found(&tar_of(&[(b'0', "a", b"b")])), Recognition::Opaque);
    let outer = tar_of(&[(b'0', "inner.tar", &bytes)]);
    assert_eq!(found(&outer), Recognition::Opaque);
}
