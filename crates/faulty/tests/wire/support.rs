//! A client on a plain TCP connection, and a target that records its requests.
//!
//! Not here: what the tests expect of the proxy.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The longest wait for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// A request that the target received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A server that answers every request with its own body.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    _serving: JoinSet<()>,
}

impl Target {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&seen)));
        Self { address, seen, _serving: serving }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }
}

async fn serve(listener: TcpListener, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let seen = Arc::clone(&seen);
        connections.spawn(async move {
            let service = service_fn(|request| echo(request, &seen));
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            drop(served.await);
        });
    }
}

async fn echo(
    request: Request<Incoming>,
    seen: &Mutex<Vec<Seen>>,
) -> hyper::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = parts.uri.to_string();
    seen.lock().expect("no panic").push(Seen { path, headers: parts.headers, body: body.clone() });
    let response = Response::builder().header("x-target", "yes").body(Full::new(body));
    Ok(response.expect("a response"))
}

/// An answer that the client received.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// One connection.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.expect("a connection")))
    }

    /// A signed call: `target` as in `X-Amz-Target`, and the caller's access key id.
    pub(crate) async fn call(
        &mut self,
        target: &str,
        key: &str,
        body: &[u8],
    ) -> io::Result<Answer> {
        self.send(target, key, body).await?;
        tokio::time::timeout(ANSWER_TIME_MAX, self.receive()).await?
    }

    /// A signed call of a query protocol: the service as in the signature, and a form.
    pub(crate) async fn query(&mut self, service: &str, form: &str) -> io::Result<Answer> {
        let kind = "content-type: application/x-www-form-urlencoded";
        self.send_as("/", kind, &format!("KEY/20260101/us-east-1/{service}"), form.as_bytes())
            .await?;
        tokio::time::timeout(ANSWER_TIME_MAX, self.receive()).await?
    }

    pub(crate) async fn send(&mut self, target: &str, key: &str, body: &[u8]) -> io::Result<()> {
        let kind = format!("x-amz-target: {target}\r\ncontent-type: application/x-amz-json-1.0");
        self.send_as("/path?query=1", &kind, &format!("{key}/20260101/us-east-1/any"), body).await
    }

    async fn send_as(
        &mut self,
        path: &str,
        kind: &str,
        signed: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: signed.example\r\n{kind}\r\n\
             content-length: {}\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential={signed}/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n",
            body.len()
        );
        // In one write: the end of a request must not wait for the other side's acknowledgement.
        self.0.write_all(&[head.as_bytes(), body].concat()).await
    }

    async fn receive(&mut self) -> io::Result<Answer> {
        let status = self.line().await?;
        let status = status.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = self.line().await?.split_once(": ") {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").and_then(|text| text.parse().ok());
        let mut body = vec![0; length.unwrap_or_default()];
        self.0.read_exact(&mut body).await?;
        Ok(Answer { status: status.expect("a status"), headers, body })
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// One call on a connection of its own.
pub(crate) async fn call(address: SocketAddr, target: &str, body: &str) -> io::Result<Answer> {
    Client::connect(address).await.call(target, "KEY", body.as_bytes()).await
}
