//! Where the rows of a tensor begin in one of its blocks.

/// Rows of a tensor in a block of it. A row is the last dimension: quantisers give scales to rows, or to equal parts of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ElementRows {
    /// Elements of a row; 0 if rows are not known.
    pub elements: u32,
    /// Elements of the block before the first beginning of a row.
    pub first: u32,
}

impl ElementRows {
    /// Rows of so many elements in a block that begins `offset` elements after the first of its tensor.
    pub fn of_block(elements: u64, offset: u64) -> ElementRows {
        match u32::try_from(elements) {
            Ok(elements) if elements > 0 => {
                let inside = (offset % u64::from(elements)) as u32;
                ElementRows { elements, first: (elements - inside) % elements }
            }
            _ => ElementRows::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_block_begin_where_those_of_its_tensor_do() {
        assert_eq!(ElementRows::of_block(384, 0), ElementRows { elements: 384, first: 0 });
        assert_eq!(ElementRows::of_block(384, 1000), ElementRows { elements: 384, first: 152 });
        assert_eq!(ElementRows::of_block(384, 768), ElementRows { elements: 384, first: 0 });
        assert_eq!([0, 1 << 40].map(|elements| ElementRows::of_block(elements, 5)), [ElementRows::default(); 2]);
    }
}
