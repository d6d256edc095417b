//! Unknown keys, values out of range, and the defaults.

use super::*;

#[test]
fn an_unknown_key_is_named() {
    let error = Config::parse("[subdedup]\nstratgy = \"none\"\n", "x.toml").expect_err("must fail");
    let text = error.to_string();
    assert!(text.contains("x.toml") && text.contains("stratgy"), "{text}");
}

#[test]
fn a_value_out_of_range_is_named() {
    let text = Config::parse("[pipeline]\nqueue_depth = 0\n", "x.toml").expect_err("must fail").to_string();
    assert!(text.contains("pipeline.queue_depth"), "{text}");
}

#[test]
fn levels_of_text_follow_the_level() {
    for (level, text_levels, expected) in
        [(3, 3, 6), (3, 0, 3), (1, 3, 4), (17, 3, 19), (19, 18, 19), (21, 3, 21), (-2, 3, -2)]
    {
        let text = format!("[compress]\nlevel = {level}\ntext_levels = {text_levels}\n");
        let compress = Config::parse(&text, "x").expect("parses").compress;
        assert_eq!(compress.text_level(), expected, "{text}");
        let plain = if expected == level { level } else { (expected + 1).min(19) };
        assert_eq!(compress.plain_level(), plain, "{text}");
    }
    for text_levels in [-1, 19] {
        let error = Config::parse(&format!("[compress]\ntext_levels = {text_levels}\n"), "x").expect_err("must fail");
        assert!(error.to_string().contains("compress.text_levels"), "{error}");
    }
}

#[test]
fn an_unknown_value_is_listed_with_the_allowed_ones() {
    for (table, key, allowed) in [
        ("repository", "chunker", "sieve, fastcdc, gear-xet, ultracdc, fixed"),
        ("subdedup", "strategy", "none, burst, uniform, head-only, bidirectional, superfeature, anchors"),
        ("model", "codec", "floats, planes, all-planes, zipnn, bg4-lz4, bit-planes, zstd"),
        ("identify", "method", "probes, entropies, everything"),
        ("index", "last_level", "segments, redb"),
        ("model", "delta", "context, xor, none"),
        ("compress", "codec", "zstd, lz4"),
    ] {
        let text = format!("[{table}]\n{key} = \"magic\"\n");
        let error = Config::parse(&text, "x.toml").expect_err("must fail").to_string();
        let expected = format!("`{table}.{key}` must be one of {allowed}, found `magic`");
        assert!(error.contains(&expected) && error.contains("x.toml"), "{error}");
    }
}

#[test]
fn a_named_value_is_written_as_it_is_read() {
    for kind in ChunkerKind::ALL {
        let text = format!("[repository]\nchunker = \"{kind}\"\n");
        let config = Config::parse(&text, "x").expect("parses");
        assert_eq!((config.repository.chunker, ChunkerKind::from_name(kind.name())), (*kind, Some(*kind)));
        assert!(toml::to_string(&config).expect("serialises").contains(&format!("chunker = \"{kind}\"\n")));
    }
    assert_eq!(ChunkerKind::from_name("magic"), None);
}

#[test]
fn xet_averages_are_powers_of_two() {
    let config = "[repository]\nchunker = \"gear-xet\"\nchunk_bytes_avg = ";
    Config::parse(&format!("{config}\"128 KiB\""), "x").expect("parses");
    let text = Config::parse(&format!("{config}\"96 KiB\""), "x").expect_err("must fail").to_string();
    assert!(text.contains("repository.chunk_bytes_avg") && text.contains("98304"), "{text}");
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let text = include_str!("../../configs/default.toml");
    let config = Config::parse(text, "configs/default.toml").expect("parses");
    assert_eq!(config, Config::default());
    let keys = |table: &toml::Table| {
        let below = |(name, value): (&String, &toml::Value)| {
            let inner: Vec<String> = value.as_table().into_iter().flat_map(toml::Table::keys).cloned().collect();
            (name.clone(), inner)
        };
        table.iter().map(below).collect::<Vec<_>>()
    };
    let documented: toml::Table = text.parse().expect("is TOML");
    let all = toml::Table::try_from(Config::default()).expect("serialises");
    assert_eq!(keys(&documented), keys(&all), "every key is documented");
}

#[test]
fn sizes_are_numbers_or_text() {
    let config = Config::parse("[compress]\nframe_bytes = \"256 KiB\"\n[container]\nbytes_target = 4194304\n", "x");
    let config = config.expect("parses");
    assert_eq!(config.compress.frame_bytes.0, 256 << 10);
    assert_eq!(config.container.bytes_target.0, 4 << 20);
}
