//! Pages in a browser, where `FHRD_TEST_BROWSER` names a Python with `selenium`, and Debian's Chromium is installed.
//! Screenshots go into `FHRD_TEST_SCREENSHOTS`, if it names a directory.

use std::process::Command;

use aws_lc_rs::digest::{SHA256, digest};

use super::fixture::{Server, large, token_file};
use super::pages::hostile_scene;
use crate::cli::model_fixture::Weights;
use crate::program::Place;

const TOKEN: &str = "hf_0123456789abcdef0123456789abcdef012345";

/// Everything that pages can show, with names that are hostile.
fn scene() -> Place {
    let place = hostile_scene();
    let write = |name: &str, bytes: &[u8]| crate::input::write(place.path(name), bytes);
    let base = Weights::base();
    write("m/base/model.safetensors", &base.bf16());
    write("m/tuned/model.safetensors", &base.tuned(2).bf16());
    place.run(&["backup", "m", "--host", "evil\"><script>\u{202e}\u{7}", "--tag", "nightly"]);
    place.run(&["publish", "latest:m/tuned", "me/tuned"]);
    for number in 0..12 {
        place.run(&["publish", "latest:m/base", &format!("me/copy-{number}")]);
    }
    for (step, loss) in [("10", "0.9"), ("20", "0.25"), ("30", "0.5"), ("40", "0.3")] {
        write("run/weights", step.as_bytes());
        place.run(&["backup", "run", "--run", "tune", "--step", step, "--metric", &format!("val={loss}")]);
    }
    place.run(&["check", "--read-data"]);
    place
}

#[test]
fn people_see_and_use_every_page() {
    let Some(python) = std::env::var_os("FHRD_TEST_BROWSER") else {
        eprintln!("NOT RUN: FHRD_TEST_BROWSER names no Python with selenium");
        return;
    };
    let place = scene();
    let file = token_file(&place, &format!("{TOKEN} read\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let sha256: String = digest(&SHA256, &large()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let own = |name: &str| {
        std::fs::create_dir(place.path(name)).unwrap();
        place.path(name)
    };
    let screenshots = std::env::var_os("FHRD_TEST_SCREENSHOTS").map_or_else(|| own("screenshots"), Into::into);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/serve/browser.py");
    let mut command = Command::new(python);
    command.args(["-B", script, &format!("http://{}", server.address), TOKEN]);
    command.arg(own("downloads")).arg(screenshots).arg(sha256).env("HOME", own("home"));
    let output = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{errors}");
    assert!(out.ends_with("logout\n"), "{out}");
    print!("{out}");
    server.stop();
}
