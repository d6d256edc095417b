//! Values, averages, orders and series of claims.

use serde_json::json;

use super::*;

fn claim(text: &str) -> Claim {
    let head = "source = \"A paper\"\nsection = \"figure 1\"\ntext = \"smaller\"\nexpected = \"21.7 %\"\n\
        remark = \"a guess\"\nfigure = \"ratio\"\n";
    toml::from_str(&format!("{head}{text}")).unwrap()
}

fn lines() -> Vec<Value> {
    let line = |set: &str, scheme: &str, level: u64, ratio: f64| {
        json!({"set": set, "scheme": scheme, "chunk_bytes": 65536, "parameters": {"level": level}, "ratio": ratio,
            "deep": {"er": 2.0 * ratio}})
    };
    vec![
        line("code", "base", 1, 2.0),
        line("code", "fhrd", 1, 3.0),
        line("code", "base", 3, 4.0),
        line("code", "fhrd", 3, 5.0),
        line("images", "base", 3, 2.0),
        line("images", "fhrd", 3, 2.0),
        json!({"set": "tar", "scheme": "fhrd", "failure": "it broke"}),
    ]
}

#[test]
fn a_line_is_compared_with_the_line_of_the_same_other_names() {
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\nrule = { near = 21.7, within = 30 }\n";
    let verdict = claim(text).judge(&lines());
    assert_eq!((verdict.measured, verdict.range, verdict.count), (Some(25.0), Some([0.0, 50.0]), 3));
    assert_eq!(verdict.verdict, VerdictKind::Confirmed);
    assert_eq!(
        (verdict.sets.join(" "), verdict.subject),
        ("code images".into(), "fhrd against base, chunks of 64 KiB".into())
    );
    let of_one = text.replace("of = { scheme = \"fhrd\" }", "of = { scheme = \"fhrd\", set = \"code\", level = 3 }");
    let over = of_one.replace("over = {", "measure = \"times\"\nunit = \"\"\nover = { level = 1,");
    let measured = |text: &str| claim(text).judge(&lines()).measured;
    assert_eq!(measured(&of_one), Some(25.0), "the level must be equal because `over` does not name it");
    assert_eq!(measured(&over), Some(2.5));
}

#[test]
fn averages_are_of_the_factors_where_they_are_geometric() {
    let text = "of = { scheme = \"fhrd\", set = \"code\" }\nover = { scheme = \"base\" }\nrule = { at_least = 0 }\n";
    let measured = |average: &str| claim(&format!("{text}average = \"{average}\"\n")).judge(&lines()).measured.unwrap();
    assert!((measured("geometric") - 100.0 * ((1.5f64 * 1.25).sqrt() - 1.0)).abs() < 1e-9);
    assert_eq!([measured("least"), measured("largest"), measured("mean")], [25.0, 50.0, 37.5]);
}

#[test]
fn a_plain_value_is_not_compared_and_a_missing_one_is_not_tested() {
    let text =
        "measure = \"value\"\nunit = \"MB/s\"\nof = { scheme = [\"fhrd\"], level = 1 }\nrule = { at_most = 6 }\n";
    let deep = claim(text);
    let deep = Claim { figure: "deep.er".into(), ..deep };
    let verdict = deep.judge(&lines());
    assert_eq!((verdict.measured_text().as_str(), verdict.verdict), ("6 MB/s", VerdictKind::Confirmed));
    let verdict = Claim { figure: "speed".into(), ..deep }.judge(&lines());
    assert_eq!((verdict.measured_text().as_str(), verdict.verdict), ("not measured", VerdictKind::NotTested));
}

#[test]
fn an_order_holds_if_no_rival_of_the_same_names_is_better() {
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = [\"base\", \"fhrd\"] }\nrule = { order = \"highest\" }\n";
    let mut better = lines();
    better[5]["ratio"] = json!(2.02);
    let verdict = claim(text).judge(&better);
    assert_eq!((verdict.measured, verdict.verdict), (Some(3.0), VerdictKind::Confirmed));
    assert_eq!(
        verdict.measured_text(),
        "in 3 of 3: by 1.00 % of the next at least",
        "any difference decides, and is shown"
    );
    assert_eq!(claim(text).judge(&lines()).measured_text(), "in 2 of 3: images level 3, 64 KiB: base has 2 against 2");
    let mut worse = better;
    worse[3]["ratio"] = json!(3.5);
    let verdict = claim(text).judge(&worse);
    assert_eq!(verdict.verdict, VerdictKind::Refuted);
    assert_eq!(verdict.measured_text(), "in 2 of 3: code level 3, 64 KiB: base has 4 against 3.50");
    let lowest = claim(&text.replace("highest", "lowest")).judge(&worse);
    assert_eq!((lowest.measured, lowest.verdict), (Some(1.0), VerdictKind::Refuted));
}

#[test]
fn a_series_rises_or_falls_in_every_step() {
    let text = "measure = \"value\"\nunit = \"times\"\nof = { scheme = \"base\" }\nrule = { rises_with = \"level\" }\n";
    let verdict = claim(text).judge(&lines());
    assert_eq!((verdict.verdict, verdict.count), (VerdictKind::Confirmed, 1), "one line is no series");
    assert_eq!(verdict.measured_text(), "in 1 of 1: code: 2, 4 times at level 1, 3");
    assert_eq!(claim(&text.replace("rises", "falls")).judge(&lines()).verdict, VerdictKind::Refuted);
    let mut more = lines();
    more.push(
        json!({"set": "code", "scheme": "base", "chunk_bytes": 65536, "parameters": {"level": 2}, "ratio": 1.99}),
    );
    assert_eq!(claim(text).judge(&more).verdict, VerdictKind::Refuted);
    let slack = text.replace("\"level\" }", "\"level\", within = 1 }");
    assert_eq!(claim(&slack).judge(&more).verdict, VerdictKind::Confirmed);
}

#[test]
fn data_of_another_kind_cannot_refute() {
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\nrule = { at_least = 400 }\n";
    assert_eq!(claim(text).judge(&lines()).verdict, VerdictKind::Refuted);
    let other = "other_data = { needs = \"servers\", nearest = \"one disk\" }\n";
    let verdict = claim(&format!("{text}{other}")).judge(&lines());
    assert_eq!(verdict.verdict, VerdictKind::OtherData);
    assert_eq!(verdict.remark, "a guess; what differs: it needs servers; nearest here: one disk");
    let unnamed = toml::from_str::<OtherData>("needs = \"servers\"").unwrap_err().to_string();
    assert!(unnamed.contains("nearest"), "{unnamed}");
}

#[test]
fn a_row_that_cannot_fail_is_by_construction_while_it_holds() {
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\nby_construction = \"it was made so\"\n";
    let verdict = claim(&format!("{text}rule = {{ at_least = 20 }}\n")).judge(&lines());
    assert_eq!((verdict.verdict, &*verdict.remark), (VerdictKind::ByConstruction, "it was made so; a guess"));
    let failed = claim(&format!("{text}rule = {{ at_least = 400 }}\n")).judge(&lines());
    assert_eq!((failed.verdict, &*failed.remark), (VerdictKind::Refuted, "a guess"), "so it could fail");
}

#[test]
fn a_time_is_decided_only_if_another_run_would_decide_the_same() {
    let line = |scheme: &str, speed: f64, noise: Option<f64>| json!({"set": "code", "scheme": scheme, "backup_mb_per_s": speed, "backup_noise": noise});
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\nmeasure = \"share\"\n";
    let timed =
        |rule: &str| Claim { figure: "backup_mb_per_s".into(), ..claim(&format!("{text}rule = {{ {rule} }}\n")) };
    let judged = |rule: &str, noise| timed(rule).judge(&[line("fhrd", 83.0, noise), line("base", 100.0, Some(0.05))]);
    let quiet = judged("at_least = 70", Some(0.1));
    assert_eq!((quiet.verdict, &*quiet.measured_text()), (VerdictKind::Confirmed, "83 ± 8 %"), "75 to 91");
    let loud = judged("at_least = 80", Some(0.1));
    assert_eq!(
        (loud.verdict, &*loud.measured_text()),
        (VerdictKind::TooNoisy, "83 ± 8 %: another run could decide otherwise")
    );
    assert_eq!(judged("at_least = 80", Some(0.02)).verdict, VerdictKind::TooNoisy, "the other line has 5 %: 79 to 87");
    let near = judged("near = 85, within = 1", Some(0.1));
    assert_eq!(near.verdict, VerdictKind::TooNoisy, "both ends are refuted, but not what lies between");
    let unknown = judged("at_least = 10", None);
    assert_eq!((unknown.verdict, &*unknown.detail), (VerdictKind::TooNoisy, "its noise is not measured"));
    let made = Claim { by_construction: Some("two threads".into()), ..timed("at_least = 10") };
    let made = made.judge(&[line("fhrd", 83.0, None), line("base", 100.0, None)]);
    assert_eq!(made.verdict, VerdictKind::ByConstruction, "noise does not make it fail");
    let ordered = timed("order = \"highest\"").fault().unwrap();
    assert!(ordered.contains("is about a time"), "{ordered}");
    assert_eq!(timed("at_least = 1").fault(), None);
}

#[test]
fn a_mean_needs_more_than_half_of_its_values() {
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\nrule = { near = 25 }\n";
    let verdict = claim(text).judge(&lines());
    assert_eq!((verdict.measured, verdict.verdict), (Some(25.0), VerdictKind::OtherSize), "0, 25 and 50");
    assert!(verdict.detail.contains("1 of 3"), "{}", verdict.detail);
    let bound = claim(&text.replace("near = 25", "at_least = 25")).judge(&lines()[..4]);
    assert_eq!((bound.measured, bound.verdict), (Some(37.5), VerdictKind::Confirmed), "25 and 50");
    let mut one_far = lines();
    (one_far[1]["ratio"], one_far[3]["ratio"]) = (json!(6.0), json!(4.0));
    let few = claim(&text.replace("near = 25", "at_least = 30")).judge(&one_far);
    assert_eq!(
        (few.measured, few.verdict),
        (Some(200.0 / 3.0), VerdictKind::Refuted),
        "200, 0 and 0: most have no effect"
    );
    let two = claim(&text.replace("25", "25, within = 25")).judge(&lines());
    assert_eq!(two.verdict, VerdictKind::Confirmed, "all of 0, 25 and 50");
    let least = claim(&format!("{}average = \"least\"\n", text.replace("25", "0, within = 1"))).judge(&lines());
    assert_eq!(least.verdict, VerdictKind::Confirmed);
}

#[test]
fn a_mean_alone_has_no_direction() {
    let gains = |values: [f64; 4]| -> Vec<Value> {
        let line =
            |set: usize, scheme: &str, ratio: f64| json!({"set": set.to_string(), "scheme": scheme, "ratio": ratio});
        let both = |(set, gain): (usize, f64)| [line(set, "base", 1.0), line(set, "fhrd", 1.0 + gain / 100.0)];
        values.into_iter().enumerate().flat_map(both).collect()
    };
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\nrule = { near = 13.5 }\n";
    let one = claim(text).judge(&gains([95.0, 1.0, -1.0, -4.0]));
    assert_eq!((one.verdict, &*one.detail), (VerdictKind::Refuted, "only the mean has the direction, and 1 of 4"));
    let half = claim(text).judge(&gains([95.0, 2.0, -1.0, -4.0]));
    assert_eq!(half.verdict, VerdictKind::Refuted, "half are not most");
    let most = claim(text).judge(&gains([95.0, 2.0, 12.0, -4.0]));
    assert_eq!((most.verdict, &*most.detail), (VerdictKind::OtherSize, ""));
    let largest = claim(&format!("{text}average = \"largest\"\n")).judge(&gains([95.0, 1.0, -1.0, -4.0]));
    assert_eq!(largest.verdict, VerdictKind::OtherSize, "one value was asked for");
}

#[test]
fn each_value_has_the_error_of_its_own_line() {
    let line = |set: &str, scheme: &str, time: f64, noise: f64| json!({"set": set, "scheme": scheme, "save_ms": time, "save_noise": noise});
    let lines = [
        line("a", "fhrd", 2.0, 0.1),
        line("a", "base", 1.0, 0.0),
        line("b", "fhrd", 100.0, 0.02),
        line("b", "base", 1.0, 0.0),
        line("c", "other", 1.0, 0.0),
    ];
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = [\"base\", \"other\"] }\nmeasure = \"times\"\n\
        unit = \"times\"\nrule = { at_least = 1 }\n";
    let verdict = Claim { figure: "save_ms".into(), ..claim(text) }.judge(&lines);
    assert_eq!(verdict.measured_text(), "51 ± 2 times (mean of 2: a 2.0 ± 0.2; b 100 ± 2)");
    assert_eq!(verdict.subject, "fhrd against base", "`other` has no line of the same set");
}

#[test]
fn small_parameters_of_a_label_stay_different() {
    let of = |value: f64| short(value);
    assert_eq!([of(0.0005), of(0.002), of(0.015), of(-0.05)], ["0.0005", "0.002", "0.015", "-0.05"]);
    assert_eq!([of(0.0), of(0.123), of(3.0), of(12.34)], ["0", "0.12", "3", "12.3"]);
    assert_eq!([of(98.76), of(7355.04), of(-14_832_123.4)], ["98.8", "7360", "-14800000"], "three digits");
}

#[test]
fn other_data_explain_a_value_of_another_size_too() {
    let text = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\n\
        other_data = { needs = \"large sets\", nearest = \"small ones\" }\n";
    let differs = "a guess; what differs: it needs large sets; nearest here: small ones";
    let judged = |near: &str| claim(&format!("{text}rule = {{ near = {near} }}\n")).judge(&lines());
    let within = judged("25, within = 30");
    assert_eq!((within.verdict, within.remark), (VerdictKind::OtherData, format!("within the rule; {differs}")));
    for (near, size) in [("80", "another size"), ("400", "no effect"), ("-25", "the other direction")] {
        let verdict = judged(near);
        assert_eq!((verdict.verdict, &*verdict.remark), (VerdictKind::OtherData, differs), "{size}");
    }
}

#[test]
fn a_row_of_mixtures_says_what_each_held() {
    let line = |set: &str, scheme: &str, share: u64, versions: u64, relatives: u64| {
        json!({"set": set, "scheme": scheme, "parameters": {"share": share}, "ratio": share as f64 + 1.0,
            "held": {"versions": versions, "relatives": relatives, "percent": share + 1}})
    };
    let mut lines = lines();
    for scheme in ["base", "fhrd"] {
        lines.extend([line("mix", scheme, 25, 6, 1), line("mix", scheme, 50, 4, 6)]);
    }
    let held = "mix (26 %: 6 versions and 1 relative; 51 %: 4 versions and 6 relatives)";
    let of_all = "of = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\nrule = { near = 0 }\n";
    let verdict = claim(of_all).judge(&lines);
    assert_eq!((verdict.sets.join(", "), verdict.count), (format!("code, images, {held}"), 5));
    let of_series = "of = { set = \"mix\" }\nmeasure = \"value\"\nrule = { rises_with = \"share\" }\n";
    let verdict = claim(of_series).judge(&lines);
    assert_eq!((verdict.measured, verdict.count), (Some(2.0), 2), "what it held does not divide a series");
}
