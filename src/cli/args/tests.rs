//! The definitions fit together.

use clap::{CommandFactory, Parser};

use super::*;

#[test]
fn clap_accepts_the_definitions() {
    Arguments::command().debug_assert();
}

#[test]
fn options_can_follow_the_verb_and_each_tag_takes_one_value() {
    let line = ["fhrd", "backup", "--tag", "a", "x", "--tag=b", "y", "--repo", "r", "-vv"];
    let arguments = Arguments::try_parse_from(line).unwrap();
    assert_eq!((arguments.options.verbose, arguments.options.repo), (2, Some("r".into())));
    let Verb::Backup(backup) = arguments.verb else { panic!("{:?}", arguments.verb) };
    assert_eq!((backup.tags, backup.paths), (vec!["a".into(), "b".into()], vec!["x".into(), "y".into()]));
    let line = |given: &[&str]| given.iter().map(Into::into).collect::<Vec<_>>();
    assert!(matches_of(&mut command(), line(&["fhrd", "backup"])).is_err());
    assert!(matches_of(&mut command(), line(&["fhrd", "--profile", "x", "backup"])).is_ok());
}
