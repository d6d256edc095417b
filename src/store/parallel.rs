//! Several requests at once, for steps that would otherwise wait for one after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::error::Result;

/// Calls `work` for each item, `at_once` at a time, and returns the results in the order of the items. With 1, as for a
/// local store, everything happens in this thread.
pub fn map_parallel<T: Sync, R: Send>(at_once: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = at_once.min(items.len());
    if workers <= 1 {
        return items.iter().map(work).collect();
    }
    let next = Mutex::new(items.iter().enumerate());
    let take = || next.lock().next();
    let run = || {
        let mut done = Vec::new();
        while let Some((at, item)) = take() {
            done.push((at, work(item)));
        }
        done
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let helpers: Vec<_> =
            (1..workers).filter_map(|_| thread::Builder::new().spawn_scoped(scope, run).ok()).collect();
        let mut done = run();
        for helper in helpers {
            match helper.join() {
                Ok(part) => done.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Like [`map_parallel`], for work that can fail. After a failure no other item is begun: during an outage each of them
/// would wait for its own retries.
///
/// # Errors
/// The first failure, in the order of the items.
pub fn try_map_parallel<T: Sync, R: Send>(
    at_once: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let has_failed = AtomicBool::new(false);
    let done = map_parallel(at_once, items, |item| {
        let is_wanted = !has_failed.load(Ordering::Relaxed);
        is_wanted.then(|| work(item).inspect_err(|_| has_failed.store(true, Ordering::Relaxed)))
    });
    // What was not begun has no result, and then there is a failure.
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use crate::error::Error;

    use super::*;

    #[test]
    fn results_are_in_order_and_requests_overlap() {
        for most_wanted in [1, 8] {
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let items: Vec<u64> = (0..40).collect();
            let squares = map_parallel(most_wanted, &items, |item| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis((item * 7) % 11));
                now.fetch_sub(1, Ordering::SeqCst);
                item * item
            });
            assert_eq!(squares, items.iter().map(|item| item * item).collect::<Vec<_>>());
            let most = most.load(Ordering::SeqCst);
            assert!(most <= most_wanted && (most > 1) == (most_wanted > 1), "{most} of {most_wanted}");
        }
        assert!(map_parallel(8, &[] as &[u8], |item| *item).is_empty());
    }

    #[test]
    fn a_failure_ends_the_work() {
        for at_once in [1, 8] {
            let (items, begun) = ((0..1000).collect::<Vec<u32>>(), AtomicUsize::new(0));
            let done = try_map_parallel(at_once, &items, |item| {
                begun.fetch_add(1, Ordering::SeqCst);
                if *item == 5 {
                    return Err(Error::Interrupted);
                }
                thread::sleep(Duration::from_millis(1));
                Ok(*item)
            });
            assert!(matches!(done, Err(Error::Interrupted)));
            assert!(begun.load(Ordering::SeqCst) < 900, "{begun:?} items were begun with {at_once} at once");
            assert_eq!(try_map_parallel(at_once, &items, |item| Ok(*item)).unwrap(), items);
        }
    }
}
