//! HTTP by hand: tests also send requests that no well-behaved client would send.
//!
//! Not here: the requests.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

/// A status and a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// The address and path of `http://ADDRESS/PATH`.
pub(crate) fn place(url: &str) -> (SocketAddr, String) {
    let rest = url.strip_prefix("http://").expect("plain http");
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    (address.parse().expect("an address"), format!("/{path}"))
}

pub(crate) async fn get(url: &str) -> Answer {
    let (address, path) = place(url);
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    talk(address, head.as_bytes(), b"").await
}

pub(crate) async fn talk(address: SocketAddr, head: &[u8], body: &[u8]) -> Answer {
    let stream = TcpStream::connect(address).await.expect("the listener accepts connections");
    // A server that refuses by the headers alone may not read the body.
    let written = match write(&stream, head).await {
        Ok(()) => write(&stream, body).await,
        failed => failed,
    };
    let answer = read(&stream).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {text:?}, {written:?}"));
    Answer { status, body: body.to_owned() }
}

pub(crate) async fn write(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// All bytes until the peer closes or cuts the connection.
pub(crate) async fn read(stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut part) {
            Ok(count) if count > 0 => all.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => break,
        }
    }
    all
}
