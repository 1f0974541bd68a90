//! What the demo shows: its runs, the requests of each, and what should come of them.
//!
//! Not here: making the requests (`play`).

use bullpen_core::class::Usage;

/// How machines were come by, as counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tiers {
    /// Idle ones.
    pub(super) reused: u32,
    /// Stopped ones.
    pub(super) started: u32,
    /// New ones.
    pub(super) created: u32,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DemoRequest {
    /// Its id.
    pub(super) request: &'static str,
    /// How many machines, and jobs.
    pub(super) count: u32,
    /// How they are paid for; machines of the other usage do not match.
    pub(super) usage: Usage,
    /// What should come of it.
    pub(super) expected: Tiers,
}

/// One workflow run; its requests are made at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// What it shows, in a word.
    pub(super) word: &'static str,
    /// What it shows.
    pub(super) title: &'static str,
    /// What it asks for.
    pub(super) asks: &'static [DemoRequest],
}

const COLD: Tiers = Tiers { reused: 0, started: 0, created: 4 };
const WARM: Tiers = Tiers { reused: 4, started: 0, created: 0 };

/// The runs, one after another. The last one's requests look through one queue: the spot machines
/// that are not there must not cost the other request a machine that is.
pub(super) const RUNS: [Run; 3] = [
    Run {
        word: "cold",
        title: "run 1, cold: there is no machine yet",
        asks: &[DemoRequest {
            request: "1.1.build",
            count: 4,
            usage: Usage::OnDemand,
            expected: COLD,
        }],
    },
    Run {
        word: "warm",
        title: "run 2, warm: the same again, on the machines of run 1",
        asks: &[DemoRequest {
            request: "2.1.build",
            count: 4,
            usage: Usage::OnDemand,
            expected: WARM,
        }],
    },
    Run {
        word: "mixed",
        title: "run 3, mixed: two requests at once, and no idle machine matches the one for spot",
        asks: &[
            DemoRequest { request: "3.1.build", count: 4, usage: Usage::OnDemand, expected: WARM },
            DemoRequest {
                request: "3.1.spot",
                count: 2,
                usage: Usage::Spot,
                expected: Tiers { reused: 0, started: 0, created: 2 },
            },
        ],
    },
];
