//! Reading the lines that cause trouble: faults, weather, outages, shortages, agents.
//!
//! Not here: every other line (`parse`).

use std::time::Duration;

use bullpen_core::ids::{InstanceType, Zone};
use bullpen_core::ports::Fault;

use super::parse::{PORTS, USAGES};
use super::verb::{Agents, Change, Item, Verb};
use super::words::{Misspelt, Words};
use crate::model::fleet::Oddity;
use crate::storms::{DYNAMODB, EC2, EVERYTHING, GITHUB, LEDGER, MAILBOX, Party, PortsOfOne};
use crate::storms::{SQS, Storm, StormKind};
use crate::wire::{Planned, Trouble, Weather};
use crate::world::{CALM, STACK};

type Odds = fn(&mut Weather) -> &mut u32;

/// `fault KIND PORT [call=N] [times=K]`: a fault of the next process.
pub(super) fn fault(words: &mut Words) -> Result<Verb, Misspelt> {
    let late = words.option("by").map(|word| word.time()).transpose()?;
    let kinds = [
        ("throttle", Trouble::Refuse(Fault::Throttled)),
        ("refuse", Trouble::Refuse(Fault::unavailable("no answer"))),
        ("deny", Trouble::Refuse(Fault::Denied(String::from("not allowed")))),
        ("lose-answer", Trouble::LoseAnswer),
        ("land-late", Trouble::LandLate(late.unwrap_or(Duration::from_secs(10)))),
    ];
    let kind = words.plain("a kind of fault")?;
    let trouble = kind.one_of("kind of fault", &kinds)?;
    if late.is_some() && !matches!(trouble, Trouble::LandLate(_)) {
        return Err(kind.wrong("only land-late has by=…"));
    }
    let port = words.plain("a port, such as fleet,")?.one_of("port", &PORTS)?;
    let first: u64 = words.option("call").map_or(Ok(1), |word| word.number())?;
    let times: u64 = words.option("times").map_or(Ok(1), |word| word.number())?;
    let planned = |call| Planned { port: port.to_owned(), call, trouble: trouble.clone() };
    Ok(Verb::Fault((first..first.saturating_add(times)).map(planned).collect()))
}

/// `weather calm`, or odds out of a thousand calls.
pub(super) fn weather(words: &mut Words) -> Result<Verb, Misspelt> {
    let mut weather = CALM.control;
    if let Some(word) = words.more() {
        word.one_of("weather", &[("calm", ())])?;
        return Ok(Verb::Change(Change::Weather(weather)));
    }
    let odds: [(&'static str, Odds); 6] = [
        ("throttle", |weather| &mut weather.throttle),
        ("refuse", |weather| &mut weather.refuse),
        ("lose-answer", |weather| &mut weather.lose_answer),
        ("land-late", |weather| &mut weather.land_late),
        ("false-empty", |weather| &mut weather.false_empty),
        ("deliver-twice", |weather| &mut weather.deliver_twice),
    ];
    for (name, field) in odds {
        if let Some(word) = words.option(name) {
            let given: u32 = word.number()?;
            if given > 1_000 {
                return Err(word.wrong("these are odds out of a thousand calls"));
            }
            *field(&mut weather) = given;
        }
    }
    if weather.land_late > 0 {
        weather.late_max = Duration::from_secs(20);
    }
    if let Some(word) = words.option("lag") {
        weather.lag_max = word.time()?;
    }
    Ok(Verb::Change(Change::Weather(weather)))
}

/// `github down`, `github up`, `github points=60`, `github points=unlimited`,
/// `github gives=nothing`, `github gives=jobs`, `github breaks-at=runs-on=71`
pub(super) fn github(words: &mut Words) -> Result<Verb, Misspelt> {
    if let Some(word) = words.option("points") {
        let unlimited = word.text == "unlimited";
        let points = if unlimited { None } else { Some(word.number()?) };
        return Ok(Verb::Change(Change::Points(points)));
    }
    if let Some(word) = words.option("gives") {
        let gives_nothing = word.one_of("gift", &[("nothing", true), ("jobs", false)])?;
        return Ok(Verb::Change(Change::GivesNothing(gives_nothing)));
    }
    if let Some(word) = words.option("breaks-at") {
        return Ok(Verb::Change(Change::Breaks(word.text.clone())));
    }
    let word = words.plain("down, silent or up")?;
    if word.text == "silent" {
        return Ok(Verb::Change(Change::Silent));
    }
    let down = word.one_of("word for GitHub", &[("down", true), ("up", false)])?;
    Ok(Verb::Change(Change::GitHub { down }))
}

/// `outage PORTS [of=agents] [in=PLACE] [how=gone]`, or `outage over`.
pub(super) fn outage(words: &mut Words) -> Result<Verb, Misspelt> {
    const SERVICES: [(&str, PortsOfOne); 7] = [
        ("ledger", LEDGER),
        ("mailbox", MAILBOX),
        ("stores", DYNAMODB),
        ("queues", SQS),
        ("fleet", EC2),
        ("forge", GITHUB),
        ("everything", EVERYTHING),
    ];
    const PARTIES: [(&str, Option<Party>); 3] =
        [("all", None), ("agents", Some(Party::Agent)), ("service", Some(Party::ControlPlane))];
    const KINDS: [(&str, StormKind); 3] = [
        ("gone", StormKind::Gone),
        ("slow", StormKind::Slow),
        ("throttling", StormKind::Throttling),
    ];
    let word = words.plain("a port, such as mailbox, or over")?;
    if word.text == "over" {
        return Ok(Verb::Change(Change::OutageOver));
    }
    let ports = word.one_of("port", &SERVICES)?;
    let party = words.option("of").map_or(Ok(None), |word| word.one_of("party", &PARTIES))?;
    let place = words.option("in").map(|word| match party {
        Some(Party::ControlPlane) => format!("serve {}", word.text),
        Some(Party::Agent) | None => word.text,
    });
    let how = words.option("how");
    let kind = how.map_or(Ok(StormKind::Gone), |word| word.one_of("kind of outage", &KINDS))?;
    Ok(Verb::Change(Change::Outage(Storm { kind, ports, party, place })))
}

/// `delete-queue jobs`: a queue of the stack is removed, and not by Bullpen.
pub(super) fn delete_queue(words: &mut Words) -> Result<Verb, Misspelt> {
    let name = words.plain("a queue's name without the stack's, such as jobs,")?.text;
    Ok(Verb::Change(Change::QueueDeleted(format!("{STACK}-{name}"))))
}

/// `shortage spot [type=c6i.large] [zone=zone-a]`, or `shortage over`.
pub(super) fn shortage(words: &mut Words) -> Result<Verb, Misspelt> {
    let word = words.plain("what the cloud is short of")?;
    if word.text == "over" {
        return Ok(Verb::Change(Change::ShortageOver));
    }
    let usage = word.one_of("usage", &USAGES)?;
    let instance_type = words.option("type").map(|word| InstanceType::new(&word.text));
    let zone = words.option("zone").map(|word| Zone::new(&word.text));
    Ok(Verb::Change(Change::Shortage { usage, instance_type, zone }))
}

pub(super) fn capacity(words: &mut Words) -> Result<Verb, Misspelt> {
    let word = words.plain("how many machines more, or unlimited,")?;
    let left = if word.text == "unlimited" { None } else { Some(word.number()?) };
    Ok(Verb::Change(Change::Capacity(left)))
}

pub(super) fn lose(words: &mut Words) -> Result<Verb, Misspelt> {
    let word = words.plain("a machine")?;
    if super::names::is_name(&word.text) {
        return Ok(Verb::Lose(word.text));
    }
    Err(word.wrong(format!("{:?} is no machine, such as m1", word.text)))
}

/// `newer record m1`, `newer row 71`, `newer journal ci`, `newer report m1`,
/// `newer machine m1`; and `readable …`.
pub(super) fn rewrite(words: &mut Words, newer: bool) -> Result<Verb, Misspelt> {
    const ITEMS: [(&str, Option<Item>); 5] = [
        ("record", Some(Item::Record)),
        ("row", Some(Item::Row)),
        ("journal", Some(Item::Journal)),
        ("report", Some(Item::Report)),
        ("machine", None),
    ];
    let item = words.plain("a kind of item, such as row,")?.one_of("kind of item", &ITEMS)?;
    let name = words.plain("a machine, a job or a pool")?.text;
    Ok(match item {
        Some(item) => Verb::Rewrite { item, name, newer },
        None => Verb::Odd { name, oddity: Oddity::Newer, is_odd: newer },
    })
}

/// `odd m1 unlisted`, and `even m1 unlisted` when that is over.
pub(super) fn odd(words: &mut Words, is_odd: bool) -> Result<Verb, Misspelt> {
    const ODDITIES: [(&str, Oddity); 4] = [
        ("unlisted", Oddity::Unlisted),
        ("unseen", Oddity::Unseen),
        ("untagged", Oddity::Untagged),
        ("denied", Oddity::Denied),
    ];
    let name = words.plain("a machine")?.text;
    let oddity = words.plain("what is odd about it")?.one_of("oddity", &ODDITIES)?;
    Ok(Verb::Odd { name, oddity, is_odd })
}

pub(super) fn agents(words: &mut Words) -> Result<Verb, Misspelt> {
    const KINDS: [(&str, Agents); 5] = [
        ("well", Agents::Well),
        ("mute", Agents::Mute),
        ("fail-warm-up", Agents::FailWarmUp),
        ("crashing", Agents::Crashing),
        ("updating", Agents::Updating),
    ];
    let word = words.plain("how agents behave")?;
    Ok(Verb::Change(Change::Agents(word.one_of("way to behave", &KINDS)?)))
}

pub(super) fn cloud(words: &mut Words) -> Result<Verb, Misspelt> {
    let boot = words.option("boot").map(|word| word.time()).transpose()?;
    let visible_after = words.option("visible-after").map(|word| word.time()).transpose()?;
    let page = words.option("page").map(|word| word.number()).transpose()?;
    let lag = words.option("lag").map(|word| word.time()).transpose()?;
    Ok(Verb::Change(Change::Cloud { boot, visible_after, page, lag }))
}
