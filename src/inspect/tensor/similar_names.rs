//! Suggests names of tensors when the wanted name does not exist.
//!
//! Two names are similar if they share most of their bytes at either end, or if one contains the other. If there are
//! only a few names, all of them are suggested.

/// Maximum number of suggested names.
const NAMES_MAX: usize = 5;
/// Shorter names are contained in too many others.
const PART_BYTES_MIN: usize = 3;

/// The names seen so far that are most similar to the wanted one.
#[derive(Debug, Clone)]
pub struct SimilarNames {
    wanted: String,
    /// The most similar names with their similarity, descending.
    near: Vec<(usize, String)>,
    /// The first names.
    first: Vec<String>,
    count: u64,
}

impl SimilarNames {
    /// No names yet.
    pub fn new(wanted: &str) -> Self {
        SimilarNames { wanted: wanted.into(), near: Vec::new(), first: Vec::new(), count: 0 }
    }

    /// Adds a name.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        if self.first.len() < NAMES_MAX {
            self.first.push(name.to_string());
        }
        let similarity = similarity(&self.wanted, name);
        if similarity == 0 || self.near.iter().any(|near| near.1 == name) {
            return;
        }
        let at = self.near.partition_point(|near| near.0 >= similarity);
        if at < NAMES_MAX {
            self.near.insert(at, (similarity, name.to_string()));
            self.near.truncate(NAMES_MAX);
        }
    }

    /// The suggestion: the end of the error "no tensor `x` in 2 model files".
    pub fn hint(&self) -> String {
        let quoted = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        match (self.near.is_empty(), self.count) {
            (false, _) => format!("; similar names: {}", quoted(&mut self.near.iter().map(|near| &near.1))),
            (true, 0) => String::new(),
            (true, 1) => format!("; its only tensor is {}", quoted(&mut self.first.iter())),
            (true, count) if count <= NAMES_MAX as u64 => {
                format!("; the tensors are {}", quoted(&mut self.first.iter()))
            }
            (true, count) => format!("; none of the {count} names is similar"),
        }
    }
}

/// Similarity of two names, bytes: those they share at both ends, if these are most of the longer name. If one name
/// contains the other, at least the length of the shorter one. Otherwise 0.
fn similarity(wanted: &str, name: &str) -> usize {
    let common = |one: &mut dyn Iterator<Item = (u8, u8)>| one.take_while(|(one, other)| one == other).count();
    let prefix = common(&mut wanted.bytes().zip(name.bytes()));
    let suffix = common(&mut wanted.bytes().rev().zip(name.bytes().rev()));
    let (least, most) = (wanted.len().min(name.len()), wanted.len().max(name.len()));
    let both = (prefix + suffix).min(least);
    let contains = least >= PART_BYTES_MIN && (name.contains(wanted) || wanted.contains(name));
    match (2 * both >= most, contains) {
        (_, true) => least.max(both),
        (true, false) => both,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_closer_to_the_wanted_one_is_more_similar() {
        let wanted = "layer.1.attention.weight";
        assert!(similarity(wanted, "layer.11.attention.weight") > similarity(wanted, "layer.1.attention.bias"));
        assert!(similarity("attention", "layer.1.attention.weight") > similarity("attention", "embeddings"));
        assert!(similarity("layer.weigth", "layer.weight") > 0);
        for (one, other) in [("x", "y"), ("nope", "tree.000.0.feature"), ("e", "tree"), ("w", "layer.weight")] {
            assert_eq!(similarity(one, other), 0, "{one} {other}");
        }
    }

    #[test]
    fn few_names_are_suggested_and_many_are_counted() {
        let hint = |wanted: &str, names: &[&str]| {
            let mut all = SimilarNames::new(wanted);
            names.iter().for_each(|name| all.add(name));
            all.hint()
        };
        assert_eq!(hint("w", &[]), "");
        assert_eq!(hint("weights", &["array"]), "; its only tensor is `array`");
        assert_eq!(hint("nope", &["a.1", "b.2"]), "; the tensors are `a.1`, `b.2`");
        assert_eq!(hint("lay.1", &["lay.2", "other"]), "; similar names: `lay.2`");
        let many: Vec<String> = (0..6).map(|number| format!("tree.{number}.feature")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hint("nope", &many), "; none of the 6 names is similar");
    }
}
