//! Graphs: nodes in groups, and edges between them. Each group is a circle of nodes, and the groups lie on a circle.

use std::f64::consts::TAU;

use fhrd::error::Result;
use plotters::prelude::*;

use super::plot::{Area, colour, failed, legend};

/// A graph.
#[derive(Debug, Clone, Default)]
pub struct GraphPlot {
    /// Title above the plot.
    pub title: String,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// The group of each node.
    pub nodes: Vec<usize>,
    /// Pairs of nodes that are connected.
    pub edges: Vec<(usize, usize)>,
}

/// Centre of the graph, pixels.
const CENTRE: (f64, f64) = (410.0, 190.0);
/// Distance of the centres of groups from it, pixels.
const SPREAD: (f64, f64) = (280.0, 120.0);
/// Radius of the largest group, pixels.
const RADIUS: f64 = 62.0;

impl GraphPlot {
    /// Position of each node, pixels.
    fn positions(&self) -> Vec<(i32, i32)> {
        let on_circle = |number: usize, of: usize| {
            let angle = TAU * number as f64 / of.max(1) as f64;
            (angle.cos(), angle.sin())
        };
        let members = |group: usize| self.nodes.iter().filter(|other| **other == group).count();
        let largest = (0..self.groups.len()).map(members).max().unwrap_or(1).max(1) as f64;
        let mut placed = vec![0; self.groups.len()];
        let mut position = |group: &usize| {
            let count = members(*group);
            let rank = placed.get_mut(*group).map_or(0, |rank| std::mem::replace(rank, *rank + 1));
            let (middle, own) = (on_circle(*group, self.groups.len()), on_circle(rank, count));
            let radius = if count > 1 { RADIUS * (count as f64 / largest).sqrt() } else { 0.0 };
            let spread = if self.groups.len() > 1 { SPREAD } else { (0.0, 0.0) };
            let x = CENTRE.0 + spread.0 * middle.0 + radius * own.0;
            let y = CENTRE.1 + spread.1 * middle.1 + radius * own.1;
            (x.round() as i32, y.round() as i32)
        };
        self.nodes.iter().map(&mut position).collect()
    }

    pub(super) fn draw(&self, area: &Area<'_>, side: &Area<'_>) -> Result<()> {
        let positions = self.positions();
        for (one, other) in &self.edges {
            let (Some(from), Some(to)) = (positions.get(*one), positions.get(*other)) else { continue };
            let is_within = self.nodes.get(*one) == self.nodes.get(*other);
            let ink = if is_within { RGBColor(170, 170, 170) } else { RGBColor(214, 39, 40) };
            area.draw(&PathElement::new(vec![*from, *to], ink.stroke_width(1))).map_err(failed)?;
        }
        for (position, group) in positions.iter().zip(&self.nodes) {
            area.draw(&Circle::new(*position, 5, colour(*group).filled())).map_err(failed)?;
        }
        legend(side, self.groups.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plot;
    use super::*;

    #[test]
    fn nodes_of_a_group_are_near_and_edges_are_drawn_once() {
        let groups = vec!["a".to_string(), "b".into()];
        let graph = GraphPlot {
            groups,
            nodes: vec![0, 0, 1, 1, 0],
            edges: vec![(0, 1), (1, 2), (9, 0)],
            ..GraphPlot::default()
        };
        let positions = graph.positions();
        let far = |one: usize, other: usize| (positions[one].0 - positions[other].0).abs();
        assert!(far(0, 1).max(far(0, 4)) < far(0, 2).min(far(1, 3)), "{positions:?}");
        let svg = Plot::Graph(graph).svg().unwrap();
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (5, 2), "{svg}");
        assert!(Plot::Graph(GraphPlot::default()).svg().unwrap().contains("</svg>"));
    }
}
