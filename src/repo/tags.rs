//! Tags as users type them: lists with commas.
//!
//! Where tags are given to a snapshot, `a,b` stands for two tags. Where snapshots are chosen by tags, it stands for
//! snapshots that have both. So no new tag has a comma. Older ones may: `a,b` also chooses the snapshots with a tag
//! that is called exactly so.

/// The tags of a list. Spaces around them do not count.
///
/// # Errors
/// A message for the user if one is empty.
pub fn split_tags(list: &str) -> Result<Vec<String>, String> {
    let tags: Vec<String> = list.split(',').map(|tag| tag.trim().to_string()).collect();
    match tags.iter().any(String::is_empty) {
        true => Err(format!("expected TAG or TAG,TAG without an empty tag, found `{list}`")),
        false => Ok(tags),
    }
}

/// The tags of several lists, each once.
///
/// # Errors
/// Errors of [`split_tags`].
pub fn merged_tags<'a>(lists: impl IntoIterator<Item = &'a String>) -> Result<Vec<String>, String> {
    let mut tags: Vec<String> = Vec::new();
    for list in lists {
        for tag in split_tags(list)? {
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
    }
    Ok(tags)
}

/// A list that gives tags to a snapshot, as it is.
///
/// # Errors
/// Errors of [`split_tags`].
pub fn checked_new_tags(list: &str) -> Result<String, String> {
    split_tags(list).map(|_| list.to_string())
}

/// A list that chooses snapshots, as it is. An empty one is fine: it stands for those without tags.
///
/// # Errors
/// Errors of [`split_tags`].
pub fn checked_tag_list(list: &str) -> Result<String, String> {
    if list.is_empty() { Ok(String::new()) } else { checked_new_tags(list) }
}

/// Whether a snapshot with the tags `own` has all tags of a list. An empty list stands for snapshots without tags.
pub fn has_tags(own: &[String], list: &str) -> bool {
    let has = |tag: &str| own.iter().any(|own| own == tag);
    match list {
        "" => own.is_empty(),
        list => has(list) || list.split(',').all(|tag| has(tag.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split('|').map(str::to_string).collect()
    }

    #[test]
    fn a_comma_separates_tags_and_none_is_empty() {
        assert_eq!(split_tags("a"), Ok(list("a")));
        assert_eq!(split_tags("a, b c ,d"), Ok(list("a|b c|d")));
        for text in ["", ",", "a,", ",a", "a,,b", " ", "a, ,b"] {
            assert!(split_tags(text).unwrap_err().contains("empty tag"), "{text}");
            assert!(
                merged_tags(&list("x").into_iter().chain([text.to_string()]).collect::<Vec<_>>()).is_err(),
                "{text}"
            );
            assert_eq!(checked_tag_list(text).is_ok(), text.is_empty(), "{text}");
        }
        assert_eq!(merged_tags(&list("b,a|a|c,b")), Ok(list("b|a|c")));
    }

    #[test]
    fn a_list_asks_for_all_its_tags_or_for_one_that_is_called_so() {
        let own = list("a|b|x,y| s ");
        for yes in ["a", "a,b", "b, a", "x,y", " s "] {
            assert!(has_tags(&own, yes), "{yes}");
        }
        for no in ["", "c", "a,c", "x", "y", "a,x,y", "s", "A"] {
            assert!(!has_tags(&own, no), "{no}");
        }
        assert!(has_tags(&[], "") && !has_tags(&[], "a"));
    }
}
