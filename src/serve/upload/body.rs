//! Bodies of uploads, as they come: into a file, or line by line.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::serve::fault::Fault;

/// A body, and the time within which some bytes of it must come.
pub struct ReceivedBody {
    body: Incoming,
    limit: Duration,
    rest: BytesMut,
    has_ended: bool,
}

impl ReceivedBody {
    /// The body of a request.
    pub fn new(body: Incoming, limit: Duration) -> Self {
        ReceivedBody { body, limit, rest: BytesMut::new(), has_ended: false }
    }

    /// Takes in more bytes. Returns whether there were any.
    async fn receive(&mut self) -> Result<bool, Fault> {
        while !self.has_ended {
            match timeout(self.limit, self.body.frame()).await {
                Err(_) => return Err(Fault::TooSlow),
                Ok(None) => self.has_ended = true,
                Ok(Some(Err(_))) => return Err(Fault::Bad("the body of the request is cut short")),
                Ok(Some(Ok(frame))) => {
                    if let Some(bytes) = frame.data_ref().filter(|bytes| !bytes.is_empty()) {
                        self.rest.extend_from_slice(bytes);
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
