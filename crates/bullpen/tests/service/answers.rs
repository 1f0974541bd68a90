//! Every answer of the two listeners with its status, its headers and its body.
//!
//! Not here: what a delivery does (`jobs`), or floods of requests (`strangers`).

use std::fs;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::webhook::Webhook;
use crate::wire::{place, read, write};
use crate::world::{SECRET, World};

const TEXT: &str = "content-type: text/plain; charset=utf-8";
const ADMIN_TOKEN: &str = "the operator's own";

/// The status, the headers in alphabetical order without the date, and the body.
#[derive(Debug, PartialEq, Eq)]
struct FullAnswer {
    status: String,
    headers: Vec<String>,
    body: String,
}

impl FullAnswer {
    /// An answer with these headers, and with the length of this body.
    fn of(status: &str, headers: &[&str], body: &str) -> Self {
        let length = format!("content-length: {}", body.len());
        let mut headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
        if !status.starts_with("204") {
            headers.push(length);
        }
        headers.push("connection: close".to_owned());
        headers.sort();
        Self { status: status.to_owned(), headers, body: body.to_owned() }
    }

    /// A line of text.
    fn line(status: &str, line: &str) -> Self {
        Self::of(status, &[TEXT], &format!("{line}\n"))
    }

    /// The same without its body: the answer to HEAD.
    fn without_body(self) -> Self {
        Self { body: String::new(), ..self }
    }
}

async fn exchange(to: SocketAddr, request: &[u8]) -> FullAnswer {
    let stream = TcpStream::connect(to).await.expect("the service listens");
    write(&stream, request).await.expect("it is open");
    let answer = String::from_utf8(read(&stream).await).expect("it is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let (status, headers) = head.split_once("\r\n").expect("headers");
    let status = status.strip_prefix("HTTP/1.1 ").expect("HTTP").to_owned();
    let mut headers: Vec<String> = headers
        .split("\r\n")
        .filter(|header| !header.starts_with("date: "))
        .map(str::to_owned)
        .collect();
    headers.sort();
    FullAnswer { status, headers, body: body.to_owned() }
}

/// A request without a body.
async fn ask(to: SocketAddr, method: &str, path: &str, headers: &str) -> FullAnswer {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    exchange(to, head.as_bytes()).await
}

#[tokio::test]
async fn the_webhook_listener_answers_every_request_as_documented() {
    let world = World::new().await;
    let served = world.serve_with("--roles webhook").await;
    let (to, _) = place(&served.webhook);
    let nowhere = || FullAnswer::line("404 Not Found", "webhooks are taken at /webhook");
    for path in ["/", "/webhook/", "/webhook/more", "//webhook", "/%77ebhook", "/healthz", "*"] {
        let method = if path == "*" { "OPTIONS" } else { "GET" };
        assert_eq!(ask(to, method, path, "").await, nowhere(), "{path}");
    }
    assert_eq!(ask(to, "POST", "/", "content-length: 0\r\n").await, nowhere());
    assert_eq!(ask(to, "HEAD", "/", "").await, nowhere().without_body());
    let not_posted = || FullAnswer::line("405 Method Not Allowed", "webhooks are posted");
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        assert_eq!(ask(to, method, "/webhook", "").await, not_posted(), "{method}");
    }
    assert_eq!(ask(to, "HEAD", "/webhook", "").await, not_posted().without_body());

    let send = async |webhook: Webhook| {
        exchange(to, &webhook.header("connection", "close").kept_open(&served.webhook)).await
    };
    let ping = || Webhook::new("ping", "{}");
    let unsigned =
        "the signature is missing or wrong: compare the secret with the webhook's at GitHub";
    assert_eq!(send(ping()).await, FullAnswer::line("401 Unauthorized", unsigned));
    assert_eq!(send(ping().signed(SECRET)).await, FullAnswer::of("204 No Content", &[], ""));
    let with_query = ping().signed(SECRET).header("connection", "close");
    let with_query = with_query.kept_open(&format!("{}?a=b", served.webhook));
    let answer = exchange(to, &with_query).await;
    assert_eq!(answer, FullAnswer::of("204 No Content", &[], ""), "a query changes nothing");
    let no_event = ping().without("x-github-event").signed(SECRET);
    let missing = FullAnswer::line("400 Bad Request", "the header X-GitHub-Event is missing");
    assert_eq!(send(no_event).await, missing);
    let large = ping().header("content-length", "99999999").signed(SECRET);
    let limit = "the body is larger than 5242880 bytes";
    assert_eq!(send(large).await, FullAnswer::line("413 Payload Too Large", limit));
}

#[tokio::test]
async fn the_admin_listener_answers_every_request_as_documented() {
    let world = World::new().await;
    let served = world.serve().await;
    let (to, _) = place(&served.admin);
    assert_eq!(ask(to, "GET", "/healthz", "").await, FullAnswer::line("200 OK", "ok"));
    assert_eq!(ask(to, "GET", "/readyz", "").await, FullAnswer::line("200 OK", "ready"));
    assert_eq!(ask(to, "GET", "/readyz?a=b", "").await, FullAnswer::line("200 OK", "ready"));
    let nowhere = || FullAnswer::line("404 Not Found", "there are /healthz, /readyz and /metrics");
    for path in ["/", "/healthz/", "/webhook", "/metrics/more"] {
        assert_eq!(ask(to, "GET", path, "").await, nowhere(), "{path}");
    }
    let read_only =
        || FullAnswer::line("405 Method Not Allowed", "there is nothing to change here");
    for (method, path) in [
        ("POST", "/healthz"),
        ("PUT", "/readyz"),
        ("DELETE", "/metrics"),
        ("OPTIONS", "/metrics"),
        ("POST", "/webhook"),
        ("BREW", "/"),
    ] {
        assert_eq!(ask(to, method, path, "").await, read_only(), "{method} {path}");
    }
    for path in ["/healthz", "/readyz", "/metrics", "/"] {
        assert_eq!(ask(to, "HEAD", path, "").await, read_only().without_body(), "{path}");
    }
    let metrics = ask(to, "GET", "/metrics", "").await;
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(metrics, FullAnswer::of("200 OK", &[kind], &metrics.body));
    assert!(metrics.body.ends_with("# EOF\n"), "{}", metrics.body);
}

#[tokio::test]
async fn the_admin_listener_asks_for_its_token_before_anything_else() {
    let mut world = World::new().await;
    world.environment.insert("THE_ADMIN_TOKEN".to_owned(), ADMIN_TOKEN.to_owned());
    let file = world.path("bullpen.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    let token = "[listeners]\nadmin-token = \"env:THE_ADMIN_TOKEN\"\n";
    fs::write(&file, format!("{text}{token}")).expect("it can be written");
    let served = world.serve().await;
    let (to, _) = place(&served.admin);
    let refused = || FullAnswer::line("401 Unauthorized", "give the admin token as a bearer");
    for (method, path) in [("GET", "/healthz"), ("GET", "/nothing"), ("POST", "/metrics")] {
        for header in ["", "authorization: Bearer wrong\r\n", "authorization: Basic eDp5\r\n"] {
            assert_eq!(ask(to, method, path, header).await, refused(), "{method} {path} {header}");
        }
    }
    let bearer = format!("authorization: Bearer {ADMIN_TOKEN}\r\n");
    assert_eq!(ask(to, "GET", "/healthz", &bearer).await, FullAnswer::line("200 OK", "ok"));
    assert_eq!(ask(to, "GET", "/nothing", &bearer).await.status, "404 Not Found");
    assert_eq!(ask(to, "POST", "/healthz", &bearer).await.status, "405 Method Not Allowed");
}
