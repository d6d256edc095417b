//! Tile grid: which values of a matrix have one scale.

use std::ops::Range;

use crate::error::Result;
use crate::wire::{WireReader, put_varint};

/// Rows and columns of a grid, and values in a row of tiles, at most.
const SIZE_MAX: u64 = 1 << 40;

/// Tiles of a matrix, and where in it the values of a chunk begin. The last tiles of a row may have fewer columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TileGrid {
    /// Values of a row of the matrix.
    columns: u64,
    tile_rows: u64,
    tile_columns: u64,
    /// Number of the first value of the chunk, counted from the first tile that it has values of, or of that row of
    /// tiles.
    first: u64,
}

impl TileGrid {
    /// One tile for all values of a chunk.
    pub(super) const SINGLE: TileGrid = TileGrid { columns: SIZE_MAX, tile_rows: 1, tile_columns: SIZE_MAX, first: 0 };

    /// Tiles of a matrix with rows of `columns` values. The chunk begins at value `position` of the matrix. `None` if a
    /// size is zero or too large.
    pub(super) fn new(columns: u64, [tile_rows, tile_columns]: [u64; 2], position: u64) -> Option<TileGrid> {
        let is_valid = [columns, tile_rows, tile_columns].iter().all(|size| (1..=SIZE_MAX).contains(size));
        let period = columns.checked_mul(tile_rows).filter(|period| is_valid && *period <= SIZE_MAX)?;
        Some(TileGrid { columns, tile_rows, tile_columns, first: position % period })
    }

    /// Runs of values that are neighbours in the chunk and have one scale: the number of the scale, and the values.
    pub(super) fn runs(self, values: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let tiles_of_row = self.tiles_of_row();
        let (mut row, mut column) = (self.first / self.columns, self.first % self.columns);
        // The first tile of this row of tiles, and which of its tiles is next.
        let (mut tile_row, mut tile) = (row / self.tile_rows * tiles_of_row, column / self.tile_columns);
        let mut at = 0usize;
        std::iter::from_fn(move || {
            let rest = values.checked_sub(at).filter(|rest| *rest > 0)? as u64;
            let end = ((tile + 1) * self.tile_columns).min(self.columns);
            let (found, start) = (tile_row + tile, at);
            at += (end - column).min(rest) as usize;
            (column, tile) = (end, tile + 1);
            if end == self.columns {
                (row, column, tile) = (row + 1, 0, 0);
                tile_row += if row.is_multiple_of(self.tile_rows) { tiles_of_row } else { 0 };
            }
            Some((found as usize, start..at))
        })
    }

    /// The runs of the chunk's values with scale `tile`.
    pub(super) fn runs_of(self, tile: usize, values: usize) -> impl Iterator<Item = Range<usize>> {
        let (tile_row, tile_column) = (tile as u64 / self.tiles_of_row(), tile as u64 % self.tiles_of_row());
        let start = tile_column * self.tile_columns;
        let columns = start..(start + self.tile_columns).min(self.columns);
        let end = self.first + values as u64;
        let in_chunk =
            move |row: u64, column: u64| ((row * self.columns + column).clamp(self.first, end) - self.first) as usize;
        let rows = tile_row * self.tile_rows..((tile_row + 1) * self.tile_rows).min(end.div_ceil(self.columns));
        rows.map(move |row| in_chunk(row, columns.start)..in_chunk(row, columns.end)).filter(|run| !run.is_empty())
    }

    /// Whether so many values have one scale.
    pub(super) fn is_one_tile(self, values: usize) -> bool {
        self.runs_of(0, values).map(|run| run.len()).sum::<usize>() == values
    }

    fn tiles_of_row(self) -> u64 {
        self.columns.div_ceil(self.tile_columns)
    }

    /// The number of scales for so many values: all of each row of tiles that has one of the values. `None` if these
    /// are more than the values.
    pub(super) fn scales(self, values: usize) -> Option<usize> {
        let Some(last) = (values as u64).checked_sub(1) else { return Some(0) };
        let rows = self.first.checked_add(last)? / (self.columns * self.tile_rows) + 1;
        let scales = rows.checked_mul(self.tiles_of_row())?;
        (scales <= values as u64).then_some(scales as usize)
    }

    /// Appends the four numbers of the grid.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        [self.columns, self.tile_rows, self.tile_columns, self.first].into_iter().for_each(|one| put_varint(out, one));
    }

    /// Inverse of [`TileGrid::write`].
    pub(super) fn read(reader: &mut WireReader<'_>) -> Result<TileGrid> {
        let columns = reader.bounded("columns", SIZE_MAX)?;
        let tile = [reader.bounded("rows of a tile", SIZE_MAX)?, reader.bounded("columns of a tile", SIZE_MAX)?];
        let first = reader.bounded("first value", SIZE_MAX)?;
        let grid = TileGrid::new(columns, tile, first).filter(|grid| grid.first == first);
        grid.ok_or_else(|| {
            let got = format!("value {first} of rows of {columns} in tiles of {} by {}", tile[0], tile[1]);
            reader.error("a first value inside of a row of tiles", got)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_follow_each_other_and_have_the_tile_of_each_value(
            sizes in [1u64..40, 1u64..6, 1u64..40],
            position in 0u64..10_000,
            values in 0usize..900,
        ) {
            let [columns, tile_rows, tile_columns] = sizes;
            let grid = TileGrid::new(columns, [tile_rows, tile_columns], position).unwrap();
            let mut end = 0;
            let mut tiles = 0;
            let mut of_tiles = std::collections::BTreeMap::<usize, Vec<Range<usize>>>::new();
            for (tile, range) in grid.runs(values) {
                prop_assert!(range.start == end && range.end > end);
                end = range.end;
                of_tiles.entry(tile).or_default().push(range.clone());
                tiles = tiles.max(tile + 1);
                for value in range {
                    let at = position + value as u64;
                    let first_row = position / columns / tile_rows;
                    let tile_row = at / columns / tile_rows - first_row;
                    let of_row = columns.div_ceil(tile_columns);
                    prop_assert_eq!(tile as u64, tile_row * of_row + at % columns / tile_columns);
                }
            }
            prop_assert_eq!(end, values);
            for tile in 0..tiles + 2 {
                let runs: Vec<_> = grid.runs_of(tile, values).collect();
                prop_assert_eq!(runs, of_tiles.remove(&tile).unwrap_or_default());
            }
            match grid.scales(values) {
                Some(scales) => prop_assert!(tiles <= scales && scales <= values),
                None => {
                    let rows = values as u64 / (columns * tile_rows) + 2;
                    prop_assert!(columns.div_ceil(tile_columns) * rows > values as u64);
                }
            }
        }
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for (columns, tile) in [(0, [1, 1]), (1, [0, 1]), (1, [1, 0]), (1 << 41, [1, 1]), (1 << 39, [4, 1])] {
            assert_eq!(TileGrid::new(columns, tile, 0), None, "{columns} {tile:?}");
        }
        for (numbers, is_valid) in [([4, 2, 3, 7], true), ([4, 2, 3, 8], false), ([0, 2, 3, 0], false)] {
            let mut bytes = Vec::new();
            numbers.into_iter().for_each(|number| put_varint(&mut bytes, number));
            assert_eq!(TileGrid::read(&mut WireReader::new("test", 0, &bytes)).is_ok(), is_valid, "{numbers:?}");
        }
        assert_eq!(TileGrid::new(1 << 40, [1, 1], 0).unwrap().scales(100), None, "more scales than values");
    }
}
