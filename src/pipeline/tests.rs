//! The runner under injected delays: order, completeness, failures of each stage, bounded queues, interruption.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Emit, Map, Pipeline, Sink, Source, Stage, Weigh};
use crate::error::{Error, Result};
use crate::metrics::StageMetrics;

/// A run that takes longer than this counts as hung.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs `body` on its own thread and fails if it does not return in time.
fn watched<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || done.send(body()));
    wait.recv_timeout(WATCHDOG).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Random pauses, from none to a few hundred microseconds.
#[derive(Clone)]
struct Delays(u64);

impl Delays {
    fn new(seed: u64) -> Self {
        Delays(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pause(&mut self) {
        match self.next() % 16 {
            0 => thread::sleep(Duration::from_micros(self.next() % 300)),
            1..4 => thread::yield_now(),
            _ => {}
        }
    }
}

/// The item at which a test stage fails, and how.
#[derive(Clone, Copy, PartialEq, Debug)]
enum InjectedFailure {
    None,
    Fails(u64),
    Panics(u64),
}

impl InjectedFailure {
    fn at(self, name: &str, item: u64) -> Result<()> {
        match self {
            InjectedFailure::Fails(when) if when == item => Err(Error::Usage(format!("{name} failed"))),
            InjectedFailure::Panics(when) if when == item => panic!("{name} fell over at {item}"),
            _ => Ok(()),
        }
    }
}

/// Behaviour of a test stage of any kind: delays and an injected failure.
#[derive(Clone)]
struct TestStage {
    name: &'static str,
    delays: Delays,
    failure: InjectedFailure,
    /// Number of items to emit, if it is a source.
    count: u64,
    /// Items received, if it is a sink.
    seen: Vec<u64>,
}

fn test_stage(name: &'static str, seed: u64, failure: InjectedFailure) -> TestStage {
    TestStage { name, delays: Delays::new(seed), failure, count: 0, seen: Vec::new() }
}

struct TestSource(TestStage);
struct TestSingle(TestStage);
struct TestMap(TestStage);
struct TestSink(TestStage);

impl Source for TestSource {
    type Out = u64;
    fn name(&self) -> &'static str {
        self.0.name
    }
    fn run(&mut self, emit: &mut Emit<u64>) -> Result<()> {
        for item in 0..self.0.count {
            self.0.delays.pause();
            self.0.failure.at(self.0.name, item)?;
            emit.emit(item)?;
        }
        Ok(())
    }
}

/// Emits each item `item % 3` times, and 1000 at the end.
impl Stage for TestSingle {
    type In = u64;
    type Out = u64;
    fn name(&self) -> &'static str {
        self.0.name
    }
    fn process(&mut self, input: u64, emit: &mut Emit<u64>) -> Result<()> {
        self.0.delays.pause();
        self.0.failure.at(self.0.name, input)?;
        (0..input % 3).try_for_each(|_| emit.emit(input))
    }
    fn finish(&mut self, emit: &mut Emit<u64>) -> Result<()> {
        emit.emit(1000)
    }
}

impl Map for TestMap {
    type In = u64;
    type Out = u64;
    fn name(&self) -> &'static str {
        self.0.name
    }
    fn map(&mut self, input: u64) -> Result<u64> {
        self.0.delays.pause();
        self.0.failure.at(self.0.name, input)?;
        Ok(input)
    }
}

impl Sink for TestSink {
    type In = u64;
    type Output = Vec<u64>;
    fn name(&self) -> &'static str {
        self.0.name
    }
    fn process(&mut self, input: u64) -> Result<()> {
        self.0.delays.pause();
        self.0.failure.at(self.0.name, input)?;
        self.0.seen.push(input);
        Ok(())
    }
    fn finish(self) -> Result<Vec<u64>> {
        Ok(self.0.seen)
    }
}

const NAMES: [&str; 5] = ["read", "cut", "hash", "pack", "save"];

/// read → cut (one owner) → hash (`workers.0`) → pack (`workers.1`) → save, with the given failure of each stage.
fn chain(count: u64, workers: (usize, usize), depth: usize, seed: u64, failures: [InjectedFailure; 5]) -> RunResult {
    let mut pipeline = Pipeline::new(depth, Arc::default());
    let source = TestSource(TestStage { count, ..test_stage(NAMES[0], seed, failures[0]) });
    let link = pipeline.source(source);
    let link = pipeline.stage(link, TestSingle(test_stage(NAMES[1], seed + 1, failures[1])));
    let mut worker_seed = seed + 10;
    let mut map = |at: usize| {
        worker_seed += 1;
        TestMap(test_stage(NAMES[at], worker_seed, failures[at]))
    };
    let link = pipeline.parallel(link, workers.0, || map(2));
    let link = pipeline.parallel(link, workers.1, || map(3));
    pipeline.run(link, TestSink(test_stage(NAMES[4], seed + 2, failures[4])))
}

type RunResult = Result<(Vec<u64>, Vec<StageMetrics>)>;

fn expected(count: u64) -> Vec<u64> {
    let repeated = (0..count).flat_map(|item| (0..item % 3).map(move |_| item));
    repeated.chain([1000]).collect()
}

const NO_FAILURES: [InjectedFailure; 5] = [InjectedFailure::None; 5];

#[test]
fn items_arrive_complete_and_in_order_for_all_worker_counts() {
    for hash in 1..=6 {
        for pack in [1, 2, 3, 4, 5, 8] {
            for (count, depth) in [(0, 1), (1, 1), (5, 4), (60, 4), (61, 64)] {
                let seed = (hash * 100 + pack) as u64 + count;
                let what = format!("{hash} and {pack} workers, {count} items, depth {depth}");
                let result = watched(&what, move || chain(count, (hash, pack), depth, seed, NO_FAILURES));
                let (seen, metrics) = result.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(seen, expected(count), "{what}");
                let names: Vec<_> = metrics.iter().map(|stage| (stage.name, stage.workers)).collect();
                assert_eq!(names, [("read", 1), ("cut", 1), ("hash", hash), ("pack", pack), ("save", 1)]);
            }
        }
    }
}

#[test]
fn metrics_count_what_went_through() {
    let (seen, metrics) = chain(60, (3, 2), 4, 1, NO_FAILURES).expect("runs");
    let items: Vec<_> = metrics.iter().map(|stage| (stage.items_in, stage.items_out)).collect();
    let sent = seen.len() as u64;
    assert_eq!(items, [(0, 60), (60, sent), (sent, sent), (sent, sent), (sent, 0)]);
    let hash = metrics[2].summary();
    assert_eq!((hash.bytes_in, hash.bytes_out), (sent * 8, sent * 8));
    assert_eq!((hash.service_us.count, hash.receive_wait_us.count, hash.send_wait_us.count), (sent, sent, sent));
    assert!(hash.queue_depth.max >= 1 && hash.queue_depth.max <= 4, "{hash:?}");
}

#[test]
fn an_error_of_any_stage_is_the_result_of_the_run() {
    for round in 0..40 {
        for at in 0..5 {
            let when = [1, 2, 29][round % 3];
            for failure in [InjectedFailure::Fails(when), InjectedFailure::Panics(when)] {
                let workers = ([1, 3, 4][round % 3], [2, 1, 5, 3][round % 4]);
                let what = format!("round {round}, {failure:?} in {}, {workers:?} workers", NAMES[at]);
                let mut failures = NO_FAILURES;
                failures[at] = failure;
                let seed = (round * 5 + at) as u64;
                let result = watched(&what, move || chain(200, workers, 4, seed, failures));
                let error = result.err().unwrap_or_else(|| panic!("{what}: no error"));
                match (failure, &error) {
                    (InjectedFailure::Fails(_), Error::Usage(text)) => {
                        assert_eq!(*text, format!("{} failed", NAMES[at]), "{what}");
                    }
                    (InjectedFailure::Panics(_), Error::StagePanicked { stage, message }) => {
                        assert_eq!(stage, NAMES[at], "{what}");
                        assert_eq!(*message, format!("{stage} fell over at {when}"), "{what}");
                    }
                    _ => panic!("{what}: {error}"),
                }
            }
        }
    }
}

#[test]
fn one_of_two_errors_is_reported_and_never_a_closed_link() {
    for round in 0..200 {
        let mut failures = NO_FAILURES;
        failures[round % 5] = InjectedFailure::Fails(11);
        failures[(round + 1 + round % 4) % 5] = InjectedFailure::Panics(11);
        let result = watched("two errors", move || chain(40, (3, 2), 3, round as u64, failures));
        let error = result.expect_err("must fail");
        assert!(matches!(error, Error::Usage(_) | Error::StagePanicked { .. }), "{error}");
    }
}

#[test]
fn an_error_at_the_end_of_the_stream_is_not_lost() {
    struct FailsToFinish;
    impl Sink for FailsToFinish {
        type In = u64;
        type Output = ();
        fn name(&self) -> &'static str {
            "save"
        }
        fn process(&mut self, _: u64) -> Result<()> {
            Ok(())
        }
        fn finish(self) -> Result<()> {
            Err(Error::Usage("cannot commit".into()))
        }
    }
    let mut pipeline = Pipeline::new(2, Arc::default());
    let link = pipeline.source(TestSource(TestStage { count: 3, ..test_stage("read", 1, InjectedFailure::None) }));
    let error = pipeline.run(link, FailsToFinish).expect_err("must fail");
    assert_eq!(error.to_string(), "cannot commit");
}

#[test]
fn a_stage_that_hides_a_failed_emission_does_not_commit() {
    struct IgnoresErrors;
    impl Source for IgnoresErrors {
        type Out = u64;
        fn name(&self) -> &'static str {
            "ignores"
        }
        fn run(&mut self, emit: &mut Emit<u64>) -> Result<()> {
            (0..50).for_each(|item| drop(emit.emit(item)));
            Ok(())
        }
    }
    for seed in 0..50 {
        let result = watched("ignores", move || {
            let mut pipeline = Pipeline::new(2, Arc::default());
            let link = pipeline.source(IgnoresErrors);
            let link = pipeline.parallel(link, 3, || TestMap(test_stage("hash", seed, InjectedFailure::Fails(7))));
            pipeline.run(link, TestSink(test_stage("save", seed, InjectedFailure::None)))
        });
        assert_eq!(result.expect_err("must fail").to_string(), "hash failed");
    }
}

/// An item that counts the existing items of its type.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Weigh for Counted {
    fn bytes(&self) -> u64 {
        1
    }
}

struct CountedSource<'a> {
    count: u64,
    alive: Arc<AtomicUsize>,
    alive_max: &'a AtomicUsize,
}

impl Source for CountedSource<'_> {
    type Out = Counted;
    fn name(&self) -> &'static str {
        "read"
    }
    fn run(&mut self, emit: &mut Emit<Counted>) -> Result<()> {
        for _ in 0..self.count {
            let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
            self.alive_max.fetch_max(alive, Ordering::SeqCst);
            emit.emit(Counted(Arc::clone(&self.alive)))?;
        }
        Ok(())
    }
}

struct Pass;
impl Map for Pass {
    type In = Counted;
    type Out = Counted;
    fn name(&self) -> &'static str {
        "pass"
    }
    fn map(&mut self, input: Counted) -> Result<Counted> {
        Ok(input)
    }
}

struct SlowSink<'a> {
    taken: &'a AtomicU64,
    finished: &'a AtomicBool,
}

impl Sink for SlowSink<'_> {
    type In = Counted;
    type Output = ();
    fn name(&self) -> &'static str {
        "slow"
    }
    fn process(&mut self, _: Counted) -> Result<()> {
        thread::sleep(Duration::from_millis(1));
        self.taken.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn finish(self) -> Result<()> {
        self.finished.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Runs read → pass (2 workers) → slow with queue depths of 4 and `depth`. The stages borrow from this function.
fn slow_run(count: u64, depth: usize, stop: Arc<AtomicBool>) -> (Result<()>, u64, bool, usize) {
    let (taken, finished, alive_max) = (AtomicU64::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    let alive = Arc::new(AtomicUsize::new(0));
    let mut pipeline = Pipeline::new(4, stop);
    let link = pipeline.source(CountedSource { count, alive: Arc::clone(&alive), alive_max: &alive_max });
    let link = pipeline.parallel(link, 2, || Pass);
    pipeline.set_queue_depth(depth);
    let result = pipeline.run(link, SlowSink { taken: &taken, finished: &finished }).map(|_| ());
    assert_eq!(alive.load(Ordering::SeqCst), 0, "items are dropped with the links");
    (result, taken.into_inner(), finished.into_inner(), alive_max.into_inner())
}

#[test]
fn a_slow_sink_bounds_the_items_in_flight() {
    for (depth, at_least) in [(4, 4), (40, 13)] {
        let (result, taken, finished, alive_max) = watched("slow sink", move || slow_run(200, depth, Arc::default()));
        result.expect("runs");
        assert!(finished && taken == 200);
        // One item in the source, `depth` in each link, one in each worker, one in the sink.
        assert!((at_least..=1 + 4 + 2 + depth + 1).contains(&alive_max), "{alive_max} items in flight, {depth}");
    }
}

#[test]
fn the_stop_flag_ends_a_blocked_run_without_a_commit() {
    for wait_ms in [0, 1, 5, 20] {
        let stop = Arc::new(AtomicBool::new(false));
        let setter = Arc::clone(&stop);
        let handle = thread::spawn(move || {
            thread::sleep(Duration::from_millis(wait_ms));
            setter.store(true, Ordering::SeqCst);
        });
        let (result, taken, finished, _) = watched("stop", move || slow_run(u64::MAX, 4, stop));
        handle.join().expect("sets the flag");
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        assert!(!finished && taken < 1000, "{taken}");
    }
}

#[test]
fn threads_are_named_after_their_stages() {
    struct ThreadNames<'a>(&'a Mutex<Vec<String>>);
    impl Map for ThreadNames<'_> {
        type In = u64;
        type Out = u64;
        fn name(&self) -> &'static str {
            "hash"
        }
        fn map(&mut self, input: u64) -> Result<u64> {
            let name = thread::current().name().unwrap_or_default().to_string();
            self.0.lock().push(name);
            Ok(input)
        }
    }
    let names = Mutex::new(Vec::new());
    let mut pipeline = Pipeline::new(2, Arc::default());
    let link = pipeline.source(TestSource(TestStage { count: 2, ..test_stage("read", 1, InjectedFailure::None) }));
    let link = pipeline.parallel(link, 2, || ThreadNames(&names));
    pipeline.run(link, TestSink(test_stage("save", 1, InjectedFailure::None))).expect("runs");
    let mut names = names.into_inner();
    names.sort();
    assert_eq!(names, ["hash-0", "hash-1"]);
}

#[test]
fn a_panic_while_a_stage_is_dropped_is_an_error() {
    struct Brittle;
    impl Drop for Brittle {
        fn drop(&mut self) {
            panic!("broke");
        }
    }
    impl Stage for Brittle {
        type In = u64;
        type Out = u64;
        fn name(&self) -> &'static str {
            "brittle"
        }
        fn process(&mut self, input: u64, emit: &mut Emit<u64>) -> Result<()> {
            emit.emit(input)
        }
    }
    let result = watched("brittle", || {
        let mut pipeline = Pipeline::new(2, Arc::default());
        let link = pipeline.source(TestSource(TestStage { count: 2, ..test_stage("read", 1, InjectedFailure::None) }));
        let link = pipeline.stage(link, Brittle);
        pipeline.run(link, TestSink(test_stage("save", 1, InjectedFailure::None)))
    });
    assert!(matches!(result, Err(Error::StagePanicked { stage, .. }) if stage == "brittle"));
}
