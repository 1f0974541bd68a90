//! The admin API of the running test EC2: each method is one blocking request.
//!
//! A request that fails or is refused is a mistake in a test, and panics.
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

/// A limit on instances at once, over all types and zones that the patterns cover together.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// The most instances.
    pub limit: u32,
    /// A pattern of types, with `*`.
    pub instance_type: &'a str,
    /// A pattern of zones, with `*`.
    pub zone: &'a str,
    /// `spot`, `on-demand` or `*`.
    pub usage: &'a str,
    /// The error code at the limit, if not EC2's code for missing capacity.
    pub code: Option<&'a str>,
}

impl Rule<'_> {
    /// A limit on all instances together.
    pub const fn of_all(limit: u32) -> Self {
        Self { limit, instance_type: "*", zone: "*", usage: "*", code: None }
    }

    fn json(&self) -> Value {
        let Self { limit, instance_type, zone, usage, code } = self;
        json!({"limit": limit, "type": instance_type, "zone": zone, "usage": usage, "code": code})
    }
}

/// How long changes of an instance take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// From a launch until other calls find its ids.
    pub visible: Duration,
    /// From a launch or start to running.
    pub running: Duration,
    /// From a stop to stopped.
    pub stopped: Duration,
    /// From a termination to terminated.
    pub terminated: Duration,
}

/// An error answer to the next calls of an action.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// EC2's error code.
    pub code: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// The action; `*` is any.
    pub action: &'a str,
    /// The number of calls that get this answer.
    pub times: u32,
    /// Whether the server carries the call out although it answers with the error.
    pub carried_out: bool,
}

impl<'a> Refusal<'a> {
    /// Throttles the next call of this action.
    pub const fn throttled(action: &'a str) -> Self {
        let code = "RequestLimitExceeded";
        Self { code, status: 503, action, times: 1, carried_out: false }
    }

    /// Carries the next call of this action out, and answers that the server failed.
    pub const fn carried_out(action: &'a str) -> Self {
        Self { code: "InternalError", status: 500, action, times: 1, carried_out: true }
    }
}

/// The parts of an account that a stack launches with.
#[derive(Clone, Debug)]
pub struct Ground {
    /// An instance profile with a role.
    pub profile: String,
    /// A security group of the region's default network.
    pub security_group: String,
    /// The subnets of that network.
    pub subnets: Vec<String>,
}

/// The admin API of one server.
#[derive(Clone, Debug)]
pub struct Admin(SocketAddr);

impl Admin {
    pub(crate) const fn at(address: SocketAddr) -> Self {
        Self(address)
    }

    /// Replaces all limits by these.
    pub fn set_capacity(&self, rules: &[Rule<'_>]) {
        self.ask("PUT", "capacity", &rules.iter().map(Rule::json).collect());
    }

    /// Sets the account's quotas of vCPUs; `None` is no limit.
    pub fn set_quotas(&self, on_demand: Option<u32>, spot: Option<u32>) {
        let quotas = [("on-demand", on_demand), ("spot", spot)];
        let fields =
            quotas.into_iter().filter_map(|(usage, vcpus)| Some((usage.into(), vcpus?.into())));
        self.ask("PUT", "quotas", &Value::Object(fields.collect()));
    }

    /// Sets the delays.
    pub fn set_delays(&self, delays: Delays) {
        let Delays { visible, running, stopped, terminated } = delays;
        let delays = [
            ("visible", visible),
            ("running", running),
            ("stopped", stopped),
            ("terminated", terminated),
        ];
        let fields = delays.map(|(name, delay)| (name.to_owned(), delay.as_secs_f64().into()));
        self.ask("PUT", "delays", &Value::Object(fields.into_iter().collect()));
    }

    /// Queues a refusal after the refusals that are still queued.
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

    /// The number of queued refusals; a refusal of several calls counts once.
    pub fn refusals_left(&self) -> usize {
        self.ask("GET", "", &Value::Null)["faults"].as_array().map_or(0, Vec::len)
    }

    /// Advances the clock and performs everything that becomes due.
    pub fn advance(&self, time: Duration) {
        self.ask("POST", "clock", &json!({"advance": time.as_secs_f64()}));
    }

    /// Interrupts a spot instance: it gets the notice now and is terminated after this time.
    pub fn interrupt(&self, instance: &str, after: Duration) {
        let body = json!({"instance": instance, "in": after.as_secs_f64()});
        self.ask("POST", "interrupt", &body);
    }

    /// Sets the command of the instances that run from now on.
    pub fn set_hook(&self, command: &[&OsStr]) {
        let command: Vec<_> = command.iter().map(|part| part.to_string_lossy()).collect();
        self.ask("PUT", "hook", &json!({"command": command}));
    }

    /// Creates an instance profile, and returns it with this region's default network.
    pub fn ground(&self, region: &str) -> Ground {
        let answer = self.ask("POST", "ground", &json!({"region": region}));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subnets = answer["subnets"].as_array().into_iter().flatten();
        Ground {
            profile: text(&answer["profile"]),
            security_group: text(&answer["group"]),
            subnets: subnets.map(text).collect(),
        }
    }

    /// Calls by action since the last reset, including refused ones.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        counted(&self.ask("GET", "calls", &Value::Null))
    }

    /// The process ids of running machines, by instance.
    pub fn processes(&self) -> BTreeMap<String, u64> {
        counted(&self.ask("GET", "processes", &Value::Null))
    }

    /// Removes all instances and settings and restores the hook of its options. The clock goes on.
    pub fn reset(&self) {
        self.ask("POST", "reset", &Value::Null);
    }

    fn ask(&self, method: &str, route: &str, body: &Value) -> Value {
        match self.exchange(method, route, body) {
            Ok((200, answer)) => answer,
            Ok((status, answer)) => panic!("{method} {route} of the test EC2: {status}, {answer}"),
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
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(invalid)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok((status.ok_or_else(invalid)?, serde_json::from_str(body)?))
    }
}

fn counted(answer: &Value) -> BTreeMap<String, u64> {
    let counts = answer.as_object().into_iter().flatten();
    counts.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default())).collect()
}
