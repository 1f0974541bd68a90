//! Prism between the client and a server: it holds both against GitHub's `OpenAPI` document, and
//! answers an error of its own where one of them is not as the document says.
//!
//! The document is cut down to the calls that we make, because Prism needs long to read all of it.
//!
//! Not here: which calls (`openapi`).

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};

use crate::tools::package;

/// A running Prism. It ends when it is dropped.
pub(crate) struct Prism {
    process: Child,
    pub(crate) url: String,
    said: Arc<Mutex<Vec<String>>>,
}

impl Prism {
    /// In front of `upstream`, for these paths of GitHub's document.
    pub(crate) fn start(name: &str, upstream: &str, paths: &[&str]) -> Self {
        let document = format!("{}/{name}.json", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&document, cut(paths).to_string()).expect("the target has room");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("loopback has a free port").port();
        let mut process = Command::new("node")
            .arg(package("@stoplight/prism-cli/dist/index.js"))
            .args(["proxy", "--errors", "-h", "127.0.0.1", "-p", &port.to_string()])
            .args([&document, upstream])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is there");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut before = Vec::new();
        loop {
            let line = lines.next().and_then(Result::ok);
            let Some(line) = line else { panic!("Prism ended early: {before:#?}") };
            if line.contains("Prism is listening") {
                break;
            }
            before.push(line);
        }
        let said = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&said);
        // Nobody reads along, and a full pipe would stop it.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().expect("nobody panics with it").push(line);
            }
        });
        Self { process, url: format!("http://127.0.0.1:{port}"), said }
    }

    /// What it complained of so far, for a test that fails.
    pub(crate) fn complaints(&self) -> String {
        let said = self.said.lock().expect("nobody panics with it");
        let bad = |line: &&String| ["iolation", "rror"].iter().any(|word| line.contains(word));
        said.iter().filter(bad).map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Prism {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// GitHub's document with these paths, and whatever they refer to.
fn cut(paths: &[&str]) -> Value {
    let file = package("@octokit/openapi/generated/api.github.com.json");
    let text = std::fs::read(file).expect("the package has it");
    let whole: Value = serde_json::from_slice(&text).expect("it is JSON");
    let mut kept = Map::new();
    for path in paths {
        let item = &whole["paths"][path];
        assert!(item.is_object(), "GitHub's document has no {path}");
        kept.insert((*path).to_owned(), item.clone());
    }
    let kept = Value::Object(kept);
    let mut components = json!({});
    let mut wanted = BTreeSet::new();
    references(&kept, &mut wanted);
    let mut done = BTreeSet::new();
    while let Some(reference) = wanted.pop_first() {
        if !done.insert(reference.clone()) {
            continue;
        }
        let path = reference.strip_prefix("#/components/").expect("all are of this kind");
        let (kind, name) = path.split_once('/').expect("a kind and a name");
        let target = whole["components"][kind][name].clone();
        assert!(!target.is_null(), "{reference} leads nowhere");
        references(&target, &mut wanted);
        components[kind][name] = target;
    }
    json!({
        "openapi": whole["openapi"], "info": whole["info"], "paths": kept, "components": components,
    })
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                found.insert(reference.to_owned());
            }
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}
