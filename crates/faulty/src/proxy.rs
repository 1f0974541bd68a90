//! The proxy as a test holds it.
//!
//! Not here: connections (`wire`).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::book::Counts;
use crate::fault::{Fault, has_conflicts};
use crate::plan::Plan;
use crate::wire::{Shared, serve};

/// An HTTP/1.1 proxy on loopback, between an AWS client and an emulator.
///
/// It runs on the runtime that started it, in real time. Dropping it ends it; [`Proxy::stop`] also
/// waits for that.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Arc<Notify>,
    /// The one task that accepts; a set, because a set's tasks end with it.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint to give a client: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it saw up to now.
    pub fn counts(&self) -> Counts {
        self.shared.counts().clone()
    }

    /// Another plan, from its beginning. Counts go on, and so do pulled levers.
    pub fn set(&self, plan: Plan) {
        self.shared.levers().set(plan);
    }

    /// The next call of this operation meets this fault, whatever the plan says; a second time is
    /// for the call after that.
    ///
    /// # Panics
    ///
    /// If the operation does not know the fault: that is a slip in a test.
    pub fn fail_next(&self, operation: &str, fault: Fault) {
        assert!(
            fault != Fault::Conflict || has_conflicts(operation),
            "no transaction conflicts with {operation}"
        );
        self.shared.levers().pull(operation, Some(fault));
    }

    /// The next call of this operation meets no fault, whatever the plan says.
    pub fn pass_next(&self, operation: &str) {
        self.shared.levers().pull(operation, None);
    }

    /// How many of the levers pulled by [`Proxy::fail_next`] and [`Proxy::pass_next`] no call has
    /// met yet.
    pub fn levers_left(&self) -> usize {
        self.shared.levers().left()
    }

    /// Ends every connection and frees the port.
    pub async fn stop(mut self) {
        self.stop.notify_one();
        while self.serving.join_next().await.is_some() {}
    }
}
