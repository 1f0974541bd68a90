//! An instance's metadata, version 2: nothing without a token.
//!
//! Not here: anything that an agent does not ask for (the test EC2 has more).

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const TOKEN: &str = "a-token";

#[derive(Debug, Default)]
struct Book {
    items: BTreeMap<String, String>,
    looks: u64,
    refused: u64,
}

/// The service of one instance, for as long as the test's process lives.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
}

impl Metadata {
    pub(crate) fn of(instance: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let metadata = Self { address, book: Arc::default() };
        metadata.set("/latest/meta-data/instance-id", instance);
        let server = metadata.clone();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                // A caller that went away is none of the test's business.
                let _ = server.answer(&caller);
            }
        });
        metadata
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, path: &str, text: &str) {
        self.book().items.insert(path.to_owned(), text.to_owned());
    }

    /// How often something was asked for with a token.
    pub(crate) fn looks(&self) -> u64 {
        self.book().looks
    }

    /// How often without one.
    pub(crate) fn refused(&self) -> u64 {
        self.book().refused
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One request, and the connection is closed.
    fn answer(&self, caller: &TcpStream) -> io::Result<()> {
        let mut lines = BufReader::new(caller);
        let mut request = String::new();
        lines.read_line(&mut request)?;
        let (mut has_token, mut length) = (false, 0);
        loop {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            let (name, value) = line.split_once(':').unwrap_or_default();
            match (&*name.to_ascii_lowercase(), value.trim()) {
                ("", _) => break,
                ("x-aws-ec2-metadata-token", token) => has_token = token == TOKEN,
                ("content-length", value) => length = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        io::copy(&mut lines.take(length), &mut io::sink())?;
        let (status, text) = self.decide(&request, has_token);
        let mut caller = caller;
        write!(
            caller,
            "HTTP/1.1 {status} -\r\nx-aws-ec2-metadata-token-ttl-seconds: 21600\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        )
    }

    fn decide(&self, request: &str, has_token: bool) -> (u16, String) {
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if (method, path) == ("PUT", "/latest/api/token") {
            return (200, TOKEN.to_owned());
        }
        let mut book = self.book();
        if !has_token {
            book.refused += 1;
            return (401, String::new());
        }
        book.looks += 1;
        book.items.get(path).map_or((404, String::new()), |text| (200, text.clone()))
    }
}
