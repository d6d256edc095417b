//! Distances of all pairs as a matrix, and as a graph of the pairs below a threshold (ZipLLM, figure 4).

use std::path::Path;

use fhrd::model::THRESHOLD;
use serde_json::{Value, json};

use super::{Member, ModelPair, ThresholdBench};
use crate::report::{GraphPlot, HeatMap, Plot};

/// A matrix of more models has no readable names.
const NAMED_MAX: usize = 40;

/// A line for each group of pairs, with its smallest, mean and largest distance.
pub(super) fn lines(pairs: &[ModelPair]) -> Vec<Value> {
    let mut lines = Vec::new();
    for (is_made, scope) in [(false, "real pairs"), (true, "made pairs")] {
        for (is_family, relation) in [(true, "one family"), (false, "two families")] {
            let of_it = || pairs.iter().filter(|pair| (pair.is_made, pair.is_family) == (is_made, is_family));
            let bits = || of_it().map(|pair| pair.bits);
            let count = bits().count();
            if count == 0 {
                continue;
            }
            let below = bits().filter(|bits| *bits < THRESHOLD).count();
            lines.push(json!({
                "set": scope, "method": relation, "pairs": count,
                "smallest": bits().fold(f64::MAX, f64::min), "largest": bits().fold(0.0, f64::max),
                "mean": bits().sum::<f64>() / count as f64, "connected": below as f64 / count as f64,
            }));
        }
    }
    lines
}

/// The matrix and the graph.
pub(super) fn plots(config: &ThresholdBench, members: &[Member], pairs: &[ModelPair]) -> Vec<Plot> {
    let name = |member: &Member| {
        let path = Path::new(&member.model.label);
        let directory = path.parent().and_then(Path::file_name).unwrap_or(path.as_os_str());
        let family = config.family.get(member.family).map_or("", |family| family.models.name.as_str());
        if member.is_made {
            format!("{family}, {}", directory.to_string_lossy())
        } else {
            directory.to_string_lossy().into_owned()
        }
    };
    let names: Vec<String> = match members.len() <= NAMED_MAX {
        true => members.iter().map(name).collect(),
        false => members.iter().map(|_| String::new()).collect(),
    };
    let mut cells = vec![vec![None; members.len()]; members.len()];
    for (at, row) in cells.iter_mut().enumerate() {
        row.get_mut(at).into_iter().for_each(|cell| *cell = Some(0.0));
    }
    for pair in pairs {
        for (row, column) in [pair.members, (pair.members.1, pair.members.0)] {
            let cell = cells.get_mut(row).and_then(|row| row.get_mut(column));
            cell.into_iter().for_each(|cell| *cell = Some(pair.bits));
        }
    }
    let matrix = HeatMap {
        title: "Bit distance of all pairs of models".into(),
        unit: "bits".into(),
        columns: (1..=names.len()).map(|number| number.to_string()).collect(),
        rows: names,
        cells,
        ..HeatMap::default()
    };
    let graph = GraphPlot {
        title: format!("Pairs of models below {THRESHOLD} bits; edges between families are red"),
        groups: config.family.iter().map(|family| family.models.name.clone()).collect(),
        nodes: members.iter().map(|member| member.family).collect(),
        edges: pairs.iter().filter(|pair| pair.bits < THRESHOLD).map(|pair| pair.members).collect(),
    };
    vec![Plot::HeatMap(matrix), Plot::Graph(graph)]
}
