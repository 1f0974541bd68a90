//! Runs Prism as a proxy between the client and a server: it checks requests and answers against
//! GitHub's `OpenAPI` document, and answers a violation with an error of its own.
//!
//! The document contains only the calls that we make, because Prism takes long to read all of it.
//!
//! Not here: the calls (`openapi`).

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};

use crate::tools::package;

/// A running Prism; dropping it stops it.
pub(crate) struct Prism {
    process: Child,
    pub(crate) url: String,
    /// The lines that it printed after its start.
    output: Arc<Mutex<Vec<String>>>,
}

impl Prism {
    /// Starts Prism in front of `upstream`, for these paths of GitHub's document.
    pub(crate) fn start(name: &str, upstream: &str, paths: &[&str]) -> Self {
        let document = format!("{}/{name}.json", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&document, excerpt(paths).to_string()).expect("the document is written");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("loopback has a free port").port();
        let mut process = Command::new("node")
            .arg(package("@stoplight/prism-cli/dist/index.js"))
            .args(["proxy", "--errors", "-h", "127.0.0.1", "-p", &port.to_string()])
            .args([&document, upstream])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is installed");
        let mut lines = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
        let mut before = Vec::new();
        loop {
            let line = lines.next().and_then(Result::ok);
            let Some(line) = line else { panic!("Prism ended early: {before:#?}") };
            if line.contains("Prism is listening") {
                break;
            }
            before.push(line);
        }
        let output = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&output);
        // A full pipe would block Prism.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().expect("no holder of the lock panics").push(line);
            }
        });
        Self { process, url: format!("http://127.0.0.1:{port}"), output }
    }

    /// The violations and errors that Prism printed so far, for a test that fails.
    pub(crate) fn complaints(&self) -> String {
        let output = self.output.lock().expect("no holder of the lock panics");
        let bad = |line: &&String| ["iolation", "rror"].iter().any(|word| line.contains(word));
        output.iter().filter(bad).map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Prism {
    fn drop(&mut self) {
        // `kill` fails if Prism has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// GitHub's document with only these paths and the components that they refer to.
fn excerpt(paths: &[&str]) -> Value {
    let file = package("@octokit/openapi/generated/api.github.com.json");
    let text = std::fs::read(file).expect("the package has the document");
    let whole: Value = serde_json::from_slice(&text).expect("the document is JSON");
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
        let path = reference.strip_prefix("#/components/").expect("references are to components");
        let (kind, name) = path.split_once('/').expect("a reference has a kind and a name");
        let target = whole["components"][kind][name].clone();
        assert!(!target.is_null(), "{reference} does not exist");
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
