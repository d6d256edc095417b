//! The server: takes connections, bounds them, and lets answers end when it shall stop.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::access_log::{AccessLine, LoggedBody};
use super::models::watch as watch_models;
use super::router;
use super::state::ServeState;
use super::timed_stream::TimedStream;
use crate::error::{Error, Result};
use crate::text::shortened;

/// How often the flag to stop is looked at.
const POLL: Duration = Duration::from_millis(100);
/// Threads that move bytes.
const THREADS: usize = 2;
/// Threads that read the repository: for each processor, and at least, because some wait for a remote store.
const READERS_PER_PROCESSOR: usize = 2;
const READERS_MIN: usize = 8;
/// Bytes of the headers of a request, at most.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Headers of a request, at most.
const HEADERS_MAX: usize = 64;
/// Characters of a path in the log, at most.
const LOGGED_CHARS_MAX: usize = 1024;

/// Where a server listens, and how.
pub struct Listening {
    /// Address and port; port 0 is any free one.
    pub address: SocketAddr,
    /// TLS, if it is not plain HTTP.
    pub tls: Option<TlsAcceptor>,
}

/// Serves until `stop` is set, and then until the answers have ended or their time is over. `started` gets the address.
/// `halt` is set at the end, so that reads of the repository end.
///
/// # Errors
/// [`Error::Io`] if the address cannot be used, or if no thread can be started.
pub fn serve(
    state: &Arc<ServeState>,
    listening: Listening,
    stop: &AtomicBool,
    halt: &AtomicBool,
    started: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(READERS_MIN.max(READERS_PER_PROCESSOR * processors))
        .thread_name("serve")
        .enable_all()
        .build()
        .map_err(|error| Error::io("start", "the threads of the server", error))?;
    let served = runtime.block_on(run(state, listening, stop, started));
    halt.store(true, Ordering::SeqCst);
    state.hashes.write();
    runtime.shutdown_timeout(POLL);
    served
}

async fn run(
    state: &Arc<ServeState>,
    listening: Listening,
    stop: &AtomicBool,
    started: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let Listening { address, tls } = listening;
    let unusable = |error| Error::io("listen at", address.to_string(), error);
    let listener = TcpListener::bind(address).await.map_err(unusable)?;
    let bound = listener.local_addr().map_err(unusable)?;
    state.sessions.name(state.catalogue.repository_id(), bound);
    started(bound)?;
    let limits = state.limits;
    let connections = Arc::new(Semaphore::new(limits.connections));
    let (stopping, stopped) = watch::channel(false);
    let (catalogue, models) = (state.catalogue.clone(), state.models.clone());
    tokio::spawn(watch_models(catalogue, models, limits.refresh, stopped.clone()));
    let is_stopped = || stop.load(Ordering::Relaxed);
    while !is_stopped() {
        // More connections wait until one ends.
        let Ok(Ok(permit)) = timeout(POLL, connections.clone().acquire_owned()).await else { continue };
        let accepted = loop {
            match timeout(POLL, listener.accept()).await {
                Ok(accepted) => break Some(accepted),
                Err(_) if is_stopped() => break None,
                Err(_) => {}
            }
        };
        match accepted {
            None => break,
            Some(Ok((stream, peer))) => {
                let (state, tls, stopped) = (state.clone(), tls.clone(), stopped.clone());
                tokio::spawn(async move {
                    let _open = state.metrics.connection();
                    connection(&state, stream, peer, tls, stopped).await;
                    drop(permit);
                });
            }
            Some(Err(error)) => {
                tracing::warn!("a connection cannot be taken: {error}");
                sleep(POLL).await;
            }
        }
    }
    drop(listener);
    // Without a receiver there is nobody to stop.
    let _ = stopping.send(true);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    if timeout(limits.stop, connections.acquire_many(all)).await.is_err() {
        tracing::warn!(
            "{} connections are closed before their answers have ended",
            limits.connections - connections.available_permits()
        );
    }
    Ok(())
}

/// Serves a connection until it ends.
async fn connection(
    state: &Arc<ServeState>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("{peer}: {error}");
    }
    let stream = TimedStream::new(stream, state.limits.write);
    match tls {
        None => talk(state, stream, peer, false, stopped).await,
        Some(tls) => match timeout(state.limits.header, tls.accept(stream)).await {
            Ok(Ok(stream)) => talk(state, stream, peer, true, stopped).await,
            Ok(Err(error)) => tracing::debug!("{peer}: no TLS: {error}"),
            Err(_) => tracing::debug!("{peer}: no TLS in time"),
        },
    }
}

async fn talk(
    state: &Arc<ServeState>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    is_tls: bool,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(|request| logged(state, request, peer, is_tls));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(state.limits.header);
    builder.max_buf_size(HEADER_BYTES_MAX).max_headers(HEADERS_MAX);
    let mut talking = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let stopping = pin!(async { stopped.wait_for(|is_stopping| *is_stopping).await.is_ok() });
    let ended = match select(talking.as_mut(), stopping).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => {
            talking.as_mut().graceful_shutdown();
            talking.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("{peer}: {error}");
    }
}

async fn logged(
    state: &Arc<ServeState>,
    request: Request<Incoming>,
    peer: SocketAddr,
    is_tls: bool,
) -> Result<Response<LoggedBody>, Infallible> {
    let started = Instant::now();
    let path = request.uri().path();
    let shown = format!("{} {}", request.method(), shortened(path, LOGGED_CHARS_MAX));
    let (answer, asked) = router::answer(state, request, is_tls).await;
    state.metrics.answer(asked.template, answer.status(), started.elapsed());
    let (status, sent_bytes) = (answer.status().as_u16(), state.metrics.sent_bytes());
    let line = AccessLine { request: shown, peer, started, status, token: asked.token, sent_bytes };
    let len = answer.headers().get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
    Ok(answer.map(|body| LoggedBody::new(body, len, line)))
}
