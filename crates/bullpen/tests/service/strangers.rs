//! Attacks of strangers on the webhook listener: connections that are silent, slow or many; and
//! signed deliveries of repositories and installations that are not served.
//!
//! Not here: which connection is closed (`serve::connections`), or scope under faults
//! (`bullpen-sim`).

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{self, Ipv4Addr, SocketAddr};

use bullpen_core::ports::Ledger as _;
use futures_util::future::join_all;
use rustix::net::sockopt::set_tcp_quickack;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::process::within;
use crate::setup::CONFIG;
use crate::waiting::until;
use crate::webhook::Webhook;
use crate::wire::{place, read, write};
use crate::world::{SECRET, Served, World, order};

/// More connections than the listener has seats.
const CROWD: usize = 700;
/// More connections than one address may have without a signed delivery.
const ONE_ADDRESS: usize = 200;
/// Generous for a debug build; all refused bodies together would take far more.
const GROWN_KIB_MAX: u64 = 64 * 1024;
/// Less than an earlier listener read at once of every connection.
const STALLED_BYTES: usize = 255 * 1024;
/// The most connections that one address may have without a signed delivery.
const ONE_ADDRESS_MAX: usize = 128;
/// The requests that a connection sends at once. At most twice as many wait, fewer than hyper
/// answers before it yields by itself.
const PIPELINED: usize = 7;
/// Deliveries beside such a flood, and as many requests of the operator.
const DELIVERIES: usize = 10;
/// The most answers to the flood meanwhile: ten times the number on a busy machine, and a fraction
/// of the number if the listener accepts a connection only when the flood happens to pause.
const ROUNDS_MAX: usize = 50_000;
/// The connections that one thread uses in turn.
const SWEPT: usize = 16;
/// The connections of a crowd that must stay open: the listener closes only as many as it needs.
const STILL_OPEN: usize = 600;

/// A connection from this address of loopback.
async fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((from, 0))).expect("loopback has many addresses");
    socket.connect(to).await.expect("the service listens")
}

fn ping() -> Webhook {
    Webhook::new("ping", r#"{"zen": "Design for failure."}"#).signed(SECRET)
}

/// The service with a configuration in which loopback is no proxy.
async fn served_directly(world: &World) -> Served {
    let file = world.path("bullpen.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, format!("{text}[listeners]\nproxies = []\n")).expect("it can be written");
    world.serve_with("--roles webhook").await
}

/// Whether the peer has closed it; reads and drops earlier bytes.
fn is_closed(stream: &TcpStream) -> bool {
    let mut part = [0; 1024];
    loop {
        match stream.try_read(&mut part) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// More idle connections than seats, from many addresses: the service answers a signed delivery
/// while most of them are still open, and has closed the oldest.
#[tokio::test]
async fn a_crowd_of_idle_connections_keeps_no_delivery_waiting() {
    let world = World::new().await;
    let served = served_directly(&world).await;
    let (to, _) = place(&served.webhook);
    let mut idle = Vec::new();
    for number in 0..CROWD {
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(number % 10).expect("a byte"));
        idle.push(connect(from, to).await);
    }
    assert_eq!(ping().send(&served.webhook).await.status, 204);
    let open = idle.iter().filter(|stream| !is_closed(stream)).count();
    assert!(open > STILL_OPEN, "it was answered before the idle ones timed out: {open} are open");
    let first = idle.iter().position(|stream| !is_closed(stream)).expect("some are open");
    let last = idle.iter().rposition(is_closed).unwrap_or(0);
    assert!(last < first || last == 0, "the longest idle go first: {last} closed, {first} open");
}

/// Heads that never end: they keep no delivery waiting either.
#[tokio::test]
async fn heads_that_never_end_keep_no_delivery_waiting() {
    let world = World::new().await;
    let served = world.serve_with("--roles webhook").await;
    let (to, _) = place(&served.webhook);
    let mut slow = Vec::new();
    for _ in 0..CROWD {
        let stream = connect(Ipv4Addr::LOCALHOST, to).await;
        write(&stream, b"POST /webhook HTTP/1.1\r\nhost: x\r\nx-a: ").await.expect("it is open");
        slow.push(stream);
    }
    assert_eq!(ping().send(&served.webhook).await.status, 204);
    let open = slow.iter().filter(|stream| !is_closed(stream)).count();
    assert!(open > STILL_OPEN, "{open} are open");
}

/// One address may have a limited number of connections without a signed delivery; the limit does
/// not affect another address, or a connection that signed.
#[tokio::test]
async fn one_address_cannot_have_every_seat() {
    let world = World::new().await;
    let served = served_directly(&world).await;
    let (to, _) = place(&served.webhook);
    let flood = Ipv4Addr::new(127, 0, 2, 1);
    let signed = connect(flood, to).await;
    let request = ping().kept_open(&served.webhook);
    write(&signed, &request).await.expect("it is open");
    let mut idle = Vec::new();
    for _ in 0..ONE_ADDRESS {
        idle.push(connect(flood, to).await);
    }
    let closed = until("a limit for one address", async || {
        let closed = idle.iter().filter(|stream| is_closed(stream)).count();
        (closed >= ONE_ADDRESS - 128).then_some(closed)
    })
    .await;
    assert!(closed < ONE_ADDRESS, "some of them have seats");
    write(&signed, &request).await.expect("it signed, and is still open");
    assert_eq!(ping().send(&served.webhook).await.status, 204);
}

/// Sends unsigned requests over each of these again and again until the service is gone, and counts
/// the answers.
fn keep_asking(streams: Vec<net::TcpStream>, rounds: &watch::Sender<usize>) -> io::Result<()> {
    let requests = "GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(PIPELINED);
    let mut part = [0; 4096];
    let mut streams: Vec<_> = streams.into_iter().map(|stream| (stream, 0)).collect();
    for (stream, _) in &mut streams {
        stream.write_all(requests.as_bytes())?;
    }
    loop {
        for (stream, _) in &mut streams {
            stream.write_all(requests.as_bytes())?;
        }
        for (stream, answers) in &mut streams {
            while *answers < PIPELINED {
                // Late acknowledgements would delay the answers.
                set_tcp_quickack(&*stream, true)?;
                let count = stream.read(&mut part)?;
                if count == 0 {
                    return Ok(());
                }
                // Each answer has one `P`, in `HTTP`.
                *answers += part[..count].split(|byte| *byte == b'P').count() - 1;
            }
            *answers -= PIPELINED;
        }
        rounds.send_modify(|rounds| *rounds += streams.len());
    }
}

/// A connection without a seat gets 503, and the time to come again.
#[tokio::test]
async fn a_refused_connection_is_told_when_to_come_again() {
    let world = World::new().await;
    let served = served_directly(&world).await;
    let (to, _) = place(&served.webhook);
    let mut address = 0;
    let said = until("refusal", async || {
        // If the crowd takes more than a second, it gives seats up, and the listener refuses
        // nothing.
        address += 1;
        let mut crowd = Vec::new();
        for _ in 0..ONE_ADDRESS_MAX {
            crowd.push(connect(Ipv4Addr::new(127, 0, 4, address), to).await);
        }
        let late = connect(Ipv4Addr::new(127, 0, 4, address), to).await;
        tokio::select! {
            biased;
            said = read(&late) => Some(said),
            // It has a seat, and the listener closed another connection.
            () = any_closes(&crowd) => None,
        }
    })
    .await;
    let said = String::from_utf8(said).expect("it is text");
    let (head, body) = said.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("HTTP/1.1 503 Service Unavailable"));
    let headers: Vec<&str> = lines.collect();
    let length = format!("content-length: {}", body.len());
    for header in ["retry-after: 10", "connection: close", &length] {
        assert!(headers.contains(&header), "{header} in {said}");
    }
}

async fn any_closes(crowd: &[TcpStream]) {
    until("connection that was closed", async || crowd.iter().any(is_closed).then_some(())).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_in_the_end() {
    let world = World::new().await;
    let served = world.serve_with("--roles webhook").await;
    let stalls = Webhook::new("workflow_job", "{").header("content-length", "5000").signed(SECRET);
    let answer = within("answer", stalls.send(&served.webhook)).await;
    assert_eq!((answer.status, answer.body.trim()), (408, "the body took too long"));
}

/// The service counts a report that no agent wrote; `status` and `explain` show it with its
/// machine.
#[tokio::test]
async fn an_unreadable_report_is_counted_and_shown() {
    let world = World::new().await;
    let served = world.serve().await;
    let job = world.job("bullpen/runner=small", &world.gated("go"));
    world.started(job).await;
    let live = world.ledger().live(None).await.expect("it is readable").items;
    let [record] = &live[..] else { panic!("{live:?}") };
    let forged = "INSERT INTO signals (key, kind, generation, body) \
                  VALUES (?1, '\"UD_ROOT\"', 1, '\u{1b}[2J')";
    let mailbox =
        rusqlite::Connection::open(world.state().join("mailbox.db")).expect("it is there");
    let key = record.facts.mailbox.as_str();
    until("forged report", async || mailbox.execute(forged, [key]).ok()).await;

    let id = record.id.as_str();
    let told = world.run("status").await.exits(0).data.clone();
    let row = told.lines().find(|row| row.contains("unreadable")).expect("a line");
    assert!(row.starts_with(id) && row.contains("UD_ROOT"), "{row}");
    let told = world.status().await;
    let shown = told["instances"][0]["unreadable_report"].as_str().expect("a reason").to_owned();
    assert!(shown.contains("UD_ROOT"), "{shown}");
    let told = world.run(&format!("explain {job}")).await.exits(0).data.clone();
    assert!(told.contains(&format!("the report of {id} is unreadable")), "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
    let told = world.run(&format!("explain {job} --json")).await.json();
    assert_eq!(told["machine"]["unreadable_report"], shown);
    // The service reads the machine's report when it takes the machine back.
    world.open("go");
    world.over(job).await;
    let counted = async || {
        let metrics = served.ask("/metrics").await.body;
        let counter = metrics.lines().find(|it| it.starts_with("bullpen_reports_unreadable_total"));
        let (_, count) = counter.expect("it is there from the beginning").rsplit_once(' ')?;
        (count != "0").then_some(())
    };
    until("count", counted).await;
}

/// Every connection that one address may have, each with requests waiting at any time: the service
/// still answers a delivery from elsewhere, the admin listener and a signal.
#[tokio::test]
async fn one_address_that_never_stops_asking_keeps_nothing_waiting() {
    let world = World::new().await;
    let served = served_directly(&world).await;
    let (to, _) = place(&served.webhook);
    let (round, mut rounds) = watch::channel(0);
    let mut floods = Vec::new();
    for _ in 0..ONE_ADDRESS_MAX / SWEPT {
        let mut streams = Vec::new();
        for _ in 0..SWEPT {
            let stream = connect(Ipv4Addr::new(127, 0, 3, 1), to).await.into_std();
            let stream = stream.expect("it is open");
            stream.set_nonblocking(false).expect("it can be");
            streams.push(stream);
        }
        let round = round.clone();
        // On threads of their own, because asking takes less time than answering.
        floods.push(std::thread::spawn(move || keep_asking(streams, &round)));
    }
    // By then every connection has more requests waiting.
    let all = rounds.wait_for(|rounds| *rounds >= 2 * ONE_ADDRESS_MAX);
    let before = *within("flood", all).await.expect("it goes on");
    for _ in 0..DELIVERIES {
        let delivered = ping();
        let delivered = within("answer to a delivery", delivered.send(&served.webhook)).await;
        assert_eq!(delivered.status, 204);
        assert_eq!(within("answer to the operator", served.ask("/healthz")).await.status, 200);
    }
    let rounds = *rounds.borrow() - before;
    assert!(rounds < ROUNDS_MAX, "{rounds} answers to the flood before {DELIVERIES} deliveries");
    served.process.signal(Signal::TERM);
    served.process.ends().await.exits(143);
    for flood in floods {
        // The service's end closed its connections, with or without an error.
        let _ = flood.join().expect("it does not panic");
    }
}

#[tokio::test]
async fn what_is_malformed_is_refused_before_its_body_is_read() {
    let world = World::new().await;
    let served = world.serve_with("--roles webhook").await;
    let (to, _) = place(&served.webhook);
    let said = async |bytes: &[u8]| {
        let stream = connect(Ipv4Addr::LOCALHOST, to).await;
        write(&stream, bytes).await.expect("it is open");
        String::from_utf8_lossy(&read(&stream).await).into_owned()
    };
    assert!(said(b"\x16\x03\x01 TLS\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    let long = format!("GET / HTTP/1.1\r\nx-a: {}\r\n\r\n", "a".repeat(64 * 1024));
    assert!(said(long.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    let announced = Webhook::new("workflow_job", "").header("content-length", "5000");
    let no_signature = announced.header("x-hub-signature-256", "sha256=none");
    assert_eq!(no_signature.send(&served.webhook).await.status, 401, "no body ever came");
}

/// Every seat taken by an unsigned body that stops before its end: memory stays small, and the
/// service answers a signed delivery beside it.
#[tokio::test]
async fn bodies_that_nobody_signed_take_bounded_memory() {
    let world = World::new().await;
    let served = world.serve_with("--roles webhook").await;
    let (to, _) = place(&served.webhook);
    let before = served.process.peak_kib();
    let forged = Webhook::new("workflow_job", "x".repeat(STALLED_BYTES)).signed("another secret");
    let announced = (STALLED_BYTES + 1).to_string();
    let request = forged.header("content-length", &announced).kept_open(&served.webhook);
    let (connected, mut crowded) = watch::channel(0);
    let stall = async |_| {
        let stream = connect(Ipv4Addr::LOCALHOST, to).await;
        connected.send_modify(|count| *count += 1);
        // The listener closes some for others before they have sent everything.
        let _ = write(&stream, &request).await;
        stream
    };
    let flood = async {
        let _open = join_all((0..CROWD).map(stall)).await;
        std::future::pending::<()>().await;
    };
    let delivery = async {
        crowded.wait_for(|count| *count > STILL_OPEN).await.expect("the flood goes on");
        ping().send(&served.webhook).await.status
    };
    let status = tokio::select! {
        () = flood => unreachable!("it never ends"),
        status = delivery => status,
    };
    assert_eq!(status, 204);
    let grown = served.process.peak_kib() - before;
    assert!(grown < GROWN_KIB_MAX, "{grown} KiB more");
}

/// A `workflow_job` delivery of this repository that names this installation.
fn delivery(job: u64, repository: &str, installation: u64) -> Webhook {
    let body = json!({
        "action": "queued",
        "workflow_job": {
            "id": job, "run_id": job, "run_attempt": 1, "name": "build", "status": "queued",
            "conclusion": null, "labels": ["bullpen/runner=small"], "head_sha": "0a1b2c",
            "runner_id": null, "runner_name": null, "created_at": null, "started_at": null,
            "completed_at": null,
        },
        "repository": {"full_name": repository, "default_branch": "main"},
        "installation": {"id": installation},
    });
    Webhook::new("workflow_job", body.to_string()).signed(SECRET)
}

/// A reinstalled App has another installation: the service asks GitHub again when that installation
/// announces a repository in scope, and serves it without a restart.
#[tokio::test]
async fn an_app_that_was_installed_anew_is_served_again() {
    let world = World::configured(CONFIG, &[("configuration", "100ms")]).await;
    let served = world.serve().await;
    assert_eq!(delivery(900_011, "acme/app", 7).send(&served.webhook).await.status, 204);
    world.github.pull(|levers| levers.installed_anew = Some(9));
    until("the new installation to be served", async || {
        let answer = delivery(900_012, "acme/app", 9).send(&served.webhook).await;
        assert_eq!(answer.status, 204);
        world.row(900_012).await
    })
    .await;
    assert_eq!(delivery(900_013, "acme/app", 7).send(&served.webhook).await.status, 204);
    assert_eq!(world.row(900_013).await, None, "the old installation is not served any more");
}

/// Signed, labelled for the stack, and of a foreign repository or installation: the service counts
/// the delivery and answers 204, and does nothing else.
#[tokio::test]
async fn a_signed_delivery_of_a_stranger_leaves_no_row_and_launches_nothing() {
    let world = World::new().await;
    let served = world.serve().await;
    let (foreign, installed) = (900_001, 900_002);
    for (job, repository, installation) in [(foreign, "evil/app", 7), (installed, "acme/app", 8)] {
        let answer = delivery(job, repository, installation).send(&served.webhook).await;
        assert_eq!(answer.status, 204);
    }
    let theirs = world.github.submit(bullpen_github::stand_in::protocol::JobOrder {
        repository: "evil/app".to_owned(),
        ..order("bullpen/runner=small", "true")
    });
    let own = world.job("bullpen/runner=small", "true");
    world.over(own).await;
    world.settled(own).await;
    for job in [foreign, installed, theirs.id] {
        assert_eq!(world.row(job).await, None, "job {job}");
    }
    let metrics = served.ask("/metrics").await.body;
    for line in [
        "bullpen_jobs_foreign_total{outside=\"repository\"} 2",
        "bullpen_jobs_foreign_total{outside=\"installation\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let told: Value = world.run("doctor --json").await.exits(0).json();
    let checks = told["checks"].as_array().expect("a list");
    let check = |name: &str| checks.iter().find(|check| check["check"] == name);
    assert_eq!(check("App installations").expect("it is an App")["verdict"], "ok", "{told}");
    world.github.pull(|levers| (levers.public_apps, levers.organization_hooks) = (true, true));
    let warned = world.run("doctor --json").await;
    warned.exits(1);
    let warned: Value = serde_json::from_str(&warned.data).expect("it is JSON");
    let of = |name: &str| {
        let checks = warned["checks"].as_array().expect("a list");
        checks.iter().find(|check| check["check"] == name).expect("it is an App").clone()
    };
    assert_eq!(of("App installations")["verdict"], "FAILED", "{warned}");
    assert!(of("App installations").to_string().contains("public"), "{warned}");
    assert!(of("webhook scope").to_string().contains("webhook 1 of the organisation"), "{warned}");
    let scope = check("webhook scope").expect("the App is everywhere");
    assert_eq!(scope["verdict"], "warning", "{told}");
}
