//! What the test EC2 can be told and asked while it runs: its admin API, one blocking request each.
//!
//! A request that cannot be made, or is refused, is a slip in a test, and panics.
//!
//! Not here: what the settings do (the package's `README.md`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// A reset waits for the machines' processes to end.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// At most this many instances at once, of everything that the patterns cover together.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// How many.
    pub limit: u32,
    /// Of which types, with `*`.
    pub instance_type: &'a str,
    /// In which zones, with `*`.
    pub zone: &'a str,
    /// `spot`, `on-demand` or `*`.
    pub usage: &'a str,
    /// What is said when it is full, if not what EC2 says of capacity.
    pub code: Option<&'a str>,
}

impl Rule<'_> {
    /// So many of everything together.
    pub const fn of_all(limit: u32) -> Self {
        Self { limit, instance_type: "*", zone: "*", usage: "*", code: None }
    }

    fn json(&self) -> Value {
        let Self { limit, instance_type, zone, usage, code } = self;
        json!({"limit": limit, "type": instance_type, "zone": zone, "usage": usage, "code": code})
    }
}

/// How long it takes until something is so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// After a launch, until its ids are found by anything.
    pub visible: Duration,
    /// From a launch or start to running.
    pub running: Duration,
    /// From a stop to stopped.
    pub stopped: Duration,
    /// From an end to terminated.
    pub terminated: Duration,
}

/// What the next calls of an action are answered with.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// EC2's code.
    pub code: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// Which action; `*` is any.
    pub action: &'a str,
    /// How many calls.
    pub times: u32,
    /// Whether the call takes place all the same, and only its answer is an error.
    pub carried_out: bool,
}

impl<'a> Refusal<'a> {
    /// The next call of this action is throttled.
    pub const fn throttled(action: &'a str) -> Self {
        let code = "RequestLimitExceeded";
        Self { code, status: 503, action, times: 1, carried_out: false }
    }

    /// The next call of this action takes place, and its answer says that the server failed.
    pub const fn carried_out(action: &'a str) -> Self {
        Self { code: "InternalError", status: 500, action, times: 1, carried_out: true }
    }
}

/// What a stack stands on.
#[derive(Clone, Debug)]
pub struct Ground {
    /// An instance profile with a role.
    pub profile: String,
    /// A security group of the region's default network.
    pub security_group: String,
    /// That network's subnets.
    pub subnets: Vec<String>,
}

/// The admin API of one server.
#[derive(Clone, Debug)]
pub struct Admin(SocketAddr);

impl Admin {
    pub(crate) const fn at(address: SocketAddr) -> Self {
        Self(address)
    }

    /// These rules and no others.
    pub fn set_capacity(&self, rules: &[Rule<'_>]) {
        self.ask("PUT", "capacity", &rules.iter().map(Rule::json).collect());
    }

    /// The account's quotas of vCPUs; none is no limit.
    pub fn set_quotas(&self, on_demand: Option<u32>, spot: Option<u32>) {
        let quotas = [("on-demand", on_demand), ("spot", spot)];
        let said =
            quotas.into_iter().filter_map(|(usage, vcpus)| Some((usage.into(), vcpus?.into())));
        self.ask("PUT", "quotas", &Value::Object(said.collect()));
    }

    /// These delays.
    pub fn set_delays(&self, delays: Delays) {
        let Delays { visible, running, stopped, terminated } = delays;
        let delays = [
            ("visible", visible),
            ("running", running),
            ("stopped", stopped),
            ("terminated", terminated),
        ];
        let said = delays.map(|(name, delay)| (name.to_owned(), delay.as_secs_f64().into()));
        self.ask("PUT", "delays", &Value::Object(said.into_iter().collect()));
    }

    /// One more refusal, after those that wait already.
    pub fn refuse(&self, refusal: Refusal<'_>) {
        let Refusal { code, status, action, times, carried_out } = refusal;
        let fault = json!({
            "code": code,
            "status": status,
            "action": action,
            "times": times,
            "carried_out": carried_out,
        });
        self.ask("POST", "faults", &fault);
    }

    /// How many refusals no call has met yet, each counted once however often it is to be met.
    pub fn refusals_left(&self) -> usize {
        self.ask("GET", "", &Value::Null)["faults"].as_array().map_or(0, Vec::len)
    }

    /// Moves the time on; what is due on the way happens.
    pub fn advance(&self, time: Duration) {
        self.ask("POST", "clock", &json!({"advance": time.as_secs_f64()}));
    }

    /// Takes a spot instance back: the notice now, the end after this time.
    pub fn interrupt(&self, instance: &str, after: Duration) {
        let body = json!({"instance": instance, "in": after.as_secs_f64()});
        self.ask("POST", "interrupt", &body);
    }

    /// What the next instances to run start.
    pub fn set_hook(&self, command: &[&OsStr]) {
        let command: Vec<_> = command.iter().map(|part| part.to_string_lossy()).collect();
        self.ask("PUT", "hook", &json!({"command": command}));
    }

    /// What an account brings: an instance profile, and a network of this region.
    pub fn ground(&self, region: &str) -> Ground {
        let said = self.ask("POST", "ground", &json!({"region": region}));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subnets = said["subnets"].as_array().into_iter().flatten();
        Ground {
            profile: text(&said["profile"]),
            security_group: text(&said["group"]),
            subnets: subnets.map(text).collect(),
        }
    }

    /// Calls by action since the last reset, refused ones too.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        counted(&self.ask("GET", "calls", &Value::Null))
    }

    /// The process ids of machines that are on, by instance.
    pub fn processes(&self) -> BTreeMap<String, u64> {
        counted(&self.ask("GET", "processes", &Value::Null))
    }

    /// As at the start: no instances, no settings, the hook of its options. Its time goes on.
    pub fn reset(&self) {
        self.ask("POST", "reset", &Value::Null);
    }

    fn ask(&self, method: &str, route: &str, body: &Value) -> Value {
        match self.exchange(method, route, body) {
            Ok((200, said)) => said,
            Ok((status, said)) => panic!("{method} {route} of the test EC2: {status}, {said}"),
            Err(error) => panic!("{method} {route} of the test EC2: {error}"),
        }
    }

    fn exchange(&self, method: &str, route: &str, body: &Value) -> io::Result<(u16, Value)> {
        let mut stream = TcpStream::connect(self.0)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let body = body.to_string();
        let request = format!(
            "{method} /_bullpen/{route} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            self.0,
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "no answer of HTTP and JSON");
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(odd)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(odd)?;
        Ok((status, serde_json::from_str(body)?))
    }
}

fn counted(said: &Value) -> BTreeMap<String, u64> {
    let said = said.as_object().into_iter().flatten();
    said.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default())).collect()
}
