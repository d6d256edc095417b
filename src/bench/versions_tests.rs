//! Tests of the comparison on series of versions.

use super::*;

fn comparison(folder: &std::path::Path, more: &str) -> Comparison {
    let text = format!(
        "kind = \"versions\"\ncorpus = \"{0}\"\nwork = \"{0}/work\"\nrestore = true\nsets = [\"series\"]\n{more}\
        [[scheme]]\nname = \"none\"\n[scheme.config.subdedup]\nstrategy = \"none\"\n[[scheme]]\nname = \"default\"\n",
        folder.display()
    );
    Comparison::parse(&text, "versions.toml").unwrap()
}

/// Three versions of one text, each with one more line changed in every 4000.
fn series(folder: &std::path::Path) {
    std::fs::create_dir(folder.join("series")).unwrap();
    for version in 1..=3u64 {
        let line = |number: u64| {
            let changed = (1..version).any(|day| number % 4000 == 13 * day);
            format!(
                "{:016x}{}\n",
                (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                if changed { "changed" } else { "" }
            )
        };
        let text: String = (0..40_000).map(line).collect();
        std::fs::write(folder.join(format!("series/v{version}.txt")), text).unwrap();
    }
}

#[test]
fn each_version_adds_little_and_both_ends_are_restored() {
    let folder = tempfile::tempdir().unwrap();
    series(folder.path());
    let mut out = Vec::new();
    let lines = run(&comparison(folder.path(), ""), &Arc::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let figures: Vec<&Figures> = lines.iter().filter_map(|line| line.figures.as_ref()).collect();
    let [none, default] = figures.as_slice() else { panic!("{text}") };
    assert_eq!(none.added.len(), 3);
    assert_eq!(none.added.iter().sum::<u64>(), none.stored);
    assert!(default.added[1] < none.added[1] && default.stored < none.stored, "{text}");
    for end in [default.first, default.last] {
        let end = end.unwrap();
        assert!(end.mb_per_s > 0.0 && end.amplification > 0.0 && end.cold_mb_per_s.is_none(), "{text}");
    }
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with("KB added")).collect();
    assert!(titles[0].ends_with("       v1        v2        v3"), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn cold_restores_are_told_beside_the_warm_ones() {
    let folder = tempfile::tempdir().unwrap();
    series(folder.path());
    let lines =
        run(&comparison(folder.path(), "cold = true\nrepeats = 2\n"), &Arc::default(), &mut std::io::sink()).unwrap();
    let cold = |line: &Line<Figures>| {
        line.figures.as_ref().and_then(|figures| figures.last).and_then(|last| last.cold_mb_per_s)
    };
    assert!(lines.iter().all(|line| cold(line).is_some()), "{lines:?}");
    assert!(!folder.path().join("work/repository").exists());
}

#[test]
fn files_stand_as_given_and_folders_in_name_order() {
    let folder = tempfile::tempdir().unwrap();
    series(folder.path());
    std::fs::create_dir(folder.path().join("series/deeper")).unwrap();
    let path = |name: &str| folder.path().join("series").join(name);
    let given = [path("v3.txt"), folder.path().join("series")];
    assert_eq!(versions_of(&given).unwrap(), ["v3.txt", "v1.txt", "v2.txt", "v3.txt"].map(path));
    assert!(versions_of(&[path("deeper")]).is_err());
}
