//! A listener: connections, how many and for how long, and their end.
//!
//! Connections are futures of one task: none outlives the listener, and there is nothing to abort.
//!
//! Not here: what is answered (`webhook`, `admin`).

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use bullpen_core::ports::Clock;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// More connections than GitHub opens to one address; those beyond it wait in the kernel's line.
const CONNECTIONS_MAX: usize = 512;
/// How long a head may take, and how long a connection may say nothing: GitHub itself waits ten
/// seconds for an answer.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long requests that have begun may go on when the listener closes.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// How long nothing is accepted after the system refused to: most likely it is out of descriptors.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// An answer with a line of text, or with none.
pub(super) fn text(status: StatusCode, line: &str) -> Answer {
    if line.is_empty() {
        return with(status, None, Bytes::new());
    }
    with(status, Some("text/plain; charset=utf-8"), format!("{line}\n"))
}

/// An answer with a body of this kind.
pub(super) fn with(
    status: StatusCode,
    kind: Option<&'static str>,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    if let Some(kind) = kind {
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    answer
}

/// Answers whoever connects until `closing`, and then those who have asked already.
pub(super) async fn listen(
    listener: &TcpListener,
    clock: &impl Clock,
    mut closing: watch::Receiver<bool>,
    answer: impl AsyncFn(Request<Incoming>) -> Answer,
) {
    let mut connections = FuturesUnordered::new();
    let closed = closing.clone();
    let mut closing = pin!(async move { drop(closing.wait_for(|closing| *closing).await) });
    loop {
        tokio::select! {
            biased;
            () = &mut closing => break,
            Some(()) = connections.next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => connections.push(converse(stream, closed.clone(), &answer)),
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    clock.sleep(AFTER_REFUSAL).await;
                }
            },
        }
    }
    tokio::select! {
        biased;
        () = async { while connections.next().await.is_some() {} } => {}
        () = clock.sleep(CLOSE_WITHIN) => tracing::info!(left = connections.len(), "cut off"),
    }
}

/// One connection to its end.
async fn converse(
    stream: TcpStream,
    mut closing: watch::Receiver<bool>,
    answer: &impl AsyncFn(Request<Incoming>) -> Answer,
) {
    let service = service_fn(async |request| Ok::<_, Infallible>(answer(request).await));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        _ = closing.wait_for(|closing| *closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
