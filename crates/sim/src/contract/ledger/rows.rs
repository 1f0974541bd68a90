//! Rows of jobs: conditional writes, and the listings in which workers find them.
//!
//! Not here: the content of a row.

use std::time::Duration;

use bullpen_core::ids::{JobId, Repository, Revision};
use bullpen_core::ports::{JobRow, Ledger, WaitingAt};
use futures_util::future::join_all;

use super::fixtures::{HOUR, all_pages, row, winners};
use crate::contract::{Harness, answered, landed, lost, won};

fn at(lane: &str, repository: &str) -> WaitingAt {
    WaitingAt { lane: lane.into(), repository: Repository::new(repository) }
}

fn jobs(rows: &[JobRow]) -> Vec<&str> {
    rows.iter().map(|row| row.job.as_str()).collect()
}

async fn waiting(ledger: &impl Ledger, at: &WaitingAt) -> Vec<JobRow> {
    all_pages(async |after: Option<String>| ledger.waiting(at, after.as_deref()).await).await
}

/// A write replaces the revision that the caller read, or changes nothing.
pub async fn a_row_is_written_only_over_the_revision_read<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = row("j-1", now);
    assert_eq!(answered(ledger.row(&mine.job).await), None);
    lost(ledger.write_row(Some(Revision(1)), &mine).await);
    let first = won(ledger.write_row(None, &mine).await);
    lost(ledger.write_row(None, &mine).await);
    let changed = JobRow { body: "second".into(), ..first.clone() };
    let answer_lost = harness.lose_next_answer();
    landed(ledger.write_row(Some(first.revision), &changed).await, answer_lost);
    let second = answered(ledger.row(&mine.job).await).expect("it is there");
    assert!(second.revision > first.revision);
    assert_eq!(second.body, "second");
    lost(harness.another_process().write_row(Some(first.revision), &first).await);
    assert_eq!(answered(ledger.row(&mine.job).await), Some(second));
}

/// A webhook that GitHub delivers many times at once makes one row.
pub async fn of_many_first_rows_one_is_stored<H: Harness<Port: Ledger>>(harness: H) {
    let handles: Vec<_> = (0..16).map(|_| harness.another_process()).collect();
    let now = harness.now();
    for round in 0..10 {
        let rows: Vec<_> = (0..handles.len())
            .map(|n| JobRow { body: format!("writer {n}"), ..row(&format!("j-{round}"), now) })
            .collect();
        let writes = handles.iter().zip(&rows).map(|(ledger, row)| ledger.write_row(None, row));
        let winners = winners(join_all(writes).await);
        assert_eq!(winners.len(), 1, "round {round}");
        let (winner, stored) = &winners[0];
        assert_eq!(stored.body, format!("writer {winner}"));
        assert_eq!(answered(harness.port().row(&stored.job).await).as_ref(), Some(stored));
    }
}

/// All fields are read back, the body byte for byte.
pub async fn a_row_is_read_back_as_it_was_written<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = JobRow {
        body: "{\"v\":99,\"text\":\"quote \\\" apostrophe ' zero \\u0000 snow ☃\"}\n".into(),
        waiting: Some(at("pool/linux", "octo/repo")),
        next_look: Some(now.after(Duration::from_millis(1_234))),
        ..row("j-1", now)
    };
    let stored = won(ledger.write_row(None, &mine).await);
    assert_eq!(JobRow { revision: stored.revision, ..mine }, stored);
    assert_eq!(answered(ledger.row(&stored.job).await), Some(stored));
}

/// Directly after its write, a row is listed under the lane and repository where it waits, and only
/// there.
pub async fn rows_wait_by_lane_and_repository<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let places = [
        ("j-1", at("pool/linux", "octo/one")),
        ("j-2", at("pool/linux", "octo/two")),
        ("j-3", at("pool/linux", "octo/one")),
        // Another lane with a name that begins alike.
        ("j-4", at("pool/linux-arm", "octo/one")),
        ("j-5", at("class/linux", "octo/three")),
    ];
    let mut first = None;
    for (job, place) in &places {
        let waiting = JobRow { waiting: Some(place.clone()), ..row(job, now) };
        let stored = won(ledger.write_row(None, &waiting).await);
        first.get_or_insert(stored);
    }
    let mut repositories = answered(ledger.waiting_repositories("pool/linux").await);
    repositories.sort();
    assert_eq!(repositories, [Repository::new("octo/one"), Repository::new("octo/two")]);
    assert_eq!(answered(ledger.waiting_repositories("pool/none").await), []);
    assert_eq!(jobs(&waiting(ledger, &places[0].1).await), ["j-1", "j-3"]);
    assert_eq!(jobs(&waiting(ledger, &places[3].1).await), ["j-4"]);
    // One row moves to another lane, then stops waiting.
    let first = first.expect("it was written");
    let moved = JobRow { waiting: Some(places[4].1.clone()), ..first };
    let moved = won(ledger.write_row(Some(moved.revision), &moved).await);
    assert_eq!(jobs(&waiting(ledger, &places[0].1).await), ["j-3"]);
    assert_eq!(jobs(&waiting(ledger, &places[4].1).await), ["j-1", "j-5"]);
    let own = JobRow { waiting: None, ..moved };
    won(ledger.write_row(Some(own.revision), &own).await);
    assert_eq!(jobs(&waiting(ledger, &places[4].1).await), ["j-5"]);
    let three = answered(ledger.waiting_repositories("class/linux").await);
    assert_eq!(three, [Repository::new("octo/three")]);
}

/// The listing returns all of a repository's many waiting rows, in the order of job ids.
pub async fn waiting_rows_turn_every_page_in_order<H: Harness<Port: Ledger>>(harness: H) {
    const MANY: u32 = 420;
    let (ledger, now) = (harness.port(), harness.now());
    let place = at("pool/linux", "octo/repo");
    for number in (0..MANY).rev() {
        let waiting =
            JobRow { waiting: Some(place.clone()), ..row(&format!("j-{number:03}"), now) };
        won(ledger.write_row(None, &waiting).await);
    }
    let listed = waiting(ledger, &place).await;
    let expected: Vec<_> = (0..MANY).map(|number| format!("j-{number:03}")).collect();
    assert_eq!(jobs(&listed), expected);
}

/// Rows are swept by the time of their next look, earliest first, equal times included.
pub async fn rows_are_listed_by_their_next_look<H: Harness<Port: Ledger>>(harness: H) {
    const MANY: u32 = 450;
    let (ledger, now) = (harness.port(), harness.now());
    for number in 0..MANY {
        let seconds = Duration::from_secs(u64::from(number % 4) * 10);
        let look = (number % 5 != 0).then(|| now.after(seconds));
        let mine = JobRow { next_look: look, ..row(&format!("j-{number:03}"), now) };
        won(ledger.write_row(None, &mine).await);
    }
    harness.settle().await;
    let before = now.after(Duration::from_secs(20));
    let sweep = async |after: Option<String>| ledger.rows_due(before, after.as_deref()).await;
    let swept = all_pages(sweep).await;
    let looks: Vec<_> = swept.iter().filter_map(|row| row.next_look).collect();
    assert_eq!(looks.len(), swept.len(), "a row without a time was swept");
    assert!(looks.is_sorted() && looks.iter().all(|look| *look <= before), "{looks:?}");
    let mut listed = jobs(&swept);
    listed.sort_unstable();
    let expected: Vec<_> = (0..MANY)
        .filter(|number| number % 5 != 0 && number % 4 != 3)
        .map(|number| format!("j-{number:03}"))
        .collect();
    assert_eq!(listed, expected);
    let far = JobRow { next_look: Some(now.after(HOUR)), ..row("j-001", now) };
    let seen = answered(ledger.row(&JobId::new("j-001")).await).expect("it is there");
    won(ledger.write_row(Some(seen.revision), &far).await);
    harness.settle().await;
    assert!(!jobs(&all_pages(sweep).await).contains(&"j-001"), "its next look is later now");
}
