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
CREATE TABLE decision_times (
  block INTEGER PRIMARY KEY,
  first INTEGER NOT NULL,
  last  INTEGER NOT NULL
) STRICT;

CREATE TABLE decision_index (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  pos INTEGER NOT NULL
) STRICT;

INSERT INTO decision_index (id, pos) VALUES (1, 0);

-- What is removed from a history is not found any more.
CREATE TRIGGER decisions_removed AFTER DELETE ON events BEGIN
  DELETE FROM decision_terms WHERE rowid = OLD.pos;
END;
