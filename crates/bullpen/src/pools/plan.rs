//! `bullpen pools plan`: shows each pool's plan. It executes nothing and takes no lease.
//!
//! Not here: planning (`bullpen_core::pool`).

use bullpen_core::ids::PoolName;
use bullpen_core::ports::Ports;
use bullpen_engine::pools::{Survey, SurveyedPool, survey};
use serde_json::{Value, json};

use super::view::{self, PoolsCommand, PoolsView, unknown, unreadable};
use super::words;
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment};
use crate::render;
use crate::runtime::GithubAccess;
use crate::workflow::Failure;

/// The pools to plan.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// Only these pools [default: all in the configuration or the ledger]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Shows the plans.
pub(super) async fn plan(args: &PlanArgs, environment: &Environment) -> Result<Exit, Failure> {
    view::run(&args.common, environment, ShowPlans { names: &args.names }).await
}

struct ShowPlans<'a> {
    names: &'a [String],
}

impl PoolsCommand for ShowPlans<'_> {
    async fn run<P: Ports<Forge = GithubAccess>>(
        self,
        view: PoolsView<P>,
    ) -> Result<Exit, Failure> {
        let PoolsView { stack, configured, json, .. } = view;
        // Without a configuration every pool would look removed.
        let configured = configured?.ok_or_else(unconfigured)?;
        let all = view::names(&stack, &configured).await.map_err(|fault| unreadable(&fault))?;
        let selected = selected(&all, self.names)?;
        let (broken, planned): (Vec<PoolName>, Vec<PoolName>) =
            selected.into_iter().partition(|name| configured.unbuildable.contains_key(name));
        let found = survey(&stack, &configured, &planned).await;
        let found = found.and_then(Survey::complete).map_err(|fault| unreadable(&fault))?;
        for name in broken {
            let why = &configured.unbuildable[&name];
            render::talk(&format!("pool {name} is left alone: {why}"));
        }
        if json {
            render::json(&found.iter().map(object).collect::<Value>().to_string());
        } else {
            let texts: Vec<String> = found.iter().map(text).collect();
            render::page(&if texts.is_empty() { "no pools".to_owned() } else { texts.join("\n") });
        }
        let is_settled = found.iter().all(|found| found.plan.actions.is_empty());
        Ok(if is_settled { Exit::Done } else { Exit::Planned })
    }
}

fn unconfigured() -> Failure {
    Failure {
        exit: Exit::Usage,
        what: "no configuration, so there is nothing to plan by".to_owned(),
        hint: Some("give --config FILE, or --repository ORGANISATION with a credential".to_owned()),
    }
}

/// The wanted pools; all pools if the command names none.
fn selected(all: &[PoolName], wanted: &[String]) -> Result<Vec<PoolName>, Failure> {
    if let Some(missing) = wanted.iter().find(|name| !all.iter().any(|it| it.as_str() == **name)) {
        return Err(unknown(missing, all));
    }
    let is_asked = |name: &&PoolName| {
        wanted.is_empty() || wanted.iter().any(|wanted| name.as_str() == wanted.as_str())
    };
    Ok(all.iter().filter(is_asked).cloned().collect())
}

fn text(found: &SurveyedPool) -> String {
    let actions = found.plan.actions.iter().flat_map(words::action).collect::<Vec<_>>();
    let count = match actions.len() {
        0 => "nothing to do".to_owned(),
        1 => "1 action".to_owned(),
        count => format!("{count} actions"),
    };
    let mut text = vec![format!("{}  {count}", found.pool)];
    let label = |index: usize, label: &'static str| if index == 0 { label } else { "" };
    let actions = actions.iter().enumerate();
    text.extend(actions.map(|(index, action)| words::lines(label(index, "does"), action)));
    let notes = found.plan.notes.iter().enumerate();
    text.extend(notes.map(|(at, note)| words::lines(label(at, "waits"), &note.to_string())));
    text.join("\n")
}

fn object(found: &SurveyedPool) -> Value {
    let words: Vec<String> = found.plan.notes.iter().map(ToString::to_string).collect();
    json!({
        "pool": found.pool,
        "target": found.desired.target,
        "actions": found.plan.actions,
        "notes": found.plan.notes,
        "words": words,
    })
}
