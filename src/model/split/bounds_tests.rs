//! Bounds of splits, and what the order of files must not decide.

use std::collections::BTreeMap;
use std::path::Path;

use super::tests::{MODEL, ONE, family, split};
use super::*;

#[test]
fn names_are_bounded_and_the_order_of_files_decides_nothing() {
    let paths: Vec<String> = (0..40).map(|at| format!("/m/d{}/part-{}.pt", at % 4, at / 4)).collect();
    let split = |paths: &mut dyn Iterator<Item = &String>, names_max: usize| {
        let mut builder = SplitBuilder::new(vec!["/m".into()]);
        builder.names.models.names_max = names_max;
        paths.for_each(|path| builder.add(Path::new(path), MODEL, b""));
        builder.finish(4, &|_| None)
    };
    let by_file = |split: &WorkSplit| split.by_file.len();
    let one = |names_max| {
        let (forward, back) = (split(&mut paths.iter(), names_max), split(&mut paths.iter().rev(), names_max));
        assert_eq!((by_file(&forward), forward.origin()), (by_file(&back), back.origin()), "{names_max}");
        by_file(&forward)
    };
    // Ten names in each of four directories, each of which has an even share.
    assert_eq!((one(40), one(25), one(9)), (0, 0, 0));
    let large: Vec<String> = (0..30).map(|at| format!("/m/a/part-{at}.pt")).chain(["/m/b/x.pt".into()]).collect();
    let large = |names_max| by_file(&split(&mut large.iter(), names_max));
    assert_eq!((large(31), large(30), large(29)), (1, 1, 0));
}

#[test]
fn directories_are_bounded_and_the_order_of_files_decides_nothing() {
    let paths: Vec<String> = (0..30).map(|at| format!("/m/d{}/part-{}", at % 10, at / 10)).collect();
    let split = |paths: &mut dyn Iterator<Item = &String>| {
        let mut builder = SplitBuilder::new(Vec::new());
        // Of four paths of five bytes.
        builder.directory_bytes_max = 20;
        paths.for_each(|path| builder.add(Path::new(path), 1, b""));
        builder.finish(2, &|_| None)
    };
    let (forward, back) = (split(&mut paths.iter()), split(&mut paths.iter().rev()));
    assert_eq!((&forward.units, forward.uncounted), (&back.units, back.uncounted));
    assert_eq!((forward.units.len(), forward.uncounted), (4, UnitTally { files: 18, bytes: 18 }));
    assert_eq!(forward.total, UnitTally { files: 30, bytes: 30 });
    // What was left out for a long path does not come back when that is left out, too.
    let paths = ["/m/c/1", "/m/bbbbbbbbbbbbbb/1", "/m/a/1", "/m/c/2"].map(String::from);
    let (forward, back) = (split(&mut paths.iter()), split(&mut paths.iter().rev()));
    assert_eq!((&forward.units, forward.uncounted), (&back.units, back.uncounted));
    assert_eq!(forward.units.len(), 1);
}

#[test]
fn the_names_of_a_directory_that_count_do_not_depend_on_the_order_of_files() {
    let in_step = |step: u32| (0..300).map(move |number| format!("/m/step_{step}/{number:03}.png"));
    let paths: Vec<String> = in_step(1).chain(in_step(2)).collect();
    let split = |paths: &mut dyn Iterator<Item = &String>| {
        let mut builder = SplitBuilder::new(Vec::new());
        paths.for_each(|path| builder.add(Path::new(path), 1, b""));
        builder.finish(4, &|_| None)
    };
    let (forward, back) = (split(&mut paths.iter()), split(&mut paths.iter().rev()));
    assert_eq!((&forward.units, forward.uncounted), (&back.units, back.uncounted));
    assert_eq!((forward.units.len(), forward.uncounted), (256, UnitTally { files: 88, bytes: 88 }));
}

#[test]
fn no_card_is_read_twice() {
    let read = std::cell::RefCell::new(BTreeMap::<std::path::PathBuf, u32>::new());
    let mut builder = SplitBuilder::new(Vec::new());
    for number in 0..100 {
        builder.add(Path::new(&format!("/m/{number}/m.gguf")), MODEL, b"");
        builder.add(Path::new(&format!("/m/{number}/README.md")), 9, b"");
        builder.add(Path::new(&format!("/m/{number}/sub/m.gguf")), MODEL, b"");
    }
    builder.finish(4, &|path| {
        *read.borrow_mut().entry(path.into()).or_default() += 1;
        Some(b"---\n---\n".to_vec())
    });
    assert!(read.borrow().values().all(|reads| *reads == 1));
    assert!(read.borrow().contains_key(Path::new("/m/99/README.md")));
}

#[test]
fn a_long_chain_of_bases_takes_no_time() {
    let models: Vec<(String, String)> =
        (0..4000).map(|at| (format!("c/{at:05}"), format!("c/{:05}", at + 1))).collect();
    let models: Vec<_> = models.iter().map(|(own, base)| (own.as_str(), base.as_str(), ONE)).collect();
    let split = split(&models, 8);
    assert_eq!((family(&split, "c/00000"), family(&split, "c/03999")), ("base c/04000".into(), "base c/04000".into()));
}

#[test]
fn the_lists_in_the_digest_do_not_run_together() {
    // The same texts in other lists: a family, and a head with a family that is split by file.
    let made = |families: bool| {
        let mut split = split(&[], 4);
        let (path, family) = ("/m/x".into(), String::from("directory /m/y"));
        if families {
            split.families.insert(path, family);
        } else {
            split.heads.insert(path);
            split.by_file.insert(family);
        }
        split.update_digest();
        split.digest
    };
    assert_ne!(made(true), made(false));
}

#[test]
fn names_of_plain_files_take_none_from_those_of_models() {
    let mut builder = SplitBuilder::new(Vec::new());
    (builder.names.models.names_max, builder.names.others.names_max) = (60, 60);
    (0..100).for_each(|number| builder.add(Path::new(&format!("/m/images/{number}.png")), 1, b""));
    for (step, part) in (0..40).map(|at| (at % 2, at / 2)) {
        builder.add(Path::new(&format!("/m/run/step_{step}/{part}.pt")), MODEL, b"");
    }
    let split = builder.finish(4, &|_| None);
    assert_eq!(split.by_file.iter().collect::<Vec<_>>(), ["directory /m/run/step_#"]);
}

#[test]
fn of_many_bases_of_a_card_the_first_count() {
    let long = |number: u32| format!("{number:03}-{}", "x".repeat(200));
    let bases = (0..40).map(long).collect::<Vec<_>>();
    let mut builder = SplitBuilder::new(Vec::new());
    let near = [("/m/first", bases[..10].join(", ") + ", a/stem"), ("/m/last", bases.join(", ") + ", a/stem")];
    for directory in ["/m/a/stem", near[0].0, near[1].0] {
        builder.add(&Path::new(directory).join("m.gguf"), MODEL, b"");
        builder.add(&Path::new(directory).join("README.md"), 1, b"");
    }
    let split = builder.finish(1, &|path| {
        let card = near.iter().find(|(directory, _)| path.starts_with(directory)).map(|(_, bases)| bases.clone());
        Some(format!("---\nbase_model: [{}]\n---\n", card?).into_bytes())
    });
    assert_eq!(split.family_of(Path::new("/m/first")), "directory /m/a/stem");
    assert_eq!(split.family_of(Path::new("/m/last")), format!("base {}", long(0)));
}
