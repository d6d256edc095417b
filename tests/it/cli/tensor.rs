//! One tensor of a snapshot: what it is in its file is what comes out, whatever it is stored as.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::fixture::{Home, code, json as parsed, stderr, stdout};
use crate::weights::{Tensor, float32, safetensors, with_header, zip};

#[test]
fn options_of_a_tensor_are_refused_for_a_tree() {
    let home = Home::new();
    for more in [&["--target", "back"][..], &["--no-damaged"], &[]] {
        let output = home.run(&[&["restore", "latest", "--output", "x.npy"], more].concat());
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains("--output") || stderr(&output).contains("--tensor"), "{}", stderr(&output));
    }
    for more in [&["--target", "back"][..], &["--overwrite", "always"], &["--dry-run"], &["--verify"], &["--sync"]] {
        let output = home.run(&[&["restore", "latest", "--tensor", "t"], more].concat());
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(more[0]), "{}", stderr(&output));
    }
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|number| number as f32).collect()
}

fn restored(home: &Home, tensor: &str, output: &str, more: &[&str]) -> Value {
    parsed(&home.run(&[&["restore", "latest", "--json", "--tensor", tensor, "--output", output], more].concat()))
}

/// Entry and values of the tensor `name` of a safetensors file.
fn entry(home: &Home, file: &str, name: &str) -> (Value, Vec<u8>) {
    let file = home.read(file);
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
    (header[name].clone(), file[8 + len..].to_vec())
}

fn npy(descr: &str, order: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    let text = format!("{text:<117}\n");
    [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), bytes].concat()
}

/// The values of a matrix that lie column by column, row by row.
fn by_rows(columns: &[f32], rows: usize) -> Vec<f32> {
    let count = columns.len() / rows;
    (0..columns.len()).map(|at| columns[at % count * rows + at / count]).collect()
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn numbers(values: &[u16]) -> Vec<u8> {
    let all = values.iter().flat_map(|value| [&b"M"[..], &value.to_le_bytes()].concat()).collect();
    [b"(".to_vec(), all, b"t".to_vec()].concat()
}

/// The opcodes of a named tensor in the storage `key` of `count` values.
fn pickled(name: &str, class: &str, (key, count): (&str, u16), offset: u16, sizes: &[u16], strides: &[u16]) -> Vec<u8> {
    let class = format!("ctorch\n{class}\n").into_bytes();
    let begin = [text(name), b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(), text("storage"), class].concat();
    let count = [&b"M"[..], &count.to_le_bytes()].concat();
    let place = [text(key), text("cpu"), count, b"tQM".to_vec(), offset.to_le_bytes().to_vec()].concat();
    [begin, place, numbers(sizes), numbers(strides), b"\x89ccollections\nOrderedDict\n)RtR".to_vec()].concat()
}

fn torch(entries: &[Vec<u8>], storages: &[(&str, &[u8])]) -> Vec<u8> {
    let pickle = [&b"\x80\x02}("[..], &entries.concat(), b"u."].concat();
    let names: Vec<String> = storages.iter().map(|(key, _)| format!("m/data/{key}")).collect();
    let mut members: Vec<(&str, &[u8])> = vec![("m/data.pkl", &pickle)];
    members.extend(names.iter().zip(storages).map(|(name, (_, bytes))| (name.as_str(), *bytes)));
    zip(&members)
}

#[test]
fn arrays_in_fortran_order_come_out_as_they_are() {
    let home = Home::new();
    let columns = values(200 * 500);
    let inner = npy("<f4", "True", "(200, 500)", &float32(&columns));
    let cube = npy("<f4", "True", "(20, 50, 100)", &float32(&columns));
    home.write("m/f.npz", &zip(&[("f.npy", &inner), ("cube.npy", &cube)]));
    home.write("m/one.npy", &inner);
    home.backup(&["m"]);
    for (tensor, path) in [("f", "m/f.npz"), ("array", "m/one.npy")] {
        assert_eq!(restored(&home, tensor, "f.npy", &["--path", path])["shape"], json!([200, 500]));
        assert_eq!(home.read("f.npy"), inner);
        restored(&home, tensor, "f.safetensors", &["--path", path]);
        let (header, bytes) = entry(&home, "f.safetensors", tensor);
        assert_eq!(header, json!({"dtype": "F32", "shape": [200, 500], "data_offsets": [0, 400_000]}));
        assert!(bytes == float32(&by_rows(&columns, 200)), "{tensor}");
        for file in ["f.npy", "f.safetensors"] {
            std::fs::remove_file(home.path(file)).unwrap();
        }
    }
    restored(&home, "cube", "cube.safetensors", &[]);
    let (header, bytes) = entry(&home, "cube.safetensors", "cube");
    assert_eq!(header["shape"], json!([20, 50, 100]));
    // Index (1, 2, 3) is value 1 + 2 * 20 + 3 * 1000 in Fortran's order.
    assert_eq!(bytes[(5000 + 203) * 4..][..4], 3041f32.to_le_bytes());
}

#[test]
fn torch_tensors_come_out_of_the_storages_they_share() {
    let home = Home::new();
    let data = float32(&values(60_000));
    let storage = ("0", 60_000);
    let entries = [
        pickled("big", "FloatStorage", storage, 0, &[300, 200], &[200, 1]),
        pickled("view", "FloatStorage", storage, 20_000, &[100, 200], &[200, 1]),
        pickled("turned", "FloatStorage", storage, 0, &[200, 300], &[1, 200]),
        pickled("column", "FloatStorage", storage, 7, &[300], &[200]),
        pickled("none", "FloatStorage", ("1", 0), 0, &[0, 5], &[5, 1]),
        pickled("bytes", "ByteStorage", ("2", 40_000), 0, &[200, 200], &[200, 1]),
        pickled("flags", "BoolStorage", ("3", 4), 0, &[4], &[1]),
        pickled("quantised", "QUInt8Storage", ("4", 4), 0, &[4], &[1]),
        pickled("complex", "ComplexFloatStorage", ("5", 2), 0, &[2], &[1]),
        pickled("beyond", "FloatStorage", storage, 1, &[300, 200], &[200, 1]),
    ];
    let bytes: Vec<u8> = (0..40_000u32).map(|at| at as u8).collect();
    let file = torch(
        &entries,
        &[("0", &data), ("1", b""), ("2", &bytes), ("3", &[1, 0, 0, 1]), ("4", &[200; 4]), ("5", &[5; 16])],
    );
    home.write("m/x.pt", &file);
    home.backup(&["m"]);
    let expected = |at: &mut dyn Iterator<Item = usize>| float32(&at.map(|at| at as f32).collect::<Vec<_>>());
    for (tensor, dtype, shape, content) in [
        ("big", "F32", json!([300, 200]), data.clone()),
        ("view", "F32", json!([100, 200]), data[80_000..160_000].to_vec()),
        ("turned", "F32", json!([200, 300]), expected(&mut (0..60_000).map(|at| at % 300 * 200 + at / 300))),
        ("column", "F32", json!([300]), expected(&mut (0..300).map(|at| at * 200 + 7))),
        ("none", "F32", json!([0, 5]), Vec::new()),
        ("bytes", "U8", json!([200, 200]), bytes.clone()),
        ("flags", "BOOL", json!([4]), vec![1, 0, 0, 1]),
        ("quantised", "U8", json!([4]), vec![200; 4]),
        ("complex", "C64", json!([2]), vec![5; 16]),
    ] {
        let report = restored(&home, tensor, &format!("{tensor}.safetensors"), &[]);
        assert_eq!((&report["shape"], report["remark"].is_string()), (&shape, tensor == "quantised"), "{report}");
        let (header, written) = entry(&home, &format!("{tensor}.safetensors"), tensor);
        assert_eq!((&header["dtype"], &header["shape"]), (&dtype.into(), &shape), "{tensor}");
        assert!(written == content, "{tensor}");
    }
    assert_eq!(restored(&home, "turned", "turned.npy", &[])["written_as"], "<f4");
    assert!(home.read("turned.npy") == npy("<f4", "True", "(200, 300)", &data));
    assert_eq!(restored(&home, "complex", "complex.npy", &[])["written_as"], "<c8");
    let beyond = home.run(&["restore", "latest", "--tensor", "beyond"]);
    assert_eq!(code(&beyond), 1);
    assert!(
        stderr(&beyond).contains("cannot read the tensor `beyond` of m/x.pt: sizes [300, 200]"),
        "{}",
        stderr(&beyond)
    );
    assert!(home.path("beyond.safetensors").symlink_metadata().is_err());

    // Beside more values of one type the listed type is that of most bytes as the file calls it.
    let only = torch(&[pickled("w", "ByteStorage", ("0", 65_535), 0, &[65_535], &[1])], &[("0", &[200; 65_535])]);
    home.write("n/only.pt", &only);
    let tensor = |name: &str, dtype| Tensor::new(name, dtype, &[70_000], vec![1; 70_000]);
    home.write("n/u8.safetensors", &safetensors(&[tensor("w", "U8")]));
    home.write("n/bool.safetensors", &safetensors(&[tensor("w", "BOOL")]));
    home.write("n/f8.safetensors", &safetensors(&[tensor("w", "F8_E5M2")]));
    home.backup(&["n"]);
    let models = parsed(&home.run(&["models", "--json"]));
    let types: Vec<&str> = models.as_array().unwrap().iter().map(|model| model["dtype"].as_str().unwrap()).collect();
    assert_eq!(types, ["BOOL", "F8_E5M2", "U8"]);
    let distance = parsed(&home.run(&["distance", "n/u8.safetensors", "latest:n/bool.safetensors", "--json"]));
    assert_eq!((&distance["types"][0]["first"], &distance["types"][0]["second"]), (&"U8".into(), &"BOOL".into()));
}

/// A protocol buffer's field of bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len() as u32;
    let len = [len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8];
    [&[number << 3 | 2][..], &len, content].concat()
}

#[test]
fn a_tensor_of_onnx_is_listed_and_restored() {
    let home = Home::new();
    let wanted = values(20_000);
    let tensor = [b"\x08\x64\x08\xc8\x01\x10\x01".to_vec(), field(8, b"w"), field(9, &float32(&wanted))].concat();
    let graph = field(7, &field(5, &tensor));
    home.write("m/model.onnx", &[b"\x08\x08".to_vec(), graph, field(8, b"\x10\x11")].concat());
    home.backup(&["m"]);
    let models = parsed(&home.run(&["models", "--json"]));
    assert_eq!((&models[0]["format"], &models[0]["parameters"]), (&"onnx".into(), &20_000.into()));
    assert_eq!(restored(&home, "w", "w.safetensors", &[])["shape"], json!([100, 200]));
    assert_eq!(entry(&home, "w.safetensors", "w").1, float32(&wanted));
}

#[test]
fn why_there_is_no_tensor_is_told() {
    let home = Home::new();
    home.write("m/x.npy", &npy("<f4", "False", "(4,)", &[0; 16]));
    let packed = zip(&[("plain.npy", &npy("<f4", "False", "(4,)", &[0; 16])), ("w.npy", b"")]);
    // The second member claims to be compressed, in its directory entry.
    let at = packed.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    home.write("m/y.npz", &[&packed[..at + 10], &[8, 0], &packed[at + 12..]].concat());
    home.write("m/old.pt", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.");
    home.write("m/cut.safetensors", &with_header(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, &[0; 2]));
    let many: Vec<Tensor> =
        (0..9).map(|number| Tensor::new(&format!("tree.{number:03}.0.feature"), "U8", &[1], vec![0])).collect();
    home.write("m/many.safetensors", &safetensors(&many));
    let hostile = "a\0b\n\x1b[31m/../../x";
    home.write("nul.safetensors", &safetensors(&[Tensor::new(hostile, "U8", &[4], vec![0; 4])]));
    home.backup(&["m", "nul.safetensors"]);
    for (tensor, path, words) in [
        ("w", "m/x.npy", "no tensor `w` in 1 model file; its only tensor is `array`"),
        ("w", "m/y.npz", "cannot read the tensor `w` of m/y.npz: it is stored compressed"),
        ("w", "m/old.pt", "no model file was found"),
        ("a", "m/cut.safetensors", "m/cut.safetensors is a defective safetensors: expected tensor \"a\" within"),
        ("nope", "m/many.safetensors", "no tensor `nope` in 1 model file; none of the 9 names is similar"),
        ("nope", "m", "in 3 model files"),
        ("b", "nul.safetensors", "its only tensor is `a?b??[31m/../../x`"),
    ] {
        let output = home.run(&["restore", "latest", "--tensor", tensor, "--path", path]);
        assert_eq!((code(&output), stdout(&output)), (1, String::new()), "{tensor} {path}");
        assert!(stderr(&output).contains(words), "{tensor} {path}: {}", stderr(&output));
        let is_plain = |byte: &u8| *byte == b'\n' || (b' '..0x7f).contains(byte);
        assert!(output.stderr.iter().all(is_plain) && output.stderr.iter().filter(|byte| **byte == b'\n').count() == 1);
    }
    // Every error goes the same way.
    let output = home.run(&["ls", "latest", "x\x1b[31m\nwarning: y"]);
    assert!(
        stderr(&output).contains("x?[31m?warning: y") && stderr(&output).lines().count() == 1,
        "{}",
        stderr(&output)
    );
}

/// A restore in a process with at most so much data.
fn limited(home: &Home, kibibytes: u32, arguments: &[&str]) -> Output {
    let script = format!("ulimit -d {kibibytes} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_fhrd")]).args(arguments).current_dir(home.path(""));
    command.env("XDG_DATA_HOME", home.path("data")).env("XDG_CACHE_HOME", home.path("cache"));
    command.output().unwrap()
}

#[test]
fn a_list_of_many_tensors_takes_little_memory_and_each_chunk_is_counted_once() {
    let home = Home::new();
    let count = 300_000;
    let entry = |at: usize| {
        format!(r#""t{at:07}":{{"dtype":"BF16","shape":[8],"data_offsets":[{},{}]}}"#, 16 * at, 16 * at + 16)
    };
    let header = (0..count).map(entry).collect::<Vec<_>>().join(",");
    let data: Vec<u8> = (0..count * 16).map(|at| (at / 16 % 251) as u8).collect();
    home.write("m.safetensors", &with_header(&format!("{{{header}}}"), &data));
    home.backup(&["m.safetensors"]);
    let arguments = ["restore", "latest", "--json", "--tensor", "t0000500", "--output", "t.npy"];
    let refused = limited(&home, 200_000, &arguments);
    assert!(stderr(&refused).contains("numpy has no type for the BF16"), "{}", stderr(&refused));
    let report = parsed(&limited(&home, 200_000, &[&arguments[..6], &["t.safetensors"]].concat()));
    assert!(report["chunks_read"].as_u64() <= report["chunks"].as_u64(), "{report}");
    assert_eq!(super::tensor::entry(&home, "t.safetensors", "t0000500").1, [(500 % 251) as u8; 16]);
}
