//! A link: an ordered stream between any number of producers and consumers, without a thread of its own.
//!
//! 1. A link between P producers and C consumers has L = lcm(P, C) lanes. A lane is a bounded channel with one
//!    writer and one reader. Item number s travels in lane s mod L.
//! 2. Producer i makes the items with s ≡ i (mod P) and writes its L/P lanes in rotation. Consumer j takes the items
//!    with s ≡ j (mod C) and reads its L/C lanes in rotation. The order therefore needs no numbers and no reordering.
//! 3. The end is a message in every lane, written in rotation like items. A consumer that receives it drains the
//!    ends of its other lanes first. Any other message there is an error.
//! 4. A lane that closes without an end message is [`Error::LinkClosed`].
//!
//! No lane blocks for ever: the consumer of the oldest message is either waiting for it or busy. A stage that stops
//! early closes its lanes, which wakes both neighbours.
//!
//! A link holds `queue_depth` items, or one per lane if there are more lanes. Adjacent parallel stages should have
//! worker counts with a small common multiple.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as ChannelReceiver, Sender, TryRecvError, TrySendError, bounded};

use super::Weigh;
use super::state::RunState;
use crate::error::{Error, Neighbour, Result};
use crate::metrics::StageMetrics;

/// A message in a lane.
enum Message<T> {
    Item(T),
    End,
}

/// The sending end of a link, held by one producer.
pub struct Emit<T> {
    stage: &'static str,
    lanes: Vec<Sender<Message<T>>>,
    next: usize,
    state: Arc<RunState>,
    broken: bool,
    /// Start of the current work. Only set if the service time is the time between two emissions.
    working_since: Option<Instant>,
    waited: Duration,
    pub(super) metrics: StageMetrics,
}

/// The receiving end of a link, held by one consumer.
pub(super) struct Receiver<T> {
    stage: &'static str,
    lanes: Vec<ChannelReceiver<Message<T>>>,
    next: usize,
    state: Arc<RunState>,
    /// Start of the run. All links of a run are made within a moment.
    started: Instant,
    pub(super) metrics: StageMetrics,
}

/// Makes the lanes between `producers` and `consumers`, each given as stage name and worker count (at least 1).
pub(super) fn connect<T>(
    producers: (&'static str, usize),
    consumers: (&'static str, usize),
    queue_depth: usize,
    state: &Arc<RunState>,
) -> (Vec<Emit<T>>, Vec<Receiver<T>>) {
    let lane_count = least_common_multiple(producers.1, consumers.1);
    let lane_depth = (queue_depth / lane_count).max(1);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..lane_count).map(|_| bounded(lane_depth)).unzip();
    let emits = (0..producers.1).map(|producer| Emit {
        stage: producers.0,
        lanes: senders.iter().skip(producer).step_by(producers.1).cloned().collect(),
        next: 0,
        state: Arc::clone(state),
        broken: false,
        working_since: None,
        waited: Duration::ZERO,
        metrics: StageMetrics::new(producers.0),
    });
    let receivers = (0..consumers.1).map(|consumer| Receiver {
        stage: consumers.0,
        lanes: receivers.iter().skip(consumer).step_by(consumers.1).cloned().collect(),
        next: 0,
        state: Arc::clone(state),
        started: Instant::now(),
        metrics: StageMetrics::new(consumers.0),
    });
    (emits.collect(), receivers.collect())
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

impl<T: Weigh> Emit<T> {
    /// Sends `item` to the next stage. Blocks while the link is full.
    ///
    /// # Errors
    /// [`Error::Interrupted`] or [`Error::LinkClosed`] when the run must end. The stage returns it.
    pub fn emit(&mut self, item: T) -> Result<()> {
        if let Some(since) = self.working_since {
            self.metrics.service_us.record_duration(since.elapsed());
        }
        let bytes = item.bytes();
        let waited = self.send(Message::Item(item))?;
        self.waited += waited;
        self.metrics.send_wait_us.record_duration(waited);
        self.metrics.items_out += 1;
        self.metrics.bytes_out += bytes;
        if self.working_since.is_some() {
            self.working_since = Some(Instant::now());
        }
        Ok(())
    }
}

impl<T> Emit<T> {
    /// Fails when the run must end. Long work without an emission calls it from time to time.
    ///
    /// # Errors
    /// As for [`Emit::emit`].
    pub fn check(&self) -> Result<()> {
        self.state.check(self.stage, Neighbour::Downstream)
    }

    /// From now on, counts the time between emissions as service time.
    pub(super) fn time_emissions(&mut self) {
        self.working_since = Some(Instant::now());
    }

    /// Time blocked on sending since the last call.
    pub(super) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Writes the end message into every lane. Fails if an item was lost before.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.broken {
            return Err(self.closed());
        }
        for _ in 0..self.lanes.len() {
            self.send(Message::End)?;
        }
        Ok(())
    }

    /// Sends on the next lane. Returns how long that was blocked.
    fn send(&mut self, message: Message<T>) -> Result<Duration> {
        let sent = self.check().and_then(|()| self.send_in_rotation(message));
        self.broken |= sent.is_err();
        sent
    }

    fn send_in_rotation(&mut self, message: Message<T>) -> Result<Duration> {
        let lane = self.lanes.get(self.next).ok_or_else(|| self.closed())?;
        let waited = match lane.try_send(message) {
            Ok(()) => Duration::ZERO,
            Err(TrySendError::Disconnected(_)) => return Err(self.closed()),
            Err(TrySendError::Full(message)) => {
                let start = Instant::now();
                lane.send(message).map_err(|_| self.closed())?;
                start.elapsed()
            }
        };
        self.next = (self.next + 1) % self.lanes.len();
        Ok(waited)
    }

    fn closed(&self) -> Error {
        Error::LinkClosed { stage: self.stage.into(), neighbour: Neighbour::Downstream }
    }
}

impl<T: Weigh> Receiver<T> {
    /// The next item, or `None` at the end of the stream. Blocks while the link is empty.
    pub(super) fn receive(&mut self) -> Result<Option<T>> {
        let depth: usize = self.lanes.iter().map(ChannelReceiver::len).sum();
        match self.next_message()? {
            (Message::Item(item), waited) => {
                self.metrics.receive_wait_us.record_duration(waited);
                self.metrics.queue_depth.record(depth.max(1) as u64);
                self.metrics.occupancy.record(self.started.elapsed(), depth as u64);
                self.metrics.items_in += 1;
                self.metrics.bytes_in += item.bytes();
                Ok(Some(item))
            }
            (Message::End, _) => {
                for _ in 1..self.lanes.len() {
                    if let (Message::Item(_), _) = self.next_message()? {
                        return Err(self.closed());
                    }
                }
                self.state.check(self.stage, Neighbour::Upstream)?;
                Ok(None)
            }
        }
    }

    /// The next lane's message, and how long receiving it was blocked.
    fn next_message(&mut self) -> Result<(Message<T>, Duration)> {
        self.state.check(self.stage, Neighbour::Upstream)?;
        let lane = self.lanes.get(self.next).ok_or_else(|| self.closed())?;
        let received = match lane.try_recv() {
            Ok(message) => (message, Duration::ZERO),
            Err(TryRecvError::Disconnected) => return Err(self.closed()),
            Err(TryRecvError::Empty) => {
                let start = Instant::now();
                (lane.recv().map_err(|_| self.closed())?, start.elapsed())
            }
        };
        self.next = (self.next + 1) % self.lanes.len();
        Ok(received)
    }

    fn closed(&self) -> Error {
        Error::LinkClosed { stage: self.stage.into(), neighbour: Neighbour::Upstream }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weigh for u64 {
        fn bytes(&self) -> u64 {
            8
        }
    }

    fn single(queue_depth: usize) -> (Emit<u64>, Receiver<u64>) {
        let (mut emits, mut receivers) =
            connect(("a", 1), ("b", 1), queue_depth, &Arc::new(RunState::new(Arc::default())));
        (emits.remove(0), receivers.remove(0))
    }

    #[test]
    fn a_link_that_closes_without_an_end_is_an_error() {
        let (mut emit, mut receiver) = single(4);
        emit.emit(7).expect("sends");
        drop(emit);
        assert_eq!(receiver.receive().expect("sent"), Some(7));
        let error = receiver.receive().expect_err("truncated").to_string();
        assert!(error.contains("stage b") && error.contains("upstream stage stopped"), "{error}");
    }

    #[test]
    fn sending_without_a_consumer_fails_and_the_stream_cannot_end() {
        let (mut emit, receiver) = single(4);
        drop(receiver);
        let error = emit.emit(7).expect_err("no consumer").to_string();
        assert!(error.contains("stage a") && error.contains("downstream stage stopped"), "{error}");
        assert!(matches!(emit.end(), Err(Error::LinkClosed { .. })));
    }

    #[test]
    fn every_lane_must_end() {
        let state = Arc::new(RunState::new(Arc::default()));
        let (mut emits, mut receivers) = connect::<u64>(("a", 2), ("b", 1), 2, &state);
        emits[0].end().expect("sends");
        drop(emits);
        assert!(matches!(receivers[0].receive(), Err(Error::LinkClosed { .. })), "one of two producers ended");
    }

    #[test]
    fn an_item_after_the_end_of_another_lane_is_an_error() {
        let state = Arc::new(RunState::new(Arc::default()));
        let (mut emits, mut receivers) = connect::<u64>(("a", 2), ("b", 1), 2, &state);
        emits[0].end().expect("sends");
        emits[1].emit(1).expect("sends");
        assert!(matches!(receivers[0].receive(), Err(Error::LinkClosed { .. })));
    }

    #[test]
    fn the_lane_count_is_the_least_common_multiple_and_lanes_share_the_depth() {
        for (producers, consumers, depth, lanes, lane_depth) in
            [(1, 1, 4, 1, 4), (1, 4, 4, 4, 1), (4, 6, 24, 12, 2), (3, 5, 4, 15, 1), (8, 8, 4, 8, 1)]
        {
            let state = Arc::new(RunState::new(Arc::default()));
            let (emits, receivers) = connect::<u64>(("a", producers), ("b", consumers), depth, &state);
            assert_eq!(emits.iter().map(|emit| emit.lanes.len()).sum::<usize>(), lanes);
            assert_eq!(receivers.iter().map(|receiver| receiver.lanes.len()).sum::<usize>(), lanes);
            assert_eq!(receivers[0].lanes[0].capacity(), Some(lane_depth));
        }
    }
}
