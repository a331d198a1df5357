-- A run in the middle; see internal/chain/recorded_test.go. Never change or remove it.
CREATE TABLE dbos_migrations (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO "dbos_migrations" VALUES (125);
CREATE TABLE workflow_status (
    workflow_uuid TEXT PRIMARY KEY,
    status TEXT,
    name TEXT,
    authenticated_user TEXT,
    assumed_role TEXT,
    authenticated_roles TEXT,
    request TEXT,
    output TEXT,
    error TEXT,
    executor_id TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    application_version TEXT,
    application_id TEXT,
    class_name TEXT DEFAULT NULL,
    config_name TEXT DEFAULT NULL,
    recovery_attempts INTEGER DEFAULT 0,
    queue_name TEXT,
    workflow_timeout_ms INTEGER,
    workflow_deadline_epoch_ms INTEGER,
    inputs TEXT,
    started_at_epoch_ms INTEGER,
    deduplication_id TEXT,
    priority INTEGER NOT NULL DEFAULT 0
, queue_partition_key TEXT, forked_from TEXT, "owner_xid" TEXT DEFAULT NULL, "parent_workflow_id" TEXT DEFAULT NULL, "serialization" TEXT DEFAULT NULL, "delay_until_epoch_ms" INTEGER DEFAULT NULL, "was_forked_from" BOOLEAN NOT NULL DEFAULT FALSE, "rate_limited" BOOLEAN NOT NULL DEFAULT FALSE, "completed_at" BIGINT, "attributes" TEXT, "schedule_name" TEXT, "debounce_deadline_epoch_ms" INTEGER DEFAULT NULL, "is_debounced" BOOLEAN NOT NULL DEFAULT FALSE, "application_name" TEXT DEFAULT NULL, "creator_xid" TEXT DEFAULT NULL);
INSERT INTO "workflow_status" VALUES ('run-recorded', 'PENDING', 'chain', 'recorded
ann', '', X'6E756C6C', NULL, NULL, NULL, 'gavel', 1795910453926, 1795910454107, 'chain-1', '', NULL, NULL, 1, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 'de9a1e6c-8dd9-4e3a-bd09-520923c26910', NULL, 'DBOS_JSON', NULL, 0, 0, NULL, '{"chain":"recorded","board":{}}', NULL, NULL, 0, 'gavel', 'de9a1e6c-8dd9-4e3a-bd09-520923c26910');
INSERT INTO "workflow_status" VALUES ('run-recorded/signal/go/1', 'SUCCESS', 'signal', '', '', X'6E756C6C', NULL, NULL, NULL, 'gavel', 1795910453954, 1795910454197, 'chain-1', '', NULL, NULL, 1, 'chains', NULL, NULL, NULL, 1795910454172, NULL, 0, NULL, NULL, NULL, NULL, 'DBOS_JSON', NULL, 0, 0, 1795910454197, '{"nonce":"de464ee4-78f6-4449-9ebe-7373de05eb6d"}', NULL, NULL, 0, 'gavel', '716fd36b-7239-4564-b2f5-9c301af5959d');
CREATE TABLE notifications (
    message_uuid TEXT NOT NULL PRIMARY KEY,
    destination_uuid TEXT NOT NULL,
    topic TEXT,
    message TEXT NOT NULL,
    created_at_epoch_ms INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), "serialization" TEXT DEFAULT NULL, "consumed" BOOLEAN NOT NULL DEFAULT FALSE, consumed_by_function_id INTEGER,
    FOREIGN KEY (destination_uuid) REFERENCES workflow_status(workflow_uuid)
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_events (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, key),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid)
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE streams (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    "offset" INTEGER NOT NULL, function_id INTEGER NOT NULL DEFAULT 0, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, key, "offset"),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid)
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE event_dispatch_kv (
    service_name TEXT NOT NULL,
    workflow_fn_name TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT,
    update_seq NUMERIC,
    update_time NUMERIC,
    PRIMARY KEY (service_name, workflow_fn_name, key)
);
CREATE TABLE workflow_events_history (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, function_id, key),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid)
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_schedules (
    schedule_id TEXT PRIMARY KEY,
    schedule_name TEXT NOT NULL UNIQUE,
    workflow_name TEXT NOT NULL,
    workflow_class_name TEXT,
    schedule TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'ACTIVE',
    context TEXT NOT NULL
, "last_fired_at" TEXT DEFAULT NULL, "automatic_backfill" BOOLEAN NOT NULL DEFAULT FALSE, "cron_timezone" TEXT DEFAULT NULL, "queue_name" TEXT DEFAULT NULL, "application_name" TEXT DEFAULT NULL);
CREATE TABLE application_versions (
    version_id TEXT NOT NULL PRIMARY KEY,
    version_name TEXT NOT NULL UNIQUE,
    version_timestamp INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
, "application_name" TEXT DEFAULT NULL);
INSERT INTO "application_versions" VALUES ('bf02b6fb-5b97-426a-91bd-635a2216cd39', 'chain-1', 1795910453908, 1795910453908, 'gavel');
CREATE TABLE queues (
    queue_id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    concurrency INTEGER,
    worker_concurrency INTEGER,
    rate_limit_max INTEGER,
    rate_limit_period_sec REAL,
    priority_enabled BOOLEAN NOT NULL DEFAULT FALSE,
    partition_queue BOOLEAN NOT NULL DEFAULT FALSE,
    polling_interval_sec REAL NOT NULL DEFAULT 1.0,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
, "application_name" TEXT DEFAULT NULL, "partition_concurrency" INTEGER DEFAULT NULL, "partition_worker_concurrency" INTEGER DEFAULT NULL, "partition_rate_limit_max" INTEGER DEFAULT NULL, "partition_rate_limit_period_sec" REAL DEFAULT NULL);
INSERT INTO "queues" VALUES ('be778d9c-c0c2-4133-8466-6ca883a32bd9', 'chains', NULL, NULL, NULL, NULL, 0, 0, 0.25, 1795910453897, 1795910453897, 'gavel', NULL, NULL, NULL, NULL);
CREATE TABLE workflow_input (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    inputs TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);
INSERT INTO "workflow_input" VALUES ('run-recorded', 'IntcImRlZmluaXRpb25cIjp7XCJuYW1lXCI6XCJyZWNvcmRlZFwiLFwidmFyaWFibGVzXCI6e1wiaW5wdXRcIjp7XCJ3aG9cIjpcIm5vYm9keVwifSxcImdsb2JhbFwiOntcImxhc3RcIjowfX0sXCJzdGVwc1wiOlt7XCJpZFwiOlwibG9va1wiLFwidHlwZVwiOlwidG9vbFwiLFwic2VydmVyXCI6XCJzXCIsXCJhY3Rpb25cIjpcImxvb2tcIixcImFyZ3VtZW50c1wiOntcIndob1wiOlwie3t2YXJpYWJsZXMuaW5wdXQud2hvfX1cIn19LHtcImlkXCI6XCJwXCIsXCJ0eXBlXCI6XCJwYXJhbGxlbFwiLFwidGFza3NcIjpbe1wiaWRcIjpcImxvZ1wiLFwidHlwZVwiOlwidG9vbFwiLFwic2VydmVyXCI6XCJzXCIsXCJhY3Rpb25cIjpcImxvZ1wifSx7XCJpZFwiOlwiZWFjaFwiLFwidHlwZVwiOlwiZm9yRWFjaFwiLFwiaXRlbXNcIjpbMSwyLDNdLFwibWF4Q29uY3VycmVudFwiOjEsXCJzdGVwc1wiOlt7XCJpZFwiOlwib25lXCIsXCJ0eXBlXCI6XCJ0b29sXCIsXCJzZXJ2ZXJcIjpcInNcIixcImFjdGlvblwiOlwib25lXCIsXCJhcmd1bWVudHNcIjp7XCJuXCI6XCJ7e2l0ZW19fVwifSxcInNhdmVfb3V0cHV0X3RvXCI6XCJ2YXJpYWJsZXMuZ2xvYmFsLmxhc3RcIn1dfSx7XCJpZFwiOlwiZ29cIixcInR5cGVcIjpcIndhaXRcIixcInNpZ25hbFwiOlwiZ29cIn0se1wiaWRcIjpcInJlc3RcIixcInR5cGVcIjpcIndhaXRcIixcInNlY29uZHNcIjoyfSx7XCJpZFwiOlwicGF5XCIsXCJ0eXBlXCI6XCJ0b29sXCIsXCJzZXJ2ZXJcIjpcInNcIixcImFjdGlvblwiOlwicGF5XCJ9LHtcImlkXCI6XCJmbGFreVwiLFwidHlwZVwiOlwidG9vbFwiLFwic2VydmVyXCI6XCJzXCIsXCJhY3Rpb25cIjpcImZsYWt5XCIsXCJyZXRyeVwiOntcIm1heF9hdHRlbXB0c1wiOjMsXCJkZWxheV9zZWNvbmRzXCI6MC4wMX19XX0se1wiaWRcIjpcInpcIixcInR5cGVcIjpcInRvb2xcIixcInNlcnZlclwiOlwic1wiLFwiYWN0aW9uXCI6XCJ6XCIsXCJhcmd1bWVudHNcIjp7XCJhbGxcIjpbXCJ7e2xvb2sub3V0cHV0fX1cIixcInt7cC5vdXRwdXR9fVwiLFwie3t2YXJpYWJsZXMuZ2xvYmFsLmxhc3R9fVwiXX0sXCJzYXZlX291dHB1dF90b1wiOlwidmFyaWFibGVzLm91dHB1dC56XCJ9LHtcImlkXCI6XCJ0aGFua1wiLFwidHlwZVwiOlwidG9vbFwiLFwic2VydmVyXCI6XCJzXCIsXCJhY3Rpb25cIjpcInRoYW5rXCJ9XSxcImNvbmRpdGlvbmFsc1wiOntcImNcIjp7XCJjb25kaXRpb25cIjpcInt7cGF5Lm91dHB1dH19ID09ICdyZWNlaXB0IDcnXCIsXCJpZl90cnVlXCI6W1widGhhbmtcIl19fX0sXCJpbnB1dFwiOntcIndob1wiOlwiYW5uXCJ9LFwicHJpbmNpcGFsXCI6e1wiSURcIjpcImFublwiLFwiUm9sZVwiOlwib3BlcmF0b3JcIixcIldvcmtmbG93c1wiOlwiXCIsXCJBbGlhc1wiOlwiXCJ9LFwicmVwZWF0YWJsZVwiOltcImxvb2tcIixcInBcIixcImVhY2hcIixcIm9uZVwiLFwiZ29cIixcInJlc3RcIixcImZsYWt5XCIsXCJ6XCIsXCJ0aGFua1wiXSxcIndyaXRlcnNcIjp7fSxcInN0YXJ0ZWRcIjpcIjIwMjYtMTEtMjlUMDA6MDA6NTMuOTI0WlwifSI=', 1795910453927);
INSERT INTO "workflow_input" VALUES ('run-recorded/signal/go/1', 'IntcIm5cIjo3fSI=', 1795910453954);
CREATE TABLE workflow_output (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    output TEXT,
    error TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);
INSERT INTO "workflow_output" VALUES ('run-recorded/signal/go/1', 'IntcIm5cIjo3fSI=', '', 1795910454198);
CREATE TABLE "operation_outputs" (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    function_name TEXT NOT NULL DEFAULT '',
    output TEXT,
    error TEXT,
    child_workflow_id TEXT,
    started_at_epoch_ms INTEGER,
    completed_at_epoch_ms INTEGER,
    serialization TEXT,
    application_name TEXT DEFAULT NULL,
    retention_timestamp INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    PRIMARY KEY (workflow_uuid, function_id)
);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 0, 'call look', 'IntcInZhbHVlXCI6e1wid2hvXCI6XCJhbm5cIn19Ig==', NULL, NULL, 1795910453953, 1795910453965, 'DBOS_JSON', 'gavel', 1795910453972);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 1, 'begin p/log', 'IjU4OWQ0YjU4LTYzZTAtNGQyNC04ZjM5LTY3NmVlZGI5M2IwZCI=', NULL, NULL, 1795910454032, 1795910454032, 'DBOS_JSON', 'gavel', 1795910454032);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 4, 'until p/rest', 'MTc5NTkxMDQ1NjA0MA==', NULL, NULL, 1795910454040, 1795910454040, 'DBOS_JSON', 'gavel', 1795910454039);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 2, 'call p/log', 'IntcInZhbHVlXCI6XCJsb2dnZWRcIn0i', NULL, NULL, 1795910454041, 1795910454071, 'DBOS_JSON', 'gavel', 1795910454072);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 3, 'wait signal/go/1', 'IntcImtleVwiOlwicC9nb1wiLFwidmFsdWVcIjp7XCJuXCI6N30sXCJiZWdhblwiOlwiMjAyNi0xMS0yOVQwMDowMDo1NC4wNFpcIn0i', NULL, NULL, 1795910454063, 1795910454072, 'DBOS_JSON', 'gavel', 1795910454080);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 5, 'begin p/pay', 'IjU4OWQ0YjU4LTYzZTAtNGQyNC04ZjM5LTY3NmVlZGI5M2IwZCI=', NULL, NULL, 1795910454072, 1795910454080, 'DBOS_JSON', 'gavel', 1795910454087);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 8, 'call p/each#1/one', 'IntcInZhbHVlXCI6MX0i', NULL, NULL, 1795910454108, 1795910454112, 'DBOS_JSON', 'gavel', 1795910454113);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 7, 'call p/flaky', 'IntcImVyclwiOntcImNvZGVcIjpcInRvb2xfZXJyb3JcIixcIm1lc3NhZ2VcIjpcIm5vdCB5ZXRcIn19Ig==', NULL, NULL, 1795910454108, 1795910454112, 'DBOS_JSON', 'gavel', 1795910454121);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 9, 'choose', 'Mg==', NULL, NULL, 1795910454108, 1795910454130, 'DBOS_JSON', 'gavel', 1795910454129);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 10, 'choose', 'Nw==', NULL, NULL, 1795910454132, 1795910454132, 'DBOS_JSON', 'gavel', 1795910454131);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 12, 'choose', 'Mw==', NULL, NULL, 1795910454138, 1795910454138, 'DBOS_JSON', 'gavel', 1795910454137);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 11, 'call p/each#2/one', 'IntcInZhbHVlXCI6Mn0i', NULL, NULL, 1795910454137, 1795910454138, 'DBOS_JSON', 'gavel', 1795910454138);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 13, 'choose', 'Ng==', NULL, NULL, 1795910454139, 1795910454141, 'DBOS_JSON', 'gavel', 1795910454142);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 14, 'until p/flaky.', 'MTc5NTkxMDQ1NDE1OQ==', NULL, NULL, 1795910454148, 1795910454149, 'DBOS_JSON', 'gavel', 1795910454149);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 15, 'choose', 'OQ==', NULL, NULL, 1795910454162, 1795910454162, 'DBOS_JSON', 'gavel', 1795910454162);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 17, 'choose', 'OA==', NULL, NULL, 1795910454172, 1795910454186, 'DBOS_JSON', 'gavel', 1795910454185);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 18, 'call p/each#3/one', 'IntcInZhbHVlXCI6M30i', NULL, NULL, 1795910454198, 1795910454200, 'DBOS_JSON', 'gavel', 1795910454199);
INSERT INTO "operation_outputs" VALUES ('run-recorded', 19, 'choose', 'MTE=', NULL, NULL, 1795910454201, 1795910454202, 'DBOS_JSON', 'gavel', 1795910454201);
CREATE INDEX workflow_status_created_at_index ON workflow_status (created_at);
CREATE INDEX idx_workflow_topic ON notifications (destination_uuid, topic);
CREATE INDEX "idx_workflow_status_delayed" ON "workflow_status" ("delay_until_epoch_ms")
    WHERE status = 'DELAYED';
CREATE INDEX "idx_workflow_status_forked_from"
    ON "workflow_status" ("forked_from")
    WHERE "forked_from" IS NOT NULL;
CREATE INDEX "idx_workflow_status_parent_workflow_id"
    ON "workflow_status" ("parent_workflow_id")
    WHERE "parent_workflow_id" IS NOT NULL;
CREATE UNIQUE INDEX "uq_workflow_status_dedup_id"
    ON "workflow_status" ("queue_name", "deduplication_id")
    WHERE "deduplication_id" IS NOT NULL;
CREATE INDEX "idx_workflow_status_pending"
    ON "workflow_status" ("created_at")
    WHERE "status" = 'PENDING';
CREATE INDEX "idx_workflow_status_failed"
    ON "workflow_status" ("status", "created_at")
    WHERE "status" IN ('ERROR', 'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED');
CREATE INDEX "idx_workflow_status_rate_limited"
    ON "workflow_status" ("queue_name", "started_at_epoch_ms")
    WHERE "rate_limited" = TRUE;
CREATE INDEX "idx_workflow_status_completed_at" ON "workflow_status" ("completed_at") WHERE "completed_at" IS NOT NULL;
CREATE INDEX "idx_workflow_status_started_at" ON "workflow_status" ("started_at_epoch_ms") WHERE "started_at_epoch_ms" IS NOT NULL;
CREATE INDEX "idx_workflow_status_schedule_name" ON "workflow_status" ("schedule_name") WHERE "schedule_name" IS NOT NULL;
CREATE UNIQUE INDEX "uq_application_versions_owner_version"
    ON "application_versions" ("application_name", "version_name")
    WHERE "application_name" IS NOT NULL;
CREATE UNIQUE INDEX "uq_application_versions_unclaimed_version"
    ON "application_versions" ("version_name")
    WHERE "application_name" IS NULL;
CREATE INDEX idx_workflow_input_retention
    ON workflow_input (retention_timestamp);
CREATE INDEX idx_workflow_output_retention
    ON workflow_output (retention_timestamp);
CREATE INDEX idx_operation_outputs_retention
    ON operation_outputs (retention_timestamp);
CREATE INDEX "idx_workflow_status_in_flight_v2" ON "workflow_status" ("queue_name", "status", "priority", "created_at", "application_name") WHERE "status" IN ('ENQUEUED', 'PENDING');
CREATE INDEX "idx_workflow_status_partition_dequeue_v3" ON "workflow_status" ("queue_name", "status", "queue_partition_key", "priority", "created_at", "workflow_uuid", "application_name") WHERE "status" IN ('ENQUEUED', 'PENDING') AND "queue_partition_key" IS NOT NULL;
CREATE INDEX "idx_operation_outputs_completed_at_function_name_v2" ON "operation_outputs" ("completed_at_epoch_ms", "function_name", "application_name");
CREATE INDEX "idx_workflow_status_deadline" ON "workflow_status" ("workflow_deadline_epoch_ms") WHERE "status" IN ('ENQUEUED', 'PENDING', 'DELAYED') AND "workflow_deadline_epoch_ms" IS NOT NULL;
CREATE INDEX "idx_application_versions_timestamp" ON "application_versions" ("version_timestamp" DESC);
CREATE INDEX "idx_application_versions_owner_timestamp" ON "application_versions" ("application_name", "version_timestamp" DESC);
CREATE INDEX gavel_runs_by_status ON workflow_status (status, name, created_at);
CREATE INDEX gavel_runs_by_owner ON workflow_status (authenticated_user, created_at);
CREATE INDEX gavel_runs_by_owner_and_status ON workflow_status (authenticated_user, status, name, created_at);
CREATE INDEX gavel_suspended_runs ON workflow_status (created_at) WHERE status = 'ERROR' AND json_extract(attributes, '$.suspended') = 1;
