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

CREATE INDEX reviews_place ON reviews (place, id);
CREATE INDEX reviews_status ON reviews (status, place, id);
CREATE INDEX reviews_principal ON reviews (principal, place, id);
CREATE INDEX reviews_principal_status ON reviews (principal, status, place, id);
CREATE INDEX reviews_instance ON reviews (instance, place, id);
