//! Sockets, over which one router answers.
//!
//! Not here: routes (`rest`, `control`), or where the levers take effect (`admission`).

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::ALLOW;
use axum::response::Response;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::admission::Dropped;
use super::hooks;
use super::world::World;
use super::{control, rest};

/// No request of ours is larger.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Serves until the future is dropped, and every connection with it.
pub(super) async fn serve(listener: TcpListener, world: Arc<World>) {
    let router = TowerToHyperService::new(router(&world));
    let mut connections = JoinSet::new();
    connections.spawn(hooks::send_forever(world));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, router.clone()));
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

/// GitHub's interface, the same as GitHub Enterprise Server has it, and the stand-in's own.
fn router(world: &Arc<World>) -> Router {
    let github = rest::router(world);
    Router::new()
        .nest("/_stand-in", control::router(world))
        .nest("/api/v3", github.clone())
        .merge(github)
        .with_state(Arc::clone(world))
}

async fn connection(stream: TcpStream, router: TowerToHyperService<Router>) {
    let service = service_fn(|request| answer(request, &router));
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Answers one request, whose body is read first. An error closes the connection instead.
async fn answer(
    request: Request<Incoming>,
    router: &TowerToHyperService<Router>,
) -> Result<Response, Dropped> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Dropped)?;
    let request = Request::from_parts(parts, Body::from(body.to_bytes()));
    let Ok(mut response) = router.call(request).await;
    // At GitHub nothing is found by a wrong method, and so no method is named.
    response.headers_mut().remove(ALLOW);
    match response.extensions().get::<Dropped>() {
        Some(dropped) => Err(*dropped),
        None => Ok(response),
    }
}
