CREATE TABLE queues (
    name          TEXT PRIMARY KEY,
    fifo          INTEGER NOT NULL,
    visibility    INTEGER NOT NULL,  -- milliseconds
    retention     INTEGER NOT NULL,  -- milliseconds
    dead_letters  TEXT,
    receives_max  INTEGER
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a number is never given out twice, so an old receipt can never fit a new message.
CREATE TABLE messages (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    queue      TEXT NOT NULL,
    body       TEXT NOT NULL,
    fifo_group TEXT,
    blocked    INTEGER NOT NULL,  -- 1 while an earlier message of its group is still there
    visible_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    receives   INTEGER NOT NULL,
    in_flight  INTEGER NOT NULL   -- 1 once received; hidden until `visible_at`
) STRICT;

CREATE INDEX messages_ready ON messages (queue, blocked, visible_at, seq);
CREATE INDEX messages_group ON messages (queue, fifo_group, seq) WHERE fifo_group IS NOT NULL;
CREATE INDEX messages_expired ON messages (expires_at);

CREATE TABLE deduplications (
    queue TEXT NOT NULL,
    key   TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX deduplications_over ON deduplications (until);
