//! Progress for programs.

use serde_json::Value;

use super::fixture::{Home, code, stderr};

/// The documents on standard error, without their outer key.
fn documents(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let output = home.run(&[arguments, &["--json", "--progress"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());
    let text = stderr(&output);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["progress"].clone());
    lines.inspect(|document| assert!(document.is_object(), "{text}")).collect()
}

#[test]
fn progress_is_printed_for_programs_on_request() {
    let home = Home::new();
    for number in 0..40 {
        home.write(&format!("src/{number}"), &vec![number; 5000]);
        std::os::unix::fs::symlink("0", home.path(&format!("src/link-{number}"))).unwrap();
    }
    let sparse = std::fs::File::create(home.path("src/sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    let last = documents(&home, &["backup", "src"]).pop().unwrap();
    assert_eq!((&last["files_done"], &last["problems"]), (&81.into(), &0.into()), "{last}");
    // Links count, holes do not: the total is what is done at the end.
    assert_eq!(last["files_total"], 81, "{last}");
    let total = last["bytes_total"].as_u64().unwrap();
    assert!((200_000..300_000).contains(&total) && last["bytes_done"].as_u64() <= Some(total), "{last}");
    assert!(last["file"].as_str().is_some_and(|path| path.starts_with("src/")), "{last}");
    let last = documents(&home, &["restore", "latest", "--target", "out"]).pop().unwrap();
    assert_eq!((&last["files_done"], &last["files_total"]), (&41.into(), &41.into()), "{last}");
    assert_eq!(
        (&last["bytes_done"], last["bytes_total"].as_u64() > Some(100 << 20)),
        (&last["bytes_total"], true),
        "{last}"
    );
    assert_eq!(stderr(&home.run(&["backup", "src", "--json"])), "");
    assert_eq!(code(&home.run(&["backup", "src", "--progress"])), 2);
}
