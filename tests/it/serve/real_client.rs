//! The real client of the Hub, where `FHRD_TEST_PYTHON` names a Python with `huggingface_hub`, and the libraries above it,
//! where `FHRD_TEST_CLASSES` names one with `transformers` and `datasets`.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use super::fixture::{Server, scene};
use crate::independent::python;
use crate::program::Place;

/// Bytes of a file that is a hole but for its ends.
const BIG: u64 = 5_000_000_000;
const TOKEN: &str = "hf_0123456789abcdef0123456789abcdef012345";

#[test]
fn the_client_of_the_hub_gets_every_byte() {
    let Some(python) = python() else { return };
    let mut probe = Command::new(&python);
    if !probe.args(["-c", "import huggingface_hub"]).stderr(Stdio::null()).status().unwrap().success() {
        eprintln!("NOT RUN: the Python of FHRD_TEST_PYTHON has no huggingface_hub");
        return;
    }
    let place = scene();
    for number in 0..300 {
        crate::input::write(place.path(&format!("more/many/{number:03}.txt")), format!("file {number}").as_bytes());
    }
    crate::input::write(place.path("more/big/big.bin"), b"head");
    let big = File::options().write(true).open(place.path("more/big/big.bin")).unwrap();
    big.write_all_at(b"tail", BIG - 4).unwrap();
    place.run(&["backup", "more"]);
    place.run(&["publish", "latest:more/many", "me/many"]);
    place.run(&["publish", "latest:more/big", "me/big"]);
    // The client sees no links that lead out.
    for name in ["out", "absolute", "loop", "directory"] {
        std::fs::remove_file(place.path("hub/model").join(name)).unwrap();
    }
    let tokens = place.path("tokens");
    std::fs::write(&tokens, format!("{TOKEN} read me/*\n")).unwrap();
    let server = Server::start(&place, &["--token-file", tokens.to_str().unwrap()]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/serve/hub_client.py");
    let directories = ["hub/model", "hub/dataset", "more/many", "more/big"].map(|name| place.path(name));
    let mut command = Command::new(&python);
    command.args(["-B", script, &format!("http://{}", server.address)]).args(directories);
    command.env("HF_TOKEN", TOKEN).env("HF_HUB_DISABLE_XET", "1").env("TMPDIR", place.path(""));
    let output = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{errors}");
    assert!(out.ends_with("big_file\n"), "{out}");
    assert!(server.memory_max() < 700 << 20, "{} bytes", server.memory_max());
    server.stop();
}

#[test]
fn classes_of_transformers_and_of_datasets_load_what_is_served() {
    let Some(python) = std::env::var_os("FHRD_TEST_CLASSES") else {
        eprintln!("NOT RUN: FHRD_TEST_CLASSES names no Python with transformers and datasets");
        return;
    };
    let place = Place::with_repository();
    let run = |arguments: &[&OsStr]| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/serve/hub_classes.py");
        let mut command = Command::new(&python);
        command.args(["-B", script]).args(arguments).env("TMPDIR", place.path(""));
        let output = command.output().unwrap();
        let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}\n{errors}");
        out.into_owned()
    };
    let directory = place.path("made");
    std::fs::create_dir(&directory).unwrap();
    run(&["make".as_ref(), directory.as_os_str()]);
    place.run(&["backup", "made"]);
    place.run(&["publish", "latest:made/classes", "me/classes"]);
    place.run(&["publish", "latest:made/tables", "me/tables", "--type", "dataset"]);
    let server = Server::start(&place, &[]);
    let out = run(&["load".as_ref(), directory.as_os_str(), format!("http://{}", server.address).as_ref()]);
    assert!(out.ends_with("absent\n"), "{out}");
    eprint!("{out}");
    server.stop();
}
