//! The table of rooms: what each may depend on. `ARCHITECTURE.md` has the same table in words.
//!
//! A new dependency is a new word here, so a reviewer sees it; the reason goes to
//! `docs/decisions/0005-dependencies.md`.
//!
//! Not here: how the table is held against the workspace (`rooms`).

/// One room's row. Names are crate names.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) name: &'static str,
    /// Other rooms that it may link.
    pub(crate) rooms: &'static [&'static str],
    /// Other rooms that its tests may use besides.
    pub(crate) test_rooms: &'static [&'static str],
    /// Crates from outside the workspace that it may link. Its tests may use any.
    pub(crate) outside: Outside,
    /// Crates of which it may use only these features, the default ones not among them.
    pub(crate) parts: &'static [(&'static str, &'static [&'static str])],
}

/// Which crates from outside the workspace.
#[derive(Debug)]
pub(crate) enum Outside {
    Only(&'static [&'static str]),
    Any,
}

/// Crates whose names start so belong to one room alone, its tests included.
pub(crate) const OWNED: &[(&str, &str)] = &[("aws-", "bullpen-aws")];

/// What may not be under the core, at any depth: runtimes, entropy, sockets, databases.
pub(crate) const NEVER_UNDER_CORE: &[&str] = &[
    "async-executor",
    "async-io",
    "async-std",
    "fastrand",
    "getrandom",
    "mio",
    "rand",
    "rand_core",
    "rusqlite",
    "smol",
    "socket2",
    "tokio",
];

/// The rooms, including those that are still to come.
pub(crate) const ROOMS: &[Room] = &[
    Room {
        name: "bullpen-core",
        rooms: &[],
        // Not even `bullpen-sim`: a cycle compiles the core twice, as two sets of types.
        test_rooms: &[],
        // The schema generator is a tool of the tests.
        outside: Outside::Only(&[
            "hex",
            "jiff",
            "saphyr-parser",
            "serde",
            "serde_json",
            "sha2",
            "strsim",
            "thiserror",
            "toml",
        ]),
        parts: &[],
    },
    Room {
        name: "bullpen-engine",
        rooms: &["bullpen-core"],
        test_rooms: &["bullpen-sim"],
        outside: Outside::Only(&["futures-util", "thiserror", "tokio", "tracing"]),
        // No `rt`: the engine does not choose who runs it. `macros` is `select!`.
        parts: &[("tokio", &["macros", "sync", "time"])],
    },
    Room {
        name: "bullpen-embedded",
        // The agent's life and its processes: what runs on a machine of the process fleet.
        rooms: &["bullpen-agent", "bullpen-core"],
        test_rooms: &["bullpen-sim"],
        outside: Outside::Only(&[
            "percent-encoding",
            "rusqlite",
            "rustix",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
        ]),
        parts: &[],
    },
    Room {
        name: "bullpen-sim",
        rooms: &["bullpen-agent", "bullpen-core", "bullpen-engine"],
        test_rooms: &[],
        outside: Outside::Only(&[
            "futures-util",
            "rand_chacha",
            "rand_core",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
        ]),
        // No `net`, `fs` or `process`: a seed reaches nothing outside.
        parts: &[("tokio", &["macros", "rt", "sync", "test-util", "time"])],
    },
    Room {
        name: "bullpen-agent",
        rooms: &["bullpen-core"],
        test_rooms: &["bullpen-sim"],
        outside: Outside::Only(&[
            "futures-util",
            "rustix",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
        ]),
        parts: &[],
    },
    Room {
        name: "bullpen-aws",
        // The agent's life, for the binary that lives on an instance.
        rooms: &["bullpen-agent", "bullpen-core"],
        test_rooms: &["bullpen-faulty", "bullpen-sim"],
        // Besides `aws-*`, which this room owns.
        outside: Outside::Only(&[
            "futures-util",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
            "tracing-subscriber",
        ]),
        parts: &[],
    },
    Room {
        name: "bullpen-github",
        rooms: &["bullpen-core"],
        // Itself, with the stand-in.
        test_rooms: &["bullpen-github", "bullpen-sim"],
        // An HTTP client and TLS in small parts; `ring` also signs as an App; `axum` is the
        // stand-in server's, and `rustix` the stand-in runner's, for its jobs.
        outside: Outside::Only(&[
            "axum",
            "base64",
            "futures-util",
            "hex",
            "http-body-util",
            "hyper",
            "hyper-rustls",
            "hyper-util",
            "percent-encoding",
            "ring",
            "rustix",
            "rustls",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
            "webpki-roots",
        ]),
        parts: &[],
    },
    Room {
        name: "bullpen",
        rooms: &[
            "bullpen-agent",
            "bullpen-aws",
            "bullpen-core",
            "bullpen-embedded",
            "bullpen-engine",
            "bullpen-github",
            "bullpen-sim",
        ],
        test_rooms: &["bullpen-faulty"],
        outside: Outside::Any,
        parts: &[],
    },
    Room {
        // For tests and benchmarks: no room links it.
        name: "bullpen-faulty",
        rooms: &[],
        test_rooms: &[],
        outside: Outside::Only(&[
            "http-body-util",
            "hyper",
            "hyper-util",
            "percent-encoding",
            "rand_chacha",
            "rand_core",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
        ]),
        parts: &[],
    },
    Room {
        name: "xtask",
        rooms: &[],
        test_rooms: &[],
        outside: Outside::Only(&["anyhow", "cargo_metadata"]),
        parts: &[],
    },
];
