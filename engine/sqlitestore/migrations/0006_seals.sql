-- Definitions and judge configurations are one chain in the order in which they were
-- made: place counts from 1, seal covers the row and the seal before, mac is keyed.
-- Rows of older stores have place 0 until they are sealed, once.

ALTER TABLE definitions ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE definitions ADD COLUMN prev_seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE definitions ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE definitions ADD COLUMN mac BLOB NOT NULL DEFAULT x'';

ALTER TABLE judge_configs ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE judge_configs ADD COLUMN prev_seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE judge_configs ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE judge_configs ADD COLUMN mac BLOB NOT NULL DEFAULT x'';

-- With the seal, so that the end of the chain is found without a look at documents.
CREATE INDEX definitions_place ON definitions (place, seal);
CREATE INDEX judge_configs_place ON judge_configs (place, seal);
