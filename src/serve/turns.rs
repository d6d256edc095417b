//! Turns of pages that take much memory: a few at a time, and not all of them for one client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::fault::Fault;
use super::state::Client;

/// Time that somebody waits for a turn.
const WAIT: Duration = Duration::from_secs(10);

/// See the module.
pub struct Turns {
    all: Arc<Semaphore>,
    /// Turns of each token, by its line: one less than there are, so that others get one.
    own: Mutex<HashMap<usize, Arc<Semaphore>>>,
    own_max: usize,
    wait: Duration,
}

/// A turn, which ends with this value.
pub struct PageTurn {
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Turns {
    /// So many turns at a time.
    pub fn new(count: usize) -> Self {
        let (all, own_max) = (Arc::new(Semaphore::new(count)), count.saturating_sub(1).max(1));
        Turns { all, own: Mutex::default(), own_max, wait: WAIT }
    }

    /// Waits for a turn of a client.
    ///
    /// # Errors
    /// [`Fault::Busy`] if there is none in time.
    pub async fn take(&self, client: &Client) -> Result<PageTurn, Fault> {
        let own = match client {
            Client::Anybody => None,
            Client::Holder(token) => Some(self.of_line(token.line)),
        };
        let both = async {
            let own = match own {
                Some(own) => own.acquire_owned().await.map(Some),
                None => Ok(None),
            };
            Ok((own?, self.all.clone().acquire_owned().await?))
        };
        match timeout(self.wait, both).await {
            Ok(Ok((own, all))) => Ok(PageTurn { _own: own, _all: all }),
            Ok(Err(tokio::sync::AcquireError { .. })) | Err(_) => Err(Fault::Busy),
        }
    }

    fn of_line(&self, line: usize) -> Arc<Semaphore> {
        self.own.lock().entry(line).or_insert_with(|| Arc::new(Semaphore::new(self.own_max))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tokens::Tokens;

    const ONE: &str = "hf_0123456789abcdef";
    const OTHER: &str = "hf_fedcba9876543210";

    #[test]
    fn one_client_never_has_all_turns_and_who_waits_too_long_is_refused() {
        let tokens = Tokens::parse(&format!("{ONE} read\n{OTHER} read\n")).unwrap();
        let client = |token| Client::Holder(tokens.find(token).unwrap());
        let turns = Turns { wait: Duration::from_millis(20), ..Turns::new(2) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let first = turns.take(&client(ONE)).await.unwrap();
            assert!(matches!(turns.take(&client(ONE)).await, Err(Fault::Busy)), "the second of one client");
            let other = turns.take(&client(OTHER)).await.unwrap();
            assert!(matches!(turns.take(&Client::Anybody).await, Err(Fault::Busy)), "all are taken");
            drop(first);
            let _first = turns.take(&client(ONE)).await.unwrap();
            drop(other);
            let _anybody = turns.take(&Client::Anybody).await.unwrap();
        });
    }
}
