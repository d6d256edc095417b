//! Tests of the comparison on series of versions.

use super::*;

fn comparison(directory: &std::path::Path, more: &str) -> Comparison {
    let text = format!(
        "kind = \"versions\"\ncorpus = \"{0}\"\nwork = \"{0}/work\"\nrestore = true\nsets = [\"series\"]\n{more}\
        [[scheme]]\nname = \"none\"\n[scheme.config.subdedup]\nstrategy = \"none\"\n[[scheme]]\nname = \"default\"\n",
        directory.display()
    );
    Comparison::parse(&text, "versions.toml".as_ref()).unwrap()
}

/// Three versions of one text, each with one more line changed in every 4000.
fn series(directory: &std::path::Path) {
    std::fs::create_dir(directory.join("series")).unwrap();
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
        std::fs::write(directory.join(format!("series/v{version}.txt")), text).unwrap();
    }
}

#[test]
fn each_version_adds_little_and_the_first_and_last_are_restored() {
    let directory = tempfile::tempdir().unwrap();
    series(directory.path());
    let mut out = Vec::new();
    let report = run(&comparison(directory.path(), ""), &Arc::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let [none, default] = report.lines.as_slice() else { panic!("{text}") };
    let added = |line: &serde_json::Value| -> Vec<u64> { serde_json::from_value(line["added"].clone()).unwrap() };
    assert_eq!(added(none).len(), 3);
    assert_eq!(Some(added(none).iter().sum::<u64>()), none["stored"].as_u64());
    assert!(added(default)[1] < added(none)[1] && default["stored"].as_u64() < none["stored"].as_u64(), "{text}");
    let last = &default["index"]["last"];
    assert!(last["asked"].as_u64() > Some(0) && last["hit_share"].as_f64() <= Some(1.0), "{last}");
    for end in [&default["first"], &default["last"]] {
        let number = |key: &str| end[key].as_f64();
        assert!(number("mb_per_s") > Some(0.0) && number("amplification") > Some(0.0), "{text}");
        assert!(end["cold_mb_per_s"].is_null(), "{text}");
    }
    let ratios = report.plots.iter().find_map(|plot| match plot {
        Plot::Lines { series, .. } => Some(series.iter().map(|(_, points)| points.len()).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!((ratios, report.failures), (Some(vec![3, 3]), 0));
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with("KB added")).collect();
    assert!(titles[0].ends_with("       v1        v2        v3"), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn cold_restores_are_reported_beside_warm_ones() {
    let directory = tempfile::tempdir().unwrap();
    series(directory.path());
    let comparison = comparison(directory.path(), "cold = true\nrepeats = 2\n");
    let lines = run(&comparison, &Arc::default(), &mut std::io::sink()).unwrap().lines;
    assert!(lines.iter().all(|line| line["last"]["cold_mb_per_s"].as_f64() > Some(0.0)), "{lines:?}");
    assert!(!directory.path().join("work/repository").exists());
}

#[test]
fn files_keep_their_order_and_directories_are_sorted() {
    let directory = tempfile::tempdir().unwrap();
    series(directory.path());
    std::fs::create_dir(directory.path().join("series/deeper")).unwrap();
    let path = |name: &str| directory.path().join("series").join(name);
    let given = [path("v3.txt"), directory.path().join("series")];
    assert_eq!(versions_of(&given, Versions::Paths).unwrap(), given);
    assert_eq!(versions_of(&given, Versions::Files).unwrap(), ["v3.txt", "v1.txt", "v2.txt", "v3.txt"].map(path));
    assert!(versions_of(&[path("deeper")], Versions::Files).is_err());
}
