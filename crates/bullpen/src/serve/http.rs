//! The accept loop that every listener has: connections, for how long, and their end.
//!
//! Connections are futures of one task: none outlives the listener, and there is nothing to abort. They
//! share that task with the other listener, the jobs and the signals, so what strangers send is kept from
//! taking the whole of its turn: tokio lets a task do so many operations a turn, and what connections do
//! does not count.
//!
//! Not here: what is answered (`webhook`, `admin`), or who keeps a seat when they are short (`connections`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
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
use tokio::sync::{oneshot, watch};
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;

use super::connections::{Admission, ConnectionId, ConnectionLimits, Connections};

/// How long a head may take, and how long a connection may say nothing: GitHub itself waits ten
/// seconds for an answer.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long requests that have begun may go on when the listener closes.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// How long nothing is accepted after the system refused to: most likely it is out of descriptors.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);
/// How many connections are accepted before the rest of the process has its turn.
const ACCEPTED_AT_ONCE: usize = 16;

/// The largest head: GitHub's have two thousand bytes, and proxies add some. It is also what a
/// connection may hold of a body that nobody reads yet.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How many connections are told at once that there is no room; beyond that they are just closed.
const REFUSALS_MAX: usize = 32;
/// How long a refusal waits until it is read. One that is closed sooner may not be.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
/// How much is read of one that was refused: a delivery, and no more than the process has time for.
const REFUSED_BYTES_MAX: usize = 64 * 1024;
/// What a connection is told for which there is no room.
const NO_ROOM: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 10\r\nconnection: close\r\n\
                       content-type: text/plain; charset=utf-8\r\ncontent-length: 50\r\n\r\n\
                       too many connections are open; try it again later\n";

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

/// The connection that a request came by, for those who answer it.
pub(super) struct Caller<'c> {
    seat: ConnectionId,
    crowd: &'c RefCell<Connections>,
    now: &'c dyn Fn() -> Duration,
}

impl Caller<'_> {
    /// The request is signed, or else allowed: the connection keeps its seat from now on.
    pub(super) fn is_proven(&self) {
        self.crowd.borrow_mut().proves(self.seat);
    }

    fn asks(&self) {
        self.crowd.borrow_mut().asks(self.seat, (self.now)());
    }

    fn is_answered(&self) {
        self.crowd.borrow_mut().is_answered(self.seat, (self.now)());
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.crowd.borrow_mut().leaves(self.seat);
    }
}

/// Answers those who connect until `closing`, and then those who have asked already.
pub(super) async fn listen<C: Clock>(
    listener: &TcpListener,
    clock: &C,
    mut closing: watch::Receiver<bool>,
    bounds: ConnectionLimits,
    answer: impl AsyncFn(Request<Incoming>, &Caller<'_>) -> Answer,
) {
    let crowd = RefCell::new(Connections::new(bounds));
    let now = || clock.monotonic();
    let mut closers = BTreeMap::new();
    let mut connections = FuturesUnordered::new();
    let mut refusals = FuturesUnordered::new();
    let mut not_before = Duration::ZERO;
    let mut accepted_at_once = 0;
    let closed = closing.clone();
    let mut closing = pin!(async move { drop(closing.wait_for(|closing| *closing).await) });
    loop {
        let accepts_at = crowd.borrow_mut().accepts_at(now()).max(not_before);
        let accepts_in = accepts_at.saturating_sub(now());
        let accepted = tokio::select! {
            biased;
            () = &mut closing => break,
            // One look at each connection ends, and each look does: what is pipelined waits its turn.
            Some(seat) = unconstrained(connections.next()), if !connections.is_empty() => {
                closers.remove(&seat);
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
                not_before = now() + AFTER_REFUSAL;
                continue;
            }
        };
        if let Some(seat) = seat(&crowd, &mut closers, peer, now()) {
            let (give_up, seat_taken) = oneshot::channel();
            closers.insert(seat, give_up);
            let caller = Caller { seat, crowd: &crowd, now: &now };
            connections.push(converse(stream, caller, seat_taken, closed.clone(), &answer));
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
        () = unconstrained(async { while connections.next().await.is_some() {} }) => {}
        () = clock.sleep(CLOSE_WITHIN) => tracing::info!(left = connections.len(), "cut off"),
    }
}

/// The seat of a connection that has just come, if there is one for it; the connection that had it is
/// told to close.
fn seat(
    crowd: &RefCell<Connections>,
    closers: &mut BTreeMap<ConnectionId, oneshot::Sender<()>>,
    peer: SocketAddr,
    now: Duration,
) -> Option<ConnectionId> {
    let arrival = crowd.borrow_mut().arrives(peer.ip(), now);
    match arrival {
        Admission::Seated(seat) => Some(seat),
        Admission::Instead { seat, closes } => {
            tracing::debug!(%peer, "idle connection closed for another");
            // One that is over has nothing to close.
            let _ = closers.remove(&closes).map(|closer| closer.send(()));
            Some(seat)
        }
        Admission::Refused => {
            tracing::debug!(%peer, "connection refused");
            None
        }
    }
}

/// Tells a connection that there is no room, and reads what it says until it has heard that, within
/// bounds: a connection that is closed with something unread is cut off.
async fn refuse(stream: TcpStream, clock: &impl Clock) {
    // A new connection takes so few bytes at once, or is broken.
    let _ = stream.try_write(NO_ROOM.as_bytes());
    let heard = async {
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
        () = heard => {}
        () = clock.sleep(REFUSED_WITHIN) => {}
    }
}

/// One connection to its end, or until it gives its seat up.
async fn converse(
    stream: TcpStream,
    caller: Caller<'_>,
    seat_taken: oneshot::Receiver<()>,
    mut closing: watch::Receiver<bool>,
    answer: &impl AsyncFn(Request<Incoming>, &Caller<'_>) -> Answer,
) -> ConnectionId {
    let service = service_fn(async |request| {
        caller.asks();
        let answered = answer(request, &caller).await;
        caller.is_answered();
        Ok::<_, Infallible>(answered)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        Ok(()) = seat_taken => Ok(()),
        ended = connection.as_mut() => ended,
        _ = closing.wait_for(|closing| *closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    caller.seat
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::Write as _;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::OwnedFd;

    use bullpen_core::time::Timestamp;
    use futures_util::poll;

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
        let bounds = ConnectionLimits { connections: 1, unproven_per_peer: 1, proxies: Vec::new() };
        let answer = async |_: Request<Incoming>, _: &Caller<'_>| text(StatusCode::OK, "");
        let mut listening = pin!(listen(&listener, &Standing, closing, bounds, answer));
        assert!(poll!(listening.as_mut()).is_pending());
        close.send_replace(true);
        assert!(poll!(listening.as_mut()).is_ready(), "it listens to more than its accepts");
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
