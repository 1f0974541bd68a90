//! Shows a witness the date of each of AWS's answers, so that a process notices that its clock is wrong.
//!
//! The HTTP client does that: every adapter has the one of its configuration, and its calls are those
//! that AWS dated.
//!
//! Not here: what a date proves (`core::clock_witness`).

use std::fmt;
use std::sync::Arc;

use aws_config::SdkConfig;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use bullpen_core::clock_witness::ClockWitness;
use bullpen_core::ports::Clock;
use bullpen_core::time::http_date;

/// The same configuration, with a client that shows `witness` the date of each answer.
pub fn watched<C: Clock + 'static>(
    config: SdkConfig,
    clock: Arc<C>,
    witness: ClockWitness,
) -> SdkConfig {
    let Some(client) = config.http_client() else { return config };
    let watched = http_client_fn(move |settings, components| {
        let (clock, witness) = (Arc::clone(&clock), witness.clone());
        let inner = client.http_connector(settings, components);
        SharedHttpConnector::new(Watched { inner, clock, witness })
    });
    config.into_builder().http_client(watched).build()
}

/// A connector whose answers the witness sees.
struct Watched<C> {
    inner: SharedHttpConnector,
    clock: Arc<C>,
    witness: ClockWitness,
}

impl<C> fmt::Debug for Watched<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<C: Clock + 'static> HttpConnector for Watched<C> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (clock, witness) = (Arc::clone(&self.clock), self.witness.clone());
        let sent = clock.now();
        let answer = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let answer = answer.await?;
            if let Some(dated) = answer.headers().get("date").and_then(http_date) {
                witness.note(sent, clock.now(), dated);
            }
            Ok(answer)
        })
    }
}

#[cfg(all(test, feature = "mailbox"))]
mod tests {
    use std::time::Duration;

    use aws_config::Region;
    use aws_credential_types::Credentials;
    use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
    use aws_smithy_types::body::SdkBody;
    use bullpen_core::time::{Timestamp, to_http_date};
    use bullpen_sim::clock::ManualClock;

    use super::*;
    use crate::config::loader;

    /// Answers every call with this status and date.
    #[derive(Debug)]
    struct Service(u16, String);

    impl HttpConnector for Service {
        fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
            let status = self.0.try_into().expect("a status");
            let mut answer = HttpResponse::new(status, SdkBody::from("{}"));
            answer.headers_mut().insert("date", self.1.clone());
            HttpConnectorFuture::ready(Ok(answer))
        }
    }

    #[tokio::test]
    async fn answers_and_refusals_show_the_time_of_aws() {
        let at = Timestamp::from_millis(1_767_571_200_000);
        for (status, ahead) in [(200, 40), (400, 40), (200, 0)] {
            let clock = ManualClock::at(at.after(Duration::from_secs(ahead)));
            let client = http_client_fn(move |_, _| {
                SharedHttpConnector::new(Service(status, to_http_date(at)))
            });
            let config = loader()
                .region(Region::new("eu-west-1"))
                .credentials_provider(Credentials::new("AKID", "not a secret", None, None, "tests"))
                .http_client(client)
                .load()
                .await;
            let witness = ClockWitness::of("AWS");
            let config = watched(config, clock, witness.clone());
            let _ = aws_sdk_dynamodb::Client::new(&config).list_tables().send().await;
            let seen = witness.more_than(Duration::from_secs(30));
            assert_eq!(seen.is_some(), ahead > 30, "{status} {ahead}: {seen:?}");
        }
    }
}
