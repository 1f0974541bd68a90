//! Sends one HTTP call: waits for the account's budget, adds GitHub's headers, and limits the time
//! by the given clock.
//!
//! It never retries: a call whose answer was lost may have had its effect, and only the caller can
//! decide what to do then.
//!
//! Not here: credentials (`login`), the budget (`budget`), and the meaning of a refusal (`fault`).

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::clock_witness::ClockWitness;
use bullpen_core::forge_rates::{CallPriority, CallPurpose};
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::{Timestamp, http_date};
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LINK,
    USER_AGENT,
};
use hyper::{Method, Request};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::budget::points;
use crate::fault::{NotFoundMeans, classify};
use crate::limits::{ANSWER_BYTES_MAX, CALL_TIMEOUT};
use crate::meter::Meter;
use crate::settings::{BadSettings, Base, Settings};

/// The escaped bytes in a segment of a path or a value of a query: all but RFC 3986's unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The newest version that every supported GitHub Enterprise Server knows too.
const API_VERSION: &str = "2022-11-28";
const AGENT: &str = concat!("bullpen/", env!("CARGO_PKG_VERSION"));

/// The HTTP connection to GitHub.
pub(crate) struct Wire<C> {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Base,
    clock: Arc<C>,
    witness: ClockWitness,
}

/// One HTTP request to GitHub.
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Relative to the base, beginning with a slash.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// The tag of the version that the caller has already.
    pub(crate) seen: Option<String>,
    pub(crate) purpose: CallPurpose,
    pub(crate) priority: CallPriority,
}

impl Call {
    fn new(purpose: CallPurpose, method: Method, path: String, body: Option<Value>) -> Self {
        let priority = CallPriority::Read;
        Self { method, path, body, seen: None, purpose, priority }
    }

    pub(crate) fn get(purpose: CallPurpose, path: String) -> Self {
        Self::new(purpose, Method::GET, path, None)
    }

    pub(crate) fn post(purpose: CallPurpose, path: String, body: Option<Value>) -> Self {
        Self::new(purpose, Method::POST, path, body)
    }

    pub(crate) fn delete(purpose: CallPurpose, path: String) -> Self {
        Self::new(purpose, Method::DELETE, path, None)
    }

    /// For calls that a job waits for.
    pub(crate) fn urgent(self) -> Self {
        Self { priority: CallPriority::Urgent, ..self }
    }

    /// For calls that no caller is blocked on.
    pub(crate) fn housekeeping(self) -> Self {
        Self { priority: CallPriority::Housekeeping, ..self }
    }

    pub(crate) fn points(&self) -> u32 {
        points(self.method != Method::GET)
    }
}

/// GitHub's answer, of any status.
#[derive(Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    pub(crate) retry_after: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset: Option<i64>,
    /// When GitHub made the answer, by its clock.
    pub(crate) dated: Option<Timestamp>,
    /// The version's tag, for [`Call::seen`].
    pub(crate) tag: Option<String>,
    /// The path of the next page.
    pub(crate) next: Option<String>,
}

impl Answer {
    /// The answer if its status is 2xx; otherwise the refusal's fault.
    pub(crate) fn accepted(self, absent: NotFoundMeans) -> Result<Self, Fault> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(classify(&self, absent)) }
    }

    /// Parses the body. Errors never quote the body: it may contain a secret.
    pub(crate) fn read<T: DeserializeOwned>(&self, what: &str) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            Fault::Unreadable(format!("GitHub's {what}: not as expected at {place}"))
        })
    }
}

/// Omits the body: it may contain a token.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, retry_after, limit, remaining, reset, dated, tag, next, body } = self;
        f.debug_struct("Answer")
            .field("status", status)
            .field("bytes", &body.len())
            .field("retry_after", retry_after)
            .field("limit", limit)
            .field("remaining", remaining)
            .field("reset", reset)
            .field("dated", dated)
            .field("tag", tag)
            .field("next", next)
            .finish()
    }
}

impl<C: Clock> Wire<C> {
    pub(crate) fn new(settings: &Settings, clock: Arc<C>) -> Result<Self, BadSettings> {
        let base = Base::parse(&settings.base_url)?;
        let tls = tls(settings.extra_roots.as_deref())?;
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = https.enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, base, clock, witness: ClockWitness::default() })
    }

    pub(crate) fn witness(&self) -> &ClockWitness {
        &self.witness
    }

    pub(crate) fn clock(&self) -> &C {
        &self.clock
    }

    /// Sends one call when the budget allows it. A fault here means that no answer arrived.
    pub(crate) async fn send(
        &self,
        call: &Call,
        bearer: &Secret,
        meter: &Meter,
    ) -> Result<Answer, Fault> {
        self.send_as(call, Some(bearer), meter).await
    }

    /// Sends a call without a credential; GitHub allows few of them.
    pub(crate) async fn send_anonymously(&self, call: &Call) -> Result<Answer, Fault> {
        self.send_as(call, None, &Meter::new()).await
    }

    async fn send_as(
        &self,
        call: &Call,
        bearer: Option<&Secret>,
        meter: &Meter,
    ) -> Result<Answer, Fault> {
        let request = self.request(call, bearer)?;
        let under_way = meter.wait_for_turn(&*self.clock, call).await?;
        tracing::debug!(method = %call.method, path = %call.path, "calls GitHub");
        let sent = self.clock.now();
        let answer = within(&*self.clock, CALL_TIMEOUT, self.exchange(request)).await;
        let answer = match answer {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                let error = chain(&*error);
                tracing::warn!(path = %call.path, error, "github did not answer");
                let authority = self.base.authority();
                return Err(Fault::Unavailable(format!("GitHub at {authority}: {error}")));
            }
            None => {
                let waited_s = CALL_TIMEOUT.as_secs();
                tracing::warn!(path = %call.path, waited_s, "github did not answer in time");
                let authority = self.base.authority();
                let text = format!("GitHub at {authority} did not answer in {waited_s} s");
                return Err(Fault::Unavailable(text));
            }
        };
        if let Some(dated) = answer.dated {
            self.witness.note(sent, self.clock.now(), dated);
        }
        meter.record(&*self.clock, call, under_way, &answer);
        Ok(answer)
    }

    fn request(&self, call: &Call, bearer: Option<&Secret>) -> Result<Request<Full<Bytes>>, Fault> {
        let unsendable = || Fault::Unclassified("a request that cannot be sent".to_owned());
        let uri = self.base.at(&call.path).ok_or_else(unsendable)?;
        let sensitive = |bearer: &Secret| {
            let mut bearer = HeaderValue::try_from(format!("Bearer {}", bearer.reveal()))
                .map_err(|_| unsendable())?;
            bearer.set_sensitive(true);
            Ok::<_, Fault>(bearer)
        };
        let bearer = bearer.map(sensitive).transpose()?;
        let mut request = Request::builder().method(&call.method).uri(uri);
        if let Some(headers) = request.headers_mut() {
            headers.extend(bearer.map(|bearer| (AUTHORIZATION, bearer)));
            headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
            headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            headers.insert("x-github-api-version", HeaderValue::from_static(API_VERSION));
            let seen = call.seen.as_deref().and_then(|tag| HeaderValue::from_str(tag).ok());
            if let Some(tag) = seen {
                headers.insert(IF_NONE_MATCH, tag);
            }
            if call.body.is_some() {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
        }
        let body = call.body.as_ref().map(Value::to_string).unwrap_or_default();
        request.body(Full::new(body.into())).map_err(|_| unsendable())
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let response = self.client.request(request).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        let headers = &parts.headers;
        let next = header(headers, LINK.as_str()).and_then(next_link);
        Ok(Answer {
            status: parts.status.as_u16(),
            body,
            // The header may hold a date instead of seconds; the default pause serves then.
            retry_after: header(headers, "retry-after")
                .map(|text| text.parse().unwrap_or(crate::limits::PAUSE_DEFAULT.as_secs())),
            limit: header(headers, "x-ratelimit-limit").and_then(|text| text.parse().ok()),
            dated: header(headers, DATE.as_str()).and_then(http_date),
            tag: header(headers, ETAG.as_str()).map(str::to_owned),
            remaining: header(headers, "x-ratelimit-remaining").and_then(|text| text.parse().ok()),
            reset: header(headers, "x-ratelimit-reset").and_then(|text| text.parse().ok()),
            next: next.and_then(|link| self.base.within(link)),
        })
    }
}

/// Awaits `work`, at most `limit` by this clock.
pub(crate) async fn within<C: Clock, T>(
    clock: &C,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    let timer = pin!(clock.sleep(limit));
    match select(pin!(work), timer).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}

/// Percent-encodes a text as one segment of a path or one value of a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

fn tls(extra_roots: Option<&str>) -> Result<rustls::ClientConfig, BadSettings> {
    let mut roots = rustls::RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(pem) = extra_roots {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| BadSettings::Roots(error.into()))?;
            roots.add(certificate).map_err(|error| BadSettings::Roots(error.into()))?;
        }
        if roots.len() == before {
            return Err(BadSettings::Roots("there is no certificate in the text".into()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| BadSettings::Roots(error.into()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The target of `rel="next"`.
fn next_link(header: &str) -> Option<&str> {
    header.split(',').find_map(|link| {
        let (target, parameters) = link.split_once(';')?;
        let is_next = parameters.split(';').any(|one| one.trim() == "rel=\"next\"");
        is_next.then(|| target.trim().trim_start_matches('<').trim_end_matches('>'))
    })
}

/// An error's text with those of its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found_among_the_links() {
        let header = "<https://h/a?page=1>; rel=\"prev\", <https://h/a?page=3>; rel=\"next\", \
                      <https://h/a?page=9>; rel=\"last\"";
        assert_eq!(next_link(header), Some("https://h/a?page=3"));
        assert_eq!(next_link("<https://h/a?page=1>; rel=\"prev\""), None);
        assert_eq!(next_link("nonsense"), None);
    }

    #[test]
    fn escaped_text_stays_one_segment_of_a_path() {
        assert_eq!(escaped("bp-i-1.2_3~"), "bp-i-1.2_3~");
        assert_eq!(escaped("a/../b?c&d=e f"), "a%2F..%2Fb%3Fc%26d%3De%20f");
    }

    #[test]
    fn an_answer_does_not_show_its_body() {
        let answer =
            Answer { status: 201, body: "{\"token\":\"t0p\"}".into(), ..Answer::default() };
        assert!(!format!("{answer:?}").contains("t0p"));
        let fault = answer.read::<u64>("token").unwrap_err();
        assert!(!fault.to_string().contains("t0p"), "{fault}");
    }

    #[test]
    fn additional_certificates_are_read_or_refused() {
        assert!(tls(None).is_ok());
        for pem in
            ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            assert!(matches!(tls(Some(pem)), Err(BadSettings::Roots(_))), "{pem}");
        }
    }
}
