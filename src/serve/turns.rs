//! Turns of what takes much memory or disk: a few at a time, and not all of them for one client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::fault::Fault;
use super::state::Client;

/// Time that somebody waits for the turn of a page.
const PAGE_WAIT: Duration = Duration::from_secs(10);

/// See the module.
pub struct Turns {
    all: Arc<TurnQueue>,
    /// Turns of each token, by its line: fewer than there are, so that others get one.
    own: Mutex<HashMap<usize, Arc<TurnQueue>>>,
    own_max: usize,
    wait: Duration,
}

/// Some turns, and how many wait for one.
struct TurnQueue {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Somebody who waits, also if they stop to.
struct Waiting<'a>(&'a TurnQueue);

/// A turn, which ends with this value.
pub struct Turn {
    _permits: (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit),
    own: Option<Arc<TurnQueue>>,
    all: Arc<TurnQueue>,
}

impl Turns {
    /// So many turns at a time, for pages: a client has at most all but one.
    pub fn of_pages(count: usize) -> Self {
        Self::new(count, count.saturating_sub(1), PAGE_WAIT)
    }

    /// `count` turns at a time, of which a client has at most `own_max`, or one. Others wait for `wait`.
    pub fn new(count: usize, own_max: usize, wait: Duration) -> Self {
        Turns { all: TurnQueue::new(count), own: Mutex::default(), own_max: own_max.max(1), wait }
    }

    /// Waits for a turn of a client.
    ///
    /// # Errors
    /// [`Fault::Busy`] if there is none in time.
    pub async fn take(&self, client: &Client) -> Result<Turn, Fault> {
        let own = match client {
            Client::Anybody => None,
            Client::Holder(token) => Some(self.of_line(token.line)),
        };
        let both = async {
            let first = match &own {
                Some(own) => Some(own.take().await?),
                None => None,
            };
            Ok::<_, AcquireError>((first, self.all.take().await?))
        };
        match timeout(self.wait, both).await {
            Ok(Ok(permits)) => Ok(Turn { _permits: permits, own, all: self.all.clone() }),
            Ok(Err(_)) | Err(_) => Err(Fault::Busy),
        }
    }

    fn of_line(&self, line: usize) -> Arc<TurnQueue> {
        self.own.lock().entry(line).or_insert_with(|| TurnQueue::new(self.own_max)).clone()
    }
}

impl TurnQueue {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(TurnQueue { turns: Arc::new(Semaphore::new(count)), waiting: AtomicUsize::new(0) })
    }

    async fn take(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self);
        self.turns.clone().acquire_owned().await
    }

    fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turn {
    /// Whether somebody waits for this turn.
    pub fn is_wanted(&self) -> bool {
        self.all.is_wanted() || self.own.as_ref().is_some_and(|own| own.is_wanted())
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
        let turns = Turns::new(2, 1, Duration::from_millis(20));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let first = turns.take(&client(ONE)).await.unwrap();
            assert!(matches!(turns.take(&client(ONE)).await, Err(Fault::Busy)), "the second of one client");
            let other = turns.take(&client(OTHER)).await.unwrap();
            assert!(matches!(turns.take(&Client::Anybody).await, Err(Fault::Busy)), "all are taken");
            assert!(!other.is_wanted(), "who waited is gone");
            drop(first);
            let _first = turns.take(&client(ONE)).await.unwrap();
            drop(other);
            let _anybody = turns.take(&Client::Anybody).await.unwrap();
        });
    }

    #[test]
    fn a_turn_is_wanted_by_who_waits_for_it_alone() {
        let tokens = Tokens::parse(&format!("{ONE} read\n{OTHER} read\n")).unwrap();
        let client = |token| Client::Holder(tokens.find(token).unwrap());
        let turns = Turns::new(3, 1, Duration::from_millis(200));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let one = client(ONE);
        runtime.block_on(async {
            let (first, other) = (turns.take(&one).await.unwrap(), turns.take(&client(OTHER)).await.unwrap());
            let (second, wanted) = tokio::join!(turns.take(&one), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                (first.is_wanted(), other.is_wanted())
            });
            assert!(second.is_err());
            assert_eq!(wanted, (true, false), "one token waits for its own turn");
            let _last = turns.take(&Client::Anybody).await.unwrap();
            let (none, wanted) = tokio::join!(turns.take(&Client::Anybody), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                (first.is_wanted(), other.is_wanted())
            });
            assert!(none.is_err());
            assert_eq!(wanted, (true, true), "all turns are taken");
        });
    }
}
