-- figures are those of all indexed decisions of a block (store.Figures, JSON): NULL until
-- they are counted, and again when an event of the block is removed.

ALTER TABLE decision_times ADD COLUMN figures BLOB;

DROP TRIGGER decisions_removed;
CREATE TRIGGER decisions_removed AFTER DELETE ON events BEGIN
  DELETE FROM decision_terms WHERE rowid = OLD.pos;
  UPDATE decision_times SET figures = NULL WHERE block = OLD.pos >> 12 AND figures IS NOT NULL;
END;

-- What lists ask for by what changes. Refusals and moves that stay where they are do not
-- touch it.
CREATE INDEX instances_status ON instances (status, id, state, workflow, owner);
