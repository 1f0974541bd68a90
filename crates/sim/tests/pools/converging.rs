//! From whatever there is to what is promised.

use std::time::Duration;

use crate::yard::{CI, Yard};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn an_empty_pool_becomes_what_its_schedule_promises() {
    let yard = Yard::new(10, CI).await;
    let full = async || yard.ready("ci").await == (2, 1);
    assert!(yard.keep("one", 10 * MINUTE, full).await, "{:?}", yard.records("ci").await);
}
