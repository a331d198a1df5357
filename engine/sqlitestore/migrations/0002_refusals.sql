-- What a model refused: guard is what refusals are counted by, identity what the
-- same case is known by, opinion the model's (JSON) where it can stand for another
-- answer. Rows older than the longest window are taken out a few at a time.

CREATE TABLE refusals (
  pos       INTEGER PRIMARY KEY,
  guard     TEXT    NOT NULL,
  identity  TEXT    NOT NULL,
  principal TEXT    NOT NULL,
  workflow  TEXT    NOT NULL,
  action    TEXT    NOT NULL,
  at        INTEGER NOT NULL,
  opinion   BLOB
) STRICT;

CREATE INDEX refusals_guard ON refusals (guard, at);
CREATE INDEX refusals_identity ON refusals (identity, at) WHERE opinion IS NOT NULL;
CREATE INDEX refusals_at ON refusals (at);
