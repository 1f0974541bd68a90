//! A stand-in for an instance's metadata service, version 2: it refuses requests without a token.
//!
//! Not here: items that an agent does not read (the test EC2 has more).

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const TOKEN: &str = "a-token";

#[derive(Debug, Default)]
struct State {
    items: BTreeMap<String, String>,
    answered: u64,
    refused: u64,
}

/// The metadata service of one instance, for as long as the test's process lives.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Metadata {
    pub(crate) fn of(instance: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener");
        let metadata = Self { address, state: Arc::default() };
        metadata.set("/latest/meta-data/instance-id", instance);
        let server = metadata.clone();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                // A caller may close the connection early.
                let _ = server.answer(&caller);
            }
        });
        metadata
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, path: &str, text: &str) {
        self.state().items.insert(path.to_owned(), text.to_owned());
    }

    /// The number of requests with a token.
    pub(crate) fn answered(&self) -> u64 {
        self.state().answered
    }

    /// The number of requests without a token.
    pub(crate) fn refused(&self) -> u64 {
        self.state().refused
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request and closes the connection.
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
        let mut state = self.state();
        if !has_token {
            state.refused += 1;
            return (401, String::new());
        }
        state.answered += 1;
        state.items.get(path).map_or((404, String::new()), |text| (200, text.clone()))
    }
}
