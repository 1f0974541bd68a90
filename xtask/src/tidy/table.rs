//! The table of crates and their allowed dependencies. `ARCHITECTURE.md` has the same table in
//! words.
//!
//! A new dependency is a new word here, so that a reviewer sees it; the reason goes to
//! `docs/decisions/0005-dependencies.md`.
//!
//! Not here: the comparison of the table with the workspace (`crates`).

/// One crate's row.
#[derive(Debug)]
pub(crate) struct CrateRow {
    pub(crate) name: &'static str,
    /// Crates of the workspace that it may link.
    pub(crate) crates: &'static [&'static str],
    /// Further crates of the workspace that its tests may use.
    pub(crate) test_crates: &'static [&'static str],
    /// Crates from outside the workspace that it may link. Its tests may use any.
    pub(crate) outside: Outside,
    /// Crates of which it may use only these features, without the default ones.
    pub(crate) parts: &'static [(&'static str, &'static [&'static str])],
}

/// Allowed crates from outside the workspace.
#[derive(Debug)]
pub(crate) enum Outside {
    Only(&'static [&'static str]),
    Any,
}

/// Crates with this prefix that one crate alone may use, its tests included.
pub(crate) const OWNED: &[(&str, &str)] = &[("aws-", "bullpen-aws")];

/// Crates that the core may not reach, at any depth: runtimes, entropy, sockets, databases.
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

/// All crates of the workspace.
pub(crate) const TABLE: &[CrateRow] = &[
    CrateRow {
        name: "bullpen-core",
        crates: &[],
        // Not even `bullpen-sim`: a cycle compiles the core twice, as two sets of types.
        test_crates: &[],
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
    CrateRow {
        name: "bullpen-engine",
        crates: &["bullpen-core"],
        test_crates: &["bullpen-sim"],
        outside: Outside::Only(&["futures-util", "thiserror", "tokio", "tracing"]),
        // No `rt`: the engine does not choose its runtime. `macros` is `select!`.
        parts: &[("tokio", &["macros", "sync", "time"])],
    },
    CrateRow {
        name: "bullpen-embedded",
        // The agent's life and its processes, for machines of the process fleet.
        crates: &["bullpen-agent", "bullpen-core"],
        test_crates: &["bullpen-sim"],
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
    CrateRow {
        name: "bullpen-sim",
        crates: &["bullpen-agent", "bullpen-core", "bullpen-engine"],
        test_crates: &[],
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
    CrateRow {
        name: "bullpen-agent",
        crates: &["bullpen-core"],
        test_crates: &["bullpen-sim"],
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
    CrateRow {
        name: "bullpen-aws",
        // The agent's life, for the binary on an instance.
        crates: &["bullpen-agent", "bullpen-core"],
        test_crates: &["bullpen-faulty", "bullpen-sim"],
        // And `aws-*`, which this crate owns.
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
    CrateRow {
        name: "bullpen-github",
        crates: &["bullpen-core"],
        // Itself, with the stand-in.
        test_crates: &["bullpen-github", "bullpen-sim"],
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
    CrateRow {
        name: "bullpen",
        crates: &[
            "bullpen-agent",
            "bullpen-aws",
            "bullpen-core",
            "bullpen-embedded",
            "bullpen-engine",
            "bullpen-github",
            "bullpen-sim",
        ],
        test_crates: &["bullpen-faulty"],
        outside: Outside::Any,
        parts: &[],
    },
    CrateRow {
        // For tests and benchmarks: no other crate links it.
        name: "bullpen-faulty",
        crates: &[],
        test_crates: &[],
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
    CrateRow {
        name: "xtask",
        crates: &[],
        test_crates: &[],
        outside: Outside::Only(&["anyhow", "cargo_metadata"]),
        parts: &[],
    },
];
