//! `bullpen pools pause`, `resume` and `drain`: stores an operator's order and shows its effect.
//!
//! The pool's journal stores the order, and the replica that keeps the pool obeys it. An order
//! needs no valid configuration: a pool with a journal takes orders while its file is unreadable.
//!
//! Not here: obeying the order (`bullpen serve`).

use std::time::Duration;

use bullpen_core::explain::span;
use bullpen_core::ids::PoolName;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::pool::{Blueprints, OperatorOrder};
use bullpen_core::ports::{Fault, Ports};
use bullpen_engine::Stack;
use bullpen_engine::pools::{Ordered, SurveyedPool, order as give, survey};
use serde_json::json;

use super::view::{self, PoolsCommand, PoolsView, unknown, unreadable};
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment};
use crate::render;
use crate::runtime::GithubAccess;
use crate::workflow::Failure;

/// The pool that gets the order.
#[derive(Debug, clap::Args)]
pub(super) struct OrderArgs {
    /// The pool
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// Gives a pool an order. `None` cancels the last order.
pub(super) async fn order(
    args: &OrderArgs,
    order: Option<OperatorOrder>,
    environment: &Environment,
) -> Result<Exit, Failure> {
    view::run(&args.common, environment, GiveOrder { name: &args.name, order }).await
}

struct GiveOrder<'a> {
    name: &'a str,
    order: Option<OperatorOrder>,
}

impl PoolsCommand for GiveOrder<'_> {
    async fn run<P: Ports<Forge = GithubAccess>>(
        self,
        view: PoolsView<P>,
    ) -> Result<Exit, Failure> {
        let PoolsView { stack, configured, json, .. } = view;
        let (blueprints, failure) = match configured {
            Ok(blueprints) => (blueprints, None),
            Err(failure) => (None, Some(failure)),
        };
        let none = Blueprints::default();
        let by = blueprints.as_ref().unwrap_or(&none);
        let names = view::names(&stack, by).await.map_err(|fault| unreadable(&fault))?;
        let name = PoolName::new(self.name);
        if !names.contains(&name) {
            return Err(failure.unwrap_or_else(|| unknown(self.name, &names)));
        }
        let given = give(&stack, &name, self.order).await;
        let given = given.map_err(|fault| Failure::of("could not store the order", &fault))?;
        // The order is stored, so a fault while counting machines does not fail the command.
        let (in_use, others) = machines(&stack, by, &name).await.unwrap_or_default();
        let effect = OrderEffect {
            order: self.order,
            is_new: given == Ordered::Now,
            is_configured: blueprints.map(|by| by.pools.contains_key(&name)),
            in_use,
            others,
            within: stack.limits.converge * 3 / 2,
        };
        if json {
            render::json(&effect.json(&name));
        } else {
            render::page(&effect.text(&name));
        }
        Ok(Exit::Done)
    }
}

/// The number of its machines in use, and the number of its other machines.
async fn machines<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    pool: &PoolName,
) -> Result<(u32, u32), Fault> {
    let found = survey(stack, configured, std::slice::from_ref(pool)).await?.complete()?;
    let statuses = found.iter().flat_map(SurveyedPool::statuses);
    let (used, others): (Vec<_>, Vec<_>) =
        statuses.partition(|(status, _)| *status == StandbyStatus::Detached);
    let sum = |part: Vec<(StandbyStatus, u32)>| part.into_iter().map(|(_, count)| count).sum();
    Ok((sum(used), sum(others)))
}

/// The effect of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OrderEffect {
    order: Option<OperatorOrder>,
    /// Whether the order changed anything.
    is_new: bool,
    /// Whether the pool is configured; `None` if there is no configuration.
    is_configured: Option<bool>,
    in_use: u32,
    others: u32,
    /// The longest time until a replica looks at the pool: it looks after between half and one and
    /// a half times `converge`.
    within: Duration,
}

impl OrderEffect {
    fn text(&self, pool: &PoolName) -> String {
        let within = span(self.within);
        let (is, by) = if self.is_new {
            ("is", format!("The service obeys within {within}: "))
        } else {
            ("was already", String::new())
        };
        let Self { in_use, others, .. } = self;
        let back = format!("`bullpen pools resume {pool}` cancels the order.");
        let emptied = format!(
            "it ends machines that are not in use ({others} now).\nMachines in use, left to \
             finish: {in_use}. It launches none."
        );
        match self.order {
            Some(OperatorOrder::Pause) => format!(
                "pool {pool} {is} paused.\n{by}it launches, stops and ends no machine.\nJobs still \
                 get machines of the pool, and machines still end at their deadlines.\n{back}"
            ),
            Some(OperatorOrder::Drain) => {
                format!("pool {pool} {is} drained.\n{by}{emptied}\n{back}")
            }
            None if self.is_configured == Some(false) => {
                format!("pool {pool} has no order and is not configured any more.\n{by}{emptied}")
            }
            None if self.is_new => {
                format!("pool {pool} is kept again.\n{by}it launches and ends machines as planned.")
            }
            None => format!("pool {pool} is neither paused nor draining: nothing changes."),
        }
    }

    fn json(&self, pool: &PoolName) -> String {
        let within = u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX);
        json!({
            "pool": pool,
            "order": self.order,
            "already": !self.is_new,
            "configured": self.is_configured,
            "in_use": self.in_use,
            "not_in_use": self.others,
            "within_ms": within,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_order_has_its_effect_and_delay_in_lines_that_fit() {
        let pool = PoolName::new("a-pool-with-a-name");
        for order in [None, Some(OperatorOrder::Pause), Some(OperatorOrder::Drain)] {
            for (is_new, is_configured) in
                [(true, Some(true)), (false, Some(true)), (true, Some(false)), (false, None)]
            {
                let within = Duration::from_secs(45);
                let effect =
                    OrderEffect { order, is_new, is_configured, in_use: 17, others: 42, within };
                let text = effect.text(&pool);
                assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
                assert_eq!(text.contains("within 45 s"), is_new, "{text}");
                let empties = order == Some(OperatorOrder::Drain)
                    || (order.is_none() && is_configured == Some(false));
                assert_eq!(text.contains("42 now") && text.contains("finish: 17"), empties);
            }
        }
    }
}
