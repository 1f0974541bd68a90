//! Reading a scenario: one verb per line, with its words.
//!
//! `#` begins a comment, `>` a line of the transcript; neither is read.
//!
//! Not here: running verbs (`runner`), the lines that set up the world (`setting`).

use std::time::Duration;

use bullpen_core::class::{Architecture, RunnerClass, Scripts, Usage, VcpuRange};
use bullpen_core::ids::{ClassName, RequestId, RunAttempt, SpecHash};
use bullpen_core::request::entry::split;
use bullpen_core::request::{OnPartial, TypePattern};

use super::expect::Expectation;
use super::pools;
use super::serving;
use super::setting::SETTERS;
use super::transcript::MARK;
use super::troubles::{
    agents, capacity, cloud, delete_queue, fault, github, lose, odd, outage, rewrite, shortage,
    weather,
};
use super::verb::{Change, Death, JobVerb, Look, Process, Provision, Put, Setting, Task, Verb};
use super::words::{Misspelt, Word, Words};
use crate::wire::{Planned, Trouble};

/// One line of a script.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) verb: Option<Verb>,
}

/// A scenario that can be played.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) setting: Setting,
    pub(super) lines: Vec<Line>,
    /// The text it was read from.
    pub text: String,
}

impl Script {
    /// Reads a scenario; an error names its first wrong line.
    pub fn parse(text: &str) -> Result<Self, Misspelt> {
        let mut script =
            Self { setting: Setting::default(), lines: Vec::new(), text: text.to_owned() };
        for (index, text) in text.lines().enumerate() {
            if !text.starts_with(MARK) {
                let line = script.line(index + 1, text)?;
                script.lines.push(line);
            }
        }
        Ok(script)
    }

    /// Whether it has an expectation.
    pub fn expects_something(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.verb, Some(Verb::Expect(_))))
    }

    /// Whether the file has a transcript.
    pub fn has_transcript(&self) -> bool {
        self.text.lines().any(|line| line.starts_with(MARK))
    }

    fn line(&mut self, number: usize, text: &str) -> Result<Line, Misspelt> {
        let mut words = Words::of(number, without_comment(text))?;
        let Some(first) = words.more() else {
            return Ok(Line { number, text: text.to_owned(), verb: None });
        };
        let verb = match first.one_of("verb", &all_verbs())? {
            Means::Setting(set) => {
                if self.lines.iter().any(|line| line.verb.is_some()) {
                    let what = format!("{:?} must come before anything happens", first.text);
                    return Err(first.wrong(what));
                }
                set(&mut self.setting, &mut words)?;
                None
            }
            Means::Verb(read) => Some(read(&mut words)?),
        };
        words.end()?;
        Ok(Line { number, text: text.to_owned(), verb })
    }
}

/// A comment begins the line or follows a space: `fleet#1` is a word.
fn without_comment(text: &str) -> &str {
    if text.starts_with('#') {
        return "";
    }
    text.split_once(" #").map_or(text, |(said, _)| said)
}

#[derive(Clone, Copy)]
enum Means {
    Setting(super::setting::Setter),
    Verb(Read),
}

type Read = fn(&mut Words) -> Result<Verb, Misspelt>;
type ReadTask = fn(&mut Words) -> Result<Task, Misspelt>;

const VERBS: [(&str, Read); 40] = [
    ("class", class),
    ("idle", |words| put(words, false)),
    ("stopped", |words| put(words, true)),
    ("provision", |words| process(words, provision).map(Verb::Run)),
    ("release", |words| process(words, release).map(Verb::Run)),
    ("dump", |words| process(words, dump).map(Verb::Run)),
    ("refresh", |words| process(words, |_| Ok(Task::Refresh)).map(Verb::Run)),
    ("meanwhile", meanwhile),
    ("await", await_something),
    ("upkeep", |words| Ok(Verb::Upkeep(words.plain("how long")?.time()?))),
    ("jobs", jobs),
    ("cancel-jobs", |words| Ok(Verb::Jobs(JobVerb::Cancel(request_id(&words.needed("of")?)?)))),
    ("run-ends", run_ends),
    ("service", serving::service),
    ("serve", serving::serve),
    ("kill", serving::kill),
    ("drain", serving::drain),
    ("pause", serving::pause),
    ("webhooks", serving::webhooks),
    ("job", serving::job),
    ("cancel-job", serving::cancel_job),
    ("pool", pools::pool),
    ("fault", fault),
    ("weather", weather),
    ("github", github),
    ("outage", outage),
    ("delete-queue", delete_queue),
    ("shortage", shortage),
    ("capacity", capacity),
    ("lose", lose),
    ("newer", |words| rewrite(words, true)),
    ("readable", |words| rewrite(words, false)),
    ("odd", |words| odd(words, true)),
    ("even", |words| odd(words, false)),
    ("agents", agents),
    ("cloud", cloud),
    ("pass", |words| Ok(Verb::Pass(words.plain("how long")?.time()?))),
    ("show", show),
    ("expect", |words| Expectation::parse(words).map(Verb::Expect)),
    ("quiet", |_| Ok(Verb::Quiet)),
];

fn all_verbs() -> Vec<(&'static str, Means)> {
    let setters = SETTERS.iter().map(|(name, set)| (*name, Means::Setting(*set)));
    setters.chain(VERBS.iter().map(|(name, read)| (*name, Means::Verb(*read)))).collect()
}

fn run_ends(words: &mut Words) -> Result<Verb, Misspelt> {
    let run = words.plain("a run and its attempt, such as 7.1,")?;
    Ok(Verb::Change(Change::RunEnds(RunAttempt::new(&run.text))))
}

fn class(words: &mut Words) -> Result<Verb, Misspelt> {
    let name = ClassName::new(&words.plain("a class")?.text);
    if let Some(word) = words.more() {
        word.one_of("word for a class", &[("removed", ())])?;
        return Ok(Verb::RemoveClass(name));
    }
    let vcpu = VcpuRange::exactly(words.needed("vcpu")?.number()?);
    let memory_mib_min = words.needed("memory")?.number()?;
    let architecture = Architecture::X64;
    let (scripts, base) = (Scripts::default(), Box::default());
    Ok(Verb::Class(RunnerClass { name, vcpu, memory_mib_min, architecture, scripts, base }))
}

fn usage(words: &mut Words) -> Result<Usage, Misspelt> {
    words.option("usage").map_or(Ok(Usage::OnDemand), |word| word.one_of("usage", &USAGES))
}

pub(super) const USAGES: [(&str, Usage); 2] =
    [("spot", Usage::Spot), ("on-demand", Usage::OnDemand)];

fn types(words: &mut Words) -> Vec<TypePattern> {
    let given = words.option("types").map_or_else(|| String::from("*"), |word| word.text);
    given.split(',').map(TypePattern::new).collect()
}

fn put(words: &mut Words, stopped: bool) -> Result<Verb, Misspelt> {
    Ok(Verb::Put(Put {
        count: words.plain("how many machines")?.number()?,
        stopped,
        class: words.option("class").map(|word| ClassName::new(&word.text)),
        usage: usage(words)?,
        types: types(words),
        lasts: words.option("ends-in").map(|word| word.time()).transpose()?,
        spec_hash: words.option("spec").map(|word| spec_hash(&word)).transpose()?,
    }))
}

/// `<version>:<digest>`; another form would match every hash.
fn spec_hash(word: &Word) -> Result<SpecHash, Misspelt> {
    let is_hash = word.text.split_once(':').is_some_and(|(version, digest)| {
        let hex = !digest.is_empty() && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        version.parse::<u16>().is_ok() && hex
    });
    let what = || format!("{:?} is no spec hash, such as 1:2e3", word.text);
    is_hash.then(|| SpecHash::new(&word.text)).ok_or_else(|| word.wrong(what()))
}

/// `<run>.<attempt>.<name>`.
fn request_id(word: &Word) -> Result<RequestId, Misspelt> {
    let id = RequestId::new(&word.text);
    match split(&id) {
        Some(_) => Ok(id),
        None => Err(word.wrong(format!("{:?} is no request id, such as 7.1.build", word.text))),
    }
}

fn process(words: &mut Words, task: ReadTask) -> Result<Process, Misspelt> {
    let task = task(words)?;
    let at = words.option("dies-at").map(|word| death(&word)).transpose()?;
    let after = words.option("dies-after").map(|word| word.time()).transpose()?;
    Ok(Process { task, death: at.or(after.map(Death::After)) })
}

/// The number of an await, or `fleet#2` for a call that lands without an answer.
pub(super) fn death(word: &Word) -> Result<Death, Misspelt> {
    let Some((port, call)) = word.text.split_once('#') else {
        let what = format!("{:?} is neither a number nor a call such as fleet#1", word.text);
        return word.number().map(Death::Await).map_err(|_| word.wrong(what));
    };
    let port = word.piece(port).one_of("port", &PORTS)?.to_owned();
    let call = word.piece(call).number()?;
    Ok(Death::Call(Planned { port, call, trouble: Trouble::Kill }))
}

pub(super) const PORTS: [(&str, &str); 5] = [
    ("ledger", "ledger"),
    ("queues", "queues"),
    ("mailbox", "mailbox"),
    ("fleet", "fleet"),
    ("forge", "forge"),
];

const YES_OR_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

fn provision(words: &mut Words) -> Result<Task, Misspelt> {
    const ON_PARTIAL: [(&str, OnPartial); 2] =
        [("top-up", OnPartial::TopUp), ("fail", OnPartial::Fail)];
    let time = |word: Word| word.time();
    Ok(Task::Provision(Provision {
        id: request_id(&words.plain("a request id, such as 7.1.build,")?)?,
        count: words.option("count").map_or(Ok(1), |word| word.number())?,
        class: words.option("class").map(|word| ClassName::new(&word.text)),
        usage: usage(words)?,
        types: types(words),
        trust: words.option("trust").map_or_else(|| String::from("octo/main"), |word| word.text),
        deadline: words.option("deadline").map(time).transpose()?,
        on_partial: words
            .option("on-partial")
            .map_or(Ok(OnPartial::TopUp), |word| word.one_of("answer", &ON_PARTIAL))?,
        fallback: words
            .option("fallback")
            .map_or(Ok(true), |word| word.one_of("answer", &YES_OR_NO))?,
        spec_hash: words.option("spec").map(|word| spec_hash(&word)).transpose()?,
        cancel_after: words.option("cancel-after").map(time).transpose()?,
    }))
}

fn release(words: &mut Words) -> Result<Task, Misspelt> {
    /// The default of the `release` command.
    const WITHIN: Duration = Duration::from_secs(600);
    let id = request_id(&words.plain("a request id, such as 7.1.build,")?)?;
    let within = words.option("within").map_or(Ok(WITHIN), |word| word.time())?;
    Ok(Task::Release { id, within })
}

fn dump(words: &mut Words) -> Result<Task, Misspelt> {
    Ok(Task::Dump(request_id(&words.plain("a request id, such as 7.1.build,")?)?))
}

fn meanwhile(words: &mut Words) -> Result<Verb, Misspelt> {
    let word = words.plain("a verb, such as provision,")?;
    let tasks: [(&'static str, ReadTask); 2] = [("provision", provision), ("release", release)];
    let task = word.one_of("verb that can happen meanwhile", &tasks)?;
    process(words, task).map(Verb::Meanwhile)
}

fn await_something(words: &mut Words) -> Result<Verb, Misspelt> {
    /// Longer than every job of a scenario.
    const WITHIN: Duration = Duration::from_secs(2 * 3_600);
    let word = words.plain("jobs, job, pool, or a request id")?;
    if word.text == "job" {
        return serving::await_jobs(words, WITHIN);
    }
    if word.text == "pool" {
        return serving::await_pool(words, WITHIN);
    }
    if word.text != "jobs" {
        return Ok(Verb::Await(request_id(&word)?));
    }
    let of = request_id(&words.needed("of")?)?;
    let within = words.option("within").map_or(Ok(WITHIN), |word| word.time())?;
    Ok(Verb::Jobs(JobVerb::Await { of, within }))
}

fn jobs(words: &mut Words) -> Result<Verb, Misspelt> {
    Ok(Verb::Jobs(JobVerb::Submit {
        count: words.plain("how many jobs")?.number()?,
        of: request_id(&words.needed("of")?)?,
        lasts: words.needed("lasts")?.time()?,
    }))
}

fn show(words: &mut Words) -> Result<Verb, Misspelt> {
    const LOOKS: [(&str, Look); 5] = [
        ("records", Look::Records),
        ("machines", Look::Machines),
        ("runners", Look::Runners),
        ("calls", Look::Calls),
        ("ended", Look::Ended),
    ];
    let word = words.plain("what to show")?;
    Ok(Verb::Show(word.one_of("thing to show", &LOOKS)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_line_is_named_with_its_place() {
        for (text, says) in [
            (
                "provison 7.1.build",
                "line 1, column 1: \"provison\" is no verb; did you mean \"provision\"?",
            ),
            ("\n# hm\nprovision", "line 3, column 10: a request id, such as 7.1.build, is missing"),
            ("provision build", "column 11: \"build\" is no request id, such as 7.1.build"),
            (
                "provision 7.1.a cout=2",
                "column 17: unknown option \"cout\"; did you mean \"count\"?",
            ),
            ("provision 7.1.a count=two", "column 23: \"two\" is not a whole number"),
            ("provision 7.1.a usage=sport", "\"sport\" is no usage; did you mean \"spot\"?"),
            ("provision 7.1.a dies-at=flet#1", "\"flet\" is no port; did you mean \"fleet\"?"),
            ("provision 7.1.a dies-at=soon", "neither a number nor a call"),
            ("pass 90", "\"90\" is not a time"),
            ("pass 90s more", "column 10: \"more\" is one word too many"),
            ("pass 90s\nseed 3", "line 2, column 1: \"seed\" must come before anything happens"),
            ("limit uses-maxx=2", "unknown option \"uses-maxx\"; did you mean \"uses-max\"?"),
            ("limit claim-lease=1s", "claim-lease must be at least three renewals"),
            ("expect", "an expectation is missing"),
            ("expect record idle=2", "\"record\" is no expectation; did you mean \"records\"?"),
            ("expect records idel=2", "\"idel\" is not counted here; did you mean \"idle\"?"),
            ("expect records", "a count is missing"),
            ("expect fulfiled", "did you mean \"fulfilled\"?"),
            ("expect m1 idel", "\"idel\" is no state of a machine; did you mean \"idle\"?"),
            ("expect reused=3..1", "is not a count"),
            ("idle 2 spec=new", "\"new\" is no spec hash"),
            ("lose machine", "is no machine, such as m1"),
            ("fault throttle fleet by=3s", "only land-late has by"),
            ("weather throttle=2000", "odds out of a thousand"),
            ("meanwhile refresh", "verb that can happen meanwhile"),
            ("await jobs", "of=… is missing"),
        ] {
            let error = Script::parse(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn comments_and_transcripts_are_kept_and_not_read() {
        let script = Script::parse("# a story\n\npass 5s # five\n> anything\n").unwrap();
        assert!(script.has_transcript());
        let texts: Vec<&str> = script.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["# a story", "", "pass 5s # five"]);
        assert!(!script.expects_something());
    }
}
