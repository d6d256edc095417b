//! Tests of restore caches: small recipes with known results, and inequalities for any recipe.

use proptest::prelude::*;

use super::*;

fn recipe_of(containers: &[u32]) -> Vec<RecipeChunk> {
    containers.iter().map(|container| RecipeChunk { container: *container, bytes: 10 }).collect()
}

fn read(name: &str, containers: &[u32], cache: usize) -> u64 {
    containers_read(name, &recipe_of(containers), CacheSize { containers: cache, container_bytes: 20 })
}

#[test]
fn small_recipes_have_known_counts() {
    let uses = [1, 2, 3, 1, 2, 3, 1, 1];
    // A cache of two always evicts the container that is needed next.
    assert_eq!(read("lru", &uses, 2), 7);
    assert_eq!(read("lru", &uses, 3), 3);
    // 1 2; 3 evicts 2; 1 hits; 2 evicts 1, whose use is last; 3 hits; 1 evicts any.
    assert_eq!(read("belady", &uses, 2), 5);
    assert_eq!(read("belady", &uses, 3), 3);
    assert_eq!(read("belady", &uses, 1), 7);
    // Areas of two chunks: 12 31 23 11; of four: 1231 2311.
    assert_eq!(read("forward-assembly", &uses, 2), 7);
    assert_eq!(read("forward-assembly", &uses, 3), 6);
    assert_eq!(read("forward-assembly", &uses, 9), 3);
    for (name, _) in RESTORE_CACHES {
        assert_eq!(read(name, &[], 2), 0);
    }
}

#[test]
fn a_chunk_larger_than_the_area_is_restored_alone() {
    let recipe = [5, 100, 5].map(|bytes| RecipeChunk { container: 1, bytes });
    assert_eq!(containers_read("forward-assembly", &recipe, CacheSize { containers: 2, container_bytes: 20 }), 3);
}

/// The fewest reads, by trying to evict every container.
fn fewest(uses: &[u32], cache: &[u32], size: usize) -> u64 {
    let Some((first, rest)) = uses.split_first() else { return 0 };
    if cache.contains(first) {
        return fewest(rest, cache, size);
    }
    if cache.len() < size {
        return 1 + fewest(rest, &[cache, &[*first]].concat(), size);
    }
    let without = |dropped: usize| {
        let remaining: Vec<u32> = cache.iter().enumerate().filter(|(at, _)| *at != dropped).map(|(_, c)| *c).collect();
        fewest(rest, &[&remaining[..], &[*first]].concat(), size)
    };
    1 + (0..cache.len()).map(without).min().unwrap_or(0)
}

proptest! {
    #[test]
    fn no_cache_of_containers_reads_fewer_than_beladys(
        uses in prop::collection::vec(0u32..6, 0..12),
        size in 1usize..4,
    ) {
        prop_assert_eq!(read("belady", &uses, size), fewest(&uses, &[], size));
    }

    #[test]
    fn more_memory_and_more_knowledge_never_read_more(
        uses in prop::collection::vec(0u32..40, 0..300),
        size in 2usize..20,
    ) {
        let distinct = uses.iter().collect::<std::collections::HashSet<_>>().len() as u64;
        for name in ["lru", "belady"] {
            prop_assert!(read(name, &uses, size + 1) <= read(name, &uses, size));
        }
        prop_assert!(read("belady", &uses, size) <= read("lru", &uses, size));
        for (name, _) in RESTORE_CACHES {
            let read = read(name, &uses, size);
            prop_assert!(distinct <= read && read <= uses.len() as u64, "{} {}", name, read);
        }
    }
}
