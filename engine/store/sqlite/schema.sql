-- Times are nanoseconds since 1970 UTC, hashes and key scopes are raw SHA-256.
-- n stands for an instance's id wherever it would be repeated per event.

-- Definitions and judge configurations are one chain in the order in which they were
-- made: place counts from 1, seal covers the row and the seal before, mac is keyed.

CREATE TABLE definitions (
  name       TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  hash       TEXT    NOT NULL,
  document   BLOB    NOT NULL,
  owner      TEXT    NOT NULL,
  operator   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  place      INTEGER NOT NULL,
  prev_seal  BLOB    NOT NULL,
  seal       BLOB    NOT NULL,
  mac        BLOB    NOT NULL,
  PRIMARY KEY (name, version)
) STRICT;

CREATE TABLE judge_configs (
  workflow  TEXT    NOT NULL,
  revision  INTEGER NOT NULL,
  principal TEXT    NOT NULL,
  role      TEXT    NOT NULL,
  scope     TEXT    NOT NULL,
  settings  BLOB    NOT NULL,
  hash      TEXT    NOT NULL,
  at        INTEGER NOT NULL,
  place     INTEGER NOT NULL,
  prev_seal BLOB    NOT NULL,
  seal      BLOB    NOT NULL,
  mac       BLOB    NOT NULL,
  PRIMARY KEY (workflow, revision)
) STRICT;

-- With the seal, so that the end of the chain is found without a look at documents.
CREATE INDEX definitions_place ON definitions (place, seal);
CREATE INDEX judge_configs_place ON judge_configs (place, seal);

-- calls is how many calls of an instance are not settled for good, subject what the instance
-- alone is about: NULL for nothing. Few instances have either.

CREATE TABLE instances (
  n               INTEGER PRIMARY KEY,
  id              TEXT    NOT NULL UNIQUE,
  workflow        TEXT    NOT NULL,
  version         INTEGER NOT NULL,
  definition_hash TEXT    NOT NULL,
  owner           TEXT    NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  seq             INTEGER NOT NULL,
  revision        INTEGER NOT NULL,
  state           TEXT    NOT NULL,
  status          TEXT    NOT NULL,
  head            BLOB    NOT NULL,
  facts           BLOB    NOT NULL,
  calls           INTEGER NOT NULL DEFAULT 0,
  subject         TEXT
) STRICT;

-- Every filter of a list has an index, as in PostgreSQL, and rows that do not match are passed over
-- without being read. A move within a run writes two of them: only those of states hold the state.
CREATE INDEX instances_workflow ON instances (workflow, id, status, owner);
CREATE INDEX instances_owner ON instances (owner, id, workflow, status);
CREATE INDEX instances_status ON instances (status, id, workflow, owner);
CREATE INDEX instances_state ON instances (state, id, status, owner);
CREATE INDEX instances_workflow_state ON instances (workflow, state, id, status, owner);
CREATE INDEX instances_calls ON instances (id) WHERE calls > 0;
CREATE UNIQUE INDEX instances_subject ON instances (workflow, subject) WHERE subject IS NOT NULL;

-- Apart from instances, so that neither a refusal nor a status read touches the
-- big value.
CREATE TABLE contexts (
  n       INTEGER PRIMARY KEY,
  context BLOB    NOT NULL
) STRICT;

-- pos is the order of the commits: new events go to the end of the table.
-- body is record.Event.Body; the other columns are for finding it.
CREATE TABLE events (
  pos       INTEGER PRIMARY KEY,
  n         INTEGER NOT NULL,
  seq       INTEGER NOT NULL,
  revision  INTEGER NOT NULL,
  kind      TEXT    NOT NULL,
  at        INTEGER NOT NULL,
  key_scope BLOB,
  prev_hash BLOB    NOT NULL,
  hash      BLOB    NOT NULL,
  body      BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_seq ON events (n, seq);
CREATE UNIQUE INDEX events_key ON events (key_scope) WHERE key_scope IS NOT NULL;
-- Few events are checkpoints, removals or a user's messages, and these are looked for in histories of any length.
CREATE INDEX events_marks ON events (n, seq) WHERE kind = 'checkpointed' OR kind = 'truncated' OR kind = 'heard';

CREATE TABLE snapshots (
  n        INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  instance BLOB    NOT NULL,
  context  BLOB    NOT NULL,
  PRIMARY KEY (n, revision)
) STRICT;

-- What a model refused: guard is what refusals are counted by, identity what the
-- same case is known by, instance the one that the question was about ('' for none),
-- opinion the model's (JSON) where it can stand for another answer. Rows older than the
-- longest window are taken out a few at a time.

CREATE TABLE refusals (
  pos       INTEGER PRIMARY KEY,
  guard     TEXT    NOT NULL,
  identity  TEXT    NOT NULL,
  principal TEXT    NOT NULL,
  workflow  TEXT    NOT NULL,
  action    TEXT    NOT NULL,
  instance  TEXT    NOT NULL,
  at        INTEGER NOT NULL,
  opinion   BLOB
) STRICT;

CREATE INDEX refusals_guard ON refusals (guard, at);
CREATE INDEX refusals_identity ON refusals (identity, at) WHERE opinion IS NOT NULL;
CREATE INDEX refusals_at ON refusals (at);

-- Escalated decisions that wait for a person, and how they ended. place is minus
-- the rank of the priority, so that lists go by (place, id), both rising, and a
-- cursor is one comparison. body is the review as JSON without its data; data is
-- the action's, byte for byte, NULL once the review has ended.

CREATE TABLE reviews (
  id        TEXT    PRIMARY KEY,
  place     INTEGER NOT NULL,
  status    TEXT    NOT NULL,
  instance  TEXT    NOT NULL,
  workflow  TEXT    NOT NULL,
  principal TEXT    NOT NULL,
  body      BLOB    NOT NULL,
  data      BLOB
) STRICT;

CREATE INDEX reviews_place ON reviews (place, id, workflow);
CREATE INDEX reviews_status ON reviews (status, place, id, workflow);
CREATE INDEX reviews_principal ON reviews (principal, place, id, workflow);
CREATE INDEX reviews_principal_status ON reviews (principal, status, place, id, workflow);
CREATE INDEX reviews_instance ON reviews (instance, place, id);

-- What all histories were at a time, signed: note is the signed text, heads the
-- instances that it adds. The key that signs is never in here.

CREATE TABLE anchors (
  number INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  note   TEXT    NOT NULL,
  heads  BLOB    NOT NULL
) STRICT;

-- Where decisions are found. They are indexed when somebody searches, not when they
-- are written; decision_index.pos is the last event that was looked at.
--
-- decision_terms holds, under the position of its event, what a decision is found by:
-- its words, and a digest of each other thing that is asked for (engine.DecisionTerms).
-- The terms themselves are not kept, only where they are.

CREATE VIRTUAL TABLE decision_terms USING fts5 (
  terms, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii'
);

-- The times between which each 4096 positions lie, so that a search by time begins
-- and ends where it must: time mostly grows with the position, and not always.
-- figures are those of all indexed decisions of a block (store.Figures, JSON): NULL until
-- they are counted, and again when an event of the block is removed.
CREATE TABLE decision_times (
  block   INTEGER PRIMARY KEY,
  first   INTEGER NOT NULL,
  last    INTEGER NOT NULL,
  figures BLOB
) STRICT;

CREATE TABLE decision_index (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  pos INTEGER NOT NULL
) STRICT;

INSERT INTO decision_index (id, pos) VALUES (1, 0);

-- What is removed from a history is not found any more.
CREATE TRIGGER decisions_removed AFTER DELETE ON events BEGIN
  DELETE FROM decision_terms WHERE rowid = OLD.pos;
  UPDATE decision_times SET figures = NULL WHERE block = OLD.pos >> 12 AND figures IS NOT NULL;
END;

-- What the processes over the file count together: n until ends (nanoseconds since 1970 UTC).

CREATE TABLE counters (
  name BLOB    PRIMARY KEY,
  n    INTEGER NOT NULL,
  ends INTEGER NOT NULL
) STRICT;

CREATE INDEX counters_ends ON counters (ends);

-- What the processes over one store share. A lease that was given back has ended at 0 and keeps its
-- number. The row of a data key is overwritten in place, at the same length, when the key is destroyed:
-- no older copy of it is left in the file.

CREATE TABLE leases (
  name   TEXT    PRIMARY KEY,
  owner  TEXT    NOT NULL,
  number INTEGER NOT NULL,
  ends   INTEGER NOT NULL
) STRICT;

CREATE TABLE cursors (
  name     BLOB    PRIMARY KEY,
  position INTEGER NOT NULL,
  filter   BLOB    NOT NULL,
  made_at  INTEGER NOT NULL,
  moved_at INTEGER NOT NULL
) STRICT;

CREATE TABLE data_keys (
  instance     TEXT    NOT NULL,
  number       INTEGER NOT NULL,
  wrapped      BLOB    NOT NULL, -- zeros once it was destroyed
  under        TEXT    NOT NULL,
  made_at      INTEGER NOT NULL,
  destroyed_at INTEGER NOT NULL, -- the least of all numbers while it is not
  UNIQUE (instance, number)
) STRICT;

-- Events that the reader of a cursor could not hand on.

CREATE TABLE dead_letters (
  cursor   TEXT    NOT NULL,
  position INTEGER NOT NULL,
  instance TEXT    NOT NULL,
  seq      INTEGER NOT NULL,
  tries    INTEGER NOT NULL,
  cause    TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  UNIQUE (cursor, position)
) STRICT;
