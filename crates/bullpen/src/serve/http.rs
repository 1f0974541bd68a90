//! The accept loop that serves every listener's router: connections, their limits, and their end.
//!
//! Connections are futures of one task: none outlives the listener, and there is nothing to abort. They
//! share that task with the other listener, the jobs and the signals, so what strangers send is kept from
//! taking the whole of its turn: tokio lets a task do so many operations a turn, and what connections do
//! does not count.
//!
//! Not here: routes (`webhook`, `admin`), or which connections are kept (`connections`).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use bullpen_core::ports::Clock;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;

use super::connections::{Admission, ConnectionId, ConnectionLimits, Connections};

/// How long a head may take, and how long a connection may be silent: GitHub itself waits ten seconds
/// for an answer.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long requests that have begun may go on when the listener closes.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// How long nothing is accepted after an accept failed: most likely the process has no descriptor left.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);
/// How many connections are accepted before the rest of the process has its turn.
const ACCEPTED_AT_ONCE: usize = 16;

/// The largest head: GitHub's have two thousand bytes, and proxies add some. It is also what a
/// connection may hold of a body before it is read.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How many refused connections are answered at once; beyond that they are just closed.
const REFUSALS_MAX: usize = 32;
/// How long a refused sender may take to read its refusal. A sender may miss a refusal if the service closes sooner.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
/// How much is read from a refused sender: a delivery, and no more than the process has time for.
const REFUSED_BYTES_MAX: usize = 64 * 1024;
/// The answer to a connection when the listener is full.
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 10\r\nconnection: close\r\n\
                       content-type: text/plain; charset=utf-8\r\ncontent-length: 50\r\n\r\n\
                       too many connections are open; try it again later\n";

/// An answer with a line of text, or with none.
pub(super) fn text(status: StatusCode, line: &str) -> Response {
    if line.is_empty() {
        return with(status, None, Body::empty());
    }
    with(status, Some("text/plain; charset=utf-8"), format!("{line}\n"))
}

/// An answer with a body of this content type.
pub(super) fn with(
    status: StatusCode,
    content_type: Option<&'static str>,
    body: impl Into<Body>,
) -> Response {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    if let Some(content_type) = content_type {
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    answer
}

/// The connection that a request came by: an extension of every request.
#[derive(Clone)]
pub(super) struct Caller {
    id: ConnectionId,
    connections: SharedConnections,
}

impl Caller {
    /// The request is signed, or else allowed: the connection is proven from now on.
    pub(super) fn set_proven(&self) {
        self.connections.lock().set_proven(self.id);
    }
}

/// The connections of a listener, shared with the handlers of their requests.
#[derive(Clone)]
struct SharedConnections(Arc<Mutex<Connections>>);

impl SharedConnections {
    fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Mutex::new(Connections::new(limits))))
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An admitted connection; dropping it makes room for another.
struct OpenConnection<'c, C> {
    caller: Caller,
    clock: &'c C,
}

impl<C: Clock> OpenConnection<'_, C> {
    fn request_begins(&self) {
        self.caller.connections.lock().request_begins(self.caller.id, self.clock.monotonic());
    }

    fn request_ends(&self) {
        self.caller.connections.lock().request_ends(self.caller.id, self.clock.monotonic());
    }
}

impl<C> Drop for OpenConnection<'_, C> {
    fn drop(&mut self) {
        self.caller.connections.lock().closed(self.caller.id);
    }
}

/// Serves a router until `closing`, and then the requests that have begun.
pub(super) async fn listen<C: Clock>(
    listener: &TcpListener,
    clock: &C,
    mut closing: watch::Receiver<bool>,
    limits: ConnectionLimits,
    router: Router,
) {
    let connections = SharedConnections::new(limits);
    let router = TowerToHyperService::new(router);
    let mut closers = BTreeMap::new();
    let mut conversations = FuturesUnordered::new();
    let mut refusals = FuturesUnordered::new();
    let mut not_before = Duration::ZERO;
    let mut accepted_at_once = 0;
    let listener_closes = closing.clone();
    let mut closing = pin!(async move { drop(closing.wait_for(|closing| *closing).await) });
    loop {
        let accepts_at = connections.lock().accepts_at(clock.monotonic()).max(not_before);
        let accepts_in = accepts_at.saturating_sub(clock.monotonic());
        let accepted = tokio::select! {
            biased;
            () = &mut closing => break,
            // One look at each connection ends, and each look does: what is pipelined waits its turn.
            Some(id) = unconstrained(conversations.next()), if !conversations.is_empty() => {
                closers.remove(&id);
                continue;
            }
            Some(()) = unconstrained(refusals.next()), if !refusals.is_empty() => continue,
            accepted = listener.accept(), if accepts_in.is_zero() => accepted,
            () = clock.sleep(accepts_in), if !accepts_in.is_zero() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                not_before = clock.monotonic() + AFTER_FAILED_ACCEPT;
                continue;
            }
        };
        if let Some(id) = admit(&connections, &mut closers, peer, clock.monotonic()) {
            let (give_up, closed_for_another) = oneshot::channel();
            closers.insert(id, give_up);
            let caller = Caller { id, connections: connections.clone() };
            let open = OpenConnection { caller, clock };
            let router = router.clone();
            conversations.push(converse(
                stream,
                open,
                closed_for_another,
                listener_closes.clone(),
                router,
            ));
        } else if refusals.len() < REFUSALS_MAX {
            refusals.push(refuse(stream, clock));
        }
        accepted_at_once = (accepted_at_once + 1) % ACCEPTED_AT_ONCE;
        if accepted_at_once == 0 {
            yield_now().await;
        }
    }
    tokio::select! {
        biased;
        () = unconstrained(async { while conversations.next().await.is_some() {} }) => {}
        () = clock.sleep(CLOSE_WITHIN) => {
            tracing::info!(left = conversations.len(), "closed busy connections");
        }
    }
}

/// Decides about a new connection, and closes the connection that it replaces.
fn admit(
    connections: &SharedConnections,
    closers: &mut BTreeMap<ConnectionId, oneshot::Sender<()>>,
    peer: SocketAddr,
    now: Duration,
) -> Option<ConnectionId> {
    let admission = connections.lock().admit(peer.ip(), now);
    match admission {
        Admission::Admitted(new) => Some(new),
        Admission::Replaces { new, closes } => {
            tracing::debug!(%peer, "connection replaces an idle one");
            // A connection that has ended has nothing to close.
            let _ = closers.remove(&closes).map(|closer| closer.send(()));
            Some(new)
        }
        Admission::Refused => {
            tracing::debug!(%peer, "connection refused");
            None
        }
    }
}

/// Answers that the listener is full, and reads until the sender has seen that, within bounds: the
/// system cuts off a connection that is closed with something unread.
async fn refuse(stream: TcpStream, clock: &impl Clock) {
    // A new connection takes so few bytes at once, or is broken.
    let _ = stream.try_write(REFUSAL.as_bytes());
    let seen = async {
        let mut unread = [0; 1024];
        let mut left = REFUSED_BYTES_MAX;
        while left > 0 && stream.readable().await.is_ok() {
            match stream.try_read(&mut unread) {
                Ok(0) => break,
                Ok(count) => left = left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    tokio::select! {
        biased;
        () = seen => {}
        () = clock.sleep(REFUSED_WITHIN) => {}
    }
}

/// One connection until it ends, or until it is closed for another.
async fn converse<C: Clock>(
    stream: TcpStream,
    open: OpenConnection<'_, C>,
    closed_for_another: oneshot::Receiver<()>,
    mut closing: watch::Receiver<bool>,
    router: TowerToHyperService<Router>,
) -> ConnectionId {
    let service = service_fn(async |mut request: Request<Incoming>| {
        open.request_begins();
        request.extensions_mut().insert(open.caller.clone());
        let answer = router.call(request).await;
        open.request_ends();
        answer
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        Ok(()) = closed_for_another => Ok(()),
        ended = connection.as_mut() => ended,
        _ = closing.wait_for(|closing| *closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
    open.caller.id
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::io::Write as _;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::OwnedFd;

    use axum::routing::get;
    use bullpen_core::time::Timestamp;
    use futures_util::stream::unfold;
    use futures_util::{StreamExt as _, poll};
    use tokio::sync::broadcast;

    use super::*;

    /// Time stands still: what waits for it waits for ever.
    struct Standing;

    impl Clock for Standing {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        async fn sleep(&self, _wait: Duration) {
            pending::<()>().await;
        }
    }

    /// A listener whose every accept fails.
    async fn broken() -> TcpListener {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        socket.set_nonblocking(true).expect("it can be");
        let itself = socket.local_addr().expect("it has one");
        socket.send_to(b"is readable, as if a connection had come", itself).expect("it is there");
        let listener = TcpListener::from_std(OwnedFd::from(socket).into()).expect("on a runtime");
        listener.accept().await.expect_err("it is no listener");
        listener
    }

    #[tokio::test]
    async fn a_failing_accept_keeps_nothing_else_waiting() {
        let listener = broken().await;
        let (close, closing) = watch::channel(false);
        let limits = ConnectionLimits { connections: 1, unproven_per_peer: 1, proxies: Vec::new() };
        let mut listening = pin!(listen(&listener, &Standing, closing, limits, Router::new()));
        assert!(poll!(listening.as_mut()).is_pending());
        close.send_replace(true);
        assert!(poll!(listening.as_mut()).is_ready(), "it listens to more than its accepts");
    }

    /// Reads until the other side has sent this.
    async fn read_until(stream: &TcpStream, wanted: &str) {
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(wanted) {
            stream.readable().await.expect("it is open");
            let mut part = [0; 1024];
            match stream.try_read(&mut part) {
                Ok(0) => panic!("it was closed after {read:?}"),
                Ok(count) => read.extend_from_slice(&part[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    #[tokio::test]
    async fn a_body_is_sent_part_by_part_as_it_comes() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let to = listener.local_addr().expect("it has one");
        let parts = broadcast::Sender::new(1);
        let stream_parts = {
            let parts = parts.clone();
            async move || {
                let parts = unfold(parts.subscribe(), async |mut parts| {
                    Some((parts.recv().await.ok()?, parts))
                });
                Body::from_stream(parts.map(Ok::<&str, Infallible>))
            }
        };
        let (_close, closing) = watch::channel(false);
        let limits = ConnectionLimits { connections: 1, unproven_per_peer: 1, proxies: Vec::new() };
        let router = Router::new().route("/", get(stream_parts));
        let talk = async {
            let stream = TcpStream::connect(to).await.expect("it listens");
            stream.writable().await.expect("it is open");
            stream.try_write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is little");
            read_until(&stream, "transfer-encoding: chunked").await;
            for part in ["first", "second"] {
                parts.send(part).expect("the handler listens");
                read_until(&stream, part).await;
            }
        };
        tokio::select! {
            () = listen(&listener, &Standing, closing, limits, router) => unreachable!("it is open"),
            () = talk => {}
        }
    }

    #[tokio::test]
    async fn little_is_read_of_a_connection_that_was_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let to = listener.local_addr().expect("it has one");
        let mut sender = std::net::TcpStream::connect(to).expect("it listens");
        let (stream, _) = listener.accept().await.expect("it came");
        let talk = vec![b'x'; REFUSED_BYTES_MAX];
        // Far more than what waits unread in the system.
        let talks = std::thread::spawn(move || (0..4096).all(|_| sender.write_all(&talk).is_ok()));
        refuse(stream, &Standing).await;
        assert!(!talks.join().expect("it does not panic"), "it was cut off before it had said all");
    }
}
