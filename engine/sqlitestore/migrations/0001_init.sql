-- Times are nanoseconds since 1970 UTC, hashes and key scopes are raw SHA-256.
-- n stands for an instance's id wherever it would be repeated per event.

CREATE TABLE definitions (
  name       TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  hash       TEXT    NOT NULL,
  document   BLOB    NOT NULL,
  owner      TEXT    NOT NULL,
  operator   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
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
  PRIMARY KEY (workflow, revision)
) STRICT;

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
  facts           BLOB    NOT NULL
) STRICT;

-- Only columns that never change: an advance touches no index of this table.
CREATE INDEX instances_workflow ON instances (workflow, id);
CREATE INDEX instances_owner ON instances (owner, id);

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

CREATE TABLE snapshots (
  n        INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  instance BLOB    NOT NULL,
  context  BLOB    NOT NULL,
  PRIMARY KEY (n, revision)
) STRICT;
