//! Swaps: two records and two rows in one write, or none.
//!
//! Not here: deciding to swap.

use bullpen_core::instance::Record;
use bullpen_core::ports::{JobRow, Ledger, RowSwap, Swap};

use super::fixtures::{HOUR, claim, condemned, idle, job, moved, row, running, step, stored};
use crate::contract::{Harness, all_of, answered, landed, lost, won};

/// Two running instances with the rows of their jobs.
async fn pair<H: Harness<Port: Ledger>>(harness: &H) -> Swap {
    let (ledger, now) = (harness.port(), harness.now());
    let mut rows = Vec::new();
    for name in ["j-1", "j-2"] {
        let stored = won(ledger.write_row(None, &row(name, now)).await);
        let swapped = JobRow { body: format!("{name} swapped"), ..stored.clone() };
        rows.push(RowSwap { seen: stored.revision, row: swapped });
    }
    let records =
        [running(harness, "i-1", &job("j-1")).await, running(harness, "i-2", &job("j-2")).await];
    let rows: [RowSwap; 2] = rows.try_into().expect("there are two rows");
    Swap { records, rows }
}

/// All records and rows that a swap could change.
async fn everything(ledger: &impl Ledger, swap: &Swap) -> (Vec<Record>, Vec<Option<JobRow>>) {
    let (mut records, mut rows) = (Vec::new(), Vec::new());
    for record in &swap.records {
        records.push(stored(ledger, &record.id).await);
    }
    for half in &swap.rows {
        rows.push(answered(ledger.row(&half.row.job).await));
    }
    (records, rows)
}

/// A swap exchanges both owners at once; generations stay, directories and rows follow.
pub async fn a_swap_exchanges_owners_and_rows<H: Harness<Port: Ledger>>(harness: H) {
    let swap = pair(&harness).await;
    let ledger = harness.port();
    let answer_lost = harness.lose_next_answer();
    landed(ledger.swap(&swap).await, answer_lost);
    let (records, rows) = everything(ledger, &swap).await;
    for (now, before, owner) in
        [(&records[0], &swap.records[0], job("j-2")), (&records[1], &swap.records[1], job("j-1"))]
    {
        assert_eq!(now.state.owner(), Some(&owner));
        assert_eq!(now.generation, before.generation);
        assert!(now.revision > before.revision);
        assert!(all_of(ledger.owned_by(&owner).await).contains(now));
    }
    for (now, half) in rows.iter().zip(&swap.rows) {
        let now = now.as_ref().expect("both rows exist");
        assert_eq!(now.body, half.row.body);
        assert!(now.revision > half.seen);
    }
    lost(ledger.swap(&swap).await);
}

/// If any of the four parts has changed, all four stay as they are.
pub async fn a_swap_changes_nothing_if_any_part_has_moved<H: Harness<Port: Ledger>>(harness: H) {
    let swap = pair(&harness).await;
    let (ledger, now) = (harness.port(), harness.now());
    for part in 0..4_usize {
        let mut stale = swap.clone();
        let (records, rows) = everything(ledger, &swap).await;
        // Everything as it is now; then one part changes before the swap.
        for (half, (record, row)) in records.into_iter().zip(rows).enumerate() {
            stale.rows[half].seen = row.expect("the row exists").revision;
            stale.records[half] = record;
        }
        if let Some(record) = stale.records.get(part) {
            let owner = record.state.owner().expect("the record is running").clone();
            let (generation, deadline) = (record.generation, now.after(HOUR * 2));
            let event =
                bullpen_core::instance::InstanceEvent::Extended { owner, generation, deadline };
            step(ledger, record, &event).await;
        } else {
            let half = &stale.rows[part - 2];
            won(ledger.write_row(Some(half.seen), &row(half.row.job.as_str(), now)).await);
        }
        let before = everything(ledger, &swap).await;
        lost(ledger.swap(&stale).await);
        assert_eq!(everything(ledger, &swap).await, before, "part {part}");
    }
}

/// A swap needs two running records.
pub async fn a_swap_needs_two_running_records<H: Harness<Port: Ledger>>(harness: H) {
    let swap = pair(&harness).await;
    let (ledger, now) = (harness.port(), harness.now());
    let idle = idle(&harness, "i-3").await;
    let claimed = won(ledger.claim(&claim(&idle, &job("j-3"), "n", now)).await);
    let with_claimed = Swap { records: [swap.records[0].clone(), claimed], ..swap.clone() };
    let before = everything(ledger, &with_claimed).await;
    lost(ledger.swap(&with_claimed).await);
    assert_eq!(everything(ledger, &with_claimed).await, before);
    let ended =
        won(ledger.replace(&swap.records[1], &moved(&swap.records[1], &condemned(now))).await);
    let with_ended = Swap { records: [swap.records[0].clone(), ended], ..swap };
    let before = everything(ledger, &with_ended).await;
    lost(ledger.swap(&with_ended).await);
    assert_eq!(everything(ledger, &with_ended).await, before);
}
