-- Times are nanoseconds since 1970 UTC, hashes and key scopes are raw SHA-256. What callers name
-- themselves (principals, actions, subjects) is bytea: text holds no zero byte.
-- n stands for an instance's id wherever it would be repeated per event.

CREATE TABLE counter (
  id   boolean PRIMARY KEY DEFAULT true CHECK (id),
  last bigint  NOT NULL -- the position of the newest event: its row is locked last in a commit
) WITH (fillfactor = 10);

INSERT INTO counter (last) VALUES (0);

CREATE TABLE definitions (
  name       text COLLATE "C" NOT NULL,
  version    bigint  NOT NULL,
  hash       text    NOT NULL,
  document   bytea   NOT NULL,
  owner      bytea   NOT NULL,
  operator   boolean NOT NULL,
  created_at bigint  NOT NULL,
  place      bigint  NOT NULL,
  prev_seal  bytea   NOT NULL,
  seal       bytea   NOT NULL,
  mac        bytea   NOT NULL,
  PRIMARY KEY (name, version)
);

CREATE TABLE judge_configs (
  workflow  text COLLATE "C" NOT NULL,
  revision  bigint NOT NULL,
  principal bytea  NOT NULL,
  role      bytea  NOT NULL,
  scope     bytea  NOT NULL,
  settings  bytea  NOT NULL,
  hash      text   NOT NULL,
  at        bigint NOT NULL,
  place     bigint NOT NULL,
  prev_seal bytea  NOT NULL,
  seal      bytea  NOT NULL,
  mac       bytea  NOT NULL,
  PRIMARY KEY (workflow, revision)
);

CREATE INDEX definitions_place ON definitions (place, seal);
CREATE INDEX judge_configs_place ON judge_configs (place, seal);

-- Room in each page lets an advance stay in it and write no index.
CREATE TABLE instances (
  n               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id              text COLLATE "C" NOT NULL UNIQUE,
  workflow        text COLLATE "C" NOT NULL,
  version         bigint NOT NULL,
  definition_hash text   NOT NULL,
  owner           bytea  NOT NULL,
  created_at      bigint NOT NULL,
  updated_at      bigint NOT NULL,
  seq             bigint NOT NULL,
  revision        bigint NOT NULL,
  state           text COLLATE "C" NOT NULL,
  status          text COLLATE "C" NOT NULL,
  head            bytea  NOT NULL,
  facts           bytea  NOT NULL,
  calls           bigint NOT NULL DEFAULT 0, -- not settled for good
  subject         bytea                      -- NULL for none
) WITH (fillfactor = 70);

-- Lists go by id. What follows it in an index passes over others without a look at their rows. POSIX
-- orders as C does, by another name: a list of a few among many cannot go along the ids of all.
CREATE INDEX instances_workflow ON instances (workflow, id COLLATE "POSIX", status, owner);
CREATE INDEX instances_owner ON instances (owner, id COLLATE "POSIX", workflow, status, state);
CREATE INDEX instances_status ON instances (status, id COLLATE "POSIX", state, workflow, owner);
CREATE INDEX instances_state ON instances (state, id COLLATE "POSIX", status, owner);
CREATE INDEX instances_workflow_state ON instances (workflow, state, id COLLATE "POSIX", status, owner);
CREATE STATISTICS instances_filters (dependencies, mcv) ON workflow, state, status, owner FROM instances;
CREATE INDEX instances_calls ON instances (id) WHERE calls > 0;
CREATE UNIQUE INDEX instances_subject ON instances (workflow, subject) WHERE subject IS NOT NULL;

-- Apart from instances, so that neither a refusal nor a list touches the big value.
CREATE TABLE contexts (
  n       bigint PRIMARY KEY,
  context bytea  NOT NULL
) WITH (fillfactor = 70);

-- pos is the order of the commits, without gaps. body is record.Event.Body; terms are what an event
-- is found by: its workflow, its owner, and what a decision says. The other columns are for finding it.
CREATE TABLE events (
  pos       bigint PRIMARY KEY,
  n         bigint NOT NULL,
  seq       bigint NOT NULL,
  revision  bigint NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  at        bigint NOT NULL,
  key_scope bytea,
  prev_hash bytea  NOT NULL,
  hash      bytea  NOT NULL,
  body      bytea  NOT NULL,
  terms     text[] COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX events_seq ON events (n, seq);
CREATE UNIQUE INDEX events_key ON events (key_scope) WHERE key_scope IS NOT NULL;
-- Terms are looked for block by block of positions, in the order of a list. What waits in a list of
-- its own would be read whole for each block.
CREATE INDEX events_terms ON events USING gin ((ARRAY[pos >> 13]), terms) WITH (fastupdate = off);
CREATE INDEX events_truncated ON events (pos) WHERE kind = 'truncated';
-- Few events are checkpoints or removals, and they are looked for in histories of any length.
CREATE INDEX events_marks ON events (n, seq) WHERE kind IN ('checkpointed', 'truncated', 'heard');

-- The times between which the events of each 8192 positions lie: time mostly grows with the position,
-- and not always.
CREATE TABLE blocks (
  block bigint PRIMARY KEY,
  first bigint NOT NULL,
  last  bigint NOT NULL
) WITH (fillfactor = 50);

-- body is what the decisions of a block come to (store.Figures, JSON), NULL until they are counted, and
-- again when an event of the block is removed: removed counts how often.
CREATE TABLE figures (
  block   bigint PRIMARY KEY,
  removed bigint NOT NULL,
  body    bytea
);

CREATE TABLE snapshots (
  n        bigint NOT NULL,
  revision bigint NOT NULL,
  instance bytea  NOT NULL,
  context  bytea  NOT NULL,
  PRIMARY KEY (n, revision)
);

-- What a model refused: guard is what refusals are counted by, identity what the same case is known
-- by, opinion the model's (JSON) where it can stand for another answer.
CREATE TABLE refusals (
  pos       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  guard     bytea  NOT NULL,
  identity  bytea  NOT NULL,
  instance  bytea  NOT NULL,
  principal bytea  NOT NULL,
  workflow  bytea  NOT NULL,
  action    bytea  NOT NULL,
  at        bigint NOT NULL,
  opinion   bytea
);

CREATE INDEX refusals_guard ON refusals (guard, at);
CREATE INDEX refusals_identity ON refusals (identity, at) WHERE opinion IS NOT NULL;
CREATE INDEX refusals_at ON refusals (at);

-- place is minus the rank of the priority, so that lists go by (place, id), both rising. body is the
-- review as JSON without its data; data is the action's, byte for byte, NULL once the review has ended.
CREATE TABLE reviews (
  id        text COLLATE "C" PRIMARY KEY,
  place     bigint NOT NULL,
  status    text COLLATE "C" NOT NULL,
  instance  text COLLATE "C" NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  principal bytea  NOT NULL,
  body      bytea  NOT NULL,
  data      bytea
);

CREATE INDEX reviews_place ON reviews (place, id, workflow);
CREATE INDEX reviews_status ON reviews (status, place, id, workflow);
CREATE INDEX reviews_principal ON reviews (principal, place, id, status, workflow);
CREATE INDEX reviews_instance ON reviews (instance, place, id);

CREATE TABLE anchors (
  number bigint PRIMARY KEY,
  at     bigint NOT NULL,
  note   bytea  NOT NULL,
  heads  bytea  NOT NULL
);

-- What processes count together: n until ends (nanoseconds since 1970 UTC).

CREATE TABLE counters (
  name bytea  PRIMARY KEY,
  n    bigint NOT NULL,
  ends bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX counters_ends ON counters (ends);

-- Values that processes replace whole.
CREATE TABLE entries (
  name    text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  body    bytea  NOT NULL
);

-- What the processes over one database share. A lease that was given back has ended at 0 and keeps
-- its number.

CREATE TABLE leases (
  name   bytea  PRIMARY KEY,
  owner  bytea  NOT NULL,
  number bigint NOT NULL,
  ends   bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE cursors (
  name     bytea  PRIMARY KEY,
  position bigint NOT NULL,
  filter   bytea  NOT NULL,
  made_at  bigint NOT NULL,
  moved_at bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE data_keys (
  instance     text COLLATE "C" NOT NULL,
  number       bigint NOT NULL,
  wrapped      bytea  NOT NULL, -- zeros once it was destroyed
  under        text   NOT NULL,
  made_at      bigint NOT NULL,
  destroyed_at bigint NOT NULL, -- the least of all numbers while it is not
  PRIMARY KEY (instance, number)
);

-- Events that the reader of a cursor could not hand on.

CREATE TABLE dead_letters (
  cursor   bytea  NOT NULL,
  position bigint NOT NULL,
  instance text COLLATE "C" NOT NULL,
  seq      bigint NOT NULL,
  tries    bigint NOT NULL,
  cause    bytea  NOT NULL,
  at       bigint NOT NULL,
  PRIMARY KEY (cursor, position)
);
