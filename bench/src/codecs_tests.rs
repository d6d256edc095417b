//! Tests of the measurement of codecs.

use super::*;

/// Writes a base and a fine-tune of it, generated from a seed.
fn models(directory: &std::path::Path) {
    let text = "sets = [{ name = \"x\", generate = { seed = 3, models = { layers = 1, hidden = 64, vocabulary = 512, \
        fine_tunes = 1, sigma_delta = [0.0005] } } }]";
    #[derive(Deserialize)]
    struct Sets {
        sets: Vec<crate::data::Set>,
    }
    let sets: Sets = toml::from_str(text).unwrap();
    let made = sets.sets[0].sources(directory, &directory.join("made")).unwrap();
    std::fs::rename(made[0].paths[0].join("models"), directory.join("models")).unwrap();
}

fn parse(directory: &std::path::Path, more: &str) -> Result<CodecBench> {
    let text = format!(
        "kind = \"codecs\"\ncorpus = {directory:?}\nblocks = 3\nblock_bytes = \"16 KiB\"\nrepeats = 2\n{more}\n\
        [[class]]\nname = \"base\"\nfiles = [\"models/base\"]\ndtype = \"BF16\"\n\
        [[class]]\nname = \"tuned\"\nfiles = [\"models/fine-tune-00/model.safetensors\"]\ndtype = \"BF16\"\n\
        tensors = \"*embed*\"\nbase = \"models/base/model.safetensors\"\n"
    );
    CodecBench::parse(&text, "x.toml")
}

#[test]
fn every_method_gives_a_line_and_deltas_need_a_base() {
    let directory = tempfile::tempdir().unwrap();
    models(directory.path());
    // The directory of the base holds only its model.
    let methods = "methods = [\"floats\", \"planes\", \"all-planes\", \"zipnn\", \"bg4-lz4\", \"bit-planes\", \"zstd\", \"context\", \"bitx\", \"lz4-frame\", \"bytes-frame\", \"bits-frame\"]";
    let config = parse(directory.path(), methods).unwrap();
    assert_eq!(config.missing(), [""; 0]);
    let mut printed = Vec::new();
    let report = run(&config, &Arc::default(), &mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!((report.lines.len(), report.failures), (10 + 12, 0), "{printed}");
    let of = |set: &str, method: &str, key: &str| {
        let line = report.lines.iter().find(|line| line["set"] == set && line["method"] == method);
        line.unwrap_or_else(|| panic!("{set} {method}: {printed}"))[key].as_f64().unwrap()
    };
    assert!(of("tuned", "context", "ratio") > of("tuned", "bitx", "ratio"), "{printed}");
    assert!(of("tuned", "bitx", "ratio") > of("tuned", "floats", "ratio"), "{printed}");
    assert!(of("base", "floats", "ratio") > of("base", "zstd", "ratio"), "{printed}");
    assert!(of("base", "floats", "decode_mb_per_s") > 0.0 && of("base", "floats", "blocks") == 3.0, "{printed}");
    let worst = of("tuned", "context", "worst_of_bitx");
    assert!(worst > 0.1 && worst < 1.0 && of("tuned", "zstd", "worst_of_bitx") > 1.0, "{printed}");
    assert!(report.lines.iter().all(|line| line["method"] != "bitx" || line["worst_of_bitx"].is_null()), "{printed}");
    assert_eq!(report.plots.len(), 3);
}

#[test]
fn the_worst_block_does_not_count_the_description_of_its_encoding() {
    let line = |method: &str, sizes: &[u64]| CodecLine {
        set: "x".into(),
        method: method.into(),
        blocks: sizes.len(),
        bytes: 0,
        stored: 0,
        ratio: 0.0,
        block_ratios: [0.0; 3],
        worst_of_bitx: None,
        left_out: None,
        encode_mb_per_s: 0.0,
        decode_mb_per_s: 0.0,
        encode_noise: None,
        decode_noise: None,
        sizes: sizes.into(),
        failure: None,
    };
    let mut lines = [line("context", &[932, 20, 182]), line("bitx", &[1000, 1, 100])];
    compare_with_bitx(&mut lines);
    assert_eq!((lines[0].worst_of_bitx, lines[1].worst_of_bitx), (Some(1.5), None));
    let mut alone = [line("context", &[1])];
    compare_with_bitx(&mut alone);
    assert_eq!(alone[0].worst_of_bitx, None);
}

#[test]
fn errors_name_the_key_or_the_class() {
    let directory = tempfile::tempdir().unwrap();
    let message = |more: &str| parse(directory.path(), more).unwrap_err().to_string();
    assert!(message("methods = [\"huffman\"]").contains("found `huffman`"));
    assert!(message("methods = []\nlevle = 1").contains("levle"));
    let config = parse(directory.path(), "methods = [\"floats\"]").unwrap();
    assert!(config.missing()[0].contains("class `base`"), "{:?}", config.missing());
    models(directory.path());
    let mut config = parse(directory.path(), "methods = [\"floats\"]").unwrap();
    config.class[0].dtype = "F32".into();
    let error = run(&config, &Arc::default(), &mut std::io::sink()).unwrap_err().to_string();
    assert!(error.contains("class `base`") && error.contains("long enough"), "{error}");
}
