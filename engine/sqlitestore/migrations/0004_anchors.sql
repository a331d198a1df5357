-- What all histories were at a time, signed: note is the signed text, heads the
-- instances that it adds. The key that signs is never in here.

CREATE TABLE anchors (
  number INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  note   TEXT    NOT NULL,
  heads  BLOB    NOT NULL
) STRICT;
