-- Every filter of a list has an index, as in PostgreSQL, and rows that do not match are passed over
-- without being read. A move within a run writes two of them: only those of states hold the state.

DROP INDEX instances_workflow;
DROP INDEX instances_owner;
DROP INDEX instances_status;
CREATE INDEX instances_workflow ON instances (workflow, id, status, owner);
CREATE INDEX instances_owner ON instances (owner, id, workflow, status);
CREATE INDEX instances_status ON instances (status, id, workflow, owner);
CREATE INDEX instances_state ON instances (state, id, status, owner);
CREATE INDEX instances_workflow_state ON instances (workflow, state, id, status, owner);

DROP INDEX reviews_place;
DROP INDEX reviews_status;
DROP INDEX reviews_principal;
DROP INDEX reviews_principal_status;
CREATE INDEX reviews_place ON reviews (place, id, workflow);
CREATE INDEX reviews_status ON reviews (status, place, id, workflow);
CREATE INDEX reviews_principal ON reviews (principal, place, id, workflow);
CREATE INDEX reviews_principal_status ON reviews (principal, status, place, id, workflow);
