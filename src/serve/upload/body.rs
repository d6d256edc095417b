//! Bodies of uploads, as they come: into a file, or line by line.
//!
//! A body has a turn, of which there are a few. So it must come at some rate, and at a higher one while somebody waits
//! for its turn. Only time counts in which this server waits for the client.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::error::Error;
use crate::keep::upload::SPOOLED;
use crate::serve::fault::Fault;
use crate::serve::parts::{PART_BYTES, blocking};
use crate::serve::turns::Turn;

/// Bytes a second that a body must have on average, and while somebody waits for its turn.
const RATE_MIN: u64 = 1 << 10;
const RATE_WANTED: u64 = 16 << 10;
/// Time after which the higher rate counts.
const WANTED_GRACE: Duration = Duration::from_secs(5);
/// How often a body that does not come is looked at.
const POLL: Duration = Duration::from_secs(1);

/// A body, its turn, and the time within which some bytes of it must come.
pub struct ReceivedBody {
    body: Incoming,
    limit: Duration,
    turn: Turn,
    rest: BytesMut,
    has_ended: bool,
    /// Bytes that came, and the time that they took.
    received: u64,
    waited: Duration,
}

impl ReceivedBody {
    /// The body of a request. It has its turn until this value ends.
    pub fn new(body: Incoming, limit: Duration, turn: Turn) -> Self {
        let (rest, waited) = (BytesMut::new(), Duration::ZERO);
        ReceivedBody { body, limit, turn, rest, has_ended: false, received: 0, waited }
    }

    /// Takes in more bytes. Returns whether there were any.
    async fn receive(&mut self) -> Result<bool, Fault> {
        let mut idle = Duration::ZERO;
        while !self.has_ended {
            let started = Instant::now();
            let frame = timeout(POLL.min(self.limit), self.body.frame()).await;
            let took = started.elapsed();
            (self.waited, idle) = (self.waited + took, idle + took);
            if self.waited > time_of(self.received, self.limit, self.turn.is_wanted()) {
                return Err(Fault::TooSlow);
            }
            match frame {
                Err(_) if idle >= self.limit => return Err(Fault::TooSlow),
                Err(_) => {}
                Ok(None) => self.has_ended = true,
                Ok(Some(Err(_))) => return Err(Fault::Bad("the body of the request is cut short")),
                Ok(Some(Ok(frame))) => {
                    if let Some(bytes) = frame.data_ref().filter(|bytes| !bytes.is_empty()) {
                        self.rest.extend_from_slice(bytes);
                        self.received = self.received.saturating_add(bytes.len() as u64);
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// At least `count` bytes, or the last ones. `None` behind the end.
    ///
    /// # Errors
    /// [`Fault::TooSlow`], or [`Fault::Bad`] if the body is cut short.
    pub async fn part(&mut self, count: usize) -> Result<Option<Bytes>, Fault> {
        while self.rest.len() < count && self.receive().await? {}
        let part = self.rest.split().freeze();
        Ok(Some(part).filter(|part| !part.is_empty()))
    }

    /// Puts all bytes, at most `len_max`, into an empty file.
    ///
    /// # Errors
    /// [`Fault::TooLong`], those of [`Self::part`], and errors of writing.
    pub async fn write_to(&mut self, mut file: File, len_max: u64) -> Result<File, Fault> {
        while let Some(part) = self.part(PART_BYTES as usize).await? {
            if self.received > len_max {
                return Err(Fault::TooLong);
            }
            file = blocking(move || {
                file.write_all(&part).map_err(|error| Error::io("write", SPOOLED, error))?;
                Ok(file)
            })
            .await?;
        }
        Ok(file)
    }

    /// The next line, of at most `len_max` bytes. `None` behind the end.
    ///
    /// # Errors
    /// [`Fault::TooLong`], and those of [`Self::part`].
    pub async fn line(&mut self, len_max: usize) -> Result<Option<Bytes>, Fault> {
        let mut looked = 0;
        loop {
            let new = self.rest.get(looked..).unwrap_or_default();
            if let Some(at) = new.iter().position(|byte| *byte == b'\n') {
                let end = looked + at;
                if end > len_max {
                    return Err(Fault::TooLong);
                }
                let line = self.rest.split_to(end + 1).freeze();
                return Ok(Some(line.slice(..end)));
            }
            looked = self.rest.len();
            if looked > len_max {
                return Err(Fault::TooLong);
            }
            if !self.receive().await? {
                let line = self.rest.split().freeze();
                return Ok(Some(line).filter(|line| !line.is_empty()));
            }
        }
    }
}

/// The time that so many bytes may take.
fn time_of(received: u64, limit: Duration, is_wanted: bool) -> Duration {
    let (grace, rate) = if is_wanted { (limit.min(WANTED_GRACE), RATE_WANTED) } else { (limit, RATE_MIN) };
    grace.saturating_add(Duration::from_millis(received.saturating_mul(1000) / rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_less_time_while_its_turn_is_wanted() {
        let limit = Duration::from_secs(30);
        assert_eq!(time_of(0, limit, false), limit);
        assert_eq!(time_of(60 << 10, limit, false), Duration::from_secs(90));
        assert_eq!(time_of(0, limit, true), WANTED_GRACE);
        assert_eq!(time_of(32 << 10, limit, true), Duration::from_secs(7));
        assert_eq!(time_of(0, Duration::from_secs(2), true), Duration::from_secs(2));
        assert!(time_of(u64::MAX, limit, true) > limit);
    }
}
