//! An HTTP client that counts calls, can lose an answer that the emulator gave, and can answer by
//! itself.
//!
//! Not here: the emulator.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_http_client::Builder;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;

/// A test's control over one client's calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Arc<Levers>);

#[derive(Debug, Default)]
struct Levers {
    lose_next: AtomicBool,
    calls: AtomicU32,
    answers: Mutex<VecDeque<(u16, String)>>,
}

impl Wire {
    /// Drops the next answer.
    pub(crate) fn lose_next_answer(&self) {
        self.0.lose_next.store(true, Ordering::SeqCst);
    }

    /// Queues an answer: each next call gets one, and is not sent to the emulator.
    pub(crate) fn answer_next(&self, status: u16, body: &str) {
        let mut answers = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push_back((status, body.to_owned()));
    }

    /// The number of calls since the last call of this method.
    pub(crate) fn calls(&self) -> u32 {
        self.0.calls.swap(0, Ordering::SeqCst)
    }

    /// The HTTP client that this controls.
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
        let canned = levers.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if let Some((status, body)) = canned {
            let status = StatusCode::try_from(status).expect("a status code");
            return HttpConnectorFuture::ready(Ok(HttpResponse::new(status, SdkBody::from(body))));
        }
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
