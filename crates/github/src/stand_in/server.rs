//! Sockets, and where the levers take effect.
//!
//! Not here: what is answered (`rest`, `control`).

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::control;
use super::hooks;
use super::http::{StandInReply, StandInRequest};
use super::levers::{Outage, RateLimit};
use super::rest;
use super::world::World;
use crate::settings::is_loopback;

/// No request of ours is larger.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The connection is closed instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is dropped")]
struct Dropped;

/// Serves until the future is dropped, and every connection with it.
pub(super) async fn serve(listener: TcpListener, world: Arc<World>) {
    let mut connections = JoinSet::new();
    connections.spawn(hooks::send_forever(Arc::clone(&world)));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, Arc::clone(&world)));
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                // Most likely there are too many; the end of one makes room.
                connections.join_next().await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, world: Arc<World>) {
    let service = service_fn(|request| answer(request, &world));
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(
    request: Request<Incoming>,
    world: &World,
) -> Result<Response<Full<Bytes>>, Dropped> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Dropped)?;
    let mut ask = StandInRequest::new(&parts, body.to_bytes());
    if ask.path.starts_with(&["api".to_owned(), "v3".to_owned()]) {
        // As GitHub Enterprise Server has it.
        ask.path.drain(..2);
    }
    if ask.path.first().is_none_or(|first| first != "_stand-in") {
        return github(&ask, world).await.map(StandInReply::response);
    }
    // A page in a browser on this machine must not be able to queue scripts.
    let host = ask.host.rsplit_once(':').map_or(ask.host.as_str(), |(host, _)| host);
    if !is_loopback(host) || !(ask.body.is_empty() || ask.is_json) {
        return Ok(StandInReply::refusal(403, "Ask by a loopback address, in JSON").response());
    }
    if !control::is_runners(&ask) {
        return Ok(control::hands(&ask, world).await.response());
    }
    down(world).await?;
    if world.look(|state, _| state.levers.outage.is_some()) {
        return Ok(unavailable().response());
    }
    let reply = control::runners(&ask, world).await;
    kept(world)?;
    Ok(reply.response())
}

/// GitHub's interface under its levers.
async fn github(ask: &StandInRequest, world: &World) -> Result<StandInReply, Dropped> {
    world.act(|state, _| state.calls += 1);
    down(world).await?;
    let reply = world.act(|state, now| {
        let levers = &state.levers;
        if levers.outage.is_some() {
            return unavailable();
        }
        if levers.refuse_credentials {
            return StandInReply::refusal(401, "Bad credentials");
        }
        match levers.rate_limit {
            Some(RateLimit::Primary) => rest::over_budget(ask, state, &world.options, now),
            Some(RateLimit::Secondary { retry_after }) => {
                let said = "You have exceeded a secondary rate limit. Please wait a few minutes \
                            before you try again.";
                let mut reply = StandInReply::refusal(429, said);
                reply.headers.push(("retry-after", retry_after.to_string()));
                reply
            }
            None => rest::answer(ask, state, &world.options, now),
        }
    });
    world.look(|state, _| *state.answers.entry((rest::kind(ask), reply.status)).or_default() += 1);
    kept(world)?;
    Ok(reply)
}

/// Slow, and perhaps no answer at all.
async fn down(world: &World) -> Result<(), Dropped> {
    let slow = world.look(|state, _| state.levers.slow_ms);
    if slow > 0 {
        world.sleep(Duration::from_millis(slow)).await;
    }
    let dropped = world.look(|state, _| state.levers.outage == Some(Outage::Drop));
    if dropped { Err(Dropped) } else { Ok(()) }
}

/// An answer, unless it is to be lost.
fn kept(world: &World) -> Result<(), Dropped> {
    world.look(|state, _| match state.levers.lose_answers {
        0 => Ok(()),
        left => {
            state.levers.lose_answers = left - 1;
            Err(Dropped)
        }
    })
}

fn unavailable() -> StandInReply {
    StandInReply::refusal(503, "Service unavailable")
}
