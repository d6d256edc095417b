//! A treemap as SVG: groups with a head, and tiles in them, with names where they fit.

use maud::{Markup, html};

use super::picture::{PictureSize, fitting_name, picture, whole};
use super::squarify::{TileBox, squarified};
use crate::text::{printable, size};

/// Height of the head of a group.
const HEAD: f64 = 20.0;
/// A group that is smaller has no head.
const HEAD_BOX_MIN: (f64, f64) = (48.0, 44.0);
/// Sizes of the fonts of names and of what is below them.
const FONTS: (f64, f64) = (13.0, 12.0);
/// Space beside a text.
const PADDING: f64 = 6.0;
/// Smaller tiles are not drawn.
const TILE_SIDE_MIN: f64 = 0.5;

/// What has an area.
#[derive(Debug, Clone, PartialEq)]
pub struct MapTile {
    /// Its name.
    pub name: String,
    /// Its area: stored bytes.
    pub stored: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Class of its colour.
    pub colour: &'static str,
}

/// Tiles that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct MapGroup {
    /// Its name; empty if its tiles stand alone.
    pub name: String,
    /// Its tiles, the largest first.
    pub tiles: Vec<MapTile>,
}

impl MapGroup {
    fn stored(&self) -> u64 {
        self.tiles.iter().map(|tile| tile.stored).fold(0, u64::saturating_add)
    }
}

/// Draws the groups, the largest first. Nothing if all are empty.
pub fn treemap(id: &str, title: &str, groups: &[MapGroup], picture_size: PictureSize) -> Markup {
    let sizes: Vec<f64> = groups.iter().map(|group| group.stored() as f64).collect();
    let all = TileBox { x: 0.0, y: 0.0, width: picture_size.width, height: picture_size.height };
    let boxes = squarified(&sizes, all);
    let largest = groups.iter().flat_map(|group| &group.tiles).max_by_key(|tile| tile.stored);
    let largest =
        largest.map_or_else(String::new, |tile| format!(" The largest is {}, {}.", tile.name, size(tile.stored)));
    let description = format!("Areas are stored bytes.{largest} The table below has all numbers.");
    let content = html! { @for (group, area) in groups.iter().zip(boxes) { (drawn_group(group, area)) } };
    picture(id, title, &description, picture_size, &content)
}

fn drawn_group(group: &MapGroup, area: TileBox) -> Markup {
    let has_head = !group.name.is_empty() && area.width >= HEAD_BOX_MIN.0 && area.height >= HEAD_BOX_MIN.1;
    let inner = if has_head { area.inside(1.5, HEAD) } else { area };
    let sizes: Vec<f64> = group.tiles.iter().map(|tile| tile.stored as f64).collect();
    let boxes = squarified(&sizes, inner);
    let total = size(group.stored());
    let head = has_head.then(|| {
        let free = area.width - 2.0 * PADDING;
        whole(&format!("{} · {total}", group.name), free, FONTS.0).or_else(|| fitting_name(&group.name, free, FONTS.0))
    });
    html! {
        @if let Some(text) = head.flatten() {
            g {
                title { (printable(&format!("{}: {total} stored", group.name))) }
                text.head x=(at(area.x + PADDING)) y=(at(area.y + 15.0)) font-size=(FONTS.0) { (text) }
            }
        }
        @for (tile, area) in group.tiles.iter().zip(boxes) { (drawn_tile(&group.name, tile, area)) }
    }
}

fn drawn_tile(group: &str, tile: &MapTile, area: TileBox) -> Markup {
    if area.width < TILE_SIDE_MIN || area.height < TILE_SIDE_MIN {
        return Markup::default();
    }
    let (stored, bytes) = (size(tile.stored), size(tile.bytes));
    let group = if group.is_empty() { String::new() } else { format!("{group}: ") };
    let free = area.width - 2.0 * PADDING;
    let name = (area.height >= FONTS.0 + PADDING).then(|| fitting_name(&tile.name, free, FONTS.0)).flatten();
    let below = (area.height >= FONTS.0 + FONTS.1 + 2.0 * PADDING).then(|| {
        let both = whole(&format!("{stored} of {bytes}"), free, FONTS.1);
        both.or_else(|| whole(&stored, free, FONTS.1))
    });
    html! {
        g {
            title { (printable(&format!("{group}{}: {stored} stored of {bytes}", tile.name))) }
            rect class={ "tile " (tile.colour) } x=(at(area.x)) y=(at(area.y)) width=(at(area.width)) height=(at(area.height)) {}
            // A picture in the picture cuts off what does not fit after all.
            @if let Some(name) = name {
                svg x=(at(area.x)) y=(at(area.y)) width=(at(area.width - 1.0)) height=(at(area.height)) {
                    text.label x=(PADDING) y=(at(PADDING + FONTS.0 * 0.8)) font-size=(FONTS.0) { (name) }
                    @if let Some(below) = below.flatten() {
                        text.below x=(PADDING) y=(at(PADDING + FONTS.0 * 0.8 + FONTS.1 * 1.3)) font-size=(FONTS.1) {
                            (below)
                        }
                    }
                }
            }
        }
    }
}

/// A coordinate with a tenth of a unit.
pub fn at(value: f64) -> String {
    format!("{value:.1}")
}
