//! SimilarNames that are offered where there is no tensor as asked for.
//!
//! A name is near where it and the one asked for have most of their bytes in common at either end, or where one is a
//! part of the other. Of few names all are told.

/// SimilarNames told, at most.
const NAMES_MAX: usize = 5;
/// Shorter names are parts of too many others.
const PART_BYTES_MIN: usize = 3;

/// The names met that are nearest to one.
#[derive(Debug, Clone)]
pub struct SimilarNames {
    wanted: String,
    /// The nearest ones, with how like they are.
    near: Vec<(usize, String)>,
    /// The first ones.
    first: Vec<String>,
    count: u64,
}

impl SimilarNames {
    /// None yet.
    pub fn new(wanted: &str) -> Self {
        SimilarNames { wanted: wanted.into(), near: Vec::new(), first: Vec::new(), count: 0 }
    }

    /// Another name.
    pub fn note(&mut self, name: &str) {
        self.count += 1;
        if self.first.len() < NAMES_MAX {
            self.first.push(name.to_string());
        }
        let likeness = likeness(&self.wanted, name);
        if likeness == 0 || self.near.iter().any(|near| near.1 == name) {
            return;
        }
        let at = self.near.partition_point(|near| near.0 >= likeness);
        if at < NAMES_MAX {
            self.near.insert(at, (likeness, name.to_string()));
            self.near.truncate(NAMES_MAX);
        }
    }

    /// What to say of them behind "in so many files".
    pub fn hint(&self) -> String {
        let quoted = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        match (self.near.is_empty(), self.count) {
            (false, _) => format!("; similar names: {}", quoted(&mut self.near.iter().map(|near| &near.1))),
            (true, 0) => String::new(),
            (true, 1) => format!(": the only one is called {}", quoted(&mut self.first.iter())),
            (true, count) if count <= NAMES_MAX as u64 => {
                format!(": they are called {}", quoted(&mut self.first.iter()))
            }
            (true, count) => format!(": none of their {count} names is like it"),
        }
    }
}

/// How like two names are: bytes that they have in common at either end, if those are most of the longer name, and
/// the shorter one's where it is in the other; 0 for all else.
fn likeness(wanted: &str, name: &str) -> usize {
    let common = |one: &mut dyn Iterator<Item = (u8, u8)>| one.take_while(|(one, other)| one == other).count();
    let front = common(&mut wanted.bytes().zip(name.bytes()));
    let back = common(&mut wanted.bytes().rev().zip(name.bytes().rev()));
    let (least, most) = (wanted.len().min(name.len()), wanted.len().max(name.len()));
    let both = (front + back).min(least);
    let is_part = least >= PART_BYTES_MIN && (name.contains(wanted) || wanted.contains(name));
    match (2 * both >= most, is_part) {
        (_, true) => least.max(both),
        (true, false) => both,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_more_alike() {
        let wanted = "layer.1.attention.weight";
        assert!(likeness(wanted, "layer.11.attention.weight") > likeness(wanted, "layer.1.attention.bias"));
        assert!(likeness("attention", "layer.1.attention.weight") > likeness("attention", "embeddings"));
        assert!(likeness("layer.weigth", "layer.weight") > 0);
        for (one, other) in [("x", "y"), ("nope", "tree.000.0.feature"), ("e", "tree"), ("w", "layer.weight")] {
            assert_eq!(likeness(one, other), 0, "{one} {other}");
        }
    }

    #[test]
    fn few_names_are_told_and_many_counted() {
        let hint = |wanted: &str, names: &[&str]| {
            let mut all = SimilarNames::new(wanted);
            names.iter().for_each(|name| all.note(name));
            all.hint()
        };
        assert_eq!(hint("w", &[]), "");
        assert_eq!(hint("weights", &["array"]), ": the only one is called `array`");
        assert_eq!(hint("nope", &["a.1", "b.2"]), ": they are called `a.1`, `b.2`");
        assert_eq!(hint("lay.1", &["lay.2", "other"]), "; similar names: `lay.2`");
        let many: Vec<String> = (0..6).map(|number| format!("tree.{number}.feature")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hint("nope", &many), ": none of their 6 names is like it");
    }
}
