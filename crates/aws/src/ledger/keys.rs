//! Where the ledger's items are, and what they are listed by.
//!
//! A key is `pk` and `sk`. Records, intents and rows are spread over [`SHARDS`] values of `pk` by
//! their id, which is `sk`. Four local secondary indexes list them: an attribute `by_…` is the sort
//! key, and an item without it is not in that index, so nothing that is over is ever read again.
//! Local indexes are changed in the same write as their item and can be read consistently; that is
//! what makes them directories.
//!
//! Not here: reading them ([`super::listing`]).

use bullpen_core::creation::Scope;
use bullpen_core::ids::{ClassName, InstanceId, IntentId, JobId, LeaseName, PoolName, Repository};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::ports::{JobRow, WaitingAt};
use bullpen_core::time::Timestamp;

use crate::names::spread;
use crate::table::Key;

/// How many values of `pk` each kind of item is spread over. Each takes a thousand writes a second
/// and ten gigabytes, so eight are far above what one account can launch. Never changed: an item
/// would not be found any more.
pub(crate) const SHARDS: u64 = 8;

/// Between the parts of a sort key: no name has it, and it is below everything that names have.
const APART: char = '\u{1f}';
/// Above everything that names have.
const LAST: char = '\u{10ffff}';

/// A kind of item that is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Record,
    Intent,
    Row,
}

impl Kind {
    /// One of this kind's values of `pk`.
    pub(crate) fn partition(self, shard: u64) -> String {
        let letter = match self {
            Self::Record => 'i',
            Self::Intent => 'n',
            Self::Row => 'j',
        };
        format!("{letter}#{shard}")
    }

    /// The key of this id.
    pub(crate) fn key(self, id: &str) -> Key {
        Key { pk: self.partition(spread(id) % SHARDS), sk: Some(id.to_owned()) }
    }
}

pub(crate) fn record(id: &InstanceId) -> Key {
    Kind::Record.key(id.as_str())
}

pub(crate) fn intent(id: &IntentId) -> Key {
    Kind::Intent.key(id.as_str())
}

pub(crate) fn row(job: &JobId) -> Key {
    Kind::Row.key(job.as_str())
}

pub(crate) fn lease(name: &LeaseName) -> Key {
    Key { pk: format!("l#{name}"), sk: Some("lease".to_owned()) }
}

pub(crate) fn document(collection: &str, name: &str) -> Key {
    Key { pk: documents(collection), sk: Some(name.to_owned()) }
}

/// A collection is small and is read as one.
pub(crate) fn documents(collection: &str) -> String {
    format!("d#{collection}")
}

pub(crate) fn counter(scope: &Scope) -> Key {
    let pk = match scope {
        Scope::Stack => "c#stack".to_owned(),
        Scope::Class(class) => format!("c#class#{class}"),
        Scope::Pool(pool) => format!("c#pool#{pool}"),
    };
    Key { pk, sk: Some("count".to_owned()) }
}

/// The local indexes. The attribute has the index's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// Records by owner; rows by lane and repository.
    Place,
    /// Idle shared records by class, oldest first.
    Idle,
    /// Live records by pool; open intents.
    Live,
    /// Records and rows by when to look at them.
    Due,
}

impl Index {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Place, Self::Idle, Self::Live, Self::Due];

    /// The index's and its attribute's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Place => "by_place",
            Self::Idle => "by_idle",
            Self::Live => "by_live",
            Self::Due => "by_due",
        }
    }
}

/// A range of one index: its sort keys from `first` to `last`, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) index: Index,
    pub(crate) first: String,
    pub(crate) last: String,
}

impl Range {
    /// All sort keys that begin so.
    fn beginning(index: Index, with: String) -> Self {
        Self { index, last: format!("{with}{LAST}"), first: with }
    }

    /// Whether nothing can be in it. DynamoDB calls asking for such a range an error.
    pub(crate) fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// What comes after this sort key.
    pub(crate) fn after(self, key: &str) -> Self {
        // The least text above `key`: no name has this character.
        Self { first: format!("{key}\u{1}"), ..self }
    }
}

/// Kinds apart, so that a job and a pool of one name are two owners.
fn holder(owner: &Owner) -> String {
    match owner {
        Owner::Request(id) => format!("request/{id}{APART}"),
        Owner::Job(id) => format!("job/{id}{APART}"),
        Owner::Pool(name) => format!("pool/{name}{APART}"),
    }
}

/// Where an owner's records are listed.
pub(crate) fn held_by(owner: &Owner) -> Range {
    Range::beginning(Index::Place, holder(owner))
}

/// A record's place in its owner's directory.
pub(crate) fn place(owner: &Owner, id: &InstanceId) -> String {
    format!("{}{id}", holder(owner))
}

/// Where a class's idle records are listed.
pub(crate) fn idle_in(class: &ClassName) -> Range {
    Range::beginning(Index::Idle, format!("{class}{APART}"))
}

/// A record's place in its class's directory, while it has an advert.
pub(crate) fn idle(record: &Record) -> Option<String> {
    let State::Idle { since, .. } = record.state else { return None };
    record.advert().map(|advert| format!("{}{APART}{}", advert.class, timed(since, &record.id)))
}

/// Where a pool's live records are listed.
pub(crate) fn standing_by(pool: &PoolName) -> Range {
    Range::beginning(Index::Live, format!("{pool}{APART}"))
}

/// Everything that is live.
pub(crate) fn all_live() -> Range {
    // Below everything that names have; a bound must not be empty.
    Range { index: Index::Live, first: "\u{1}".to_owned(), last: LAST.to_string() }
}

/// A live record's place, for as long as it lives.
pub(crate) fn live(record: &Record) -> Option<String> {
    let pool = record.facts.pool.as_ref().map_or("", PoolName::as_str);
    record.state.is_live().then(|| format!("{pool}{APART}{}", record.id))
}

/// A time and an id, in the order of times.
pub(crate) fn timed(at: Timestamp, id: impl std::fmt::Display) -> String {
    // With the sign flipped, times order as their digits do.
    let ordered = at.as_millis().cast_unsigned() ^ (1 << 63);
    format!("{ordered:016x}{APART}{id}")
}

/// What is to be looked at by then.
pub(crate) fn due_by(before: Timestamp) -> Range {
    Range { index: Index::Due, first: "0".to_owned(), last: timed(before, LAST) }
}

/// A row's place in its lane.
pub(crate) fn waiting(row: &JobRow) -> Option<String> {
    row.waiting.as_ref().map(|at| format!("{}{APART}{}{APART}{}", at.lane, at.repository, row.job))
}

/// Where a repository's rows wait.
pub(crate) fn waiting_at(at: &WaitingAt) -> Range {
    Range::beginning(Index::Place, format!("{}{APART}{}{APART}", at.lane, at.repository))
}

/// Where a lane's rows wait, after those of one repository.
pub(crate) fn lane(lane: &str, after: Option<&str>) -> Range {
    let all = Range::beginning(Index::Place, format!("{lane}{APART}"));
    match after {
        // Above every job of this repository and below every other repository.
        Some(repository) => {
            Range { first: format!("{lane}{APART}{repository}{APART}{LAST}"), ..all }
        }
        None => all,
    }
}

/// The repository in a row's place.
pub(crate) fn repository(place: &str) -> Option<Repository> {
    place.split(APART).nth(1).map(Repository::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_order_as_their_digits_do() {
        let times = [i64::MIN, -1, 0, 1, 1_767_600_000_000, i64::MAX];
        let keys = times.map(|millis| timed(Timestamp::from_millis(millis), "i-1"));
        assert!(keys.is_sorted() && keys[0] != keys[1], "{keys:?}");
        let range = due_by(Timestamp::from_millis(1));
        assert!(keys[3] <= range.last && keys[4] > range.last && range.first < keys[0]);
    }

    #[test]
    fn a_range_holds_its_own_and_nothing_else() {
        let range = held_by(&Owner::Job("j-1".into()));
        let holds = |key: &str| range.first.as_str() <= key && key <= range.last.as_str();
        assert!(holds(&place(&Owner::Job("j-1".into()), &"i-1".into())));
        assert!(!holds(&place(&Owner::Job("j-10".into()), &"i-1".into())));
        assert!(!holds(&place(&Owner::Pool("j-1".into()), &"i-1".into())));
    }

    #[test]
    fn a_cursor_skips_itself_and_nothing_more() {
        let (one, ten) = (timed(Timestamp::EPOCH, "i-1"), timed(Timestamp::EPOCH, "i-10"));
        let range = due_by(Timestamp::EPOCH).after(&one);
        assert!(range.first > one && range.first < ten && range.last > ten);
    }

    #[test]
    fn a_lane_goes_on_after_a_repository() {
        let key = |repository: &str| format!("pool/a{APART}{repository}{APART}j-1");
        let range = lane("pool/a", Some("o/b"));
        assert!(range.first > key("o/b"), "all its jobs are skipped");
        assert!(range.first < key("o/b2") && key("o/b2") <= range.last, "its namesakes are not");
        assert!(range.last < format!("pool/a2{APART}o/a{APART}j-1"));
        assert_eq!(repository(&key("o/b")), Some(Repository::new("o/b")));
    }

    #[test]
    fn where_an_item_is_never_changes() {
        assert_eq!(record(&"i-1".into()), Key { pk: "i#7".into(), sk: Some("i-1".into()) });
        assert_eq!(intent(&"n-1".into()).pk, "n#6");
    }
}
