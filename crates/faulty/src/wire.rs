//! Connections: read a call whole, then refuse it, forward it, or cut the connection.
//!
//! Headers pass unchanged both ways, and connections are kept alive on both sides.
//!
//! Not here: choosing the fault (`levers`).

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use hyper::http::uri::Scheme;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::answers;
use crate::call::Head;
use crate::counts::Counts;
use crate::fault::Fault;
use crate::levers::{Fate, Levers};
use crate::plan::Plan;
use crate::real::sleep;

/// The most bytes that DynamoDB accepts in one call.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Shorter than emulators keep idle connections: a call on a connection that is being closed would
/// be a fault outside the plan.
const TARGET_IDLE_MAX: Duration = Duration::from_secs(1);

/// How the proxy ends a connection instead of answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Cut {
    #[error("the connection is closed")]
    Close,
    #[error("the connection is reset")]
    Reset,
}

/// The state that the connections of one proxy share.
#[derive(Debug)]
pub(crate) struct Shared {
    target: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    levers: Mutex<Levers>,
    counts: Mutex<Counts>,
}

impl Shared {
    pub(crate) fn new(target: SocketAddr, plan: Plan) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(TARGET_IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .build(connector);
        let (levers, counts) = (Mutex::new(Levers::new(plan)), Mutex::default());
        Self { target, client, levers, counts }
    }

    pub(crate) fn levers(&self) -> MutexGuard<'_, Levers> {
        self.levers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call from its arrival to its end. Dropping it logs the end, also if the caller goes away.
struct InFlight<'a> {
    shared: &'a Shared,
    head: Head,
    fate: Fate,
    log_index: Option<usize>,
}

impl<'a> InFlight<'a> {
    fn new(shared: &'a Shared, headers: &HeaderMap, body: &Bytes) -> Self {
        let head = Head::of(headers, body);
        let fate = shared.levers().fate(&head);
        let log_index = shared.counts().arrived(&head, body, fate.fault);
        Self { shared, head, fate, log_index }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.shared.counts().ended(self.log_index);
    }
}

/// Serves until `stop`; then the port is free and every connection has ended.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, stop: Arc<Notify>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.notified() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, Arc::clone(&shared)));
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                // Most likely there are too many; the end of one makes room.
                connections.join_next().await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "connection ended before it began");
        return;
    }
    let service = service_fn(|request| answer(request, &shared));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let Err(error) = (&mut connection).await else { return };
    let cut = error.source().and_then(|source| source.downcast_ref::<Cut>()).copied();
    if cut == Some(Cut::Reset) {
        let stream = connection.into_parts().io.into_inner();
        if let Err(error) = stream.set_zero_linger() {
            tracing::warn!(%error, "connection closed instead of reset");
        }
    } else if cut.is_none() {
        tracing::debug!(%error, "connection ended early");
    }
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Result<Response<Full<Bytes>>, Cut> {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            tracing::warn!(error, "could not read a request");
            return Err(Cut::Close);
        }
    };
    let call = InFlight::new(shared, &parts.headers, &body);
    let Some(fault) = call.fate.fault else {
        return Ok(forward(&call, parts, body).await);
    };
    if let Some(refusal) = answers::refusal(fault, &call.head, &body, call.fate.draw) {
        return Ok(refusal);
    }
    if fault == Fault::ResetBefore {
        return Err(Cut::Reset);
    }
    let response = forward(&call, parts, body).await;
    match fault {
        Fault::AnswerLost => return Err(Cut::Close),
        Fault::AnswerReset => return Err(Cut::Reset),
        _ => sleep(call.fate.delay).await,
    }
    Ok(response)
}

/// Sends the call to the target and reads the whole answer.
async fn forward(call: &InFlight<'_>, parts: Parts, body: Bytes) -> Response<Full<Bytes>> {
    let shared = call.shared;
    shared.counts().forwarded(&call.head, call.log_index);
    match ask(shared, parts, body).await {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!(error, target = %shared.target, "the target did not answer");
            shared.counts().unanswered(&call.head);
            answers::bad_gateway()
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn ask(shared: &Shared, parts: Parts, body: Bytes) -> Result<Response<Full<Bytes>>, Failure> {
    let mut uri = parts.uri.into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(shared.target.to_string().parse()?);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = Uri::from_parts(uri)?;
    *request.headers_mut() = parts.headers;
    let (parts, body) = shared.client.request(request).await?.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
    Ok(Response::from_parts(parts, Full::new(body)))
}
