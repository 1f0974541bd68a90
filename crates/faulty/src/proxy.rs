//! The proxy's interface for tests.
//!
//! Not here: connections (`wire`).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::counts::Counts;
use crate::fault::{Fault, has_conflicts};
use crate::plan::Plan;
use crate::wire::{Shared, serve};

/// An HTTP/1.1 proxy on loopback, between an AWS client and an emulator.
///
/// It runs on the runtime that started it, in real time. Dropping it ends it; [`Proxy::stop`] also
/// waits for the end.
///
/// A client signs its requests for the proxy's host and port, and the target sees a signature for
/// another host. Emulators do not check signatures. AWS does, so the proxy works before emulators
/// only.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Arc<Notify>,
    /// The accepting task; in a set, because dropping the set ends the task.
    serving: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port and passes calls on to `target`.
    pub async fn start(target: SocketAddr, plan: Plan) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(target, plan));
        let stop = Arc::new(Notify::new());
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&shared), Arc::clone(&stop)));
        Ok(Self { address, shared, stop, serving })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint for a client: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The calls up to now.
    pub fn counts(&self) -> Counts {
        self.shared.counts().clone()
    }

    /// Starts another plan from its beginning. Counts and pulled levers stay.
    pub fn set(&self, plan: Plan) {
        self.shared.levers().set(plan);
    }

    /// Makes the next call of this operation meet this fault, instead of the plan's. A second
    /// `fail_next` applies to the call after that.
    ///
    /// # Panics
    ///
    /// If the operation cannot meet the fault: that is a mistake in a test.
    pub fn fail_next(&self, operation: &str, fault: Fault) {
        assert!(
            fault != Fault::Conflict || has_conflicts(operation),
            "no transaction conflicts with {operation}"
        );
        self.shared.levers().pull(operation, Some(fault));
    }

    /// Lets the next call of this operation pass without a fault, instead of the plan's.
    pub fn pass_next(&self, operation: &str) {
        self.shared.levers().pull(operation, None);
    }

    /// The number of levers from [`Proxy::fail_next`] and [`Proxy::pass_next`] that no call has met
    /// yet.
    pub fn levers_left(&self) -> usize {
        self.shared.levers().left()
    }

    /// Ends every connection and frees the port.
    pub async fn stop(mut self) {
        self.stop.notify_one();
        while self.serving.join_next().await.is_some() {}
    }
}
