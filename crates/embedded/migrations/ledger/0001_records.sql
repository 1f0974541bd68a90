-- Who owns what. `body` is the whole record as JSON; the columns beside it exist to be listed by.
-- Deadlines and other times are milliseconds since the Unix epoch. Tables of documents keep their
-- rowid: a document of a kilobyte would not fit into the pages of a table without.
CREATE TABLE records (
    id         TEXT PRIMARY KEY,
    revision   INTEGER NOT NULL,
    state      TEXT NOT NULL,     -- for people who look
    live       INTEGER NOT NULL,  -- 0 for a tombstone
    class      TEXT NOT NULL,
    pool       TEXT,
    owner      TEXT,              -- under whose name it is listed, if anyone's
    idle_since INTEGER,           -- set only while idle and shared
    deadline   INTEGER NOT NULL,  -- of a tombstone: when it may be forgotten
    body       TEXT NOT NULL
) STRICT;

-- Every index but the last leaves tombstones out, so no listing and no count ever passes over them.
CREATE INDEX records_by_owner ON records (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX records_idle ON records (class, idle_since, id) WHERE idle_since IS NOT NULL;
CREATE INDEX records_by_pool ON records (pool, id) WHERE pool IS NOT NULL AND live = 1;
CREATE INDEX records_by_class ON records (class) WHERE live = 1;
CREATE INDEX records_live ON records (id) WHERE live = 1;
CREATE INDEX records_due ON records (deadline, id) WHERE live = 1;
CREATE INDEX records_forgotten ON records (deadline) WHERE live = 0;

-- Launches that somebody is about to make. What is used of a ceiling is not stored anywhere: it is
-- the number of live records plus what open intents have outstanding.
CREATE TABLE intents (
    id          TEXT PRIMARY KEY,
    revision    INTEGER NOT NULL,
    class       TEXT NOT NULL,
    pool        TEXT,
    outstanding INTEGER NOT NULL,
    forget_at   INTEGER,          -- set when nothing is outstanding any more
    body        TEXT NOT NULL
) STRICT;

CREATE INDEX intents_open ON intents (id, outstanding) WHERE outstanding > 0;
CREATE INDEX intents_open_by_class ON intents (class, outstanding) WHERE outstanding > 0;
CREATE INDEX intents_open_by_pool ON intents (pool, outstanding)
    WHERE outstanding > 0 AND pool IS NOT NULL;
CREATE INDEX intents_forgotten ON intents (forget_at) WHERE forget_at IS NOT NULL;

CREATE TABLE leases (
    name     TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    body     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
