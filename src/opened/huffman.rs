//! Builders of code lengths as common writers of deflate have them.
//!
//! All give shortest codes; they differ where counts are equal and where a code would be too long.

use std::cmp::Ordering;

/// Whose way it is to build the codes of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Builder {
    /// zlib, GNU gzip, Info-ZIP, zlib-ng.
    #[default]
    Zlib,
    /// Go compress/flate.
    Go,
    /// miniz and its descendants.
    Miniz,
}

impl Builder {
    /// All of them, by their numbers in the corrections.
    pub(super) const ALL: [Builder; 3] = [Builder::Zlib, Builder::Go, Builder::Miniz];

    /// Whether a run of equal lengths may cross from literals to distances.
    pub(super) fn runs_cross(self) -> bool {
        self != Builder::Zlib
    }
}

/// Lengths of codes for symbols with these counts, none above `max` bits; 0 for a symbol without a code.
pub(super) fn limited_lengths(builder: Builder, counts: &[u32], max: usize) -> Vec<u8> {
    match builder {
        Builder::Zlib => zlib_lengths(counts, max),
        Builder::Go => by_rank(counts, max, go_numbers),
        Builder::Miniz => by_rank(counts, max, miniz_numbers),
    }
}

/// Builds the tree with a heap whose order is (count, depth, position), at least two codes, and mends
/// codes that are too long as zlib does.
fn zlib_lengths(counts: &[u32], max: usize) -> Vec<u8> {
    let elements = counts.len();
    let mut heap = Heap { nodes: Vec::with_capacity(elements), counts: counts.to_vec(), depths: vec![0; elements] };
    let used = |heap: &Heap| heap.nodes.last().map(|&node| node as usize);
    for (symbol, &count) in counts.iter().enumerate() {
        if count > 0 {
            heap.nodes.push(symbol as u32);
        }
    }
    let mut top = used(&heap);
    while heap.nodes.len() < 2 {
        let forced = match top {
            Some(symbol) if symbol >= 2 => 0,
            Some(symbol) => symbol + 1,
            None => 0,
        };
        if forced != 0 || top.is_none() {
            top = Some(forced);
        }
        heap.counts[forced] = 1;
        heap.nodes.push(forced as u32);
    }
    let top = top.unwrap_or(0);
    for at in (0..heap.nodes.len() / 2).rev() {
        heap.sift_down(at);
    }
    // Nodes from the root down, each after its parent.
    let mut order = Vec::with_capacity(2 * elements);
    let mut parents = vec![0u32; 2 * elements];
    while heap.nodes.len() > 1 {
        let least = heap.pop();
        let second = heap.nodes[0];
        let node = heap.counts.len() as u32;
        heap.counts.push(heap.counts[least as usize] + heap.counts[second as usize]);
        heap.depths.push(heap.depths[least as usize].max(heap.depths[second as usize]) + 1);
        parents[least as usize] = node;
        parents[second as usize] = node;
        order.extend([least, second]);
        heap.nodes[0] = node;
        heap.sift_down(0);
    }
    order.push(heap.nodes[0]);
    order.reverse();
    limit_zlib(&order, &parents, elements, top, max)
}

/// Gives the nodes of `order` their lengths, those that are too long as zlib does.
fn limit_zlib(order: &[u32], parents: &[u32], elements: usize, top: usize, max: usize) -> Vec<u8> {
    let mut lengths = vec![0u8; parents.len()];
    let mut numbers = vec![0u32; max + 1];
    let mut overflow = 0i32;
    for &node in &order[1..] {
        let length = usize::from(lengths[parents[node as usize] as usize]) + 1;
        if length > max {
            overflow += 1;
        }
        lengths[node as usize] = length.min(max) as u8;
        if node as usize <= top.min(elements - 1) {
            numbers[length.min(max)] += 1;
        }
    }
    if overflow > 0 {
        while overflow > 0 {
            let Some(length) = (1..max).rev().find(|&length| numbers[length] > 0) else { break };
            numbers[length] -= 1;
            numbers[length + 1] += 2;
            numbers[max] -= 1;
            overflow -= 2;
        }
        let mut leaves = order.iter().rev().filter(|&&node| (node as usize) < elements);
        for length in (1..=max).rev() {
            for _ in 0..numbers[length] {
                if let Some(&leaf) = leaves.next() {
                    lengths[leaf as usize] = length as u8;
                }
            }
        }
    }
    lengths.truncate(elements);
    lengths
}

/// Heap of nodes, the least on top.
struct Heap {
    nodes: Vec<u32>,
    counts: Vec<u32>,
    depths: Vec<u32>,
}

impl Heap {
    fn order(&self, one: u32, other: u32) -> Ordering {
        let key = |node: u32| (self.counts[node as usize], self.depths[node as usize]);
        key(one).cmp(&key(other))
    }

    fn sift_down(&mut self, mut at: usize) {
        let node = self.nodes[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.nodes.len() {
                break;
            }
            if child + 1 < self.nodes.len() && self.order(self.nodes[child + 1], self.nodes[child]).is_le() {
                child += 1;
            }
            if self.order(node, self.nodes[child]).is_le() {
                break;
            }
            self.nodes[at] = self.nodes[child];
            at = child;
        }
        self.nodes[at] = node;
    }

    fn pop(&mut self) -> u32 {
        let top = self.nodes.swap_remove(0);
        if !self.nodes.is_empty() {
            self.sift_down(0);
        }
        top
    }
}

/// Gives the shortest codes to the most frequent symbols, the later one first where counts are equal.
/// `numbers_of(sorted counts, max)` says how many codes of each length there are.
fn by_rank(counts: &[u32], max: usize, numbers_of: fn(&[u32], usize) -> Vec<usize>) -> Vec<u8> {
    let mut ranked: Vec<usize> = (0..counts.len()).filter(|&symbol| counts[symbol] > 0).collect();
    ranked.sort_by_key(|&symbol| counts[symbol]);
    let sorted: Vec<u32> = ranked.iter().map(|&symbol| counts[symbol]).collect();
    let mut lengths = vec![0; counts.len()];
    let mut rest = ranked.iter().rev();
    for (length, &number) in numbers_of(&sorted, max).iter().enumerate() {
        for &symbol in rest.by_ref().take(number) {
            lengths[symbol] = length as u8;
        }
    }
    lengths
}

/// Numbers of codes by length, from packages of the least counts, a package before a leaf where both are equal.
fn go_numbers(sorted: &[u32], max: usize) -> Vec<usize> {
    if sorted.len() <= 2 {
        return vec![0, sorted.len()];
    }
    let levels = max.min(sorted.len() - 1);
    // Of each level, whether its items in order are leaves.
    let mut leaves: Vec<Vec<bool>> = Vec::with_capacity(levels);
    let mut below: Vec<u64> = Vec::new();
    for _ in 0..levels {
        let mut pairs = below.chunks_exact(2).map(|pair| pair[0] + pair[1]).peekable();
        let mut singles = sorted.iter().map(|&count| u64::from(count)).peekable();
        let mut items = Vec::with_capacity(2 * sorted.len());
        let mut kinds = Vec::with_capacity(2 * sorted.len());
        while let Some(item) = match (singles.peek(), pairs.peek()) {
            (Some(single), Some(pair)) if single < pair => singles.next(),
            (Some(_), None) => singles.next(),
            _ => pairs.next().inspect(|_| kinds.push(false)),
        } {
            if kinds.len() == items.len() {
                kinds.push(true);
            }
            items.push(item);
        }
        below = items;
        leaves.push(kinds);
    }
    let mut numbers = vec![0; levels + 1];
    let mut taken = 2 * sorted.len() - 2;
    let mut before = None;
    for (depth, kinds) in leaves.iter().rev().enumerate() {
        let singles = kinds.iter().take(taken).filter(|&&leaf| leaf).count();
        if let Some(before) = before {
            numbers[depth] = before - singles;
        }
        before = Some(singles);
        taken = 2 * (taken.min(kinds.len()) - singles);
    }
    numbers[levels] = before.unwrap_or(0);
    numbers
}

/// Numbers of codes by length, from a tree that takes a leaf before a node where both are equal; codes that
/// are too long are shortened and others lengthened until the code is complete.
fn miniz_numbers(sorted: &[u32], max: usize) -> Vec<usize> {
    let used = sorted.len();
    if used <= 1 {
        return vec![0, used];
    }
    let mut sums: Vec<u64> = Vec::with_capacity(used);
    let mut parents = vec![0usize; 2 * used];
    let (mut leaf, mut node) = (0, 0);
    for made in 0..used - 1 {
        let mut sum = 0;
        for _ in 0..2 {
            if leaf >= used || node < made && sums[node] < u64::from(sorted[leaf]) {
                sum += sums[node];
                parents[used + node] = made;
                node += 1;
            } else {
                sum += u64::from(sorted[leaf]);
                parents[leaf] = made;
                leaf += 1;
            }
        }
        sums.push(sum);
    }
    let mut depths = vec![0usize; used - 1];
    let mut numbers = vec![0usize; max + 1];
    for node in (0..used - 2).rev() {
        depths[node] = depths[parents[used + node]] + 1;
    }
    for &parent in &parents[..used] {
        numbers[(depths[parent] + 1).min(max)] += 1;
    }
    let mut total: usize = (1..=max).map(|length| numbers[length] << (max - length)).sum();
    while total > 1 << max {
        numbers[max] -= 1;
        if let Some(length) = (1..max).rev().find(|&length| numbers[length] > 0) {
            numbers[length] -= 1;
            numbers[length + 1] += 2;
        }
        total -= 1;
    }
    numbers
}
