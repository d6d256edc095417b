//! A session that is started again when it is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::address::SftpAddress;
use super::failure::SftpFailure;
use super::session::{SftpSession, WaitKind, sleep};
use crate::crypto::any_number;
use crate::error::Result;
use crate::store::StoreOptions;

/// Times to wait before each further try, seconds. A server that restarts is back after about a minute.
const DELAYS_S: [f64; 7] = [0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0];
/// Threads that find a session lost together try together: the result of one counts for this time.
const SHARED_RESULT: Duration = Duration::from_millis(300);

/// See the module.
#[derive(Debug)]
pub(super) struct SftpConnection {
    pub address: SftpAddress,
    options: StoreOptions,
    state: Mutex<ConnectionState>,
}

#[derive(Debug, Default)]
struct ConnectionState {
    session: Option<Arc<SftpSession>>,
    /// When and why the last try to connect failed.
    failed: Option<(Instant, String)>,
    /// Whether a session has begun before.
    has_connected: bool,
}

impl SftpConnection {
    pub fn new(address: SftpAddress, options: &StoreOptions) -> Self {
        SftpConnection { address, options: options.clone(), state: Mutex::default() }
    }

    /// The session, a new one if the last is lost.
    pub fn session(&self, wait_kind: WaitKind) -> Result<Arc<SftpSession>, SftpFailure> {
        let mut state = self.state.lock();
        if let Some(session) = state.session.as_ref().filter(|session| !session.is_lost()) {
            return Ok(session.clone());
        }
        if let Some((_, why)) = state.failed.as_ref().filter(|(when, _)| when.elapsed() < SHARED_RESULT) {
            return Err(SftpFailure::Lost(why.clone()));
        }
        match SftpSession::connect(&self.address, &self.options, wait_kind) {
            Ok(session) => {
                let session = Arc::new(session);
                *state = ConnectionState { session: Some(session.clone()), failed: None, has_connected: true };
                Ok(session)
            }
            Err(failure) => {
                if let SftpFailure::Lost(why) = &failure {
                    state.failed = Some((Instant::now(), why.clone()));
                }
                Err(failure)
            }
        }
    }

    /// Does `work`, which is given the number of the try, again and again as long as the session is lost meanwhile. If
    /// no session has ever begun, the first failure is the result, because it is one of the user's.
    pub fn retry<T>(
        &self,
        wait_kind: WaitKind,
        mut work: impl FnMut(&Arc<SftpSession>, usize) -> Result<T, SftpFailure>,
    ) -> Result<T, SftpFailure> {
        let (mut delays, start) = (DELAYS_S.iter(), Instant::now());
        let is_in_time = |delay: f64| start.elapsed() + Duration::from_secs_f64(delay) <= self.options.patience.total;
        for number in 0.. {
            let why = match self.session(wait_kind).and_then(|session| work(&session, number)) {
                Err(SftpFailure::Lost(why)) => why,
                result => return result,
            };
            let has_connected = self.state.lock().has_connected;
            let delay = delays.next().filter(|delay| has_connected && is_in_time(**delay));
            let Some(delay) = delay else { return Err(SftpFailure::Lost(why)) };
            tracing::warn!("lost the connection to {}, connecting again: {why}", self.address);
            sleep(Duration::from_secs_f64(delay * (0.75 + 0.5 * fraction())), wait_kind, &self.options.stop)?;
        }
        Err(SftpFailure::Interrupted)
    }
}

/// A random number from 0 to 1, so that machines which lost one server do not come back together.
fn fraction() -> f64 {
    f64::from(any_number() as u8) / 255.0
}
