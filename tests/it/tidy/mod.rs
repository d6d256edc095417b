//! The rules of the sources, checked: layers, stages, circles, lengths, who prints, how lints are excepted, which words are used.

mod circles;
mod layers;
mod rules;
mod source;
mod stages;
mod tables;
mod words;

#[test]
fn the_sources_keep_the_rules() {
    let check = |source: &source::Source| {
        [
            layers::layer_faults(source),
            stages::stage_faults(source),
            layers::apart_faults(source),
            rules::long_functions(source),
            rules::other_faults(source),
            words::retired_identifiers(source),
        ]
        .concat()
    };
    let sources = source::sources();
    let mut faults: Vec<String> = sources.iter().flat_map(check).collect();
    faults.extend(circles::circle_faults(&sources));
    faults.extend(rules::long_files(&source::other_files()));
    faults.extend(words::ambiguous_types(&sources));
    faults.extend(words::retired_terms());
    faults.extend(tables::table_faults());
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}
