//! A wire that counts calls and can lose an answer after it was given.
//!
//! Not here: the emulator at its other end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use aws_smithy_http_client::Builder;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// What a test knows of one client's calls, and does to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Arc<Levers>);

#[derive(Debug, Default)]
struct Levers {
    lose_next: AtomicBool,
    calls: AtomicU32,
}

impl Wire {
    /// Loses the next answer.
    pub(crate) fn lose_next_answer(&self) {
        self.0.lose_next.store(true, Ordering::SeqCst);
    }

    /// How many calls were made since this was last asked.
    pub(crate) fn calls(&self) -> u32 {
        self.0.calls.swap(0, Ordering::SeqCst)
    }

    /// A client on this wire.
    pub(crate) fn client(self) -> SharedHttpClient {
        SharedHttpClient::new(OnWire { inner: Builder::new().build_http(), wire: self })
    }
}

#[derive(Clone, Debug)]
struct OnWire<Inner> {
    inner: Inner,
    wire: Wire,
}

impl HttpClient for OnWire<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(OnWire { inner, wire: self.wire.clone() })
    }
}

impl HttpConnector for OnWire<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let levers = &self.wire.0;
        levers.calls.fetch_add(1, Ordering::SeqCst);
        let (answer, lost) =
            (self.inner.call(request), levers.lose_next.swap(false, Ordering::SeqCst));
        HttpConnectorFuture::new(async move {
            match (answer.await, lost) {
                (Ok(_), true) => Err(ConnectorError::io("the test lost this answer".into())),
                (answer, _) => answer,
            }
        })
    }
}
