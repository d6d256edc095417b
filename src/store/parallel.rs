//! Several requests at once, for steps that would otherwise wait for one after the other.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Calls `work` for each item, `at_once` at a time, and returns the results in the order of the items. With 1, as for a
/// local store, everything happens in this thread.
pub fn map_parallel<T: Sync, R: Send>(at_once: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = at_once.min(items.len());
    if workers <= 1 {
        return items.iter().map(work).collect();
    }
    let next = Mutex::new(items.iter().enumerate());
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

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
}
