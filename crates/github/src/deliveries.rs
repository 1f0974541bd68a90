//! Lists the App's failed webhook deliveries and requests redelivery: GitHub never redelivers
//! alone.
//!
//! Not here: lost webhooks of organisations and repositories, which an App cannot list; the
//! service finds their jobs by listing queued runs (`runs`).

use std::collections::BTreeMap;

use bullpen_core::forge_rates::CallPurpose;
use bullpen_core::ports::{Clock, Fault, LostDelivery};
use bullpen_core::time::Timestamp;
use serde::Deserialize;

use crate::client::GitHub;
use crate::fault::NotFoundMeans;
use crate::limits::{DELIVERY_PAGES_MAX, PER_PAGE};
use crate::wire::Call;

/// The only event that is worth a redelivery.
const EVENT: &str = "workflow_job";

#[derive(Clone, Debug, Deserialize)]
struct DeliveryJson {
    id: u64,
    guid: String,
    delivered_at: Timestamp,
    status_code: u16,
    event: String,
}

impl<C: Clock> GitHub<C> {
    pub(crate) async fn undelivered(&self, since: Timestamp) -> Result<Vec<LostDelivery>, Fault> {
        let mut seen = Vec::new();
        let mut next = Some(format!("/app/hook/deliveries?per_page={PER_PAGE}"));
        for _ in 0..DELIVERY_PAGES_MAX {
            let Some(path) = next else { break };
            let Some(answer) =
                self.call_as_app(&Call::get(CallPurpose::Redeliver, path).housekeeping()).await?
            else {
                return Ok(Vec::new());
            };
            let answer = answer.accepted(NotFoundMeans::Scope)?;
            let page: Vec<DeliveryJson> = answer.read("list of deliveries")?;
            // GitHub lists the newest first.
            let is_last = page.last().is_none_or(|oldest| oldest.delivered_at < since);
            seen.extend(page);
            next = answer.next.filter(|_| !is_last);
        }
        Ok(lost(seen, since))
    }

    pub(crate) async fn request_redelivery(&self, id: u64) -> Result<(), Fault> {
        let path = format!("/app/hook/deliveries/{id}/attempts");
        let call = Call::post(CallPurpose::Redeliver, path, None);
        match self.call_as_app(&call).await? {
            Some(answer) => answer.accepted(NotFoundMeans::Thing).map(drop),
            None => Err(Fault::Denied("only an App can request redelivery of webhooks".to_owned())),
        }
    }
}

/// The events whose delivery attempts all failed, each with its latest attempt.
fn lost(seen: Vec<DeliveryJson>, since: Timestamp) -> Vec<LostDelivery> {
    let mut by_guid: BTreeMap<String, Vec<DeliveryJson>> = BTreeMap::new();
    for delivery in seen.into_iter().filter(|it| it.event == EVENT && it.delivered_at >= since) {
        by_guid.entry(delivery.guid.clone()).or_default().push(delivery);
    }
    let arrived = |it: &DeliveryJson| (200..300).contains(&it.status_code);
    let never = by_guid.into_values().filter(|attempts| !attempts.iter().any(arrived));
    let latest = never.filter_map(|attempts| attempts.into_iter().max_by_key(|it| it.delivered_at));
    latest.map(|it| LostDelivery { id: it.id, guid: it.guid, at: it.delivered_at }).collect()
}
